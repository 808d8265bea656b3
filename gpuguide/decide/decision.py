"""The answer: a ranked list with everything that explains it, and its plain form for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns, words
from gpuguide.decide.cost import PARTS as COST_PARTS
from gpuguide.decide.rows import PLACE, Rows
from gpuguide.decide.words import verdict_of, warnings_of
from gpuguide.errors import InvalidScenario, must_be
from gpuguide.estimate.results import PARTS, MemoryBreakdown
from gpuguide.spec.scenario import Question, Scenario
from gpuguide.units import BANDS

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.decide.remedies import Remedy

MOST_REJECTED = 500
"""Of the offers that do not fit, so many are listed in `Decision.rejected`."""
ALWAYS_SHOWN = ("tokens_per_s", "step_s", "mfu", "ttft_s", "tpot_s")
"""Speeds that a row of the JSON names even where the workload has none."""
SPEED_BANDS = (
    "tokens_per_s",
    "step_s",
    "mfu",
    "ttft_s",
    "tpot_s",
    "queue_s",
    "items_per_s",
    "batch_s",
    "realtime_factor",
)
CHANCES = ("providers", "probability_in_time", "minimum_charge_usd", "total_if_stopped")
"""Providers of the same machine, chance of the deadline, least charges, a month's cost when stopped between uses."""
SPEED_PARTS = (
    "compute_s", "memory_bound_s", "tensor_parallel_s", "pipeline_bubble_s", "data_parallel_s", "expert_parallel_s",
    "offload_s", "encode_s", "denoise_s", "decode_s",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Decision:
    """
    What we can say about a question; tables are made when they are asked for, and then kept.

    Attributes
    ----------
    question : Question
        With defaults filled.
    rows : Rows
        Estimates from which the tables are made.
    best_first, others : array of int
        Places in the market of what fits or is tight, best first, and of the rest, nearest to fitting first.
    """

    question: Question
    rows: Rows
    best_first: NDArray[np.intp]
    others: NDArray[np.intp]

    @property
    def scenario(self) -> Scenario:
        """The question's scenario with defaults filled."""
        return self.question.scenario

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """
        Offers that fit or are tight, best first by the scenario's preference.

        Columns: those of `PLACE`, `fit`, `plan`, `memory_<part>_bytes`, `memory_total_<band>_bytes`, `usable_bytes`,
        `missing_bytes`, `<speed>_<band>`, `bound`, `hours_<band>`, `cost_<part>_usd`, `cost_total_<band>_usd`,
        `usd_per_hour`, `usd_per_million_tokens`, `pareto`.
        """
        return self.rows.table(self.best_first)

    @cached_property
    def rejected(self) -> pd.DataFrame:
        """The nearest of the other offers, same columns; `dropped_by` names the step that removed each."""
        return self.rows.table(self.others[:MOST_REJECTED])

    @cached_property
    def each_gpu(self) -> NDArray[np.intp]:
        """Of each GPU the place of its best offer, those that fit first, then by how little they miss."""
        both = np.concatenate([self.best_first, self.others])
        return both[np.sort(np.unique(self.question.market.values("gpu_code")[both], return_index=True)[1])]

    @cached_property
    def by_gpu(self) -> pd.DataFrame:
        """Of each GPU the best offer, those that fit first, then by how little they miss."""
        return self.rows.table(self.each_gpu)

    def top(self, most: int) -> pd.DataFrame:
        """The first rows of the ranking, or where nothing fits of the rejected."""
        return self.rows.table((self.best_first if len(self.best_first) else self.others)[: _rows(most)])

    @cached_property
    def best(self) -> pd.Series | None:
        """First row of the ranking, or None when nothing fits."""
        return self.top(1).iloc[0] if len(self.best_first) else None

    @cached_property
    def first(self) -> dict[str, Any] | None:
        """`best` in plain values, which need no pandas."""
        return next(iter(self.rows.columns(self.best_first[:1]).records()), None)

    @cached_property
    def nearest(self) -> dict[str, Any] | None:
        """`first`, or where nothing fits the first of the rejected; None when no plan is legal."""
        return self.first or next(iter(self.rows.columns(self.others[:1]).records()), None)

    @property
    def funnel(self) -> Sequence[tuple[str, int]]:
        """Offers left after each filter: what the job needs first, then what the renter accepts."""
        return self.rows.funnel.remaining

    @cached_property
    def memory(self) -> MemoryBreakdown | None:
        """Of the best plan (or the nearest to fitting), per GPU, band axis first; None when no plan is legal."""
        first = self.best_first if len(self.best_first) else self.others
        return self.rows.memory(int(first[0])) if len(first) else None

    @cached_property
    def verdict(self) -> Mapping[str, Any]:
        """Key of the sentence that answers first, and the values it names."""
        return verdict_of(self)

    @cached_property
    def warnings(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Keys and values of what a reader should know before acting."""
        return warnings_of(self)

    @cached_property
    def remedies(self) -> Sequence[Remedy]:
        """What would help, best first; each is a decision of its own, so the first look takes a moment."""
        from gpuguide.decide.remedies import remedies

        return remedies(self)

    def table(self, *, top: int, include_rejected: bool = False) -> pd.DataFrame:
        """Ranked offers as a flat table, plans spelt out in words."""
        flat = self.columns(top=top, include_rejected=include_rejected)
        return flat.frame().assign(plan=flat.values("plan").tolist())

    def columns(self, *, top: int | None = None, include_rejected: bool = False) -> Columns:
        """`table` as columns, which need no pandas."""
        flat = self.rows.columns(self._places(top, include_rejected))
        plans = [", ".join(f"{key}={value}" for key, value in plan.items()) for plan in flat.values("plan")]
        return flat.but(plan=words(plans))

    def as_json(self, *, top: int | None = None, include_rejected: bool = False) -> dict[str, Any]:
        """Plain values: bytes, seconds, tokens, USD; a band is a mapping of low, typical and high."""
        rows = self.rows.columns(self._places(top, include_rejected)).records()
        model = self.question.model
        return {
            "scenario": self.scenario.model_dump(mode="json"),
            "model": {"name": model.name, "kind": model.kind, "params": float(model.params), "source": model.source},
            "funnel": [{"step": step, "remaining": remaining} for step, remaining in self.funnel],
            "ranking": [row_as_json(row) for row in rows],
            "remedies": [plain(remedy.as_json()) for remedy in self.remedies],
            "verdict": plain(dict(self.verdict)),
            "warnings": [{"key": key, **plain(dict(values))} for key, values in self.warnings],
        }

    def _places(self, top: int | None, include_rejected: bool) -> NDArray[np.intp]:
        """The first rows of the ranking, and all others behind them where wanted."""
        places = self.best_first[: _rows(top)]
        return np.concatenate([places, self.others]) if include_rejected else places


def _rows(most: int | None) -> int | None:
    """A number of rows, none for all."""
    if most is not None:
        must_be("top", most, (int, np.integer), "give a whole number of rows")
        if most < 0:
            raise InvalidScenario("top", most, "give a whole number of rows")
    return most


def row_as_json(row: Mapping[Any, Any]) -> dict[str, Any]:
    """One row of a ranking, nested as documented."""
    memory = {part: row[f"memory_{part}_bytes"] for part in PARTS}
    memory |= {"total": row["memory_total_typical_bytes"]}
    memory |= {f"total_{band}": row[f"memory_total_{band}_bytes"] for band in ("low", "high")}
    speed: dict[str, Any] = {
        name: _band(row, f"{name}_{{}}") if f"{name}_typical" in row else None
        for name in SPEED_BANDS
        if name in ALWAYS_SHOWN or f"{name}_typical" in row
    }
    speed |= {name: row[name] for name in SPEED_PARTS if name in row}
    cost = {part: row[f"cost_{part}_usd"] for part in COST_PARTS} | {"total": _band(row, "cost_total_{}_usd")}
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
        "energy_kwh": _band(row, "energy_{}_kwh"),
        "co2e_kg": _band(row, "co2e_{}_kg"),
    }
    nested |= {name: row[name] for name in CHANCES if name in row}
    if row.get("dropped_by"):
        nested["dropped_by"] = row["dropped_by"]
    return {name: plain(value) for name, value in nested.items()}


def _band(row: Mapping[Any, Any], template: str) -> dict[str, Any]:
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
