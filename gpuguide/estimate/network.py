"""
How long collectives take, from measured bus bandwidth inside a machine and the rate of the fabric between machines.

Messages are counted as nccl-tests counts them: the full buffer of one rank. That is the reduced buffer for
all-reduce, the gathered result for all-gather, the input for reduce-scatter and the send buffer for all-to-all.
A ring passes each byte of it (ranks - 1) / ranks times, all-reduce twice; bus bandwidth is the rate of exactly that
traffic, so that one figure serves every number of ranks. Source: nccl-tests PERFORMANCE.md.

GPUs joined by the fast link form a domain: one machine, or a rack of 72. A group that spans domains sends the same
traffic through the fabric, of which it has the share of its GPUs, since its neighbours' groups send at the same time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Floats, LinkTable, Nodes
from gpuguide.units import MIB, Number

SMALLEST_MESSAGE_BYTES = 8192.0
"""Up to here a collective takes its latency alone; link tables start at this size. [bytes]"""


def all_reduce_s(
    *,
    message_bytes: Number,
    ranks: Number,
    nodes: Nodes,
    ranks_per_node: Number | None = None,
    assumptions: Assumptions | None = None,
) -> Floats:
    """
    Time until every rank holds the sum of all ranks' buffers.

    Parameters
    ----------
    message_bytes : number or array, shape (plan, 1) or (plan, node)
        Buffer of one rank, of which all ranks hold one. [bytes]
    ranks : number or array
        GPUs in the group; one takes no time. [-]
    nodes : Nodes
        Machine shapes.
    ranks_per_node : number or array, optional
        Ranks of the group in one link domain; as many as it holds when left out. [-]
    assumptions : Assumptions, optional
        With it the answer has the band axis in front, from `link_efficiency`.

    Returns
    -------
    array, shape ([band,] plan, node)
        [s]

    Notes
    -----
    Inside a domain the measured all-reduce table is used, with the reduction in the switch where GPUs have it.
    Source: `docs/formulas.md`, "Collectives".
    """
    return _collective_s(2.0, nodes.all_reduce, message_bytes, ranks, nodes, ranks_per_node, assumptions)


def all_gather_s(
    *,
    message_bytes: Number,
    ranks: Number,
    nodes: Nodes,
    ranks_per_node: Number | None = None,
    assumptions: Assumptions | None = None,
) -> Floats:
    """
    Time until every rank holds all ranks' shards; parameters as for `all_reduce_s`, the message is the whole result.

    Notes
    -----
    The ring table is used: the switch cannot reduce what is only copied. Source: `docs/formulas.md`, "Collectives".
    """
    return _collective_s(1.0, nodes.ring, message_bytes, ranks, nodes, ranks_per_node, assumptions)


def reduce_scatter_s(
    *,
    message_bytes: Number,
    ranks: Number,
    nodes: Nodes,
    ranks_per_node: Number | None = None,
    assumptions: Assumptions | None = None,
) -> Floats:
    """
    Time until every rank holds its shard of the sum; parameters as for `all_reduce_s`, the message is the whole input.

    Notes
    -----
    As fast as all-gather: 363 against 361 GB/s on eight H200. Source: stas00/ml-engineering network/README.md.
    """
    return _collective_s(1.0, nodes.ring, message_bytes, ranks, nodes, ranks_per_node, assumptions)


def all_to_all_s(
    *,
    message_bytes: Number,
    ranks: Number,
    nodes: Nodes,
    ranks_per_node: Number | None = None,
    away_bytes: Number | None = None,
    assumptions: Assumptions | None = None,
) -> Floats:
    """
    Time to send each rank its share of every other rank's buffer; parameters as for `all_reduce_s`.

    `away_bytes` is what one rank sends to other domains where that is not an equal share of the buffer: expert tokens
    cross the fabric once for all experts of a domain. [bytes]

    Notes
    -----
    Only the part meant for other domains crosses the fabric. Source: `docs/formulas.md`, "Collectives".
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    message = np.maximum(np.asarray(message_bytes, dtype=np.float64), SMALLEST_MESSAGE_BYTES)
    inside, domains = _layout(ranks, nodes, ranks_per_node)
    seconds = _inside_s((inside - 1) / ranks, nodes.ring, message, inside)
    if np.any(domains > 1):
        away = message * (ranks - inside) / ranks if away_bytes is None else np.asarray(away_bytes)
        rate = nodes.fabric_bytes_per_s / nodes.gpus_per_node
        across = away / rate + _fabric_delay_s(1.0, nodes, domains, message)
        seconds = np.where(domains > 1, np.maximum(seconds, across), seconds)
    return _banded(seconds, nodes, assumptions)


def send_s(
    *,
    message_bytes: Number,
    nodes: Nodes,
    across: Number | NDArray[np.bool_] = 0.0,
    assumptions: Assumptions | None = None,
) -> Floats:
    """
    Time to hand a buffer to the next pipeline stage, every GPU sending one at once.

    Parameters
    ----------
    message_bytes : number or array
        What one GPU sends. [bytes]
    nodes : Nodes
        Machine shapes.
    across : number or bool array
        Whether the next stage is in another link domain.
    assumptions : Assumptions, optional
        With it the answer has the band axis in front.

    Returns
    -------
    array, shape ([band,] plan, node)
        [s]
    """
    message = np.maximum(np.asarray(message_bytes, dtype=np.float64), SMALLEST_MESSAGE_BYTES)
    # Two ranks: the ring table counts half of the gathered buffer as moved, so a buffer of twice the message moves it.
    seconds = _inside_s(np.asarray(0.5), nodes.ring, 2.0 * message, np.asarray(2.0))
    if np.any(across):
        over = message * nodes.gpus_per_node / nodes.fabric_bytes_per_s + nodes.fabric_latency_s
        seconds = np.where(np.asarray(across, dtype=np.bool_), over, seconds)
    return _banded(seconds, nodes, assumptions)


def _collective_s(
    passes: float,
    table: LinkTable,
    message_bytes: Number,
    ranks: Number,
    nodes: Nodes,
    ranks_per_node: Number | None,
    assumptions: Assumptions | None,
) -> Floats:
    """The slower of the two links carries the ring; crossing domains adds the fabric's delay. [s]"""
    ranks = np.asarray(ranks, dtype=np.float64)
    message = np.maximum(np.asarray(message_bytes, dtype=np.float64), SMALLEST_MESSAGE_BYTES)
    inside, domains = _layout(ranks, nodes, ranks_per_node)
    share = passes * (ranks - 1) / ranks
    seconds = _inside_s(share, table, message, inside)
    if np.any(domains > 1):
        rate = nodes.fabric_bytes_per_s * inside / nodes.gpus_per_node
        across = np.maximum(seconds, share * message / rate) + _fabric_delay_s(passes, nodes, domains, message)
        seconds = np.where(domains > 1, across, seconds)
    return _banded(seconds, nodes, assumptions)


def _layout(ranks: Floats, nodes: Nodes, ranks_per_node: Number | None) -> tuple[Floats, Floats]:
    """Ranks in one link domain, evenly spread, and the number of domains of a group."""
    room = nodes.all_reduce.domain_gpus if ranks_per_node is None else np.asarray(ranks_per_node, dtype=np.float64)
    if np.size(room) and np.min(room) >= np.max(
        ranks
    ):  # the usual case, and it keeps the node axis out of what follows
        return ranks, np.ones(1)
    domains = np.ceil(ranks / room - 1e-9)
    return ranks / domains, domains


def _inside_s(passes_share: Floats, table: LinkTable, message: Floats, ranks: Floats) -> Floats:
    """
    Time to send `passes_share` x message inside one domain, none where it holds a single rank. [s]

    Between the measured message sizes time grows linearly with the message, as start-up plus transfer does; between
    measured numbers of ranks it is interpolated in the logarithm of ranks.
    """
    sizes, counts = table.message_bytes, table.ranks
    size = _place(sizes, message)
    rank = _place(counts, ranks)
    first = table.places * (len(counts) * len(sizes)) + rank * len(sizes) + size
    left, right = sizes[size], sizes[size + 1]
    part = (message - left) / (right - left)
    flat = table.bus_bandwidth_bytes_per_s.reshape(-1)
    seconds = left * (1.0 - part) / flat[first] + right * part / flat[first + 1]
    beyond = np.log2(ranks / counts[rank]) / np.log2(counts[rank + 1] / counts[rank])
    if np.any(beyond > 0):
        first = first + len(sizes)
        upper = left * (1.0 - part) / flat[first] + right * part / flat[first + 1]
        seconds = seconds + (upper - seconds) * np.clip(beyond, 0.0, 1.0)
    return np.where(ranks > 1, passes_share * seconds, 0.0)


def _place(grid: Floats, values: Floats) -> NDArray[np.intp]:
    """Place of the last grid point that is not above a value, leaving one point above it."""
    place = np.zeros(np.shape(values), dtype=np.intp)
    for point in grid[1:-1]:
        place += np.asarray(values) >= point
    return place


def _fabric_delay_s(passes: float, nodes: Nodes, domains: Floats, message: Floats) -> Floats:
    """
    Start-up of a collective over several domains. [s]

    Notes
    -----
    All-reduce goes up and down a tree: 2 latencies for each doubling, half of that for the smallest messages. What is
    only copied or only reduced goes round a ring of domains: a latency for each. EFA: 65-75 us at 2 nodes and 166 us at
    16 for small all-reduces, 0.4 ms at 4 nodes of B200 from 64 MiB on; GCP 85 us for an all-gather over 2 nodes.
    Source: `data/interconnects.csv`.
    """
    if passes > 1:
        filling = 0.5 + 0.5 * np.minimum(message / MIB, 1.0)
        return passes * nodes.fabric_latency_s * (1.0 + np.log2(domains)) * filling
    return nodes.fabric_latency_s * domains


def link_efficiency(nodes: Nodes, assumptions: Assumptions) -> Floats:
    """
    Rate of links over the measured one; machines without a fast link differ more, by how their host joins the cards.

    Returns
    -------
    array, shape (band, 1, 1) or (band, 1, node)
        [-]
    """
    every = assumptions["network_link_efficiency"]
    if np.all(nodes.fast_link):
        return every
    return np.where(nodes.fast_link, every, assumptions["network_pcie_efficiency"])


def _banded(seconds: Floats, nodes: Nodes, assumptions: Assumptions | None) -> Floats:
    """With assumptions, the band axis in front."""
    return seconds if assumptions is None else seconds / link_efficiency(nodes, assumptions)
