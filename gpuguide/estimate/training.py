"""
Time of one optimizer step, by what it is spent on: only what is exposed counts, so the parts sum to the step.

A micro-batch is computed layer by layer: weight multiplications, attention, and small kernels that only move memory.
Collectives that belong to one micro-batch (tensor and expert parallel, gathering sharded weights) happen every time,
gradient reduction once a step. What can hide behind computing is hidden by the share `training_speed_overlap`, since
a collective takes memory bandwidth and processors away from the kernels it runs beside.
"""

from __future__ import annotations

import numpy as np

from gpuguide.estimate.compute import (
    adapters_of,
    block_params,
    matmul_flops_per_s,
    memory_bytes_per_s,
    peak_16bit_flops,
    training_flops_per_token,
)
from gpuguide.estimate.exchange import (
    Split,
    data_parallel_s,
    expert_s,
    exposed,
    local_params,
    mlp_layers,
    offload_s,
    recomputed,
    split_of,
    sublayers,
    tensor_s,
    virtual,
)
from gpuguide.estimate.network import link_efficiency
from gpuguide.estimate.results import TrainingSpeed
from gpuguide.estimate.sharding import shard_ranks
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import Number

BOUNDS = np.array(["compute", "memory", "interconnect", "storage"], dtype=object)

HIDDEN_PASSES = 12.0
"""Bytes that small kernels move forward for attention or an MLP, per token and hidden value: a norm (read, written), a
residual addition (2 reads, written), a change of layout, in 16 bit. [bytes]"""
RECURRENT_PASSES = 40.0
"""The same per inner value of a recurrent layer: convolution, gates, scan, norm, each read and written. [bytes]"""
STATE_SIZE = 128.0
"""State elements per inner value of Mamba-2 layers. [-]"""
FFN_PASSES = 6.0
"""The same per value of the MLP's width: gate and up read, product written. [bytes]"""
BACKWARD_TIMES = 2.0
"""Backward kernels of this kind read what forward read and the gradient, and write as much. [-]"""
SCORE_BYTES = 36.0
"""Eager attention, forward and backward, per element of the score matrix: written, masked, softmax, dropout, read, in
16 bit with an fp32 softmax. Source: Korthikanti et al. 2022, its kept tensors, each read and written once. [bytes]"""
LOSS_BYTES, FUSED_LOSS_BYTES = 30.0, 8.0
"""Per logit: 16-bit logits, fp32 copy, log-softmax, its gradient and the cast back, each written and read. [bytes]"""
CAST_BYTES = 4.0
"""Casting one operand value to 8 or 4 bit: read in 16 bit, written in both orientations. [bytes]"""
DEQUANTISED_BYTES = 2.0
ROUTED_PASSES = 16.0
"""Permuting tokens to experts and back, forward and backward: 4 copies, each read and written in 16 bit. [bytes]"""


def training_speed(
    *, model: Model, job: TrainingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> TrainingSpeed:
    """
    Time of one optimizer step and the throughput that follows.

    Parameters
    ----------
    model : Model
        Architecture.
    job : TrainingJob
        Method, sequence length, global batch, precision recipe, optimizer. The global batch is honoured: each replica
        runs ceil(global batch / (data parallel x micro-batch)) micro-batches.
    plan : Plan
        Degrees and micro-batch, scalars or shape (plan, 1), or flat pairs with `nodes`.
    nodes : Nodes
        Machine shapes.
    assumptions : Assumptions
        Rows `compute_*`, `training_speed_*` and `network_*`.

    Returns
    -------
    TrainingSpeed
        Every field of shape (band, plan, node); place 0 of the band is the fastest.

    Notes
    -----
    Source: `docs/formulas.md`, "Training time".
    """
    split = split_of(model, job, plan)
    memory = memory_bytes_per_s(nodes, assumptions.value("compute_memory_share"))
    compute = _compute_s(model, job, plan, split, nodes, memory, assumptions)
    small = _memory_bound_s(model, job, plan, split, memory) * assumptions["training_speed_small_kernels"]
    routing = expert_s(model, job, split, nodes, assumptions)
    tensor = tensor_s(model, job, plan, split, nodes) * exposed(assumptions, "training_speed_tensor_overlap")
    link = link_efficiency(nodes, assumptions)
    tensor = tensor / link
    launches = _launch_s(model, plan, split, assumptions)
    compute = compute + np.maximum(launches - compute - small, 0.0)
    per_micro_batch = compute + small + tensor + routing
    gathered, reduced = data_parallel_s(model, job, plan, split, nodes)
    overlap = assumptions["training_speed_overlap"]
    gathered, reduced = gathered / link, reduced / link
    exposed_gather = np.maximum(gathered * (1.0 - overlap), gathered - overlap * per_micro_batch)
    exposed_reduce = np.maximum(reduced * (1.0 - overlap), reduced - overlap * per_micro_batch)
    count = split.micro_batches
    bubble = (split.pipeline - 1.0) / virtual(plan) * (per_micro_batch + exposed_gather)
    step = _optimizer_step_s(model, job, plan, split, nodes, memory)
    stored = offload_s(model, job, plan, split, nodes, per_micro_batch, assumptions)
    parts = {
        "compute_s": count * compute,
        "memory_bound_s": count * small + step,
        "tensor_parallel_s": count * tensor,
        "pipeline_bubble_s": bubble,
        "data_parallel_s": count * exposed_gather + exposed_reduce,
        "expert_parallel_s": count * routing,
        "offload_s": stored,
    }
    rest = assumptions["training_speed_rest"]
    parts = {name: value * rest for name, value in parts.items()}
    total = sum(parts.values(), start=np.zeros(1))
    tokens = np.asarray(job.global_batch) * job.sequence_length
    per_s = tokens / total
    flops = training_flops_per_token(model=model, job=job).total
    return TrainingSpeed(
        **{name: np.broadcast_to(value, total.shape) for name, value in parts.items()},
        step_s=total,
        tokens_per_s=per_s,
        mfu=per_s * flops / (nodes.gpus * peak_16bit_flops(nodes)),
        bound=_bound(parts),
    )


def _compute_s(
    model: Model, job: TrainingJob, plan: Plan, split: Split, nodes: Nodes, memory: Floats, assumptions: Assumptions
) -> Floats:
    """Multiplications of one micro-batch on one GPU. [s]"""
    precision = job.recipe.compute_precision
    fp8, fp4 = assumptions["compute_fp8_share"], assumptions["compute_fp4_share"]
    wide = precision if precision in ("fp32", "tf32") else "bf16"
    rate = rate16 = matmul_flops_per_s(nodes=nodes, precision=wide)
    if precision in ("fp8", "fp4"):
        rate = matmul_flops_per_s(nodes=nodes, precision=precision, fp8_share=fp8, fp4_share=fp4)
    share = assumptions["compute_matmul_share"]
    flops = training_flops_per_token(model=model, job=job)
    again = recomputed(plan, 0.0) * _recompute_share(model)
    passes = flops.block / flops.block_forward + again
    tokens = split.tokens / (split.tensor * split.pipeline)
    # Few tokens leave a multiplication waiting for its weights and for the gradients it adds to.
    held = 2.0 * passes + (0.0 if job.method in ("lora", "qlora") else 2.0 * job.recipe.gradient_bytes)
    routed = 2.0 * _routed_params(model)
    dense = tokens * (passes * (flops.block_forward - routed) + flops.adapters)
    dense_held = held * (model.params - model.params_routed_experts) / (split.tensor * split.pipeline)
    multiplied = np.maximum(dense / rate, dense_held / memory)
    if model.is_moe:
        slower = assumptions["training_speed_expert_slowdown"]
        routed_held = held * model.params_routed_experts / (split.expert * split.pipeline)
        # Many small multiplications hide neither: what they compute and what they hold add up.
        multiplied = multiplied + tokens * passes * routed * slower / rate + routed_held / memory
    head = tokens * flops.head / rate16
    attention = flops.attention + flops.attention_forward * recomputed(plan, 1.0)
    if job.attention == "fused":
        computed = attention if job.skips_masked else 2.0 * attention
        share16 = assumptions["compute_attention_share"] * _kernel_share(job, nodes)
        attended = tokens * computed / (rate16 * share16)
    else:  # eager attention computes the masked half too and moves every score through memory
        scores = model.heads * np.asarray(job.sequence_length) * model.layers * SCORE_BYTES
        scored = scores * (1.0 + recomputed(plan, 1.0) / 3.0)
        attended = tokens * (2.0 * attention / rate16 + scored / memory)
    seconds = (multiplied + head + attended) / share
    if job.quantization is not None:
        moved = (job.quantization.bytes_per_weight + DEQUANTISED_BYTES) * block_params(model) / split.pipeline
        seconds = seconds + passes * moved / (split.tensor * memory * assumptions["compute_dequantise_share"])
    return np.asarray(seconds)


OLDER_KERNEL_SHARE = 0.6
"""
Attention written for Ampere on later GPUs, against kernels written for them: FlashAttention-2 reaches about 70 % of the
peak on A100 and 35 % on H100, FlashAttention-3 75 %. Source: FlashAttention-3, arXiv 2407.08608. [-]
"""


def _kernel_share(job: TrainingJob, nodes: Nodes) -> Floats:
    """Frameworks with fused kernels bring attention made for the GPU; the later ones have HBM and 8-bit units. [-]"""
    later = nodes.is_hbm & ~np.isnan(nodes.flops["fp8"])
    return np.where(later & (not job.fused_norms), OLDER_KERNEL_SHARE, 1.0)


def _recompute_share(model: Model) -> Number:
    """Part of a block that recompute repeats: the MLP's last multiplication is not, nothing needs its output. [-]"""
    width = model.experts_per_token * model.moe_ffn if model.is_moe else model.ffn
    return 1.0 - model.layers * model.hidden * width / block_params(model)


def _routed_params(model: Model) -> Number:
    """Routed expert parameters that one token uses. [-]"""
    if not model.is_moe:
        return 0.0
    return model.params_routed_experts * model.experts_per_token / model.experts


def _memory_bound_s(model: Model, job: TrainingJob, plan: Plan, split: Split, memory: Floats) -> Floats:
    """Norms, residuals, activations, casts and loss of one micro-batch. [s]"""
    width = (mlp_layers(model) - model.moe_layers) * model.ffn
    if model.is_moe:
        width = width + model.moe_layers * (model.experts_per_token + model.shared_experts) * model.moe_ffn
    gated = 1.0 if model.gated_mlp else 2.0 / 3.0
    hidden = sublayers(model) * model.hidden
    forward = HIDDEN_PASSES * hidden + FFN_PASSES * gated * width
    forward = forward + RECURRENT_PASSES * model.recurrent_elements / STATE_SIZE
    if job.fused_norms:
        forward = 0.6 * forward
    moved = forward * (1.0 + BACKWARD_TIMES + recomputed(plan, 0.5))
    if job.recipe.compute_precision in ("fp8", "fp4"):
        moved = moved + CAST_BYTES * (2.0 + recomputed(plan, 0.0)) * (1.5 * hidden + width)
    if model.is_moe:
        moved = moved + ROUTED_PASSES * model.hidden * model.experts_per_token * model.moe_layers
    scale = job.recipe.activation_bytes / 2.0
    loss = FUSED_LOSS_BYTES if job.fused_loss else LOSS_BYTES
    per_token = (scale * moved + loss * model.vocab) / split.pipeline
    return np.asarray(split.tokens / split.tensor * per_token / memory)


def _optimizer_step_s(model: Model, job: TrainingJob, plan: Plan, split: Split, nodes: Nodes, memory: Floats) -> Floats:
    """Reading gradients, states and master weights of the GPU's share and writing them back. [s]"""
    recipe, optimizer = job.recipe, job.optimizer
    adapters = job.method in ("lora", "qlora")
    if adapters:
        trained = np.asarray(adapters_of(model, job)) / (split.tensor * split.pipeline)
    else:
        trained = local_params(model, split)
    shards = np.where(np.asarray(plan.zero_stage) >= 1, shard_ranks(plan=plan, nodes=nodes), 1.0)
    state = recipe.state_bytes if optimizer.state_bytes is None else optimizer.state_bytes
    moved = 2.0 * recipe.gradient_bytes + 2.0 * state * optimizer.states + 2.0 * recipe.master_bytes
    moved = moved + 2.0 * recipe.weight_bytes
    on_gpu = np.where(np.asarray(plan.offload) >= 1, 0.0, 1.0)
    return on_gpu * trained / shards * moved / memory


def _launch_s(model: Model, plan: Plan, split: Split, assumptions: Assumptions) -> Floats:
    """Shortest time in which the host can issue the kernels of one micro-batch. [s]"""
    again = 1.0 + recomputed(plan, 0.0) / 3.0
    return split.layers * again * assumptions["training_speed_layer_launch_s"]


def _bound(parts: dict[str, Floats]) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    """What takes most of a typical step."""
    typical = {name: value[len(value) // 2] for name, value in parts.items()}
    links = sum(
        (typical[name] for name in ("tensor_parallel_s", "pipeline_bubble_s", "data_parallel_s", "expert_parallel_s")),
        start=np.zeros(1),
    )
    groups = np.broadcast_arrays(typical["compute_s"], typical["memory_bound_s"], links, typical["offload_s"])
    return np.asarray(BOUNDS[np.argmax(np.stack(groups), axis=0)])
