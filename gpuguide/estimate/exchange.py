"""
What a training plan sends: over tensor, context, pipeline, expert and data-parallel ranks, and to host memory.

Times here are of the traffic alone; `training` decides how much of it hides behind computing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.estimate import network
from gpuguide.estimate.compute import adapters_of
from gpuguide.estimate.sharding import joined_ranks, shard_ranks
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import Number


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Degrees of a plan as arrays, and what follows from them."""

    tensor: Floats
    pipeline: Floats
    context: Floats
    expert: Floats
    data: Floats
    micro_batches: Floats
    layers: Floats  # of one GPU
    tokens: Floats  # of one GPU in one micro-batch, before tensor parallel splits them


def split_of(model: Model, job: TrainingJob, plan: Plan) -> Split:
    def degree(value: Number) -> Floats:
        return np.asarray(value, dtype=np.float64)

    data, context, pipeline = degree(plan.data_parallel), degree(plan.context_parallel), degree(plan.pipeline_parallel)
    micro = degree(plan.micro_batch)
    return Split(
        tensor=degree(plan.tensor_parallel),
        pipeline=pipeline,
        context=context,
        expert=degree(plan.expert_parallel),
        data=data,
        micro_batches=np.maximum(np.ceil(job.global_batch / (data * micro) - 1e-9), 1.0),
        layers=model.layers / pipeline,
        tokens=micro * job.sequence_length / context,
    )


def tensor_s(model: Model, job: TrainingJob, plan: Plan, split: Split, nodes: Nodes) -> Floats:
    """
    Gathering and scattering activations over tensor and context ranks in one micro-batch. [s]

    Forward and backward each gather and scatter twice a layer (attention and MLP), backward gathers the inputs once
    more for the weight gradients. Expert layers have no tensor-parallel MLP: their tokens travel in the all-to-all.
    """
    seconds: Floats = np.zeros(1)
    halves = (sublayers(model) - model.moe_layers) / split.pipeline
    if np.any(split.tensor > 1):
        message = split.tokens * model.hidden * 2.0
        times = halves * (2.0 + 3.0 + 2.0 * recomputed(plan, 0.0))
        seconds = times * network.all_gather_s(message_bytes=message, ranks=split.tensor, nodes=nodes)
    if np.any(split.context > 1):
        cached = 2.0 * model.kv_heads * model.head_dim * 2.0
        message = split.tokens * split.context * cached / split.tensor
        inside = joined_ranks(ranks=split.context, tensor_parallel=split.tensor, nodes=nodes)
        ring = network.all_gather_s(message_bytes=message, ranks=split.context, nodes=nodes, ranks_per_node=inside)
        seconds = seconds + (3.0 + recomputed(plan, 1.0)) * split.layers * ring
    if np.any(split.pipeline > 1):
        message = split.tokens * model.hidden * 2.0 / split.tensor
        stage = split.tensor * split.context
        across = stage * split.pipeline > nodes.all_reduce.domain_gpus
        hop = network.send_s(message_bytes=message, nodes=nodes, across=across)
        seconds = seconds + np.where(split.pipeline > 1, 2.0 * virtual(plan) * hop, 0.0)
    return np.asarray(seconds)


def expert_s(model: Model, job: TrainingJob, split: Split, nodes: Nodes, assumptions: Assumptions) -> Floats:
    """
    Sending tokens to experts and back in one micro-batch, and the host's work for each expert layer. [s]

    Two exchanges forward and two backward; a token goes once to each machine and GPU that holds any of its experts.
    """
    if not model.is_moe:
        return np.zeros((1, 1, 1))
    layers = model.moe_layers / split.pipeline
    ranks = split.expert
    inside = joined_ranks(ranks=ranks, tensor_parallel=1.0, nodes=nodes)
    sent = split.tokens / split.tensor * model.hidden * 2.0
    domains = ranks / inside
    exchange = network.all_to_all_s(
        message_bytes=sent * _reached(ranks, model.experts_per_token),
        ranks=ranks,
        nodes=nodes,
        ranks_per_node=inside,
        away_bytes=sent * _reached(domains, model.experts_per_token) * (1.0 - 1.0 / domains),
    )
    travelling = 4.0 * exchange * exposed(assumptions, "training_speed_expert_overlap")
    host = assumptions["training_speed_expert_layer_s"]
    return np.asarray(layers * (travelling / network.link_efficiency(nodes, assumptions) + host))


def _reached(places: Floats, experts: Number) -> Floats:
    """How many of equally likely places that many draws reach: a token goes once to each of them. [-]"""
    return places * (1.0 - (1.0 - 1.0 / places) ** experts)


def data_parallel_s(model: Model, job: TrainingJob, plan: Plan, split: Split, nodes: Nodes) -> tuple[Floats, Floats]:
    """Collectives over replicas: each micro-batch (sharded weights), and once a step (gradients, new weights). [s]"""
    recipe = job.recipe
    stage = np.asarray(plan.zero_stage)
    ranks = split.data * split.context
    if np.all(ranks <= 1):
        return np.zeros(1), np.zeros(1)
    layers = np.maximum(split.layers, 1.0)
    weights = local_params(model, split)
    read_bytes = 2.0 if recipe.autocast else min(recipe.weight_bytes, 2.0) if recipe.weight_bytes < 4.0 else 4.0
    if job.quantization is not None:
        read_bytes = job.quantization.bytes_per_weight
    trained = np.asarray(adapters_of(model, job)) / (split.tensor * split.pipeline)
    trained = trained if job.method in ("lora", "qlora") else weights
    reduce_bytes = recipe.gradient_bytes
    inside = joined_ranks(ranks=ranks, tensor_parallel=split.tensor, nodes=nodes)
    gather = layers * network.all_gather_s(
        message_bytes=weights * read_bytes / layers,
        ranks=shard_ranks(plan=plan, nodes=nodes),
        nodes=nodes,
        ranks_per_node=inside,
    )
    scatter = layers * network.reduce_scatter_s(
        message_bytes=trained * reduce_bytes / layers, ranks=ranks, nodes=nodes, ranks_per_node=inside
    )
    gathered = np.where(stage >= 3, 2.0 * gather + scatter, np.where(stage >= 2, scatter, 0.0))
    # All-reduce is a scatter and a gather of the same bytes; ZeRO-1 gathers new weights instead of gradients.
    updated = np.where(stage >= 1, gather * np.minimum(trained / weights, 1.0), scatter)
    reduced = np.where(stage >= 3, 0.0, np.where(stage >= 2, updated, scatter + updated))
    return gathered, reduced


def offload_s(
    model: Model,
    job: TrainingJob,
    plan: Plan,
    split: Split,
    nodes: Nodes,
    per_micro_batch: Floats,
    assumptions: Assumptions,
) -> Floats:
    """Traffic to host memory and the optimizer step there; weights are fetched behind the computing. [s]"""
    place = np.asarray(plan.offload)
    if np.all(place == 0):
        return np.zeros(1)
    shards = np.where(np.asarray(plan.zero_stage) >= 1, shard_ranks(plan=plan, nodes=nodes), 1.0)
    params = local_params(model, split)
    adapters = job.method in ("lora", "qlora")
    trained = np.asarray(adapters_of(model, job)) / (split.tensor * split.pipeline) if adapters else params
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


def local_params(model: Model, split: Split) -> Floats:
    """Parameters one GPU multiplies with: experts are split over expert ranks, the rest over tensor ranks. [-]"""
    dense = model.params - model.params_routed_experts
    return np.asarray((dense / split.tensor + model.params_routed_experts / split.expert) / split.pipeline)


def _mixers(model: Model) -> Number:
    """Layers with attention or a recurrence; where the model does not say, all. [-]"""
    stated = model.layers_full + model.layers_windowed + model.layers_recurrent
    return np.where(np.asarray(stated) > 0, np.minimum(stated, model.layers), model.layers)


def mlp_layers(model: Model) -> Number:
    """Layers with an MLP or experts: all, or those without a mixer where the model has layers of either kind. [-]"""
    mixers = _mixers(model)
    return np.where(mixers < model.layers, model.layers - mixers, model.layers)


def sublayers(model: Model) -> Number:
    """Mixers and MLPs, each with its norm and residual. [-]"""
    return _mixers(model) + mlp_layers(model)


def virtual(plan: Plan) -> Floats:
    return np.maximum(np.asarray(plan.virtual_pipeline, dtype=np.float64), 1.0)


def exposed(assumptions: Assumptions, name: str) -> Floats:
    return 1.0 - assumptions[name]


def recomputed(plan: Plan, selective: float) -> Floats:
    """Share of the forward pass that runs again: all of it, the given share, or none."""
    place = np.asarray(plan.recompute)
    return np.where(place >= 2, 1.0, np.where(place >= 1, selective, 0.0))
