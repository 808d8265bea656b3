"""Figures hold the numbers of the decision, in both languages, and nothing that plotly.js would choke on."""

import json

import numpy as np
import pytest

from gpuguide.show import figures, sweeps, theme
from gpuguide.text import Text
from gpuguide.units import GIB

DRAWN = [figures.memory_by_gpu, figures.cost_of_offers, figures.time_and_cost, figures.step_time]


def tokens_in(figure):
    text = json.dumps(figure)
    return {part.split(")")[0] for part in text.split("var(--gg-")[1:]}


@pytest.mark.parametrize("language", ["en", "tr"])
@pytest.mark.parametrize("case", ["serve", "qlora", "pretrain", "nothing"])
@pytest.mark.parametrize("draw", DRAWN)
def test_figures_are_plain_and_complete(draw, case, language, decision_of):
    """What is no JSON never reaches the page; an unknown colour is invisible; a picture without a label is silent."""
    figure = draw(decision_of(case), Text(language))
    json.dumps(figure, allow_nan=False)
    assert tokens_in(figure) <= set(theme.LIGHT)
    assert figure["label"]
    assert figure["layout"]["separators"] == {"en": ".,", "tr": ",."}[language]


def test_bars_sum_to_what_is_needed(decision_of):
    """A part left out would make a job look as if it fitted."""
    decision = decision_of("qlora")
    figure = figures.memory_by_gpu(decision, Text("en"))
    drawn = np.sum([trace["x"] for trace in figure["data"] if trace["type"] == "bar"], axis=0)
    rows = decision.by_gpu.sort_values(["usable_bytes", "gpu"], kind="stable")
    np.testing.assert_allclose(drawn, rows["memory_total_typical_bytes"] / GIB, rtol=0.01)
    limits = next(trace for trace in figure["data"] if trace["type"] == "scatter")
    np.testing.assert_allclose(limits["x"], rows["usable_bytes"] / GIB, rtol=1e-3)


def test_cost_bars_sum_to_the_total(decision_of):
    """A part of the bill would be hidden."""
    decision = decision_of("pretrain")
    figure = figures.cost_of_offers(decision, Text("en"))
    drawn = np.sum([trace["x"] for trace in figure["data"] if trace["type"] == "bar"], axis=0)
    np.testing.assert_allclose(drawn, decision.top(10)["cost_total_typical_usd"], rtol=0.02)


def test_money_is_drawn_in_the_reader_s_currency(decision_of):
    """Axis and table would disagree."""
    dollars = figures.cost_of_offers(decision_of("qlora"), Text("en"))
    lira = figures.cost_of_offers(decision_of("qlora"), Text("tr", "TRY", 40.0))
    np.testing.assert_allclose(np.array(lira["data"][0]["x"]) / 40, dollars["data"][0]["x"], rtol=1e-3)


def test_equal_names_keep_their_own_bars():
    """Two offers of the same provider would be stacked into one."""
    assert len(set(figures._distinct(["a", "a", "b"]))) == 3


@pytest.mark.parametrize("job", ["pretrain", "serve", "qlora"])
def test_front_is_a_front(decision_of, job):
    """On the line, nothing may be both slower and dearer than another point of it, and no end of it may be missing."""
    decision = decision_of(job)
    front = figures.time_and_cost(decision, Text("en"))["data"][1]
    assert np.all(np.diff(front["x"]) >= 0)
    assert np.all(np.diff(front["y"]) <= 1e-9 * np.array(front["y"][:-1]))
    assert len(front["x"]) == decision.ranking["pareto"].sum()


def test_powers_stay_within():
    """A sweep would ask for what no model reads."""
    assert sweeps._powers(1000, 9000) == [1024, 2048, 4096, 8192]
