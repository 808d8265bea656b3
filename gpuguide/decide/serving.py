"""
Serving a language model: memory, latency and throughput of the best plan on every machine shape.

A job may differ from machine to machine, so that many questions are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.estimates import Estimate, space_of
from gpuguide.decide.fit import Space, best_plans, flat, spread, typical
from gpuguide.decide.roof import serving_roof
from gpuguide.estimate.derived import memory_with_doubt, time_doubt
from gpuguide.estimate.results import MemoryBreakdown, ServingSpeed
from gpuguide.estimate.serving import serving_speed
from gpuguide.estimate.serving_memory import kv_room_bytes, serving_fits_limit, serving_memory
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.spec.scenario import Question
from gpuguide.units import HOUR, TYPICAL, Number

KEEPS_UP = 0.98
"""Share of the asked rate from which a server counts as keeping up: the estimate closes in on it from below. [-]"""


def estimate_serving(question: Question, model: Model, job: ServingJob) -> Estimate:
    """Memory, latency and throughput of serving a model."""
    found, speed = serving_on(space_of(question, model, job), question, model, lambda nodes: job)
    names = ("running", "replicas", "prefill_tokens_per_s", "bound")
    single = {name: typical(getattr(speed, name), len(found.fit.shape)) for name in names}
    rates = found.banded["tokens_per_s"][TYPICAL]
    return replace(found, single=single | serving_roof(model, job, found.fit, speed, rates))


def serving_on(
    space: Space, question: Question, model: Model, job_of: Callable[[Nodes], ServingJob]
) -> tuple[Estimate, ServingSpeed]:
    """
    The best plan of every shape, and its speed; `job_of` gives the job of some machines.

    A plan that misses the latency asked for comes after every plan that meets it.
    """

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


def _meets(job: ServingJob, *, ttft_s: Number, tpot_s: Number, tokens_per_s: Number) -> NDArray[np.bool_]:
    """Whether latencies are within the limits, and the rate keeps up with what arriving requests ask for."""
    asked_per_s = KEEPS_UP * (job.requests_per_s or 0.0) * job.output_tokens
    in_time = np.less_equal(tpot_s, job.max_tpot_s or np.inf) & np.less_equal(ttft_s, job.max_ttft_s or np.inf)
    meets: NDArray[np.bool_] = in_time & np.greater_equal(tokens_per_s, asked_per_s)
    return meets
