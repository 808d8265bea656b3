"""
Links of machine shapes: measured bus bandwidth inside a machine or rack, and the fabric between machines.

Measurements exist for a few GPUs (`interconnects.csv`); the others take the curve of the nearest measured link, scaled
by the vendors' link rates. Over PCIe the host decides, not the card: every card takes the middle of all measured hosts
at its own PCIe rate. An NVLink bridge is optional and no offer states it, so bridged cards count as PCIe only unless a
machine is said to have one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from gpuguide.catalog.gpus import PCIE_BYTES_PER_S
from gpuguide.catalog.package import read_columns
from gpuguide.spec.hardware import Floats, Gpu, LinkTable
from gpuguide.units import GB, GIB, MIB

RANKS = np.array([2.0, 4.0, 8.0, 72.0])
MESSAGE_BYTES = np.array([8192.0, MIB, 16 * MIB, 64 * MIB, 512 * MIB, 16 * GIB])
RACK_GPUS = 72.0
"""GPUs of one NVL72 rack. [-]"""
MACHINE_GPUS = 8.0
POD_CHIPS = 4096.0
"""Chips that one torus of TPUs joins, machines or not. [-]"""

RING_SHARE = {"Hopper": 367.6 / 482.3, "Blackwell": 682.2 / 845.7, "Blackwell Ultra": 682.2 / 845.7}
"""Eight GPUs without reduction in the switch over with it: H200, B200. Source: ml-engineering network/README.md. [-]"""

GROWTH = {
    "Ampere": 234.9 / 222.3,
    "Hopper": 483.0 / 445.0,
    "Blackwell": 845.7 / 704.0,
    "Blackwell Ultra": 845.7 / 704.0,
}
"""Bandwidth at 16 GiB over that at 512 MiB, eight GPUs; 1.05 elsewhere. Source: `interconnects.csv`. [-]"""
DEFAULT_GROWTH = 1.05

RACK_BANDWIDTH = np.array([0.0, 20.0, 80.0, 200.0, 586.0, 834.6]) * GB
"""72 GPUs; 512 MiB and above measured, below from a start-up of 0.54 ms that the two points imply. [bytes/s]"""
RACK_LATENCY_S = 60e-6

MESH_BANDWIDTH = {2.0: 47.7 * GB, 4.0: 3 * 47.7 * GB, 8.0: 312.9 * GB}
"""MI300X: a pair has one link of seven, eight GPUs all. Source: ml-engineering network/README.md. [bytes/s]"""
MESH_LINK = 896 * GB

ETHERNET_MESH_BANDWIDTH = 512.96 * GB
"""Eight Gaudi 3. Source: docs.habana.ai, Collectives Performance. [bytes/s]"""
ETHERNET_MESH_LINK = 1200 * GB


def link_tables(gpus: Sequence[Gpu], gpus_per_node: Sequence[float] | Floats) -> tuple[LinkTable, LinkTable]:
    """
    Bus bandwidth of all-reduce and of ring collectives for each machine shape.

    Parameters
    ----------
    gpus : sequence of Gpu
        GPU of each shape.
    gpus_per_node : sequence of float, shape (node,)
        GPUs in one machine. [-]

    Returns
    -------
    tuple of LinkTable
        All-reduce, and all-gather or reduce-scatter; both span a whole rack for NVL72.
    """
    distinct = {gpu.name: gpu for gpu in gpus}
    curves = {name: _curves(gpu) for name, gpu in distinct.items()}
    racks = np.array([_is_rack(gpu) for gpu in gpus])
    pods = np.array([_kind(gpu) == "torus" for gpu in gpus])
    joined = np.minimum([bridged_cards(gpu) or np.inf for gpu in gpus], np.asarray(gpus_per_node, dtype=np.float64))
    domain = np.where(racks, RACK_GPUS, np.where(pods, POD_CHIPS, joined))
    tables = []
    for kind in (0, 1):
        bandwidth = np.stack([curves[gpu.name][kind] for gpu in gpus])
        # By construction the table at the smallest message is the latency: traffic over time.
        passes = 2.0 * (RANKS - 1) / RANKS
        latency = passes * MESSAGE_BYTES[0] / bandwidth[:, :, 0]
        tables.append(
            LinkTable(
                ranks=RANKS, message_bytes=MESSAGE_BYTES, bus_bandwidth_bytes_per_s=bandwidth,
                latency_s=latency if kind == 0 else latency / 2, domain_gpus=domain,
            )
        )  # fmt: skip
    return tables[0], tables[1]


def fast_link(gpu: Gpu) -> bool:
    """Whether the GPUs of one machine are joined by NVLink, NVSwitch, xGMI or the like, rather than by PCIe."""
    return _kind(gpu) not in ("pcie",)


def bridged(gpu: Gpu, cards: int) -> Gpu:
    """The GPU in a machine whose cards are joined by NVLink bridges, so many by one; as it is where it takes none."""
    if "bridge" not in gpu.link or not gpu.link_bytes_per_s > 0:
        return gpu
    return replace(gpu, link=f"{BRIDGE} of {cards}")


def bridged_cards(gpu: Gpu) -> int | None:
    """Cards that one bridge joins where the machine is said to have bridges. [-]"""
    found = re.fullmatch(rf"{BRIDGE} of (\d+)", gpu.link)
    return int(found.group(1)) if found else None


BRIDGE = "NVLink bridge"


def between_bridges(gpu: Gpu, gpus_per_node: float) -> tuple[float, float, str]:
    """What joins the bridged groups of one machine: PCIe, of all its cards together. As `fabric` gives it."""
    curve = pcie_curve()[-1]
    rate = gpu.pcie_bytes_per_s * float(curve[-1]) * gpus_per_node
    return rate, 2.0 * (RANKS[2] - 1) / RANKS[2] * MESSAGE_BYTES[0] / float(curve[0]), "PCIe"


def _kind(gpu: Gpu) -> str:
    link = gpu.link
    if "NVSwitch" in link or link.startswith("NVLink"):
        return "nvlink"
    if link.startswith("Infinity Fabric"):
        return "xgmi"
    if link.startswith("RoCE"):
        return "ethernet mesh"
    if "torus" in link:
        return "torus"
    return "pcie"


def _is_rack(gpu: Gpu) -> bool:
    return "NVL72" in gpu.link


def _curves(gpu: Gpu) -> tuple[Floats, Floats]:
    """All-reduce and ring bus bandwidth of one GPU, shape (ranks, message). [bytes/s]"""
    kind = _kind(gpu)
    measured = _measured()
    if kind == "pcie":
        table = _scaled(pcie_curve(), gpu.pcie_bytes_per_s, DEFAULT_GROWTH)
        return table, table
    link = gpu.link_bytes_per_s
    if kind == "nvlink":
        reference = _NVLINK_REFERENCE.get(gpu.architecture, "A100-80GB-SXM")
        is_own = gpu.name in measured and not bridged_cards(gpu)
        own = gpu.name if is_own else reference
        scale = 1.0 if is_own else link / _NVLINK_RATE[reference]
        growth = GROWTH.get(gpu.architecture, DEFAULT_GROWTH)
        table = _scaled(measured[own], scale, growth)
        ring = table.copy()
        ring[2, 1:] *= RING_SHARE.get(gpu.architecture, 1.0)
        if _is_rack(gpu):
            table[3, 1:] = RACK_BANDWIDTH[1:]
            table[3, 0] = _at_latency(RACK_LATENCY_S, RANKS[3])
            ring[3] = table[3]
            ring[3, 1:] *= RING_SHARE[gpu.architecture]
        return table, ring
    shape = _scaled(measured["A100-80GB-SXM"], 1.0, DEFAULT_GROWTH)
    if kind == "xgmi":
        top = np.array([MESH_BANDWIDTH[min(ranks, MACHINE_GPUS)] for ranks in RANKS]) * link / MESH_LINK
    elif kind == "ethernet mesh":
        top = np.full(len(RANKS), ETHERNET_MESH_BANDWIDTH * link / ETHERNET_MESH_LINK)
    else:  # a torus of TPU or Trainium chips: no public measurement, the share that A100 reaches of its link
        top = shape[:, -1] * (link if link == link else _NVLINK_RATE["A100-80GB-SXM"]) / _NVLINK_RATE["A100-80GB-SXM"]
    table = shape.copy()
    table[:, 1:] *= (top / shape[:, -1])[:, None]
    return table, table


_NVLINK_REFERENCE = {"Ampere": "A100-80GB-SXM", "Hopper": "H200-SXM", "Blackwell": "B200", "Blackwell Ultra": "B300"}
_NVLINK_RATE = {"A100-80GB-SXM": 600 * GB, "H200-SXM": 900 * GB, "B200": 1800 * GB, "B300": 1800 * GB}
SLOW_HOST = 0.5
"""Of the median of measured PCIe hosts; one below it says what went wrong there (no peer access across processors, 1.45
GB/s on eight L40S) and not what such machines do. It stands in the band, `network_pcie_efficiency`. [-]"""


@lru_cache(maxsize=1)
def pcie_curve() -> Floats:
    """
    All-reduce over PCIe in the middle of the measured hosts, shape (ranks, 5).

    Returns
    -------
    array
        The smallest message from latency in bytes/s; the others as a share of what one card's link carries. [-]

    Notes
    -----
    Half of the hosts published only their largest message: all of them set the height of the curve, those with every
    message its shape. Source: `interconnects.csv`, kind `pcie`.
    """
    hosts: dict[int, dict[tuple[str, str], list[tuple[float, float, float]]]] = {}
    for row in _interconnects():
        if row["kind"] == "pcie" and row["collective"] == "all_reduce":
            rate = PCIE_BYTES_PER_S[float(row["name"].removeprefix("PCIe").split()[0])]
            place = int(np.searchsorted(RANKS, float(row["n_gpus"])))
            point = (_or_nan(row["message_bytes"]), row["busbw_gb_s"] * GB / rate, _or_nan(row["small_msg_latency_us"]))
            hosts.setdefault(place, {}).setdefault((row["gpu"], row["source"]), []).append(point)
    curves = []
    for place in range(3):
        sweeps = [np.array(sorted(points)) for points in hosts[place].values()]
        tops = np.array([sweep[-1, 1] for sweep in sweeps])
        kept = tops >= SLOW_HOST * _median(tops)
        whole = [sweep[:, 1] for sweep, good in zip(sweeps, kept, strict=True) if good and len(sweep) == 4]
        shape = _median(np.array([shares / shares[-1] for shares in whole]))
        latencies = np.concatenate([sweep[:, 2] for sweep in sweeps])
        latency = float(_median(latencies[~np.isnan(latencies)])) * 1e-6
        curves.append([_at_latency(latency, float(RANKS[place])), *(shape * _median(tops[kept]))])
    return np.array([*curves, curves[-1]])


def _median(values: Floats) -> Floats:
    """Along the first axis; numpy's own brings masked arrays along, which take longer to import than all of this."""
    ordered = np.sort(values, axis=0)
    middle: Floats = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0
    return middle


def _scaled(measured: Floats, scale: float, growth: float) -> Floats:
    """A measured curve for another link rate; small messages keep their latency, large ones reach a little more."""
    table = np.empty((len(RANKS), len(MESSAGE_BYTES)))
    table[:, 0] = measured[:, 0]
    table[:, 1:5] = measured[:, 1:] * scale
    table[:, 5] = table[:, 4] * growth
    return table


def _at_latency(latency_s: float, ranks: float) -> float:
    return float(2.0 * (ranks - 1) / ranks * MESSAGE_BYTES[0] / latency_s)


@lru_cache(maxsize=1)
def _measured() -> dict[str, Floats]:
    """Measured all-reduce inside one machine by GPU, shape (ranks, 5); the smallest message from latency. [bytes/s]"""
    measured: dict[str, dict[float, list[tuple[float, float, float]]]] = {}
    for row in _interconnects():
        if row["collective"] == "all_reduce" and row["algo"] == "NCCL default" and row["n_nodes"] == 1:
            point = (row["message_bytes"], row["busbw_gb_s"], row["small_msg_latency_us"])
            measured.setdefault(row["gpu"], {}).setdefault(float(row["n_gpus"]), []).append(point)
    found: dict[str, Floats] = {}
    for gpu, groups in measured.items():
        by_ranks = {}
        for ranks, points in groups.items():
            ordered = sorted(points)
            latency = _at_latency(ordered[0][2] * 1e-6, ranks)
            by_ranks[ranks] = np.array([latency, *(rate * GB for _, rate, _ in ordered)])
        found[gpu] = np.stack([by_ranks.get(ranks, _FILLED) for ranks in RANKS[:3]])
    for gpu, whole in (("GB200", "B200"), ("GB300", "B300")):  # a tray has 4 GPUs; 8 behave as in a machine of 8
        found[gpu][2] = found[whole][2]
    return {gpu: np.vstack([curve, curve[2:]]) for gpu, curve in found.items()}


_FILLED = np.full(5, np.nan)


def _or_nan(value: Any) -> float:
    return float("nan") if value is None or value != value else float(value)


@lru_cache(maxsize=1)
def _interconnects() -> list[dict[str, Any]]:
    return read_columns("interconnects").records()


@dataclass(frozen=True, slots=True)
class _Fabric:
    """Transport between machines: what is achieved of the line rate, and the delay of one small message."""

    share: float
    latency_s: float


FABRICS = {
    "InfiniBand": _Fabric(0.95, 20e-6),
    "RoCE": _Fabric(0.87, 25e-6),
    "EFA": _Fabric(0.93, 40e-6),
    "GPUDirect-TCPX": _Fabric(0.66, 60e-6),
    "GPUDirect-TCPXO": _Fabric(0.85, 50e-6),
    "Ethernet": _Fabric(0.60, 60e-6),
}
"""
Share of line rate that collectives over many nodes reach, and latency. [-], [s]

InfiniBand 386.6 of 400 and 192 of 200 GB/s; RoCE 91 of 100, 325.7 of 400 and 75 of 100; EFA 369.9, 364.9 and 381.8 of
400; TCPX 66 of 100; plain TCP 20 of 100 up to 80-90 % of one slow NIC. Source: `interconnects.csv`.
"""

_PER_GPU_GBPS = {
    "Volta": 50.0, "Ampere": 200.0, "Hopper": 400.0, "Blackwell": 400.0, "Blackwell Ultra": 800.0,
    "CDNA2": 200.0, "CDNA3": 400.0, "CDNA4": 400.0,
}  # fmt: skip
"""NIC rate per GPU of vendors' reference machines: DGX-1, DGX A100, DGX H100, DGX B300, NVL72 racks. [Gbit/s]"""
DATACENTER_GBPS, OTHER_GBPS = 100.0, 25.0
"""One NIC of a PCIe server in a data centre, and of a rented workstation. [Gbit/s]"""
_EFA_GBPS = {"Ampere": 400.0, "Hopper": 3200.0, "Blackwell": 3200.0, "Blackwell Ultra": 6400.0}
"""p4d/p4de, p5/p5en, p6-b200, p6-b300. Source: stas00/ml-engineering network/README.md. [Gbit/s]"""


def fabric(name: str | None, gbps_per_node: float | None, gpu: Gpu, gpus_per_node: float) -> tuple[float, float, str]:
    """
    What joins machines: achieved rate, latency and name.

    Parameters
    ----------
    name : str or None
        The provider's words for it, such as 'EFA' or 'InfiniBand (Quantum-2)'; None or nan = not stated.
    gbps_per_node : float or None
        Line rate per machine as stated for the provider's fastest machines. [Gbit/s]
    gpu : Gpu
        GPU of the machine.
    gpus_per_node : float
        GPUs in it. [-]

    Returns
    -------
    tuple of float, float, str
        Bytes per second per machine and direction as collectives achieve them, latency in seconds, name.

    Notes
    -----
    Only whole machines of the fast-linked kind (8 GPUs, or a tray of a rack) have the fast fabric; a share of one, and
    PCIe machines, are joined by Ethernet: 100 Gbit/s in a data centre, 25 Gbit/s for workstation and consumer cards.
    Older machines of a provider have what the reference machine of their generation has, never more than is stated.
    """
    whole = fast_link(gpu) and (gpus_per_node >= MACHINE_GPUS or (_is_rack(gpu) and gpus_per_node >= 4))
    stated = float(gbps_per_node) if gbps_per_node is not None and gbps_per_node == gbps_per_node else None
    kind = _fabric_kind(name)
    if not whole:
        gbps = DATACENTER_GBPS if gpu.tier == "datacenter" else OTHER_GBPS
        if kind is not None and kind != "Ethernet" and not fast_link(gpu) and stated is not None:
            gbps = min(gbps, stated)
        chosen = "Ethernet"
        return FABRICS[chosen].share * gbps * GB / 8, FABRICS[chosen].latency_s, f"{gbps:g} GbE"
    own = _PER_GPU_GBPS.get(gpu.architecture, 100.0) * gpus_per_node
    chosen = kind or ("RoCE" if gpu.link.startswith("RoCE") else "InfiniBand")
    if chosen == "EFA":
        own = _EFA_GBPS.get(gpu.architecture, own) * gpus_per_node / MACHINE_GPUS
    elif chosen.startswith("GPUDirect") and not gpu.name.startswith("H100"):
        # Only A3 High and Mega machines (H100) use it; the provider's later machines have RDMA, its earlier ones none.
        chosen, stated = ("RoCE", None) if gpu.architecture != "Ampere" else ("Ethernet", DATACENTER_GBPS)
    elif chosen == "GPUDirect-TCPX" and stated is None:
        own = 800.0
    elif chosen == "GPUDirect-TCPXO" and stated is None:
        own = 1600.0
    gbps = own if stated is None else min(own, stated) if chosen != "Ethernet" else stated
    share = FABRICS[chosen].share
    return share * gbps * GB / 8, FABRICS[chosen].latency_s, f"{chosen} {gbps:g} Gbit/s"


def _fabric_kind(name: str | None) -> str | None:
    """The transport that a provider's words mean."""
    if not isinstance(name, str) or not name.strip():
        return None
    text = name.casefold()
    for word, kind in _WORDS:
        if word in text:
            return kind
    return "Ethernet"


_WORDS = (
    ("infiniband", "InfiniBand"), ("quantum", "InfiniBand"), ("efa", "EFA"), ("tcpxo", "GPUDirect-TCPXO"),
    ("tcpx", "GPUDirect-TCPX"), ("roce", "RoCE"), ("rdma", "RoCE"), ("ethernet", "Ethernet"), ("gbe", "Ethernet"),
)  # fmt: skip
