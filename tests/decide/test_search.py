"""Only layouts that real launchers accept are searched."""

import numpy as np
import pytest

from gpuguide.catalog.catalog import load_catalog
from gpuguide.catalog.models import Models
from gpuguide.catalog.package import data_folder
from gpuguide.decide.search import serving_pairs, training_pairs
from gpuguide.errors import InvalidScenario
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.precision import Optimizer, PrecisionRecipe
from gpuguide.spec.scenario import Scenario

RECIPE = PrecisionRecipe(
    name="r",
    compute_precision="bf16",
    weight_bytes=2,
    master_bytes=4,
    gradient_bytes=4,
    state_bytes=4,
    activation_bytes=2,
)


def job(method="pretrain", batch=64, sequence=4096):
    return TrainingJob(
        method=method, train_tokens=1e9, sequence_length=sequence, global_batch=batch, recipe=RECIPE,
        optimizer=Optimizer(name="adamw", states=2),
    )  # fmt: skip


@pytest.fixture(scope="module")
def llama():
    return Models(data_folder()).get("llama-3.1-8b")


def test_degrees_multiply_to_the_gpus(llama, machines):
    """A plan whose degrees do not multiply to the GPU count cannot be launched."""
    shapes = machines("H100-SXM", ("H100-SXM", 8, 1), ("H100-SXM", 8, 4))
    pairs = training_pairs(llama, job(), Scenario(workload="pretrain"), shapes)
    plan = pairs.plan
    used = plan.tensor_parallel * plan.pipeline_parallel * plan.context_parallel * plan.data_parallel
    assert np.array_equal(used, shapes.gpus[pairs.shape])
    assert np.all(plan.tensor_parallel <= shapes.gpus_per_node[pairs.shape])
    assert np.all(plan.data_parallel * plan.micro_batch <= 64)
    assert np.all((plan.pipeline_parallel == 1) | (plan.zero_stage <= 1))
    assert set(np.unique(pairs.shape)) == {0, 1, 2}


def test_adapters_are_not_split_over_tensor_ranks(llama, machines):
    pairs = training_pairs(llama, job("lora"), Scenario(workload="lora"), machines(("L40S", 8, 1)))
    assert set(pairs.plan.tensor_parallel) == {1.0}


REFUSED = [
    pytest.param("tensor_parallel", 3, "32 attention heads", id="heads"),
    pytest.param("pipeline_parallel", 64, "has 16 GPUs", id="more stages than GPUs"),
    pytest.param("tensor_parallel", 16, "has 8 GPUs", id="tensor ranks beyond a machine"),
    pytest.param("expert_parallel", 32, "has 16 GPUs", id="more expert ranks than GPUs"),
]


@pytest.mark.parametrize(("key", "value", "words"), REFUSED)
def test_impossible_degree_is_refused(llama, machines, key, value, words):
    """A sentence with the limit, rather than an empty list."""
    with pytest.raises(InvalidScenario, match=words):
        training_pairs(llama, job(), Scenario(workload="pretrain", **{key: value}), machines(("H100-SXM", 8, 2)))


def test_more_stages_than_layers_are_refused(llama, machines):
    """Llama 3.1 8B has 32 layers."""
    with pytest.raises(InvalidScenario, match="32 layers to split"):
        training_pairs(llama, job(), Scenario(workload="pretrain", pipeline_parallel=64), machines(("H100-SXM", 8, 8)))


FIXED = [
    pytest.param({"zero_stage": 0}, "zero_stage", id="plain data parallel"),
    pytest.param({"zero_stage": 3}, "zero_stage", id="FSDP"),
    pytest.param({"tensor_parallel": 2}, "tensor_parallel", id="tensor ranks"),
    pytest.param({"data_parallel": 4}, "data_parallel", id="replicas"),
    pytest.param({"context_parallel": 2}, "context_parallel", id="context ranks"),
    pytest.param({"micro_batch": 4}, "micro_batch", id="micro-batch"),
]


@pytest.mark.parametrize(("keys", "field"), FIXED)
def test_what_the_reader_fixes_is_kept(llama, machines, keys, field):
    """A plan with another degree than the one asked for would be launched wrongly."""
    pairs = training_pairs(llama, job(), Scenario(workload="pretrain", **keys), machines(("H100-SXM", 8, 2)))

    assert len(pairs) > 0
    assert set(np.broadcast_to(getattr(pairs.plan, field), (len(pairs),))) == {float(keys[field])}


@pytest.mark.parametrize(
    ("keys", "shapes"), [({"gpus": 8}, {1}), ({"nodes": 2}, {2}), ({"gpus": 8, "nodes": 2}, set())]
)
def test_only_sizes_asked_for_are_searched(llama, machines, keys, shapes):
    """Plans for sizes that nobody asked for cost time and are thrown away."""
    asked = machines("H100-SXM", ("H100-SXM", 8, 1), ("H100-SXM", 8, 2))

    assert set(training_pairs(llama, job(), Scenario(workload="pretrain", **keys), asked).shape) == shapes


def test_experts_are_dealt_evenly(machines):
    """8 experts over 3 ranks, or expert ranks that are no part of the replicas."""
    mixtral = Models(data_folder()).get("mixtral-8x7b")
    plan = training_pairs(mixtral, job(), Scenario(workload="pretrain"), machines(("H100-SXM", 8, 2))).plan

    assert set(plan.expert_parallel) == {1.0, 2.0, 4.0, 8.0}
    assert np.all((plan.data_parallel * plan.tensor_parallel) % plan.expert_parallel == 0)


def test_long_sequences_are_split_and_short_ones_are_not(llama, machines):
    """Below 16 thousand tokens context parallel is not worth a place; each rank keeps a thousand tokens."""
    shapes = machines(("H100-SXM", 8, 2))
    short = training_pairs(llama, job(sequence=8192), Scenario(workload="pretrain"), shapes)
    long = training_pairs(llama, job(sequence=16_384), Scenario(workload="pretrain"), shapes)

    assert set(short.plan.context_parallel) == {1.0}
    assert set(long.plan.context_parallel) == {1.0, 2.0, 4.0, 8.0, 16.0}


def test_replicas_of_a_server_fill_the_machine(llama, machines):
    """GPUs that no replica uses would be paid for nothing."""
    served = load_catalog().resolve(Scenario(workload="serve", model="llama-3.1-8b"))
    shapes = machines("H100-SXM", ("H100-SXM", 8, 1))
    pairs = serving_pairs(llama, served.job, served.scenario, shapes)
    plan = pairs.plan

    np.testing.assert_array_equal(
        plan.tensor_parallel * plan.pipeline_parallel * plan.data_parallel, shapes.gpus[pairs.shape]
    )
    assert {1.0, 2.0, 4.0, 8.0} == set(plan.tensor_parallel)
