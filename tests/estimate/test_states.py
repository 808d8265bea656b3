"""Parameters and states per GPU: who holds what under each way to split a model."""

import numpy as np
import pytest

from gpuguide.estimate.states import split_params, training_states
from gpuguide.spec.plan import OFFLOAD, Plan
from gpuguide.units import GB
from tests.estimate import training_cases as cases

NODES = cases.machines(("H100-SXM", 8, 4))


def states(model, plan, **changes):
    """States of a job given by what is special about it."""
    split = split_params(model=model, plan=plan, nodes=NODES)
    return training_states(
        model=model, job=cases.job(**changes), plan=plan, split=split, bucket_bytes=0.5 * GB, paged_share=1.0
    )


def size(part):
    """Of the fullest GPU."""
    return float(np.max(part))


def held(split):
    """Parameters on the fullest GPU."""
    return float(np.max(split.blocks + split.experts + split.outside))


def test_one_gpu_holds_the_model():
    """Parameters lost or counted twice before anything is split."""
    for name in ("llama-3.1-8b", "llama-3.2-1b", "qwen3-30b-a3b", "deepseek-v3"):
        model = cases.model(name)

        assert held(split_params(model=model, plan=Plan(), nodes=NODES)) == pytest.approx(model.params, rel=1e-9)


def test_first_of_unequal_stages_is_the_largest():
    """32 layers over 3 stages: eleven on the first, not ten and two thirds."""
    model = cases.model("llama-3.1-8b")
    split = split_params(model=model, plan=Plan(pipeline_parallel=3.0), nodes=NODES)

    assert float(np.max(split.blocks)) == pytest.approx(model.params_linear * 11 / 32)
    assert float(np.max(split.head)) == 0


EXPERTS = [  # tensor and expert parallel, GPUs that share all routed experts
    pytest.param(1.0, 1.0, 1, id="alone"),
    pytest.param(4.0, 1.0, 4, id="tensor parallel splits each expert"),
    pytest.param(1.0, 8.0, 8, id="expert parallel deals them out"),
    pytest.param(4.0, 8.0, 8, id="an expert stays whole under expert parallel"),
]


@pytest.mark.parametrize(("tensor", "experts", "share"), EXPERTS)
def test_experts_are_dealt_out(tensor, experts, share):
    """All experts on every GPU, or split twice over."""
    model = cases.model("qwen3-30b-a3b")
    plan = Plan(tensor_parallel=tensor, expert_parallel=experts, data_parallel=8.0)

    split = split_params(model=model, plan=plan, nodes=NODES)

    assert float(np.max(split.experts)) == pytest.approx(model.params_routed_experts / share)


def test_shards_stay_in_a_node_when_asked():
    """Hybrid sharding that shards over all nodes, or over fewer GPUs than a node has."""
    everywhere = Plan(data_parallel=32.0, zero_stage=3.0)
    in_node = Plan(data_parallel=32.0, zero_stage=3.0, shard_in_node=1.0)

    assert np.all(split_params(model=cases.model("llama-3.1-8b"), plan=everywhere, nodes=NODES).shards == 32)
    assert np.all(split_params(model=cases.model("llama-3.1-8b"), plan=in_node, nodes=NODES).shards == 8)


def test_plain_data_parallel_copies_its_gradients():
    """Gradient buckets of PyTorch DDP: 2.2 GB of bf16 for 1.1 billion parameters (TinyLlama: 29.8 -> 32.0)."""
    model = cases.model("llama-3.2-1b")
    alone, eight = (states(model, Plan(data_parallel=gpus), recipe="pure-bf16") for gpus in (1.0, 8.0))

    assert np.all(alone.copies == 0)
    assert np.allclose(eight.copies, 2 * model.params)


def test_fully_sharded_gathers_layer_by_layer():
    """Sharded weights that are used without being put together."""
    model = cases.model("llama-3.1-8b")
    found = states(model, Plan(data_parallel=8.0, zero_stage=3.0), recipe="zero-bf16")

    layer = model.params_linear / model.layers
    assert np.allclose(found.weights, 2 * model.params / 8)
    assert np.allclose(found.gathered, 2 * (3 * layer + model.params_embedding + model.params_lm_head))


def test_autocast_casts_what_it_multiplies():
    """16-bit copies of frozen or trained FP32 weights: three times the memory of bf16 alone (LitGPT, StableLM 3B)."""
    model = cases.model("llama-3.1-8b")
    casts = states(model, Plan(), recipe="amp-fp32-master")
    none = states(model, Plan(), recipe="pure-bf16")

    assert np.allclose(casts.casts + casts.casts_head, 2 * (model.params - model.params_embedding))
    assert np.all(none.casts == 0)


def test_what_offload_moves():
    """States that stay on the GPU beside their copy in host memory."""
    model = cases.model("llama-3.1-8b")
    optimizer, everything = (
        states(model, Plan(offload=float(OFFLOAD.index(kind))), recipe="zero-bf16") for kind in ("optimizer", "all")
    )

    assert np.all(optimizer.optimizer == 0)
    assert np.all(optimizer.gradients < 0.1 * 2 * model.params)
    assert np.all(optimizer.weights == 2 * model.params)
    assert np.all(everything.weights == 0)
    assert np.all(everything.gathered > 0)


def test_embeddings_beside_adapters_are_trained_whole():
    """LoRA with trainable embedding and head: about ten bytes a weight (Qwen 7B: 33.7 against 20.1 GB)."""
    model = cases.model("llama-3.1-8b")
    lora = {
        "method": "lora",
        "recipe": "pure-bf16",
        "lora_rank": 64.0,
        "lora_targets": ("all",),
        "foreach_optimizer": True,
    }
    with_tables, without = (states(model, Plan(), trainable_embeddings=flag, **lora) for flag in (True, False))

    def stepping(found) -> float:
        return float(np.max(found.weights + found.gradients + found.optimizer + found.step))

    more = stepping(with_tables) - stepping(without)
    assert more == pytest.approx(10 * (model.params_embedding + model.params_lm_head))


def test_gradients_of_a_tied_embedding_by_hand():
    """Llama 3.2 1B: the head's gradient comes first, the embedding's is added to it last; none is late."""
    model = cases.model("llama-3.2-1b")
    found = states(model, Plan(), recipe="pure-bf16")

    assert size(found.gradients_tied) == 2 * 2 * model.params_embedding
    assert size(found.gradients_head) == 2 * model.params_embedding
    layer = model.params_linear / model.layers
    assert size(found.gradients_bottom) == pytest.approx(2 * model.params - 2 * layer)
    master = states(model, Plan(), recipe="megatron-bf16")
    assert size(master.gradients_tied) == 0.0


def test_gradients_of_separate_tables_by_hand():
    """Llama 3.1 8B: before the first layer and the embedding have theirs, the rest is there."""
    model = cases.model("llama-3.1-8b")
    found = states(model, Plan(), recipe="pure-bf16")
    layer = model.params_linear / model.layers

    assert size(found.gradients_head) == 2 * model.params_lm_head
    assert size(found.gradients_bottom) == pytest.approx(2 * (model.params - layer - model.params_embedding))


def test_layer_of_a_mixture_by_hand():
    """Blocks over all layers, experts over those that have any: Qwen3 30B in all 48, DeepSeek-V3 in 58 of 61."""
    for name in ("qwen3-30b-a3b", "deepseek-v3"):
        model = cases.model(name)
        split = split_params(model=model, plan=Plan(), nodes=NODES)
        dense = (model.params_linear - model.params_routed_experts) / model.layers
        assert size(split.layer) == pytest.approx(dense + model.params_routed_experts / model.moe_layers)


def test_adapters_of_experts_by_hand():
    """Rank 4 on gate and down of 128 experts in 48 layers: 2 x 4 x (2,048 + 768) each, FP32 states twice."""
    model = cases.model("qwen3-30b-a3b")
    found = states(
        model, Plan(), method="lora", recipe="pure-bf16", lora_rank=4.0, lora_targets=("gate", "down"),
        adapter_bytes=4.0,
    )  # fmt: skip
    adapters = 2 * 4 * (2048 + 768) * 128 * 48

    assert size(found.gradients) == pytest.approx(4 * adapters)
    assert size(found.optimizer) == pytest.approx(8 * adapters)
    dealt = states(
        model, Plan(expert_parallel=8.0, data_parallel=8.0), method="lora", recipe="pure-bf16", lora_rank=4.0,
        lora_targets=("gate", "down"), adapter_bytes=4.0,
    )  # fmt: skip
    assert size(dealt.gradients) == pytest.approx(4 * adapters / 8)


RECIPES = [  # bytes a parameter: weights, gradients, optimizer with master
    pytest.param(2, 2, 4, "pure-bf16", id="all in 16 bit"),
    pytest.param(4, 4, 8, "amp-fp32-master", id="autocast over FP32"),
    pytest.param(2, 4, 12, "megatron-bf16", id="Megatron: FP32 gradients, master and states"),
]


@pytest.mark.parametrize(("weights", "gradients", "optimizer", "recipe"), RECIPES)
def test_bytes_a_parameter_by_hand(weights, gradients, optimizer, recipe):
    """AdamW keeps two states; sharding divides from its stage on."""
    model = cases.model("llama-3.1-8b")
    sizes = np.array([weights, gradients, optimizer]) * model.params
    for stage, shards in enumerate(((1, 1, 1), (1, 1, 8), (1, 8, 8), (8, 8, 8))):
        found = states(model, Plan(data_parallel=8.0, zero_stage=float(stage)), recipe=recipe)
        actual = [size(part) for part in (found.weights, found.gradients, found.optimizer)]
        assert actual == pytest.approx(sizes / np.array(shards)), stage


def test_optimizers_by_hand():
    """8-bit states carry a scale of 4 bytes for 256 values; factored ones two values a row; GaLore a quarter."""
    model = cases.model("llama-3.1-8b")
    eight = states(model, Plan(), recipe="pure-bf16", optimizer="adamw-8bit")
    tables = model.params_embedding + model.params_lm_head
    optimizer = cases.job(optimizer="adamw-8bit").optimizer
    width = optimizer.state_bytes + 4 / 256
    outside = optimizer.states if optimizer.embedding_states is None else optimizer.embedding_states
    assert size(eight.optimizer) == pytest.approx(width * (2 * (model.params - tables) + outside * tables))
    factored = states(model, Plan(), recipe="pure-bf16", optimizer="adafactor")
    assert size(factored.optimizer) == pytest.approx(2 / 4096 * 2 * model.params)


def test_sharded_experts_by_hand():
    """8 expert ranks of 32 leave 4 copies of each expert to shard over; experts alone on their rank are not split."""
    model = cases.model("qwen3-30b-a3b")
    for experts, copies in ((1.0, 32), (8.0, 4), (32.0, 1)):
        plan = Plan(data_parallel=32.0, expert_parallel=experts, zero_stage=3.0)
        split = split_params(model=model, plan=plan, nodes=NODES)
        assert size(split.expert_shards) == copies
        found = states(model, plan, recipe="pure-bf16")
        dense = (model.params - model.params_routed_experts) / 32
        assert size(found.weights) == pytest.approx(2 * (dense + model.params_routed_experts / experts / copies))


def test_buckets_by_hand():
    """Sharded training reduces in buckets of half a gigabyte, no more than all gradients; Megatron in one buffer."""
    model = cases.model("llama-3.1-8b")
    for stage in (1.0, 2.0, 3.0):
        assert size(states(model, Plan(data_parallel=8.0, zero_stage=stage), recipe="pure-bf16").bucket) == 0.5 * GB
    assert size(states(model, Plan(data_parallel=8.0), recipe="pure-bf16").bucket) == 0.0
    assert size(states(model, Plan(data_parallel=8.0, zero_stage=1.0), recipe="megatron-bf16").bucket) == 0.0
    few = {"method": "lora", "recipe": "pure-bf16", "lora_rank": 8.0, "lora_targets": ("q",), "adapter_bytes": 2.0}
    adapters = states(model, Plan(data_parallel=8.0, zero_stage=1.0), **few)
    assert size(adapters.bucket) == size(adapters.gradients) == 2 * 8 * 2 * 4096 * 32


def test_paged_states_by_hand():
    """Of a paged optimizer's states a share stays on the GPU."""
    model = cases.model("llama-3.1-8b")
    name = next(name for name, found in cases.tables()["optimizers"].items() if found.paged)
    job = cases.job("pure-bf16", optimizer=name)
    split = split_params(model=model, plan=Plan(), nodes=NODES)
    kept = [
        size(
            training_states(
                model=model, job=job, plan=Plan(), split=split, bucket_bytes=0.5 * GB, paged_share=share
            ).optimizer
        )
        for share in (1.0, 0.25)
    ]

    assert kept[1] == pytest.approx(0.25 * kept[0]) != 0.0


def test_tables_on_ranks_by_hand():
    """Embedding and head are split over tensor ranks; a tied head is not there."""
    llama, tied = cases.model("llama-3.1-8b"), cases.model("llama-3.2-1b")
    split = split_params(model=llama, plan=Plan(tensor_parallel=4.0), nodes=NODES)
    assert (size(split.embedding), size(split.head)) == (llama.params_embedding / 4, llama.params_lm_head / 4)
    assert size(split_params(model=tied, plan=Plan(), nodes=NODES).head) == 0.0


def test_casts_by_hand():
    """Autocast holds 16-bit copies where weights are whole; sharded ones are gathered in 16 bit instead."""
    model = cases.model("llama-3.1-8b")
    whole = states(model, Plan(), recipe="amp-fp32-master")
    sharded = states(model, Plan(data_parallel=8.0, zero_stage=3.0), recipe="amp-fp32-master")
    layer = model.params_linear / model.layers

    assert size(whole.casts) == 2 * model.params_linear
    assert size(whole.casts_layer) == 2 * layer
    assert size(sharded.casts) == size(sharded.casts_layer) == 0.0
    tables = model.params_embedding + model.params_lm_head
    assert size(sharded.gathered) == pytest.approx(2 * 2 * layer + 2 * tables + 4 * layer)
    plain = states(model, Plan(), recipe="pure-bf16")
    assert size(plain.casts) == size(plain.casts_head) == 0.0


def test_adapters_of_a_layer_by_hand():
    """Gathered beside the base under full sharding: the gradients of one layer's adapters."""
    model = cases.model("llama-2-7b")
    few = {"method": "lora", "recipe": "pure-bf16", "lora_rank": 8.0, "lora_targets": ("q",), "adapter_bytes": 2.0}
    found = states(model, Plan(data_parallel=8.0, zero_stage=3.0), **few)
    layer, tables = model.params_linear / 32, model.params_embedding + model.params_lm_head

    assert size(found.gathered) == pytest.approx(2 * 2 * layer + 2 * tables + 2 * 8 * 2 * 4096)


def test_states_of_embeddings_by_hand():
    """An optimizer that keeps other states for tables than for matrices."""
    name, own = next(
        (name, found) for name, found in cases.tables()["optimizers"].items() if found.embedding_states is not None
    )
    model = cases.model("llama-2-7b")
    tables = model.params_embedding + model.params_lm_head
    width = cases.job("pure-bf16").recipe.state_bytes if own.state_bytes is None else own.state_bytes
    found = states(model, Plan(), recipe="pure-bf16", optimizer=name)

    assert own.embedding_states != own.states
    assert size(found.optimizer) == pytest.approx(
        width * (own.states * (model.params - tables) + own.embedding_states * tables)
    )
