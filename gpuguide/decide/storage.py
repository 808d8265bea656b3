"""
Whether the data keeps up with the GPUs: bytes a run reads per second against what volumes, drives and buckets give.

A run starves when its machines together read less per second than their GPUs consume; it takes longer by the ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuguide.errors import InvalidScenario
from gpuguide.spec.assumptions import Assumptions
from gpuguide.units import Number

Floats = NDArray[np.float64]

SOURCES = ("volume", "nvme", "bucket")


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """Reading against consuming; axes (band, offer)."""

    needed_bytes_per_s: Floats  # all machines together, at full speed
    available_bytes_per_s: Floats  # all machines together
    slow_down: Floats  # time with this storage over time without limit, 1 or more

    @property
    def starves(self) -> NDArray[np.bool_]:
        """Whether the typical case is slowed by more than a tenth of a percent."""
        return np.asarray(self.slow_down > 1.001)


def needed_bytes_per_s(*, per_s: Number, bytes_each: Number) -> Floats:
    """
    What a run reads at full speed.

    Parameters
    ----------
    per_s : number or array, shape (band, offer)
        Tokens, images or clips consumed per second by all GPUs. [1/s]
    bytes_each : number or array
        Stored size of one as it is read. [bytes]

    Returns
    -------
    array
        [bytes/s]
    """
    return np.asarray(per_s, dtype=np.float64) * bytes_each


def feed(
    *,
    needed_bytes_per_s: Number,
    nodes: Number,
    source: str,
    assumptions: Assumptions,
    rate_bytes_per_s: Number | None = None,
) -> Feed:
    """
    How much a run is slowed by the storage it reads from.

    Parameters
    ----------
    needed_bytes_per_s : number or array, shape (band, offer)
        At full speed, all machines. [bytes/s]
    nodes : number or array, shape (offer,)
        Machines reading at once, each at its own rate. [-]
    source : str
        'volume' (network volume), 'nvme' (local drives, data copied there first) or 'bucket' (object storage).
    assumptions : Assumptions
        `storage_*_bytes_per_s`, the rate of one machine.
    rate_bytes_per_s : number or array, optional
        A known rate of one machine, instead of the assumption. [bytes/s]

    Returns
    -------
    Feed

    Raises
    ------
    InvalidScenario
        If the source is none of the three.

    Notes
    -----
    Reading overlaps with computing, so that the slower of the two sets the pace. Source: `docs/formulas.md`, "Storage".
    """
    if source not in SOURCES:
        raise InvalidScenario("source", source, f"choose from {', '.join(SOURCES)}")
    if rate_bytes_per_s is None:
        rate_bytes_per_s = assumptions[f"storage_{source}_bytes_per_s"][:, :, 0]
    needed, available = np.broadcast_arrays(
        np.asarray(needed_bytes_per_s, dtype=np.float64), np.asarray(rate_bytes_per_s * nodes, dtype=np.float64)
    )
    return Feed(
        needed_bytes_per_s=needed,
        available_bytes_per_s=available,
        slow_down=np.maximum(needed / available, 1.0),
    )


def checkpoint_write_s(*, checkpoint_bytes: Number, nodes: Number, assumptions: Assumptions) -> Floats:
    """
    Time that writing one checkpoint stops the run.

    Parameters
    ----------
    checkpoint_bytes : number or array
        Weights and optimizer states, or an adapter and its states. [bytes]
    nodes : number or array, shape (offer,)
        Machines that write their share at once. [-]
    assumptions : Assumptions
        `cost_checkpoint_write_bytes_per_s`, `cost_checkpoint_blocking_share`.

    Returns
    -------
    array, shape (band, offer)
        [s]
    """
    rate = assumptions["cost_checkpoint_write_bytes_per_s"][:, :, 0] * nodes
    blocking = assumptions["cost_checkpoint_blocking_share"][:, :, 0]
    seconds: Floats = np.asarray(checkpoint_bytes, dtype=np.float64) / rate * blocking
    return seconds
