"""
How fast a deployment serves: time to first token, time per token, tokens per second, and what binds.

All replicas share the load evenly. A replica runs as many requests as its cache room holds; the rest queue.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuguide.estimate import decode, kv_cache, prefill, queueing
from gpuguide.estimate.results import ServingSpeed
from gpuguide.estimate.serving_links import Reduce, attention_layout, reduce_of
from gpuguide.estimate.serving_rates import Rates, rates
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import BANDS, Number

ROOM_SHARE = 0.95
"""Part of the room that sequences fill: the last page of each is half empty, and some are admitted late. [-]"""
LIMITED = ("vllm", "tensorrt-llm")
"""Families whose scheduler starts with a fixed limit of running requests; others derive it from the cache room."""
ROUNDS = 2
"""Steps of the search for the batch at a given request rate: the stay is nearly a straight line in the batch."""
BUSIEST = 0.98
"""Share of its highest rate that a replica under open load is run at when more arrives. [-]"""


def serving_speed(
    *, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions, kv_room_bytes: Number
) -> ServingSpeed:
    """
    Latency and throughput at the job's load.

    Parameters
    ----------
    model : Model
        What is served.
    job : ServingJob
        Formats, lengths and load; numeric fields may be arrays of shape (plan, 1).
    plan : Plan
        Fields of shape (plan, 1); `data_parallel` is the number of replicas. Where `expert_parallel` exceeds
        `tensor_parallel`, replicas share one set of experts (attention data parallel).
    nodes : Nodes
        Machine shapes, (node,).
    assumptions : Assumptions
        Rows `serving_speed_*` and `network_*`.
    kv_room_bytes : number or array
        Room for the cache on each GPU. [bytes]

    Returns
    -------
    ServingSpeed
        Fields of shape (band, plan, node); band 0 is the fastest.

    Notes
    -----
    Source: `docs/formulas.md`, "Serving speed".
    """
    replicas = plan.data_parallel
    most = most_running(model=model, job=job, plan=plan, nodes=nodes, kv_room_bytes=kv_room_bytes)
    load = _loaded(model, job, plan, nodes, assumptions)
    if job.requests_per_s is None:
        wanted = np.asarray(job.concurrency / replicas, dtype=np.float64)
        running: Number = np.minimum(wanted, most)
        state = load.at(running)
        short = wanted > most
        queue = (
            queueing.queue_s(waiting=wanted - running, running=running, stay_s=state.stay_s) if np.any(short) else 0.0
        )
    else:
        arriving = job.requests_per_s / replicas
        state, running, queue, short = _open(load, arriving, most)
    first = np.asarray(state.first_s + queue)
    shape = np.broadcast_shapes(first.shape, np.shape(running))
    rate_tokens = running / state.stay_s * job.output_tokens
    return ServingSpeed(
        ttft_s=_in_order(first),
        tpot_s=state.token_s,
        prefill_tokens_per_s=np.asarray(
            job.prompt_tokens / load.prompt.shared_s * load.groups * replicas, dtype=np.float64
        ),
        tokens_per_s=rate_tokens * replicas,
        running=np.broadcast_to(running, shape),
        replicas=np.broadcast_to(replicas, shape),
        queue_s=np.broadcast_to(queue, shape),
        bound=queueing.binding(step=state.step, prefill_share_s=state.token_s - state.step_s, short_of_room=short),
    )


def most_running(*, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, kv_room_bytes: Number) -> Number:
    """
    Requests that a replica runs at once: what its cache room holds at their mean length, within the scheduler's limit.

    Notes
    -----
    Paged caches grow with the answer: a request holds its prompt and on average half of its answer. At least one is
    assumed to run; whether it fits is asked elsewhere. A stage of a pipeline holds its layers of every running request.
    """
    length = job.prompt_tokens + job.output_tokens / 2.0
    tensor, sharing = attention_layout(job=job, plan=plan)
    whole = kv_cache.cache_bytes_per_sequence(
        model=model, tokens=length, bytes_per_element=job.kv_bytes_per_element, policy=job.engine.window_policy,
        chunk_tokens=job.engine.prefill_tokens, page_tokens=job.engine.page_tokens,
    )  # fmt: skip
    each = whole * kv_cache.rank_share(model=model, tensor_parallel=tensor)
    room = np.maximum(np.floor(ROOM_SHARE * kv_room_bytes * plan.pipeline_parallel / np.maximum(each, 1.0)), 1.0)
    limit: Number = np.inf
    if job.max_sequences is not None:
        limit = job.max_sequences
    elif job.engine.family in LIMITED:
        limit = job.engine.sequences_on(nodes.memory_bytes, nodes.architecture)
    groups = sharing if job.attention_data_parallel else 1.0
    return groups * np.minimum(room, np.maximum(limit, 1.0))


def _in_order(seconds: Floats) -> Floats:
    """
    Times whose ends are on their sides of the typical one.

    The shorter a request stays, the busier the others keep the prompts: where answers are a few tokens long, that can
    outweigh what the faster end gains.
    """
    if len(seconds) < len(BANDS):
        return seconds
    least, typical, most = seconds
    return np.stack([np.minimum(least, typical), typical, np.maximum(typical, most)])


def largest_concurrency_within(
    *,
    model: Model,
    job: ServingJob,
    plan: Plan,
    nodes: Nodes,
    assumptions: Assumptions,
    kv_room_bytes: Number,
    max_tpot_s: float | None = None,
    max_ttft_s: float | None = None,
) -> Floats:
    """
    Most requests at once, over all replicas, at which both latencies are kept and nobody queues for cache room.

    Parameters
    ----------
    max_tpot_s, max_ttft_s : float, optional
        Longest time per token and to the first token; the job's own where left out; no limit where it has none. [s]

    Returns
    -------
    array, shape (band, plan, node)
        0 where a single request is too slow. [requests]

    Notes
    -----
    Latencies grow with the batch: they are taken at powers of two and interpolated between. Other parameters as for
    `serving_speed`.
    """
    tpot = job.max_tpot_s if max_tpot_s is None else max_tpot_s
    ttft = job.max_ttft_s if max_ttft_s is None else max_ttft_s
    load = _loaded(model, job, plan, nodes, assumptions)
    most = np.asarray(most_running(model=model, job=job, plan=plan, nodes=nodes, kv_room_bytes=kv_room_bytes))
    top = float(np.clip(np.max(most[np.isfinite(most)], initial=1.0), 1.0, GRID_TOP))
    best: Number = 0.0
    excess_before: Number | None = None
    size_before = 0.0
    for size in np.unique(np.append(2.0 ** np.arange(np.ceil(np.log2(top))), top)):
        state = load.at(np.asarray(size))
        excess: Number = np.maximum(state.token_s / (tpot or np.inf), state.first_s / (ttft or np.inf)) - 1.0
        crossing: Number = 0.0
        if excess_before is not None:
            # Where the limit is crossed between two sizes, as far as a straight line says.
            part = -excess_before / np.where(excess > excess_before, excess - excess_before, np.inf)
            crossing = np.where(excess_before <= 0, size_before + part * (size - size_before), 0.0)
        best = np.where(excess <= 0, size, np.maximum(best, crossing))
        excess_before, size_before = excess, float(size)
    return np.asarray(np.minimum(best, most) * plan.data_parallel, dtype=np.float64)


GRID_TOP = 4096.0
"""Largest batch of one replica that is looked at. [requests]"""


def _loaded(model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> _Load:
    known = rates(model=model, job=job, nodes=nodes, assumptions=assumptions)
    reduce = reduce_of(job=job, plan=plan, nodes=nodes, assumptions=assumptions)
    prompt = prefill.prompt_time(
        tokens=job.prompt_tokens, model=model, job=job, plan=plan, nodes=nodes, known=known, reduce=reduce,
        assumptions=assumptions,
    )  # fmt: skip
    return _Load(model, job, plan, nodes, assumptions, known, reduce, prompt)


def _open(load: _Load, arriving: Number, most: Number) -> tuple[_State, Number, Number, NDArray[np.bool_]]:
    """
    State, running requests, mean wait and overload of a replica at a rate of requests.

    Notes
    -----
    Little's law, requests = rate x stay, with the stay of one that finds the others there; solved by false position
    between one request and the most there is room for. The wait is Sakasegawa's for as many servers as there is room
    for: busy ^ sqrt(2 (servers + 1)) / (1 - busy) x stay / servers. Source: Sakasegawa 1977, Ann. Inst. Stat. Math. 29.
    """
    alone, full = load.at(np.ones(1)), load.at(most)
    highest = most / full.stay_s
    rate = np.minimum(arriving, BUSIEST * highest)
    low, low_miss = np.ones(1), rate * alone.stay_s
    high, high_miss = most, rate * full.stay_s - (most - 1.0)
    for _ in range(ROUNDS):
        seen = np.clip(low + (high - low) * low_miss / np.maximum(low_miss - high_miss, 1e-12), 1.0, most)
        miss = rate * load.at(seen).stay_s - (seen - 1.0)
        above = miss > 0
        low, low_miss = np.where(above, seen, low), np.where(above, miss, low_miss)
        high, high_miss = np.where(above, high, seen), np.where(above, high_miss, miss)
    seen = np.clip(low + (high - low) * low_miss / np.maximum(low_miss - high_miss, 1e-12), 1.0, most)
    state = load.at(seen)
    running = np.minimum(rate * state.stay_s, most)
    busy = rate / highest
    over = np.asarray(arriving > highest)
    wait = busy ** np.sqrt(2.0 * (most + 1.0)) / (1.0 - busy) * full.stay_s / most
    return state, running, np.where(over, np.inf, wait), over


class _State:
    """What a replica does at one batch."""

    __slots__ = ("first_s", "stay_s", "step", "step_s", "token_s")

    def __init__(self, step: decode.Step, step_s: Number, token_s: Number, first_s: Number, stay_s: Number) -> None:
        self.step, self.step_s, self.token_s, self.first_s, self.stay_s = step, step_s, token_s, first_s, stay_s


class _Load:
    """A model on its plans and shapes, asked at different batches."""

    def __init__(
        self, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions,
        known: Rates, reduce: Reduce | None, prompt: prefill.Prompt,
    ) -> None:  # fmt: skip
        self.model, self.job, self.plan, self.nodes, self.assumptions = model, job, plan, nodes, assumptions
        self.known, self.reduce, self.prompt = known, reduce, prompt
        _, sharing = attention_layout(job=job, plan=plan)
        self.groups = sharing if job.attention_data_parallel else 1.0  # each takes its own prompts

    def step(self, running: Number) -> decode.Step:
        """One decode step with the given number of requests."""
        job = self.job
        return decode.decode_step(
            running=running, context=job.prompt_tokens + job.output_tokens / 2.0, model=self.model, job=job,
            plan=self.plan, nodes=self.nodes, known=self.known, reduce=self.reduce, assumptions=self.assumptions,
        )  # fmt: skip

    def at(self, running: Number) -> _State:
        """Times with the given number of requests in prefill or decode."""
        job, local = self.job, running / self.groups
        step = self.step(running)
        step_s = step.total / (1.0 + job.speculative_tokens)
        served_s = queueing.admitted_s(prefill_s=self.prompt.alone_s, step_s=step_s)
        token_s = queueing.time_per_token_s(
            step_s=step_s,
            prefill_s=self.prompt.shared_s,
            running=local,
            output_tokens=job.output_tokens,
            first_s=served_s,
        )
        admitted_s = served_s + self.assumptions["serving_speed_arrival_s"]
        stay_s = admitted_s + np.maximum(job.output_tokens - 1.0, 0.0) * token_s
        first_s = admitted_s + queueing.prompts_ahead_s(
            prefill_s=self.prompt.shared_s, running=local, stay_s=stay_s, burst=self.assumptions["serving_speed_burst"]
        )
        return _State(step, step_s, token_s, first_s, stay_s)


def prompt_s(*, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Floats:
    """Time from a prompt's start to its first token on an otherwise idle replica, (band, plan, node). [s]"""
    return _loaded(model, job, plan, nodes, assumptions).prompt.alone_s


def static_batch_tokens_per_s(
    *, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> Floats:
    """
    Output rate of a batch that starts and ends together: all prompts, then all steps, (band, plan, node). [tokens/s]

    Notes
    -----
    The batch is the job's concurrency; whether its cache fits is not asked.
    """
    load = _loaded(model, job, plan, nodes, assumptions)
    start = prefill.prompt_time(
        tokens=job.prompt_tokens, prompts=job.concurrency, model=model, job=job, plan=plan, nodes=nodes,
        known=load.known, reduce=load.reduce, assumptions=assumptions,
    )  # fmt: skip
    steps = job.output_tokens / (1.0 + job.speculative_tokens)
    seconds = start.alone_s + steps * load.step(job.concurrency).total
    return np.asarray(job.concurrency * job.output_tokens / seconds, dtype=np.float64)
