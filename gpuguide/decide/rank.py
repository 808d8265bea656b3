"""Order of offers: the scenario's preference, with what fits before what is tight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def order(
    *,
    fit: NDArray[np.int_],
    cost_usd: Floats,
    time: Floats,
    age_days: Floats,
    preference: str,
    point: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """
    Places of offers from best to worst.

    Parameters
    ----------
    fit : array of int, shape (offers,)
        0 fits, 1 tight; what is tight comes after everything that fits.
    cost_usd, time : array, shape (offers,)
        Typical total cost and time: hours of a run, seconds per token when serving.
    age_days : array
        Breaks ties: of two equal prices the younger is likelier to be true. [days]
    preference : str
        cheapest, fastest, or balanced (least product of cost and time, so that halving either counts the same).
    point : array of int, optional
        Question that each offer answers: those of one stay together, in rising order.
    """
    with np.errstate(divide="ignore"):
        key = {"cheapest": cost_usd, "fastest": time, "balanced": np.log(cost_usd) + np.log(time)}[preference]
    second = cost_usd if preference == "fastest" else time
    keys = (age_days, second, np.nan_to_num(key, nan=np.inf), fit)
    return np.lexsort(keys if point is None else (*keys, point))
