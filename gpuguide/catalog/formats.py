"""Recipes, optimizers, weight formats and assumptions: small tables as dictionaries of frozen rows."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from gpuguide.columns import Columns
from gpuguide.spec.assumptions import Assumption, Assumptions

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")


def rows_by_name(table: pd.DataFrame | Columns, row_type: type[Row]) -> dict[str, Row]:
    """Rows of a table as frozen dataclasses: other columns are left out, empty cells take defaults."""
    known = {field.name for field in fields(row_type)}  # type: ignore[arg-type]
    rows = {}
    for record in Columns.of(table).records():
        values = {str(key): value for key, value in record.items() if key in known and not _empty(value)}
        rows[record["name"]] = row_type(**values)
    return rows


def assumptions_from_table(table: pd.DataFrame | Columns) -> Assumptions:
    """`assumptions.csv` as a mapping of names to (least, typical, most) arrays."""
    return Assumptions(rows_by_name(table, Assumption))


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)
