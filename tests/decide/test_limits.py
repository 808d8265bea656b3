"""Largest context, batch and model per GPU agree with the estimates they are the inverse of."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide import NotModelled, Scenario, decide, load_catalog
from gpuguide.decide.fit import flat
from gpuguide.decide.ladder import ladder
from gpuguide.decide.limits import limits
from gpuguide.estimate.training_memory import training_memory
from gpuguide.spec.plan import Plan


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def test_longest_context_fits_and_twice_does_not(catalog):
    """An inverse that disagrees with the estimate would promise what the ranking denies."""
    question = catalog.resolve(Scenario(workload="qlora", model="llama-3.1-8b"))
    table = limits(question).set_index("gpu")
    usable = table.loc["RTX4090", "usable_bytes"] * 0.95
    longest = table.loc["RTX4090", "max_context_tokens"]
    nodes = catalog.nodes("RTX4090")

    def needed(tokens):
        memory = training_memory(
            model=question.model, job=replace(question.job, sequence_length=tokens), plan=Plan(recompute=2.0),
            nodes=nodes, assumptions=question.assumptions.typical(),
        )  # fmt: skip
        return float(flat(memory.total)[0, 0])

    assert needed(longest) <= usable < needed(longest * 1.2)


@pytest.mark.parametrize("workload", ["serve", "lora", "full"])
def test_more_memory_never_holds_less(catalog, workload):
    """Cards sorted by memory: what fits on the smaller fits on the larger of the same kind of engine limits."""
    table = limits(catalog.resolve(Scenario(workload=workload, model="llama-3.1-8b")))
    cards = table.set_index("gpu").loc[["T4", "RTX4090", "L40S", "H200-SXM", "B200"]]
    for column in ("max_context_tokens", "max_params"):
        assert np.all(np.diff(cards[column].to_numpy()) >= 0), column


def test_largest_model_at_4_bits_on_24_gb(catalog):
    """Articles' rule: 7B to 13B quantised fits 24 GB, 70B does not."""
    question = catalog.resolve(Scenario(workload="serve", model="llama-3.1-8b", weight_format="awq"))
    params = limits(question).set_index("gpu").loc["RTX4090", "max_params"]
    assert 13e9 < params < 50e9


def test_media_is_refused_with_a_sentence(catalog):
    question = catalog.resolve(Scenario(workload="image", model="flux.1-dev"))
    with pytest.raises(NotModelled, match="image"):
        limits(question)


def test_ladder_names_a_rung_that_has_an_offer(catalog):
    """The recommended rung must be one of those shown, with the reason the scenario gives."""
    for keys, rung in (({"workload": "lora"}, "one_gpu"), ({"model": "deepseek-v3"}, "one_machine")):
        found = ladder(decide(catalog.resolve(Scenario(**keys))))
        assert found.chosen == rung
        assert rung in set(found.rows["rung"])
        assert found.reason == ("cheapest" if rung == "one_gpu" else "only_fit")
