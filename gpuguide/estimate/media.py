"""
Media pipelines of every kind by one name: diffusion, autoregressive audio, transcription; generating or fine-tuning.

Which formulas answer follows from the pipeline's components, never from its name.
"""

from __future__ import annotations

from gpuguide.errors import NotModelled
from gpuguide.estimate.audio import audio_memory, audio_speed
from gpuguide.estimate.diffusion import diffusion_speed
from gpuguide.estimate.diffusion_memory import diffusion_memory
from gpuguide.estimate.results import MediaSpeed, MemoryBreakdown
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import MediaModel
from gpuguide.spec.plan import Plan


def is_diffusion(model: MediaModel) -> bool:
    """Whether the pipeline refines latents step by step, rather than writing tokens."""
    return bool(model.component_params("denoiser"))


def check_modelled(model: MediaModel) -> None:
    """
    Refuse a pipeline of which too little is known.

    Raises
    ------
    NotModelled
        Says which component facts are missing.
    """
    missing = []
    if is_diffusion(model):
        if model.denoiser_type == "unet" and model.flops_per_token is None:
            missing.append("channels and attention of its U-Net")
        if model.flops_per_token is None and (model.denoiser_layers is None or model.denoiser_hidden is None):
            missing.append("layers and width of its denoiser")
        if model.spatial_down is None and model.audio_down is None:
            missing.append("the factor by which its VAE shrinks")
        if not any(part.decode_values_per_pixel for part in model.components):
            missing.append("channels of its VAE")
    elif model.denoiser_layers is None or model.denoiser_hidden is None:
        missing.append("components, with layers and width of its decoder")
    elif model.task != "asr" and not any(part.tokens_per_s for part in model.components):
        missing.append("audio tokens per second of its decoder")
    if missing:
        raise NotModelled(model.name, f"not known are {' and '.join(missing)}")


def media_memory(
    *, model: MediaModel, job: MediaJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> MemoryBreakdown:
    """Memory of the fullest GPU at its fullest phase. [bytes]"""
    check_modelled(model)
    if is_diffusion(model):
        return diffusion_memory(model=model, job=job, plan=plan, assumptions=assumptions)
    return audio_memory(model=model, job=job, plan=plan, assumptions=assumptions)


def media_speed(*, model: MediaModel, job: MediaJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> MediaSpeed:
    """Time of one batch by phase, and items per second of all replicas."""
    check_modelled(model)
    if is_diffusion(model):
        return diffusion_speed(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
    return audio_speed(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)
