"""The answer: a ranked list with everything that explains it, and its plain form for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gpuguide.estimate.results import PARTS, MemoryBreakdown
from gpuguide.spec.scenario import Question, Scenario
from gpuguide.units import BANDS

COST_PARTS = ("compute", "rounding", "interruptions", "checkpoints", "storage", "egress", "setup", "idle", "total")
SPEED_BANDS = ("tokens_per_s", "step_s", "mfu", "ttft_s", "tpot_s", "queue_s", "items_per_s", "batch_s")
SPEED_PARTS = (
    "compute_s", "memory_bound_s", "tensor_parallel_s", "pipeline_bubble_s", "data_parallel_s", "expert_parallel_s",
    "offload_s", "encode_s", "denoise_s", "decode_s",
)  # fmt: skip
PLACE = (
    "provider",
    "region",
    "instance_type",
    "gpu",
    "gpus",
    "nodes",
    "pricing",
    "kind",
    "as_of",
    "age_days",
    "source",
)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """
    What we can say about a question.

    Attributes
    ----------
    ranking : DataFrame
        Offers that fit or are tight, best first by the scenario's preference. Columns: those of `PLACE`, `fit`, `plan`,
        `memory_<part>_bytes`, `memory_total_<band>_bytes`, `usable_bytes`, `missing_bytes`, `<speed>_<band>`, `bound`,
        `hours_<band>`, `cost_<part>_usd`, `cost_total_<band>_usd`, `usd_per_hour`, `usd_per_million_tokens`, `pareto`.
    rejected : DataFrame
        The other offers, same columns, with the step of the funnel that removed each in `dropped_by`.
    by_gpu : DataFrame
        For each GPU the best offer of either list, nearest to fitting first where none fits.
    funnel : sequence of (step, remaining)
        Offers left after each filter, in the order memory, bandwidth, topology, price.
    memory : MemoryBreakdown or None
        Of the best plan, per GPU, band axis first; None when no plan is legal.
    verdict : mapping
        Key of the sentence and the values it names.
    warnings : sequence of (key, values)
        What a reader should know before acting.
    """

    question: Question
    ranking: pd.DataFrame
    rejected: pd.DataFrame
    by_gpu: pd.DataFrame
    funnel: Sequence[tuple[str, int]]
    memory: MemoryBreakdown | None
    verdict: Mapping[str, Any]
    warnings: Sequence[tuple[str, Mapping[str, Any]]]

    @property
    def scenario(self) -> Scenario:
        """The question's scenario with defaults filled."""
        return self.question.scenario

    @property
    def best(self) -> pd.Series | None:
        """First row of the ranking, or None when nothing fits."""
        return None if self.ranking.empty else self.ranking.iloc[0]

    def as_json(self, *, top: int | None = None, include_rejected: bool = False) -> dict[str, Any]:
        """Plain values: bytes, seconds, tokens, USD; a band is a mapping of low, typical and high."""
        rows = self.ranking if top is None else self.ranking.head(top)
        ranking = [row_as_json(row) for row in rows.to_dict("records")]
        if include_rejected:
            ranking += [row_as_json(row) for row in self.rejected.to_dict("records")]
        model = self.question.model
        return {
            "scenario": self.scenario.model_dump(mode="json"),
            "model": {"name": model.name, "kind": model.kind, "params": float(model.params), "source": model.source},
            "funnel": [{"step": step, "remaining": remaining} for step, remaining in self.funnel],
            "ranking": ranking,
            "verdict": plain(dict(self.verdict)),
            "warnings": [{"key": key, **plain(dict(values))} for key, values in self.warnings],
        }


def row_as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """One row of a ranking, nested as documented."""
    memory = {part: row[f"memory_{part}_bytes"] for part in PARTS}
    memory |= {"total": row["memory_total_typical_bytes"]}
    memory |= {f"total_{band}": row[f"memory_total_{band}_bytes"] for band in ("low", "high")}
    speed: dict[str, Any] = {name: _band(row, f"{name}_{{}}") for name in SPEED_BANDS if f"{name}_typical" in row}
    speed |= {name: row[name] for name in SPEED_PARTS if name in row}
    cost = {part: row[f"cost_{part}_usd"] for part in COST_PARTS[:-1]} | {"total": _band(row, "cost_total_{}_usd")}
    nested = {name: row[name] for name in PLACE} | {
        "fit": row["fit"],
        "plan": row["plan"],
        "memory_bytes": memory,
        "usable_bytes": row["usable_bytes"],
        "missing_bytes": row["missing_bytes"],
        "speed": speed | {"bound": row["bound"]},
        "hours": _band(row, "hours_{}"),
        "cost_usd": cost,
        "usd_per_hour": row["usd_per_hour"],
        "usd_per_million_tokens": row.get("usd_per_million_tokens"),
        "pareto": row["pareto"],
    }
    if row.get("dropped_by"):
        nested["dropped_by"] = row["dropped_by"]
    return {name: plain(value) for name, value in nested.items()}


def _band(row: Mapping[str, Any], template: str) -> dict[str, Any]:
    return {band: plain(row[template.format(band)]) for band in BANDS}


def plain(value: Any) -> Any:
    """Numpy scalars as Python's, not-a-number as None, containers likewise."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
