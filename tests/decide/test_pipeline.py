"""The whole chain on the real tables: anchors that renters know, and rules that hold for every answer."""

import dataclasses
import sys

import numpy as np
import pandas as pd
import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.estimate.results import PARTS

ASKED = {
    "lora": {"workload": "lora", "model": "llama-3.1-8b", "sequence_length": 4096},
    "serve": {
        "workload": "serve", "model": "llama-3.1-70b", "weight_format": "fp8", "max_context": 32768, "concurrency": 16,
    },
    "serve MoE": {"workload": "serve", "model": "deepseek-v3"},
    "pretrain": {"workload": "pretrain", "params_b": 7, "train_tokens": 1e12, "gpus": 256},
}  # fmt: skip


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


@pytest.fixture(scope="module")
def answered(catalog):
    """Decisions by name, made once."""
    return {name: decide(catalog.resolve(Scenario(**keys))) for name, keys in ASKED.items()}


@pytest.mark.parametrize("name", ASKED)
def test_five_priced_dated_offers_that_fit(answered, name):
    """The main questions must not end in an empty or undated list."""
    five = answered[name].ranking.head(5)
    assert len(five) == 5
    assert set(five["fit"]) <= {"fits", "tight"}
    assert (five["cost_total_typical_usd"] > 0).all()
    assert five["as_of"].str.fullmatch(r"\d{4}-\d{2}-\d{2}").all()


@pytest.mark.parametrize("name", ASKED)
def test_parts_and_bands_are_consistent(answered, name):
    """Parts that do not sum, or a band whose ends have changed places, would mislead every chart."""
    table = answered[name].ranking
    parts = sum(table[f"memory_{part}_bytes"] for part in PARTS)
    assert np.allclose(parts, table["memory_total_typical_bytes"], rtol=1e-9)
    for quantity in ("memory_total_{}_bytes", "hours_{}", "cost_total_{}_usd", "tokens_per_s_{}"):
        low, typical, high = (table[quantity.format(band)] for band in ("low", "typical", "high"))
        assert (low <= typical * (1 + 1e-9)).all(), quantity
        assert (typical <= high * (1 + 1e-9)).all(), quantity


@pytest.mark.parametrize("name", ASKED)
def test_ranking_is_by_cost_with_what_fits_first(answered, name):
    table = answered[name].ranking
    for fit in ("fits", "tight"):
        assert table.loc[table["fit"] == fit, "cost_total_typical_usd"].is_monotonic_increasing
    assert table["fit"].tolist() == sorted(table["fit"])


@pytest.mark.parametrize("name", ASKED)
def test_funnel_never_widens(answered, name):
    remaining = [count for _, count in answered[name].funnel]
    assert remaining == sorted(remaining, reverse=True)
    assert remaining[-1] == len(answered[name].best_first)


def fit_on(catalog, gpu, gpus=1, **keys):
    """Best verdict over the offers of one GPU: fits, tight or no."""
    kinds = ("on_demand", "marketplace", "community", "serverless")
    scenario = Scenario(gpu=(gpu,), gpus=gpus, offer_kinds=kinds, pricing="any", **keys)
    decision = decide(catalog.resolve(scenario))
    return decision.best["fit"] if decision.best is not None else "no"


ANCHORS = [
    pytest.param(
        "fits",
        "RTX4090",
        1,
        {"workload": "serve", "model": "llama-2-7b", "weight_format": "awq", "max_context": 4096},
        id="7B at 4 bits serves on 24 GB",
    ),
    pytest.param(
        "fits",
        "RTX4090",
        1,
        {"workload": "serve", "model": "llama-2-13b", "weight_format": "awq", "max_context": 4096},
        id="13B at 4 bits serves on 24 GB",
    ),
    pytest.param(
        "no",
        "H100-SXM",
        1,
        {"workload": "serve", "model": "llama-3.1-70b", "weight_format": "bf16"},
        id="70B at BF16 not on one 80 GB card",
    ),
    pytest.param(
        "fits",
        "H100-SXM",
        2,
        {"workload": "serve", "model": "llama-3.1-70b", "weight_format": "bf16", "max_context": 4096},
        id="70B at BF16 on two 80 GB cards",
    ),
    pytest.param(
        "fits",
        "L40",
        1,
        {"workload": "qlora", "model": "llama-2-70b", "sequence_length": 512},
        id="QLoRA of 70B on 48 GB at short context",
    ),
    pytest.param(
        "no",
        "H100-SXM",
        1,
        {"workload": "full", "model": "llama-2-7b", "recompute": "none"},
        id="full fine-tuning of 7B not on one 80 GB card",
    ),
]


@pytest.mark.parametrize(("expected", "gpu", "gpus", "keys"), ANCHORS)
def test_anchors_that_renters_know(catalog, expected, gpu, gpus, keys):
    """Memory is the first question; these answers are common knowledge among renters."""
    found = fit_on(catalog, gpu, gpus, **keys)
    assert found in ({"fits", "tight"} if expected == "fits" else {"no"})


def test_full_fine_tuning_of_7b_fits_when_sharded(catalog):
    assert fit_on(catalog, "H100-SXM", 8, workload="full", model="llama-2-7b") == "fits"


def test_nothing_fits_is_an_answer(catalog):
    """A misfit carries the missing bytes; it is never an exception."""
    decision = decide(catalog.resolve(Scenario(workload="serve", model="deepseek-v3", gpu=("T4",), gpus=1)))
    assert decision.ranking.empty
    assert decision.verdict["key"] == "verdict_no"
    assert decision.verdict["missing_bytes"] > 0


def test_decide_is_pure(catalog):
    """Asking twice, or in between, must not change an answer."""
    question = catalog.resolve(Scenario(**ASKED["lora"]))
    first, _, again = decide(question), decide(catalog.resolve(Scenario(**ASKED["serve"]))), decide(question)
    assert first.as_json(top=20) == again.as_json(top=20)
    assert dataclasses.is_dataclass(first)


@pytest.mark.parametrize("keys", [{"workload": "full", "model": "llama-3.1-8b"}, ASKED["serve MoE"]])
def test_an_answer_does_not_depend_on_how_much_is_settled_at_a_time(catalog, monkeypatch, keys):
    """Pieces keep arrays small; one that ended inside a machine's plans would choose among half of them."""
    question = catalog.resolve(Scenario(**keys))
    at_once = {}
    for piece in (97, 10**9):
        monkeypatch.setattr(sys.modules["gpuguide.decide.fit"], "PIECE", piece)
        at_once[piece] = decide(question).ranking
    pd.testing.assert_frame_equal(at_once[97], at_once[10**9], rtol=1e-12)
