"""
Training and fine-tuning a language model: memory and step time of the best plan on every machine shape.

A job may differ from machine to machine, so that many questions are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpuguide.decide.estimates import Estimate, space_of
from gpuguide.decide.fit import Space, best_plans, flat, spread, typical
from gpuguide.decide.roof import training_roof
from gpuguide.estimate.derived import memory_with_doubt, time_doubt
from gpuguide.estimate.results import MemoryBreakdown, TrainingSpeed
from gpuguide.estimate.training import training_speed
from gpuguide.estimate.training_memory import training_memory
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.spec.scenario import Question
from gpuguide.units import Number

SIMPLER_IS_WORTH = 1.05
"""A plan that splits the model in one more way must be faster by this factor to be chosen: each needs its own launcher
settings, and their gains lie within the error of the estimates. A choice of ours. [-]"""


def estimate_training(question: Question, model: Model, job: TrainingJob) -> Estimate:
    """Memory and step time of a training job."""
    found, speed = training_on(space_of(question, model, job), question, model, lambda nodes: job)
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


def kinds_of_parallelism(plan: Plan) -> Number:
    """How many ways of splitting the model itself a plan combines. [-]"""
    degrees = (plan.tensor_parallel, plan.pipeline_parallel, plan.context_parallel, plan.expert_parallel)
    return sum((np.greater(degree, 1).astype(np.float64) for degree in degrees), start=np.zeros(1))
