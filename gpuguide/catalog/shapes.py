"""Machine shapes: the few distinct (GPU, count, nodes, links) among thousands of offers, as one array type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuguide.catalog import links
from gpuguide.spec.hardware import Gpu, Nodes
from gpuguide.spec.precision import COMPUTE_PRECISIONS


@dataclass(frozen=True, slots=True)
class Shape:
    """One machine or cluster of equal machines."""

    gpu: str
    gpus_per_node: int = 1
    nodes: int = 1
    fabric: str | None = None  # network between nodes as the provider names it; None = not stated
    fabric_gbps_per_node: float | None = None  # [Gbit/s]
    bridged: int | None = None  # cards that one NVLink bridge joins; None = not stated, so PCIe alone


def nodes_of(shapes: Sequence[Shape], gpus: Mapping[str, Gpu]) -> Nodes:
    """
    Shapes as arrays, in the given order.

    Raises
    ------
    KeyError
        If a shape names a GPU that is not in the table; names from users are checked before.
    """
    cards = [links.bridged(gpus[shape.gpu], shape.bridged) if shape.bridged else gpus[shape.gpu] for shape in shapes]
    per_node = [shape.gpus_per_node for shape in shapes]
    all_reduce, ring = links.link_tables(cards, per_node)
    fabrics = [
        links.between_bridges(card, shape.gpus_per_node)
        if shape.bridged and shape.nodes == 1
        else links.fabric(shape.fabric, shape.fabric_gbps_per_node, card, shape.gpus_per_node)
        for shape, card in zip(shapes, cards, strict=True)
    ]
    return Nodes(
        gpu=np.array([card.name for card in cards], dtype=object),
        gpus_per_node=np.array(per_node, dtype=np.float64),
        nodes=np.array([shape.nodes for shape in shapes], dtype=np.float64),
        memory_bytes=np.array([card.memory_bytes for card in cards]),
        memory_bandwidth_bytes_per_s=np.array([card.memory_bandwidth_bytes_per_s for card in cards]),
        flops={name: np.array([card.flops[name] for card in cards]) for name in COMPUTE_PRECISIONS},
        measured_bf16_flops=np.array([card.measured_bf16_flops for card in cards]),
        measured_bandwidth_bytes_per_s=np.array([card.measured_bandwidth_bytes_per_s for card in cards]),
        is_hbm=np.array([card.is_hbm for card in cards], dtype=np.bool_),
        architecture=np.array([card.architecture for card in cards], dtype=object),
        tier=np.array([card.tier for card in cards], dtype=object),
        tdp_w=np.array([card.tdp_w for card in cards]),
        pcie_bytes_per_s=np.array([card.pcie_bytes_per_s for card in cards]),
        fast_link=np.array([links.fast_link(card) for card in cards], dtype=np.bool_),
        all_reduce=all_reduce,
        ring=ring,
        fabric_bytes_per_s=np.array([bytes_per_s for bytes_per_s, _, _ in fabrics]),
        fabric_latency_s=np.array([latency for _, latency, _ in fabrics]),
        fabric=np.array([name for _, _, name in fabrics], dtype=object),
    )
