"""Scores of every table in a folder of measurements: what `gpuguide accuracy` and the accuracy page show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpuguide.accuracy import scorers
from gpuguide.accuracy.table import SCORED, Scorer, TableScore, summarise
from gpuguide.catalog.catalog import Catalog
from gpuguide.errors import DataError, GuideError, UnknownName, nearest

FOLDER = "measurements"
MOST_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Scores:
    """Scored rows by table name."""

    scored: Mapping[str, pd.DataFrame]

    def by_table(self) -> dict[str, TableScore]:
        """Figures of each table."""
        return {name: summarise(frame) for name, frame in self.scored.items()}

    def as_json(self) -> dict[str, Any]:
        """Plain values, one entry per table."""
        return {"tables": {name: score.as_json() for name, score in self.by_table().items()}}

    def rows(self) -> pd.DataFrame:
        """Every row of every table, with the table's name."""
        named = [frame.assign(table=name) for name, frame in self.scored.items()]
        return pd.concat(named, ignore_index=True) if named else pd.DataFrame()


def score_folder(catalog: Catalog, folder: Path | None = None, only: str | None = None) -> Scores:
    """
    Estimates against every measurement of a folder whose tables we know.

    Parameters
    ----------
    catalog : Catalog
    folder : Path, optional
        CSV files with the columns of the shipped ones; a table may be absent.
    only : str, optional
        Name of one table, or of a file whose quantities are all wanted.

    Raises
    ------
    DataError
        If the folder has none of the tables.
    UnknownName
        If no table has that name.
    """
    folder = folder or catalog.folder / FOLDER
    known = scorers.all_scorers()
    wanted = {name: score for name, score in known.items() if only is None or only in (name, name.partition(":")[0])}
    if not wanted:
        raise UnknownName("table of measurements", str(only), nearest(str(only), known), len(known))
    if not folder.is_dir():
        raise DataError(str(folder), None, None, "there is no such folder of measurements")
    present = {name: score for name, score in wanted.items() if (folder / f"{name.partition(':')[0]}.csv").is_file()}
    if not present:
        raise DataError(
            str(folder),
            None,
            None,
            f"has none of the tables {', '.join(sorted({n.partition(':')[0] for n in wanted}))}",
        )
    files: dict[str, pd.DataFrame] = {}
    scored = {}
    for name, score in present.items():
        file = name.partition(":")[0]
        if file not in files:
            files[file] = read_measurements(folder / f"{file}.csv")
        scored[name] = _score(name, score, files[file], catalog)
    return Scores(scored)


def read_measurements(path: Path) -> pd.DataFrame:
    """A table of measurements as text and numbers; empty cells are nan, whatever the column."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(path.name, None, None, f"is larger than {MOST_BYTES // 1_000_000} MB")
        return pd.read_csv(path, low_memory=False)
    except (OSError, ValueError) as error:
        raise DataError(path.name, None, None, f"cannot be read ({' '.join(str(error).split())[:150]})") from None


def _score(name: str, score: Scorer, frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Scored rows; a row that cannot be read is skipped with its reason, whatever stands in it."""
    try:
        with np.errstate(all="ignore"):  # what is no number is skipped below
            return _finite(score(frame, catalog))
    except KeyError as error:
        raise DataError(
            f"{name.partition(':')[0]}.csv", None, str(error).strip("'"), "this column is missing"
        ) from None
    except (ValueError, ArithmeticError, TypeError, GuideError) as error:
        if len(frame) > 1:
            half = len(frame) // 2
            halves = [_score(name, score, part, catalog) for part in (frame.iloc[:half], frame.iloc[half:])]
            return pd.concat([part for part in halves if len(part)] or halves, ignore_index=True)
        skipped: dict[str, list[Any]] = {column: [float("nan")] for column in ("measured", "low", "typical", "high")}
        skipped |= {column: [str(frame[column].iloc[0])] for column in ("row_id", "source_id") if column in frame}
        reason = f"not scoreable: the row cannot be read ({type(error).__name__})"
        return pd.DataFrame(skipped | {"skip": [reason]}).reindex(columns=list(SCORED))


def _finite(scored: pd.DataFrame) -> pd.DataFrame:
    """Rows whose measured value or estimate is no number cannot be compared and say so."""
    skip = scored["skip"].fillna("").astype(str)
    asked = (skip == "") & ~scored["expected"].isin(["fits", "no"])
    numbers = scored[["measured", "low", "typical", "high"]].astype(float)
    comparable = pd.Series(np.isfinite(numbers.to_numpy()).all(axis=1), index=scored.index) & (numbers["measured"] != 0)
    return scored.assign(skip=skip.mask(asked & ~comparable, "not scoreable: no number to compare"))
