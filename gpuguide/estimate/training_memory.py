"""
Memory of a training run on its fullest GPU, by parts, at the moment that is fullest.

Five moments are weighed: setting up sharded states, the loss at the turn from forward to backward, the backward pass
through the last and through the first layer, and the optimizer step. What is alive at each is counted from first
principles in `states` and `activations`; context, communication library and allocator reserve come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.errors import NotModelled
from gpuguide.estimate.activations import LayerBytes, layer_bytes, logits_bytes
from gpuguide.estimate.results import PHASES, MemoryBreakdown
from gpuguide.estimate.states import ADAPTED, States, split_params, training_states
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import RECOMPUTE, Plan
from gpuguide.units import Number

METHODS = ("pretrain", "full", *ADAPTED)
ATTENTION = ("fused", "eager")


def training_memory(
    *, model: Model, job: TrainingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> MemoryBreakdown:
    """
    Memory per GPU of a training run, by parts.

    Parameters
    ----------
    model, job : Model, TrainingJob
        What is trained, and how.
    plan : Plan
        Parallel degrees, micro-batch, sharding, recompute and offload; scalars or arrays over plans.
    nodes : Nodes
        Machine shapes; only GPUs per node count, where shards stay inside a node.
    assumptions : Assumptions
        Rows `training_memory_*`.

    Returns
    -------
    MemoryBreakdown
        Parts broadcastable to (band, plan, node), their sum `total`; `phase` is the place in PHASES of the fullest
        moment. [bytes]

    Raises
    ------
    NotModelled
        If the job names a method or attention kernel we have no formula for.

    Notes
    -----
    Tools print different sums: 'allocated' is `total - reserved`; 'reserved' by PyTorch adds the allocator's reserve;
    nvidia-smi shows `total`. `process_bytes` is what stands beside the allocator. Source: `docs/formulas.md`, "Training
    memory".
    """
    if job.method not in METHODS:
        raise NotModelled(f"training method '{job.method}'", f"choose one of {', '.join(METHODS)}")
    if job.attention not in ATTENTION:
        raise NotModelled(f"attention kernel '{job.attention}'", f"choose one of {', '.join(ATTENTION)}")
    if job.method == "qlora" and job.quantization is None:
        raise NotModelled("QLoRA without a weight format", "set `quantization`, for example nf4-dq")
    split = split_params(model=model, plan=plan, nodes=nodes)
    states = training_states(
        model=model,
        job=job,
        plan=plan,
        split=split,
        bucket_bytes=assumptions["training_memory_bucket_bytes"],
        paged_share=assumptions["training_memory_paged_states"],
    )
    passing = _passing(model, job, plan, assumptions)
    first_pass = assumptions["training_memory_first_pass"] if job.unsharded_start else 0.0
    moments = _moments(states, passing, assumptions["training_memory_loss"], first_pass)
    fullest = _fullest(moments)
    reserve = _reserve(model, job, plan, fullest, moments, assumptions)
    return MemoryBreakdown(
        weights=fullest.weights,
        gradients=fullest.gradients,
        optimizer=fullest.optimizer,
        activations=fullest.activations,
        logits=fullest.logits,
        buffers=fullest.copies + fullest.passing,
        reserved=reserve,
        phase=fullest.phase,
    )


def process_bytes(*, plan: Plan, assumptions: Assumptions) -> Number:
    """
    Context and communication buffers: what a process holds outside PyTorch's allocator.

    Parameters
    ----------
    plan : Plan
        Number of GPUs, and whether experts are exchanged.
    assumptions : Assumptions
        Rows `training_memory_context_bytes`, `_nccl_bytes` and `_all_to_all_bytes`.

    Returns
    -------
    number
        [bytes]

    Notes
    -----
    Source: `docs/formulas.md`, "Training memory": contexts of A100 and T4, NCCL buffers by kind of exchange.
    """
    gpus = plan.data_parallel * plan.tensor_parallel * plan.pipeline_parallel * plan.context_parallel
    return (
        assumptions["training_memory_context_bytes"]
        + np.greater(gpus, 1) * assumptions["training_memory_nccl_bytes"]
        + np.greater(plan.expert_parallel, 1) * assumptions["training_memory_all_to_all_bytes"]
    )


def _reserve(
    model: Model, job: TrainingJob, plan: Plan, fullest: _Moment, moments: list[_Moment], assumptions: Assumptions
) -> Number:
    """
    Context, communication, and what the allocator keeps beyond the tensors of the fullest moment.

    It keeps a share of the most that comes and goes within a step, whenever that was, and a small share of what stands.
    """
    kernel = "eager" if job.attention == "eager" or model.is_moe else "fused"
    # Moments of the two passes share their standing buffers: the largest of what passes is enough.
    dynamic: Number = 0.0
    largest: dict[int, tuple[Number, Number]] = {}
    for moment in moments:
        _, seen = largest.get(id(moment.copies), (0.0, 0.0))
        largest[id(moment.copies)] = moment.copies, np.maximum(seen, moment.dynamic)
    for copies, passing in largest.values():
        dynamic = np.maximum(dynamic, copies + passing)
    allocator = (
        assumptions[f"training_memory_allocator_{kernel}"] * dynamic
        + assumptions["training_memory_allocator_states"] * fullest.standing
    )
    return allocator + process_bytes(plan=plan, assumptions=assumptions)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Passing:
    """What comes and goes within a step. [bytes]"""

    stored_last: Number  # kept activations of the last stage: one micro-batch
    stored_first: Number  # of the first stage: all micro-batches in flight
    layer: Number  # one layer recomputed for its backward pass
    kept_layer: Number  # one layer of those stored
    turn: Number  # live besides in the backward pass of the last layer
    inside: Number  # live besides in the backward pass of any layer
    logits_backward: Number
    logits_forward: Number
    logits_held: Number
    recomputes: Number  # 1 where whole layers are recomputed
    entry: Number  # gradient that reaches the embedding


def _passing(model: Model, job: TrainingJob, plan: Plan, assumptions: Assumptions) -> _Passing:
    layer = layer_bytes(
        model=model,
        job=job,
        expert_imbalance=assumptions["training_memory_expert_imbalance"],
    )
    tokens = plan.micro_batch * job.sequence_length / plan.context_parallel
    tensor = plan.tensor_parallel
    # Without sequence parallelism every tensor-parallel rank keeps norms, residuals and MLP output whole.
    outer = tensor if job.sequence_parallel else 1.0
    whole = np.equal(plan.recompute, RECOMPUTE.index("full"))
    selective = np.equal(plan.recompute, RECOMPUTE.index("selective"))
    scores_split = tensor if job.attention == "eager" else 1.0
    keys = job.sequence_length
    scores = tokens * keys * layer.scores / scores_split
    linear = tokens * _split(layer, layer.mlp, outer, tensor, job)
    largest = tokens * _split(layer, layer.mlp_largest, outer, tensor, job)
    entry = tokens * layer.entry / outer
    per_layer = np.where(whole, 0.0 if job.offload_activations else entry, linear + np.where(selective, 0.0, scores))
    per_stage = np.ceil(model.layers / plan.pipeline_parallel)
    in_flight = _in_flight(job, plan)
    # With recompute the embedding's output is made to need a gradient, so that the first norm keeps its input too.
    ends = tokens * (layer.norm_final - np.where(whole, 0.0, layer.norm_frozen)) / outer
    stored = per_layer * per_stage
    recomputed = np.where(whole, largest + scores, np.where(selective, scores, 0.0))
    scores_backward = tokens * keys * layer.scores_backward / scores_split
    mlp_backward = tokens * layer.mlp_backward / tensor
    norm_backward = tokens * layer.norm_backward / outer
    backward, forward, held = logits_bytes(model=model, job=job)
    logits_split = outer if job.fused_loss else tensor
    # While scores are differentiated the MLP of that layer is done: the two peaks do not meet.
    over_mlp = scores_backward - np.where(whole, tokens * layer.mlp_largest / tensor, 0.0)
    inside = np.maximum(mlp_backward, over_mlp)
    factor = assumptions["training_memory_activations"]
    return _Passing(
        stored_last=factor * (stored + ends),
        stored_first=factor * (stored * in_flight + ends),
        layer=factor * recomputed,
        kept_layer=factor * np.where(whole, 0.0, per_layer),
        turn=factor * np.where(whole, inside, np.maximum(norm_backward, inside)),
        inside=factor * inside,
        logits_backward=tokens * backward / logits_split,
        logits_forward=tokens * forward / logits_split,
        logits_held=np.where(np.equal(plan.pipeline_parallel, 1), tokens * held / logits_split, 0.0),
        recomputes=np.where(whole, 1.0, 0.0),
        entry=factor * entry,
    )


def _split(layer: LayerBytes, mlp: Number, outer: Number, tensor: Number, job: TrainingJob) -> Number:
    """One layer's kept bytes per token after tensor parallelism."""
    masks = 2 * layer.entry / job.recipe.activation_bytes if job.dropout else 0.0  # one byte a value, twice a layer
    return (layer.norms + masks) / outer + (layer.attention + mlp + layer.adapters) / tensor


def _in_flight(job: TrainingJob, plan: Plan) -> Number:
    """Micro-batches whose activations the first stage holds at once, under one-forward-one-backward scheduling."""
    stages = plan.pipeline_parallel
    micro_batches = np.maximum(1.0, job.global_batch / (plan.data_parallel * plan.micro_batch))
    interleaving = np.where(
        np.greater(plan.virtual_pipeline, 1) & np.greater(stages, 1),
        (stages - 1) / (stages * plan.virtual_pipeline),
        0.0,
    )
    in_flight: Number = np.minimum(stages, micro_batches) * (1 + interleaving)
    return in_flight


@dataclass(frozen=True, kw_only=True, slots=True)
class _Moment:
    """
    What is alive at one moment. [bytes]

    What stands follows plan and machine, what passes follows band and plan: kept apart so that arrays stay small.
    """

    phase: Number
    weights: Number
    gradients: Number
    optimizer: Number
    copies: Number  # buffers that stand
    activations: Number
    logits: Number
    passing: Number  # buffers that pass

    @property
    def standing(self) -> Number:
        """What the allocator holds for the whole step, buffers left out. [bytes]"""
        return self.weights + self.gradients + self.optimizer

    @property
    def dynamic(self) -> Number:
        """What comes and goes, standing buffers left out. [bytes]"""
        return self.activations + self.logits + self.passing

    @property
    def total(self) -> Number:
        """All of it. [bytes]"""
        return (self.standing + self.copies) + self.dynamic


MOMENT_PARTS = ("phase", "weights", "gradients", "optimizer", "copies", "activations", "logits", "passing")


def _moments(states: States, passing: _Passing, loss: Number, first_pass: Number) -> list[_Moment]:
    """Candidates for the fullest moment; the last stage's loss stands beside states as large as the first's."""
    forward, backward, step = (float(PHASES.index(name)) for name in ("forward", "backward", "step"))
    growing = 1 - states.keeps_gradients
    standing = states.gradients * states.keeps_gradients
    shared = states.copies + states.gathered
    casts = np.where(np.equal(passing.recomputes, 1), 0.0, states.casts)
    recast = np.where(np.equal(passing.recomputes, 1), states.casts_layer, 0.0)
    none = np.float64(0.0)

    def moment(
        phase: float,
        *,
        gradients: Number = standing,
        activations: Number = none,
        logits: Number = none,
        copies: Number = shared,
        buffers: Number,
        optimizer: Number = states.optimizer,
    ) -> _Moment:
        return _Moment(
            phase=phase, weights=states.weights, gradients=gradients, optimizer=optimizer, copies=copies,
            activations=activations, logits=logits, passing=buffers + states.bucket,
        )  # fmt: skip

    turn = moment(
        backward,
        activations=passing.stored_last,
        logits=loss * passing.logits_backward,
        buffers=casts + states.casts_head,
    )
    # Autocast holds 16-bit copies of all weights until the forward pass is left.
    forward_end = moment(
        forward,
        activations=passing.stored_last,
        logits=loss * passing.logits_forward,
        buffers=states.casts + states.casts_head,
    )
    last_layer = moment(
        backward,
        gradients=standing + states.gradients_head * growing,
        activations=passing.stored_first + passing.layer + passing.turn,
        logits=passing.logits_held,
        buffers=casts + recast,
    )
    first_layer = moment(
        backward,
        gradients=standing + states.gradients_bottom * growing,
        activations=passing.kept_layer + passing.layer + passing.inside + passing.entry,
        logits=passing.logits_held,
        buffers=states.casts_layer,
    )
    embedding = moment(
        backward,
        gradients=states.gradients,
        activations=passing.entry,
        logits=passing.logits_held,
        buffers=states.gradients_tied,
    )
    stepping = moment(step, gradients=states.gradients, copies=states.copies + states.step, buffers=none)
    starting = moment(
        forward,
        gradients=none,
        optimizer=none,
        activations=first_pass * (passing.stored_last + passing.layer),
        logits=first_pass * passing.logits_forward,
        copies=states.start,
        buffers=none,
    )
    return [turn, forward_end, last_layer, first_layer, embedding, stepping, starting]


def _fullest(moments: list[_Moment]) -> _Moment:
    """The moment with the largest sum, place by place."""
    best, total = moments[0], moments[0].total
    for candidate in moments[1:]:
        other = candidate.total
        fuller = np.greater(other, total)
        if not np.any(fuller):
            continue
        if np.all(fuller):
            best, total = candidate, other
            continue
        total = np.where(fuller, other, total)
        best = _Moment(
            **{part: _choose(fuller, getattr(candidate, part), getattr(best, part)) for part in MOMENT_PARTS}
        )
    return best


def _choose(fuller: Number, new: Number, old: Number) -> Number:
    return old if new is old else np.where(fuller, new, old)
