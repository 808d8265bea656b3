"""How a price moved: the snapshots that `refresh` keeps, and the shipped table as the first of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from gpuguide.catalog.checks import usable
from gpuguide.catalog.live import HISTORY, cache_folder
from gpuguide.catalog.package import read_table


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
    key = ["provider", "instance_type", "region", "kind", "as_of"]
    return rows.drop_duplicates(key, keep="last").reset_index(drop=True)


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
    chosen = rows[(rows["gpu"] == gpu) & (rows["kind"] == kind)]
    if provider is not None:
        chosen = chosen[chosen["provider"] == provider]
    price = usable(chosen["spot_usd_per_hour" if pricing == "spot" else "price_usd_per_hour"])
    each = chosen.assign(each=price / chosen["gpu_count"].to_numpy(np.float64)).dropna(subset=["each"])
    grouped = each.groupby(["provider", "as_of"], sort=True)["each"]
    return grouped.agg(low="min", typical="median", high="max", offers="count").reset_index()
