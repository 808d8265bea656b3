"""All-reduce inside a serving engine, and by how much a tensor-parallel group divides its work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.estimate import network
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.plan import Plan
from gpuguide.units import Number

ACTIVATION_BYTES = 2.0
"""Width of a hidden state that is sent. [bytes]"""


def attention_layout(*, job: ServingJob, plan: Plan) -> tuple[Number, Number]:
    """
    Ranks that split one request's attention, and groups of such ranks that share one set of experts. [-]

    Notes
    -----
    With attention data parallel each tensor rank has its own requests. Otherwise expert-parallel ranks beyond the
    tensor-parallel ones mean that replicas share experts.
    """
    if job.attention_data_parallel:
        return 1.0, plan.tensor_parallel
    return plan.tensor_parallel, np.maximum(plan.expert_parallel / plan.tensor_parallel, 1.0)


def split_work(*, ranks: Number, nodes: Nodes) -> Number:
    """
    By how much a tensor-parallel group divides its work: its ranks, or less where more than four talk over PCIe. [-]

    Notes
    -----
    Beyond four, cards sit behind two processors and wait for the slowest path: from 4 to 8, serving on PCIe gained -4 %
    to +31 % where NVLink gained 24 to 88 %. Source: TensorRT-LLM 0.17 performance overview, L40S.
    """
    if np.all(nodes.fast_link) or not np.any(np.asarray(ranks) > PCIE_RANKS):
        return ranks
    slowed = PCIE_RANKS * (np.maximum(ranks, PCIE_RANKS) / PCIE_RANKS) ** PCIE_GROWTH
    return np.where(nodes.fast_link | (np.asarray(ranks) <= PCIE_RANKS), ranks, slowed)


PCIE_RANKS = 4.0
PCIE_GROWTH = 0.39
"""Twice the ranks beyond four divide the work by 2 ** 0.39 = 1.31 at best. [-]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reduce:
    """All-reduce inside a serving engine on the plans' tensor-parallel groups."""

    ranks: Number
    nodes: Nodes
    start_s: Number  # of the library, (plan, node) [s]
    saved: Number  # part of the start-up that an engine's own kernel saves, (band, plan, node) [-]
    efficiency: Number  # of the link, (band, 1, 1) or (band, 1, node) [-]

    def seconds(self, message_bytes: Number) -> Number:
        """
        Time of one all-reduce, (band, plan, node). [s]

        Notes
        -----
        Engines replace the library's start-up by kernels that read all peers' buffers at once, where GPUs reach each
        other's memory over a fast link; from some MiB on both are alike. Over PCIe the ring of a machine is as fast as
        its links, also where the table was taken without peer access.
        """
        library: Number = network.all_reduce_s(message_bytes=message_bytes, ranks=self.ranks, nodes=self.nodes)
        if not np.all(self.nodes.fast_link):
            traffic = 2.0 * (1.0 - 1.0 / np.asarray(self.ranks)) * message_bytes
            paired = self.start_s + traffic / (PCIE_RING_SHARE * self.nodes.pcie_bytes_per_s)
            alone = self.nodes.fast_link | (np.asarray(self.ranks) > self.nodes.gpus_per_node)
            library = np.where(alone, library, np.minimum(library, paired))
        return (library - self.saved) / self.efficiency


def reduce_on(*, ranks: Number, nodes: Nodes, assumptions: Assumptions) -> Reduce:
    """All-reduce of groups of the given ranks, whatever the message."""
    start = network.all_reduce_s(message_bytes=network.SMALLEST_MESSAGE_BYTES, ranks=ranks, nodes=nodes)
    saved = (1.0 - assumptions["serving_speed_reduce_start"]) * np.where(nodes.fast_link, start, 0.0)
    return Reduce(
        ranks=ranks, nodes=nodes, start_s=start, saved=saved, efficiency=network.link_efficiency(nodes, assumptions)
    )


PCIE_RING_SHARE = 0.45
"""Bus bandwidth over the rate of one PCIe link where cards reach each other's memory: 24.7 of 55 GB/s on eight RTX PRO
6000 (aiconfigurator); TensorRT-LLM on eight L40S moves 13 of 25 or more, where a table taken without peer access has
1.45. [-]"""


def reduce_of(*, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Reduce | None:
    """All-reduce of the plans' tensor-parallel groups; None where all are single GPUs."""
    ranks, _ = attention_layout(job=job, plan=plan)
    return reduce_on(ranks=ranks, nodes=nodes, assumptions=assumptions) if np.any(np.asarray(ranks) > 1) else None
