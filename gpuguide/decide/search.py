"""
Which plans are legal for a job, and on which machine shape: the list that memory and speed are asked about.

Plans and shapes meet as flat pairs: one entry for each plan that is legal on a shape. A 1-GPU shape has a handful of
plans, a cluster has hundreds; a dense grid would spend nearly all its time on combinations that cannot exist.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gpuguide.errors import InvalidScenario
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob, TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE, Plan
from gpuguide.spec.scenario import Scenario

Index = NDArray[np.intp]

TENSOR_DEGREES = (1, 2, 4, 8, 16)
PIPELINE_DEGREES = (1, 2, 4, 8, 16)
CONTEXT_DEGREES = (1, 2, 4, 8, 16)
EXPERT_DEGREES = (1, 2, 4, 8, 16, 32, 64)
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
LONG_CONTEXT = 16_384
"""Sequences from which splitting one of them over GPUs is worth a place in the search. [tokens]"""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Plans on shapes, flat: `plan` has one entry per pair, `shape` is the place of its machine."""

    plan: Plan
    shape: Index

    def take(self, index: Index) -> Pairs:
        """The pairs at the given places."""
        return Pairs(self.plan.take(index), self.shape[index])

    def __len__(self) -> int:
        return len(self.shape)


def training_pairs(model: Model, job: TrainingJob, scenario: Scenario, shapes: Nodes) -> Pairs:
    """
    Every legal way to lay a training job out over every shape.

    Rules: tensor ranks divide heads and stay inside a node; stages divide neither fewer layers than there are stages;
    gradients and weights are not sharded (ZeRO-2, 3) across a pipeline; experts are split over data-parallel ranks;
    adapters are trained without tensor or pipeline parallel unless asked for.

    Raises
    ------
    InvalidScenario
        If the scenario fixes a degree that the model cannot have.
    """
    adapters = job.method in ("lora", "qlora")
    biggest = int(shapes.gpus.max(initial=1))
    in_node = int(shapes.gpus_per_node.max(initial=1))
    sequence = float(np.max(job.sequence_length))
    batch = int(np.max(job.global_batch))
    tensor = _degrees("tensor_parallel", scenario.tensor_parallel, TENSOR_DEGREES, in_node, alone=adapters)
    pipeline = _degrees("pipeline_parallel", scenario.pipeline_parallel, PIPELINE_DEGREES, biggest, alone=adapters)
    context = _degrees(
        "context_parallel",
        scenario.context_parallel,
        CONTEXT_DEGREES,
        biggest,
        alone=adapters or sequence < LONG_CONTEXT,
    )
    expert = _degrees(
        "expert_parallel", scenario.expert_parallel, EXPERT_DEGREES, biggest, alone=adapters or not model.is_moe
    )
    _check_tensor(model, scenario.tensor_parallel)
    if scenario.pipeline_parallel and scenario.pipeline_parallel > model.layers:
        raise InvalidScenario(
            "pipeline_parallel", scenario.pipeline_parallel, f"the model has {model.layers:.0f} layers to split"
        )
    recompute = tuple(range(len(RECOMPUTE))) if scenario.recompute == "auto" else (RECOMPUTE.index(scenario.recompute),)
    offload = tuple(range(len(OFFLOAD))) if scenario.offload == "auto" else (OFFLOAD.index(scenario.offload),)
    zero = (0, 1, 2, 3) if scenario.zero_stage is None else (scenario.zero_stage,)
    micro = (
        tuple(size for size in MICRO_BATCHES if size <= batch)
        if scenario.micro_batch is None
        else (scenario.micro_batch,)
    )
    inside = (0, 1) if float(shapes.nodes.max(initial=1)) > 1 else (0,)
    grid = _grid(tensor, pipeline, context, expert, zero, recompute, offload, micro, inside)
    tp, pp, cp, ep, stage = grid[:5]
    legal = (model.heads % tp == 0) & (pp <= model.layers)
    legal &= (stage <= 1) | (pp == 1) if scenario.zero_stage is None else True
    legal &= (cp == 1) | (sequence / cp >= 1024)
    if model.is_moe:
        legal &= np.asarray(model.experts) % ep == 0
    return _on_shapes(grid[:, legal], scenario, shapes, batch)


def serving_pairs(model: Model, job: ServingJob, scenario: Scenario, shapes: Nodes) -> Pairs:
    """Every legal split of one model replica over every shape; what GPUs remain hold further replicas."""
    biggest = int(shapes.gpus.max(initial=1))
    tensor = _degrees("tensor_parallel", scenario.tensor_parallel, TENSOR_DEGREES, biggest)
    pipeline = _degrees("pipeline_parallel", scenario.pipeline_parallel, PIPELINE_DEGREES, biggest)
    _check_tensor(model, scenario.tensor_parallel)
    expert = _degrees("expert_parallel", scenario.expert_parallel, EXPERT_DEGREES, biggest, alone=not model.is_moe)
    grid = _grid(tensor, pipeline, (1,), expert, (0,), (0,), (0,), (1,), (0,))
    tp, pp, _, ep = grid[:4]
    legal = (model.heads % tp == 0) & (pp <= model.layers) & ((ep == 1) | (ep == tp))
    return _on_shapes(grid[:, legal], scenario, shapes, None)


FIELDS = (
    "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel",
    "zero_stage", "recompute", "offload", "micro_batch", "shard_in_node",
)  # fmt: skip
"""Rows of a grid of plans, in this order."""


def _on_shapes(grid: NDArray[np.float64], scenario: Scenario, shapes: Nodes, batch: int | None) -> Pairs:
    """Pairs of the grid's plans and the shapes on which they are legal; no batch means serving."""
    tp, pp, cp, ep, stage, _, _, size, inside = (row[:, None] for row in grid)
    data = shapes.gpus / (tp * pp * cp)
    legal = (data >= 1) & (data % 1 == 0) & asked_for(scenario, shapes)
    if batch is not None:
        legal &= (tp <= shapes.gpus_per_node) & (data * size <= batch) & (ep <= data * tp) & ((data * tp) % ep == 0)
        # With several replicas a sharded optimizer is never worse than a replicated one, so stage 0 is for one alone.
        if scenario.zero_stage is None:
            legal &= (data > 1) == (stage > 0)
        legal &= (inside == 0) | ((shapes.nodes > 1) & (stage > 0))
    if scenario.data_parallel is not None:
        legal &= data == scenario.data_parallel
    plans, places = np.nonzero(legal)
    picked = {name: values[plans] for name, values in zip(FIELDS, grid, strict=True)}
    return Pairs(Plan(**picked, data_parallel=data[plans, places]), places)


def asked_for(scenario: Scenario, shapes: Nodes) -> NDArray[np.bool_]:
    """Shapes of the size the scenario fixes, all of them where it fixes none."""
    asked = np.ones(len(shapes), dtype=np.bool_)
    if scenario.gpus is not None:
        asked &= shapes.gpus == scenario.gpus
    if scenario.nodes is not None:
        asked &= shapes.nodes == scenario.nodes
    return asked


def _check_tensor(model: Model, tensor_parallel: int | None) -> None:
    if tensor_parallel and model.heads and np.asarray(model.heads) % tensor_parallel:
        raise InvalidScenario(
            "tensor_parallel",
            tensor_parallel,
            f"it must divide the model's {float(np.asarray(model.heads)):.0f} attention heads",
        )


def _degrees(name: str, given: int | None, choices: Sequence[int], most: int, alone: bool = False) -> tuple[int, ...]:
    """The degrees to try: the one given, 1 alone, or all choices that the largest shape has GPUs for."""
    if given is not None:
        if given > most:
            raise InvalidScenario(name, given, f"the largest machine asked for has {most} GPUs")
        return (given,)
    return (1,) if alone else tuple(degree for degree in choices if degree <= most)


@lru_cache(maxsize=64)
def _grid(*axes: tuple[int, ...]) -> NDArray[np.float64]:
    """All combinations, one row per axis."""
    return np.array(list(itertools.product(*axes)), dtype=np.float64).T


def plan_as_dict(plan: Plan) -> dict[str, object]:
    """A scalar plan in plain words and numbers."""
    values: dict[str, object] = {}
    for field in fields(plan):
        number = float(getattr(plan, field.name))
        values[field.name] = int(number) if number.is_integer() else number
    values["recompute"] = RECOMPUTE[int(plan.recompute)]
    values["offload"] = OFFLOAD[int(plan.offload)]
    values["shard_in_node"] = bool(plan.shard_in_node)
    return values
