"""
Fine-tuning a diffusion model: what each GPU must hold, and how long a step takes.

The denoiser is trained, in full or through adapters; text encoders and VAE stand beside it unless latents and prompts
were computed before. The fullest of four moments decides: loading and encoding, the start of the backward pass with all
kept activations, its end with all gradients, and the optimizer step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpuguide.errors import NotModelled
from gpuguide.estimate.compute import matmul_flops_per_s, memory_bytes_per_s
from gpuguide.estimate.diffusion import SIXTEEN_BIT, WIDTH, Pass, attention_rate, denoiser_pass
from gpuguide.estimate.diffusion_memory import fullest, is_encoder
from gpuguide.estimate.media import check_modelled, is_diffusion
from gpuguide.estimate.network import all_gather_s, all_reduce_s
from gpuguide.estimate.results import PHASES, MemoryBreakdown
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import MediaModel
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE, Plan
from gpuguide.spec.precision import Optimizer, PrecisionRecipe
from gpuguide.units import Number

TYPICAL_SAVED = 23.0
"""Activations kept per layer and token over width x 2 bytes; 21 to 23.5 among traced transformers, all trained. [-]"""
ADAPTED_SHARE = 0.75
"""Of what full training keeps beyond that, kept where adapters need the inputs of the layers they sit on. [-]"""
FROZEN_SHARE = 0.53
"""Of those, kept where base weights are frozen: inputs of linear layers are not needed. Source: the same traces. [-]"""
UNET_FINE_LAYERS = 5.0
"""Attention layers at the finest level, where nearly all scores are: two down, three up (SD 1.5). [-]"""
UNET_BLOCKS = 12.0
"""Blocks between which a U-Net keeps activations under checkpointing: four levels down, a middle, levels up. [-]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedStates:
    """Weights, gradients and optimizer states of the denoiser and what is trained with it. [bytes]"""

    base: Number  # all weights of the trained networks, adapters included
    gradients: Number
    optimizer: Number
    step: Number  # temporary copy of the optimizer step
    casts: Number  # 16-bit copies under autocast
    trained: Number  # parameters [-]


def trained_params(*, model: MediaModel, job: MediaJob) -> float:
    """
    Parameters that the optimizer updates: the denoiser, or adapters on its attention. [-]

    Notes
    -----
    Adapters sit on query, key, value and output of every layer: rank x 2 x width x 4. U-Net attention counts by its
    share of the parameters. Source: diffusers LoRA scripts, `target_modules = ["to_k", "to_q", "to_v", "to_out.0"]`.
    """
    denoiser = model.component_params("denoiser")
    text = model.component_params("text_encoder") if job.trains_text_encoder else 0.0
    if job.method == "full":
        return denoiser + text
    layers, width = model.denoiser_layers, model.denoiser_hidden
    if layers is None or width is None:
        # A U-Net's attention holds about a quarter of its weights, in matrices about 900 wide.
        return float(job.lora_rank) * UNET_ADAPTER_SHARE * denoiser
    return float(job.lora_rank) * 8.0 * layers * width


UNET_ADAPTER_SHARE = 2.3e-4
"""Adapter parameters per unit of rank over parameters of the U-Net: SD 1.5 at rank 4 has 797,184. [-]"""


def states_of(*, model: MediaModel, job: MediaJob, plan: Plan) -> TrainedStates:
    """
    States of what is trained, sharded by ZeRO stage.

    Raises
    ------
    NotModelled
        If the job has no recipe or optimizer.
    """
    recipe, optimizer = _recipe(job)
    denoiser = model.component_params("denoiser")
    trained = trained_params(model=model, job=job)
    shards = np.asarray(plan.data_parallel, dtype=np.float64)
    stage = np.asarray(plan.zero_stage, dtype=np.float64)
    adapters = job.method != "full"
    state = recipe.state_bytes if optimizer.state_bytes is None else optimizer.state_bytes
    frozen = job.quantization.bytes_per_weight if job.quantization else _frozen_width(job, recipe)
    width = job.adapter_bytes if adapters else recipe.weight_bytes
    master = 0.0 if adapters else trained * recipe.master_bytes
    base = trained * width + (denoiser * frozen if adapters else 0.0)
    gradient = job.adapter_bytes if adapters else recipe.gradient_bytes
    on_host = np.equal(plan.offload, OFFLOAD.index("optimizer")) | np.equal(plan.offload, OFFLOAD.index("all"))
    states = master + trained * (0.0 if optimizer.factored else optimizer.states * state)
    casts = SIXTEEN_BIT * trained if recipe.autocast and not adapters else 0.0
    # `foreach` Adam holds the square root of all second moments at once; 8-bit optimizers work tensor by tensor.
    temporary = trained * 4.0 if job.foreach_optimizer and optimizer.state_bytes is None and optimizer.states else 0.0
    average = 4.0 * trained if job.keeps_average else 0.0
    return TrainedStates(
        base=(base / np.where(stage >= 3, shards, 1.0)) + average,
        # Gradients leave for the host as they come: about half are still here while the rest are copied.
        gradients=trained * gradient * np.where(on_host, 0.5, 1.0) / np.where(stage >= 2, shards, 1.0),
        optimizer=np.where(on_host, 0.0, states / np.where(stage >= 1, shards, 1.0)),
        step=np.where(on_host, 0.0, temporary / np.where(stage >= 1, shards, 1.0)),
        casts=casts,
        trained=trained,
    )


def _frozen_width(job: MediaJob, recipe: PrecisionRecipe) -> float:
    """Frozen weights are cast to what the run computes in."""
    return WIDTH.get(recipe.compute_precision, SIXTEEN_BIT)


def _recipe(job: MediaJob) -> tuple[PrecisionRecipe, Optimizer]:
    if job.recipe is None or job.optimizer is None:
        raise NotModelled("fine-tuning without a precision recipe and an optimizer", "choose both")
    return job.recipe, job.optimizer


def saved_bytes(*, model: MediaModel, job: MediaJob, work: Pass) -> tuple[Number, Number]:
    """
    Activations one example keeps for the backward pass, and the part of one layer. [bytes]

    Notes
    -----
    Traced where known, else 23 x width x 2 bytes per layer and token. With adapters on attention alone the figure lies
    between frozen and full: half of a block's linear layers keep their input. Source: `docs/formulas.md`,
    "Diffusion training".
    """
    recipe, _ = _recipe(job)
    tokens = work.tokens + model.joint_text_tokens
    layers, width = model.denoiser_layers, model.denoiser_hidden
    full, frozen = model.saved_bytes_per_token, model.saved_bytes_per_token_frozen
    if full is None:
        if layers is None or width is None:
            raise NotModelled(f"{model.name}: training a U-Net whose activations were not traced", "choose another")
        full = TYPICAL_SAVED * SIXTEEN_BIT * layers * width
    if frozen is None:
        frozen = FROZEN_SHARE * full
    per_token = full if job.method == "full" else frozen + ADAPTED_SHARE * (full - frozen)
    total = per_token * tokens * recipe.activation_bytes / SIXTEEN_BIT
    layer = total / (layers or UNET_BLOCKS)
    if job.eager_attention and model.attention_flops_per_pair is not None:
        heads = model.attention_flops_per_pair / (4.0 * (model.head_dim or 64.0))  # heads of all layers
        scores = heads * tokens**2 * recipe.activation_bytes
        total, layer = total + scores, layer + scores / (layers or UNET_FINE_LAYERS)
    return total, layer


def media_training_memory(
    *, model: MediaModel, job: MediaJob, plan: Plan, nodes: Nodes, assumptions: Assumptions
) -> MemoryBreakdown:
    """
    Memory of one GPU at the fullest moment of fine-tuning.

    Parameters
    ----------
    model : MediaModel
        Components and traced activations.
    job : MediaJob
        Method, recipe, optimizer, size, what else is loaded.
    plan : Plan
        Replicas, ZeRO stage, `micro_batch` examples per GPU and pass, recompute, offload.
    nodes : Nodes
        Not used: memory is the same on every card.
    assumptions : Assumptions
        `media_memory_*`, `media_training_*`.

    Returns
    -------
    MemoryBreakdown
        [bytes]

    Notes
    -----
    Under checkpointing every layer keeps its input, and one layer at a time its activations and their gradients.
    Source: `docs/formulas.md`, "Diffusion training".
    """
    check_modelled(model)
    if not is_diffusion(model):
        raise NotModelled(f"fine-tuning {model.name}", "only diffusion models are trained here")
    recipe, _ = _recipe(job)
    work = denoiser_pass(model=model, job=job)
    states = states_of(model=model, job=job, plan=plan)
    saved, layer = saved_bytes(model=model, job=job, work=work)
    examples = np.asarray(plan.micro_batch, dtype=np.float64) * job.images_per_example
    layers = model.denoiser_layers or UNET_BLOCKS
    tokens = work.tokens + model.joint_text_tokens
    width = model.denoiser_hidden
    inputs = layers * tokens * width * SIXTEEN_BIT if width is not None else UNET_INPUT_SHARE * saved
    whole = np.equal(plan.recompute, RECOMPUTE.index("full")) | np.asarray(job.recompute)
    factor = assumptions["media_training_activations"]
    kept = examples * np.where(whole, inputs, saved)
    in_layer = examples * 2.0 * factor * layer
    beside = 0.0
    if not job.latents_precomputed:
        beside = _beside(model, job, recipe)
    encoding = 0.0
    if job.encodes_first:
        encoding = _beside(model, job, recipe)
    context = assumptions["media_memory_context_bytes"]
    cached = assumptions["media_training_allocator"]
    beyond = assumptions["media_memory_weights"]

    def moment(phase: str, *, gradients: Number, activations: Number, buffers: Number) -> MemoryBreakdown:
        return MemoryBreakdown(
            weights=beyond * (states.base + beside),
            gradients=gradients,
            optimizer=states.optimizer,
            activations=activations,
            buffers=buffers,
            reserved=context,
            phase=float(PHASES.index(phase)),
        )

    casts = np.where(whole, states.casts / layers, states.casts)
    moments = fullest(
        [
            MemoryBreakdown(
                weights=beyond * (states.base + beside + encoding),
                reserved=context,
                phase=float(PHASES.index("load")),
            ),
            moment("forward", gradients=0.0, activations=kept * factor + in_layer, buffers=casts),
            moment("backward", gradients=states.gradients, activations=FIRST_LAYER_SHARE * in_layer, buffers=0.0),
            moment("step", gradients=states.gradients, activations=0.0, buffers=states.step),
        ]
    )
    # Freed blocks of earlier moments stay with the allocator; the framework's own counter does not see them.
    return replace(moments, reserved=moments.reserved + cached * (moments.total - moments.reserved))


FIRST_LAYER_SHARE = 0.25
"""Activations in the first layer's backward pass over those at the last, where outputs and loss stand beside. [-]"""
UNET_INPUT_SHARE = 0.12
"""Inputs of a U-Net's blocks, its skips among them, over everything its blocks keep. [-]"""


def _beside(model: MediaModel, job: MediaJob, recipe: PrecisionRecipe) -> float:
    """Components that are loaded but not trained, cast to what the run computes in. [bytes]"""
    width = _frozen_width(job, recipe)
    parts = [part for part in model.components if not part.role.startswith("denoiser")]
    return sum(part.params * width for part in parts if job.encoders_resident or not is_encoder(part))


def media_step_s(*, model: MediaModel, job: MediaJob, plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Number:
    """
    Time of one optimizer step. [s]

    Parameters
    ----------
    model, job, plan, nodes, assumptions
        As for `media_training_memory`; the step holds `job.batch` examples over all GPUs.

    Notes
    -----
    Three passes of multiplications, two where the base is frozen, one more under checkpointing; gradients are summed
    over replicas. Source: `docs/formulas.md`, "Diffusion training".
    """
    recipe, _ = _recipe(job)
    work = denoiser_pass(model=model, job=job)
    states = states_of(model=model, job=job, plan=plan)
    examples = np.asarray(job.batch, dtype=np.float64) * job.images_per_example / plan.data_parallel
    rate = matmul_flops_per_s(nodes=nodes, precision=recipe.compute_precision)
    bandwidth = memory_bytes_per_s(nodes, 1.0) * assumptions["compute_memory_share"]
    whole = np.equal(plan.recompute, RECOMPUTE.index("full")) | np.asarray(job.recompute)
    passes = (3.0 if job.method == "full" else 2.0) + np.where(whole, 1.0, 0.0)
    forward = (
        work.matmul_flops / (rate * assumptions["media_matmul_share"])
        + work.attention_flops / attention_rate(rate, model, nodes, assumptions)
        + work.traffic_bytes * assumptions["media_eager_traffic"] / bandwidth
    )
    rounds = np.maximum(1.0, np.ceil(np.asarray(job.batch) / (plan.data_parallel * plan.micro_batch)))
    launching = rounds * passes * work.kernels * assumptions["media_kernel_s"]
    optimizer = (states.base + 2.0 * states.optimizer + states.gradients) / bandwidth
    exchange = np.where(
        np.greater(plan.data_parallel, 1.0),
        all_reduce_s(
            message_bytes=states.trained * (job.adapter_bytes if job.method != "full" else recipe.gradient_bytes),
            ranks=np.maximum(plan.data_parallel, 1.0),
            nodes=nodes,
        ),
        0.0,
    )
    # Fully sharded weights are gathered for every pass; about half of that hides behind computing.
    gathered = np.where(
        np.greater_equal(plan.zero_stage, 3.0) & np.greater(plan.data_parallel, 1.0),
        HIDDEN_GATHER
        * rounds
        * (2.0 + np.where(whole, 1.0, 0.0))
        * all_gather_s(
            message_bytes=states.base * plan.data_parallel, ranks=np.maximum(plan.data_parallel, 1.0), nodes=nodes
        ),
        0.0,
    )
    return np.maximum(examples * passes * forward, launching) + optimizer + exchange + gathered


HIDDEN_GATHER = 0.5
"""Exposed share of gathering sharded weights. [-]"""
