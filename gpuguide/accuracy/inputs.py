"""
What the estimate of one measured run was asked: model, job, plan and machine, as the scorer of its table made them.

Scorers name what they ask with `note`; only `inputs_of` listens, so that the same lines serve scores and the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.spec.hardware import Nodes
from gpuguide.spec.model import MediaModel, Model
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE, Plan

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.accuracy.table import Scorer
    from gpuguide.catalog.catalog import Catalog

_asked: ContextVar[dict[str, Any] | None] = ContextVar("asked", default=None)

FACTS = {
    "gpu": ("gpu",),
    "model": ("model", "model_shape_of"),
    "method": ("method", "task"),
    "engine": ("engine", "framework"),
}
"""What runs are told apart by, and the columns of tables that say it, the first that a table has."""
SHOWN: Mapping[type, tuple[str, ...]] = {
    Model: (
        "name", "params", "params_active", "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab",
        "experts", "experts_per_token", "native_dtype",
    ),
    MediaModel: ("name", "params", "denoiser_layers", "denoiser_hidden", "native_dtype"),
    Nodes: ("gpu", "gpus_per_node", "nodes"),
}  # fmt: skip
"""Fields that say what was asked, of types that carry much more; of the others every field that is not its default."""


def note(**parts: object) -> None:
    """Name what an estimate is asked, such as `job` and `plan`."""
    heard = _asked.get()
    if heard is not None:
        heard.update(parts)


def facts_of(measurements: pd.DataFrame) -> pd.DataFrame:
    """GPU, model, method and engine of every run, by its `row_id`; a column for each that the table has."""
    columns = {fact: next((name for name in names if name in measurements), None) for fact, names in FACTS.items()}
    said = {fact: measurements[name].fillna("").astype(str) for fact, name in columns.items() if name is not None}
    return measurements[[]].assign(**said).set_axis(measurements["row_id"].astype(str), axis=0)


def run_of(row_id: str) -> str:
    """The run that a scored row belongs to: parts of one run carry the part's name after a colon."""
    return row_id.partition(":")[0]


def inputs_of(score: Scorer, rows: pd.DataFrame, catalog: Catalog) -> dict[str, dict[str, str | float | bool]]:
    """
    Inputs of the estimate of one row.

    Parameters
    ----------
    score : callable
        Scorer of the row's table.
    rows : DataFrame
        The row, as `read_measurements` gives it.
    catalog : Catalog

    Returns
    -------
    dict
        Plain values by name, for each of `model`, `job`, `plan` and `nodes` that the scorer named.
    """
    heard: dict[str, Any] = {}
    token = _asked.set(heard)
    try:
        score(rows, catalog)
    finally:
        _asked.reset(token)
    return {name: plain(part) for name, part in heard.items()}


def plain(part: Any) -> dict[str, str | float | bool]:
    """Fields of a part as words and numbers."""
    if isinstance(part, Mapping):
        return {str(name): _value(value) for name, value in part.items()}
    wanted = SHOWN.get(type(part))
    found: dict[str, str | float | bool] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name in ("recompute", "offload") and isinstance(part, Plan):
            value = (RECOMPUTE if field.name == "recompute" else OFFLOAD)[int(np.asarray(value).flat[0])]
            found[field.name] = value
        elif field.name in wanted if wanted else not _is_default(value, field.default):
            said = _value(value)
            if said not in ("", 0.0):
                found[field.name] = said
    return found


def _is_default(value: Any, default: Any) -> bool:
    if default is MISSING or isinstance(value, np.ndarray):
        return default is not MISSING and bool(np.all(value == default))
    return bool(value is default or value == default)


def _value(value: Any) -> str | float | bool:
    if is_dataclass(value):
        return str(getattr(value, "name", type(value).__name__))
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if value is None or isinstance(value, bool | str):
        return value or "" if not isinstance(value, bool) else value
    array = np.asarray(value)
    if array.dtype == object:
        return str(array.flat[0] or "") if array.size else ""
    if array.size == 1:
        return float(array.flat[0])
    return f"{array.min():.6g}–{array.max():.6g}" if array.size else ""
