"""Published memory and time of image, video, speech and music pipelines, against the estimate for the same run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.accuracy import media_rows as rows_of
from gpuguide.accuracy.inputs import note
from gpuguide.accuracy.media_rows import NotScoreable, Row, number, text
from gpuguide.accuracy.table import SCORED, Scorer
from gpuguide.errors import GuideError
from gpuguide.estimate.diffusion_memory import component_bytes, fused_bytes
from gpuguide.estimate.media import media_memory, media_speed
from gpuguide.estimate.media_training import media_training_memory
from gpuguide.estimate.results import MemoryBreakdown
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import MediaModel
from gpuguide.spec.plan import OFFLOAD, Plan
from gpuguide.units import GB, GIB

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

Estimated = tuple[float, tuple[float, float, float]]
"""Measured value, and (low, typical, high)."""


def _table(frame: pd.DataFrame, catalog: Catalog, score: Callable[[Row, Catalog], Estimated]) -> pd.DataFrame:
    """A scored frame from one function per row."""
    return pd.DataFrame([_scored(row, catalog, score) for row in frame.to_dict("records")], columns=list(SCORED))


def _scored(row: Mapping[Any, Any], catalog: Catalog, score: Callable[[Row, Catalog], Estimated]) -> dict[str, Any]:
    base: dict[str, Any] = {
        "row_id": row["row_id"], "source_id": row["source_id"], "measured": np.nan, "low": np.nan, "typical": np.nan,
        "high": np.nan, "skip": "", "expected": "", "verdict": "", "label": f"{row['model']} on {row.get('gpu')}",
    }  # fmt: skip
    try:
        measured, (low, typical, high) = score(row, catalog)
    except NotScoreable as reason:
        return {**base, "skip": str(reason)}
    except GuideError as error:
        return {**base, "skip": error.key}
    return {**base, "measured": measured, "low": low, "typical": typical, "high": high}


def diffusion_memory(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Peak memory of generating; rows hold what the framework allocated, in GiB."""
    return _table(frame, catalog, _diffusion_memory)


def _diffusion_memory(row: Row, catalog: Catalog) -> Estimated:
    measured = number(row, "peak_memory_gb")
    if measured is None:
        raise NotScoreable("no peak memory")
    model = rows_of.media_model_of(str(row["model"]), catalog)
    job = _with_encoders_as_weighed(rows_of.diffusion_job(row, model), model, row)
    plan = Plan(
        context_parallel=rows_of.context_parallel_of(row),
        offload=float(OFFLOAD.index("all" if job.offload != "none" else "none")),
    )
    nodes = rows_of.nodes_of(row, catalog, needed=False)
    note(model=model, job=job, plan=plan, nodes=nodes)
    memory = media_memory(model=model, job=job, plan=plan, nodes=nodes, assumptions=catalog.assumptions)
    return measured, _allocated(memory, GIB)


def _allocated(memory: MemoryBreakdown, unit: float) -> tuple[float, float, float]:
    """Without the CUDA context, which the framework's own counters do not see."""
    return rows_of.band_of(np.broadcast_to((memory.total - memory.reserved) / unit, (3, 1, 1)))


def _with_encoders_as_weighed(job: MediaJob, model: MediaModel, row: Row) -> MediaJob:
    """Where a row gives the weights' size, that says whether text encoders were made smaller too."""
    weighed = number(row, "model_memory_gb")
    if job.quantization is None or weighed is None:
        return job
    both = replace(job, quantizes_encoders=True)
    alone = replace(job, quantizes_encoders=False)

    def size(choice: MediaJob) -> float:
        weights = sum(component_bytes(part=part, job=choice) for part in model.components)
        return abs((weights + fused_bytes(model=model, job=choice)) / GIB - weighed)

    return min((both, alone), key=size)


def diffusion_speed(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Seconds per item."""
    return _table(frame, catalog, _diffusion_speed)


def _diffusion_speed(row: Row, catalog: Catalog) -> Estimated:
    batch = number(row, "batch") or 1.0
    measured = number(row, "seconds_per_item")
    if measured is None and number(row, "seconds_total") is not None:
        measured = (number(row, "seconds_total") or 0.0) / batch
    if measured is None and number(row, "items_per_s"):
        measured = 1.0 / (number(row, "items_per_s") or 1.0)
    step = re.search(r"([\d.]+) ms per denoising iteration", text(row, "notes"))
    if measured is None and step is None:
        raise NotScoreable("no time")
    model = rows_of.media_model_of(str(row["model"]), catalog)
    job = rows_of.diffusion_job(row, model)
    words = text(row, "quantization")
    if rows_of.TINYGEMM.search(words):
        raise NotScoreable("kernels made for one token at a time")
    if job.quantization is not None and job.quantization.compute_precision == "int8" and not job.compiled:
        raise NotScoreable("dynamic int8 without fused kernels")
    plan = Plan(
        context_parallel=rows_of.context_parallel_of(row),
        offload=float(OFFLOAD.index("all" if job.offload != "none" else "none")),
    )
    nodes = rows_of.nodes_of(row, catalog, needed=True)
    note(model=model, job=job, plan=plan, nodes=nodes)
    speed = media_speed(model=model, job=job, plan=plan, nodes=nodes, assumptions=catalog.assumptions)
    if measured is None and step is not None:
        per_step = np.asarray(speed.denoise_s) / job.steps
        return float(step.group(1)) / 1000.0, rows_of.band_of(np.broadcast_to(per_step, (3, 1, 1)))
    return measured or 0.0, rows_of.band_of(np.broadcast_to(speed.batch_s / batch, (3, 1, 1)))


def audio_memory(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Memory that the driver shows while speech is read or sound is made; GiB."""
    return _table(frame, catalog, _audio_memory)


def _audio_memory(row: Row, catalog: Catalog) -> Estimated:
    measured = number(row, "vram_gb")
    if measured is None:
        raise NotScoreable("no memory")
    model, job = _audio_job(row, catalog)
    plan = Plan(offload=float(OFFLOAD.index("all" if job.offload != "none" else "none")))
    nodes = rows_of.nodes_of(row, catalog, needed=False)
    note(model=model, job=job, plan=plan, nodes=nodes)
    memory = media_memory(model=model, job=job, plan=plan, nodes=nodes, assumptions=catalog.assumptions)
    return measured, rows_of.band_of(np.broadcast_to(memory.total / GIB, (3, 1, 1)))


def audio_speed(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Seconds of sound per second of work."""
    return _table(frame, catalog, _audio_speed)


def _audio_speed(row: Row, catalog: Catalog) -> Estimated:
    measured = number(row, "realtime_factor_x")
    seconds, wall = number(row, "audio_seconds"), number(row, "wall_seconds")
    if measured is None and seconds and wall:
        measured = seconds / wall
    if measured is None:
        raise NotScoreable("no real-time factor")
    nodes = rows_of.nodes_of(row, catalog, needed=True)
    model, job = _audio_job(row, catalog)
    note(model=model, job=job, plan=Plan(), nodes=nodes)
    speed = media_speed(model=model, job=job, plan=Plan(), nodes=nodes, assumptions=catalog.assumptions)
    made = job.audio_seconds if model.task == "asr" else job.audio_seconds * np.asarray(job.batch)
    return measured, rows_of.band_of(np.broadcast_to(made / speed.batch_s, (3, 1, 1)))


AUDIO_SECONDS = {"asr": 780.0, "music": 30.0, "tts": 12.0, "audio": 30.0}
"""Where a row does not say: a long recording to transcribe, a short one to make. [s]"""


def _audio_job(row: Row, catalog: Catalog) -> tuple[MediaModel, MediaJob]:
    notes, engine = text(row, "notes"), text(row, "engine")
    if rows_of.REQUIREMENT.search(notes) or notes.startswith("under "):
        raise NotScoreable("a stated requirement, not a measurement")
    model = rows_of.media_model_of(str(row["model"]), catalog)
    words = text(row, "precision")
    precision = next((name for name in ("fp16", "bf16", "fp32") if name in words), "")
    runtime = next((name for name in ("faster-whisper", "whisper.cpp") if name in engine), "transformers")
    beam = re.search(r"beam (?:size )?(\d+)", notes)
    batch = number(row, "batch") or 1.0
    job = MediaJob(
        task="audio",
        width=0.0,
        height=0.0,
        frames=1.0,
        steps=model.default_steps or 1.0,
        batch=batch,
        items=batch,
        audio_seconds=number(row, "audio_seconds") or AUDIO_SECONDS.get(model.task, 30.0),
        precision=precision or ("fp16" if model.task == "asr" else model.native_dtype),
        quantization=rows_of.format_of(words) if words and not precision else None,
        beams=float(beam.group(1)) if beam else (5.0 if model.task == "asr" else 1.0),
        offload="model" if "offload" in engine or "offload" in notes else "none",
        runtime=runtime,
    )
    return model, job


def diffusion_training(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Peak memory of fine-tuning; decimal GB, or GiB where torch's own counter was printed."""
    return _table(frame, catalog, _diffusion_training)


def _diffusion_training(row: Row, catalog: Catalog) -> Estimated:
    if not text(row, "evidence").startswith("measured"):
        raise NotScoreable("not a measurement")
    measured = number(row, "peak_memory_gb")
    if measured is None:
        raise NotScoreable("no peak memory")
    model = rows_of.media_model_of(str(row["model"]), catalog)
    job, plan = _training_job(row, model, catalog)
    nodes = rows_of.nodes_of(row, catalog, needed=False)
    note(model=model, job=job, plan=plan, nodes=nodes)
    memory = media_training_memory(model=model, job=job, plan=plan, nodes=nodes, assumptions=catalog.assumptions)
    counter = f"{text(row, 'memory_metric')} {text(row, 'memory_unit')}"
    torch_counter = "torch" in counter or "allocated" in counter
    low, typical, high = (
        _allocated(memory, GIB) if torch_counter else rows_of.band_of(np.broadcast_to(memory.total / GB, (3, 1, 1)))
    )
    return measured, (low, typical, high)


OPTIMIZER_WORDS = (
    (r"8-?bit", "adamw-8bit"), (r"adafactor", "adafactor"), (r"lion", "lion"), (r"sgd", "sgd"), (r"prodigy", "adamw"),
)  # fmt: skip


def _training_job(row: Row, model: MediaModel, catalog: Catalog) -> tuple[MediaJob, Plan]:
    method = "lora" if "lora" in text(row, "method") or "lora" in text(row, "task") else "full"
    words, optimizer = text(row, "precision"), text(row, "optimizer")
    name = next((known for pattern, known in OPTIMIZER_WORDS if re.search(pattern, optimizer)), "adamw")
    full32 = method == "full"
    plain16 = re.search(r"bf16|fp16", words) and "script" not in words
    recipe = catalog.recipes["amp-fp32-master" if full32 else "pure-bf16"]
    if not plain16:
        # Early scripts: everything in fp32 unless mixed precision is asked for; frozen weights too.
        recipe = catalog.recipes["fp32" if method == "lora" else "amp-fp32-master"]
    side = re.findall(r"\d+", text(row, "resolution"))
    height = float(side[0]) if side else model.native_height or 512.0
    width = float(side[-1]) if side else model.native_width or 512.0
    gpus = number(row, "gpus") or 1.0
    precomputed = text(row, "latents_precomputed") == "yes"
    host = "offload" in optimizer or ("offload" in text(row, "offload") and "none" not in text(row, "offload"))
    sharded = "deepspeed" in optimizer or "zero" in optimizer
    if sharded and method == "full":
        recipe = catalog.recipes["zero-bf16"]
    quantised = text(row, "quant")
    checkpointing = text(row, "gradient_checkpointing")
    job = MediaJob(
        task=model.task,
        width=width,
        height=height,
        frames=number(row, "frames") or (model.native_frames or 1.0),
        steps=1.0,
        batch=(number(row, "batch_size") or 1.0) * gpus,
        items=1.0,
        precision="bf16" if plain16 else "fp32",
        quantization=rows_of.format_of(quantised) if quantised else None,
        method=method,
        recipe=recipe,
        optimizer=catalog.optimizers[name],
        lora_rank=number(row, "rank") or DEFAULT_RANK,
        latents_precomputed=precomputed,
        encodes_first=precomputed,
        trains_text_encoder=text(row, "text_encoder_trained") == "yes",
        images_per_example=2.0 if "dreambooth" in text(row, "task") and model.denoiser_type == "unet" else 1.0,
        foreach_optimizer=name == "adamw",
        eager_attention=text(row, "source_date")[:4] in BEFORE_FUSED and "xformers" not in text(row, "notes"),
        # Plain fine-tuning scripts keep a moving average of the weights; DreamBooth and video scripts do not.
        keeps_average=method == "full" and text(row, "task") == "finetune",
    )
    plan = Plan(
        data_parallel=gpus,
        zero_stage=2.0 if sharded else 0.0,
        micro_batch=number(row, "batch_size") or 1.0,
        recompute=2.0 if checkpointing == "yes" or (not checkpointing and model.task == "video") else 0.0,
        offload=float(OFFLOAD.index("optimizer" if host else "none")),
    )
    return job, plan


DEFAULT_RANK = 16.0
"""Where a row does not say. [-]"""
BEFORE_FUSED = ("2022", "2023")
"""Years of scripts that wrote attention scores out: PyTorch had no fused attention before March 2023."""

SCORERS: Mapping[str, Scorer] = {
    "diffusion_inference:memory": diffusion_memory,
    "diffusion_inference:speed": diffusion_speed,
    "audio_inference:memory": audio_memory,
    "audio_inference:speed": audio_speed,
    "diffusion_training": diffusion_training,
}
