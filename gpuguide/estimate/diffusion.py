"""
How long a diffusion pipeline takes: encode the prompt, denoise step by step, decode the latents.

A pass of the denoiser is multiplications, attention, and the small kernels between them, which move every activation
through memory again; compilation fuses most of those. Rates of multiplications are those measured for the card.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuguide.errors import NotModelled
from gpuguide.estimate.compute import matmul_flops_per_s, memory_bytes_per_s
from gpuguide.estimate.network import all_to_all_s
from gpuguide.estimate.results import MediaSpeed
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import MediaModel
from gpuguide.spec.plan import OFFLOAD, Plan
from gpuguide.units import Number

SIXTEEN_BIT = 2.0  # [bytes]
WIDTH = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0}
"""Bytes of an unquantised weight or activation by the precision a job computes in."""
TEXT_TOKENS = 256.0
"""Length a prompt is padded to where the pipeline does not say; 77 (CLIP) to 512 (T5). [tokens]"""
TYPICAL_TRAFFIC = 110.0
"""Bytes moved by small kernels over layers x width x 2 bytes; 79 to 184 among ten traced transformers. [-]"""
TYPICAL_LIVE = 15.0
"""Activations alive at once over width x 2 bytes; 11 to 21 among traced transformers. [-]"""
TYPICAL_MULTIPLIED = 0.86
"""Share of a denoiser's parameters that work on every token; the rest are modulations and embedders. [-]"""
KERNELS_PER_LAYER = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """Work of one pass of the denoiser for one item, guidance counted apart."""

    tokens: Number  # latent tokens [tokens]
    matmul_flops: Number
    attention_flops: Number
    traffic_bytes: Number  # small kernels, 16 bit
    live_bytes: Number  # most activations alive at once, 16 bit
    kernels: Number  # launched without compilation


def latent_tokens(*, model: MediaModel, job: MediaJob) -> Number:
    """
    Tokens, or positions of a U-Net, that one item has at the denoiser's entrance.

    Notes
    -----
    Width and height over the VAE's factor and the patch; frames after the first are joined in groups. FLUX at
    1024 x 1024: 4,096; HunyuanVideo at 1280 x 720 x 129: 118,800. Source: `docs/formulas.md`, "Latent tokens".
    """
    if model.audio_down:
        return np.maximum(1.0, np.asarray(job.audio_seconds) * SAMPLES_PER_S / model.audio_down)
    if model.spatial_down is None:
        missing = "the VAE's spatial factor, latent channels and patch"
        raise NotModelled(f"{model.name}: a pipeline without {missing}", "its latent tokens cannot be counted")
    side = model.spatial_down * (model.patch or 1.0)
    frames = np.ceil((np.asarray(job.frames) - 1.0) / (model.temporal_down or 1.0)) + 1.0
    if (model.temporal_down or 1.0) == 1.0:
        frames = np.asarray(job.frames, dtype=np.float64)
    tokens: Number = np.ceil(np.asarray(job.width) / side) * np.ceil(np.asarray(job.height) / side) * frames
    return tokens


SAMPLES_PER_S = 44_100.0
"""Of the audio VAEs in the catalog. [1/s]"""


def denoiser_pass(*, model: MediaModel, job: MediaJob) -> Pass:
    """
    Work of one pass for one item.

    Raises
    ------
    NotModelled
        If facts of the denoiser are missing; says which.

    Notes
    -----
    Where a figure was not traced it follows from layers and width: 2 FLOP per parameter and token, 4 x layers x width
    per pair of tokens, and typical multiples of the width for memory. Source: `docs/formulas.md`, "Denoiser pass".
    """
    tokens = latent_tokens(model=model, job=job)
    layers, width = model.denoiser_layers, model.denoiser_hidden
    params = model.component_params("denoiser")
    if not params:
        raise NotModelled(f"{model.name}: a pipeline without a denoiser's parameter count", "give its components")
    if model.attention_flops_per_pair is None and (layers is None or width is None):
        what = "channels and attention of its U-Net" if model.denoiser_type == "unet" else "layers and width"
        raise NotModelled(f"{model.name}: a denoiser without {what}", "its work per step cannot be counted")
    if model.component_params("denoiser_2"):
        params -= model.component_params("denoiser_2")
    per_token = model.flops_per_token
    if per_token is None:
        per_token = 2.0 * TYPICAL_MULTIPLIED * params
    pair = model.attention_flops_per_pair
    if pair is None:
        pair = 4.0 * (layers or 0.0) * (width or 0.0)
    text = model.joint_text_tokens
    fixed = model.flops_fixed or per_token * text
    traffic, live = model.traffic_bytes_per_token, model.live_bytes_per_token
    if traffic is None:
        traffic = TYPICAL_TRAFFIC * SIXTEEN_BIT * (layers or 0.0) * (width or 0.0)
    if live is None:
        live = TYPICAL_LIVE * SIXTEEN_BIT * (width or 0.0)
    return Pass(
        tokens=tokens,
        matmul_flops=per_token * tokens + fixed,
        attention_flops=pair * (tokens + text) ** 2 / (job.frames if model.attention_within_frame else 1.0),
        traffic_bytes=traffic * (tokens + text),
        live_bytes=live * (tokens + text),
        kernels=model.kernels or KERNELS_PER_LAYER * (layers or 0.0),
    )


def output_pixels(*, model: MediaModel, job: MediaJob) -> Number:
    """Pixels of all frames of one item, or samples of one recording. [-]"""
    if model.audio_down:
        return np.asarray(job.audio_seconds) * SAMPLES_PER_S
    pixels: Number = np.asarray(job.width, dtype=np.float64) * job.height * np.maximum(np.asarray(job.frames), 1.0)
    return pixels


def matmul_rate(job: MediaJob, nodes: Nodes, assumptions: Assumptions) -> Floats:
    """Multiplications of the denoiser: 8- and 4-bit arithmetic gains only where kernels are fused. [FLOP/s]"""
    precision = job.precision if job.precision in WIDTH else "bf16"
    if job.quantization is not None and job.compiled:
        precision = job.quantization.compute_precision
    if precision in ("fp8", "int8", "fp4"):
        eight = "fp4" if precision == "fp4" else "fp8"
        share = assumptions["media_8bit_share"]
        rate = matmul_flops_per_s(nodes=nodes, precision=eight, fp8_share=share, fp4_share=share)
        if precision == "int8":  # cards before FP8 multiply integers at twice the 16-bit rate
            plain = matmul_flops_per_s(nodes=nodes, precision="bf16")
            gain = np.where(np.isnan(nodes.flops["int8"]), 1.0, nodes.flops["int8"] / _peak16(nodes))
            rate = np.maximum(rate, plain * (1.0 + (gain - 1.0) * share))
        return rate
    return matmul_flops_per_s(nodes=nodes, precision=precision)


def _peak16(nodes: Nodes) -> Floats:
    return np.where(np.isnan(nodes.flops["bf16"]), nodes.flops["fp16"], nodes.flops["bf16"])


def diffusion_speed(
    *, model: MediaModel, job: MediaJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> MediaSpeed:
    """
    Time of one batch by phase, and items per second of all replicas together.

    Parameters
    ----------
    model : MediaModel
        Pipeline; its traced figures where known.
    job : MediaJob
        Size, steps, batch, precision, offload.
    plan : Plan
        `data_parallel` replicas; `context_parallel` GPUs share one item's sequence.
    nodes : Nodes
        Machine shapes.
    assumptions : Assumptions
        `media_*`, `compute_memory_share`.

    Returns
    -------
    MediaSpeed

    Notes
    -----
    Sequence parallel exchanges queries, keys, values and outputs in every layer (Ulysses); text encoders and the VAE
    are not split. Source: `docs/formulas.md`, "Time of a diffusion step"; DeepSpeed-Ulysses (arXiv 2309.14509).
    """
    work = denoiser_pass(model=model, job=job)
    width = WIDTH.get(job.precision, SIXTEEN_BIT)
    passes = model.passes_per_step
    split = plan.context_parallel
    batch = np.asarray(job.batch, dtype=np.float64)
    bandwidth = memory_bytes_per_s(nodes, 1.0) * assumptions["compute_memory_share"]
    plain = matmul_flops_per_s(nodes=nodes, precision=job.precision if job.precision in WIDTH else "bf16")
    convolving = CONVOLUTION_SLOWDOWN if model.denoiser_type == "unet" else 1.0
    multiplying = (
        convolving * work.matmul_flops / (matmul_rate(job, nodes, assumptions) * assumptions["media_matmul_share"])
    )
    attending = work.attention_flops / attention_rate(plain, model, nodes, assumptions)
    fused = assumptions["media_compiled_traffic"] if job.compiled else assumptions["media_eager_traffic"]
    moving = work.traffic_bytes * (width / SIXTEEN_BIT) * fused / bandwidth
    weights = model.component_params("denoiser") - model.component_params("denoiser_2")
    unpacking = np.zeros(())
    if job.quantization is not None and not job.compiled:
        # Without fused kernels outputs are rescaled, and weights widened, in kernels of their own.
        moving = moving * (1.0 + assumptions["media_quantised_traffic"])
        unpacking = assumptions["media_unpack_bytes"] * weights / bandwidth
    rounds = passes if model.passes_one_by_one else 1.0
    at_once = batch * passes / rounds
    busy = at_once * (multiplying + attending + moving) / split + unpacking / split
    launching = work.kernels * assumptions["media_kernel_s"] * (COMPILED_KERNELS if job.compiled else 1.0)
    exchanging = _exchange_s(model, work, at_once, split, nodes)
    one_step = rounds * (np.maximum(busy, launching) + exchanging)
    sequential = np.equal(plan.offload, OFFLOAD.index("sequential")) | (job.offload == "sequential")
    carried = np.not_equal(plan.offload, OFFLOAD.index("none")) | (job.offload != "none")
    weight_bytes = weights * (job.quantization.bytes_per_weight if job.quantization else width)
    host = nodes.pcie_bytes_per_s * assumptions["media_host_copy_share"]
    # Under sequential offload the denoiser comes over the link anew in every pass, module by module; nothing overlaps.
    streamed = np.where(sequential, rounds * weight_bytes / host, 0.0)
    once = _component_bytes(model, job, denoisers=True), _component_bytes(model, job, denoisers=False)
    loads = np.where(carried, np.where(sequential, once[1], once[0]) / host, 0.0)
    denoise = np.asarray(job.steps) * (one_step + streamed)
    encoders = model.component_params("text_encoder") + model.component_params("image_encoder")
    prompt = max(model.joint_text_tokens, TEXT_TOKENS)
    encode = batch * passes * 2.0 * encoders * prompt / (plain * assumptions["media_matmul_share"])
    encode = np.maximum(encode, encoders * SIXTEEN_BIT / bandwidth)
    decode = batch * decode_s(model=model, job=job, nodes=nodes, assumptions=assumptions)
    total = encode + denoise + decode + loads
    seconds = total * np.ones_like(np.asarray(plan.data_parallel, dtype=np.float64))
    return MediaSpeed(
        encode_s=encode + loads,
        denoise_s=denoise,
        decode_s=decode,
        batch_s=seconds,
        items_per_s=plan.data_parallel * batch / seconds,
        bound=_bound(
            at_once * (multiplying + attending) / split, at_once * moving / split, launching, exchanging, streamed
        ),
    )


CONVOLUTION_SLOWDOWN = 1.25
"""Half of a U-Net's work is 3 x 3 convolutions over few channels, slower than large multiplications. [-]"""
COMPILED_KERNELS = 0.35
"""Kernels that remain after fusing, of those launched one by one. [-]"""


ATTENTION_SHARE = {"Ampere": 0.65, "Ada": 0.8, "Hopper": 0.45, "Blackwell": 0.5, "Blackwell Ultra": 0.5}
"""
Fused attention without a mask over the rate of large multiplications, by architecture: 190 to 230 TFLOP/s on A100,
340 to 400 on H100, 160 on RTX 4090. Source: FlashAttention-2 (arXiv 2307.08691), figures 4 to 6. [-]
"""
OTHER_ATTENTION_SHARE = 0.5
NARROW_HEADS = 0.65
"""Heads of 64 against heads of 128. Source: the same figures. [-]"""


def attention_rate(plain: Floats, model: MediaModel, nodes: Nodes, assumptions: Assumptions) -> Floats:
    """Scores and values of all pairs, from the rate of plain multiplications. [FLOP/s]"""
    share = np.array([ATTENTION_SHARE.get(str(name), OTHER_ATTENTION_SHARE) for name in nodes.architecture])
    narrow = NARROW_HEADS if (model.head_dim or 128.0) < 96.0 else 1.0
    rate: Floats = plain * share * narrow * assumptions["media_attention_share"]
    return rate


def decode_s(*, model: MediaModel, job: MediaJob, nodes: Nodes, assumptions: Assumptions) -> Floats:
    """
    Time to decode one item's latents: convolutions below the rate of multiplications, and their activations. [s]

    Notes
    -----
    Source: `docs/formulas.md`, "VAE decode".
    """
    pixels = output_pixels(model=model, job=job)
    bandwidth = memory_bytes_per_s(nodes, 1.0) * assumptions["compute_memory_share"]
    seconds = np.zeros(())
    for part in model.components:
        if part.decode_flops_per_pixel is None:
            continue
        precision = part.dtype or job.precision
        rate = matmul_flops_per_s(nodes=nodes, precision="tf32" if precision == "fp32" else "bf16")
        if part.decode_frames is not None:
            rate = rate * SPACE_AND_TIME
        overlap = TILE_OVERLAP if (job.vae_tiling or part.tiled) and not model.audio_down else 1.0
        flops = part.decode_flops_per_pixel * pixels * overlap
        moved = part.decode_traffic_bytes_per_pixel * pixels * overlap * WIDTH.get(precision, SIXTEEN_BIT) / SIXTEEN_BIT
        seconds = seconds + flops / (rate * assumptions["media_convolution_share"]) + moved / bandwidth
    return np.asarray(seconds, dtype=np.float64)


SPACE_AND_TIME = 0.5
"""Convolutions over frames too, against those over one picture. [-]"""
TILE_OVERLAP = 1.5
"""Pixels decoded over kept, tiles overlapping by a quarter of each side. Source: diffusers `tile_overlap_factor`."""


def _component_bytes(model: MediaModel, job: MediaJob, *, denoisers: bool) -> float:
    """What offload carries over the host link once for every batch. [bytes]"""
    width = WIDTH.get(job.precision, SIXTEEN_BIT)
    total = 0.0
    for part in model.components:
        if part.role.startswith("denoiser") and not denoisers:
            continue
        small = job.quantization is not None and (part.role.startswith("denoiser") or job.quantizes_encoders)
        total += part.params * (job.quantization.bytes_per_weight if small and job.quantization else width)
    return total


def _exchange_s(model: MediaModel, work: Pass, at_once: Number, split: Number, nodes: Nodes) -> Number:
    """Ulysses: three exchanges before and one after the attention of every layer. [s]"""
    if np.all(np.equal(split, 1.0)):
        return np.zeros(())
    layers, width = model.denoiser_layers or 1.0, model.denoiser_hidden or 0.0
    message = at_once * work.tokens / split * width * SIXTEEN_BIT
    once = all_to_all_s(message_bytes=message, ranks=split, nodes=nodes)
    return np.where(np.equal(split, 1.0), 0.0, 4.0 * layers * once)


def _bound(
    computing: Number, moving: Number, launching: Number, exchanging: Number, streamed: Number
) -> NDArray[np.object_]:
    """What takes most of a step."""
    parts = np.broadcast_arrays(
        *(np.asarray(part, dtype=np.float64) for part in (computing, moving, launching, exchanging, streamed))
    )
    stacked = np.stack(parts)
    stacked[2] = np.where(stacked[2] > stacked[0] + stacked[1], stacked[2], 0.0)
    names = np.array(["compute", "memory", "overhead", "interconnect", "host link"], dtype=object)
    found: NDArray[np.object_] = names[np.argmax(stacked, axis=0)]
    return found
