"""Where each shape's best plan sits under its card's roof: work per byte moved, reached and possible rates; typical."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.fit import Fit, typical
from gpuguide.estimate.results import PARTS, MemoryBreakdown, ServingSpeed, TrainingSpeed
from gpuguide.estimate.roofline import decode_bytes, training_bytes
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob, TrainingJob
from gpuguide.spec.model import Model
from gpuguide.units import Number

Floats = NDArray[np.float64]


def training_roof(job: TrainingJob, fit: Fit, speed: TrainingSpeed) -> dict[str, Floats]:
    """Roofline of a whole training step; typical."""
    entries, precision = len(fit.shape), job.recipe.compute_precision
    flops = typical(speed.mfu, entries) * _peak(fit.nodes, "bf16" if precision in ("bf16", "fp8", "fp4") else precision)
    micro_batches = np.ceil(job.global_batch / (fit.plan.data_parallel * fit.plan.micro_batch))
    moved = training_bytes(memory=_memory(fit), micro_batches=micro_batches)
    return _roof(fit.nodes, precision, flops, flops * typical(speed.step_s, entries) / moved)


def serving_roof(
    model: Model, job: ServingJob, fit: Fit, speed: ServingSpeed, tokens_per_s: Floats
) -> dict[str, Floats]:
    """Roofline of decoding: one token for each running request from one reading of weights and cache."""
    split = fit.plan.tensor_parallel * fit.plan.pipeline_parallel
    work = 2.0 * model.params_active
    intensity = work * typical(speed.running, len(fit.shape)) / split / decode_bytes(memory=_memory(fit))
    return _roof(fit.nodes, job.weight_format.compute_precision, work * tokens_per_s / fit.nodes.gpus, intensity)


def _roof(nodes: Nodes, precision: str, achieved_flops_per_s: Floats, intensity: Number) -> dict[str, Floats]:
    return {
        "intensity_flop_per_byte": np.asarray(intensity, dtype=np.float64),
        "achieved_flops_per_s": achieved_flops_per_s,
        "peak_flops_per_s": _peak(nodes, precision),
        "memory_bandwidth_bytes_per_s": nodes.memory_bandwidth_bytes_per_s,
    }


def _peak(nodes: Nodes, precision: str) -> Floats:
    """Dense rate of a precision, of 16 bit where the card has none of its own. [FLOP/s]"""
    rate = nodes.flops[precision]
    for fallback in ("bf16", "fp16", "fp32"):
        rate = np.where(np.isnan(rate), nodes.flops[fallback], rate)
    return rate


def _memory(fit: Fit) -> MemoryBreakdown:
    """Parts of the best plans, one entry per shape."""
    return MemoryBreakdown(**{part: typical(getattr(fit.memory, part), len(fit.shape)) for part in PARTS})
