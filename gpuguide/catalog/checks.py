"""
What a price must look like before it may be ranked; a row that does not is set aside with its reason, never mended.

Prices come from lists, scrapes and live catalogs. The reasons here are mistakes that such sources were seen to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns, words
from gpuguide.errors import DataError
from gpuguide.units import GB, GIB, MIB

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

COLUMNS = (
    "provider", "instance_type", "gpu", "gpu_count", "gpu_memory_gb", "vcpus", "ram_gb", "region",
    "price_usd_per_hour", "spot_usd_per_hour", "kind", "price_basis", "source", "as_of", "note",
)  # fmt: skip
"""Of `offers.csv`, and of every table that overlays it."""
KEY = ["provider", "instance_type", "region", "kind"]

ROUNDING = 1e-3
"""Spot above on demand by less than this share is rounding (32.9365 against 32.93646 was seen)."""
Bounds = Mapping[str, tuple[float, ...]]
BOUNDS = (
    "low_usd_per_gpu_hour", "low_other_usd_per_gpu_hour", "low_spot_usd_per_gpu_hour", "high_usd_per_gpu_hour",
)  # fmt: skip
LEAST_OF_LIST, LEAST_OF_SPOT, MOST_OF_LIST = 0.65, 0.4, 2.0
"""Bounds of a GPU's price against the least and most of the shipped table: bid floors lie below, other units above."""
FEW_ROWS = 3
USD_PER_GB_HOUR = (0.002, 0.25)
"""Bounds where the shipped table has too few rows of a GPU: price per marketed GB of its memory. [USD/GB/h]"""
JUMP = 3.0
"""A provider whose prices all moved by more than this factor changed its unit or currency, not its prices."""
MEMORY_TOLERANCE = 0.10
LEAST_SHARE = 0.5
"""A catalog with fewer rows than this share of what was known is half of one."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Rows that passed, with what does not count emptied, and rows that did not, with their `reason`."""

    good: pd.DataFrame
    quarantined: pd.DataFrame
    notes: pd.DataFrame  # rows that passed with a remark: spot emptied, memory disagrees, price not growing with count


def checked(
    rows: pd.DataFrame, *, bounds: Bounds, memory_gb: Mapping[str, float], names: frozenset[str] | None = None
) -> Checked:
    """
    Set aside rows that must not be ranked.

    Parameters
    ----------
    rows : DataFrame
        Columns of `offers.csv`.
    bounds : mapping
        From `price_bounds`.
    memory_gb : mapping
        Marketed memory of a GPU by name; it wins over what a source says. [GB]
    names : frozenset of str, optional
        GPU names that exist although their memory is not known.

    Returns
    -------
    Checked
    """
    judged, reason = _judged(Columns(rows), bounds, memory_gb, names or frozenset())
    table = judged.frame("str")
    spot, price = usable(rows["spot_usd_per_hour"]), judged.numbers("price_usd_per_hour")
    remarks = np.where(spot > price * (1.0 + ROUNDING), "spot above on demand, emptied", "")
    own_memory = _of_gpu(judged, memory_gb)
    disagrees = np.abs(_numbers(judged.values("gpu_memory_gb")) / own_memory - 1.0) > MEMORY_TOLERANCE
    remarks = np.where(disagrees, "memory differs from the GPU table by more than 10 %", remarks)
    remarks = np.where(shrinks_with_count(table), "more GPUs for less money", remarks)
    noted = (reason == "") & (remarks != "")
    return Checked(
        good=_newest(judged.at(np.flatnonzero(reason == ""))).frame("str"),
        quarantined=table[reason != ""].assign(reason=reason[reason != ""]),
        notes=table[noted].assign(reason=remarks[noted]),
    )


def passed(
    rows: Columns, *, bounds: Bounds, memory_gb: Mapping[str, float], names: frozenset[str] = frozenset()
) -> Columns:
    """The rows that `checked` calls good, alone."""
    judged, reason = _judged(rows, bounds, memory_gb, names)
    return _newest(judged.at(np.flatnonzero(reason == "")))


def _judged(
    rows: Columns, bounds: Bounds, memory_gb: Mapping[str, float], names: frozenset[str]
) -> tuple[Columns, NDArray[np.object_]]:
    """Rows with prices that do not count emptied, and why each must not be ranked; '' where it may."""
    count = _numbers(rows.values("gpu_count"))
    price, spot = usable(rows.values("price_usd_per_hour")), usable(rows.values("spot_usd_per_hour"))
    gpus = rows.values("gpu").tolist()
    known = np.array([name in memory_gb or name in names for name in gpus], dtype=np.bool_)
    unbounded = (np.nan,) * len(BOUNDS)
    low, low_other, low_spot, high = np.array(
        [bounds.get(name, unbounded) for name in gpus], dtype=np.float64
    ).reshape(-1, len(BOUNDS)).T  # fmt: skip
    low = np.where(rows.equal("kind", "on_demand"), low, low_other)
    own_memory = _of_gpu(rows, memory_gb)
    least = np.where(np.isnan(own_memory), 1e-3, own_memory * USD_PER_GB_HOUR[0])
    most = np.where(np.isnan(own_memory), 1e3, own_memory * USD_PER_GB_HOUR[1])
    low, high, low_spot = (
        np.where(np.isnan(value), instead, value) for value, instead in ((low, least), (high, most), (low_spot, least))
    )
    whole = np.isfinite(count) & (count >= 1) & (count % 1 == 0)
    gpu_count = np.where(whole, count, np.nan)
    each, each_spot = price / gpu_count, spot / gpu_count
    # A spot price a rounding above the list price is the list price; one that is really above is no spot price.
    capped = np.where(np.isnan(price), spot, np.minimum(spot, price))
    kept_spot = np.where(spot > price * (1.0 + ROUNDING), np.nan, capped)
    lone = np.isnan(price) & np.isfinite(spot)
    outside = (each < low) | (each > high) | (each_spot < low_spot) | (lone & (each_spot > high))
    reason = np.select(
        [~known, ~whole, np.isnan(price) & np.isnan(kept_spot), outside],
        ["gpu unknown", "not a whole number of GPUs", "no price above zero", "price per GPU out of bounds"],
        "",
    ).astype(object)
    places = ["" if place is None or place != place else str(place).strip(" ,") for place in rows.values("region")]
    judged = rows.but(
        region=words([place or "*" for place in places]), price_usd_per_hour=price, spot_usd_per_hour=kept_spot
    )
    return judged, reason


def _of_gpu(rows: Columns, numbers: Mapping[str, float]) -> Floats:
    """The number of each row's GPU, nan where there is none."""
    return np.array([numbers.get(name, np.nan) for name in rows.values("gpu").tolist()], dtype=np.float64)


def usable(prices: pd.Series | NDArray[Any]) -> Floats:
    """Prices as numbers; what is not a number, not finite or not above zero is nan (missing)."""
    values = _numbers(np.asarray(prices))
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def price_bounds(offers: pd.DataFrame | Columns) -> Bounds:
    """
    Plausible prices of one GPU, by name, from a table that was read by people.

    Parameters
    ----------
    offers : Columns or DataFrame
        Columns of `offers.csv`.

    Returns
    -------
    mapping
        `BOUNDS` of each GPU, nan where the table has too few rows of it; `low_other` is for kinds that are not on
        demand. [USD/h]
    """
    table = Columns.of(offers)
    gpu, names = table.codes("gpu")
    count = table.numbers("gpu_count")
    each, spot = usable(table.values("price_usd_per_hour")) / count, usable(table.values("spot_usd_per_hour")) / count
    own = np.where(table.equal("kind", "on_demand"), each, np.nan)
    least_own, least, most, least_spot = np.full((4, len(names)), np.nan)
    np.fmin.at(least_own, gpu, own)
    np.fmin.at(least, gpu, each)
    np.fmax.at(most, gpu, each)
    np.fmin.at(least_spot, gpu, spot)
    enough = np.bincount(gpu[~np.isnan(each)], minlength=len(names)) >= FEW_ROWS
    least_own = np.where(np.isnan(least_own), least, least_own)
    least_spot = np.where(np.isnan(least_spot), least_own * 0.3, least_spot)
    found = np.stack(
        [least_own * LEAST_OF_LIST, least * LEAST_OF_LIST, least_spot * LEAST_OF_SPOT, most * MOST_OF_LIST]
    )
    values = np.where(enough, found, np.nan).T.tolist()
    return dict(zip(names, map(tuple, values), strict=True))


def shifted(new: pd.DataFrame, old: pd.DataFrame) -> float | None:
    """
    Factor by which a provider's prices moved as one, if that is more than prices move.

    Parameters
    ----------
    new, old : DataFrame
        Rows of one provider, columns of `offers.csv`.

    Returns
    -------
    float or None
        Median of new / old over machines that both have (else over GPUs) where it is beyond `JUMP`, else None: another
        currency, cents for dollars, a price per GPU for a price per machine.
    """
    for keys in (["instance_type", "region"], ["gpu"]):
        was = _per_gpu(old).groupby(keys)["each"].median()
        now = _per_gpu(new).groupby(keys)["each"].median()
        ratio = (now / was).dropna()
        if len(ratio):
            factor = float(ratio.median())
            return factor if not 1.0 / JUMP <= factor <= JUMP else None
    return None


def wrong_as_a_whole(good: pd.DataFrame, previous: pd.DataFrame) -> str:
    """Why a provider's rows are refused although each may be right."""
    if good.empty:
        return "no row passed the checks"
    if len(good) < LEAST_SHARE * len(previous):
        return f"only {len(good)} rows passed where {len(previous)} were known"
    factor = shifted(good, previous) if len(previous) else None
    if factor is not None:
        return f"all prices moved by a factor of {factor:.3g}: another currency or unit"
    return ""


def shrinks_with_count(rows: pd.DataFrame) -> Bools:
    """Rows that cost less than a machine of the same provider, region, GPU, kind and family with fewer GPUs."""
    import pandas as pd

    table = pd.DataFrame(
        {
            "where": rows["provider"] + "|" + rows["region"] + "|" + rows["gpu"] + "|" + rows["kind"] + "|"
            + rows["instance_type"].str.replace(r"\d+", "#", regex=True),
            "count": _numbers(rows["gpu_count"]),
            "price": usable(rows["price_usd_per_hour"]),
        }
    ).reset_index(drop=True)  # fmt: skip
    table = table.dropna().sort_values(["where", "count", "price"], ascending=[True, True, False])
    # Least price among strictly smaller counts: the running maximum of the least price of each count.
    least = table.groupby(["where", "count"], sort=False)["price"].min()
    before = least.groupby(level=0).cummax().groupby(level=0).shift()
    smaller = before.reindex(pd.MultiIndex.from_frame(table[["where", "count"]])).to_numpy(np.float64)
    flags = np.zeros(len(rows), dtype=np.bool_)
    flags[table.index[table["price"].to_numpy() < smaller * (1.0 - ROUNDING)]] = True
    return flags


def scaled_price(*, usd_per_hour: float, price_basis: str, gpus: int) -> float:
    """
    Price of several GPUs from the price of one row.

    Raises
    ------
    DataError
        If the row is a whole machine: its price is never multiplied.
    """
    if price_basis != "per_gpu":
        raise DataError(
            "offers.csv", None, "price_basis", f"a price per {price_basis} is for the whole machine and is never scaled"
        )
    return usd_per_hour * gpus


def memory_per_gpu_gb(*, reported: float, unit: str, gpu_count: int, known_gb: float) -> tuple[float, bool]:
    """
    Memory of one GPU whatever a source means by its number.

    Parameters
    ----------
    reported : float
        As printed: of one GPU or of all, in GB or MiB, rightly labelled or not.
    unit : str
        'GB', 'GiB' or 'MiB', as the source says.
    gpu_count : int
        GPUs of the machine.
    known_gb : float
        Marketed memory of the GPU; nan = not known. [GB]

    Returns
    -------
    float, bool
        Memory of one GPU [GB], and whether the source agrees with the GPU table within 10 %.

    Notes
    -----
    The table wins. Seen in sources: 80 for one GPU of eight, 640 for all eight, 80 under a heading of MiB, 0.
    """
    scale = {"GB": 1.0, "GiB": GIB / GB, "MiB": MIB / GB}[unit]
    readings = [reported * scale, reported * scale / gpu_count, reported, reported / gpu_count, reported * MIB / GB]
    if np.isnan(known_gb):
        return (readings[0] if readings[0] > 0 else float("nan")), False
    agrees = any(abs(reading / known_gb - 1.0) <= MEMORY_TOLERANCE for reading in readings)
    return known_gb, agrees


def _per_gpu(rows: pd.DataFrame) -> pd.DataFrame:
    count = _numbers(rows["gpu_count"])
    price, spot = usable(rows["price_usd_per_hour"]), usable(rows["spot_usd_per_hour"])
    return rows.assign(each=np.where(np.isnan(price), spot, price) / count)[["instance_type", "region", "gpu", "each"]]


def _numbers(column: pd.Series | NDArray[Any]) -> Floats:
    """A column as numbers; what is none is nan."""
    values = np.asarray(column)
    if values.dtype != object:
        return values.astype(np.float64)
    import pandas as pd

    numbers: Floats = pd.to_numeric(pd.Series(values), errors="coerce").to_numpy(np.float64)
    return numbers


def _newest(rows: Columns) -> Columns:
    """One row per machine and place: the newest; of equal age the dearer, so that no error makes a bargain."""
    columns = [rows.values(name).astype(str) for name in KEY]
    columns += [
        _numbers(rows.values("gpu_memory_gb")),
        rows.values("as_of").astype(str),
        rows.numbers("price_usd_per_hour"),
    ]
    ordered = rows.at(np.lexsort(columns[::-1]))
    # Two memory sizes under one name are two machines.
    keys = zip(*(ordered.values(name).tolist() for name in (*KEY, "gpu", "gpu_count")), strict=True)
    last = {key: place for place, key in enumerate(keys)}
    return ordered.at(np.array(sorted(last.values()), dtype=np.intp))
