"""How a job is laid out over GPUs: parallel degrees, micro-batch, sharding, recompute, offload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuguide.units import Number

RECOMPUTE = ("none", "selective", "full")
OFFLOAD = ("none", "optimizer", "all", "sequential")
"""
`optimizer`: states and the step on the host; `all`: weights too, gathered layer by layer when training, one component
of a pipeline at a time when generating; `sequential`: one module of a pipeline at a time.
"""
TRAINING_OFFLOAD = OFFLOAD[:3]
"""What training can move."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """
    One plan, or a column of plans with shape (plan, 1) in every field.

    `recompute` and `offload` are places in RECOMPUTE and OFFLOAD. Data parallel degree is what remains of the GPUs.
    """

    tensor_parallel: Number = 1.0
    pipeline_parallel: Number = 1.0
    context_parallel: Number = 1.0
    expert_parallel: Number = 1.0
    data_parallel: Number = 1.0  # replicas times shards: GPUs / (tensor x pipeline x context)
    micro_batch: Number = 1.0  # sequences per model replica and pass [sequences]
    zero_stage: Number = 0.0  # 0 = plain data parallel, 1, 2, 3 (3 = FSDP full shard)
    recompute: Number = 0.0
    offload: Number = 0.0
    virtual_pipeline: Number = 1.0  # interleaved stages per rank
    shard_in_node: Number = 0.0  # 1 = shards stay inside a node, replicated over nodes (hybrid sharding)

    def take(self, index: NDArray[np.intp] | slice | int) -> Plan:
        """The plan at one place, or flat arrays of the plans at several, from flat arrays of plans."""
        return Plan(**{name: _take(getattr(self, name), index) for name in self.__slots__})


def _take(value: Number, index: NDArray[np.intp] | slice | int) -> Number:
    array = np.asarray(value, dtype=np.float64)
    picked = array if array.ndim == 0 else array.ravel()[index]
    return float(picked) if np.ndim(picked) == 0 else picked
