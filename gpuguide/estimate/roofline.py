"""
Where a job sits under the roof of a card: arithmetic per byte moved, against peak rate and memory bandwidth.

Left of the ridge (peak over bandwidth) memory sets the pace and matrix units wait; right of it they do the work.
"""

from __future__ import annotations

from gpuguide.estimate.results import MemoryBreakdown
from gpuguide.units import Number

WEIGHT_PASSES = 3.0
"""Forward, gradient of the inputs, gradient of the weights: each reads the weights once. [-]"""
ACTIVATION_PASSES = 2.0
"""Written in the forward pass, read in the backward pass. [-]"""
STEP_PASSES = 2.0
"""The optimizer reads and writes weights, gradients and states once per step. [-]"""


def training_bytes(*, memory: MemoryBreakdown, micro_batches: Number) -> Number:
    """
    Memory traffic of one GPU in one optimizer step.

    Parameters
    ----------
    memory : MemoryBreakdown
        Of one GPU. [bytes]
    micro_batches : number or array
        Passes per step. [-]

    Returns
    -------
    number or array
        [bytes]

    Notes
    -----
    Every part is moved as often as it is used; caches between registers and memory are left out, so the true traffic
    is somewhat higher. Source: Williams et al. 2009 (doi 10.1145/1498765.1498785); `docs/formulas.md`, "Roofline".
    """
    each_pass = WEIGHT_PASSES * memory.weights + ACTIVATION_PASSES * (memory.activations + memory.logits)
    return micro_batches * each_pass + STEP_PASSES * (memory.weights + memory.gradients + memory.optimizer)


def decode_bytes(*, memory: MemoryBreakdown) -> Number:
    """
    Memory traffic of one GPU in one decode step: weights and cache once.

    Parameters
    ----------
    memory : MemoryBreakdown
        Of one GPU. [bytes]

    Returns
    -------
    number or array
        [bytes]

    Notes
    -----
    Source: `docs/formulas.md`, "Roofline".
    """
    return memory.weights + memory.kv_cache


def ridge(*, peak_flops_per_s: Number, memory_bandwidth_bytes_per_s: Number) -> Number:
    """
    Arithmetic per byte from which matrix units are the limit.

    Returns
    -------
    number or array
        [FLOP/byte]

    Examples
    --------
    >>> round(ridge(peak_flops_per_s=989e12, memory_bandwidth_bytes_per_s=3.35e12))
    295
    """
    return peak_flops_per_s / memory_bandwidth_bytes_per_s
