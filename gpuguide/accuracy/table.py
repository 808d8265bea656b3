"""
Scores of one table of published measurements: how far estimates are from what was measured.

Each scorer turns the rows of one file into a frame with the columns of `SCORED`; this module turns such a frame into
the figures of `gpuguide accuracy --json`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

SCORED = ("row_id", "source_id", "measured", "low", "typical", "high", "skip", "expected", "verdict", "label")
"""
measured, low, typical, high : number in the unit of the table; nan where the row is skipped or has only an outcome.
skip : str, the reason why a row is not scored, or empty.
expected, verdict : for rows that say whether a job fits: 'fits' or 'no', and our answer 'fits', 'tight' or 'no'.
label : str, what the run was, in words (model, method, GPU).
"""

Scorer = Callable[[pd.DataFrame, "Catalog"], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class TableScore:
    """Figures of one table; errors are relative to the measured value."""

    rows: int
    scored: int
    skipped: dict[str, int]
    median_abs_error: float | None
    p90_abs_error: float | None
    bias: float | None
    within_band: float | None
    median_band_ratio: float | None
    outcomes: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Plain values as in CONTRACT of the command line."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        if not self.outcomes:
            del plain["outcomes"]
        return plain


def summarise(scored: pd.DataFrame) -> TableScore:
    """
    Figures of a scored frame.

    A verdict is right when 'no' was expected and we say 'no' or 'tight', or 'fits' was expected and we do not say 'no'.
    """
    skip = scored["skip"].fillna("").astype(str)
    numbers = scored[["measured", "low", "typical", "high"]].astype(float)
    kept = scored[(skip == "") & np.isfinite(numbers.to_numpy()).all(axis=1) & (numbers["measured"] != 0)]
    outcome = scored[(skip == "") & scored["expected"].isin(["fits", "no"])]
    outcomes: dict[str, int] = {}
    if len(outcome):
        said_no = outcome["verdict"].isin(["no", "tight"])
        right = np.where(outcome["expected"] == "no", said_no, outcome["verdict"] != "no")
        outcomes = {"right": int(right.sum()), "wrong": int((~right).sum())}
    reasons = {str(reason): int(count) for reason, count in skip[skip != ""].value_counts().items()}
    if kept.empty:
        return TableScore(len(scored), 0, reasons, None, None, None, None, None, outcomes)
    measured, typical = kept["measured"].to_numpy(float), kept["typical"].to_numpy(float)
    low, high = kept["low"].to_numpy(float), kept["high"].to_numpy(float)
    error = typical / measured - 1
    return TableScore(
        rows=len(scored),
        scored=len(kept),
        skipped=reasons,
        median_abs_error=float(np.median(np.abs(error))),
        p90_abs_error=float(np.quantile(np.abs(error), 0.9)),
        bias=float(np.median(error)),
        within_band=float(np.mean((low <= measured) & (measured <= high))),
        median_band_ratio=float(np.median(high[low > 0] / low[low > 0])) if np.any(low > 0) else None,
        outcomes=outcomes,
    )
