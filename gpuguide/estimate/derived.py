"""Wider bands where a model's architecture was derived from its parameter count instead of read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpuguide.estimate.results import PARTS, MemoryBreakdown
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.model import Model


def memory_with_doubt(memory: MemoryBreakdown, *, model: Model, assumptions: Assumptions) -> MemoryBreakdown:
    """
    The breakdown as it is, or with each part's band widened for a derived architecture.

    Returns
    -------
    MemoryBreakdown
        [bytes]

    Notes
    -----
    Heads, MLP width and vocabulary of models of one size differ; the share is how far. Source: `data/assumptions.csv`,
    derived_memory_share.
    """
    if not model.derived:
        return memory
    share = assumptions["derived_memory_share"]
    return replace(memory, **{part: getattr(memory, part) * share for part in PARTS})


def time_doubt(*, model: Model, assumptions: Assumptions) -> NDArray[np.float64]:
    """
    Factor on times, by which rates are divided.

    Returns
    -------
    array, shape (band, 1)
        1 where the architecture was read. [-]
    """
    doubt: NDArray[np.float64] = assumptions["derived_time_share"][:, :, 0]
    return doubt if model.derived else np.ones_like(doubt)
