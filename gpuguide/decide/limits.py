"""
How far each GPU goes: the longest context, the largest micro-batch and the largest model that still fit.

One question per GPU and machine size, asked of the same memory estimates that rank offers; typical estimate, with the
scenario's headroom left free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns
from gpuguide.decide.fit import flat, typical
from gpuguide.errors import NotModelled
from gpuguide.estimate.serving_memory import max_concurrency_that_fits, max_context_that_fits, serving_fits_limit
from gpuguide.estimate.training_memory import training_memory
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob, TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import RECOMPUTE, Plan
from gpuguide.spec.scenario import Question

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

LENGTHS = 2.0 ** np.arange(7, 22.01, 0.125)
"""Sequence lengths tried: 128 tokens to 4 million, 12 to a decade. [tokens]"""
MICRO_BATCHES = np.arange(1.0, 257.0)
SCALES = 2.0 ** np.arange(-8, 9.01, 0.0625)
"""Sizes of model tried, as multiples of the scenario's. [-]"""
COLUMNS = ("gpu", "gpus", "usable_bytes", "max_context_tokens", "max_batch", "max_params")


def limits(question: Question, *, gpus: int = 1) -> pd.DataFrame:
    """
    What still fits on each GPU of the market.

    Parameters
    ----------
    question : Question
        Its job with everything but the limit in question held as it is.
    gpus : int
        GPUs of one machine that hold the model together: fully sharded when training, tensor parallel when serving.

    Returns
    -------
    DataFrame
        One row per GPU, `COLUMNS`: longest context [tokens]; most sequences at once (micro-batch when training, running
        requests when serving); parameters of the largest model of the same proportions [-]. 0 where nothing fits.

    Raises
    ------
    NotModelled
        For workloads that make images, video or audio.
    """
    return limit_columns(question, gpus=gpus).frame("str")


def limit_columns(question: Question, *, gpus: int = 1) -> Columns:
    """`limits` as columns, which need no pandas."""
    model, job = question.model, question.job
    places = _one_shape_per_gpu(question.shapes, gpus)
    nodes = question.shapes.take(places)
    if isinstance(model, Model) and isinstance(job, TrainingJob):
        context, batch, params, usable = _training(question, model, job, nodes, gpus)
    elif isinstance(model, Model) and isinstance(job, ServingJob):
        context, batch, params, usable = _serving(question, model, job, nodes, gpus)
    else:
        raise NotModelled(
            f"the largest {question.scenario.workload} a GPU can make", "ask for one resolution at a time"
        )
    table = Columns(
        {
            "gpu": nodes.gpu,
            "gpus": nodes.gpus_per_node.astype(int),
            "usable_bytes": usable,
            "max_context_tokens": np.floor(context),
            "max_batch": np.floor(batch),
            "max_params": params,
        }
    )
    return table.at(np.lexsort((nodes.gpu.astype(str), usable)))


def _one_shape_per_gpu(shapes: Nodes, gpus: int) -> NDArray[np.intp]:
    fitting = np.flatnonzero((shapes.gpus_per_node == gpus) & (shapes.nodes == 1))
    names = shapes.gpu[fitting].astype(str)
    return fitting[np.sort(np.unique(names, return_index=True)[1])]


def _training(
    question: Question, model: Model, job: TrainingJob, nodes: Nodes, gpus: int
) -> tuple[Floats, Floats, Floats, Floats]:
    scenario, assumptions = question.scenario, question.assumptions.typical()
    usable = nodes.memory_bytes * (1 - scenario.headroom)
    recompute = RECOMPUTE.index("full" if scenario.recompute == "auto" else scenario.recompute)
    stage = 3.0 if gpus > 1 else 0.0
    one = nodes.take(np.zeros(1, dtype=np.intp))  # needs depend on the number of GPUs, not on which

    def needed(of: Model, length: float | Floats, micro_batch: float | Floats) -> Floats:
        plan = Plan(data_parallel=float(gpus), zero_stage=stage, recompute=float(recompute), micro_batch=micro_batch)
        memory = training_memory(
            model=of, job=replace(job, sequence_length=length), plan=plan, nodes=one, assumptions=assumptions
        )
        need: Floats = flat(memory.total)[0]
        return need

    if not len(nodes):
        empty = np.array([])
        return empty, empty, empty, empty
    length = float(np.max(job.sequence_length))
    longest = LENGTHS[(model.max_context or np.inf) >= LENGTHS]
    context = _largest(longest, needed(model, longest[:, None], 1.0), usable)
    batch = _largest(MICRO_BATCHES, needed(model, length, MICRO_BATCHES[:, None]), usable)
    scaled = np.array([needed(_scaled(model, scale), length, 1.0)[0] for scale in SCALES])
    params = _largest(SCALES, scaled, usable) * float(model.params)
    return context, batch, params, nodes.memory_bytes


def _serving(
    question: Question, model: Model, job: ServingJob, nodes: Nodes, gpus: int
) -> tuple[Floats, Floats, Floats, Floats]:
    assumptions = question.assumptions
    plan = Plan(tensor_parallel=float(gpus))
    asked = {"job": job, "plan": plan, "nodes": nodes, "assumptions": assumptions}
    context = typical(max_context_that_fits(model=model, **asked), len(nodes))  # type: ignore[arg-type]
    batch = typical(max_concurrency_that_fits(model=model, **asked), len(nodes))  # type: ignore[arg-type]
    usable = serving_fits_limit(job=job, nodes=nodes, assumptions=assumptions)
    fits = np.array(
        [typical(max_concurrency_that_fits(model=_scaled(model, scale), **asked), len(nodes)) >= 1 for scale in SCALES]  # type: ignore[arg-type]
    )
    count = fits.sum(axis=0)
    params = np.where(count > 0, SCALES[np.maximum(count - 1, 0)], 0.0) * float(model.params)
    return context, batch, params, usable


def _largest(tried: Floats, needed_bytes: Floats, usable_bytes: Floats) -> Floats:
    """The largest tried value whose need stays within what each GPU has; needs rise with the value."""
    count = np.searchsorted(np.maximum.accumulate(needed_bytes.ravel()), usable_bytes, side="right")
    return np.where(count > 0, tried[np.maximum(count - 1, 0)], 0.0)


def _scaled(model: Model, scale: float) -> Model:
    """
    A model of the same proportions with so many times the parameters.

    Width grows with the cube root, depth too, as between the sizes of one family; vocabulary stays.
    """
    wider = scale ** (1 / 3)
    counts = {
        name: getattr(model, name) * scale
        for name in ("params_routed_experts", "params_vision")
    }  # fmt: skip
    embedding, head = model.params_embedding * wider, model.params_lm_head * wider
    inside = (
        model.params_linear * scale + (0.0 if model.tied_embeddings else head) + embedding + counts["params_vision"]
    )
    return replace(
        model,
        **counts,
        params=inside,
        params_active=model.params_active / model.params * inside,
        params_embedding=embedding,
        params_lm_head=head,
        layers=model.layers * wider,
        hidden=model.hidden * wider,
        ffn=model.ffn * wider,
        heads=model.heads * wider,
        kv_heads=model.kv_heads * wider,
        moe_ffn=model.moe_ffn * wider,
        moe_layers=model.moe_layers * wider,
        layers_full=model.layers_full * wider,
        layers_windowed=model.layers_windowed * wider,
        layers_recurrent=model.layers_recurrent * wider,
        kv_elements_full=model.kv_elements_full * wider**2,
        kv_elements_windowed=model.kv_elements_windowed * wider**2,
        recurrent_elements=model.recurrent_elements * wider**2,
    )
