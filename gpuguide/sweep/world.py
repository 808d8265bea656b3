"""Machines, plans and offers of many points as one long axis, every entry of which knows its point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.fit import Space
from gpuguide.decide.search import Pairs
from gpuguide.spec.hardware import LinkTable, Nodes
from gpuguide.spec.plan import Plan

Index = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class PointNodes(Nodes):
    """Machine shapes of many points, one after the other; `point` says whose each is."""

    point: Index

    @classmethod
    def of(cls, nodes: Nodes, point: Index) -> PointNodes:
        """Shapes with their points."""
        return cls(**{field.name: getattr(nodes, field.name) for field in fields(Nodes)}, point=point)

    def take(self, index: NDArray[np.intp]) -> PointNodes:
        """The shapes at the given places, each with its point."""
        return PointNodes(**{field.name: _taken(getattr(self, field.name), index) for field in fields(self)})


def _taken(value: Any, index: NDArray[np.intp]) -> Any:
    if isinstance(value, LinkTable):
        return value.take(index)
    if isinstance(value, Mapping):
        return {key: array[index] for key, array in value.items()}
    return value[index]


@dataclass(frozen=True, slots=True)
class Market:
    """What one filter of GPUs leaves: the offers worth pricing, and the shapes and sizes they are rented in."""

    offers: Index  # places in the question's market
    shapes: Index  # places in the question's shapes, rising
    shape_of_offer: Index  # of each offer, place among `shapes`


class World:
    """Sizes, shapes, plans and offers of all points of a pass, one after the other."""

    def __init__(
        self,
        *,
        all_shapes: Nodes,
        sizes: Nodes,
        size_of_shape: Index,
        markets: Sequence[Market],
        pairs: Sequence[Pairs],
        kind: Index,
    ) -> None:
        self.points = len(kind)
        sizes_in = [np.unique(size_of_shape[found.shapes]) for found in markets]
        sizes_of_all, size_start = self._copies(sizes, sizes_in, kind)
        shapes_in = [found.shapes for found in markets]
        shapes, shape_start = self._copies(all_shapes, shapes_in, kind)
        local_size = [
            np.searchsorted(own, size_of_shape[found.shapes]) for own, found in zip(sizes_in, markets, strict=True)
        ]
        local, owner = _joined(local_size, kind)
        size_of = local + size_start[owner]
        usable = [_on_sizes(found, own) for found, own in zip(pairs, sizes_in, strict=True)]
        places, owner = _joined([size for _, size in usable], kind)
        entry, _ = _joined([index for index, _ in usable], kind)
        starts = np.cumsum([0, *(len(found) for found in pairs)])
        whole = Plan(**{
            name: np.concatenate([np.broadcast_to(getattr(found.plan, name), (len(found),)) for found in pairs])
            for name in Plan.__slots__
        })  # fmt: skip
        self.space = Space(
            pairs=Pairs(whole.take(entry + starts[kind][owner]), places + size_start[owner]),
            sizes=sizes_of_all,
            size_of_shape=size_of,
            shapes=shapes,
            able=np.ones(len(shapes), dtype=np.bool_),  # others have no offers here
        )
        local_shape, self.offer_point = _joined([found.shape_of_offer for found in markets], kind)
        self.offer_shape = local_shape + shape_start[self.offer_point]
        self.offers, _ = _joined([found.offers for found in markets], kind)

    @staticmethod
    def _copies(nodes: Nodes, chosen: Sequence[Index], kind: Index) -> tuple[PointNodes, Index]:
        """Each point's own copies of the machines it may use, and where they start."""
        index, owner = _joined(chosen, kind)
        lengths = np.array([len(part) for part in chosen], dtype=np.intp)[kind]
        return PointNodes.of(nodes.take(index), owner), np.cumsum(lengths) - lengths


def _on_sizes(pairs: Pairs, sizes: Index) -> tuple[Index, Index]:
    """Places of the plans on some sizes, and which of these each is on."""
    local = np.minimum(np.searchsorted(sizes, pairs.shape), max(len(sizes) - 1, 0))
    kept = np.flatnonzero(sizes[local] == pairs.shape) if len(sizes) else np.zeros(0, dtype=np.intp)
    return kept, local[kept]


def _joined(parts: Sequence[Index], kind: Index) -> tuple[Index, Index]:
    """The part of each point's kind, one after the other, and which point each entry belongs to."""
    lengths = np.array([len(part) for part in parts], dtype=np.intp)
    starts = np.cumsum(lengths) - lengths
    flat_parts = np.concatenate(parts).astype(np.intp) if parts else np.zeros(0, dtype=np.intp)
    each = lengths[kind]
    owner = np.repeat(np.arange(len(kind)), each)
    ends = np.cumsum(each)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - each, each)
    return flat_parts[starts[kind][owner] + within], owner


def first_of(points: Index, count: int) -> Index:
    """Of entries sorted by point, the place of each point's first; -1 where it has none."""
    first = np.full(count, -1, dtype=np.intp)
    places = np.flatnonzero(np.r_[True, points[1:] != points[:-1]]) if len(points) else np.zeros(0, dtype=np.intp)
    first[points[places]] = places
    return first
