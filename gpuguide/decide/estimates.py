"""
What a job needs and how long it takes on every machine shape: memory and speed of the best plan, money not yet asked.

Three workloads, one form of answer, so that cost and ranking need not know which was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.fit import Fit, best_plans, flat, sizes_of
from gpuguide.decide.search import serving_pairs, training_pairs
from gpuguide.estimate.derived import memory_with_doubt, time_doubt
from gpuguide.estimate.results import PARTS, MemoryBreakdown, ServingSpeed
from gpuguide.estimate.roofline import decode_bytes, training_bytes
from gpuguide.estimate.serving import serving_speed
from gpuguide.estimate.serving_memory import kv_room_bytes, serving_fits_limit, serving_memory
from gpuguide.estimate.training import training_speed
from gpuguide.estimate.training_memory import training_memory
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob, TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.spec.scenario import Question
from gpuguide.units import HOUR, Number

Floats = NDArray[np.float64]

KEEPS_UP = 0.98
"""Share of the asked rate from which a server counts as keeping up: the estimate closes in on it from below. [-]"""
SIMPLER_IS_WORTH = 1.05
"""A plan that splits the model in one more way must be faster by this factor to be chosen: each needs its own launcher
settings, and their gains lie within the error of the estimates. A choice of ours. [-]"""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Best plan of every shape that has a legal one; arrays are (band, shape) or (shape,), places as in `fit.shape`."""

    fit: Fit
    able: NDArray[np.bool_]  # (all shapes of the question,): the GPU has the job's precision
    work_s: Floats  # useful time of the run; of one month when serving [s]
    banded: Mapping[str, Floats]  # (band, shape), in the band order of `Assumptions`: least time first
    single: Mapping[str, NDArray[np.generic]]  # (shape,), typical
    meets_targets: NDArray[np.bool_]  # latency targets of the scenario, typical estimate


def estimate_training(question: Question, model: Model, job: TrainingJob) -> Estimate:
    """Memory and step time of a training job."""
    shapes = question.shapes
    sizes, size_of_shape = sizes_of(shapes)
    able = np.isfinite(shapes.flops[job.recipe.compute_precision])

    def memory_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> MemoryBreakdown:
        memory = training_memory(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
        return memory_with_doubt(memory, model=model, assumptions=assumptions)

    def seconds_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Number:
        speed = training_speed(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
        return speed.step_s * SIMPLER_IS_WORTH ** kinds_of_parallelism(plan)

    fit = best_plans(
        pairs=training_pairs(model, job, question.scenario, sizes),
        sizes=sizes,
        size_of_shape=size_of_shape,
        shapes=shapes,
        assumptions=question.assumptions,
        usable_bytes=shapes.memory_bytes,
        headroom=question.scenario.headroom,
        able=able,
        memory_of=memory_of,
        seconds_of=seconds_of,
    )
    speed = training_speed(model=model, job=job, plan=fit.plan, nodes=fit.nodes, assumptions=question.assumptions)
    doubt = time_doubt(model=model, assumptions=question.assumptions)
    tokens_per_s = flat(speed.tokens_per_s) / doubt
    parts: tuple[str, ...] = ("compute_s", "memory_bound_s", "tensor_parallel_s", "pipeline_bubble_s")
    parts += ("data_parallel_s", "expert_parallel_s", "offload_s")
    shape = tokens_per_s.shape
    return Estimate(
        fit=fit,
        able=able,
        work_s=job.train_tokens / tokens_per_s,
        banded={
            "tokens_per_s": tokens_per_s,
            "step_s": flat(speed.step_s) * doubt,
            "mfu": _spread(speed.mfu, shape) / doubt,
        },
        single={part: _spread(getattr(speed, part), shape)[1] for part in parts}
        | {"bound": _labels(speed.bound, shape)}
        | _training_roof(job, fit, _spread(speed.mfu, shape)[1], flat(speed.step_s)[1]),
        meets_targets=np.ones(shape[1], dtype=bool),
    )


def estimate_serving(question: Question, model: Model, job: ServingJob) -> Estimate:
    """Memory, latency and throughput of serving a model."""
    shapes = question.shapes
    large = np.asarray(job.engine.is_large(shapes.memory_bytes, shapes.architecture), dtype=np.float64)
    sizes, size_of_shape = sizes_of(shapes, np.broadcast_to(large, shapes.gpus.shape))
    # Engines fall back to wider arithmetic for weights in a format the card cannot multiply, so none is ruled out.
    able = np.ones(len(shapes), dtype=np.bool_)

    def memory_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> MemoryBreakdown:
        memory = serving_memory(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
        return memory_with_doubt(memory, model=model, assumptions=assumptions)

    def speed_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> ServingSpeed:
        room = kv_room_bytes(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
        return serving_speed(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions, kv_room_bytes=room)

    def seconds_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Number:
        speed = speed_of(plan, nodes, assumptions)
        late = (speed.tpot_s > (job.max_tpot_s or np.inf)) | (speed.ttft_s > (job.max_ttft_s or np.inf))
        late |= speed.tokens_per_s < asked_tokens_per_s(job)
        # A plan that misses the latency asked for comes after every plan that meets it; else throughput decides.
        return np.where(late, 1e6 * (1 + speed.tpot_s), 1 / np.maximum(speed.tokens_per_s, 1e-9))

    fit = best_plans(
        pairs=serving_pairs(model, job, question.scenario, sizes),
        sizes=sizes,
        size_of_shape=size_of_shape,
        shapes=shapes,
        assumptions=question.assumptions,
        usable_bytes=serving_fits_limit(job=job, nodes=shapes, assumptions=question.assumptions),
        headroom=0.0,  # the engine's memory setting leaves it already
        able=able,
        memory_of=memory_of,
        seconds_of=seconds_of,
    )
    speed = speed_of(fit.plan, fit.nodes, question.assumptions)
    doubt = time_doubt(model=model, assumptions=question.assumptions)
    tokens_per_s = flat(speed.tokens_per_s) / doubt
    shape = tokens_per_s.shape
    ttft_s, tpot_s, queue_s = (_spread(getattr(speed, name), shape) * doubt for name in ("ttft_s", "tpot_s", "queue_s"))
    meets = (tpot_s[1] <= (job.max_tpot_s or np.inf)) & (ttft_s[1] <= (job.max_ttft_s or np.inf))
    meets &= tokens_per_s[1] >= asked_tokens_per_s(job)
    return Estimate(
        fit=fit,
        able=able,
        work_s=np.full(shape, job.hours_per_month * HOUR),
        banded={"tokens_per_s": tokens_per_s, "ttft_s": ttft_s, "tpot_s": tpot_s, "queue_s": queue_s},
        single={
            "running": _spread(speed.running, shape)[1],
            "replicas": _spread(speed.replicas, shape)[1],
            "prefill_tokens_per_s": _spread(speed.prefill_tokens_per_s, shape)[1],
            "bound": _labels(speed.bound, shape),
        }
        | _serving_roof(model, job, fit, _spread(speed.running, shape)[1], tokens_per_s[1]),
        meets_targets=meets,
    )


def _training_roof(job: TrainingJob, fit: Fit, mfu: Floats, step_s: Floats) -> dict[str, Floats]:
    """Where each shape's best plan sits under its card's roof; typical."""
    precision = job.recipe.compute_precision
    flops = mfu * _peak(fit.nodes, "bf16" if precision in ("bf16", "fp8", "fp4") else precision)
    micro_batches = np.ceil(job.global_batch / (fit.plan.data_parallel * fit.plan.micro_batch))
    moved = training_bytes(memory=_typical_memory(fit), micro_batches=micro_batches)
    return _roof(fit.nodes, precision, flops, flops * step_s / moved)


def _serving_roof(model: Model, job: ServingJob, fit: Fit, running: Floats, tokens_per_s: Floats) -> dict[str, Floats]:
    """The same for decoding: one token for each running request from one reading of weights and cache."""
    split = fit.plan.tensor_parallel * fit.plan.pipeline_parallel
    work = 2.0 * model.params_active
    intensity = work * running / split / decode_bytes(memory=_typical_memory(fit))
    return _roof(fit.nodes, job.weight_format.compute_precision, work * tokens_per_s / fit.nodes.gpus, intensity)


def _roof(nodes: Nodes, precision: str, achieved_flops_per_s: Floats, intensity: Number) -> dict[str, Floats]:
    return {
        "intensity_flop_per_byte": np.asarray(intensity, dtype=np.float64),
        "achieved_flops_per_s": achieved_flops_per_s,
        "peak_flops_per_s": _peak(nodes, precision),
        "memory_bandwidth_bytes_per_s": nodes.memory_bandwidth_bytes_per_s,
    }


def _peak(nodes: Nodes, precision: str) -> Floats:
    """Dense rate of a precision, of 16 bit where the card has none of its own. [FLOP/s]"""
    rate = nodes.flops.get(precision, nodes.flops["bf16"])
    for fallback in ("bf16", "fp16", "fp32"):
        rate = np.where(np.isnan(rate), nodes.flops[fallback], rate)
    return rate


def _typical_memory(fit: Fit) -> MemoryBreakdown:
    """Parts of the best plans, typical, one entry per shape."""
    entries = len(fit.shape)
    return MemoryBreakdown(**{part: _typical_part(getattr(fit.memory, part), entries) for part in PARTS})


def _typical_part(value: Number, entries: int) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim > 1:
        array = array.reshape(array.shape[0], -1)[min(1, array.shape[0] - 1)]
    return np.broadcast_to(array, (entries,))


def asked_tokens_per_s(job: ServingJob) -> float:
    """Output tokens that arriving requests ask for; a server that makes fewer never catches up. [tokens/s]"""
    return KEEPS_UP * (job.requests_per_s or 0.0) * float(np.max(job.output_tokens))


def kinds_of_parallelism(plan: Plan) -> Number:
    """How many ways of splitting the model itself a plan combines. [-]"""
    degrees = (plan.tensor_parallel, plan.pipeline_parallel, plan.context_parallel, plan.expert_parallel)
    return sum((np.greater(degree, 1).astype(np.float64) for degree in degrees), start=np.zeros(1))


def _spread(value: Number, shape: tuple[int, ...]) -> Floats:
    """A result as (band, shape), whatever axes of it were left out."""
    array = np.asarray(value, dtype=np.float64)
    return np.broadcast_to(array.reshape(array.shape[0], -1) if array.ndim > 1 else array, shape)


def _labels(value: NDArray[np.object_], shape: tuple[int, ...]) -> NDArray[np.object_]:
    """Typical labels as (shape,)."""
    array = np.asarray(value, dtype=object)
    if array.ndim > 1:
        array = array.reshape(array.shape[0], -1)[min(1, array.shape[0] - 1)]
    return np.broadcast_to(array, shape[1:])
