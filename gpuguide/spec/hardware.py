"""Accelerators and the machine shapes they are rented in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One accelerator (`data/gpus.csv`), vendor units converted once: bytes, bytes/s, FLOP/s dense; nan = not known."""

    name: str
    vendor: str
    architecture: str
    memory_gb: float  # marketed size [GB]
    memory_bytes: float  # what a process can allocate [bytes]
    memory_type: str
    is_hbm: bool
    memory_bandwidth_bytes_per_s: float
    flops: Mapping[str, float]  # dense, by compute precision [FLOP/s]
    measured_bf16_flops: float  # large matrix multiplications, where measured [FLOP/s]
    measured_bandwidth_bytes_per_s: float
    link: str  # how GPUs of one node are joined, as in `interconnects.csv`: 'NVLink 4 + NVSwitch', 'PCIe only', ...
    link_bytes_per_s: float  # vendor figure, both directions summed; nan for PCIe only
    pcie_bytes_per_s: float  # host link, one direction
    tdp_w: float
    compute_capability: str
    form_factor: str
    tier: str  # datacenter, workstation, consumer


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkTable:
    """
    Measured bus bandwidth of one collective, by ranks and message size, for each node shape.

    Interpolated in message size. A few hundred tables serve many thousands of shapes: those taken from others share
    their tables and only hold the place of their own, `table`.
    """

    ranks: Floats  # (ranks,)
    message_bytes: Floats  # (message,)
    bus_bandwidth_bytes_per_s: Floats  # (table, ranks, message)
    latency_s: Floats  # (table, ranks): smallest-message time of the collective
    domain_gpus: Floats  # (node,): GPUs that the fast link joins; 72 in an NVL72 rack, else those of one machine
    table: NDArray[np.intp] | None = None  # (node,): place of each shape's table; None = one each, in order

    @property
    def places(self) -> NDArray[np.intp]:
        """Place of every shape's table, shape (node,)."""
        return np.arange(len(self.domain_gpus)) if self.table is None else self.table

    def take(self, index: NDArray[np.intp]) -> LinkTable:
        """The tables of the shapes at the given places."""
        return replace(self, domain_gpus=self.domain_gpus[index], table=self.places[index])


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """
    Machine shapes, one per place of the node axis: every array has shape (node,).

    A shape is accelerator x GPUs per node x nodes x links; offers are joined to shapes after the estimates are made.
    """

    gpu: NDArray[np.object_]
    gpus_per_node: Floats
    nodes: Floats
    memory_bytes: Floats
    memory_bandwidth_bytes_per_s: Floats
    flops: Mapping[str, Floats]  # dense peak by compute precision; nan = not supported [FLOP/s]
    measured_bf16_flops: Floats
    measured_bandwidth_bytes_per_s: Floats
    is_hbm: NDArray[np.bool_]
    architecture: NDArray[np.object_]
    tier: NDArray[np.object_]
    tdp_w: Floats
    pcie_bytes_per_s: Floats
    fast_link: NDArray[np.bool_]  # NVLink, NVSwitch or xGMI inside the node (not PCIe)
    all_reduce: LinkTable  # inside one node
    ring: LinkTable  # all-gather and reduce-scatter inside one node (no in-switch reduction)
    fabric_bytes_per_s: Floats  # between nodes, per node and direction; nan = not known
    fabric_latency_s: Floats
    fabric: NDArray[np.object_] = field(default_factory=lambda: np.array([], dtype=object))  # its name

    @property
    def gpus(self) -> Floats:
        """GPUs of all nodes together. [-]"""
        return self.gpus_per_node * self.nodes

    def __len__(self) -> int:
        return len(self.gpu)

    def take(self, index: NDArray[np.intp]) -> Nodes:
        """The shapes at the given places; a place may be asked for more than once."""
        picked: dict[str, object] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, LinkTable):
                picked[name] = value.take(index)
            elif isinstance(value, Mapping):
                picked[name] = {key: array[index] for key, array in value.items()}
            else:
                picked[name] = value[index]
        return Nodes(**picked)  # type: ignore[arg-type]
