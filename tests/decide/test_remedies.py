"""What would help: each change, made by hand, gives what the list says."""

import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.decide.remedies import changes

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


CHANGED = [  # what a scenario sets, the remedy that undoes it; the id says what a reader would try
    pytest.param({"workload": "full", "attention": "eager"}, {"attention": "fused"}, id="fused attention"),
    pytest.param({"workload": "full", "micro_batch": 8}, {"micro_batch": 1}, id="one sequence at a time"),
    pytest.param({"workload": "full", "optimizer": "adamw"}, {"optimizer": "adamw-8bit"}, id="8-bit optimizer"),
    pytest.param({"workload": "full"}, {"workload": "lora", "recipe": None}, id="adapters"),
    pytest.param({"workload": "lora"}, {"workload": "qlora", "recipe": None}, id="4-bit base"),
    pytest.param({"workload": "pretrain"}, {"recipe": "fp8"}, id="8-bit arithmetic"),
    pytest.param({"workload": "full", "offload": "none"}, {"offload": "auto"}, id="host memory"),
    pytest.param({"workload": "full", "sequence_length": 4096}, {"sequence_length": 2048}, id="half the length"),
    pytest.param({"workload": "full", "gpus": 4}, {"gpus": 8, "nodes": None}, id="twice the GPUs"),
    pytest.param({"workload": "full", "pricing": "on_demand"}, {"pricing": "any"}, id="spot"),
    pytest.param({"workload": "serve", "weight_format": "bf16"}, {"weight_format": "awq"}, id="4-bit weights"),
    pytest.param({"workload": "serve", "kv_format": "bf16"}, {"kv_format": "fp8"}, id="8-bit cache"),
    pytest.param({"workload": "serve", "concurrency": 4}, {"concurrency": 8}, id="larger batches"),
    pytest.param({"workload": "image", "model": "flux.1-dev"}, {"quantization": "fp8"}, id="8-bit denoiser"),
    pytest.param({"workload": "image", "model": "flux.1-dev"}, {"offload": "all"}, id="one component at a time"),
    pytest.param({"workload": "image", "model": "flux.1-dev", "batch": 4}, {"batch": 1}, id="one image at a time"),
]


@pytest.mark.parametrize(("keys", "change"), CHANGED)
def test_what_is_tried(keys, change):
    """A remedy that is tried although it is already so, or one that nobody is told of."""
    asked = Scenario(**({"model": "llama-3.1-8b"} | keys))
    tried = list(changes(asked))

    assert change in tried
    # Made by hand, the change is not offered again: halving and doubling go on.
    made = list(changes(asked.model_copy(update=change)))
    again = set(change) & {"sequence_length", "gpus", "concurrency", "quantization", "offload"}
    assert again or change not in made


def test_nothing_is_tried_twice():
    """Of a scenario that does all of it already, only what may still gain is tried."""
    done = Scenario(
        workload="qlora", model="llama-3.1-8b", fused_loss=True, recompute="full", optimizer="adamw-8bit",
        offload="auto", pricing="any", sequence_length=1024,
    )  # fmt: skip
    assert list(changes(done)) == []
    served = Scenario(workload="serve", model="llama-3.1-8b", weight_format="fp8", kv_format="fp8", pricing="any")
    assert list(changes(served)) == [{"weight_format": "awq"}, {"weight_format": "nf4"}]


def test_an_image_that_fits_no_card_of_the_reader(catalog):
    """FLUX in 16 bit misses 24 GB: fewer bits, or one component at a time, make it fit."""
    decision = decide(catalog.resolve(Scenario(workload="image", model="flux.1-dev", gpu=("RTX4090",), gpus=1)))
    made = [remedy.change for remedy in decision.remedies if remedy.makes_fit]

    assert decision.best is None
    assert {"quantization": "fp8"} in made
    assert {"offload": "all"} in made
    assert decision.remedies == sorted(decision.remedies, key=lambda remedy: remedy.cost_usd)
