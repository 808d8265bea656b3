"""
When an interruptible run is done: the probability of a deadline.

What interruptions add to a run has a Laplace transform in closed form (geometric series of truncated exponentials);
inverting it numerically gives the distribution of the finish time without simulation. Where interruptions are many,
their sum is close to a gamma distribution, and the transform gives its mean and variance.
"""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.spot import LONGEST_EXPONENT, Run

Floats = NDArray[np.float64]
Complex = NDArray[np.complex128]

TERMS = 6
"""Terms of the Euler summation: about 0.6 TERMS digits where the distribution is wide."""
MANY = 100.0
"""Expected interruptions from which the gamma distribution is within 0.005; a narrow peak would need more terms."""
RARE = 2e-3
"""Probability of any interruption below which its effect on the answer is not worth computing."""


def probability_by(run: Run, deadline_s: float | Floats) -> Floats:
    """
    Probability that a run ends, waits included, no later than a deadline.

    Parameters
    ----------
    run : Run
        From `expected_run`.
    deadline_s : number or array
        From the first start. [s]

    Returns
    -------
    array, the shape of the run
        [-]

    Notes
    -----
    Only places in doubt are inverted: not those that cannot be in time, that are hardly ever interrupted, or whose
    deadline is far beyond the mean. Error below 0.005 against simulation.
    """
    deadline = np.asarray(deadline_s, dtype=np.float64)
    slack = np.asarray(np.broadcast_to(deadline, run.wall_s.shape) - run.shortest_s, dtype=np.float64)
    hits = run.starts * run.start_s
    for many, length in run.segments:
        hits = hits + many * length
    none = np.exp(-np.minimum(run.rate_per_s * hits, LONGEST_EXPONENT))
    added = np.maximum(run.wall_s - run.shortest_s, 0.0)
    possible = slack >= -1e-9 * np.abs(deadline)
    generous = slack > np.where(run.interruptions > MANY, 4.0, 60.0) * added + 60.0 * run.wait_s
    answer = np.where(possible, np.where(generous, 1.0, none), 0.0)
    doubt = possible & (slack > 0) & ~generous & (none < 1.0 - RARE)
    often = doubt & (run.interruptions > MANY)
    if np.any(often):
        answer[often] = _gamma_in_time(run, often, slack[often], added[often])
    doubt &= ~often
    if np.any(doubt):
        answer[doubt] = none[doubt] + _interrupted_in_time(run, doubt, slack[doubt], none[doubt])
    return np.clip(answer, 0.0, 1.0)


def _gamma_in_time(run: Run, where: NDArray[np.bool_], slack: Floats, mean: Floats) -> Floats:
    """Gamma distribution of what interruptions add, by Wilson and Hilferty's cube root; variance as a difference."""
    h = 1e-3 / mean
    both = _log_transform(run, where, np.array([1.0, -1.0])[:, None] * (h + 0j)).real
    variance = np.maximum(both.sum(axis=0), 0.0) / h**2
    shape = mean**2 / np.maximum(variance, 1e-12 * mean**2)
    value: Floats = (np.cbrt(slack / mean) - 1.0 + 1.0 / (9.0 * shape)) * 3.0 * np.sqrt(shape)
    return _normal_cdf(value)


def _normal_cdf(z: Floats) -> Floats:
    """Abramowitz and Stegun 26.2.17, absolute error below 1e-7."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * np.minimum(np.abs(z), 38.0) ** 2) / np.sqrt(2.0 * np.pi) * series
    value: Floats = np.where(z > 0, 1.0 - tail, tail)
    return value


def _interrupted_in_time(run: Run, where: NDArray[np.bool_], slack: Floats, none: Floats) -> Floats:
    """
    P(at least one interruption, and what it adds stays within the slack).

    Source: Abate and Whitt 2006, "A unified framework for numerically inverting Laplace transforms", section 5 (Euler).
    """
    order = np.arange(2 * TERMS + 1)
    points = TERMS * np.log(10.0) / 3.0 + 1j * np.pi * order
    weight = np.ones(2 * TERMS + 1)
    weight[0], weight[-1] = 0.5, 2.0**-TERMS
    for k in range(1, TERMS):
        weight[2 * TERMS - k] = weight[2 * TERMS - k + 1] + 2.0**-TERMS * comb(TERMS, k)
    weight *= (-1.0) ** order * 10.0 ** (TERMS / 3.0)
    z = points[:, None] / slack
    transform = (np.exp(_log_transform(run, where, z)) - none) / points[:, None]
    total: Floats = weight @ transform.real
    return total


def _log_transform(run: Run, where: NDArray[np.bool_], z: Complex) -> Complex:
    """
    Logarithm of E[exp(-z X)], X being what interruptions add to the run.

    Coming back after an interruption is a wait and a restart that may fail and begin anew; inside a segment the time
    goes on after saved interruptions (each a pause) and begins anew after others. All are geometric series.
    """
    rate, saved, write = run.rate_per_s[where], run.saved_share[where], run.checkpoint_s[where]
    losing, keeping = rate * (1.0 - saved), rate * saved
    waited = 1.0 / (1.0 + z * run.wait_s[where])
    beat = z + rate

    def broken(stay: Complex) -> Complex:
        part: Complex = waited * rate * (1.0 - stay) / beat
        return part

    stay: Complex = np.exp(-beat * run.restart_s[where])
    back = waited * stay / (1.0 - broken(stay))
    start = run.start_s[where]
    stay = np.exp(-beat * start)
    result: Complex = np.asarray(run.starts[where] * (-rate * start - np.log(1.0 - broken(stay))), dtype=np.complex128)
    pause = keeping * (1.0 - back * np.exp(-z * write))
    drift = losing + pause
    for many, length in run.segments:
        count, long = many[where], length[where]
        fade = z + drift
        again = back * losing * (1.0 - np.exp(-fade * long)) / fade
        result = result + count * (-drift * long - np.log(1.0 - again))
    return result
