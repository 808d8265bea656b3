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
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE, TRAINING_OFFLOAD, Plan
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
    """
    Plans on shapes, flat: `plan` has one entry per pair, `shape` is the place of its machine.

    A search that knows says more, and then its pairs come in rising order of shape, families together.
    """

    plan: Plan
    shape: Index
    family: Index | None = None  # the same number for plans alike in all but micro-batch, which falls within a family
    keeps_more: Index | None = None  # place of the pair alike in all but that it recomputes less; -1 = there is none

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
    if scenario.offload not in ("auto", *TRAINING_OFFLOAD):
        raise InvalidScenario(
            "offload", scenario.offload, "training moves optimizer states or weights: optimizer or all"
        )
    moved = TRAINING_OFFLOAD if scenario.offload == "auto" else (scenario.offload,)
    offload = tuple(OFFLOAD.index(name) for name in moved)
    zero = (0, 1, 2, 3) if scenario.zero_stage is None else (scenario.zero_stage,)
    micro = (
        tuple(size for size in MICRO_BATCHES if size <= batch)
        if scenario.micro_batch is None
        else (scenario.micro_batch,)
    )
    inside = (0, 1) if float(shapes.nodes.max(initial=1)) > 1 else (0,)
    grid = _grid(inside, offload, zero, expert, context, pipeline, tensor)
    _, _, stage, ep, cp, pp, tp = grid
    legal = (model.heads % tp == 0) & (pp <= model.layers)
    legal &= (stage <= 1) | (pp == 1) if scenario.zero_stage is None else True
    legal &= (cp == 1) | (sequence / cp >= 1024)
    if model.is_moe:
        legal &= np.asarray(model.experts) % ep == 0
    return _on_shapes(grid[:, legal], micro, recompute, scenario, shapes, batch)


def serving_pairs(model: Model, job: ServingJob, scenario: Scenario, shapes: Nodes) -> Pairs:
    """Every legal split of one model replica over every shape; what GPUs remain hold further replicas."""
    biggest = int(shapes.gpus.max(initial=1))
    tensor = _degrees("tensor_parallel", scenario.tensor_parallel, TENSOR_DEGREES, biggest)
    pipeline = _degrees("pipeline_parallel", scenario.pipeline_parallel, PIPELINE_DEGREES, biggest)
    _check_tensor(model, scenario.tensor_parallel)
    expert = _degrees("expert_parallel", scenario.expert_parallel, EXPERT_DEGREES, biggest, alone=not model.is_moe)
    grid = _grid((0,), (0,), (0,), expert, (1,), pipeline, tensor)
    _, _, _, ep, _, pp, tp = grid
    legal = (model.heads % tp == 0) & (pp <= model.layers) & ((ep == 1) | (ep == tp))
    return _on_shapes(grid[:, legal], (1,), (0,), scenario, shapes, None)


FIELDS = (
    "shard_in_node", "offload", "zero_stage", "expert_parallel", "context_parallel", "pipeline_parallel",
    "tensor_parallel",
)  # fmt: skip
"""Rows of a grid of layouts, in this order: of plans equally fast, the first in the grid is kept."""


def _on_shapes(
    grid: NDArray[np.float64],
    micro: Sequence[int],
    recompute: Sequence[int],
    scenario: Scenario,
    shapes: Nodes,
    batch: int | None,
) -> Pairs:
    """
    Pairs of the grid's layouts, with every micro-batch and recompute, and the shapes on which they are legal.

    Which micro-batches are legal does not depend on recompute, so a shape's pairs are equally long runs, one for each
    recompute. No batch means serving.
    """
    inside, _, stage, ep, cp, pp, tp = grid
    data = shapes.gpus[:, None] / (tp * pp * cp)
    legal = (data >= 1) & (data % 1 == 0) & asked_for(scenario, shapes)[:, None]
    if batch is not None:
        legal &= (tp <= shapes.gpus_per_node[:, None]) & (ep <= data * tp) & ((data * tp) % ep == 0)
        # With several replicas a sharded optimizer is never worse than a replicated one, so stage 0 is for one alone.
        if scenario.zero_stage is None:
            legal &= (data > 1) == (stage > 0)
        legal &= (inside == 0) | ((shapes.nodes[:, None] > 1) & (stage > 0))
    if scenario.data_parallel is not None:
        legal &= data == scenario.data_parallel
    sizes = np.sort(np.asarray(micro, dtype=np.float64))[::-1]
    if batch is None:
        laid_out = np.broadcast_to(legal[:, :, None], (*legal.shape, len(sizes)))
    else:
        laid_out = legal[:, :, None] & (data[:, :, None] * sizes <= batch)
    place, layout, size = np.nonzero(laid_out)
    ends = np.searchsorted(place, np.arange(len(shapes) + 1))
    times = len(recompute)
    entry, run = ranges(np.repeat(ends[:-1], times), np.repeat(ends[1:], times))
    place, layout, size, kind = place[entry], layout[entry], size[entry], run % times
    plan = Plan(
        **{name: values[layout] for name, values in zip(FIELDS, grid, strict=True)},
        recompute=np.asarray(recompute, dtype=np.float64)[kind],
        micro_batch=sizes[size],
        data_parallel=data[place, layout],
    )
    before = np.arange(len(entry)) - np.diff(ends)[place]
    return Pairs(plan, place, run * grid.shape[1] + layout, np.where(kind > 0, before, -1))


def ranges(start: Index, stop: Index) -> tuple[Index, Index]:
    """All places from each start to its stop, one after the other, and which range each belongs to."""
    lengths = stop - start
    owner = np.repeat(np.arange(len(start)), lengths)
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths - start, lengths), owner


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
