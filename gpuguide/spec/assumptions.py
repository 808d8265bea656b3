"""Every tunable efficiency as (low, typical, high), from `data/assumptions.csv`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpuguide.errors import UnknownName, nearest


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """One constant: bands as in the table, the end that is favourable, and where it comes from."""

    name: str
    low: float
    typical: float
    high: float
    unit: str
    favourable: str  # 'low' or 'high': the end that needs the least memory, time or money
    calibrated: bool
    source: str
    as_of: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Assumptions(Mapping[str, NDArray[np.float64]]):
    """
    Looks a constant up as an array of shape (3, 1, 1), ordered so that place 0 needs the least.

    The band axis of every estimate is (least, typical, most) memory, time or money; an efficiency therefore stands
    with its highest value first, an overhead with its lowest.
    """

    rows: Mapping[str, Assumption]
    _arrays: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False, compare=False)
    _plain: list[Assumptions] = field(default_factory=list, repr=False, compare=False, kw_only=True)  # at most one

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        if name not in self._arrays:
            if name not in self.rows:
                raise UnknownName("assumption", name, nearest(name, self.rows), len(self.rows))
            row = self.rows[name]
            ends = (row.low, row.typical, row.high) if row.favourable == "low" else (row.high, row.typical, row.low)
            self._arrays[name] = np.array(ends, dtype=np.float64).reshape(3, 1, 1)
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def typical(self) -> Assumptions:
        """The same constants without a band: every end is the typical value and arrays have shape (1, 1, 1)."""
        if not self._plain:
            self._plain.append(Assumptions(self.rows, {name: self[name][1:2] for name in self.rows}))
        return self._plain[0]

    def value(self, name: str) -> float:
        """The typical value alone, for constants without a band."""
        return self.rows[name].typical

    def replace(self, **values: tuple[float, float, float]) -> Assumptions:
        """A copy in which the named constants have other (low, typical, high)."""
        rows = dict(self.rows)
        for name, (low, typical, high) in values.items():
            if name not in rows:
                raise UnknownName("assumption", name, nearest(name, rows), len(rows))
            old = rows[name]
            rows[name] = Assumption(
                name=name, low=low, typical=typical, high=high, unit=old.unit, favourable=old.favourable,
                calibrated=old.calibrated, source="given by the user", as_of=old.as_of, note=old.note,
            )  # fmt: skip
        return Assumptions(rows)
