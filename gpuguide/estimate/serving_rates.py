"""
What serving engines reach on each GPU, before the batch is known: rates of memory and arithmetic, launches of a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.estimate.weights import stored_weights
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.engine import Engine
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
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
"""Launches for one expert over those of a layer, where experts are visited in turn. transformers 4.51, Qwen3. [-]"""
EAGER_8BIT = 2.5
"""Launches of a layer with 8-bit weights over one in 16 bit: activations are quantised by kernels of their own. [-]"""

LANES_64 = ("Volta", "Turing")
"""Architectures with 64 FP32 lanes per multiprocessor; so has Ampere's HBM part. Others have 128."""


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
    fp32 = nodes.flops["fp32"]
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
    A share of the data-sheet rate, by memory type. Kernels that keep few bytes in flight per multiprocessor are held
    back on HBM: llama.cpp reads 5.3 to 6.3 bytes per multiprocessor and clock on A100 and H100 PCIe, whatever their
    bandwidth. Source: `docs/formulas.md`, "Decode".
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


def compute_flops(*, nodes: Nodes, precision: str) -> tuple[Floats, Floats]:
    """
    Dense peak at a precision, and the bytes per value that the matrix units then take.

    Where a GPU lacks the precision, weights are widened and multiplied in 16 bit.

    Returns
    -------
    tuple of array, shape (node,)
        [FLOP/s], [bytes]
    """
    half = nodes.flops["bf16"]
    half = np.where(np.isfinite(half), half, nodes.flops["fp16"])
    half = np.where(np.isfinite(half), half, nodes.flops["fp32"])
    width = np.full(half.shape, 2.0)
    if precision in ("fp8", "int8", "fp4"):
        peak = nodes.flops[precision]
        found = np.isfinite(peak) & (peak > half)
        width, half = np.where(found, 0.5 if precision == "fp4" else 1.0, width), np.where(found, peak, half)
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
    Peak x measured share of the peak of the GPU (0.80 where not measured) x what an engine reaches of it, by precision.
    llama.cpp accumulates in 16 bit, at twice the rate on GeForce parts, and does work outside tensor cores that grows
    with the model, at a rate set by power. Source: `docs/formulas.md`, "Prefill".
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
    bandwidth_weights = bandwidth
    if job.weight_format.bits_per_weight < 12 and kind != "native":
        # Narrow weights that the GPU does not multiply as they are have to be widened in the kernel.
        _, width = compute_flops(nodes=nodes, precision=job.weight_format.compute_precision)
        bandwidth_weights = bandwidth * np.where(width == 2.0, assumptions["serving_speed_dequantised"], 1.0)
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
