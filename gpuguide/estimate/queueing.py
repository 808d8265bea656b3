"""
How requests share a replica: batch, prefill between decode steps, waiting for cache room, first-token time.

A running request gains a token per step, and every request that ends makes room for a prompt, whose prefill all others
wait for. Little's law ties requests in the system to their rate and stay.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuguide.estimate.decode import Step
from gpuguide.units import Number


def time_per_token_s(
    *, step_s: Number, prefill_s: Number, running: Number, output_tokens: Number, first_s: Number
) -> Number:
    """
    Time between a request's tokens where others' prompts are taken in between.

    Parameters
    ----------
    step_s : number or array
        One decode step of the batch, per token. [s]
    prefill_s : number or array
        Time one prompt keeps the replica. [s]
    running : number or array
        Requests in prefill or decode. [requests]
    output_tokens : number or array
        Tokens of one answer. [tokens]
    first_s : number or array
        From a request's admission to its first token. [s]

    Returns
    -------
    number or array
        [s]

    Notes
    -----
    With t the answer, each of the others (running - 1) brings one prompt per stay of first_s + output t:
    t = step + t (running - 1) prefill / (first_s + output t), a quadratic in t. Without first_s it is
    step + (running - 1) prefill / output. Source: `docs/formulas.md`, "Continuous batching".
    """
    others = np.maximum(running - 1.0, 0.0) * prefill_s
    linear = first_s - others - output_tokens * step_s
    root = np.sqrt(linear * linear + 4.0 * output_tokens * step_s * first_s)
    return (root - linear) / (2.0 * output_tokens)


def admitted_s(*, prefill_s: Number, step_s: Number) -> Number:
    """From a request's admission to its first token: the step under way, then its prompt. [s]"""
    return 0.5 * step_s + prefill_s


def prompts_ahead_s(*, prefill_s: Number, running: Number, stay_s: Number, burst: Number) -> Number:
    """
    Wait for prompts of other requests. [s]

    Notes
    -----
    Two causes: requests that come while a prompt is taken, as in a queue with one server and equal service times,
    busy / (2 (1 - busy)) prompts; and requests that start together, of which `burst` of the others go first: 1/2 where
    all do so once, less where a run has several rounds. Source: `docs/formulas.md`, "Time to first token".
    """
    others = np.maximum(running - 1.0, 0.0)
    busy = np.minimum(others * prefill_s / np.maximum(stay_s, 1e-12), MOST_BUSY)
    return prefill_s * (busy / (2.0 * (1.0 - busy)) + burst * others)


MOST_BUSY = 0.9
"""Share of time with prompts beyond which the mean wait is not followed: engines then batch prompts. [-]"""


def queue_s(*, waiting: Number, running: Number, stay_s: Number) -> Number:
    """Mean wait of requests that find no room: those waiting over the rate at which running ones end. [s]"""
    return np.maximum(waiting, 0.0) * stay_s / np.maximum(running, 1e-9)


BOUNDS = ("memory bandwidth", "compute", "interconnect", "overhead", "kv_room")


def binding(*, step: Step, prefill_share_s: Number, short_of_room: Number | NDArray[np.bool_]) -> NDArray[np.object_]:
    """
    What most of a token's time goes to, or `kv_room` where requests wait for room.

    Parameters
    ----------
    step : Step
        Parts of a decode step. [s]
    prefill_share_s : number or array
        Others' prompts per token. [s]
    short_of_room : bool array
        Whether requests wait for cache room.
    """
    parts = (
        step.weights_s + step.cache_s,
        step.compute_s + prefill_share_s,
        step.tensor_parallel_s + step.expert_parallel_s,
        step.overhead_s,
    )
    most: Number = parts[0]
    place: NDArray[np.int8] = np.zeros(1, dtype=np.int8)
    for number, part in enumerate(parts[1:], start=1):
        place = np.where(part > most, np.int8(number), place)
        most = np.maximum(most, part)
    named: NDArray[np.object_] = np.take(_NAMES, np.where(short_of_room, np.int8(len(BOUNDS) - 1), place))
    return named


_NAMES = np.array(BOUNDS, dtype=object)
