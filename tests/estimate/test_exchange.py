"""What a training plan sends, counted by hand: how often, how much, over how many ranks."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate import network
from gpuguide.estimate.compute import adapters_of
from gpuguide.estimate.exchange import (
    data_parallel_s,
    expert_s,
    local_params,
    mlp_layers,
    offload_s,
    split_of,
    sublayers,
    tensor_s,
)
from gpuguide.spec.plan import Plan
from tests.estimate.training_cases import assumptions, job, machines, model

NODES = machines(("H100-SXM", 8, 4))
LLAMA = model("llama-2-7b")  # 32 layers, 4,096 wide, 32 KV heads of 128
FRESH = {"message_bytes": 4096 * 4096 * 2.0, "nodes": NODES}  # one sequence of hidden states in 16 bit


def one(value):
    return float(np.asarray(value).ravel()[len(np.asarray(value)) // 2 if np.ndim(value) > 2 else 0])


def sent_s(plan, of=LLAMA, asked=None):
    asked = asked or job()
    return one(tensor_s(of, asked, plan, split_of(of, asked, plan), NODES))


def test_tensor_ranks_by_hand():
    """Attention and MLP of 32 layers: two exchanges forward, three backward, two more where forward runs again."""
    once = one(network.all_gather_s(ranks=4.0, **FRESH))

    assert sent_s(Plan()) == 0.0
    assert sent_s(Plan(tensor_parallel=4.0)) == pytest.approx(64 * 5 * once)
    assert sent_s(Plan(tensor_parallel=4.0, recompute=2.0)) == pytest.approx(64 * 7 * once)
    half = one(network.all_gather_s(ranks=4.0, **(FRESH | {"message_bytes": 2 * FRESH["message_bytes"]})))
    assert sent_s(Plan(tensor_parallel=4.0, pipeline_parallel=2.0, micro_batch=2.0)) == pytest.approx(
        32 * 5 * half + 2 * one(network.send_s(message_bytes=FRESH["message_bytes"] / 2, nodes=NODES, across=False))
    )


def test_context_ranks_by_hand():
    """Keys and values of all ranks travel forward, and twice backward; once more where attention runs again."""
    plan = Plan(context_parallel=4.0)
    ring = one(
        network.all_gather_s(message_bytes=4096 * 2 * 32 * 128 * 2.0, ranks=4.0, nodes=NODES, ranks_per_node=4.0)
    )

    assert sent_s(plan) == pytest.approx(3 * 32 * ring)
    assert sent_s(replace(plan, recompute=1.0)) == pytest.approx(4 * 32 * ring)


def test_stages_by_hand():
    """A hidden state forward and its gradient back for every micro-batch and interleaved part, near or far."""
    near = one(network.send_s(nodes=NODES, message_bytes=FRESH["message_bytes"] / 2, across=False))
    far = one(network.send_s(nodes=NODES, message_bytes=FRESH["message_bytes"] / 2, across=True))
    tensor = sent_s(Plan(tensor_parallel=2.0))

    assert sent_s(Plan(tensor_parallel=2.0, pipeline_parallel=4.0)) == pytest.approx(tensor / 4 + 2 * near)
    assert sent_s(Plan(tensor_parallel=2.0, pipeline_parallel=8.0)) == pytest.approx(tensor / 8 + 2 * far)
    twice = Plan(tensor_parallel=2.0, pipeline_parallel=4.0, virtual_pipeline=3.0)
    assert sent_s(twice) == pytest.approx(tensor / 4 + 6 * near)


def test_replicas_by_hand():
    """Plain: scatter and gather gradients once a step. ZeRO-1 gathers weights, 2 scatters every pass, 3 gathers too."""
    asked = job()  # 16-bit weights, gradients in 4 bytes
    params = LLAMA.params
    layers = {"ranks": 32.0, "nodes": NODES, "ranks_per_node": 8.0}
    gather = 32 * one(network.all_gather_s(message_bytes=params * 2 / 32, **layers))
    scatter = 32 * one(network.reduce_scatter_s(message_bytes=params * asked.recipe.gradient_bytes / 32, **layers))
    expected = {
        0: (0.0, 2 * scatter), 1: (0.0, scatter + gather), 2: (scatter, gather), 3: (2 * gather + scatter, 0.0),
    }  # fmt: skip
    for stage, seconds in expected.items():
        plan = Plan(data_parallel=32.0, zero_stage=float(stage))
        found = data_parallel_s(LLAMA, asked, plan, split_of(LLAMA, asked, plan), NODES)
        assert tuple(map(one, found)) == pytest.approx(seconds), stage
    alone = data_parallel_s(LLAMA, asked, Plan(), split_of(LLAMA, asked, Plan()), NODES)
    assert tuple(map(one, alone)) == (0.0, 0.0)


def test_replicas_of_adapters_by_hand():
    """Only adapters are summed; under QLoRA the base is gathered in its 4-bit width."""
    asked = job("pure-bf16", method="qlora", quantization="nf4", lora_rank=16.0, lora_targets=("q", "v"))
    plan = Plan(data_parallel=8.0, zero_stage=3.0)
    trained = float(np.asarray(adapters_of(LLAMA, asked)))
    layers = {"ranks": 8.0, "nodes": NODES, "ranks_per_node": 8.0}
    width = asked.quantization.bytes_per_weight
    gather = 32 * one(network.all_gather_s(message_bytes=LLAMA.params * width / 32, **layers))
    scatter = 32 * one(network.reduce_scatter_s(message_bytes=trained * asked.recipe.gradient_bytes / 32, **layers))
    gathered, reduced = data_parallel_s(LLAMA, asked, plan, split_of(LLAMA, asked, plan), NODES)

    assert trained == 16 * 2 * (4096 + 4096) * 32
    assert one(gathered) == pytest.approx(2 * gather + scatter)
    assert one(reduced) == 0.0


def test_experts_by_hand():
    """Mixtral on 8 ranks of one machine: a token goes to the places its two experts are on, there and back, twice."""
    mixtral, asked, known = model("mixtral-8x7b"), job(), assumptions()
    plan = Plan(data_parallel=32.0, expert_parallel=8.0)
    tokens = 4096 * 4096 * 2.0
    places = 8 * (1 - (7 / 8) ** 2)
    once = network.all_to_all_s(
        message_bytes=tokens * places, ranks=8.0, nodes=NODES, ranks_per_node=8.0, away_bytes=0.0
    )
    shown = 1 - known.value("training_speed_expert_overlap")
    link = network.link_efficiency(NODES, known)
    host = known.value("training_speed_expert_layer_s")
    expected = 32 * (4 * once * shown / link + host)

    assert one(expert_s(mixtral, asked, split_of(mixtral, asked, plan), NODES, known)) == pytest.approx(one(expected))
    assert one(expert_s(LLAMA, asked, split_of(LLAMA, asked, plan), NODES, known)) == 0.0


def test_offload_by_hand():
    """Gradients down, 16-bit weights up, the step in host memory; with all on the host, weights twice a pass."""
    asked, known = job(), assumptions()
    recipe, params, link = asked.recipe, LLAMA.params, NODES.pcie_bytes_per_s[0]
    host = known.value("training_speed_host_bytes_per_s") / 8
    touched = recipe.gradient_bytes + 2 * (recipe.state_bytes * 2 + 4)
    step = params * ((recipe.gradient_bytes + 2) / link + touched / host)

    def seconds(place, busy_s, **degrees):
        plan = Plan(offload=float(place), **degrees)
        split = split_of(LLAMA, asked, plan)
        return one(offload_s(LLAMA, asked, plan, split, NODES, np.full((1, 1, 1), busy_s), known))

    assert seconds(0, 0.0) == 0.0
    assert seconds(1, 0.0) == pytest.approx(step)
    assert seconds(1, 0.0, data_parallel=32.0, zero_stage=1.0) == pytest.approx(step / 32)
    fetched = 2 * params * 2 / link
    assert seconds(2, 0.0) == pytest.approx(step + 256 * fetched)
    overlap = known.value("training_speed_overlap")
    assert seconds(2, 1e9) == pytest.approx(step + 256 * fetched * (1 - overlap))
    sharded = seconds(2, 0.0, data_parallel=32.0, zero_stage=3.0)
    assert sharded == pytest.approx(step / 32 + 8 * fetched / 32)


def test_split_by_hand():
    """256 sequences over 4 replicas in threes are 22 rounds; 8 layers a stage; half a sequence a context rank."""
    plan = Plan(tensor_parallel=2.0, pipeline_parallel=4.0, context_parallel=2.0, data_parallel=4.0, micro_batch=3.0)
    split = split_of(LLAMA, job(), plan)

    assert float(split.micro_batches) == 22
    assert float(split.layers) == 8
    assert float(split.tokens) == 3 * 4096 / 2
    assert float(split_of(LLAMA, job(), replace(plan, data_parallel=1e3)).micro_batches) == 1


def test_parameters_of_a_rank_by_hand():
    """Experts lie on their expert ranks, the rest on tensor ranks, both on stages."""
    mixtral = model("mixtral-8x7b")
    plan = Plan(tensor_parallel=2.0, pipeline_parallel=4.0, data_parallel=4.0, expert_parallel=8.0)
    routed = mixtral.params_routed_experts
    expected = ((mixtral.params - routed) / 2 + routed / 8) / 4

    assert float(local_params(mixtral, split_of(mixtral, job(), plan))) == pytest.approx(expected)


LAYERS = [  # mixers and MLPs together, MLPs
    pytest.param(64, 32, "llama-2-7b", id="Llama 2: attention and MLP in each of 32"),
    pytest.param(48, 24, "gpt-oss-20b", id="gpt-oss: windowed and full attention are one kind"),
]


@pytest.mark.parametrize(("both", "mlps", "name"), LAYERS)
def test_layers_of_either_kind(both, mlps, name):
    """Norms and residuals of layers that are not there."""
    assert float(sublayers(model(name))) == both
    assert float(mlp_layers(model(name))) == mlps


def test_the_next_stage_of_context_ranks_is_further():
    """Two tensor and four context ranks fill a machine: the next stage is on another."""
    plan = Plan(tensor_parallel=2.0, context_parallel=4.0, pipeline_parallel=2.0)
    message = 4096 * 4096 * 2.0 / 4 / 2
    stages = sent_s(plan) - sent_s(replace(plan, pipeline_parallel=1.0)) / 2

    assert stages == pytest.approx(2 * one(network.send_s(nodes=NODES, message_bytes=message, across=True)))


def test_adapters_on_ranks_by_hand():
    """Four tensor ranks and two stages hold an eighth of the adapters each."""
    asked = job("pure-bf16", method="lora", lora_rank=16.0, lora_targets=("q", "v"))
    plan = Plan(tensor_parallel=4.0, pipeline_parallel=2.0, data_parallel=4.0)
    trained = 16 * 2 * (4096 + 4096) * 32 / 8
    width = asked.recipe.gradient_bytes
    scatter = 16 * one(
        network.reduce_scatter_s(message_bytes=trained * width / 16, ranks=4.0, nodes=NODES, ranks_per_node=2.0)
    )
    _, reduced = data_parallel_s(LLAMA, asked, plan, split_of(LLAMA, asked, plan), NODES)

    assert one(reduced) == pytest.approx(2 * scatter)
