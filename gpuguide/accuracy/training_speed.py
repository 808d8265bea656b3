"""Published training throughput and MLPerf times to train, against the estimate for the same run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.accuracy.table import SCORED, Scorer
from gpuguide.errors import GuideError
from gpuguide.estimate.training import training_speed
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

CALIBRATED: Mapping[str, tuple[float, float]] = {
    "compute_matmul_share": (0.5, 1.0),
    "compute_attention_share": (0.2, 0.8),
    "compute_fp8_share": (0.3, 1.0),
    "compute_fp4_share": (0.1, 0.8),
    "training_speed_small_kernels": (0.5, 4.0),
    "training_speed_tensor_overlap": (0.0, 0.9),
    "training_speed_overlap": (0.0, 1.0),
    "training_speed_expert_overlap": (0.0, 0.9),
    "training_speed_expert_slowdown": (1.0, 4.0),
    "training_speed_expert_layer_s": (0.0, 0.01),
}
"""Constants fitted to the tables scored here, with bounds that physics allows."""

PRECISIONS = {"mxfp8": "fp8", "fp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
METHODS = {"pretrain": "pretrain", "sft_full": "full", "full": "full", "sft": "full", "lora": "lora", "qlora": "qlora"}
LINKS = re.compile(r"(?:(\d+) x )?(\d+) ?Gb(?:ps|it/s)? (RoCE|InfiniBand|EFA|Ethernet)")
DEFAULT_ACCUMULATION = 4
DEFAULT_RANK = 16
HIDDEN_OF_ACTIVE = 4096


@dataclass(frozen=True, slots=True)
class Run:
    """One published run in our terms."""

    model: Model
    job: TrainingJob
    plan: Plan
    nodes: Nodes


class Unusable(Exception):
    """A row that cannot be scored, and why."""


def throughput(frame: pd.DataFrame, catalog: Catalog, *, moe: bool) -> pd.DataFrame:
    """
    Tokens per second and GPU: measured against estimated.

    Parameters
    ----------
    frame : DataFrame
        Rows of `training_throughput`.
    catalog : Catalog
        Models, GPUs, recipes and assumptions.
    moe : bool
        Rows of mixture-of-experts models, or the others.

    Returns
    -------
    DataFrame
        Columns of `accuracy.table.SCORED`.
    """
    rows = [row for row in frame.to_dict("records") if _is_moe(row, catalog) == moe]
    return pd.DataFrame([_scored(row, catalog) for row in rows], columns=list(SCORED))


def dense(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Rows of models whose every parameter works on every token."""
    return throughput(frame, catalog, moe=False)


def experts(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Rows of mixture-of-experts models."""
    return throughput(frame, catalog, moe=True)


def run_of(row: Mapping[Any, Any], catalog: Catalog) -> Run:
    """
    A row of `training_throughput` as model, job, plan and machines.

    Raises
    ------
    Unusable
        If the row does not say enough.
    """
    model = _model(row, catalog)
    gpus, per_node = _gpus(row, catalog)
    tensor, pipeline, context = (_number(row, name, 1.0) for name in ("tp", "pp", "cp"))
    if _missing(row, "tp") or _missing(row, "pp"):
        raise Unusable("parallel plan not stated")
    data = gpus / (tensor * pipeline * context)
    micro = _number(row, "micro_batch", 1.0)
    batch = _number(row, "global_batch", data * micro * _number(row, "grad_accum", DEFAULT_ACCUMULATION))
    plan = Plan(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        expert_parallel=_number(row, "ep", 1.0),
        data_parallel=data,
        micro_batch=min(micro, batch / data) if batch >= data else micro,
        zero_stage=_stage(row),
        recompute=_recompute(row),
        virtual_pipeline=_number(row, "vp", 1.0),
        shard_in_node=1.0 if "hybrid" in _text(row, "dp_strategy") else 0.0,
    )
    name, gbps = _fabric(row)
    nodes = catalog.nodes(_text(row, "gpu"), per_node, max(int(gpus // per_node), 1), name, gbps)
    return Run(model, _job(row, batch, catalog), plan, nodes)


def _scored(row: Mapping[Any, Any], catalog: Catalog) -> dict[str, Any]:
    base = {
        "row_id": row["row_id"], "source_id": row["source_id"], "measured": np.nan, "low": np.nan, "typical": np.nan,
        "high": np.nan, "skip": "", "expected": "", "verdict": "",
        "label": f"{row['model']} {row['task']}, {_number(row, 'gpus', 1):.0f} x {row['gpu']}",
    }  # fmt: skip
    try:
        measured = _measured(row)
        run = run_of(row, catalog)
        speed = training_speed(
            model=run.model, job=run.job, plan=run.plan, nodes=run.nodes, assumptions=catalog.assumptions
        )
    except Unusable as reason:
        return {**base, "skip": str(reason)}
    except GuideError as error:
        return {**base, "skip": error.key}
    per_gpu = np.asarray(speed.tokens_per_s).reshape(3, -1)[:, 0] / run.nodes.gpus[0]
    return {**base, "measured": measured, "low": per_gpu[2], "typical": per_gpu[1], "high": per_gpu[0]}


def _measured(row: Mapping[Any, Any]) -> float:
    """Tokens per second and GPU as printed, or from the step time."""
    if not _text(row, "evidence").startswith("measured"):
        raise Unusable("not a measurement")
    if _text(row, "grade") not in ("A", "B"):
        raise Unusable("grade C: inputs incomplete")
    if _text(row, "task") not in METHODS:
        raise Unusable("not a language model")
    if not _missing(row, "tokens_per_s_per_gpu"):
        return _number(row, "tokens_per_s_per_gpu")
    if not _missing(row, "step_time_s") and not _missing(row, "global_batch") and not _missing(row, "gpus"):
        tokens = _number(row, "global_batch") * _number(row, "seq_len")
        return tokens / _number(row, "step_time_s") / _number(row, "gpus")
    raise Unusable("neither tokens per second nor step time printed")


def _is_moe(row: Mapping[Any, Any], catalog: Catalog) -> bool:
    if not _missing(row, "active_params_b") and _number(row, "active_params_b") < _number(row, "params_b", np.inf):
        return True
    if not _missing(row, "layers"):
        return False
    if not _missing(row, "ep") and _number(row, "ep") > 1:
        return True
    found = _catalogued(row, catalog)
    return found is not None and found.is_moe


def _catalogued(row: Mapping[Any, Any], catalog: Catalog) -> Model | None:
    try:
        found = catalog.model(_text(row, "model"))
    except GuideError:
        return None
    return found if isinstance(found, Model) else None


def _model(row: Mapping[Any, Any], catalog: Catalog) -> Model:
    """From the row's own columns where it is dense; expert models by name, or by their printed work per token."""
    if not _is_moe(row, catalog):
        if not _missing(row, "layers") and not _missing(row, "hidden"):
            return _dense_model(row)
        found = _catalogued(row, catalog)
        if found is None:
            raise Unusable("architecture neither in the row nor in the catalog")
        return found
    found = _catalogued(row, catalog)
    if found is not None:
        return found
    raise Unusable("architecture neither in the row nor in the catalog")


def _dense_model(row: Mapping[Any, Any]) -> Model:
    layers, hidden, vocab = (_number(row, name) for name in ("layers", "hidden", "vocab"))
    heads = _number(row, "heads", hidden / 128)
    kv_heads, head_dim = _number(row, "kv_heads", heads), _number(row, "head_dim", hidden / heads)
    ffn = _number(row, "ffn_hidden", 4 * hidden)
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    table = vocab * hidden
    stated = _number(row, "params_b", np.nan) * 1e9
    # The parameter count tells whether the MLP is gated and whether head and embedding are one.
    choices = {
        (gated, tied): layers * (attention + (3 if gated else 2) * hidden * ffn) + table * (1 if tied else 2)
        for gated in (False, True)
        for tied in (False, True)
    }
    gated, tied = min(choices, key=lambda key: abs(choices[key] - stated)) if stated == stated else (True, False)
    params = choices[gated, tied]
    return Model(
        name=_text(row, "model"), kind="dense", source="row", params=params, params_active=params, params_embedding=table,
        params_lm_head=table, layers=layers, hidden=hidden, ffn=ffn, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        vocab=vocab, tied_embeddings=tied, gated_mlp=gated, layers_full=layers,
    )  # fmt: skip


def _job(row: Mapping[Any, Any], batch: float, catalog: Catalog) -> TrainingJob:
    precision = _text(row, "precision")
    compute = PRECISIONS.get(precision, precision)
    sharded = _stage(row) >= 2
    name = "fp8" if compute in ("fp8", "fp4") else "amp-fp32-master" if sharded else "megatron-bf16"
    method = METHODS.get(_text(row, "task"))
    if method is None:
        raise Unusable("not a language model")
    if compute == "fp32":
        name = "fp32"
    recipe = catalog.recipes[name]
    if recipe.compute_precision != compute:
        recipe = replace(recipe, compute_precision=compute)
    # 8- and 4-bit training runs in libraries that bring fused kernels; compiled models fuse their own.
    tuned = _text(row, "compile") == "yes" or "cudnn" in _text(row, "flash_attention")
    fused = compute in ("fp8", "fp4") or tuned
    return TrainingJob(
        method=method,
        train_tokens=batch * _number(row, "seq_len"),
        sequence_length=_number(row, "seq_len"),
        global_batch=batch,
        recipe=recipe,
        optimizer=catalog.optimizers["adamw"],
        lora_rank=_number(row, "lora_rank", DEFAULT_RANK) if method in ("lora", "qlora") else 0.0,
        lora_targets=("all",) if method in ("lora", "qlora") else (),
        quantization=catalog.weight_formats["nf4-dq"] if method == "qlora" else None,
        # The position bias of ALiBi came with flash kernels that computed the masked half too.
        skips_masked="ALiBi" not in _text(row, "notes"),
        attention="eager" if _text(row, "flash_attention") == "no" else "fused",
        fused_loss=fused,
        fused_norms=fused,
    )


def _gpus(row: Mapping[Any, Any], catalog: Catalog) -> tuple[float, int]:
    """GPUs of the run and of one machine."""
    if _text(row, "gpu") not in catalog.gpus:
        raise Unusable("GPU or variant not in the catalog")
    if _missing(row, "gpus"):
        raise Unusable("number of GPUs not stated")
    gpus = _number(row, "gpus")
    nodes = _number(row, "nodes", np.nan)
    rack = "NVL72" in catalog.gpus[_text(row, "gpu")].link
    per_node = gpus / nodes if nodes == nodes and nodes > 0 else min(gpus, 4.0 if rack else 8.0)
    return gpus, max(int(round(per_node)), 1)


def _stage(row: Mapping[Any, Any]) -> float:
    """ZeRO stage that a strategy's name means; a sharded optimizer where nothing is said."""
    text = _text(row, "dp_strategy")
    if "grad_op" in text or "zero2" in text or "zero-2" in text:
        return 2.0
    if "fsdp" in text or "zero3" in text or "zero-3" in text:
        return 3.0
    if text in ("ddp", "none") or text.startswith("none"):
        return 0.0
    return 1.0


def _recompute(row: Mapping[Any, Any]) -> float:
    text = _text(row, "activation_checkpointing")
    return 2.0 if text.startswith(("full", "yes", "block")) else 1.0 if text.startswith("selective") else 0.0


def _fabric(row: Mapping[Any, Any]) -> tuple[str | None, float | None]:
    """Network between machines where the row states it."""
    found = LINKS.search(_text(row, "notes") or _text(row, "note"))
    if found is None:
        return None, None
    return found.group(3), float(found.group(1) or 1) * float(found.group(2))


def _missing(row: Mapping[Any, Any], name: str) -> bool:
    value = row.get(name)
    return value is None or value == "" or value is pd.NA or (isinstance(value, float) and value != value)


def _number(row: Mapping[Any, Any], name: str, default: float = np.nan) -> float:
    return default if _missing(row, name) else float(row[name])


def _text(row: Mapping[Any, Any], name: str) -> str:
    return "" if _missing(row, name) else str(row[name])


SCORERS: Mapping[str, Scorer] = {
    "training_throughput:dense": dense,
    "training_throughput:moe": experts,
}
