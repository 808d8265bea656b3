"""
A table as columns: what the tables, the market and a ranking are made of.

Commands that answer one question never import pandas, which takes longer than the answer; whoever asks for a DataFrame
gets one from `Columns.frame`. A market has some forty columns and thousands of rows; a price needs seventeen of them, a
filter one: each is taken at its places when it is asked for.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Index = NDArray[np.intp]


class Columns:
    """
    A table seen at the places of some of its rows; nothing in it is ever changed.

    Parameters
    ----------
    whole : mapping of arrays, or DataFrame
        Whole columns by name, all of one length; words are objects.
    places : array of int, optional
        Rows, in the order wanted; all when left out.
    """

    __slots__ = ("_codes", "_read", "_whole", "places")

    def __init__(self, whole: Mapping[str, NDArray[Any]] | pd.DataFrame, places: Index | None = None) -> None:
        self._whole: Any = whole
        self.places = places
        # Whole columns as arrays, and their words as numbers; shared with the same table at other places.
        self._read: dict[str, NDArray[Any]] = whole if isinstance(whole, dict) else {}
        self._codes: dict[str, tuple[Index, list[Any]]] = {}

    @classmethod
    def of(cls, table: pd.DataFrame | Columns) -> Columns:
        """The same, from a table of either kind."""
        return table if isinstance(table, Columns) else cls(table)

    def at(self, places: Index) -> Columns:
        """Some of these rows; columns that either has read serve both."""
        there = Columns(self._whole, places if self.places is None else self.places[places])
        there._read, there._codes = self._read, self._codes
        return there

    def but(self, **changed: NDArray[Any]) -> Columns:
        """These rows with some columns in place of, or after, the others."""
        kept = {name: changed[name] if name in changed else self.values(name) for name in self.names}
        return Columns(kept | changed)

    @property
    def names(self) -> list[str]:
        """Columns in their order."""
        return list(self._whole)

    def __len__(self) -> int:
        if self.places is not None:
            return len(self.places)
        return len(self.values(self.names[0])) if self.names else 0

    def __contains__(self, name: object) -> bool:
        return name in self._whole

    def values(self, name: str) -> NDArray[Any]:
        """One column as it is stored."""
        if name not in self._read:
            self._read[name] = self._whole[name].to_numpy()
        column = self._read[name]
        return column if self.places is None else column[self.places]

    def numbers(self, name: str) -> Floats:
        """One column as float64."""
        return np.asarray(self.values(name), dtype=np.float64)

    def equal(self, name: str, value: str) -> NDArray[np.bool_]:
        """Rows in which a column has one value."""
        return np.asarray(self.values(name) == value, dtype=np.bool_)

    def codes(self, name: str) -> tuple[Index, list[Any]]:
        """One column as whole numbers, and the values of the whole table they stand for; -1 = empty."""
        if name not in self._codes:
            whole = Columns(self._whole)
            whole._read = self._read
            number: dict[Any, int] = {}
            listed = [
                number.setdefault(value, len(number)) if value is not None and value == value else -1
                for value in whole.values(name).tolist()
            ]
            self._codes[name] = np.array(listed, dtype=np.intp), list(number)
        numbers, known = self._codes[name]
        return (numbers if self.places is None else numbers[self.places]), known

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a row, in Python's own numbers and words."""
        names = self.names
        rows = zip(*(self.values(name).tolist() for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def write_csv(self, file: TextIO, *, header: bool = True) -> None:
        """The rows as CSV; what is not known is empty."""
        writer = csv.writer(file, lineterminator="\n")
        if header:
            writer.writerow(self.names)
        columns = (self.values(name).tolist() for name in self.names)
        known = (["" if value is None or value != value else value for value in column] for column in columns)
        writer.writerows(zip(*known, strict=True))

    def frame(self, words: Literal["object", "str"] = "object") -> pd.DataFrame:
        """The same as a DataFrame; words stay objects, which is quick, or become pandas' strings."""
        import pandas as pd

        columns = {name: self.values(name) for name in self.names}
        return pd.DataFrame(
            {
                name: pd.Series(values, dtype=words) if values.dtype == object else values
                for name, values in columns.items()
            }
        )


def words(values: list[Any]) -> NDArray[np.object_]:
    """A column of words, or of whatever else is no number."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
