"""What a reader is told beside the verdict: every sentence exists, and is said when it is true."""

import re
from pathlib import Path

import numpy as np
import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.decide import words
from gpuguide.decide.decision import row_as_json
from gpuguide.decide.market import outcomes
from gpuguide.decide.scarcity import SCARCE_PROVIDERS, providers_of, scarcity
from gpuguide.show.tables import ranking_table
from gpuguide.show.verdict import tiles
from gpuguide.text import Text, texts

SPOT = {"workload": "full", "model": "llama-3.1-8b", "train_tokens": 2e9, "pricing": "spot", "gpu": ["H100-SXM"]}


def answer(**scenario):
    return decide(load_catalog().resolve(Scenario.from_mapping(scenario)))


def test_every_sentence_has_words():
    """A run that starves for data would show an error in place of the warning."""
    source = Path(words.__file__).read_text("utf-8")
    keys = set(re.findall(r'"((?:warning|note)_[a-z_]+)"', source))
    assert keys
    assert keys <= set(texts("en"))


def test_a_deadline_shows_how_likely_it_is_kept():
    """On spot, 'takes 20 h' is a mean: half of the runs are later."""
    hours = float(answer(**SPOT, interruptions_per_hour=0.3).best["hours_typical"])
    decision = answer(**SPOT, interruptions_per_hour=0.3, deadline_hours=hours * 1.001)
    best = decision.best
    assert 0 < best["probability_in_time"] < 1
    assert Text("en").percent(min(best["probability_in_time"], 0.99)) in tiles(decision, Text("en"))
    assert "warning_deadline" in dict(decision.warnings)
    assert row_as_json(dict(best))["probability_in_time"] == best["probability_in_time"]
    assert "probability_in_time" not in answer(**SPOT).best


def test_an_idle_server_may_be_stopped():
    """Office hours paid round the clock."""
    busy = answer(workload="serve", model="llama-3.1-8b", load="bursts")
    assert busy.best["total_if_stopped"] < busy.best["cost_total_typical_usd"]
    said = dict(busy.warnings)["note_stop_between"]
    assert said["stopped_usd"] == busy.best["total_if_stopped"]


def test_scarce_machines_are_marked_in_the_ranking():
    """A machine that one provider lists looks as easy to get as any."""
    decision = answer(workload="serve", model="llama-3.1-8b", pricing="any")
    rare = decision.ranking.head(20)["providers"] < SCARCE_PROVIDERS
    assert ranking_table(decision, Text("en")).count(Text("en")("market.scarce")) == rare.sum()


@pytest.mark.parametrize("workload", ["serve", "pretrain"])
def test_providers_are_counted_alike_everywhere(workload):
    """The ranking would call scarce what the market page calls common."""
    job = {"params_b": 1.0} if workload == "pretrain" else {"model": "llama-3.1-8b"}
    decision = answer(workload=workload, pricing="any", **job)
    offers = decision.question.offers
    counted = scarcity(offers).set_index(["gpu", "gpus_per_node", "nodes"])["providers"]
    places = np.arange(0, len(offers), 37)
    keys = zip(*(offers[name].iloc[places] for name in ("computed_as", "gpus_per_node", "nodes")), strict=True)
    assert providers_of(decision.rows.market, places).tolist() == [counted[key] for key in keys]


def test_every_gpu_of_every_provider_can_be_looked_up():
    """A renter misses an offer and nobody says at which question it fell out."""
    decision = answer(workload="full", model="llama-3.1-8b", deadline_hours=5, max_price_age_days=200)
    funnel, offers = decision.rows.funnel, decision.question.offers
    found = outcomes(decision.rows.market, funnel)
    assert found["offers"].sum() == len(offers)
    assert found["left"].sum() == funnel.keep.sum()
    assert ((found["left"] > 0) == (found["step"] == "")).all()
    steps = [name for name, _ in funnel.remaining]
    for row in found.sample(30, random_state=1).to_dict("records"):
        places = np.flatnonzero((offers["provider"] == row["provider"]) & (offers["gpu"] == row["gpu"]))
        reasons = [funnel.reason(int(place)) for place in places]
        if row["step"]:
            assert row["step"] == max(reasons, key=steps.index)
        else:
            assert None in reasons
