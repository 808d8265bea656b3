"""A whole training step of a small mixture, counted part by part on ranks of every kind."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate import network
from gpuguide.estimate.compute import (
    adapters_of,
    attention_flops_per_token,
    block_params,
    matmul_flops_per_s,
    memory_bytes_per_s,
    training_flops_per_token,
)
from gpuguide.estimate.exchange import mlp_layers, sublayers
from gpuguide.estimate.sharding import joined_ranks, shard_ranks
from gpuguide.estimate.training import training_speed
from gpuguide.spec.plan import Plan
from tests.estimate.hand_cases import DENSE, LATENT, MIX, ROUTED, TABLE
from tests.estimate.training_cases import assumptions, job, machines

KNOWN = assumptions()
NODES = machines(("H100-SXM", 8, 4, "InfiniBand", 3200.0))
SEQUENCE, BATCH = 2048.0, 64.0
ACTIVE = 1_539_200.0 - 2 * TABLE - 70_000  # what works on a token inside blocks
PARTS = (
    "compute_s", "memory_bound_s", "tensor_parallel_s", "pipeline_bubble_s", "data_parallel_s", "expert_parallel_s",
    "offload_s",
)  # fmt: skip


def one(value):
    return float(np.ravel(value)[0])


def step(plan, own, model, known):
    """Seconds of each part on the typical band."""
    typical = known.value
    tensor, stages, context = plan.tensor_parallel, plan.pipeline_parallel, plan.context_parallel
    replicas, experts, micro = plan.data_parallel, plan.expert_parallel, plan.micro_batch
    full, some = float(plan.recompute == 2), float(plan.recompute >= 1)
    half = full if full else 0.5 * some
    rounds = max(np.ceil(BATCH / (replicas * micro)), 1)
    tokens = micro * SEQUENCE / context
    adapted = own.method in ("lora", "qlora")
    moe = bool(model.experts)
    recipe, narrow = own.recipe, own.recipe.compute_precision in ("fp8", "fp4")
    link = typical("network_link_efficiency")
    memory = float(memory_bytes_per_s(NODES, typical("compute_memory_share"))[0])
    wide = recipe.compute_precision if recipe.compute_precision in ("fp32", "tf32") else "bf16"
    rate16 = float(matmul_flops_per_s(nodes=NODES, precision=wide)[0])
    rate = rate16
    if narrow:
        shares = {"fp8_share": typical("compute_fp8_share"), "fp4_share": typical("compute_fp4_share")}
        rate = float(matmul_flops_per_s(nodes=NODES, precision=recipe.compute_precision, **shares)[0])

    # Multiplications
    active = float(block_params(model))
    routed = 2 * ROUTED * 2 / 10 if moe else 0.0
    stored_experts = ROUTED if moe else 0.0
    width = 2 * 40 if moe else 256
    again = full * (1 - 7 * 96 * width / active)
    passes = (2 if adapted else 3) + again
    held = 2 * passes + (0 if adapted else 2 * recipe.gradient_bytes)
    ranks = tensor * stages
    share = tokens / ranks
    used = 6 * float(adapters_of(model, own, used_per_token=True))
    dense = share * (passes * (2 * active - routed) + used)
    seconds = max(dense / rate, held * (model.params - stored_experts) / ranks / memory)
    if moe:
        seconds += share * passes * routed * typical("training_speed_expert_slowdown") / rate
        seconds += held * ROUTED / (experts * stages) / memory
    seconds += share * (2 if adapted else 3) * 2 * 1000 * 96 / rate16
    attention = float(attention_flops_per_token(model=model, sequence_length=SEQUENCE)) * (3 + some)
    if own.attention == "fused":
        kernel = typical("compute_attention_share") * (1.0 if own.fused_norms else 0.6)
        seconds += share * attention * (1 if own.skips_masked else 2) / (rate16 * kernel)
    else:
        seconds += share * (2 * attention / rate16 + 12 * SEQUENCE * 7 * 36 * (1 + some / 3) / memory)
    seconds /= typical("compute_matmul_share")
    if own.quantization is not None:
        moved = (own.quantization.bits_per_weight / 8 + 2) * active / stages
        seconds += passes * moved / (tensor * memory * typical("compute_dequantise_share"))

    # Kernels that only move memory: seven mixers, seven MLPs or experts
    mlp = 2 * 256 + 5 * (2 + 1) * 40 if moe else 7 * 256
    forward = 12 * 14 * 96 + 6 * (1 if model.gated_mlp else 2 / 3) * mlp + 40 * 5000 / 128
    forward *= 0.6 if own.fused_norms else 1
    moved = forward * (3 + half)
    moved += 4 * (2 + full) * (1.5 * 14 * 96 + mlp) if narrow else 0
    moved += 16 * 96 * 2 * 5 if moe else 0
    logits = (8 if own.fused_loss else 30) * 1000
    small = tokens / tensor * (recipe.activation_bytes / 2 * moved + logits) / stages / memory
    small *= typical("training_speed_small_kernels")
    launches = 7 / stages * (1 + full / 3) * typical("training_speed_layer_launch_s")
    seconds += max(launches - seconds - small, 0)

    # What is sent within one micro-batch
    sent = 0.0
    if tensor > 1:
        message = tokens * 96 * 2
        gather = one(network.all_gather_s(message_bytes=message, ranks=tensor, nodes=NODES))
        sent += (14 - (5 if moe else 0)) / stages * (5 + 2 * full) * gather
    if context > 1:
        message = tokens * context * 2 * 3 * 16 * 2 / tensor
        inside = joined_ranks(ranks=context, tensor_parallel=tensor, nodes=NODES)
        ring = one(network.all_gather_s(message_bytes=message, ranks=context, nodes=NODES, ranks_per_node=inside))
        sent += (3 + some) * 7 / stages * ring
    if stages > 1:
        across = tensor * context * stages > 8
        hop = one(network.send_s(message_bytes=tokens * 96 * 2 / tensor, nodes=NODES, across=across))
        sent += 2 * plan.virtual_pipeline * hop
    sent *= (1 - typical("training_speed_tensor_overlap")) / link
    routing = 0.0
    if moe:
        inside = min(experts, 8.0)
        machines_reached = experts / inside
        token = tokens / tensor * 96 * 2
        reached = {places: places * (1 - (1 - 1 / places) ** 2) for places in (experts, machines_reached)}
        exchange = one(network.all_to_all_s(
            message_bytes=token * reached[experts], ranks=experts, nodes=NODES, ranks_per_node=inside,
            away_bytes=token * reached[machines_reached] * (1 - 1 / machines_reached),
        ))  # fmt: skip
        shown = 4 * exchange * (1 - typical("training_speed_expert_overlap")) / link
        routing = 5 / stages * (shown + typical("training_speed_expert_layer_s"))
    busy = seconds + small + sent + routing

    # Replicas
    local = ((model.params - stored_experts) / tensor + stored_experts / experts) / stages
    trained = float(adapters_of(model, own)) / ranks if adapted else local
    gathered = reduced = 0.0
    group = replicas * context
    shards = one(shard_ranks(plan=plan, nodes=NODES))
    if group > 1:
        layers = max(7 / stages, 1)
        read = recipe.weight_bytes if not recipe.autocast else 2.0
        read = own.quantization.bits_per_weight / 8 if own.quantization is not None else read
        inside = joined_ranks(ranks=group, tensor_parallel=tensor, nodes=NODES)
        gather = layers * one(network.all_gather_s(
            message_bytes=local * read / layers, ranks=shards, nodes=NODES, ranks_per_node=inside
        ))  # fmt: skip
        scatter = layers * one(network.reduce_scatter_s(
            message_bytes=trained * recipe.gradient_bytes / layers, ranks=group, nodes=NODES, ranks_per_node=inside
        ))  # fmt: skip
        updated = gather * min(trained / local, 1)
        gathered, reduced = {
            0: (0, 2 * scatter), 1: (0, scatter + updated), 2: (scatter, updated), 3: (2 * gather + scatter, 0)
        }[int(plan.zero_stage)]  # fmt: skip
    overlap = typical("training_speed_overlap")
    gathered, reduced = (max(t / link * (1 - overlap), t / link - overlap * busy) for t in (gathered, reduced))

    # The optimizer, here or on the host
    split = shards if plan.zero_stage >= 1 else 1.0
    states = own.optimizer.states * (own.optimizer.state_bytes or recipe.state_bytes)
    changed = 2 * (recipe.gradient_bytes + states + recipe.master_bytes + recipe.weight_bytes)
    optimizer = 0.0 if plan.offload else trained / split * changed / memory
    host = 0.0
    if plan.offload:
        pcie = NODES.pcie_bytes_per_s[0]
        touched = recipe.gradient_bytes + 2 * (states + 4)
        bus = typical("training_speed_host_bytes_per_s") / 8
        host = trained / split * ((recipe.gradient_bytes + 2) / pcie + touched / bus)
    if plan.offload == 2:
        fetched = 2 * local * 2 / (split if plan.zero_stage >= 3 else 1) / pcie
        host += rounds * max(fetched * (1 - overlap), fetched - overlap * busy)
    parts = (
        rounds * seconds, rounds * small + optimizer, rounds * sent,
        (stages - 1) / plan.virtual_pipeline * (busy + gathered), rounds * gathered + reduced, rounds * routing, host,
    )  # fmt: skip
    return {name: value * typical("training_speed_rest") for name, value in zip(PARTS, parts, strict=True)}


PLAIN = replace(
    MIX, kind="hybrid", experts=0.0, experts_per_token=0.0, shared_experts=0.0, moe_ffn=0.0, moe_layers=0.0,
    params_routed_experts=0.0, params_active=2_000_000.0, gated_mlp=False,
)  # fmt: skip
LORA = {"method": "lora", "recipe": "pure-bf16", "lora_rank": 16.0, "lora_targets": ("q", "down")}
STEPS = [  # plan, job, model
    pytest.param({}, {}, MIX, id="alone"),
    pytest.param({"recompute": 1.0, "micro_batch": 4.0}, {"fused_norms": True, "fused_loss": True}, MIX, id="fused"),
    pytest.param({"recompute": 2.0, "micro_batch": 64.0}, {"attention": "eager"}, MIX, id="eager, all again"),
    pytest.param({"recompute": 1.0, "micro_batch": 64.0}, {"skips_masked": False, "recipe": "fp8"}, MIX, id="fp8"),
    pytest.param({"recompute": 2.0, "micro_batch": 64.0}, {"recipe": "fp8"}, MIX, id="fp8, all again"),
    pytest.param({"micro_batch": 64.0}, {"recipe": "fp32", "optimizer": "adamw-8bit"}, PLAIN, id="fp32"),
    pytest.param({"tensor_parallel": 4.0, "recompute": 2.0, "micro_batch": 8.0}, {}, MIX, id="tensor"),
    pytest.param({"tensor_parallel": 2.0, "context_parallel": 4.0, "recompute": 1.0}, {}, PLAIN, id="context"),
    pytest.param(
        {"tensor_parallel": 2.0, "context_parallel": 2.0, "pipeline_parallel": 2.0, "virtual_pipeline": 3.0}, {}, MIX,
        id="stages of one machine",
    ),
    pytest.param(
        {"tensor_parallel": 2.0, "pipeline_parallel": 8.0, "data_parallel": 2.0, "micro_batch": 8.0}, {}, PLAIN,
        id="stages of two machines",
    ),
    pytest.param(
        {"tensor_parallel": 2.0, "pipeline_parallel": 2.0, "expert_parallel": 8.0, "data_parallel": 8.0,
         "zero_stage": 1.0, "micro_batch": 8.0}, {"recipe": "zero-bf16"}, MIX, id="experts inside",
    ),
    pytest.param(
        {"expert_parallel": 16.0, "data_parallel": 32.0, "zero_stage": 2.0, "micro_batch": 2.0, "recompute": 2.0},
        {"recipe": "amp-fp32-master"}, MIX, id="experts over machines",
    ),
    pytest.param(
        {"tensor_parallel": 2.0, "data_parallel": 16.0, "zero_stage": 3.0}, {"recipe": "fp32"}, PLAIN, id="shards"
    ),
    pytest.param(
        {"data_parallel": 32.0, "zero_stage": 3.0, "shard_in_node": 1.0}, {}, PLAIN, id="shards of one machine"
    ),
    pytest.param({"tensor_parallel": 2.0, "pipeline_parallel": 2.0, "data_parallel": 8.0}, LORA, MIX, id="adapters"),
    pytest.param(
        {"tensor_parallel": 2.0, "pipeline_parallel": 2.0, "data_parallel": 8.0, "zero_stage": 2.0, "recompute": 2.0},
        LORA | {"method": "qlora", "quantization": "nf4"}, MIX, id="adapters of a 4-bit base",
    ),
    pytest.param(
        {"tensor_parallel": 2.0, "pipeline_parallel": 2.0, "data_parallel": 8.0, "zero_stage": 1.0, "offload": 1.0},
        LORA, MIX, id="adapters on the host",
    ),
    pytest.param({"offload": 2.0, "micro_batch": 64.0}, {"optimizer": "adamw-8bit"}, PLAIN, id="all on the host"),
    pytest.param(
        {"offload": 2.0, "data_parallel": 32.0, "zero_stage": 3.0}, {"recipe": "zero-bf16"}, PLAIN,
        id="shards on the host",
    ),
    pytest.param(
        {"offload": 2.0, "data_parallel": 32.0, "zero_stage": 1.0}, {"optimizer": "sgd-momentum"}, PLAIN,
        id="states on the host shared",
    ),
]  # fmt: skip


@pytest.mark.parametrize("launch", [0.0, 0.05], ids=["GPU", "host"])
@pytest.mark.parametrize(("degrees", "changes", "model"), STEPS)
def test_every_part_of_a_step(degrees, changes, model, launch):
    """A factor, a rank or a pass too many in any part, or one that counts in the wrong part."""
    plan, own = Plan(**degrees), job(**({"sequence_length": SEQUENCE, "global_batch": BATCH} | changes))
    known = KNOWN if launch else KNOWN.replace(training_speed_layer_launch_s=(0.0, 0.0, 0.0))
    found = training_speed(model=model, job=own, plan=plan, nodes=NODES, assumptions=known)
    expected = step(plan, own, model, known)

    assert {name: float(getattr(found, name)[1, 0, 0]) for name in PARTS} == pytest.approx(expected, rel=1e-9)
    assert float(found.step_s[1, 0, 0]) == pytest.approx(sum(expected.values()))
    flops = training_flops_per_token(model=model, job=own).total
    per_s = BATCH * SEQUENCE / sum(expected.values())
    assert float(found.mfu[1, 0, 0]) == pytest.approx(per_s * flops / (32 * NODES.flops["bf16"][0]))
    groups = {
        "compute": expected["compute_s"], "memory": expected["memory_bound_s"], "storage": expected["offload_s"],
        "interconnect": sum(expected[name] for name in (
            "tensor_parallel_s", "pipeline_bubble_s", "data_parallel_s", "expert_parallel_s"
        )),
    }  # fmt: skip
    assert np.ravel(found.bound)[0] == max(groups, key=groups.get)


# ---- work for one token ----------------------------------------------------------------------------------------------


def test_attention_of_a_token():
    """Full layers see half of the sequence, windowed ones their window less its ramp, recurrent ones a state."""
    seen = 3 * 2048 / 2 + 2 * 50 * (1 - 50 / 4096)
    assert attention_flops_per_token(model=MIX, sequence_length=2048.0) == pytest.approx(2 * 12 * 32 * seen + 20_000)
    latent = 2 * 12 * (14 + 6 + 11) * seen + 20_000
    assert attention_flops_per_token(model=LATENT, sequence_length=2048.0) == pytest.approx(latent)
    seen = 3 * 20 / 2 + 2 * 20 * (1 - 20 / 40)
    assert attention_flops_per_token(model=MIX, sequence_length=20.0) == pytest.approx(2 * 12 * 32 * seen + 20_000)
    unsaid = replace(MIX, layers_full=0.0, layers_windowed=0.0, layers_recurrent=0.0)
    assert attention_flops_per_token(model=unsaid, sequence_length=20.0) == pytest.approx(2 * 12 * 32 * 70 + 20_000)
    only = replace(MIX, layers_full=0.0, layers_windowed=0.0)
    assert attention_flops_per_token(model=only, sequence_length=20.0) == 20_000


def test_work_of_a_token():
    """Three passes, or two under adapters and three of theirs; experts' adapters only where a token passes."""
    own = job(sequence_length=2048.0)
    attention = attention_flops_per_token(model=MIX, sequence_length=2048.0)
    whole = training_flops_per_token(model=MIX, job=own)
    assert (whole.block, whole.head, whole.adapters) == pytest.approx((6 * ACTIVE, 6 * 96_000, 0))
    assert whole.total == pytest.approx(6 * ACTIVE + 6 * 96_000 + 3 * attention)
    assert (whole.block_forward, whole.attention_forward) == pytest.approx((2 * ACTIVE, attention))
    own = job(sequence_length=2048.0, **LORA)
    used = 16 * ((96 + 192) * 5 + (96 + 256) * 2 + (96 + 40) * 5 + (96 + 40) * 2 * 5)
    adapted = training_flops_per_token(model=MIX, job=own)
    assert (adapted.block, adapted.head, adapted.adapters) == pytest.approx((4 * ACTIVE, 4 * 96_000, 6 * used))
    assert block_params(replace(MIX, tied_embeddings=True)) == ACTIVE + TABLE
    assert DENSE + ROUTED * 2 / 10 == ACTIVE


def test_adapters_of_latent_attention():
    """On the projections out of the latents, and on the output."""
    for target, both in (("q", 24 + 12 * 20), ("k", 20 + 12 * 25), ("v", 96 + 20 + 6), ("o", 12 * 11 + 96)):
        own = job(method="lora", lora_rank=16.0, lora_targets=(target,))
        assert adapters_of(LATENT, own) == 16 * both * 5


def test_rates_of_narrow_products():
    """A share of the step from 16 bit to 8 or 4; what a GPU lacks runs at the next wider rate."""
    nodes = machines(("H100-SXM", 1, 1), ("A100-80GB-SXM", 1, 1), ("B200", 1, 1))
    half = matmul_flops_per_s(nodes=nodes, precision="bf16")
    peak = nodes.flops["bf16"]
    gain8 = np.array([nodes.flops["fp8"][0] / peak[0], 1.0, nodes.flops["fp8"][2] / peak[2]])
    gain4 = nodes.flops["fp4"][2] / peak[2]
    shares = {"fp8_share": 0.5, "fp4_share": 0.25}
    eight = matmul_flops_per_s(nodes=nodes, precision="fp8", **shares)
    np.testing.assert_allclose(eight, half * (1 + (gain8 - 1) * 0.5))
    four = matmul_flops_per_s(nodes=nodes, precision="fp4", **shares)
    np.testing.assert_allclose(four[:2], eight[:2])
    assert four[2] == pytest.approx(half[2] * (1 + (gain4 - 1) * 0.25))


def test_layers_of_a_kind():
    """Seven mixers; MLPs in the rest where a model says that it has fewer mixers than layers."""
    assert (float(sublayers(MIX)), float(mlp_layers(MIX))) == (14, 7)
    apart = replace(MIX, layers=11.0)
    assert (float(sublayers(apart)), float(mlp_layers(apart))) == (11, 4)
    unsaid = replace(MIX, layers_full=0.0, layers_windowed=0.0, layers_recurrent=0.0)
    assert (float(sublayers(unsaid)), float(mlp_layers(unsaid))) == (14, 7)
    more = replace(MIX, layers=5.0)
    assert (float(sublayers(more)), float(mlp_layers(more))) == (10, 5)
