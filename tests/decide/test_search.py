"""Only layouts that real launchers accept are searched."""

import numpy as np
import pytest

from gpuguide.catalog.models import Models
from gpuguide.catalog.package import data_folder
from gpuguide.decide.search import training_pairs
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


@pytest.mark.parametrize(
    ("key", "value", "words"), [("tensor_parallel", 3, "32 attention heads"), ("pipeline_parallel", 64, "GPUs")]
)
def test_impossible_degree_is_refused(llama, machines, key, value, words):
    with pytest.raises(InvalidScenario, match=words):
        training_pairs(llama, job(), Scenario(workload="pretrain", **{key: value}), machines(("H100-SXM", 8, 1)))
