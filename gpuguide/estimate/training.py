"""
Time of one optimizer step, by what it is spent on: only what is exposed counts, so the parts sum to the step.

A micro-batch is computed layer by layer: weight multiplications, attention, and small kernels that only move memory.
Collectives that belong to one micro-batch (tensor and expert parallel, gathering sharded weights) happen every time,
gradient reduction once a step. What can hide behind computing is hidden by the share `training_speed_overlap`, since
a collective takes memory bandwidth and processors away from the kernels it runs beside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.estimate import network
from gpuguide.estimate.compute import (
    adapter_params,
    block_params,
    matmul_flops_per_s,
    memory_bytes_per_s,
    peak_16bit_flops,
    training_flops_per_token,
)
from gpuguide.estimate.results import TrainingSpeed
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
"""The same per inner value of a recurrent layer: convolution, gates, scan and gated norm, each read and written. [bytes]"""
STATE_SIZE = 128.0
"""State elements per inner value of Mamba-2 layers. [-]"""
FFN_PASSES = 6.0
"""The same per value of the MLP's width: gate and up read, product written. [bytes]"""
BACKWARD_TIMES = 2.0
"""Backward kernels of this kind read what forward read and the gradient, and write as much. [-]"""
SCORE_BYTES = 36.0
"""Eager attention, forward and backward, per element of the score matrix: written, masked, softmax, dropout, read, in
16 bit with an fp32 softmax. Source: Korthikanti et al. 2022, table of kept tensors, each read and written once. [bytes]"""
LOSS_BYTES, FUSED_LOSS_BYTES = 30.0, 8.0
"""Per logit: 16-bit logits, their fp32 copy, log-softmax, its gradient and the cast back, each written and read. [bytes]"""
CAST_BYTES = 4.0
"""Casting one operand value to 8 or 4 bit: read in 16 bit, written in both orientations. [bytes]"""
DEQUANTISED_BYTES = 2.0
ROUTED_PASSES = 16.0
"""Permuting tokens to experts and back, forward and backward: 4 copies, each read and written in 16 bit. [bytes]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Split:
    """Degrees of a plan as arrays, and what follows from them."""

    tensor: Floats
    pipeline: Floats
    context: Floats
    expert: Floats
    data: Floats
    micro_batches: Floats
    layers: Floats  # of one GPU
    tokens: Floats  # of one GPU in one micro-batch, before tensor parallel splits them


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
    split = _split(model, job, plan)
    memory = memory_bytes_per_s(nodes, assumptions.value("compute_memory_share"))
    compute = _compute_s(model, job, plan, split, nodes, memory, assumptions)
    small = _memory_bound_s(model, job, plan, split, memory) * assumptions["training_speed_small_kernels"]
    routing = _expert_s(model, job, split, nodes, assumptions)
    tensor = _tensor_s(model, job, plan, split, nodes) * _exposed(assumptions, "training_speed_tensor_overlap")
    link = assumptions["network_link_efficiency"]
    tensor = tensor / link
    launches = _launch_s(model, plan, split, assumptions)
    compute = compute + np.maximum(launches - compute - small, 0.0)
    per_micro_batch = compute + small + tensor + routing
    gathered, reduced = _data_parallel_s(model, job, plan, split, nodes)
    overlap = assumptions["training_speed_overlap"]
    gathered, reduced = gathered / link, reduced / link
    exposed_gather = np.maximum(gathered * (1.0 - overlap), gathered - overlap * per_micro_batch)
    exposed_reduce = np.maximum(reduced * (1.0 - overlap), reduced - overlap * per_micro_batch)
    count = split.micro_batches
    bubble = (split.pipeline - 1.0) / _virtual(plan) * (per_micro_batch + exposed_gather)
    step = _optimizer_step_s(model, job, plan, split, nodes, memory)
    stored = _offload_s(model, job, plan, split, nodes, per_micro_batch, assumptions)
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
    shape = np.broadcast_shapes(np.shape(total), (3, 1, 1))
    tokens = np.asarray(job.global_batch) * job.sequence_length
    per_s = tokens / total
    flops = training_flops_per_token(model=model, job=job).total
    return TrainingSpeed(
        **{name: np.broadcast_to(value, shape) for name, value in parts.items()},
        step_s=total,
        tokens_per_s=per_s,
        mfu=per_s * flops / (nodes.gpus * peak_16bit_flops(nodes)),
        bound=_bound(parts),
    )


def _split(model: Model, job: TrainingJob, plan: Plan) -> _Split:
    def degree(value: Number) -> Floats:
        return np.asarray(value, dtype=np.float64)

    data, context, pipeline = degree(plan.data_parallel), degree(plan.context_parallel), degree(plan.pipeline_parallel)
    micro = degree(plan.micro_batch)
    return _Split(
        tensor=degree(plan.tensor_parallel),
        pipeline=pipeline,
        context=context,
        expert=degree(plan.expert_parallel),
        data=data,
        micro_batches=np.maximum(np.ceil(job.global_batch / (data * micro) - 1e-9), 1.0),
        layers=model.layers / pipeline,
        tokens=micro * job.sequence_length / context,
    )


def _virtual(plan: Plan) -> Floats:
    return np.maximum(np.asarray(plan.virtual_pipeline, dtype=np.float64), 1.0)


def _exposed(assumptions: Assumptions, name: str) -> Floats:
    return 1.0 - assumptions[name]


def _recomputed(plan: Plan, selective: float) -> Floats:
    """Share of the forward pass that runs again: all of it, the given share, or none."""
    place = np.asarray(plan.recompute)
    return np.where(place >= 2, 1.0, np.where(place >= 1, selective, 0.0))


def _compute_s(
    model: Model, job: TrainingJob, plan: Plan, split: _Split, nodes: Nodes, memory: Floats, assumptions: Assumptions
) -> Floats:
    """Multiplications of one micro-batch on one GPU. [s]"""
    precision = job.recipe.compute_precision
    fp8, fp4 = assumptions["compute_fp8_share"], assumptions["compute_fp4_share"]
    rate = matmul_flops_per_s(nodes=nodes, precision=precision, fp8_share=fp8, fp4_share=fp4)
    rate16 = matmul_flops_per_s(nodes=nodes, precision="fp32" if precision == "fp32" else "bf16")
    share = assumptions["compute_matmul_share"]
    flops = training_flops_per_token(model=model, job=job)
    again = _recomputed(plan, 0.0) * _recompute_share(model)
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
    attention = flops.attention + flops.attention_forward * _recomputed(plan, 1.0)
    if job.attention == "fused":
        computed = attention if job.skips_masked else 2.0 * attention
        share16 = assumptions["compute_attention_share"] * _kernel_share(job, nodes)
        attended = tokens * computed / (rate16 * share16)
    else:  # eager attention computes the masked half too and moves every score through memory
        scores = model.heads * np.asarray(job.sequence_length) * model.layers * SCORE_BYTES
        scored = scores * (1.0 + _recomputed(plan, 1.0) / 3.0)
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
LATER = ("Hopper", "Blackwell", "Blackwell Ultra", "CDNA3", "CDNA4")


def _kernel_share(job: TrainingJob, nodes: Nodes) -> Floats:
    """Frameworks with fused kernels bring attention made for the GPU. [-]"""
    later = np.array([str(name) in LATER for name in nodes.architecture])
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


def _local_params(model: Model, split: _Split) -> Floats:
    """Parameters one GPU multiplies with: experts are split over expert ranks, the rest over tensor ranks. [-]"""
    dense = model.params - model.params_routed_experts
    return np.asarray((dense / split.tensor + model.params_routed_experts / split.expert) / split.pipeline)


def _memory_bound_s(model: Model, job: TrainingJob, plan: Plan, split: _Split, memory: Floats) -> Floats:
    """Norms, residuals, activations, casts and loss of one micro-batch. [s]"""
    mlp_layers = _mlp_layers(model)
    width = (mlp_layers - model.moe_layers) * model.ffn
    if model.is_moe:
        width = width + model.moe_layers * (model.experts_per_token + model.shared_experts) * model.moe_ffn
    gated = 1.0 if model.gated_mlp else 2.0 / 3.0
    hidden = _sublayers(model) * model.hidden
    forward = HIDDEN_PASSES * hidden + FFN_PASSES * gated * width
    forward = forward + RECURRENT_PASSES * model.recurrent_elements / STATE_SIZE
    if job.fused_norms:
        forward = 0.6 * forward
    moved = forward * (1.0 + BACKWARD_TIMES + _recomputed(plan, 0.5))
    if job.recipe.compute_precision in ("fp8", "fp4"):
        moved = moved + CAST_BYTES * (2.0 + _recomputed(plan, 0.0)) * (1.5 * hidden + width)
    if model.is_moe:
        moved = moved + ROUTED_PASSES * model.hidden * model.experts_per_token * model.moe_layers
    scale = job.recipe.activation_bytes / 2.0
    loss = FUSED_LOSS_BYTES if job.fused_loss else LOSS_BYTES
    per_token = (scale * moved + loss * model.vocab) / split.pipeline
    return np.asarray(split.tokens / split.tensor * per_token / memory)


def _mixers(model: Model) -> Number:
    """Layers with attention or a recurrence; where the model does not say, all. [-]"""
    stated = model.layers_full + model.layers_windowed + model.layers_recurrent
    return np.where(np.asarray(stated) > 0, np.minimum(stated, model.layers), model.layers)


def _mlp_layers(model: Model) -> Number:
    """Layers with an MLP or experts: all, or those without a mixer where the model has layers of either kind. [-]"""
    mixers = _mixers(model)
    return np.where(mixers < model.layers, model.layers - mixers, model.layers)


def _sublayers(model: Model) -> Number:
    """Mixers and MLPs, each with its norm and residual. [-]"""
    return _mixers(model) + _mlp_layers(model)


def _optimizer_step_s(
    model: Model, job: TrainingJob, plan: Plan, split: _Split, nodes: Nodes, memory: Floats
) -> Floats:
    """Reading gradients, states and master weights of the GPU's share and writing them back. [s]"""
    recipe, optimizer = job.recipe, job.optimizer
    adapters = job.method in ("lora", "qlora")
    if adapters:
        trained = np.asarray(adapter_params(model, job)) / (split.tensor * split.pipeline)
    else:
        trained = _local_params(model, split)
    shards = np.where(np.asarray(plan.zero_stage) >= 1, _shard_ranks(plan, split, nodes), 1.0)
    state = recipe.state_bytes if optimizer.state_bytes is None else optimizer.state_bytes
    moved = 2.0 * recipe.gradient_bytes + 2.0 * state * optimizer.states + 2.0 * recipe.master_bytes
    moved = moved + 2.0 * recipe.weight_bytes
    on_gpu = np.where(np.asarray(plan.offload) >= 1, 0.0, 1.0)
    return on_gpu * trained / shards * moved / memory


def _shard_ranks(plan: Plan, split: _Split, nodes: Nodes) -> Floats:
    """GPUs over which weights and states are sharded: all data-parallel and context ranks, or those of one machine."""
    ranks = split.data * split.context
    inside = np.maximum(np.minimum(ranks, nodes.all_reduce.domain_gpus / split.tensor), 1.0)
    return np.where(np.asarray(plan.shard_in_node) > 0, inside, ranks)


def _tensor_s(model: Model, job: TrainingJob, plan: Plan, split: _Split, nodes: Nodes) -> Floats:
    """
    Gathering and scattering activations over tensor and context ranks in one micro-batch. [s]

    Forward and backward each gather and scatter twice a layer (attention and MLP), backward gathers the inputs once more
    for the weight gradients. Expert layers have no tensor-parallel MLP: their tokens travel in the all-to-all.
    """
    seconds: Floats = np.zeros(1)
    halves = (_sublayers(model) - model.moe_layers) / split.pipeline
    if np.any(split.tensor > 1):
        message = split.tokens * model.hidden * 2.0
        times = halves * (2.0 + 3.0 + 2.0 * _recomputed(plan, 0.0))
        seconds = times * network.all_gather_s(message_bytes=message, ranks=split.tensor, nodes=nodes)
    if np.any(split.context > 1):
        cached = 2.0 * model.kv_heads * model.head_dim * 2.0
        message = split.tokens * split.context * cached / split.tensor
        inside = np.maximum(np.minimum(split.context, nodes.all_reduce.domain_gpus / split.tensor), 1.0)
        ring = network.all_gather_s(message_bytes=message, ranks=split.context, nodes=nodes, ranks_per_node=inside)
        seconds = seconds + (3.0 + _recomputed(plan, 1.0)) * split.layers * ring
    if np.any(split.pipeline > 1):
        message = split.tokens * model.hidden * 2.0 / split.tensor
        stage = split.tensor * split.context
        across = stage * split.pipeline > nodes.all_reduce.domain_gpus
        hop = network.send_s(message_bytes=message, nodes=nodes, across=across)
        seconds = seconds + np.where(split.pipeline > 1, 2.0 * _virtual(plan) * hop, 0.0)
    return np.asarray(seconds)


def _expert_s(model: Model, job: TrainingJob, split: _Split, nodes: Nodes, assumptions: Assumptions) -> Floats:
    """
    Sending tokens to experts and back in one micro-batch, and the host's work for each expert layer. [s]

    Two exchanges forward and two backward; a token goes once to each machine and each GPU that holds any of its experts.
    """
    if not model.is_moe:
        return np.zeros((1, 1, 1))
    layers = model.moe_layers / split.pipeline
    ranks = split.expert
    inside = np.maximum(np.minimum(ranks, nodes.all_reduce.domain_gpus), 1.0)
    sent = split.tokens / split.tensor * model.hidden * 2.0
    domains = ranks / inside
    exchange = network.all_to_all_s(
        message_bytes=sent * _reached(ranks, model.experts_per_token),
        ranks=ranks,
        nodes=nodes,
        ranks_per_node=inside,
        away_bytes=sent * _reached(domains, model.experts_per_token) * (1.0 - 1.0 / domains),
    )
    travelling = 4.0 * exchange * _exposed(assumptions, "training_speed_expert_overlap")
    host = assumptions["training_speed_expert_layer_s"]
    return np.asarray(layers * (travelling / assumptions["network_link_efficiency"] + host))


def _reached(places: Floats, experts: Number) -> Floats:
    """How many of equally likely places that many draws reach: a token goes once to each of them. [-]"""
    return places * (1.0 - (1.0 - 1.0 / places) ** experts)


def _launch_s(model: Model, plan: Plan, split: _Split, assumptions: Assumptions) -> Floats:
    """Shortest time in which the host can issue the kernels of one micro-batch. [s]"""
    again = 1.0 + _recomputed(plan, 0.0) / 3.0
    return split.layers * again * assumptions["training_speed_layer_launch_s"]


def _data_parallel_s(
    model: Model, job: TrainingJob, plan: Plan, split: _Split, nodes: Nodes
) -> tuple[Floats, Floats]:
    """Collectives over replicas: each micro-batch (sharded weights), and once a step (gradients, new weights). [s]"""
    recipe = job.recipe
    stage = np.asarray(plan.zero_stage)
    ranks = split.data * split.context
    if np.all(ranks <= 1):
        return np.zeros(1), np.zeros(1)
    layers = np.maximum(split.layers, 1.0)
    weights = _local_params(model, split)
    read_bytes = 2.0 if recipe.autocast else min(recipe.weight_bytes, 2.0) if recipe.weight_bytes < 4.0 else 4.0
    if job.quantization is not None:
        read_bytes = job.quantization.bytes_per_weight
    trained = np.asarray(adapter_params(model, job)) / (split.tensor * split.pipeline)
    trained = trained if job.method in ("lora", "qlora") else weights
    reduce_bytes = recipe.gradient_bytes
    inside = np.maximum(np.minimum(ranks, nodes.all_reduce.domain_gpus / split.tensor), 1.0)
    local = np.asarray(plan.shard_in_node) > 0
    shards = np.where(local, inside, ranks)
    gather = layers * network.all_gather_s(
        message_bytes=weights * read_bytes / layers, ranks=shards, nodes=nodes, ranks_per_node=inside
    )
    scatter = layers * network.reduce_scatter_s(
        message_bytes=trained * reduce_bytes / layers, ranks=ranks, nodes=nodes, ranks_per_node=inside
    )
    gathered = np.where(stage >= 3, 2.0 * gather + scatter, np.where(stage >= 2, scatter, 0.0))
    # All-reduce is a scatter and a gather of the same bytes; ZeRO-1 gathers new weights instead of gradients.
    updated = np.where(stage >= 1, gather * np.minimum(trained / weights, 1.0), scatter)
    reduced = np.where(stage >= 3, 0.0, np.where(stage >= 2, updated, scatter + updated))
    return gathered, reduced


def _offload_s(
    model: Model,
    job: TrainingJob,
    plan: Plan,
    split: _Split,
    nodes: Nodes,
    per_micro_batch: Floats,
    assumptions: Assumptions,
) -> Floats:
    """Traffic to host memory and the optimizer step there; weights are fetched behind the computing. [s]"""
    place = np.asarray(plan.offload)
    if np.all(place == 0):
        return np.zeros(1)
    shards = np.where(np.asarray(plan.zero_stage) >= 1, _shard_ranks(plan, split, nodes), 1.0)
    params = _local_params(model, split)
    adapters = job.method in ("lora", "qlora")
    trained = np.asarray(adapter_params(model, job)) / (split.tensor * split.pipeline) if adapters else params
    link = nodes.pcie_bytes_per_s
    state = job.recipe.state_bytes if job.optimizer.state_bytes is None else job.optimizer.state_bytes
    touched = job.recipe.gradient_bytes + 2.0 * (state * job.optimizer.states + 4.0)
    host = assumptions["training_speed_host_bytes_per_s"] / nodes.gpus_per_node
    step = trained / shards * ((job.recipe.gradient_bytes + 2.0) / link + touched / host)
    held = np.where(np.asarray(plan.zero_stage) >= 3, shards, 1.0)
    fetched = 2.0 * params * 2.0 / held / link
    overlap = assumptions["training_speed_overlap"]
    waiting = np.maximum(fetched * (1.0 - overlap), fetched - overlap * per_micro_batch)
    return np.where(place >= 1, step, 0.0) + np.where(place >= 2, split.micro_batches * waiting, 0.0)


def _bound(parts: dict[str, Floats]) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    """What takes most of a typical step."""
    typical = {name: value[1] if value.ndim == 3 and value.shape[0] == 3 else value for name, value in parts.items()}
    links = sum(
        (typical[name] for name in ("tensor_parallel_s", "pipeline_bubble_s", "data_parallel_s", "expert_parallel_s")),
        start=np.zeros(1),
    )
    groups = np.broadcast_arrays(typical["compute_s"], typical["memory_bound_s"], links, typical["offload_s"])
    return np.asarray(BOUNDS[np.argmax(np.stack(groups), axis=0)])
