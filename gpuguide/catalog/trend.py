"""How a price moved: the snapshots that `refresh` keeps, and the shipped table as the first of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from gpuguide.catalog.checks import usable
from gpuguide.catalog.live import HISTORY, cache_folder
from gpuguide.catalog.package import read_table

OFFER = ["provider", "instance_type", "region", "kind"]
"""What makes one offer the same as another on a later day."""


def history(folder: Path | None = None, *, tables: Path | None = None) -> pd.DataFrame:
    """
    Every row of every snapshot once per day of its price.

    Parameters
    ----------
    folder : Path, optional
        Cache; this computer's when left out.
    tables : Path, optional
        Data folder; the shipped one when left out.

    Returns
    -------
    DataFrame
        Columns of `offers.csv`; the shipped table when nothing was fetched. A broken snapshot is left out.
    """
    pieces = [read_table("offers", tables)]
    for path in sorted(((folder or cache_folder()) / HISTORY).glob("offers-*.parquet")):
        try:
            pieces.append(pd.read_parquet(path))
        except (OSError, ValueError, ImportError):
            continue
    rows = pd.concat(pieces, ignore_index=True)
    return rows.drop_duplicates([*OFFER, "as_of"], keep="last").reset_index(drop=True)


def price_trend(
    rows: pd.DataFrame, *, gpu: str, provider: str | None = None, pricing: str = "on_demand", kind: str = "on_demand"
) -> pd.DataFrame:
    """
    Price of one GPU over time.

    Parameters
    ----------
    rows : DataFrame
        From `history`.
    gpu : str
        As in `offers.csv`.
    provider : str, optional
        All when left out.
    pricing : str
        'on_demand' or 'spot'.
    kind : str
        Kind of offer.

    Returns
    -------
    DataFrame
        Per provider and day, oldest first: `provider, as_of, low, typical, high, offers`. [USD per GPU-hour]
    """
    each = _per_gpu(rows[rows["kind"] == kind], gpu, pricing)
    if provider is not None:
        each = each[each["provider"] == provider]
    grouped = each.groupby(["provider", "as_of"], sort=True)["each"]
    return grouped.agg(low="min", typical="median", high="max", offers="count").reset_index()


def market_trend(rows: pd.DataFrame, *, gpu: str, pricing: str = "on_demand") -> pd.DataFrame:
    """
    Least and median price of one GPU over time, among the same offers throughout.

    Prices of different offers on different days make no trend: only offers whose price was read again count, and each
    keeps its last price until it is read anew. Where offers were first read on different days, the span with most
    prices to compare is shown.

    Parameters
    ----------
    rows : DataFrame
        From `history`.
    gpu : str
        As in `offers.csv`.
    pricing : str
        'on_demand' or 'spot'.

    Returns
    -------
    DataFrame
        Per day with a new price, oldest first: `as_of, low, typical, offers`; empty where nothing was read twice.
        [USD per GPU-hour]
    """
    each = _per_gpu(rows, gpu, pricing)
    days = each.pivot_table(index="as_of", columns=OFFER, values="each", aggfunc="last").sort_index()
    read = days.notna().to_numpy()
    if not len(days) or not (read.sum(axis=0) > 1).any():
        return pd.DataFrame({"as_of": [], "low": [], "typical": [], "offers": []})
    # From each day on: offers known by then and read again later, times the days on which one of them was read.
    known = np.logical_or.accumulate(read, axis=0)
    later = np.logical_or.accumulate(read[::-1], axis=0)[::-1]
    again = known[:-1] & later[1:]
    counts = [
        int(again[start].sum()) * int(read[start:, again[start]].any(axis=1).sum()) for start in range(len(again))
    ]
    start = int(np.argmax(counts))
    same = days.ffill().iloc[start:, again[start]]
    # The first day shows what was known by then.
    shown = same[(np.arange(len(same)) == 0) | read[start:, again[start]].any(axis=1)]
    return pd.DataFrame(
        {
            "as_of": shown.index,
            "low": shown.min(axis=1).to_numpy(),
            "typical": shown.median(axis=1).to_numpy(),
            "offers": shown.notna().sum(axis=1).to_numpy(),
        }
    )


def _per_gpu(rows: pd.DataFrame, gpu: str, pricing: str) -> pd.DataFrame:
    """Rows of one GPU that have a price of the kind asked for, with `each`. [USD per GPU-hour]"""
    chosen = rows[rows["gpu"] == gpu]
    price = usable(chosen["spot_usd_per_hour" if pricing == "spot" else "price_usd_per_hour"])
    return chosen.assign(each=price / chosen["gpu_count"].to_numpy(np.float64)).dropna(subset=["each"])
