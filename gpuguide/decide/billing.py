"""What a used second costs: billing steps, minimum charges, tiered transfer, stored gigabytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuguide.units import HOURS_PER_MONTH, Number

Floats = NDArray[np.float64]

RELATIVE_DUST = 1e-9
"""3600.0000001 s is one hour: a part of a step smaller than this share of the used time is arithmetic, not use."""


def billed_seconds(*, used_s: Number, granularity_s: Number, minimum_s: Number) -> Floats:
    """
    Time on the bill for one start of a machine.

    Parameters
    ----------
    used_s : number or array
        From start to stop. [s]
    granularity_s : number or array
        Step in which the provider bills: 1 per second, 60 per minute, 3600 per started hour. [s]
    minimum_s : number or array
        Least time billed for one start. [s]

    Returns
    -------
    array
        [s]

    Notes
    -----
    Started steps are billed whole. Source: AWS, Google Cloud (1 s, 60 s minimum), Lambda (1 min); `docs/formulas.md`,
    "Billing".

    Examples
    --------
    >>> float(billed_seconds(used_s=61.0, granularity_s=60.0, minimum_s=0.0))
    120.0
    """
    used = np.asarray(used_s, dtype=np.float64)
    steps = np.ceil(used / granularity_s * (1.0 - RELATIVE_DUST))
    return np.maximum(steps * granularity_s, np.where(used > 0, minimum_s, 0.0)) + 0.0


def rounding_after_interruption(*, rate_per_s: Number, granularity_s: Number) -> Floats:
    """
    Mean time that is billed but not used when a machine is taken away at a random moment.

    Parameters
    ----------
    rate_per_s : number or array
        Interruptions per second of use. [1/s]
    granularity_s : number or array
        Billing step. [s]

    Returns
    -------
    array
        Half a step where interruptions are rare, up to a whole one. [s]

    Notes
    -----
    The life of the machine is exponential, its bill the life rounded up: g / (1 - exp(-rate g)) - 1 / rate.
    """
    rate, step = np.broadcast_arrays(
        np.asarray(rate_per_s, dtype=np.float64), np.asarray(granularity_s, dtype=np.float64)
    )
    product = rate * step
    rare = product < 1e-4  # the two terms cancel; series to second order
    safe = np.where(rare, 1.0, product)
    exact = np.where(rare, 1.0, step) * (-1.0 / np.expm1(-safe) - 1.0 / safe)
    return np.where(rare, step * (0.5 + product / 12.0), exact)


def egress_usd(*, egress_gb: Number, free_gb: Floats, first_usd_per_gb: Floats, steps: Floats) -> Floats:
    """
    Cost of data taken out in one month, by tiers.

    Parameters
    ----------
    egress_gb : number or array
        Data out. [GB]
    free_gb : array, shape (offer,)
        Allowance a month; the tiers count from the first gigabyte, the free ones included. [GB]
    first_usd_per_gb : array, shape (offer,)
        Rate of the first tier. [USD/GB]
    steps : array, shape (tier, 2, offer)
        For each further tier, where it starts [GB] and its rate [USD/GB]; nan = no such tier.

    Returns
    -------
    array
        [USD]

    Examples
    --------
    100 GB free, then 0.09 up to 10 TB, then 0.085 (AWS, us-east-1):

    >>> tiers = np.array([[[10_240.0], [0.085]]])
    >>> round(
    ...     float(
    ...         egress_usd(egress_gb=20_480, free_gb=np.array([100.0]), first_usd_per_gb=np.array([0.09]), steps=tiers)[
    ...             0
    ...         ]
    ...     ),
    ...     2,
    ... )
    1783.0
    """
    total = np.asarray(egress_gb, dtype=np.float64)
    cost = np.maximum(total - free_gb, 0.0) * first_usd_per_gb
    rate = first_usd_per_gb
    for start, next_rate in steps:
        has = np.isfinite(start)
        beyond = np.where(has, np.maximum(total - np.maximum(np.where(has, start, 0.0), free_gb), 0.0), 0.0)
        cost = cost + beyond * (np.where(has, next_rate, 0.0) - np.where(has, rate, 0.0))
        rate = np.where(has, next_rate, rate)
    return cost + 0.0


def stored_usd(*, stored_gb: Number, hours: Number, usd_per_gb_month: Number) -> Number:
    """
    Cost of a volume that exists for some hours, running or stopped.

    Parameters
    ----------
    stored_gb : number or array
        Size of the volume. [GB]
    hours : number or array
        Time it exists. [h]
    usd_per_gb_month : number or array
        [USD/GB/month]

    Returns
    -------
    number or array
        [USD]
    """
    return stored_gb * usd_per_gb_month * hours / HOURS_PER_MONTH
