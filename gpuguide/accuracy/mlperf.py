"""
MLPerf Training: minutes from start to target quality, against the estimate for the same machines and batch.

A row says how many samples were needed, the batch and how often gradients were accumulated, not the parallel layout.
The layout follows: what one replica spans is GPUs x accumulation / batch, with one sequence at a time. 8-bit
multiplications are taken where the GPU has them, as the submissions do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.accuracy.inputs import note
from gpuguide.accuracy.table import SCORED
from gpuguide.accuracy.throughput_rows import Unusable, bridged, missing, number, text
from gpuguide.errors import GuideError
from gpuguide.estimate import network
from gpuguide.estimate.compute import matmul_flops_per_s
from gpuguide.estimate.training import training_speed
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import MINUTE, TFLOP

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How often the rules of a benchmark have the model evaluated; forward passes only."""

    every: float  # training samples between evaluations
    samples: float
    skipped: float = 0.0  # first evaluations left out


EVALUATIONS = {
    "llama2_70b_lora": Evaluation(384, 173, 3),
    "llama31_405b": Evaluation(46_080, 5_760),
    "gpt3": Evaluation(24_576, 5_760),
}
"""As the benchmarks' reference configurations set it; the logs agree: 1.15 and 1.05 of the time of training alone."""


@dataclass(frozen=True, slots=True)
class Denoiser:
    """A diffusion network trained on cached latents: work of one forward pass and gradients to reduce."""

    forward_flops: float
    frozen_flops: float  # text encoder, forward only
    params: float


DENOISERS = {
    "SD-v2": Denoiser(0.80 * TFLOP, 0.055 * TFLOP, 865.9e6),
    "SDXL": Denoiser(5.98 * TFLOP, 0.06 * TFLOP, 2567e6),
}
"""
One sample at the native latent size, as the U-Nets' multiplications are commonly counted (402 GMAC at 64 x 64 and 2.99
TMAC at 128 x 128; not recounted here, a wrong count would be absorbed by `training_speed_denoiser_share`), and the
OpenCLIP-H text tower: 354 M parameters x 77 tokens.
"""

LARGEST_LORA_TENSOR = 4.0
LARGEST_TENSOR = 8.0
LONG_SEQUENCE = 8192
BERT_LARGE = {"layers": 24.0, "hidden": 1024.0, "ffn": 4096.0, "vocab": 30_522.0, "head_dim": 64.0, "sequence": 512.0}
GPT3 = {"layers": 96.0, "hidden": 12_288.0, "ffn": 49_152.0, "vocab": 51_200.0, "head_dim": 128.0, "sequence": 2048.0}
PUBLISHED = {"bert": BERT_LARGE, "gpt3": GPT3}
"""Shapes of benchmarks whose models the catalog does not carry: papers of BERT and GPT-3."""


def time_to_train(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """
    Minutes to train: measured against estimated.

    Parameters
    ----------
    frame : DataFrame
        Rows of `mlperf_training`.
    catalog : Catalog
        Models, GPUs, recipes and assumptions.

    Returns
    -------
    DataFrame
        Columns of `accuracy.table.SCORED`, in minutes.
    """
    rows = [_scored(row, catalog) for row in frame.to_dict("records")]
    return pd.DataFrame(rows, columns=list(SCORED))


def _scored(row: Mapping[Any, Any], catalog: Catalog) -> dict[str, Any]:
    base = {
        "row_id": row["row_id"], "source_id": row["source_id"], "measured": np.nan, "low": np.nan, "typical": np.nan,
        "high": np.nan, "skip": "", "expected": "", "verdict": "",
        "label": f"{row['model']} {row['benchmark']}, {number(row, 'gpus'):.0f} x {row['gpu']}",
    }  # fmt: skip
    try:
        if missing(row, "time_to_train_min"):
            raise Unusable("no time printed")
        seconds = _seconds(row, catalog)
    except Unusable as reason:
        return {**base, "skip": str(reason)}
    except GuideError as error:
        return {**base, "skip": error.key}
    low, typical, high = seconds / MINUTE
    return {**base, "measured": number(row, "time_to_train_min"), "low": low, "typical": typical, "high": high}


def _seconds(row: Mapping[Any, Any], catalog: Catalog) -> Floats:
    """Training and evaluation, shape (band,). [s]"""
    if text(row, "gpu") not in catalog.gpus:
        raise Unusable("GPU or variant not in the catalog")
    if missing(row, "samples_to_target") or missing(row, "global_batch"):
        raise Unusable("samples to target or batch not stated")
    per_node = int(number(row, "gpus_per_node", 8.0))
    machines = max(int(number(row, "gpus") // per_node), 1)
    nodes = catalog.nodes(text(row, "gpu"), per_node, machines, bridged=bridged(row))
    benchmark = text(row, "benchmark")
    samples, batch = number(row, "samples_to_target"), number(row, "global_batch")
    if text(row, "model") in DENOISERS:
        note(model=DENOISERS[text(row, "model")], job={"global_batch": batch, "samples": samples}, nodes=nodes)
        step = _denoising_s(DENOISERS[text(row, "model")], nodes, batch, catalog)
        return np.asarray(step * np.ceil(samples / batch))
    model, sequence = _model(row, catalog)
    job = _job(row, nodes, sequence, batch, catalog)
    plan = _plan(row, job, number(row, "gpus"), batch, model)
    note(model=model, job=job, plan=plan, nodes=nodes)
    speed = training_speed(model=model, job=job, plan=plan, nodes=nodes, assumptions=catalog.assumptions)
    step = np.asarray(speed.step_s).reshape(3)
    return np.asarray(step * (np.ceil(samples / batch) + _evaluated(benchmark, samples, job) / batch))


def _evaluated(benchmark: str, samples: float, job: TrainingJob) -> float:
    """Evaluation as a number of samples trained: a forward pass is a third of training, a half under LoRA. [samples]"""
    rule = EVALUATIONS.get(benchmark)
    if rule is None:
        return 0.0
    times = max(samples // rule.every - rule.skipped, 1.0)
    return times * rule.samples / (2.0 if job.method == "lora" else 3.0)


def _model(row: Mapping[Any, Any], catalog: Catalog) -> tuple[Model, float]:
    shape = PUBLISHED.get(text(row, "benchmark"))
    if shape is not None:
        heads = shape["hidden"] / shape["head_dim"]
        table = shape["vocab"] * shape["hidden"]
        params = shape["layers"] * (4 * shape["hidden"] ** 2 + 2 * shape["hidden"] * shape["ffn"]) + table
        return Model(
            name=text(row, "model"), kind="dense", source="papers", params=params, params_active=params,
            params_embedding=table, params_lm_head=table, layers=shape["layers"], hidden=shape["hidden"],
            ffn=shape["ffn"], heads=heads, kv_heads=heads, head_dim=shape["head_dim"], vocab=shape["vocab"],
            tied_embeddings=True, gated_mlp=False, layers_full=shape["layers"],
        ), number(row, "seq_len", shape["sequence"])  # fmt: skip
    try:
        found = catalog.model(text(row, "model"))
    except GuideError:
        found = None
    if not isinstance(found, Model):
        raise Unusable("model not in the catalog")
    if missing(row, "seq_len"):
        raise Unusable("sequence length not stated")
    return found, number(row, "seq_len")


def _job(row: Mapping[Any, Any], nodes: Nodes, sequence: float, batch: float, catalog: Catalog) -> TrainingJob:
    lora = text(row, "task") == "lora"
    eight_bit = not np.isnan(nodes.flops["fp8"][0])
    recipe = catalog.recipes["fp8" if eight_bit else "megatron-bf16"]
    if np.isnan(nodes.flops["bf16"][0]):
        recipe = replace(recipe, compute_precision="fp16")
    return TrainingJob(
        method="lora" if lora else "pretrain",
        train_tokens=number(row, "samples_to_target") * sequence,
        sequence_length=sequence,
        global_batch=batch,
        recipe=recipe,
        optimizer=catalog.optimizers["adamw"],
        lora_rank=number(row, "lora_rank", 16.0) if lora else 0.0,
        lora_targets=("q", "k", "v", "o") if lora else (),
        fused_loss=True,
        fused_norms=True,
    )


def _plan(row: Mapping[Any, Any], job: TrainingJob, gpus: float, batch: float, model: Model) -> Plan:
    """Tensor parallel first, then context for adapters and pipeline for whole models; one sequence at a time."""
    accumulation = number(row, "grad_accum", 1.0)
    replicas = max(batch / accumulation, 1.0)
    span = gpus / replicas
    micro = 1.0
    if span < 1.0:  # more sequences at once than GPUs
        micro, span = 1.0 / span, 1.0
    span = 2.0 ** np.floor(np.log2(span) + 1e-9)
    if job.method == "lora":
        tensor = min(span, LARGEST_LORA_TENSOR)
        context, pipeline = span / tensor, 1.0
    else:
        tensor = min(span, LARGEST_TENSOR if span > 64 else 4.0)
        context = 2.0 if job.sequence_length >= LONG_SEQUENCE and span / tensor >= 8 else 1.0
        pipeline = span / tensor / context
    return Plan(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        data_parallel=gpus / span,
        micro_batch=micro,
        zero_stage=1.0,
        virtual_pipeline=max(model.layers / pipeline / 2.0, 1.0) if pipeline > 1 else 1.0,
    )


def _denoising_s(denoiser: Denoiser, nodes: Nodes, batch: float, catalog: Catalog) -> Floats:
    """One step of a U-Net in 16 bit, every GPU holding a replica, shape (band,). [s]"""
    assumptions = catalog.assumptions
    work = 3.0 * denoiser.forward_flops + denoiser.frozen_flops
    rate = matmul_flops_per_s(nodes=nodes, precision="bf16") * assumptions["training_speed_denoiser_share"]
    computed = batch / nodes.gpus * work / rate
    reduced = network.all_reduce_s(
        message_bytes=2.0 * denoiser.params, ranks=nodes.gpus, nodes=nodes, assumptions=assumptions
    )
    return np.asarray(computed + reduced * (1.0 - assumptions["training_speed_overlap"])).reshape(3)
