"""
Speech and music by autoregressive models: transcribing (an encoder reads windows of sound, a decoder writes text) and
generating (a decoder writes audio tokens, a codec turns them into sound).

A step writes one token for every item of the batch. It reads the decoder's weights once and launches the same small
kernels whatever the batch, so at small batches the host decides and batching is nearly free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.errors import NotModelled
from gpuguide.estimate.compute import matmul_flops_per_s, memory_bytes_per_s
from gpuguide.estimate.results import PHASES, MediaSpeed, MemoryBreakdown
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import MediaModel
from gpuguide.spec.plan import OFFLOAD, Plan
from gpuguide.units import Number

WINDOW_S = 30.0
"""Whisper reads sound in windows of this length. Source: OpenAI Whisper `audio.py`, CHUNK_LENGTH. [s]"""
WINDOW_POSITIONS = 1500.0
"""Encoder positions of one window: a frame of 10 ms, halved by a convolution. Source: the same, N_FRAMES / 2. [-]"""
LONGEST_TEXT = 448.0
"""Decoder positions. Source: OpenAI Whisper model dimensions, n_text_ctx. [tokens]"""
DECODER_LAYER_SHARE = 16.0
"""Parameters of a decoder layer with cross-attention over the square of its width: 4 + 4 + 8. [-]"""
WIDTH = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0}
FUSED_RUNTIMES = ("faster-whisper", "whisper.cpp", "ctranslate2", "tensorrt-llm", "vllm")
"""Runtimes whose layers are a few fused kernels started from C++, not from Python."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stage:
    """One autoregressive network of a pipeline."""

    params: float
    layers: float
    tokens_per_s: float  # steps per second of audio


def decoder_params(model: MediaModel) -> float:
    """
    Parameters that one step of a transcriber reads: decoder layers and the vocabulary.

    Notes
    -----
    16 x width squared a layer. Whisper large: 839 million of 1,543 million, and 66 million of vocabulary.
    Source: `docs/formulas.md`, "Speech".
    """
    layers, width = model.denoiser_layers or 0.0, model.denoiser_hidden or 0.0
    return DECODER_LAYER_SHARE * layers * width**2 + VOCABULARY * width


VOCABULARY = 51_866.0
"""Whisper's tokens. [-]"""


def _stages(model: MediaModel, assumptions: Assumptions) -> list[_Stage]:
    """The networks that write tokens, and how many tokens a second of sound takes."""
    layers = model.denoiser_layers or 0.0
    if model.task == "asr":
        return [_Stage(params=decoder_params(model), layers=layers, tokens_per_s=0.0)]
    found = [
        _Stage(params=part.params, layers=layers, tokens_per_s=part.tokens_per_s)
        for part in model.components
        if part.tokens_per_s
    ]
    if not found or not layers:
        raise NotModelled(
            f"{model.name}: an audio pipeline without layers, width and token rate of its decoder",
            "its steps cannot be counted",
        )
    return found


def audio_memory(*, model: MediaModel, job: MediaJob, plan: Plan, assumptions: Assumptions) -> MemoryBreakdown:
    """
    Memory of one GPU while it writes tokens.

    Parameters
    ----------
    model : MediaModel
        Components, decoder layers, cached values per token.
    job : MediaJob
        Precision or weight format, batch, beams, length of the recording.
    plan : Plan
        `offload` other than none keeps the largest component alone.
    assumptions : Assumptions
        `media_memory_*`, `media_asr_tokens_per_s`.

    Returns
    -------
    MemoryBreakdown
        [bytes]

    Notes
    -----
    The cache of a transcriber holds the window's 1,500 positions once per item and the text once per beam. A music
    model with guidance caches twice. Source: `docs/formulas.md`, "Speech".
    """
    _stages(model, assumptions)
    shape = np.ones_like(np.asarray(plan.data_parallel, dtype=np.float64))
    width = job.quantization.bytes_per_weight if job.quantization else WIDTH.get(job.precision, 2.0)
    per_value = max(WIDTH.get(job.precision, 2.0), 2.0)
    largest = max(part.params for part in model.components)
    offloaded = np.not_equal(plan.offload, OFFLOAD.index("none")) | (job.offload != "none")
    weights = np.where(offloaded, largest, model.params) * width
    batch = np.asarray(job.batch, dtype=np.float64)
    state: Number
    if model.task == "asr":
        text = np.minimum(LONGEST_TEXT, WINDOW_S * assumptions["media_asr_tokens_per_s"])
        cached = batch * (WINDOW_POSITIONS + job.beams * text / 2.0)  # the text's cache grows from nothing
        state = WINDOW_POSITIONS * (model.denoiser_hidden or 0.0) * per_value * ENCODER_COPIES
    else:
        rate = max((part.tokens_per_s or 0.0) for part in model.components)
        cached = batch * model.passes_per_step * rate * np.asarray(job.audio_seconds)
        state = batch * model.passes_per_step * (model.denoiser_hidden or 0.0) * per_value * ENCODER_COPIES
    workspace = assumptions["media_audio_workspace_bytes"] * (1.0 if model.task == "asr" else 0.5)
    return MemoryBreakdown(
        weights=weights * shape,
        kv_cache=cached * model.kv_elements * per_value * shape,
        activations=state * shape,
        buffers=workspace,
        reserved=assumptions["media_memory_context_bytes"],
        phase=float(PHASES.index("decode")),
    )


ENCODER_COPIES = 20.0
"""Hidden states alive in an encoder layer, its MLP four times as wide. [-]"""


def audio_speed(*, model: MediaModel, job: MediaJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> MediaSpeed:
    """
    Time of one batch of recordings; when transcribing, a batch is so many windows of one recording at once.

    Parameters
    ----------
    model, job, plan, nodes, assumptions
        As for `audio_memory`; `data_parallel` replicas.

    Returns
    -------
    MediaSpeed
        Items are recordings of `audio_seconds`; seconds of audio over `batch_s` is the real-time factor.

    Notes
    -----
    Source: `docs/formulas.md`, "Speech".
    """
    stages = _stages(model, assumptions)
    width = job.quantization.bytes_per_weight if job.quantization else WIDTH.get(job.precision, 2.0)
    bandwidth = memory_bytes_per_s(nodes, 1.0) * assumptions["compute_memory_share"]
    rate = matmul_flops_per_s(nodes=nodes, precision="fp32" if job.precision == "fp32" else "fp16")
    rate = rate * assumptions["media_matmul_share"]
    seconds = np.asarray(job.audio_seconds, dtype=np.float64)
    batch = np.asarray(job.batch, dtype=np.float64)
    fused = job.runtime in FUSED_RUNTIMES
    layer_s = assumptions["media_audio_layer_s"] * (1.0 if fused else PYTHON_SLOWDOWN)
    if model.task != "asr":
        layer_s = layer_s * NO_BEAMS
    if model.task == "asr":
        windows = np.ceil(seconds / WINDOW_S)
        rounds = np.ceil(windows / batch)
        at_once = np.minimum(batch, windows)
        # The window with the most words keeps its whole batch waiting.
        longest = 1.0 + LONGEST_WINDOW * (1.0 - 1.0 / at_once)
        steps = rounds * longest * WINDOW_S * assumptions["media_asr_tokens_per_s"]
        encoder = model.params - decoder_params(model)
        encode = windows * 2.0 * encoder * WINDOW_POSITIONS / rate
        rows = at_once * job.beams
        cache = at_once * (WINDOW_POSITIONS + job.beams * WINDOW_S * 2.0) * model.kv_elements * 2.0
        decode = np.zeros(())
        items_at_once = np.ones(())
    else:
        steps, encode = seconds, np.zeros(())
        rows = batch * model.passes_per_step
        cache = rows * model.kv_elements * 2.0 * seconds / 2.0 * max(stage.tokens_per_s for stage in stages)
        codec = model.component_params("audio_codec") + model.component_params("vae")
        decode = batch * 2.0 * codec * seconds * CODEC_FRAMES_PER_S / rate
        items_at_once = batch
    writing = np.zeros(())
    for stage in stages:
        read = (stage.params * width + cache) / bandwidth
        multiply = rows * 2.0 * stage.params / rate
        host = stage.layers * layer_s
        # Launching and reading overlap in part: half of the shorter is seen.
        one = np.maximum(np.maximum(read, multiply), host) + 0.5 * np.minimum(read, host)
        writing = writing + steps * (stage.tokens_per_s or 1.0) * one
    total = (encode + writing + decode) * np.ones_like(np.asarray(plan.data_parallel, dtype=np.float64))
    reading = sum(stage.params for stage in stages) * width / bandwidth
    launching = np.broadcast_to(sum(stage.layers for stage in stages) * layer_s, np.shape(reading))
    return MediaSpeed(
        encode_s=encode,
        denoise_s=writing,
        decode_s=decode,
        batch_s=total,
        items_per_s=plan.data_parallel * items_at_once / total,
        bound=np.where(launching > reading, "overhead", "memory").astype(object),
    )


LONGEST_WINDOW = 0.5
"""Words of the fullest window of a large batch beyond those of the mean one. [-]"""
PYTHON_SLOWDOWN = 2.0
"""Layers driven from Python over fused ones. Source: faster-whisper README, rows of both kinds. [-]"""
NO_BEAMS = 0.3
"""A layer without beam search and its reordered cache, over one with it. [-]"""
CODEC_FRAMES_PER_S = 75.0
"""Latent frames a codec decodes per second of sound. Source: EnCodec 24 kHz. [1/s]"""
