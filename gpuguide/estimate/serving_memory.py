"""
What serving needs on the fullest GPU, and what room an engine leaves for the cache: the same parts read both ways.

An engine may take more than this at start (vLLM fills the card up to its setting); that is a reservation, not a need.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuguide.estimate import kv_cache
from gpuguide.estimate.results import PHASES, MemoryBreakdown
from gpuguide.estimate.serving_activations import (
    activation_peak_bytes,
    pass_tokens,
    sequences_per_rank,
    tensor_ranks,
)
from gpuguide.estimate.weights import weight_bytes_per_gpu
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import GIB, Number


def serving_memory(
    *, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> MemoryBreakdown:
    """
    Memory that serving needs on the fullest GPU.

    Parameters
    ----------
    model : Model
        Architecture.
    job : ServingJob
        Formats, lengths, concurrency over all replicas, engine.
    plan : Plan
        Degrees, shape (plan, 1), or flat pairs with the nodes.
    nodes : Nodes
        Machine shapes, shape (node,).
    assumptions : Assumptions
        Rows `serving_memory_*`.

    Returns
    -------
    MemoryBreakdown
        Arrays that broadcast to (band, plan, node): weights; the cache of the running sequences, one of them at the
        longest context; the engine's activation peak; CUDA graphs as buffers; context, libraries and communication as
        reserved. [bytes]

    Notes
    -----
    Source: `docs/formulas.md`, "Serving memory".
    """
    parts = _fixed(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
    cache = needed_cache_bytes(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
    return MemoryBreakdown(
        weights=parts.weights,
        activations=parts.activations,
        kv_cache=cache,
        buffers=parts.graphs + _allocator_slack(job=job, kept=parts.weights + cache, assumptions=assumptions),
        reserved=parts.context + parts.libraries + parts.communication,
        phase=float(PHASES.index("serve")),
    )


def serving_fits_limit(*, job: ServingJob, nodes: Nodes, assumptions: Assumptions) -> NDArray[np.float64]:
    """
    Most of a card that `serving_memory` may come to under the engine's memory setting.

    Returns
    -------
    array, shape (node,)
        [bytes]

    Notes
    -----
    The setting leaves out what the engine does not count: the CUDA context, and graphs where they are captured after
    the cache was sized. Both must still find room on the card. Source: vLLM `gpu_worker.determine_available_memory`.
    """
    engine = job.engine
    if engine.limit == "none":
        return nodes.memory_bytes
    uncounted = float(assumptions.value("serving_memory_context_gib")) * GIB
    if engine.graphs and job.cuda_graphs and not engine.graphs_in_limit:
        uncounted += float(assumptions.value("serving_memory_graphs_gib")) * GIB
    limit: NDArray[np.float64] = np.minimum(nodes.memory_bytes * _setting(job) + uncounted, nodes.memory_bytes)
    return limit


def kv_room_bytes(*, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Number:
    """
    Memory an engine leaves for the cache on the fullest GPU; negative where it refuses to start.

    Returns
    -------
    array, shape (band, plan, node)
        The least-need band has the most room. [bytes]

    Notes
    -----
    utilization : setting x card - weights - activations - libraries - communication (- graphs where counted)
    static : setting x (card - context - communication) - weights
    free : setting x (card - all else)
    none : card - all else
    Source: vLLM `determine_available_memory`, SGLang `profile_max_num_token`, TensorRT-LLM `KvCacheConfig`.
    """
    parts = _fixed(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
    card, setting = nodes.memory_bytes, _setting(job)
    if job.engine.limit == "static":
        return setting * (card - parts.context - parts.communication) - parts.weights
    working = parts.weights + parts.activations + parts.libraries + parts.communication
    if job.engine.limit == "utilization":
        return setting * card - working - (parts.graphs if job.engine.graphs_in_limit else 0.0)
    return setting * (card - working - parts.context - parts.graphs)


def needed_cache_bytes(*, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Number:
    """
    Cache that the job's sequences need on the fullest GPU.

    Returns
    -------
    array, shape (band, plan, node)
        At least: running requests half-way through their answers. Typically and at most: all at their full length.
        Never less than one sequence at the longest context. [bytes]
    """
    sequences = sequences_per_rank(job=job, plan=plan)
    grown = np.array([0.5, 1.0, 1.0]).reshape(3, 1, 1)
    running = sequences * _cache_on_rank(
        tokens=job.prompt_tokens + grown * job.output_tokens,
        model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions,
    )  # fmt: skip
    longest = _cache_on_rank(
        tokens=job.max_context, model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions
    )
    return np.maximum(running, longest)


def max_context_that_fits(
    *, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> Number:
    """
    Longest context at which one sequence still finds cache, the model's own limit included.

    Returns
    -------
    array, shape (band, plan, node)
        0 where the engine would not start. [tokens]
    """
    room = np.asarray(kv_room_bytes(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions))
    share = _cache_split(model=model, job=job, plan=plan)
    state = assumptions["serving_memory_state_bytes_per_element"] * model.recurrent_elements / tensor_ranks(job, plan)
    longest = kv_cache.tokens_that_fit(
        model=model,
        room_bytes=(room - state) / share + 2.0 * model.recurrent_elements,
        bytes_per_element=job.kv_bytes_per_element,
        policy=job.engine.window_policy,
        chunk_tokens=pass_tokens(job=job, nodes=nodes),
        page_tokens=job.engine.page_tokens,
    )
    longest = np.where(room > 0, longest, 0.0)
    return np.minimum(longest, np.inf if model.max_context is None else model.max_context)


def max_concurrency_that_fits(
    *, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions, tokens: Number | None = None
) -> Number:
    """
    Most requests whose cache fits at once, over all replicas.

    Parameters
    ----------
    tokens : number, optional
        Length of each; the job's prompt and answer when left out. [tokens]

    Returns
    -------
    array, shape (band, plan, node)
        Whole requests; 0 where not one fits. [-]
    """
    length = job.prompt_tokens + job.output_tokens if tokens is None else tokens
    room = kv_room_bytes(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
    each = _cache_on_rank(tokens=length, model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
    groups = plan.data_parallel * (plan.tensor_parallel if job.attention_data_parallel else 1.0)
    fitting: Number = np.floor(np.maximum(room, 0.0) / np.maximum(each, 1.0) * (1 + 1e-12)) * groups
    return fitting


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fixed:
    """What does not depend on how many sequences are cached. [bytes]"""

    weights: Number
    activations: Number
    graphs: Number
    context: Number
    libraries: Number
    communication: Number


def _fixed(*, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> _Fixed:
    engine = job.engine
    weights = weight_bytes_per_gpu(
        model=model,
        weight_format=job.weight_format,
        plan=plan,
        text_only=job.text_only,
        with_mtp=job.speculative_tokens > 0,
        attention_data_parallel=job.attention_data_parallel,
    )
    packed = job.weight_format.bits_per_weight < 12
    share = assumptions["serving_memory_packed_share" if packed else "serving_memory_weight_share"]
    # Stages only pass hidden states on; collectives are what allocates channels for every peer.
    collective = plan.tensor_parallel * plan.expert_parallel > 1
    channels = (
        np.where(collective, 1.0, np.where(np.greater(plan.pipeline_parallel, 1), 0.1, 0.0))
        * engine.communication_gib
        * GIB
    )
    spread = np.where(np.asarray(plan.expert_parallel) > plan.tensor_parallel, 1.0, 0.0) * GIB
    graphs = 1.0 if engine.graphs and job.cuda_graphs else 0.0
    return _Fixed(
        weights=weights * share,
        activations=activation_peak_bytes(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions),
        graphs=graphs * assumptions["serving_memory_graphs_gib"] * GIB,
        context=assumptions["serving_memory_context_gib"] * GIB,
        libraries=assumptions["serving_memory_libraries_gib"] * GIB,
        communication=channels * assumptions["serving_memory_communication_share"]
        + spread * assumptions["serving_memory_all_to_all_gib"],
    )


def _allocator_slack(*, job: ServingJob, kept: Number, assumptions: Assumptions) -> Number:
    """What a framework that grows its cache token by token holds beside it. [bytes]"""
    if job.engine.family != "transformers":
        return 0.0
    return assumptions["serving_memory_allocator_share"] * kept


def _setting(job: ServingJob) -> float:
    """The engine's memory setting. [-]"""
    return job.engine.utilization if job.memory_utilization is None else job.memory_utilization


def _cache_split(*, model: Model, job: ServingJob, plan: Plan) -> Number:
    """Part of a sequence's cache on one GPU: by heads, by layers of a stage. [-]"""
    stage = np.ceil(model.layers / plan.pipeline_parallel) / model.layers
    heads = kv_cache.rank_share(model=model, tensor_parallel=tensor_ranks(job, plan))
    return heads * stage


def _cache_on_rank(
    *, tokens: Number, model: Model, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> Number:
    """Cache of one sequence on one GPU. [bytes]"""
    cached = kv_cache.cache_bytes_per_sequence(
        model=model,
        tokens=tokens,
        bytes_per_element=job.kv_bytes_per_element,
        state_bytes_per_element=0.0,
        policy=job.engine.window_policy,
        chunk_tokens=pass_tokens(job=job, nodes=nodes),
        page_tokens=job.engine.page_tokens,
    )
    state = assumptions["serving_memory_state_bytes_per_element"] * model.recurrent_elements / tensor_ranks(job, plan)
    return cached * _cache_split(model=model, job=job, plan=plan) + state / plan.pipeline_parallel
