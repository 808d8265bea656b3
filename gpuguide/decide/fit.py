"""Does it fit, and with which plan: the fastest plan that fits each machine shape, or the one that misses by least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.search import Index, Pairs
from gpuguide.estimate.results import MemoryBreakdown
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.plan import Plan
from gpuguide.units import HIGH, TYPICAL, Number

FITS, TIGHT, NO = "fits", "tight", "no"
VERDICTS = np.array([FITS, TIGHT, NO], dtype=object)

MemoryOf = Callable[[Plan, Nodes, Assumptions], MemoryBreakdown]
SecondsOf = Callable[[Plan, Nodes, Assumptions], Number]
"""What to minimise over plans that fit: seconds per step or per token."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The chosen plan of every shape that has a legal one; one entry per such shape, in rising order."""

    shape: Index  # places among the question's shapes
    plan: Plan
    nodes: Nodes
    memory: MemoryBreakdown  # (band, 1, shape)
    usable_bytes: NDArray[np.float64]
    verdict: NDArray[np.int_]  # 0 fits, 1 tight, 2 no: places in VERDICTS
    plans_tried: NDArray[np.int_]
    runner_up_s: NDArray[np.float64]  # objective of the second best plan that fits; nan = there is none
    best_s: NDArray[np.float64]

    @property
    def missing_bytes(self) -> NDArray[np.float64]:
        """How much the typical estimate exceeds what is usable; zero where it does not. [bytes]"""
        typical = flat(self.memory.total)[TYPICAL]
        return np.maximum(0.0, typical - self.usable_bytes)


def verdict_of(
    *, total_bytes: NDArray[np.float64], usable_bytes: NDArray[np.float64], headroom: float
) -> NDArray[np.int_]:
    """
    0 fits, 1 tight, 2 no, for totals of shape (band, ...).

    It fits when the high estimate stays within what is usable and the typical one leaves the headroom free; it does
    not when the typical estimate alone exceeds what is usable.
    """
    typical, high = total_bytes[TYPICAL], total_bytes[HIGH]
    fits = (high <= usable_bytes) & (typical <= usable_bytes * (1 - headroom))
    return np.where(fits, 0, np.where(typical <= usable_bytes, 1, 2))


def best_plans(
    *,
    pairs: Pairs,
    shapes: Nodes,
    assumptions: Assumptions,
    usable_bytes: NDArray[np.float64],
    headroom: float,
    memory_of: MemoryOf,
    seconds_of: SecondsOf,
) -> Fit:
    """
    For every shape the fastest plan that fits, else the fastest that is tight, else the one that misses by least.

    Parameters
    ----------
    pairs : Pairs
        Legal plans on shapes.
    usable_bytes : array, shape (shapes,)
        Memory of one GPU that the job may take. [bytes]
    headroom : float
        Share of it to leave free.
    memory_of, seconds_of : callable
        Estimates over flat pairs; the objective is asked with typical values only, and only where the plan fits best.

    Notes
    -----
    Memory depends on how many GPUs there are, hardly on which: it is estimated once for each distinct machine size and
    shared by the shapes of that size.
    """
    sizes = np.stack([shapes.gpus_per_node, shapes.nodes, shapes.ring.domain_gpus])
    _, first, size_of_shape = np.unique(sizes, axis=1, return_index=True, return_inverse=True)
    size_of_shape = size_of_shape.ravel()
    # The plans legal on a shape depend on its size alone, so one shape of each size answers for all of that size.
    asked = np.flatnonzero(np.isin(pairs.shape, first))
    asked = asked[np.argsort(pairs.shape[asked], kind="stable")]
    asked_size = size_of_shape[pairs.shape[asked]]
    start_of_size = np.zeros(len(first), dtype=np.intp)
    start_of_size[asked_size[::-1]] = np.arange(len(asked))[::-1]
    total_of_asked = flat(memory_of(pairs.plan.take(asked), shapes.take(pairs.shape[asked]), assumptions).total)
    by_size = total_of_asked[:, start_of_size[size_of_shape[pairs.shape]] + _rank_within_shape(pairs.shape)]
    verdict = verdict_of(total_bytes=by_size, usable_bytes=usable_bytes[pairs.shape], headroom=headroom)
    places = np.unique(pairs.shape)
    least = np.full(len(shapes), 2, dtype=np.int_)
    np.minimum.at(least, pairs.shape, verdict)
    candidates = np.flatnonzero((verdict == least[pairs.shape]) & (verdict < 2))
    candidates = candidates[_not_dominated(pairs.take(candidates))]
    chosen_pairs = pairs.take(candidates)
    best = np.full(len(shapes), -1, dtype=np.intp)
    best_s, runner_up = np.full(len(shapes), np.nan), np.full(len(shapes), np.nan)
    if len(candidates):
        nodes = shapes.take(chosen_pairs.shape)
        seconds = np.asarray(seconds_of(chosen_pairs.plan, nodes, assumptions.typical())).reshape(-1)
        seconds = np.broadcast_to(seconds, (len(candidates),))
        by_speed = np.lexsort((seconds, chosen_pairs.shape))
        shape_sorted = chosen_pairs.shape[by_speed]
        leading = np.flatnonzero(np.r_[True, shape_sorted[1:] != shape_sorted[:-1]])
        best[shape_sorted[leading]] = candidates[by_speed[leading]]
        best_s[shape_sorted[leading]] = seconds[by_speed[leading]]
        second = leading + 1
        has = (second < len(by_speed)) & (shape_sorted[np.minimum(second, len(by_speed) - 1)] == shape_sorted[leading])
        runner_up[shape_sorted[leading[has]]] = seconds[by_speed[second[has]]]
    # Where nothing fits: the plan that needs the least.
    none = places[best[places] < 0]
    if len(none):
        by_need = np.lexsort((by_size[TYPICAL], pairs.shape))
        shape_sorted = pairs.shape[by_need]
        leading = np.flatnonzero(np.r_[True, shape_sorted[1:] != shape_sorted[:-1]])
        least_need = np.full(len(shapes), -1, dtype=np.intp)
        least_need[shape_sorted[leading]] = by_need[leading]
        best[none] = least_need[none]
    picked = pairs.take(best[places])
    nodes = shapes.take(places)
    memory = memory_of(picked.plan, nodes, assumptions)
    return Fit(
        shape=places,
        plan=picked.plan,
        nodes=nodes,
        memory=memory,
        usable_bytes=usable_bytes[places],
        verdict=verdict_of(total_bytes=flat(memory.total), usable_bytes=usable_bytes[places], headroom=headroom),
        plans_tried=np.bincount(pairs.shape, minlength=len(shapes))[places],
        runner_up_s=runner_up[places],
        best_s=best_s[places],
    )


def _rank_within_shape(shape: Index) -> Index:
    """Place of every pair among the pairs of its shape, in the order of plans."""
    order = np.argsort(shape, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(shape[order]) != 0]) if len(order) else np.array([], dtype=np.intp)
    lengths = np.diff(np.r_[starts, len(order)])
    rank = np.empty(len(shape), dtype=np.intp)
    rank[order] = np.arange(len(shape)) - np.repeat(starts, lengths)
    return rank


def _not_dominated(pairs: Pairs) -> Index:
    """Among plans that differ in micro-batch alone, the two largest: a smaller one can only be slower per token."""
    if len(pairs) == 0:
        return np.array([], dtype=np.intp)
    keys = [
        getattr(pairs.plan, field.name) for field in fields(Plan) if field.name not in ("micro_batch", "data_parallel")
    ]
    keys = [np.broadcast_to(key, (len(pairs),)) for key in keys]
    order = np.lexsort((-np.asarray(pairs.plan.micro_batch), *keys, pairs.shape))
    changes = np.zeros(len(pairs), dtype=bool)
    for key in (*keys, pairs.shape):
        changes[1:] |= key[order][1:] != key[order][:-1]
    changes[0] = True
    starts = np.flatnonzero(changes)
    place = np.arange(len(pairs)) - np.repeat(starts, np.diff(np.r_[starts, len(pairs)]))
    return np.sort(order[place < 2])


def flat(value: Number) -> NDArray[np.float64]:
    """A (band, 1, entries) or (band, entries) array as (band, entries)."""
    array = np.asarray(value, dtype=np.float64)
    return array.reshape(array.shape[0], -1)
