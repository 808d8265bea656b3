"""Groups of GPUs that share a replica's states: counted by hand, and the same for memory as for time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.estimate.exchange import data_parallel_s, split_of
from gpuguide.estimate.sharding import joined_ranks, shard_ranks
from gpuguide.estimate.states import split_params
from gpuguide.spec.plan import Plan
from tests.estimate import training_cases as cases

EIGHT = cases.machines(("H100-SXM", 8, 4))  # NVSwitch joins the 8 of a machine
PAIRS = replace(EIGHT, all_reduce=replace(EIGHT.all_reduce, domain_gpus=np.array([2.0])))
RACK = cases.machines(("GB200", 4, 24))  # NVLink joins 72 over machines of 4

GROUPS = [  # shards inside, degrees, machine; the id names the layout of ranks: tensor, context, data, pipeline
    pytest.param(8, {"data_parallel": 32}, EIGHT, id="FSDP HYBRID_SHARD, one group a machine"),
    pytest.param(4, {"data_parallel": 16, "tensor_parallel": 2}, EIGHT, id="4 x tensor 2 fill a machine"),
    pytest.param(1, {"data_parallel": 4, "tensor_parallel": 8}, EIGHT, id="tensor 8 fills a machine"),
    pytest.param(4, {"data_parallel": 4, "tensor_parallel": 2, "pipeline_parallel": 4}, EIGHT, id="a stage a machine"),
    pytest.param(2, {"data_parallel": 2, "tensor_parallel": 2, "pipeline_parallel": 8}, EIGHT, id="2 stages a machine"),
    pytest.param(4, {"data_parallel": 4, "context_parallel": 4, "tensor_parallel": 2}, EIGHT, id="context ranks share"),
    pytest.param(6, {"data_parallel": 12}, EIGHT, id="two equal groups of 12, not 8 and 4"),
    pytest.param(8, {"data_parallel": 16}, PAIRS, id="a machine of bridged pairs"),
    pytest.param(64, {"data_parallel": 64}, RACK, id="a rack is one NVLink domain"),
    pytest.param(48, {"data_parallel": 96}, RACK, id="96 over racks of 72"),
]


@pytest.mark.parametrize(("expected", "degrees", "nodes"), GROUPS)
def test_shards_inside_a_node(expected, degrees, nodes):
    """Memory and time that count other groups would weigh one plan's memory against another plan's time."""
    plan = Plan(**{name: float(degree) for name, degree in degrees.items()}, zero_stage=3.0, shard_in_node=1.0)

    assert float(np.squeeze(shard_ranks(plan=plan, nodes=nodes))) == expected
    assert float(np.squeeze(split_params(model=cases.model("llama-3.1-8b"), plan=plan, nodes=nodes).shards)) == expected


def test_gathering_inside_costs_what_it_costs_on_one_machine():
    """Tensor and pipeline ranks that fill a machine: weights still come from the 4 GPUs of the stage, over NVLink."""
    model, job = cases.model("llama-3.1-70b"), cases.job()
    inside = Plan(tensor_parallel=2.0, pipeline_parallel=4.0, data_parallel=4.0, zero_stage=1.0, shard_in_node=1.0)
    alone = Plan(tensor_parallel=2.0, pipeline_parallel=4.0, data_parallel=4.0, zero_stage=1.0)
    seconds = [data_parallel_s(model, job, plan, split_of(model, job, plan), EIGHT)[1] for plan in (inside, alone)]

    np.testing.assert_allclose(seconds[0], seconds[1])


@given(
    data=st.integers(1, 64), context=st.sampled_from([1, 2, 4]), tensor=st.sampled_from([1, 2, 4, 8]),
    stages=st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_groups_are_equal_and_joined(data, context, tensor, stages):
    """A group larger than the fast link joins, or ranks left without a group."""
    plan = Plan(
        data_parallel=float(data), context_parallel=float(context), tensor_parallel=float(tensor),
        pipeline_parallel=float(stages), shard_in_node=1.0,
    )  # fmt: skip
    ranks = data * context
    group = float(np.squeeze(shard_ranks(plan=plan, nodes=EIGHT)))
    joined = float(np.squeeze(joined_ranks(ranks=float(ranks), tensor_parallel=float(tensor), nodes=EIGHT)))

    assert joined == min(ranks, 8 / tensor)
    assert joined / 2 < group <= joined
    assert (ranks / group) == pytest.approx(round(ranks / group))
