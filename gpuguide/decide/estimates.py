"""
What a job needs and how long it takes on every machine shape: memory and speed of the best plan, money not yet asked.

Three workloads (`training`, `serving`, `media`), one form of answer, so that cost and ranking need not know which was
asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.fit import Fit, Space, sizes_of
from gpuguide.decide.search import Index, Pairs, serving_pairs, training_pairs
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import MediaJob, ServingJob, TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.scenario import Question, Scenario

Floats = NDArray[np.float64]


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


def space_of(question: Question, model: Model, job: TrainingJob | ServingJob) -> Space:
    """Legal plans of a job of a language model, and the machines they are tried on."""
    sizes, size_of_shape, able = machines_of(job, question.shapes)
    pairs = legal_plans(model, job, question.scenario, sizes)
    return Space(pairs=pairs, sizes=sizes, size_of_shape=size_of_shape, shapes=question.shapes, able=able)
