"""A scenario about images, video, speech or music becomes a job here: defaults filled, formats looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuguide.catalog.resolve import row_named
from gpuguide.errors import InvalidScenario, NotModelled
from gpuguide.estimate.media import check_modelled, is_diffusion
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import MediaModel
from gpuguide.spec.scenario import Scenario

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

AUDIO_TASKS = ("audio", "asr", "tts", "music")
LARGEST_DETOUR = 64.0
"""Times the native pixels up to which a size is answered; beyond, the pipeline makes no picture worth having. [-]"""
FUSED_PRECISIONS = ("fp8", "int8", "fp4")
"""Arithmetic that pays only in kernels that are compiled or come fused: assumed where a job asks for it."""
RECIPES = {"full": "amp-fp32-master", "lora": "pure-bf16", "qlora": "pure-bf16"}
QUANTIZATION = "nf4-dq"
TRAINING_BATCH = 8
"""Examples per step: one for each GPU of a machine. Source: diffusers examples, 1 to 8."""


def media(scenario: Scenario, model: MediaModel, catalog: Catalog) -> tuple[Scenario, MediaJob]:
    """
    The scenario with media defaults filled, and its job.

    Raises
    ------
    InvalidScenario
        If the pipeline makes something else, or a size is beyond what it can make.
    NotModelled
        If too little is known of the pipeline; says which component facts are missing.
    """
    check_modelled(model)
    _makes(model, scenario.workload)
    if scenario.offload == "optimizer":
        raise InvalidScenario(
            "offload", "optimizer", "generating has no optimizer: none, all (one component at a time) or auto"
        )
    if scenario.offload == "sequential" and not is_diffusion(model):
        raise InvalidScenario(
            "offload", "sequential", f"{model.name} reads all its weights for every token: none, all or auto"
        )
    filled = _with_size(scenario, model)
    quantization = (
        row_named("weight format", scenario.quantization, catalog.weight_formats) if scenario.quantization else None
    )
    if quantization is not None and quantization.bits_per_weight >= SIXTEEN:
        quantization = None
    job = MediaJob(
        task=scenario.workload,
        width=float(filled.width or 0),
        height=float(filled.height or 0),
        frames=float(filled.frames or 1),
        steps=float(filled.steps or 1),
        batch=float(filled.batch),
        items=float(filled.items),
        audio_seconds=float(filled.audio_seconds) if scenario.workload == "audio" else 0.0,
        precision=_precision(scenario, model, catalog),
        quantization=quantization,
        offload=OFFLOAD_OF.get(scenario.offload, "none"),
        compiled=quantization is not None and quantization.compute_precision in FUSED_PRECISIONS,
        beams=BEAMS if model.task == "asr" else 1.0,
        runtime="faster-whisper" if model.task == "asr" else "transformers",
    )
    return filled, job


OFFLOAD_OF = {"all": "model", "sequential": "sequential"}
"""Values of a scenario, and what diffusers calls them."""
SIXTEEN = 16.0
BEAMS = 5.0
"""Hypotheses of the usual transcription runtimes. Source: OpenAI Whisper and faster-whisper, default beam_size."""


def media_training(scenario: Scenario, model: MediaModel, catalog: Catalog) -> tuple[Scenario, MediaJob]:
    """
    The scenario with defaults of fine-tuning filled, and its job; `items` are the examples the run sees.

    Raises
    ------
    InvalidScenario
        If the workload is pre-training, or an adapter is wider than the layer it sits on.
    NotModelled
        If the model is not a diffusion model, or too little is known of it.
    """
    check_modelled(model)
    if scenario.workload not in RECIPES:
        raise InvalidScenario("workload", scenario.workload, f"{model.name} is fine-tuned: full, lora or qlora")
    if not is_diffusion(model):
        raise NotModelled(f"fine-tuning {model.name}", "only diffusion models are trained here")
    width = model.denoiser_hidden
    if scenario.workload != "full" and width is not None and scenario.lora_rank > width:
        raise InvalidScenario("lora_rank", scenario.lora_rank, f"the adapted layers are {width:.0f} wide")
    filled = _with_size(scenario, model)
    micro = scenario.micro_batch or 1
    batch = scenario.global_batch or max(TRAINING_BATCH, micro * (scenario.data_parallel or scenario.gpus or 1))
    if batch < micro:
        raise InvalidScenario("global_batch", batch, f"a step holds at least the {micro} examples of one micro-batch")
    recipe = scenario.recipe or RECIPES[scenario.workload]
    quantization = scenario.quantization or QUANTIZATION if scenario.workload == "qlora" else None
    filled = filled.model_copy(update={"global_batch": batch, "recipe": recipe, "quantization": quantization})
    job = MediaJob(
        task=_task(model),
        width=float(filled.width or 0),
        height=float(filled.height or 0),
        frames=float(filled.frames or 1),
        steps=1.0,
        batch=float(batch),
        items=float(filled.items),
        audio_seconds=float(filled.audio_seconds) if _task(model) == "audio" else 0.0,
        precision="bf16",
        quantization=row_named("weight format", quantization, catalog.weight_formats) if quantization else None,
        method="full" if scenario.workload == "full" else "lora",
        recipe=row_named("recipe", recipe, catalog.recipes),
        optimizer=row_named("optimizer", scenario.optimizer, catalog.optimizers),
        lora_rank=float(scenario.lora_rank) if scenario.workload != "full" else 0.0,
        latents_precomputed=_task(model) == "video",
    )
    return filled, job


def _task(model: MediaModel) -> str:
    return "audio" if model.task in AUDIO_TASKS else model.task


def _makes(model: MediaModel, workload: str) -> None:
    if _task(model) != workload:
        raise InvalidScenario("workload", workload, f"{model.name} is made for {_task(model)}")


def _with_size(scenario: Scenario, model: MediaModel) -> Scenario:
    """Size, frames and steps of the pipeline where the scenario says nothing."""
    if _task(model) == "audio":
        steps = scenario.steps or (int(model.default_steps) if model.default_steps else None)
        return scenario.model_copy(update={"steps": steps})
    width, height = (
        scenario.width or int(model.native_width or 1024),
        scenario.height or int(model.native_height or 1024),
    )
    frames = scenario.frames or (int(model.native_frames or 1) if model.task == "video" else 1)
    if model.task == "image" and frames > 1:
        raise InvalidScenario("frames", frames, f"{model.name} makes images of one frame")
    native = (model.native_width or 1024.0) * (model.native_height or 1024.0) * (model.native_frames or 1.0)
    if width * height * frames > LARGEST_DETOUR * native:
        raise InvalidScenario(
            "width x height x frames", width * height * frames, f"{model.name} is made for {native:.0f} pixels"
        )
    steps = scenario.steps or int(model.default_steps or 50)
    return scenario.model_copy(update={"width": width, "height": height, "frames": frames, "steps": steps})


def _precision(scenario: Scenario, model: MediaModel, catalog: Catalog) -> str:
    """What the pipeline computes in: the recipe's, else what it is published in."""
    if scenario.recipe:
        precision = row_named("recipe", scenario.recipe, catalog.recipes).compute_precision
        return precision if precision in ("fp32", "fp16", "bf16") else "bf16"
    return model.native_dtype if model.native_dtype in ("fp16", "bf16", "fp32") else "bf16"
