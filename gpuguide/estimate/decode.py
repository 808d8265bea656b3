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
from gpuguide.estimate.weights import stored_weights
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.engine import Engine
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.spec.precision import WeightFormat
from gpuguide.units import Number

CLASSES = {
    "llama.cpp": "native",
    "transformers": "eager",
    "vllm": "server",
    "sglang": "server",
    "tensorrt-llm": "server",
}
"""
How engine families run a step; families not listed are `compiled`.

server : recorded steps (CUDA graphs) with vendor kernels, behind a scheduler that plans every step.
compiled : the same without a scheduler: gpt-fast, exllama, fused modules.
native : portable kernels for one request, on CUDA cores or old tensor instructions.
eager : each kernel is launched from Python; the GPU waits for the host where kernels are short.
"""

PLANNING = {"tensorrt-llm": 0.25}
"""Share of a scheduler's time per step that the GPU waits for: TensorRT-LLM plans the next step while one runs. [-]"""
CACHE_SHARES = {"native": "serving_speed_native_cache", "eager": "serving_speed_eager_cache"}
EAGER_EXPERT = 0.15
"""Launches for one expert over those of a layer: an eager engine visits every expert in turn. transformers 4.51, Qwen3. [-]"""
EAGER_8BIT = 2.5
"""Launches of a layer with 8-bit weights over one in 16 bit, where activations are quantised by kernels of their own. [-]"""

LANES_64 = ("Volta", "Turing")
"""Architectures with 64 FP32 lanes per multiprocessor; so has Ampere's HBM part. Others have 128."""
ACTIVATION_BYTES = 2.0
DRAFT_ACCEPTANCE = 0.7
"""Share of drafted tokens that are accepted; source: Leviathan et al. 2023 (arXiv 2211.17192), 0.5 to 0.9."""
DRAFT_COST = 0.05
"""Time of drafting one token over a step of the model: one layer and the head of MTP or EAGLE drafters."""


def engine_class(engine: Engine) -> str:
    """How an engine runs a step: a value of `CLASSES`, or `compiled`."""
    kind = CLASSES.get(engine.family, "compiled")
    return "compiled" if kind == "eager" and engine.graphs else kind


def sm_clocks_per_s(nodes: Nodes) -> Floats:
    """
    Multiprocessors times clock, from the FP32 peak: FLOP/s = multiprocessors x clock x lanes x 2. [1/s]

    Notes
    -----
    A100 19.5 TFLOPS / 128 = 1.52e11 (108 x 1.41 GHz); RTX 4090 82.6 / 256 = 3.23e11 (128 x 2.52 GHz).
    Infinite where the FP32 rate is not known, which removes the limits that build on it.
    """
    fp32 = nodes.flops.get("fp32", np.full(len(nodes), np.nan))
    few = np.isin(nodes.architecture, LANES_64) | ((nodes.architecture == "Ampere") & nodes.is_hbm)
    return np.where(np.isfinite(fp32), fp32 / np.where(few, 128.0, 256.0), np.inf)


def achieved_bandwidth(*, nodes: Nodes, engine: Engine, assumptions: Assumptions) -> Floats:
    """
    Rate at which an engine reads weights for one token.

    Returns
    -------
    array, shape (band, 1, node)
        [bytes/s]

    Notes
    -----
    A share of the data-sheet rate, by memory type. Kernels that keep few bytes in flight per multiprocessor are held back
    on HBM: llama.cpp reads 5.3 to 6.3 bytes per multiprocessor and clock on A100 and H100 PCIe, whatever their bandwidth.
    Source: `docs/formulas.md`, "Decode".
    """
    share = np.where(
        nodes.is_hbm, assumptions["serving_speed_bandwidth_hbm"], assumptions["serving_speed_bandwidth_gddr"]
    )
    rate = share * nodes.memory_bandwidth_bytes_per_s
    if engine_class(engine) != "native":
        return rate
    limit = assumptions["serving_speed_native_bytes_per_clock"] * sm_clocks_per_s(nodes)
    return smaller(rate, limit)


def smaller(first: Number, second: Number) -> Floats:
    """The smaller of two limits, rounded where they meet: where equal, each takes a sixth off. [as given]"""
    return np.asarray(first / np.sqrt(np.sqrt(1.0 + (first / second) ** 4)), dtype=np.float64)


def beside(first: Number, second: Number) -> Floats:
    """Time of two kinds of work that overlap in part: the longer, and 1.41 times it where both are equal. [s]"""
    return np.sqrt(first * first + second * second)


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


def attention_layout(*, job: ServingJob, plan: Plan) -> tuple[Number, Number]:
    """
    Ranks that split one request's attention, and groups of such ranks that share one set of experts. [-]

    Notes
    -----
    With attention data parallel each tensor rank has its own requests. Otherwise expert-parallel ranks beyond the
    tensor-parallel ones mean that replicas share experts.
    """
    if job.attention_data_parallel:
        return 1.0, plan.tensor_parallel
    return plan.tensor_parallel, np.maximum(plan.expert_parallel / plan.tensor_parallel, 1.0)


def cache_bytes(*, model: Model, tokens: Number, job: ServingJob, tensor_parallel: Number) -> Number:
    """Cache of one request that a step reads on each GPU of a tensor-parallel group, all layers. [bytes]"""
    whole = kv_cache.cache_bytes_per_sequence(model=model, tokens=tokens, bytes_per_element=job.kv_bytes_per_element)
    return whole * kv_cache.rank_share(model=model, tensor_parallel=tensor_parallel)


def split_work(*, ranks: Number, nodes: Nodes) -> Number:
    """
    By how much a tensor-parallel group divides its work: its ranks, or less where more than four talk over PCIe. [-]

    Notes
    -----
    Beyond four, cards sit behind two processors and wait for the slowest path: from 4 to 8, serving on PCIe gained -4 %
    to +31 % where NVLink gained 24 to 88 %. Source: TensorRT-LLM 0.17 performance overview, L40S.
    """
    if np.all(nodes.fast_link) or not np.any(np.asarray(ranks) > PCIE_RANKS):
        return ranks
    slowed = PCIE_RANKS * (np.maximum(ranks, PCIE_RANKS) / PCIE_RANKS) ** PCIE_GROWTH
    return np.where(nodes.fast_link | (np.asarray(ranks) <= PCIE_RANKS), ranks, slowed)


PCIE_RANKS = 4.0
PCIE_GROWTH = 0.39
"""Twice the ranks beyond four divide the work by 2 ** 0.39 = 1.31 at best. [-]"""


def compute_flops(*, nodes: Nodes, precision: str) -> tuple[Floats, Floats]:
    """
    Dense peak at a precision, and the bytes per value that the matrix units then take.

    Where a GPU lacks the precision, weights are widened and multiplied in 16 bit (8 bit for 4-bit values where it can).

    Returns
    -------
    tuple of array, shape (node,)
        [FLOP/s], [bytes]
    """
    half = nodes.flops["bf16"]
    half = np.where(np.isfinite(half), half, nodes.flops.get("fp16", half))
    half = np.where(np.isfinite(half), half, nodes.flops.get("fp32", half))
    width = np.full(half.shape, 2.0)
    if precision in ("fp8", "int8", "fp4"):
        chain = {"fp8": (("fp8", 1.0),), "int8": (("int8", 1.0),), "fp4": (("fp4", 0.5),)}[precision]
        for name, wide in chain:
            peak = nodes.flops.get(name)
            if peak is not None:
                found = np.isfinite(peak) & (peak > half)
                width, half = np.where(found, wide, width), np.where(found, peak, half)
    return half, width


def achieved_flops(*, nodes: Nodes, weight_format: WeightFormat, engine: Engine, assumptions: Assumptions) -> Floats:
    """
    Rate of large matrix multiplications inside a serving engine.

    Returns
    -------
    array, shape (band, 1, node)
        [FLOP/s]

    Notes
    -----
    Peak x measured share of the peak of the GPU (0.80 where not measured) x what an engine reaches of that, by precision.
    llama.cpp accumulates in 16 bit, at twice the rate on GeForce parts, and beside it does work that grows with the
    model at a rate set by multiprocessors and clock, or by power where a card has little of it. Source: `docs/formulas.md`, "Prefill".
    """
    peak, width = compute_flops(nodes=nodes, precision=weight_format.compute_precision)
    half = nodes.flops["bf16"]
    reached = np.where(np.isfinite(nodes.measured_bf16_flops), nodes.measured_bf16_flops / half, UNMEASURED_SHARE)
    # GeForce and other small dies sustain more than their rated clock.
    ceiling = peak * np.clip(np.where(np.isfinite(reached), reached, UNMEASURED_SHARE), 0.4, 1.0)
    if engine_class(engine) == "native":
        twice = np.where((nodes.tier == "consumer") & (width == 2.0), 2.0, 1.0)
        tensor = assumptions["serving_speed_native_matmul"] * peak * twice
        powered = assumptions["serving_speed_native_flops_per_joule"] * np.where(nodes.tdp_w > 0, nodes.tdp_w, np.inf)
        return np.asarray(1.0 / (1.0 / tensor + 1.0 / powered), dtype=np.float64)
    share = np.where(
        width == 2.0,
        assumptions["serving_speed_matmul_16bit"],
        np.where(width == 1.0, assumptions["serving_speed_matmul_8bit"], assumptions["serving_speed_matmul_4bit"]),
    )
    return np.asarray(share * ceiling, dtype=np.float64)


UNMEASURED_SHARE = 0.8
"""Matrix multiplication over dense peak where no measurement of the GPU is known; 0.73 to 0.87 on those measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reduce:
    """All-reduce inside a serving engine on the plans' tensor-parallel groups."""

    ranks: Number
    nodes: Nodes
    start_s: Number  # of the library, (plan, node) [s]
    saved: Number  # part of the start-up that an engine's own kernel saves, (band, plan, node) [-]
    efficiency: Number  # of the link, (band, 1, 1) [-]

    def seconds(self, message_bytes: Number) -> Number:
        """
        Time of one all-reduce, (band, plan, node). [s]

        Notes
        -----
        Engines replace the library's start-up by kernels that read all peers' buffers at once, where GPUs reach each
        other's memory over a fast link; from some MiB on both are alike. Over PCIe the ring of a machine is as fast as
        its links, also where the table was taken without peer access.
        """
        library: Number = network.all_reduce_s(message_bytes=message_bytes, ranks=self.ranks, nodes=self.nodes)
        if not np.all(self.nodes.fast_link):
            traffic = 2.0 * (1.0 - 1.0 / np.asarray(self.ranks)) * message_bytes
            paired = self.start_s + traffic / (PCIE_RING_SHARE * self.nodes.pcie_bytes_per_s)
            alone = self.nodes.fast_link | (np.asarray(self.ranks) > self.nodes.gpus_per_node)
            library = np.where(alone, library, np.minimum(library, paired))
        return (library - self.saved) / self.efficiency


def reduce_on(*, ranks: Number, nodes: Nodes, assumptions: Assumptions) -> Reduce:
    """All-reduce of groups of the given ranks, whatever the message."""
    start = network.all_reduce_s(message_bytes=network.SMALLEST_MESSAGE_BYTES, ranks=ranks, nodes=nodes)
    saved = (1.0 - assumptions["serving_speed_reduce_start"]) * np.where(nodes.fast_link, start, 0.0)
    return Reduce(
        ranks=ranks, nodes=nodes, start_s=start, saved=saved, efficiency=assumptions["network_link_efficiency"]
    )


PCIE_RING_SHARE = 0.45
"""Bus bandwidth over the rate of one PCIe link where cards reach each other's memory: 24.7 of 55 GB/s on eight RTX PRO
6000 (aiconfigurator); TensorRT-LLM on eight L40S moves 13 of 25 or more, which tables taken without peer access miss. [-]"""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What a step of one model, format and engine costs on each machine shape, before the batch is known."""

    bandwidth: Floats  # weights, (band, 1, node) [bytes/s]
    cache_bandwidth: Floats  # cache, (band, 1, node) [bytes/s]
    flops: Floats  # (band, 1, node) [FLOP/s]
    shared_bytes: Number  # weights that every token uses, head included [bytes]
    expert_bytes: Number  # all routed experts [bytes]
    shared_flops: Number  # per token [FLOP]
    expert_flops: Number  # per token [FLOP]
    host_s: Number  # per step, whatever the batch [s]


def rates(*, model: Model, job: ServingJob, nodes: Nodes, assumptions: Assumptions) -> Rates:
    """What a step costs on each shape: rates and amounts that do not depend on plan and batch."""
    kind = engine_class(job.engine)
    bandwidth = achieved_bandwidth(nodes=nodes, engine=job.engine, assumptions=assumptions)
    stored = stored_weights(model=model, weight_format=job.weight_format)
    share = assumptions[CACHE_SHARES.get(kind, "serving_speed_cache")]
    packed = job.weight_format.family == "weight-only" or job.weight_format.compute_precision in ("bf16", "fp16")
    if packed and job.weight_format.bits_per_weight < 12 and kind != "native":
        bandwidth_weights = bandwidth * assumptions["serving_speed_dequantised"]
    else:
        bandwidth_weights = bandwidth
    dense = model.params_linear - model.params_routed_experts
    head = model.params_embedding if model.tied_embeddings else model.params_lm_head
    routed = model.params_routed_experts * model.experts_per_token / np.maximum(model.experts, 1.0)
    layer = (
        assumptions["serving_speed_layer_s"] * model.layers
        + assumptions["serving_speed_moe_layer_s"] * model.moe_layers
    )
    if kind == "eager":
        wide = EAGER_8BIT if 7 < job.weight_format.bits_per_weight < 12 else 1.0
        launches = model.layers + EAGER_EXPERT * model.experts * model.moe_layers
        layer = assumptions["serving_speed_eager_layer_s"] * wide * launches
    return Rates(
        bandwidth=bandwidth_weights,
        cache_bandwidth=bandwidth * share,
        flops=achieved_flops(nodes=nodes, weight_format=job.weight_format, engine=job.engine, assumptions=assumptions),
        # A lookup reads one row of the embedding, unless the table is the head as well.
        shared_bytes=stored.blocks + (stored.embedding if model.tied_embeddings else stored.head),
        expert_bytes=stored.experts,
        shared_flops=2.0 * (dense + head),
        # Many small products, one per expert: the same arithmetic takes longer.
        expert_flops=2.0 * routed / assumptions["serving_speed_expert_matmul"],
        host_s=assumptions["serving_speed_step_s"] * (kind == "server") * PLANNING.get(job.engine.family, 1.0) + layer,
    )


def reduce_of(*, job: ServingJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Reduce | None:
    """All-reduce of the plans' tensor-parallel groups; None where all are single GPUs."""
    ranks, _ = attention_layout(job=job, plan=plan)
    return reduce_on(ranks=ranks, nodes=nodes, assumptions=assumptions) if np.any(np.asarray(ranks) > 1) else None


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
    overhead = known.host_s + np.zeros_like(requests)
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
