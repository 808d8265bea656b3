"""Does it fit, and with which plan: the fastest plan that fits each machine shape, or the one that misses by least."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.search import Index, Pairs, ranges
from gpuguide.estimate.results import MemoryBreakdown
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.plan import Plan
from gpuguide.units import BANDS, HIGH, TYPICAL, Number

FITS, TIGHT, NO = "fits", "tight", "no"
VERDICTS = np.array([FITS, TIGHT, NO], dtype=object)

PIECE = 6000
"""Pairs estimated or judged at a time: of more, arrays leave the processor's cache and take up to twice as long. [-]"""

MemoryOf = Callable[[Plan, Nodes, Assumptions], MemoryBreakdown]
SecondsOf = Callable[[Plan, Nodes, Assumptions], Number]
"""What to minimise over plans that fit: seconds per step or per token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """What is searched: legal plans on sizes, and the machine shapes of each size."""

    pairs: Pairs  # `pairs.shape` are places in `sizes`
    sizes: Nodes
    size_of_shape: Index  # (shape,): from `sizes_of`
    shapes: Nodes
    able: NDArray[np.bool_]  # (shape,): the GPU has the job's precision; the others get no plan


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
        missing: NDArray[np.float64] = np.maximum(0.0, flat(self.memory.total)[TYPICAL] - self.usable_bytes)
        return missing

    def places(self, shapes: int) -> Index:
        """For every shape its place among the fitted ones; -1 where no plan is legal."""
        place = np.full(shapes, -1, dtype=np.intp)
        place[self.shape] = np.arange(len(self.shape))
        return place


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


def sizes_of(shapes: Nodes, *more: NDArray[np.float64]) -> tuple[Nodes, Index]:
    """
    The distinct machine sizes among shapes, and the place of each shape's size.

    Which plans are legal, and how much memory they need, depends on how many GPUs there are and how they are joined,
    hardly on which: both are asked once per size instead of once per shape. What else memory depends on is given as
    `more`, one value per shape.
    """
    keys = np.stack([shapes.gpus_per_node, shapes.nodes, shapes.ring.domain_gpus, *more])
    _, first, back = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return shapes.take(first), back.ravel()


def best_plans(
    space: Space,
    *,
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
    space : Space
        Plans and machines.
    usable_bytes : array, shape (shapes,)
        Memory of one GPU that the job may take. [bytes]
    headroom : float
        Share of it to leave free.
    memory_of, seconds_of : callable
        Estimates over flat pairs; the objective is asked with typical values only, and only where the plan fits best.
    """
    sizes, size_of_shape, shapes = space.sizes, space.size_of_shape, space.shapes
    pairs, family = _by_size_and_family(space.pairs)
    total = np.empty((len(BANDS), len(pairs)))
    for piece in _pieces(len(pairs)):
        memory = memory_of(pairs.plan.take(piece), sizes.take(pairs.shape[piece]), assumptions)
        total[:, piece] = flat(memory.total)
    # Shapes of one size and one memory share their verdicts, so these are settled per group of such shapes.
    planned = np.flatnonzero(np.isin(size_of_shape, pairs.shape) & space.able)
    group_keys = np.stack([size_of_shape[planned].astype(np.float64), usable_bytes[planned]])
    groups, group_of_planned = np.unique(group_keys, axis=1, return_inverse=True)
    group_of_planned = group_of_planned.ravel()
    of_size = np.searchsorted(pairs.shape, np.arange(len(sizes) + 1))
    size_of_group = groups[0].astype(np.intp)
    start, stop = of_size[size_of_group], of_size[size_of_group + 1]
    settled = [
        _worth_timing(pairs, family, total, start[some], stop[some], groups[1, some], headroom)
        for some in _pieces_of(stop - start)
    ]
    entry = np.concatenate([entry for entry, _ in settled] or [np.array([], dtype=np.intp)])
    of_group = np.cumsum(np.concatenate([[0], *[count for _, count in settled]]))
    # One entry per shape and plan that is worth timing.
    place, owner = ranges(of_group[group_of_planned], of_group[group_of_planned + 1])
    candidate = entry[place]
    chosen = np.full(len(planned), -1, dtype=np.intp)
    best_s, runner_up_s = np.full(len(planned), np.nan), np.full(len(planned), np.nan)
    if len(candidate):
        typical = assumptions.typical()
        seconds = np.empty(len(candidate))
        for piece in _pieces(len(candidate)):
            nodes = shapes.take(planned[owner[piece]])
            seconds[piece] = np.asarray(seconds_of(pairs.plan.take(candidate[piece]), nodes, typical)).reshape(-1)
        has, first, best_s[:] = _least_of_each(seconds, owner, len(planned))
        chosen[has] = candidate[first]
        seconds[first] = np.inf
        _, _, runner_up_s[:] = _least_of_each(seconds, owner, len(planned))
        runner_up_s[np.isinf(runner_up_s)] = np.nan
    # Where nothing fits: the plan that needs the least.
    least = np.full(len(sizes), -1, dtype=np.intp)
    has, first, _ = _least_of_each(total[TYPICAL], pairs.shape, len(sizes))
    least[has] = first
    chosen = np.where(chosen >= 0, chosen, least[size_of_shape[planned]])
    plan, nodes = pairs.plan.take(chosen), shapes.take(planned)
    memory = memory_of(plan, nodes, assumptions)
    return Fit(
        shape=planned,
        plan=plan,
        nodes=nodes,
        memory=memory,
        usable_bytes=usable_bytes[planned],
        verdict=verdict_of(total_bytes=flat(memory.total), usable_bytes=usable_bytes[planned], headroom=headroom),
        plans_tried=(of_size[1:] - of_size[:-1])[size_of_shape[planned]],
        runner_up_s=runner_up_s,
        best_s=best_s,
    )


def _worth_timing(
    pairs: Pairs,
    family: Index,
    total_bytes: NDArray[np.float64],
    start: Index,
    stop: Index,
    usable_bytes: NDArray[np.float64],
    headroom: float,
) -> tuple[Index, Index]:
    """
    Pairs from each start to its stop among which the fastest is that fits best, and how many of each.

    Of plans alike in all but micro-batch the two largest are enough, for smaller ones can only be slower.
    """
    entry, group = ranges(start, stop)
    verdict = verdict_of(total_bytes=total_bytes[:, entry], usable_bytes=usable_bytes[group], headroom=headroom)
    best = np.minimum.reduceat(verdict, np.flatnonzero(np.r_[True, group[1:] != group[:-1]]))
    good = (verdict == best[group]) & (verdict < 2)
    if pairs.keeps_more is not None:
        # Recompute only costs time: where the same plan fits without, it is not worth timing.
        more = pairs.keeps_more[entry]
        good &= ~((more >= 0) & good[np.where(more >= 0, np.arange(len(entry)) - (entry - more), 0)])
    kept = np.flatnonzero(good)
    kept = kept[_first_two(np.stack([group[kept], family[entry[kept]]]))]
    return entry[kept], np.bincount(group[kept], minlength=len(start))


def _by_size_and_family(pairs: Pairs) -> tuple[Pairs, Index]:
    """Pairs sorted by size, then by plans alike in all but micro-batch, largest first, and the family of each."""
    if pairs.family is not None:
        return pairs, pairs.family
    names = [field.name for field in fields(Plan) if field.name not in ("micro_batch", "data_parallel")]
    columns = [np.broadcast_to(getattr(pairs.plan, name), (len(pairs),)) for name in names]
    varying = [column for column in columns if len(pairs) and np.ptp(column) > 0]
    order = np.lexsort((-np.broadcast_to(pairs.plan.micro_batch, (len(pairs),)), *varying, pairs.shape))
    keys = np.stack([pairs.shape, *varying])[:, order]
    changed = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
    return Pairs(pairs.plan.take(order), pairs.shape[order]), np.r_[0, np.cumsum(changed)][: len(pairs)]


def _pieces(count: int) -> Iterator[slice]:
    """Slices of at most PIECE places that together hold all."""
    return (slice(start, min(start + PIECE, count)) for start in range(0, count, PIECE))


def _pieces_of(lengths: Index) -> list[Index]:
    """Places of neighbouring lengths that add up to about PIECE."""
    pieces = np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(np.cumsum(lengths) // PIECE)) + 1)
    return [piece for piece in pieces if len(piece)]


def _first_two(keys: NDArray[np.intp]) -> Index:
    """Places of the first two entries of every run of equal keys: smaller micro-batches can only be slower."""
    count = keys.shape[1]
    changed = np.r_[True, np.any(keys[:, 1:] != keys[:, :-1], axis=0)][:count]
    starts = np.flatnonzero(changed)
    place = np.arange(count) - np.repeat(starts, np.diff(np.r_[starts, count]))
    return np.flatnonzero(place < 2)


def _least_of_each(values: NDArray[np.float64], owner: Index, owners: int) -> tuple[Index, Index, NDArray[np.float64]]:
    """Owners that have a value, the place of the least of each (the first of equals), and the least of every owner."""
    least = np.full(owners, np.nan)
    if not len(values):
        return np.array([], dtype=np.intp), np.array([], dtype=np.intp), least
    values = np.where(np.isnan(values), np.inf, values)  # what is not known comes last
    starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    has = owner[starts]
    least[has] = np.minimum.reduceat(values, starts)
    places = np.flatnonzero(values == least[owner])
    first = places[np.flatnonzero(np.r_[True, owner[places[1:]] != owner[places[:-1]]])]
    return has, first, least


def flat(value: Number) -> NDArray[np.float64]:
    """A (band, 1, entries) or (band, entries) array as (band, entries)."""
    array = np.asarray(value, dtype=np.float64)
    return array.reshape(array.shape[0], -1)


def spread(value: Number, entries: int) -> NDArray[np.float64]:
    """A result as (band, entries), whatever axes of it were left out."""
    array = np.asarray(value, dtype=np.float64)
    return np.broadcast_to(flat(array) if array.ndim > 1 else array, (len(BANDS), entries))


def typical(value: Any, entries: int) -> NDArray[Any]:
    """The typical numbers or labels of a result as (entries,), whatever axes of it were left out."""
    array = np.asarray(value)
    if array.ndim > 1:
        array = array.reshape(array.shape[0], -1)[min(TYPICAL, array.shape[0] - 1)]
    return np.broadcast_to(array, (entries,))
