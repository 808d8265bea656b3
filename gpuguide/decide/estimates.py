"""
What a job needs and how long it takes on every machine shape: memory and speed of the best plan, money not yet asked.

Three workloads, one form of answer, so that cost and ranking need not know which was asked. A job may differ from
machine to machine, so that many questions are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.fit import Fit, Space, best_plans, flat, sizes_of, spread, typical
from gpuguide.decide.roof import serving_roof, training_roof
from gpuguide.decide.search import Index, Pairs, serving_pairs, training_pairs
from gpuguide.estimate.derived import memory_with_doubt, time_doubt
from gpuguide.estimate.results import MemoryBreakdown, ServingSpeed, TrainingSpeed
from gpuguide.estimate.serving import serving_speed
from gpuguide.estimate.serving_memory import kv_room_bytes, serving_fits_limit, serving_memory
from gpuguide.estimate.training import training_speed
from gpuguide.estimate.training_memory import training_memory
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import MediaJob, ServingJob, TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.spec.scenario import Question, Scenario
from gpuguide.units import HOUR, TYPICAL, Number

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
    single: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)  # (shape,), typical
    meets_targets: NDArray[np.bool_]  # latency targets of the scenario, typical estimate


def machines_of(job: TrainingJob | ServingJob | MediaJob, shapes: Nodes) -> tuple[Nodes, Index, NDArray[np.bool_]]:
    """Sizes of the shapes, the place of each shape's size, and whether its GPU has the job's precision."""
    if isinstance(job, ServingJob):
        # Engines fall back to wider arithmetic for weights in a format the card cannot multiply, so none is ruled out.
        large = np.asarray(job.engine.is_large(shapes.memory_bytes, shapes.architecture), dtype=np.float64)
        sized = sizes_of(shapes, np.broadcast_to(large, shapes.gpus.shape))
        return *sized, np.ones(len(shapes), dtype=np.bool_)
    if isinstance(job, MediaJob):
        able = np.isfinite(shapes.flops["bf16"]) | np.isfinite(shapes.flops["fp16"])
    else:
        able = np.isfinite(shapes.flops[job.recipe.compute_precision])
    return *sizes_of(shapes), able


def legal_plans(model: Model, job: TrainingJob | ServingJob, scenario: Scenario, sizes: Nodes) -> Pairs:
    """Every legal plan of a job of a language model on every size."""
    search = serving_pairs if isinstance(job, ServingJob) else training_pairs
    return search(model, job, scenario, sizes)  # type: ignore[arg-type]


def estimate_training(question: Question, model: Model, job: TrainingJob) -> Estimate:
    """Memory and step time of a training job."""
    found, speed = training_on(_space(question, model, job), question, model, lambda nodes: job)
    entries = len(found.fit.shape)
    parts: tuple[str, ...] = ("compute_s", "memory_bound_s", "tensor_parallel_s", "pipeline_bubble_s")
    parts += ("data_parallel_s", "expert_parallel_s", "offload_s")
    single = {name: typical(getattr(speed, name), entries) for name in (*parts, "bound")}
    return replace(found, single=single | training_roof(job, found.fit, speed))


def training_on(
    space: Space, question: Question, model: Model, job_of: Callable[[Nodes], TrainingJob]
) -> tuple[Estimate, TrainingSpeed]:
    """The best plan of every shape, and its speed; `job_of` gives the job of some machines."""

    def memory_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> MemoryBreakdown:
        memory = training_memory(model=model, job=job_of(nodes), plan=plan, nodes=nodes, assumptions=assumptions)
        return memory_with_doubt(memory, model=model, assumptions=assumptions)

    def speed_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> TrainingSpeed:
        return training_speed(model=model, job=job_of(nodes), plan=plan, nodes=nodes, assumptions=assumptions)

    def seconds_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Number:
        return speed_of(plan, nodes, assumptions).step_s * SIMPLER_IS_WORTH ** kinds_of_parallelism(plan)

    fit = best_plans(
        space,
        assumptions=question.assumptions,
        usable_bytes=space.shapes.memory_bytes,
        headroom=question.scenario.headroom,
        memory_of=memory_of,
        seconds_of=seconds_of,
    )
    speed = speed_of(fit.plan, fit.nodes, question.assumptions)
    doubt = time_doubt(model=model, assumptions=question.assumptions)
    tokens_per_s = flat(speed.tokens_per_s) / doubt
    found = Estimate(
        fit=fit,
        able=space.able,
        work_s=job_of(fit.nodes).train_tokens / tokens_per_s,
        banded={
            "tokens_per_s": tokens_per_s,
            "step_s": flat(speed.step_s) * doubt,
            "mfu": spread(speed.mfu, len(fit.shape)) / doubt,
        },
        meets_targets=np.ones(len(fit.shape), dtype=np.bool_),
    )
    return found, speed


def estimate_serving(question: Question, model: Model, job: ServingJob) -> Estimate:
    """Memory, latency and throughput of serving a model."""
    found, speed = serving_on(_space(question, model, job), question, model, lambda nodes: job)
    names = ("running", "replicas", "prefill_tokens_per_s", "bound")
    single = {name: typical(getattr(speed, name), len(found.fit.shape)) for name in names}
    rates = found.banded["tokens_per_s"][TYPICAL]
    return replace(found, single=single | serving_roof(model, job, found.fit, speed, rates))


def serving_on(
    space: Space, question: Question, model: Model, job_of: Callable[[Nodes], ServingJob]
) -> tuple[Estimate, ServingSpeed]:
    """As `training_on`; a plan that misses the latency asked for comes after every plan that meets it."""

    def memory_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> MemoryBreakdown:
        memory = serving_memory(model=model, job=job_of(nodes), plan=plan, nodes=nodes, assumptions=assumptions)
        return memory_with_doubt(memory, model=model, assumptions=assumptions)

    def speed_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> ServingSpeed:
        job = job_of(nodes)
        room = kv_room_bytes(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
        return serving_speed(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions, kv_room_bytes=room)

    def seconds_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Number:
        speed = speed_of(plan, nodes, assumptions)
        meets = _meets(job_of(nodes), ttft_s=speed.ttft_s, tpot_s=speed.tpot_s, tokens_per_s=speed.tokens_per_s)
        return np.where(meets, 1 / np.maximum(speed.tokens_per_s, 1e-9), 1e6 * (1 + speed.tpot_s))

    shapes, assumptions = space.shapes, question.assumptions
    limit = serving_fits_limit(job=job_of(shapes), nodes=shapes, assumptions=assumptions)
    fit = best_plans(
        space,
        assumptions=assumptions,
        usable_bytes=np.broadcast_to(limit, shapes.memory_bytes.shape),
        headroom=0.0,  # the engine's memory setting leaves it already
        memory_of=memory_of,
        seconds_of=seconds_of,
    )
    speed = speed_of(fit.plan, fit.nodes, assumptions)
    doubt = time_doubt(model=model, assumptions=assumptions)
    tokens_per_s = flat(speed.tokens_per_s) / doubt
    entries = len(fit.shape)
    waits = {name: spread(getattr(speed, name), entries) * doubt for name in ("ttft_s", "tpot_s", "queue_s")}
    job = job_of(fit.nodes)
    found = Estimate(
        fit=fit,
        able=space.able,
        work_s=np.full(tokens_per_s.shape, job.hours_per_month * HOUR),
        banded={"tokens_per_s": tokens_per_s} | waits,
        meets_targets=_meets(
            job,
            ttft_s=waits["ttft_s"][TYPICAL],
            tpot_s=waits["tpot_s"][TYPICAL],
            tokens_per_s=tokens_per_s[TYPICAL],
        ),
    )
    return found, speed


def _space(question: Question, model: Model, job: TrainingJob | ServingJob) -> Space:
    sizes, size_of_shape, able = machines_of(job, question.shapes)
    pairs = legal_plans(model, job, question.scenario, sizes)
    return Space(pairs=pairs, sizes=sizes, size_of_shape=size_of_shape, shapes=question.shapes, able=able)


def _meets(job: ServingJob, *, ttft_s: Number, tpot_s: Number, tokens_per_s: Number) -> NDArray[np.bool_]:
    """Whether latencies are within the limits, and the rate keeps up with what arriving requests ask for."""
    asked_per_s = KEEPS_UP * (job.requests_per_s or 0.0) * job.output_tokens
    in_time = np.less_equal(tpot_s, job.max_tpot_s or np.inf) & np.less_equal(ttft_s, job.max_ttft_s or np.inf)
    meets: NDArray[np.bool_] = in_time & np.greater_equal(tokens_per_s, asked_per_s)
    return meets


def kinds_of_parallelism(plan: Plan) -> Number:
    """How many ways of splitting the model itself a plan combines. [-]"""
    degrees = (plan.tensor_parallel, plan.pipeline_parallel, plan.context_parallel, plan.expert_parallel)
    return sum((np.greater(degree, 1).astype(np.float64) for degree in degrees), start=np.zeros(1))
