"""Published training throughput and MLPerf times to train, against the estimate for the same run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.accuracy import mlperf
from gpuguide.accuracy.inputs import note
from gpuguide.accuracy.table import SCORED, Scorer
from gpuguide.accuracy.throughput_rows import METHODS, Unusable, is_moe, missing, number, run_of, text
from gpuguide.errors import GuideError
from gpuguide.estimate.training import training_speed

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

CALIBRATED: Mapping[str, tuple[float, float]] = {
    "compute_matmul_share": (0.5, 1.0),
    "compute_attention_share": (0.2, 1.0),
    "compute_fp8_share": (0.3, 1.0),
    "compute_fp4_share": (0.1, 0.8),
    "training_speed_small_kernels": (0.5, 4.0),
    "training_speed_tensor_overlap": (0.0, 0.9),
    "training_speed_overlap": (0.0, 1.0),
    "training_speed_expert_overlap": (0.0, 0.9),
    "training_speed_expert_slowdown": (1.0, 4.0),
    "training_speed_expert_layer_s": (0.0, 0.01),
    "training_speed_denoiser_share": (0.2, 0.8),
}
"""Constants fitted to the tables scored here, with bounds that physics allows."""


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
    rows = [row for row in frame.to_dict("records") if is_moe(row, catalog) == moe]
    return pd.DataFrame([_scored(row, catalog) for row in rows], columns=list(SCORED))


def dense(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Rows of models whose every parameter works on every token."""
    return throughput(frame, catalog, moe=False)


def experts(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Rows of mixture-of-experts models."""
    return throughput(frame, catalog, moe=True)


def _scored(row: Mapping[Any, Any], catalog: Catalog) -> dict[str, Any]:
    base = {
        "row_id": row["row_id"], "source_id": row["source_id"], "measured": np.nan, "low": np.nan, "typical": np.nan,
        "high": np.nan, "skip": "", "expected": "", "verdict": "",
        "label": f"{row['model']} {row['task']}, {number(row, 'gpus', 1):.0f} x {row['gpu']}",
    }  # fmt: skip
    try:
        measured = _measured(row)
        run = run_of(row, catalog)
        note(model=run.model, job=run.job, plan=run.plan, nodes=run.nodes)
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
    if not text(row, "evidence").startswith("measured"):
        raise Unusable("not a measurement")
    if text(row, "grade") not in ("A", "B"):
        raise Unusable("grade C: inputs incomplete")
    if text(row, "task") not in METHODS:
        raise Unusable("not a language model")
    if not missing(row, "tokens_per_s_per_gpu"):
        return number(row, "tokens_per_s_per_gpu")
    if not missing(row, "step_time_s") and not missing(row, "global_batch") and not missing(row, "gpus"):
        tokens = number(row, "global_batch") * number(row, "seq_len")
        return tokens / number(row, "step_time_s") / number(row, "gpus")
    raise Unusable("neither tokens per second nor step time printed")


SCORERS: Mapping[str, Scorer] = {
    "training_throughput:dense": dense,
    "training_throughput:moe": experts,
    "mlperf_training": mlperf.time_to_train,
}
