"""
How long a run takes, and what share of it is paid, on machines that can be taken away or fail.

Interruptions are a Poisson process. Work proceeds in segments that end with a checkpoint; an interruption throws the
run back to the last one, unless the provider's notice was long enough to write another. Then the run waits for a
machine (not billed) and restarts (billed, and itself interruptible). The means are exact; `finish` has the
distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LONGEST_EXPONENT = 500.0
"""exp of more overflows once squared; a run that needs so many attempts never ends."""


NEVER_PER_S = 1e-30
"""Less than once in the age of the universe; its reciprocal would still be a number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Expected times of one run; every array has the inputs' common shape, such as (band, offer)."""

    billed_s: Floats  # machine time: work, checkpoints, starts, lost work, restarts
    wall_s: Floats  # the same and waiting for machines
    interruptions: Floats  # expected number
    checkpoint_interval_s: Floats  # work between checkpoints
    checkpoints: Floats  # written, the last one included
    shortest_s: Floats  # without any interruption
    last_checkpoints: NDArray[np.bool_]  # the notice is used for a last checkpoint
    # what it was computed from, one session's segments summed over all sessions
    segments: tuple[tuple[Floats, Floats], ...]  # how many, how long with the checkpoint
    start_s: Floats
    starts: Floats
    restart_s: Floats
    checkpoint_s: Floats
    wait_s: Floats
    rate_per_s: Floats
    saved_share: Floats


def optimal_interval_s(*, checkpoint_s: Floats, mean_time_between_s: Floats) -> Floats:
    """
    Work between two checkpoints that makes the expected time least.

    Parameters
    ----------
    checkpoint_s : array
        Time that writing one checkpoint stops the run. [s]
    mean_time_between_s : array
        Mean time between interruptions of the whole run that lose work; may be infinite. [s]

    Returns
    -------
    array
        [s]; infinite where nothing interrupts.

    Notes
    -----
    Source: Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", equation 37:
    sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 18M) - d for d < 2M, else M; made exact by Newton steps on the
    derivative of the expected time, exp(y + d/M) (y - 1) + 1 = 0 with y = interval / M.
    """
    checkpoint, mean = np.broadcast_arrays(
        np.asarray(checkpoint_s, dtype=np.float64), np.asarray(mean_time_between_s, dtype=np.float64)
    )
    finite = np.isfinite(mean)
    between = np.where(finite, mean, 1.0)
    half = np.minimum(checkpoint / (2.0 * between), 1.0)
    daly = np.where(
        half < 1.0,
        np.sqrt(2.0 * checkpoint * between) * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - checkpoint,
        between,
    )
    share = np.maximum(daly / between, 1e-12)
    written = checkpoint / between
    for _ in range(3):
        step = (share - 1.0 + np.exp(-np.minimum(share + written, LONGEST_EXPONENT))) / share
        share = np.clip(share - step, share / 4.0, 1.0)
    return np.where(finite, np.where(checkpoint > 0, share * between, 0.0), np.inf)


def expected_run(
    *,
    work_s: Floats,
    checkpoint_s: Floats,
    start_s: Floats,
    restart_s: Floats,
    wait_s: Floats,
    rate_per_s: Floats,
    notice_s: Floats,
    noticed_share: Floats,
    interval_s: float | None = None,
    sessions: float = 1.0,
    keeps_everything: bool = False,
) -> Run:
    """
    Expected time of a run that can be interrupted.

    Parameters
    ----------
    work_s : array
        Useful work of all sessions. [s]
    checkpoint_s : array
        Time that writing one checkpoint stops the run. [s]
    start_s : array
        From starting a machine to the first useful second. [s]
    restart_s : array
        The same after an interruption, loading the checkpoint included. [s]
    wait_s : array
        Mean wait for a machine after an interruption; exponential. [s]
    rate_per_s : array
        Interruptions of the whole run, all its machines together. [1/s]
    notice_s : array
        Warning before an interruption; 0 = none. [s]
    noticed_share : array
        Share of interruptions that come with the notice and whose last checkpoint succeeds. [-]
    interval_s : number, optional
        Work between checkpoints; optimal when left out. [s]
    sessions : number
        Equal parts in which the work is done, each with its own start. [-]
    keeps_everything : bool
        Finished items are kept one by one, as when generating images: nothing but the start is lost.

    Returns
    -------
    Run

    Notes
    -----
    With rate r, of which u lose work, segments of length s (checkpoint d included) and restarts R:
    time in work A = (exp(u s) - 1) / u, interruptions r A exp(r R), billed time A (exp(r R) + (r - u) d).
    Without notice this is Daly's exp(R/M) (exp(s/M) - 1) M. The notice is used only where that is better.
    Source: Daly 2006, equation 20; `docs/formulas.md`, "Interruptions".
    """
    work, write, start, restart, wait, rate, notice, noticed = np.broadcast_arrays(
        *(
            np.asarray(value, dtype=np.float64)
            for value in (work_s, checkpoint_s, start_s, restart_s, wait_s, rate_per_s, notice_s, noticed_share)
        )
    )
    if keeps_everything:
        zero, one = np.zeros_like(work), np.ones_like(work)
        return _run(work, zero, start, restart, wait, rate, one, one, interval_s=None, sessions=sessions)
    part = work / sessions
    plain_count = _segments_of(part, write, rate, interval_s)
    plain = _run(work, write, start, restart, wait, rate, np.zeros_like(work), plain_count, interval_s, sessions)
    saved = np.where(notice >= write, noticed, 0.0)
    if not np.any(saved > 0):
        return plain
    noticed_count = _segments_of(part, write, rate * (1.0 - saved), interval_s)
    with_notice = _run(work, write, start, restart, wait, rate, saved, noticed_count, interval_s, sessions)
    return _better(with_notice, plain)


def _segments_of(part: Floats, write: Floats, losing_rate: Floats, interval_s: float | None) -> Floats:
    """Segments of one session, whole where the interval is free."""
    if interval_s is not None:
        return np.maximum(part / interval_s, 1e-300)
    happens = losing_rate > NEVER_PER_S
    between = np.where(happens, 1.0 / np.where(happens, losing_rate, 1.0), np.inf)
    interval = optimal_interval_s(checkpoint_s=write, mean_time_between_s=between)
    ideal = part / np.maximum(interval, 1.0)  # never more than one checkpoint a second of work
    fewer = np.maximum(np.floor(ideal), 1.0)
    more = fewer + 1.0
    # The expected time is convex in the count, so that the best whole number is one of the two neighbours.
    rest = np.where(ideal > 1.0, 0.0, np.inf)
    time_fewer = fewer * _work_time(part / fewer + write, losing_rate)
    time_more = more * _work_time(part / more + write, losing_rate) + rest
    return np.where(time_more < time_fewer, more, fewer)


def _work_time(length: Floats, losing_rate: Floats) -> Floats:
    """Mean time in work until one segment is done. [s]"""
    exponent = np.minimum(losing_rate * length, LONGEST_EXPONENT)
    tiny = exponent < 1e-12
    return length * np.where(tiny, 1.0, np.expm1(exponent) / np.where(tiny, 1.0, exponent))


def _run(
    work: Floats,
    write: Floats,
    start: Floats,
    restart: Floats,
    wait: Floats,
    rate: Floats,
    saved: Floats,
    count: Floats,
    interval_s: float | None,
    sessions: float,
) -> Run:
    part = work / sessions
    losing = rate * (1.0 - saved)
    segments: tuple[tuple[Floats, Floats], ...]
    if interval_s is None:
        interval = part / count
        segments = ((sessions * count, interval + write),)
    else:
        interval = np.minimum(part, interval_s)
        whole = np.floor(count * (1.0 + 1e-12))
        rest = np.maximum(part - whole * interval_s, 0.0)
        has_rest = rest > 1e-9 * part
        segments = (
            (sessions * whole, np.full_like(part, interval_s) + write),
            (sessions * np.where(has_rest, 1.0, 0.0), rest + write),
        )
    in_work = sum((many * _work_time(length, losing) for many, length in segments), start=np.zeros_like(work))
    restarting = np.exp(np.minimum(rate * restart, LONGEST_EXPONENT))
    starting = np.expm1(np.minimum(rate * start, LONGEST_EXPONENT))
    billed = in_work * (restarting + rate * saved * write) + sessions * _work_time(start, rate)
    interruptions = rate * in_work * restarting + sessions * starting
    checkpoints = sum((many for many, _ in segments), start=np.zeros_like(work))
    return Run(
        billed_s=billed,
        wall_s=billed + interruptions * wait,
        interruptions=interruptions,
        checkpoint_interval_s=interval,
        checkpoints=checkpoints,
        shortest_s=work + checkpoints * write + sessions * start,
        last_checkpoints=saved > 0,
        segments=segments,
        start_s=start,
        starts=np.full_like(work, sessions),
        restart_s=restart,
        checkpoint_s=write,
        wait_s=wait,
        rate_per_s=rate,
        saved_share=saved,
    )


def _better(first: Run, second: Run) -> Run:
    """Place by place the run with less billed time."""
    take = first.billed_s <= second.billed_s

    def chosen(name: str) -> Floats:
        picked: Floats = np.where(take, getattr(first, name), getattr(second, name))
        return picked

    segments = tuple(
        (np.where(take, many, other), np.where(take, length, other_length))
        for (many, length), (other, other_length) in zip(first.segments, second.segments, strict=True)
    )
    names = [name for name in Run.__slots__ if name not in ("segments", "last_checkpoints")]
    return Run(
        segments=segments,
        last_checkpoints=take & first.last_checkpoints,
        **{name: chosen(name) for name in names},
    )
