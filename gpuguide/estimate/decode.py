"""
How long one decode step takes: overhead + weights and cache read, or arithmetic where the batch is large, + links.

    step = launches + (weights read beside arithmetic) + cache read + tensor-parallel and expert-parallel exchange

Every running request gains one token per step. Stages of a pipeline work on different requests at the same time, so
that a stage sees running / stages of them and a token passes all stages one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.estimate import kv_cache, network
from gpuguide.estimate.serving_links import ACTIVATION_BYTES, Reduce, attention_layout, split_work
from gpuguide.estimate.serving_rates import Rates, beside, engine_class
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import Number

DRAFT_ACCEPTANCE = 0.7
"""Share of drafted tokens that are accepted; source: Leviathan et al. 2023 (arXiv 2211.17192), 0.5 to 0.9."""
DRAFT_COST = 0.05
"""Time of drafting one token over a step of the model: one layer and the head of MTP or EAGLE drafters."""


def experts_touched(*, experts: Number, experts_per_token: Number, tokens: Number) -> Number:
    """
    Expected share of the experts that at least one of the tokens is routed to, where routing is even. [-]

    Examples
    --------
    >>> float(experts_touched(experts=8, experts_per_token=2, tokens=1))
    0.25
    """
    kept = np.minimum(experts_per_token / np.maximum(experts, 1.0), 1.0 - 1e-12)
    return np.where(experts > 0, -np.expm1(tokens * np.log1p(-kept)), 0.0)


def busiest_rank(*, tokens: Number, experts_per_token: Number, ranks: Number) -> Number:
    """
    Work of the busiest of the ranks that share experts, over the mean; all wait for it. [-]

    Notes
    -----
    Largest of `ranks` Poisson counts with mean m = tokens x experts per token / ranks: m + sqrt(2 m ln ranks).
    """
    mean = np.maximum(tokens * experts_per_token / ranks, 1e-9)
    return np.where(ranks > 1, np.minimum(1.0 + np.sqrt(2.0 * np.log(np.maximum(ranks, 1.0)) / mean), ranks), 1.0)


def cache_bytes(*, model: Model, tokens: Number, job: ServingJob, tensor_parallel: Number) -> Number:
    """Cache of one request that a step reads on each GPU of a tensor-parallel group, all layers. [bytes]"""
    whole = kv_cache.cache_bytes_per_sequence(model=model, tokens=tokens, bytes_per_element=job.kv_bytes_per_element)
    return whole * kv_cache.rank_share(model=model, tensor_parallel=tensor_parallel)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Time of one step by what it is spent on; parts sum to `total`. [s]"""

    overhead_s: Number
    weights_s: Number  # what reading weights adds
    compute_s: Number  # what arithmetic adds to it
    cache_s: Number
    tensor_parallel_s: Number
    expert_parallel_s: Number

    @property
    def total(self) -> Number:
        """Sum of the parts. [s]"""
        return (
            self.overhead_s
            + self.weights_s
            + self.compute_s
            + self.cache_s
            + self.tensor_parallel_s
            + self.expert_parallel_s
        )


def decode_step(
    *,
    running: Number,
    context: Number,
    model: Model,
    job: ServingJob,
    plan: Plan,
    nodes: Nodes,
    known: Rates,
    reduce: Reduce | None,
    assumptions: Assumptions,
) -> Step:
    """
    Time until each of the running requests of a replica has one more step, by parts.

    Parameters
    ----------
    running : number or array
        Requests that decode at once in one replica. [requests]
    context : number or array
        Their mean length so far. [tokens]
    known : Rates
        From `rates` for the same model, job and nodes.
    reduce : Reduce or None
        From `reduce_of` for the same job and plan.

    Returns
    -------
    Step
        Parts of shape (band, plan, node). [s]

    Notes
    -----
    With expert parallel ranks beyond the tensor-parallel ones, replicas share one set of experts: each decodes its own
    requests and sends tokens to the experts' GPUs and back. Source: `docs/formulas.md`, "Decode".
    """
    tensor, sharing = attention_layout(job=job, plan=plan)
    stages, ranks = plan.pipeline_parallel, tensor * sharing
    drafted = job.speculative_tokens / DRAFT_ACCEPTANCE
    groups = stages * (sharing if job.attention_data_parallel else 1.0)
    requests = np.maximum(running / groups, 1.0)
    tokens = requests * (1.0 + drafted)
    split = split_work(ranks=tensor, nodes=nodes)
    read_s = known.shared_bytes / split / known.bandwidth
    flops = known.shared_flops * tokens / split
    exchange_s: Number = 0.0
    if model.is_moe:
        busiest = busiest_rank(
            tokens=tokens * sharing,
            experts_per_token=model.experts_per_token,
            ranks=np.maximum(plan.expert_parallel, 1.0),
        )
        touched = experts_touched(
            experts=model.experts, experts_per_token=model.experts_per_token, tokens=tokens * sharing
        )
        share = np.minimum(touched * busiest, 1.0)
        parts = split_work(ranks=ranks, nodes=nodes)
        read_s = read_s + known.expert_bytes * share / parts / known.bandwidth
        flops = flops + known.expert_flops * tokens * sharing * busiest / parts
        if np.any(sharing > 1):
            sent = tokens * model.hidden * ACTIVATION_BYTES * np.minimum(model.experts_per_token, ranks)
            hop = network.all_to_all_s(message_bytes=sent, ranks=ranks, nodes=nodes, assumptions=assumptions)
            exchange_s = np.where(sharing > 1, 2.0 * model.moe_layers * hop, 0.0)
    work_s = beside(read_s, flops / known.flops)
    cached = cache_bytes(model=model, tokens=context, job=job, tensor_parallel=tensor)
    cache_s = requests * cached * (tensor / split) / known.cache_bandwidth
    reduce_s: Number = 0.0
    if reduce is not None:
        reduce_s = 2.0 * model.layers * reduce.seconds(tokens * model.hidden * ACTIVATION_BYTES)
    overhead = known.host_s
    if engine_class(job.engine) == "eager":
        # The host launches ahead while the GPU works: only what it falls behind is seen.
        overhead = np.maximum(overhead - work_s - cache_s, 0.0)
    if np.any(stages > 1):
        hand_over = network.send_s(
            message_bytes=tokens * model.hidden * ACTIVATION_BYTES, nodes=nodes, assumptions=assumptions
        )
        overhead = overhead + (stages - 1.0) * hand_over
    overhead = overhead + DRAFT_COST * drafted * (work_s + overhead)
    return Step(
        overhead_s=overhead,
        weights_s=read_s,
        compute_s=work_s - read_s,
        cache_s=cache_s,
        tensor_parallel_s=reduce_s,
        expert_parallel_s=exchange_s,
    )
