"""
Images, clips and recordings: which plans are legal, what they need, and how long the whole job takes.

Generating is copies of the pipeline side by side; a clip may also be shared by the GPUs of one machine, which split its
sequence. Fine-tuning is replicas of the denoiser that sum their gradients.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.estimates import Estimate, machines_of
from gpuguide.decide.fit import Fit, MemoryOf, SecondsOf, Space, best_plans, spread, typical
from gpuguide.decide.search import MICRO_BATCHES, Pairs
from gpuguide.errors import InvalidScenario
from gpuguide.estimate.media import check_modelled, is_diffusion, media_memory, media_speed
from gpuguide.estimate.media_training import media_step_s, media_training_memory
from gpuguide.estimate.results import MediaSpeed, MemoryBreakdown
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import MediaJob
from gpuguide.spec.model import MediaModel
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE, Plan
from gpuguide.spec.scenario import Question, Scenario
from gpuguide.units import Number

Floats = NDArray[np.float64]

SEQUENCE_DEGREES = (1, 2, 4, 8)
"""GPUs that may share one clip; more gain little, since text encoders and the VAE are not split."""


def media_pairs(model: MediaModel, job: MediaJob, scenario: Scenario, shapes: Nodes) -> Pairs:
    """
    Every legal way to lay a media job out over every shape.

    Rules: the GPUs that share a clip stay inside a machine; there are no more copies than batches to make, unless one
    copy alone is already more; a training step holds at least one example per GPU.

    Raises
    ------
    InvalidScenario
        If the scenario asks for a split that the job cannot have.
    """
    for key in ("tensor_parallel", "pipeline_parallel", "expert_parallel"):
        if (getattr(scenario, key) or 1) > 1:
            raise InvalidScenario(key, getattr(scenario, key), "media pipelines are copied, or share a clip's sequence")
    return _training_pairs(job, scenario, shapes) if job.method != "generate" else _pairs(model, job, scenario, shapes)


def _pairs(model: MediaModel, job: MediaJob, scenario: Scenario, shapes: Nodes) -> Pairs:
    if scenario.context_parallel is not None:
        if scenario.context_parallel > 1 and not is_diffusion(model):
            raise InvalidScenario(
                "context_parallel", scenario.context_parallel, f"{model.name} writes one token at a time"
            )
        split: tuple[int, ...] = (scenario.context_parallel,)
    else:
        split = SEQUENCE_DEGREES if job.task == "video" else (1,)
    # One module at a time is several times slower: a remedy where nothing else fits, never chosen unasked.
    offload = (OFFLOAD.index("none"), OFFLOAD.index("all")) if scenario.offload == "auto" else (_offload(job),)
    grid = np.array(list(itertools.product(split, offload)), dtype=np.float64).T
    ranks, moved = (row[:, None] for row in grid)
    copies = shapes.gpus / ranks
    batches = np.ceil(job.items / float(np.max(job.batch)))
    legal = (ranks <= shapes.gpus_per_node) & (copies % 1 == 0) & ((copies <= batches) | (copies == 1))
    if scenario.data_parallel is not None:
        legal &= copies == scenario.data_parallel
    plans, places = np.nonzero(legal & (moved >= 0))
    plan = Plan(
        context_parallel=grid[0][plans],
        offload=grid[1][plans],
        data_parallel=copies[plans, places] if copies.ndim > 1 else copies[places],
        micro_batch=np.full(len(plans), float(np.max(job.batch))),
        **_ones(len(plans)),
    )
    return Pairs(plan, places)


def _training_pairs(job: MediaJob, scenario: Scenario, shapes: Nodes) -> Pairs:
    recompute = ("none", "full") if scenario.recompute == "auto" else (scenario.recompute,)
    if "selective" in recompute:
        raise InvalidScenario("recompute", "selective", "diffusion models keep or recompute whole layers: none or full")
    if scenario.offload in ("all", "sequential"):
        raise InvalidScenario(
            "offload", scenario.offload, "fine-tuning can move optimizer states to the host: none, optimizer or auto"
        )
    offload = ("none", "optimizer") if scenario.offload == "auto" else (scenario.offload,)
    stages = (0, 1, 2, 3) if scenario.zero_stage is None else (scenario.zero_stage,)
    batch = float(np.max(job.batch))
    micro = (scenario.micro_batch,) if scenario.micro_batch else tuple(size for size in MICRO_BATCHES if size <= batch)
    axes = (micro, [RECOMPUTE.index(name) for name in recompute], [OFFLOAD.index(name) for name in offload], stages)
    grid = np.array(list(itertools.product(*axes)), dtype=np.float64).T
    size, _, _, stage = (row[:, None] for row in grid)
    data = shapes.gpus + 0.0 * size
    legal = data * size <= batch
    if scenario.zero_stage is None:
        legal &= (data > 1) == (stage > 0)
    if scenario.data_parallel is not None:
        legal &= data == scenario.data_parallel
    plans, places = np.nonzero(legal)
    plan = Plan(
        micro_batch=grid[0][plans],
        recompute=grid[1][plans],
        offload=grid[2][plans],
        zero_stage=grid[3][plans],
        data_parallel=data[plans, places],
        context_parallel=np.ones(len(plans)),
        **{name: value for name, value in _ones(len(plans)).items() if name not in ("zero_stage", "recompute")},
    )
    return Pairs(plan, places)


def _ones(count: int) -> dict[str, Floats]:
    """Degrees that a media plan does not use, one entry per plan."""
    one, none = np.ones(count), np.zeros(count)
    return {
        "tensor_parallel": one, "pipeline_parallel": one, "expert_parallel": one, "virtual_pipeline": one,
        "zero_stage": none, "recompute": none, "shard_in_node": none,
    }  # fmt: skip


def _offload(job: MediaJob) -> int:
    return OFFLOAD.index("all" if job.offload == "model" else job.offload)


def estimate_media(question: Question, model: MediaModel, job: MediaJob) -> Estimate:
    """
    Memory and time of generating, transcribing or fine-tuning, on every shape.

    Raises
    ------
    NotModelled
        If too little is known of the pipeline; says what is missing.
    """
    check_modelled(model)
    return _estimate_training(question, model, job) if job.method != "generate" else _estimate(question, model, job)


def _estimate(question: Question, model: MediaModel, job: MediaJob) -> Estimate:
    def memory_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> MemoryBreakdown:
        return media_memory(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)

    def speed_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> MediaSpeed:
        return media_speed(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)

    def seconds_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Number:
        return _work_s(job, plan, speed_of(plan, nodes, assumptions).batch_s)

    fit, able = _fit(question, model, job, memory_of, seconds_of)
    speed = speed_of(fit.plan, fit.nodes, question.assumptions)
    entries = len(fit.shape)
    batch_s, items_per_s = spread(speed.batch_s, entries), spread(speed.items_per_s, entries)
    banded = {"items_per_s": items_per_s, "batch_s": batch_s}
    if job.task == "audio":
        banded["realtime_factor"] = items_per_s * float(np.max(job.audio_seconds))
    parts = ("encode_s", "denoise_s", "decode_s", "bound")
    return Estimate(
        fit=fit,
        able=able,
        work_s=spread(_work_s(job, fit.plan, batch_s), entries),
        banded=banded,
        single={name: typical(getattr(speed, name), entries) for name in parts},
        meets_targets=np.ones(entries, dtype=np.bool_),
    )


def _work_s(job: MediaJob, plan: Plan, batch_s: Number) -> Number:
    """All items: whole batches, copies side by side. [s]"""
    return np.ceil(np.maximum(job.items / (np.asarray(job.batch) * plan.data_parallel), 1e-9)) * batch_s


def _estimate_training(question: Question, model: MediaModel, job: MediaJob) -> Estimate:
    def memory_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> MemoryBreakdown:
        return media_training_memory(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)

    def seconds_of(plan: Plan, nodes: Nodes, assumptions: Assumptions) -> Number:
        return media_step_s(model=model, job=job, plan=plan, nodes=nodes, assumptions=assumptions)

    fit, able = _fit(question, model, job, memory_of, seconds_of)
    entries = len(fit.shape)
    step_s = spread(seconds_of(fit.plan, fit.nodes, question.assumptions), entries)
    batch = float(np.max(job.batch))
    return Estimate(
        fit=fit,
        able=able,
        work_s=np.ceil(job.items / batch) * step_s,
        banded={"items_per_s": batch / step_s, "step_s": step_s},
        single={"bound": np.full(entries, "compute", dtype=object)},
        meets_targets=np.ones(entries, dtype=np.bool_),
    )


def _fit(
    question: Question, model: MediaModel, job: MediaJob, memory_of: MemoryOf, seconds_of: SecondsOf
) -> tuple[Fit, NDArray[np.bool_]]:
    """Best plan of every shape, and the shapes whose cards have 16-bit matrix units of either kind."""
    sizes, size_of_shape, able = machines_of(job, question.shapes)
    pairs = media_pairs(model, job, question.scenario, sizes)
    fit = best_plans(
        Space(pairs=pairs, sizes=sizes, size_of_shape=size_of_shape, shapes=question.shapes, able=able),
        assumptions=question.assumptions,
        usable_bytes=question.shapes.memory_bytes,
        headroom=question.scenario.headroom,
        memory_of=memory_of,
        seconds_of=seconds_of,
    )
    return fit, able
