"""What would help: each change, made by hand, gives what the list says."""

import pytest

from gpuguide import Scenario, decide, load_catalog

CARD = {"gpu": ("H100-SXM",), "gpus": 1}


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"workload": "full", "model": "llama-3.1-8b", "recompute": "none", **CARD}, id="a misfit"),
        pytest.param({"workload": "serve", "model": "llama-3.1-8b", "concurrency": 8}, id="a fit"),
        pytest.param({"workload": "lora", "model": "llama-3.1-70b", "gpus": 8}, id="a large fit"),
    ],
)
def test_remedy_keeps_its_word(catalog, asked):
    """A button that does something else than it says would cost somebody money."""
    before = decide(catalog.resolve(Scenario(**asked)))
    assert before.remedies
    for remedy in before.remedies:
        after = decide(catalog.resolve(before.scenario.model_copy(update=dict(remedy.change))))
        assert after.best is not None
        assert after.best["cost_total_typical_usd"] == pytest.approx(remedy.cost_usd)
        assert after.best["memory_total_typical_bytes"] == pytest.approx(remedy.memory_bytes)
        assert remedy.makes_fit == (before.best is None)
        if before.best is not None:
            assert min(remedy.cost_ratio, remedy.time_ratio, remedy.unit_ratio if remedy.unit_ratio > 0 else 9) < 0.98


def test_batching_more_is_cheaper_per_token(catalog):
    """G10: weights are read once for all running requests."""
    decision = decide(catalog.resolve(Scenario(workload="serve", model="llama-3.1-8b", concurrency=8)))
    more = next(remedy for remedy in decision.remedies if "concurrency" in remedy.change)
    assert more.unit_ratio < 0.9


def test_recompute_makes_a_misfit_fit(catalog):
    """T3: the gentlest remedy for activations is to compute them again."""
    asked = Scenario(
        workload="lora", model="llama-3.1-8b", sequence_length=8192, recompute="none", gpu=("L40S",), gpus=1
    )
    decision = decide(catalog.resolve(asked))
    assert decision.best is None
    assert any(remedy.change == {"recompute": "full"} and remedy.makes_fit for remedy in decision.remedies)
