"""From time to money: what a job keeps, reads and takes out, handed to the cost of a run or of a month."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns
from gpuguide.decide.cost import CostBreakdown, run_cost, serving_cost
from gpuguide.decide.estimates import Estimate
from gpuguide.decide.storage import Feed, feed, needed_bytes_per_s
from gpuguide.errors import NotModelled
from gpuguide.estimate.memory import adapter_params
from gpuguide.estimate.weights import stored_weights
from gpuguide.spec.job import MediaJob, ServingJob, TrainingJob
from gpuguide.spec.model import MediaModel, Model
from gpuguide.spec.scenario import Question
from gpuguide.units import GB, TYPICAL

Index = NDArray[np.intp]

STORED_BYTES = 2.0
"""Width in which weights are published and results saved. [bytes]"""


def price(question: Question, found: Estimate, place: Index, offers: Columns) -> tuple[CostBreakdown, Feed | None]:
    """
    Cost on every offer, and how well storage feeds a run that reads data.

    Parameters
    ----------
    question : Question
        Its job may train on another number of tokens on each offer.
    found : Estimate
        Time per shape.
    place : array of int, shape (offer,)
        Each offer's place among the estimated shapes.
    offers : Columns
        The market's rows in question.
    """
    model, job, scenario, assumptions = question.model, question.job, question.scenario, question.assumptions
    work_s = found.work_s[:, place]
    if isinstance(job, ServingJob) and isinstance(model, Model):
        weights = float(np.asarray(stored_weights(model=model, weight_format=job.weight_format).total))
        rates = found.banded["tokens_per_s"][:, place]
        cost = serving_cost(
            offers=offers, scenario=scenario, weight_bytes=weights, assumptions=assumptions, tokens_per_s=rates
        )
        return cost, None
    if isinstance(job, TrainingJob) and isinstance(model, Model):
        bytes_per_token = assumptions["storage_bytes_per_token"][:, :, 0]
        if scenario.data_bytes_per_token is not None:
            bytes_per_token = np.full_like(bytes_per_token, scenario.data_bytes_per_token)
        data_bytes = job.train_tokens * float(bytes_per_token[TYPICAL, 0])
        reads = feed(
            needed_bytes_per_s=needed_bytes_per_s(
                per_s=found.banded["tokens_per_s"][:, place], bytes_each=bytes_per_token
            ),
            nodes=offers.numbers("nodes"),
            source=scenario.data_source,
            assumptions=assumptions,
            rate_bytes_per_s=None if scenario.data_gb_per_s is None else scenario.data_gb_per_s * GB,
        )
        cost = run_cost(
            work_s=work_s * reads.slow_down,
            offers=offers,
            scenario=scenario,
            checkpoint_bytes=checkpoint_bytes(model, job),
            weight_bytes=float(model.params) * STORED_BYTES if job.method != "pretrain" else 0.0,
            data_bytes=data_bytes,
            copied_bytes=data_bytes if scenario.data_source == "nvme" else 0.0,
            needs_checkpoints=True,
            assumptions=assumptions,
            tokens=job.train_tokens,
            result_bytes=result_bytes(model, job),
        )
        return cost, reads
    if not isinstance(job, MediaJob):
        raise NotModelled(f"the cost of {scenario.workload} of {model.name}", "choose a workload the model is made for")
    trains = job.method != "generate" and isinstance(model, MediaModel)
    trained = 0.0
    if trains and isinstance(model, MediaModel):
        from gpuguide.estimate.media_training import trained_params as media_trained_params

        trained = media_trained_params(model=model, job=job)
    cost = run_cost(
        work_s=work_s,
        offers=offers,
        scenario=scenario,
        checkpoint_bytes=trained * _saved_width(job),
        weight_bytes=float(model.params) * STORED_BYTES,
        data_bytes=0.0,
        needs_checkpoints=trains,
        assumptions=assumptions,
        items=job.items,
        result_bytes=trained * STORED_BYTES if trains else 0.0,
    )
    return cost, None


def _saved_width(job: MediaJob) -> float:
    """Bytes a trained parameter takes in a checkpoint: weight, master copy and optimizer states. [bytes]"""
    if job.recipe is None or job.optimizer is None:
        return STORED_BYTES
    width = job.recipe.state_bytes if job.optimizer.state_bytes is None else job.optimizer.state_bytes
    return job.recipe.weight_bytes + job.recipe.master_bytes + job.optimizer.states * width


def trained_params(model: Model, job: TrainingJob) -> float:
    """Parameters that the optimizer updates. [-]"""
    if job.method in ("lora", "qlora"):
        return float(np.asarray(adapter_params(model=model, lora_rank=job.lora_rank, lora_targets=job.lora_targets)))
    return float(np.asarray(model.params))


def checkpoint_bytes(model: Model, job: TrainingJob) -> float:
    """
    One checkpoint from which a run can go on: weights, master copy and optimizer states of what is trained.

    Returns
    -------
    float
        [bytes]; the frozen base of adapters is not saved.

    Notes
    -----
    Source: `docs/formulas.md`, "Checkpoint".

    Examples
    --------
    AdamW in mixed precision with FP32 master: 2 + 4 + 8 = 14 bytes per parameter.
    """
    recipe, optimizer = job.recipe, job.optimizer
    width = recipe.state_bytes if optimizer.state_bytes is None else optimizer.state_bytes
    weights = job.adapter_bytes if job.method in ("lora", "qlora") else recipe.weight_bytes + recipe.master_bytes
    states = 0.0 if optimizer.factored else optimizer.states * width
    return trained_params(model, job) * (weights + states)


def result_bytes(model: Model, job: TrainingJob) -> float:
    """What is taken home at the end: trained weights in 16 bit. [bytes]"""
    return trained_params(model, job) * STORED_BYTES
