"""Unit constants and the one numeric type: inside the package everything is bytes, seconds, FLOP/s, tokens and USD."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Number = float | NDArray[np.float64]
"""A scalar or an array; axes, where present, are (band, plan, node)."""

KIB, MIB, GIB, TIB = 2.0**10, 2.0**20, 2.0**30, 2.0**40  # [bytes]
KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12  # [bytes]
TFLOP = 1e12  # [FLOP]
BILLION = 1e9
MILLION = 1e6
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0  # [s]
HOURS_PER_MONTH = 730.0  # 365 days / 12 * 24 h, the convention of cloud price lists [h]

BANDS = ("low", "typical", "high")
"""First axis of every estimate: the least, the typical and the most memory, time or money a job may need."""
LOW, TYPICAL, HIGH = 0, 1, 2


def in_order(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """
    Low, typical and high of a banded quantity, for readers.

    The band axis begins with the least memory needed: a rate is highest there, and where fewer requests run at once for
    want of memory both ends may lie on one side. Typical stays typical, since ranks are made from it.

    Parameters
    ----------
    values : array, shape (band, ...)

    Returns
    -------
    array, shape (band, ...)

    Examples
    --------
    >>> in_order(np.array([9.0, 10.0, 8.0])).tolist()
    [8.0, 10.0, 10.0]
    """
    return np.stack([np.fmin.reduce(values, axis=0), values[TYPICAL], np.fmax.reduce(values, axis=0)])
