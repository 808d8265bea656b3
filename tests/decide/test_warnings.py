"""Warnings: said where they apply, with the numbers of the answer, and nowhere else."""

import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.decide.market import OK_DAYS, STALE_DAYS


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def warned(catalog, **keys):
    decision = decide(catalog.resolve(Scenario(**keys)))
    return decision, dict(decision.warnings)


SAID = [  # where it is said, where it is not
    pytest.param("warning_derived_model", {"workload": "lora", "params_b": 7}, {"workload": "lora"}, id="a count"),
    pytest.param("warning_loss_scaling", {"recipe": "fp16-mixed"}, {"recipe": "pure-bf16"}, id="fp16"),
    pytest.param("warning_spot_serving", {"pricing": "spot"}, {"pricing": "on_demand"}, id="spot"),
]


@pytest.mark.parametrize(("key", "said", "unsaid"), SAID)
def test_a_warning_is_said_where_it_applies(catalog, key, said, unsaid):
    """A warning that is always there is read by nobody; one that is missing costs a run."""
    for keys, expected in ((said, True), (unsaid, False)):
        workload = "full" if "recipe" in keys else "serve"
        model = {} if "params_b" in keys else {"model": "llama-3.1-8b"}
        _, found = warned(catalog, **({"workload": workload} | model | keys))
        assert (key in found) is expected


def test_what_needs_no_offer_is_said_without_one(catalog):
    """Where nothing fits there is no price to warn of."""
    decision, said = warned(
        catalog, workload="full", params_b=400, recipe="fp16-mixed", gpu=("T4",), gpus=1, recompute="none"
    )

    assert decision.best is None
    assert set(said) == {"warning_derived_model", "warning_loss_scaling"}


def test_age_of_the_price_is_graded(catalog):
    """Prices of a month ago are stale, those of a season ago are old: a reader relies on the words."""
    graded = {}
    for gpu in catalog.offers()["gpu"].unique():
        decision, said = warned(catalog, workload="serve", model="llama-3.2-1b", gpu=(gpu,))
        if decision.best is not None:
            graded[int(decision.best["age_days"])] = set(said) & {"warning_old_price", "warning_stale_price"}

    assert any(graded.values())
    for days, keys in graded.items():
        expected = (
            {"warning_old_price"} if days >= STALE_DAYS else {"warning_stale_price"} if days >= OK_DAYS else set()
        )
        assert keys == expected, days


def test_storage_that_starves_the_cards_is_named(catalog):
    """Tiny models read faster than a network volume gives: the slow-down is in the hours, so it must be in words."""
    decision, said = warned(catalog, workload="pretrain", params_b=0.05, gpus=8, gpu=("H100-SXM",), train_tokens=1e11)
    slow_down = decision.best["storage_slow_down"]

    assert ("warning_storage_starves" in said) == (slow_down > 1.001)
    alone = decide(catalog.resolve(Scenario(workload="pretrain", params_b=7, train_tokens=1e11, gpus=8)))
    assert "warning_storage_starves" not in dict(alone.warnings)
    assert alone.best["storage_slow_down"] == 1.0


def test_cheaper_rivals_are_what_they_are_said_to_be(catalog):
    """A lower hourly price whose run costs more, and a tight offer whose run costs less."""
    seen = set()
    for keys in (
        {"workload": "lora", "model": "llama-3.1-8b"}, {"workload": "full", "model": "llama-3.1-8b"},
        {"workload": "qlora", "model": "llama-3.1-70b", "headroom": 0.4},
    ):  # fmt: skip
        decision, said = warned(catalog, **keys)
        best = decision.best
        if note := said.get("note_dearer_per_hour"):
            assert note["usd_per_hour"] == decision.ranking["usd_per_hour"].min() < best["usd_per_hour"]
            assert note["cost_usd"] >= best["cost_total_typical_usd"] * 0.999
        if note := said.get("note_tight_is_cheaper"):
            tight = decision.ranking[decision.ranking["fit"] == "tight"].iloc[0]
            assert note["cost_usd"] == pytest.approx(tight["cost_total_typical_usd"])
            assert note["cost_usd"] < best["cost_total_typical_usd"]
        seen |= set(said)

    assert {"note_dearer_per_hour", "note_tight_is_cheaper"} <= seen
