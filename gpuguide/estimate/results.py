"""What the estimates return; numeric fields broadcast to (band, plan, node), band = least, typical, most needed."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gpuguide.units import Number


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBreakdown:
    """Memory of the fullest GPU at the moment it is fullest, by parts that sum to `total`. [bytes]"""

    weights: Number = 0.0
    gradients: Number = 0.0
    optimizer: Number = 0.0
    activations: Number = 0.0
    logits: Number = 0.0
    kv_cache: Number = 0.0
    buffers: Number = 0.0  # gathered layers, reduce buckets, dequantised temporaries, engine workspace
    reserved: Number = 0.0  # context, communication library, allocator reserve
    phase: Number = 0.0  # place in PHASES of the moment that is fullest

    @property
    def total(self) -> Number:
        """Sum of the parts. [bytes]"""
        return sum((getattr(self, part) for part in PARTS), start=0.0)


PARTS = tuple(field.name for field in fields(MemoryBreakdown) if field.name != "phase")
PHASES = ("forward", "backward", "step", "serve", "encode", "denoise", "decode", "load")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSpeed:
    """Time of one optimizer step by what it is spent on; exposed parts only, so that they sum to `step_s`."""

    compute_s: Number  # matrix multiplications and attention
    memory_bound_s: Number  # norms, optimizer step, small kernels
    tensor_parallel_s: Number
    pipeline_bubble_s: Number
    data_parallel_s: Number
    expert_parallel_s: Number
    offload_s: Number
    step_s: Number
    tokens_per_s: Number  # all GPUs together
    mfu: Number  # model FLOPs (no recompute) over the bf16 peak
    bound: NDArray[np.object_]  # what takes most of the step: compute, memory, interconnect, storage


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingSpeed:
    """Latency and throughput of all replicas together at the job's concurrency, or at what fits if that is less."""

    ttft_s: Number
    tpot_s: Number
    prefill_tokens_per_s: Number
    tokens_per_s: Number  # output tokens, all GPUs together
    running: Number  # requests running at once per replica
    replicas: Number
    queue_s: Number  # mean wait for KV room
    bound: NDArray[np.object_]  # memory bandwidth, compute, kv_room, interconnect, overhead


@dataclass(frozen=True, kw_only=True, slots=True)
class MediaSpeed:
    """Time to make one batch, by phase."""

    encode_s: Number
    denoise_s: Number
    decode_s: Number
    batch_s: Number
    items_per_s: Number  # all GPUs together
    bound: NDArray[np.object_]
