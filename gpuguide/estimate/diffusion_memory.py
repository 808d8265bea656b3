"""
What a diffusion pipeline needs on each GPU, phase by phase: encode the prompt, denoise, decode; and, where weights are
made smaller on the GPU, the moment of loading.

Weights that are not offloaded stand through all phases; activations come and go, so the fullest phase decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpuguide.errors import NotModelled
from gpuguide.estimate.diffusion import (
    SIXTEEN_BIT,
    TEXT_TOKENS,
    WIDTH,
    denoiser_pass,
    output_pixels,
)
from gpuguide.estimate.results import PHASES, MemoryBreakdown
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import Component, MediaModel
from gpuguide.spec.plan import OFFLOAD, Plan
from gpuguide.units import Number

ENCODERS = ("text_encoder", "image_encoder")
SMALL_ENCODER = 1e9
"""Text encoders below this stay in 16 bit when a pipeline is quantised; CLIP has 0.1 to 0.7 billion. [-]"""
TILE_SHARE = 0.25
"""Pixels of one tile over all: half of each side. Source: diffusers `tile_sample_min_height` and `_width`. [-]"""
SMALLEST_TILE_PIXELS = 512.0 * 512.0
"""Tiles of an image VAE are as large as its sample size and do not shrink with the picture. [px]"""


def is_encoder(part: Component) -> bool:
    """Whether a component prepares the conditioning and can leave before denoising."""
    return part.role.startswith(ENCODERS)


def component_bytes(*, part: Component, job: MediaJob) -> float:
    """
    Weights of one component in its own precision.

    Parameters
    ----------
    part : Component
        Its role, parameters and fixed precision where it has one (VAEs that overflow in 16 bit).
    job : MediaJob
        Precision, quantisation and whether that includes text encoders.

    Returns
    -------
    float
        [bytes]

    Notes
    -----
    VAEs and small encoders are never quantised. Source: diffusers `PipelineQuantizationConfig` examples.
    """
    width = WIDTH.get(part.dtype or job.precision, SIXTEEN_BIT)
    small = part.role.startswith("denoiser") or (
        job.quantizes_encoders and is_encoder(part) and part.params >= SMALL_ENCODER
    )
    if job.quantization is not None and small:
        width = job.quantization.bytes_per_weight
    return part.params * width


def fused_bytes(*, model: MediaModel, job: MediaJob) -> float:
    """Fused query, key and value weights that are kept beside the separate ones. [bytes]"""
    if not job.fused_qkv:
        return 0.0
    layers, hidden = model.denoiser_layers or 0.0, model.denoiser_hidden or 0.0
    width = job.quantization.bytes_per_weight if job.quantization else WIDTH.get(job.precision, SIXTEEN_BIT)
    return 3.0 * layers * hidden**2 * width


def decode_bytes(*, model: MediaModel, job: MediaJob) -> Number:
    """
    Activations at the fullest moment of decoding, batch included.

    Notes
    -----
    Values alive per output pixel times the pixels decoded at once: all frames, or one group under causal decoding, a
    quarter of the picture in tiles, one item at a time in slices. Source: `docs/formulas.md`, "VAE decode".
    """
    frames = np.maximum(np.asarray(job.frames, dtype=np.float64), 1.0)
    pixels = output_pixels(model=model, job=job) / frames
    most: Number = np.zeros(())
    for part in model.components:
        if part.decode_values_per_pixel is None:
            continue
        at_once = frames if part.decode_frames is None else np.minimum(frames, part.decode_frames)
        tile = pixels
        if (job.vae_tiling or part.tiled) and not model.audio_down:
            tile = np.minimum(pixels, np.maximum(pixels * TILE_SHARE, SMALLEST_TILE_PIXELS))
            tile = np.where(frames > 1, pixels * TILE_SHARE, tile)
        items = 1.0 if job.vae_slicing else np.asarray(job.batch, dtype=np.float64)
        width = WIDTH.get(part.dtype or job.precision, SIXTEEN_BIT)
        # Figures of a whole picture count the finished pixels among the values alive; tiles stand beside them.
        whole = 3.0 * pixels * frames * np.asarray(job.batch) * width
        result = np.where(np.less(tile, pixels), whole, 0.0)
        most = np.maximum(most, part.decode_values_per_pixel * tile * at_once * items * width + result)
    return most


def diffusion_phases(
    *, model: MediaModel, job: MediaJob, plan: Plan, assumptions: Assumptions
) -> Mapping[str, MemoryBreakdown]:
    """
    Memory of each phase, by the name of the phase.

    Parameters
    ----------
    model : MediaModel
        Components and their traced figures.
    job : MediaJob
        Size, batch, precision, quantisation, offload, tiling.
    plan : Plan
        `context_parallel` GPUs share one item's activations; `offload`: one component at a time, or one module
        under `sequential`.
    assumptions : Assumptions
        `media_memory_*`.

    Returns
    -------
    mapping of str to MemoryBreakdown
        encode, denoise, decode and, where it matters, load. [bytes]

    Raises
    ------
    NotModelled
        If the VAE's channels are not known; says so.

    Notes
    -----
    Source: `docs/formulas.md`, "Diffusion memory".
    """
    work = denoiser_pass(model=model, job=job)
    if not any(part.decode_values_per_pixel for part in model.components):
        raise NotModelled(f"{model.name}: a pipeline without the channels of its VAE", "its decode peak is not known")
    width = WIDTH.get(job.precision, SIXTEEN_BIT)
    held = [part for part in model.components if job.encoders_resident or not is_encoder(part)]
    encoders = sum(component_bytes(part=part, job=job) for part in held if is_encoder(part))
    largest_encoder = max((component_bytes(part=part, job=job) for part in held if is_encoder(part)), default=0.0)
    denoisers = [component_bytes(part=part, job=job) for part in held if part.role.startswith("denoiser")]
    fused = fused_bytes(model=model, job=job)
    vae = sum(component_bytes(part=part, job=job) for part in held if not is_encoder(part)) - sum(denoisers)
    everything = encoders + sum(denoisers) + vae + fused
    offloaded = np.not_equal(plan.offload, OFFLOAD.index("none")) | (job.offload != "none")
    sequential = one_module_at_a_time(job, plan)
    guidance = 1.0 if model.passes_one_by_one else model.passes_per_step
    at_once = np.asarray(job.batch, dtype=np.float64) * guidance
    live = assumptions["media_memory_activations"] * work.live_bytes * (width / SIXTEEN_BIT)
    latents = 4.0 * (model.latent_channels or 16.0) * (model.patch or 1.0) ** 2 * work.tokens * width
    decoding = assumptions["media_memory_decode"] * decode_bytes(model=model, job=job)
    prompt = at_once * max(model.joint_text_tokens, TEXT_TOKENS) * ENCODER_LIVE_BYTES
    reserved = assumptions["media_memory_context_bytes"]
    beyond = assumptions["media_memory_weights"]

    def weights(component: float, module: float) -> Number:
        return beyond * np.where(offloaded, np.where(sequential, module, component), everything)

    denoiser = max(denoisers, default=0.0) + fused
    phases = {
        "encode": (
            weights(largest_encoder, max((table_bytes(part) for part in held if is_encoder(part)), default=0.0)),
            prompt,
        ),
        "denoise": (
            weights(denoiser, largest_module_bytes(model=model, job=job)),
            at_once * live / plan.context_parallel + latents,
        ),
        # A VAE is small: its modules are not told apart.
        "decode": (weights(vae, vae), decoding + latents),
    }
    if job.quantizes_on_gpu and job.quantization is not None:
        plain = replace(job, quantization=None)
        large = sum(component_bytes(part=part, job=plain) for part in held)
        large += fused_bytes(model=model, job=plain)
        one = max(component_bytes(part=part, job=plain) for part in held)
        loading = np.where(offloaded, one, large)
        # At best weights were made smaller before they came to the GPU.
        least = np.where(offloaded, 0.0, everything)
        phases["load"] = (np.where(np.equal(beyond, beyond[0]), least, beyond * loading), np.zeros(()))
    shape = np.ones_like(np.asarray(plan.data_parallel, dtype=np.float64))
    return {
        name: MemoryBreakdown(
            weights=standing * shape,
            activations=moving * shape,
            reserved=reserved,
            phase=float(PHASES.index(name)),
        )
        for name, (standing, moving) in phases.items()
    }


ENCODER_LIVE_BYTES = 12.0 * 4096.0 * SIXTEEN_BIT
"""Per prompt token while text is encoded: a dozen copies of a 4,096-wide state. [bytes/token]"""
MODULATION = 6.0
"""Rows over width of a transformer's widest linear module: shift, scale and gate before attention and MLP. [-]"""
CONVOLUTION = 9.0 * 2560.0 * 1280.0
"""Largest convolution of a U-Net: 3 x 3, the skip connection beside the state, 1,280 channels as in SD and SDXL. [-]"""
OTHER_MODULE = 0.05
"""Share of a denoiser that its largest module takes where neither width nor kind is known: one of 20 layers. [-]"""
TABLES = {
    "T5EncoderModel": 32_128 * 4096, "UMT5EncoderModel": 256_384 * 4096, "LlamaModel": 128_320 * 4096,
    "LlamaForCausalLM": 128_256 * 4096, "Qwen2_5_VLForConditionalGeneration": 152_064 * 3584,
    "Qwen3Model": 151_936 * 2560, "Mistral3ForConditionalGeneration": 131_072 * 5120, "Gemma2Model": 256_000 * 2304,
    "CLIPTextModel": 49_408 * 768, "CLIPTextModelWithProjection": 49_408 * 1280,
}  # fmt: skip
"""Token embedding of each class of text encoder, vocabulary x width. Source: config.json of the encoders. [-]"""
OTHER_TABLE = 0.1
"""Share of an encoder that its embedding takes where the class is not known; 0.03 of T5 XXL, 0.18 of UMT5. [-]"""


def one_module_at_a_time(job: MediaJob, plan: Plan) -> NDArray[np.bool_]:
    """Whether each module's weights come to the GPU for its own pass alone."""
    return np.asarray(np.equal(plan.offload, OFFLOAD.index("sequential")) | (job.offload == "sequential"))


def largest_module_bytes(*, model: MediaModel, job: MediaJob) -> float:
    """
    Weights of the denoiser's largest module: the most that sequential offload holds while denoising.

    Notes
    -----
    Hooks sit on every submodule that has parameters of its own, so a single linear or convolution is resident, not a
    layer. Source: diffusers `enable_sequential_cpu_offload`, accelerate `attach_align_device_hook`.

    Returns
    -------
    float
        [bytes]
    """
    whole = max(component_bytes(part=part, job=job) for part in model.components if part.role.startswith("denoiser"))
    if model.denoiser_type == "unet":
        values = CONVOLUTION
    elif model.denoiser_hidden is not None:
        values = MODULATION * model.denoiser_hidden**2
    else:
        return OTHER_MODULE * whole
    width = job.quantization.bytes_per_weight if job.quantization else WIDTH.get(job.precision, SIXTEEN_BIT)
    return min(values * width, whole)


def table_bytes(part: Component) -> float:
    """Token embedding of a text encoder, its largest module; never quantised. [bytes]"""
    return min(float(TABLES.get(part.cls, OTHER_TABLE * part.params)), part.params) * SIXTEEN_BIT


def diffusion_memory(*, model: MediaModel, job: MediaJob, plan: Plan, assumptions: Assumptions) -> MemoryBreakdown:
    """Memory of the fullest phase; parameters as for `diffusion_phases`."""
    return fullest(list(diffusion_phases(model=model, job=job, plan=plan, assumptions=assumptions).values()))


def fullest(phases: list[MemoryBreakdown]) -> MemoryBreakdown:
    """
    The phase with the largest total, place by place.

    Examples
    --------
    >>> fullest([MemoryBreakdown(weights=2.0), MemoryBreakdown(weights=1.0, activations=3.0)]).total.item()
    4.0
    """
    parts = ("weights", "gradients", "optimizer", "activations", "logits", "kv_cache", "buffers", "reserved", "phase")
    stacks = {
        part: np.stack(np.broadcast_arrays(*(_full(getattr(phase, part), phase.total) for phase in phases)))
        for part in parts
    }
    total = sum(stacks[part] for part in parts[:-1])
    place = np.argmax(np.asarray(total), axis=0)[None]
    return MemoryBreakdown(**{part: np.take_along_axis(stacks[part], place, axis=0)[0] for part in parts})


def _full(value: Number, like: Number) -> Number:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), np.broadcast_shapes(np.shape(value), np.shape(like)))
