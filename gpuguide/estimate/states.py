"""Weights, gradients and optimizer states of a training run: what stands on the fullest GPU, whatever the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.estimate.memory import adapter_params, is_adapted
from gpuguide.estimate.sharding import shard_ranks
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import OFFLOAD, Plan
from gpuguide.units import Number

ADAPTED = ("lora", "qlora")
BLOCK_SCALE_BYTES = 4 / 256
"""Of one 8-bit state value: one FP32 scale per 256 values. Source: Dettmers et al. 2021 (arXiv 2110.02861)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Parameters of one model replica on the fullest GPU, before data-parallel sharding. [-]"""

    blocks: Number  # inside layers, routed experts left out
    experts: Number  # routed
    embedding: Number
    head: Number  # zero where tied to the embedding, or where another stage holds it
    layer: Number  # one layer, experts included: what sharded training gathers at a time
    shards: Number  # GPUs that share a replica's states under ZeRO
    expert_shards: Number

    @property
    def outside(self) -> Number:
        """Embedding and head. [-]"""
        return self.embedding + self.head


@dataclass(frozen=True, kw_only=True, slots=True)
class States:
    """What stands in memory between two steps, and what the step adds. [bytes]"""

    weights: Number
    gradients: Number  # once the backward pass is through
    gradients_head: Number  # of the head alone, first to be there
    gradients_bottom: Number  # before the first layer and the embedding have theirs
    gradients_tied: Number  # two parts of a tied embedding's gradient while they are summed
    optimizer: Number
    step: Number  # temporaries of the optimizer step
    copies: Number  # gradient buckets of plain data parallelism, as large as the gradients
    bucket: Number  # the largest bucket of sharded training, the one part with a band
    gathered: Number  # sharded weights put together for use, and one layer's gradients before they are shared out
    start: Number  # flat copy while sharded states are set up
    casts: Number  # 16-bit copies of weights under autocast, all of them
    casts_head: Number
    casts_layer: Number
    keeps_gradients: Number  # 1 where gradients stand during the forward pass too


def split_params(*, model: Model, plan: Plan, nodes: Nodes) -> Split:
    """
    Parameters per GPU after tensor, pipeline and expert parallelism.

    Notes
    -----
    The first of several stages holds the embedding and the most layers; its load is that of the last, which holds the
    head. With expert parallelism an expert lies whole on one GPU; without, tensor parallelism splits it.
    Source: `docs/formulas.md`, "Training states".
    """
    tensor, pipeline = plan.tensor_parallel, plan.pipeline_parallel
    stage_share = np.ceil(model.layers / pipeline) / model.layers
    expert_split = np.where(np.greater(plan.expert_parallel, 1), plan.expert_parallel, tensor)
    embedding = model.params_embedding / tensor
    head = 0.0 if model.tied_embeddings else model.params_lm_head / tensor
    blocks = (model.params_linear - model.params_routed_experts) / tensor
    experts = model.params_routed_experts / expert_split
    shards = shard_ranks(plan=plan, nodes=nodes)
    return Split(
        blocks=(blocks + model.params_vision / tensor) * stage_share,
        experts=experts * stage_share,
        embedding=embedding,
        head=np.where(np.equal(pipeline, 1), head, 0.0),
        layer=blocks / model.layers + experts / np.maximum(model.moe_layers, 1.0),
        shards=shards,
        expert_shards=np.maximum(1.0, shards * tensor / expert_split),
    )


def training_states(
    *, model: Model, job: TrainingJob, plan: Plan, split: Split, bucket_bytes: Number, paged_share: Number
) -> States:
    """
    Weights, gradients and optimizer states per GPU, with what communication and the step add.

    Parameters
    ----------
    model, job, plan : Model, TrainingJob, Plan
        What is trained, how, and over which GPUs.
    split : Split
        From `split_params`.
    bucket_bytes : number
        Largest communication bucket of sharded training. [bytes]
    paged_share : number
        Share of a paged optimizer's states that stays on the GPU. [-]

    Returns
    -------
    States

    Notes
    -----
    ZeRO stage 1 shards optimizer states, 2 gradients too, 3 weights too. Plain data parallelism in PyTorch keeps
    gradient buckets as large as the gradients. Sources: Rajbhandari et al. 2020 (arXiv 1910.02054); Megatron-LM
    `theoretical_memory_usage.py`; PyTorch DistributedDataParallel notes; `docs/formulas.md`, "Training states".
    """
    recipe, adapted = job.recipe, job.method in ADAPTED
    stage = np.asarray(plan.zero_stage)
    on_host, all_on_host = np.greater(plan.offload, 0), np.equal(plan.offload, OFFLOAD.index("all"))
    replicas = split.shards

    def share(first_stage: int, dense: Number, experts: Number) -> Number:
        sharded = stage >= first_stage
        return dense / np.where(sharded, replicas, 1.0) + experts / np.where(sharded, split.expert_shards, 1.0)

    base = _base_widths(model, job)
    weights = share(3, split.blocks * base.linear + split.outside * base.outside, split.experts * base.expert)
    trained, widths = _trained(model, job, split), _Widths.of(job)
    dense, experts = trained.blocks + trained.outside, trained.experts
    if adapted:
        weights = weights + share(3, dense * widths.weight, experts * widths.weight)
    gradients = share(2, dense * widths.gradient, experts * widths.gradient)
    full_gradients = (dense + experts) * widths.gradient
    layer_gradients = trained.layer * widths.gradient
    # A tied embedding has its gradient as head first.
    head_gradients = share(2, (trained.embedding if model.tied_embeddings else trained.head) * widths.gradient, 0.0)
    late = share(2, (trained.layer + (0.0 if model.tied_embeddings else trained.embedding)) * widths.gradient, 0.0)
    summed = 2 * trained.embedding * widths.gradient if model.tied_embeddings and not recipe.master_bytes else 0.0
    states = _state_bytes(model, job, trained, widths.state)
    optimizer = share(1, states.dense + dense * widths.master, states.experts + experts * widths.master)
    step = share(1, _step_bytes(job, dense, widths, states.dense), _step_bytes(job, experts, widths, states.experts))
    # Fully sharded states are stepped group by group.
    step = np.where(stage >= 3, np.minimum(step, job.step_group_params * (widths.gradient + widths.master)), step)
    contiguous = recipe.master_bytes > 0 and recipe.gradient_bytes >= recipe.master_bytes
    exchanged = np.greater(plan.data_parallel * plan.context_parallel, 1)
    copies = np.where((stage == 0) & exchanged, 0.0 if recipe.master_bytes else full_gradients, 0.0)
    bucket = np.where(stage > 0, 0.0 if contiguous else np.minimum(bucket_bytes, full_gradients), 0.0)
    if job.optimizer.fused_backward:
        largest = np.maximum(layer_gradients, np.maximum(trained.embedding, trained.head) * widths.gradient)
        gradients, head_gradients, step = np.minimum(gradients, largest), np.minimum(head_gradients, largest), 0.0
        late = 0.0
    if np.any(on_host):
        # Megatron steps on the host from gradients left on the GPU; ZeRO-Offload moves gradients as they come.
        if not contiguous:
            gradients = np.where(on_host, np.minimum(gradients, layer_gradients), gradients)
            head_gradients = np.where(on_host, np.minimum(head_gradients, gradients), head_gradients)
        optimizer, step = np.where(on_host, 0.0, optimizer), np.where(on_host, 0.0, step)
        weights = np.where(all_on_host, 0.0, weights)
    if job.optimizer.paged:
        optimizer = optimizer * paged_share
    cast_width = 2.0 if recipe.autocast else 0.0
    gather_linear = cast_width or base.gathered
    # Two layers (one in use, one fetched ahead) and what lies outside layers; one layer's gradients before reduction.
    gathered = 2 * split.layer * gather_linear + split.outside * (cast_width or base.outside) + layer_gradients
    sharded = ((stage >= 3) & np.greater(replicas, 1)) | all_on_host
    whole = split.blocks * base.linear + split.outside * base.outside + split.experts * base.expert
    flat = np.where((stage == 1) | (stage == 2), (dense + experts) * widths.weight, 0.0)
    casts = np.where(sharded, 0.0, 1.0) * cast_width if cast_width else 0.0
    # Gradients stand through the forward pass when they accumulate, or live in one buffer made at the start.
    accumulates = np.greater(job.global_batch, plan.micro_batch * plan.data_parallel)
    return States(
        weights=weights,
        gradients=gradients,
        gradients_head=head_gradients,
        gradients_bottom=np.maximum(gradients - late, 0.0),
        gradients_tied=summed,
        optimizer=optimizer,
        step=step,
        copies=copies,
        bucket=bucket,
        gathered=np.where(sharded, gathered, 0.0),
        start=np.where(sharded, (whole + gathered) * job.unsharded_start, flat),
        casts=casts * (split.blocks + split.experts),
        casts_head=casts * model.params_lm_head / plan.tensor_parallel,
        casts_layer=casts * split.layer,
        keeps_gradients=np.where(accumulates | contiguous, 1.0, 0.0),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Base:
    """Width of the weights that forward and backward read. [bytes]"""

    linear: Number
    expert: Number
    outside: Number  # embedding and head
    gathered: Number


def _base_widths(model: Model, job: TrainingJob) -> _Base:
    width = job.recipe.weight_bytes
    if job.quantization is None:
        return _Base(linear=width, expert=width, outside=width, gathered=width)
    unquantised = 4.0 if job.upcast_unquantised else job.recipe.activation_bytes
    stored = job.quantization.bytes_per_weight
    linear = unquantised if job.quantization.experts_only else stored
    outside = unquantised if job.quantization.keeps_embeddings_16bit or job.quantization.experts_only else stored
    return _Base(linear=linear, expert=stored, outside=outside, gathered=stored)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Widths:
    """Bytes per trained parameter."""

    weight: float
    master: float
    gradient: float
    state: float

    @classmethod
    def of(cls, job: TrainingJob) -> _Widths:
        recipe = job.recipe
        if job.method not in ADAPTED or recipe.master_bytes:
            return cls(
                weight=recipe.weight_bytes,
                master=recipe.master_bytes,
                gradient=recipe.gradient_bytes,
                state=recipe.state_bytes,
            )
        # PyTorch optimizers keep states and gradients in the width of the parameter.
        width = job.adapter_bytes
        return cls(weight=width, master=0.0, gradient=width, state=width)


def _trained(model: Model, job: TrainingJob, split: Split) -> Split:
    """Trainable parameters per GPU; adapters are spread like the layers they sit on."""
    if job.method not in ADAPTED:
        return split
    adapters = adapter_params(model=model, lora_rank=job.lora_rank, lora_targets=job.lora_targets)
    in_experts: Number = 0.0
    if model.is_moe:
        mlp_only = [target for target in ("gate", "up", "down") if is_adapted(target, job.lora_targets)]
        per_expert = len(mlp_only) * job.lora_rank * (model.hidden + model.moe_ffn)
        in_experts = per_expert * model.experts * model.moe_layers
    # Counted over the whole model; a GPU's share is its share of the layers below.
    blocks_all = np.maximum(model.params_linear - model.params_routed_experts + model.params_vision, 1.0)
    dense_share = split.blocks / blocks_all
    expert_share = split.experts / np.maximum(model.params_routed_experts, 1.0)
    # Full copies of embedding and head are trained in the base's width: fewer parameters of an adapter's width.
    per_adapter_width = job.recipe.weight_bytes / _Widths.of(job).weight if job.trainable_embeddings else 0.0
    outside = (split.embedding * per_adapter_width, split.head * per_adapter_width)
    return Split(
        blocks=(adapters - in_experts) * dense_share,
        experts=in_experts * expert_share,
        embedding=outside[0],
        head=outside[1],
        layer=adapters / model.layers * dense_share,
        shards=split.shards,
        expert_shards=split.expert_shards,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _StateBytes:
    dense: Number
    experts: Number


def _state_bytes(model: Model, job: TrainingJob, trained: Split, width: float) -> _StateBytes:
    """Optimizer states, master copy left out."""
    optimizer = job.optimizer
    if optimizer.state_bytes is not None:
        width = optimizer.state_bytes + (BLOCK_SCALE_BYTES if optimizer.state_bytes < 2 else 0.0)
    per_weight: Number = optimizer.states * width
    outside: Number = (optimizer.states if optimizer.embedding_states is None else optimizer.embedding_states) * width
    if optimizer.factored:
        # A matrix of m x n keeps m + n values: about 2 / hidden of a value per weight.
        per_weight = outside = 2 / model.hidden * width
    if optimizer.low_rank is not None and job.method not in ADAPTED:
        # States of the projected gradient (rank x longer side), and the projection (rank x shorter side).
        rank_share = np.minimum(1.0, optimizer.low_rank / model.hidden)
        projection = job.recipe.weight_bytes * model.hidden / np.maximum(model.ffn, model.hidden)
        per_weight = rank_share * (per_weight + projection)
    return _StateBytes(
        dense=trained.blocks * per_weight + trained.outside * outside, experts=trained.experts * per_weight
    )


def _step_bytes(job: TrainingJob, params: Number, widths: _Widths, states: Number) -> Number:
    """Temporaries of the step: one copy of a state (`foreach`), or full-width gradients for a full-width master."""
    temporary: Number = states / np.maximum(job.optimizer.states, 1.0) if job.foreach_optimizer else 0.0
    if widths.master and widths.gradient < widths.master:
        # The shard's gradients are laid out flat, then raised to the master's width.
        temporary = temporary + params * (widths.gradient + widths.master)
    return temporary
