"""
Columns of a market at chosen places, each taken when it is asked for.

A market has some forty columns and thousands of rows; a price needs seventeen of them, a filter one. Taking whole rows
from the table would cost more than all the arithmetic on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Columns:
    """
    A table seen through the places of some of its rows.

    Parameters
    ----------
    table : DataFrame
        Columns of `catalog.offers.market`.
    places : array of int, optional
        Rows, in the order wanted; all when left out.
    """

    table: pd.DataFrame
    places: Index | None = None
    _read: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)  # whole columns

    @classmethod
    def of(cls, offers: pd.DataFrame | Columns) -> Columns:
        """The same, from a table or from columns."""
        return offers if isinstance(offers, Columns) else cls(offers)

    def at(self, places: Index) -> Columns:
        """The same table at other places; columns that either has read serve both."""
        return Columns(self.table, places, self._read)

    def __len__(self) -> int:
        return len(self.table) if self.places is None else len(self.places)

    def __contains__(self, name: str) -> bool:
        return name in self.table

    def values(self, name: str) -> NDArray[Any]:
        """One column as it is stored."""
        if name not in self._read:
            self._read[name] = self.table[name].to_numpy()
        column = self._read[name]
        return column if self.places is None else column[self.places]

    def numbers(self, name: str) -> Floats:
        """One column as float64."""
        return np.asarray(self.values(name), dtype=np.float64)

    def equal(self, name: str, value: str) -> NDArray[np.bool_]:
        """Rows in which a column has one value."""
        return np.asarray(self.values(name) == value, dtype=np.bool_)
