"""
Catalogs of gpuhunt as rows of `offers.csv`: names of GPUs, regions of zones, spot beside on demand.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from gpuguide.catalog.checks import COLUMNS, usable

OURS = {"lambdalabs": "lambda", "vastai": "vast", "digitalocean": "digitalocean"}
"""Names of providers that differ from ours; all others are the same."""
KINDS = {"vastai": "marketplace"}
MEMORY_TOLERANCE = 0.15
"""Names without a size of their own: MI325X is listed with 288 GB there and has 256."""


def rows_of_items(
    items: Sequence[Any], *, name: str, source: str, day: date, shipped: pd.DataFrame, names: pd.DataFrame
) -> pd.DataFrame:
    """
    Items of gpuhunt as rows of `offers.csv`, not yet checked.

    Parameters
    ----------
    items : sequence of gpuhunt.CatalogItem
        Of one provider.
    name : str
        gpuhunt's name of the provider.
    source : str
        What the rows shall say of themselves.
    day : date
        Of the catalog.
    shipped : DataFrame
        `offers.csv`: a machine known there keeps the GPU it has there.
    names : DataFrame
        `live_names.csv`.
    """
    provider = OURS.get(name, name)
    table = pd.DataFrame(
        {
            "instance_type": [item.instance_name for item in items],
            "region": [_region(provider, item.location) for item in items],
            "name": [item.gpu_name or "" for item in items],
            "gpu_memory_gb": np.array([item.gpu_memory or np.nan for item in items], dtype=np.float64),
            "gpu_count": np.array([item.gpu_count for item in items], dtype=np.float64),
            "vcpus": np.array([item.cpu for item in items], dtype=np.float64),
            "ram_gb": np.array([item.memory for item in items], dtype=np.float64),
            "price": np.array([item.price for item in items], dtype=np.float64),
            "spot": np.array([item.spot for item in items], dtype=np.bool_),
        }
    )
    table["gpu"] = _gpu_names(table, provider, shipped, names)
    # Rows without a price stay, so that they are counted among those set aside.
    price = usable(table["price"])
    table["price_usd_per_hour"] = np.where(table["spot"], np.nan, price)
    table["spot_usd_per_hour"] = np.where(table["spot"], price, np.nan)
    keys = ["instance_type", "region", "gpu", "gpu_count", "gpu_memory_gb"]
    # Zones of a region: the list price is one (the dearest, should they differ), spot is that of the cheapest zone.
    merged = table.groupby(keys, as_index=False, dropna=False, sort=True).agg(
        price_usd_per_hour=("price_usd_per_hour", "max"),
        spot_usd_per_hour=("spot_usd_per_hour", "min"),
        vcpus=("vcpus", "max"),
        ram_gb=("ram_gb", "max"),
    )
    has_spot = merged["spot_usd_per_hour"].notna()
    return merged.assign(
        provider=provider, kind=KINDS.get(name, "on_demand"), price_basis="instance", as_of=day.isoformat(),
        source=source,
        note=np.where(has_spot, "live; spot = lowest availability zone", "live"),
    )[list(COLUMNS)]  # fmt: skip


def _gpu_names(table: pd.DataFrame, provider: str, shipped: pd.DataFrame, names: pd.DataFrame) -> list[str]:
    """GPU in our spelling: of the same machine in the shipped table, else by pattern, else by name and size."""
    own = shipped[shipped["provider"] == provider].groupby("instance_type")["gpu"].agg(["first", "nunique"])
    known = own.loc[own["nunique"] == 1, "first"].to_dict()
    rules = names.to_dict("records")
    answers: dict[tuple[str, str, float], str] = {}

    def named(instance: str, name: str, memory: float) -> str:
        if instance in known:
            return str(known[instance])
        fitting = [
            rule
            for rule in rules
            if rule["gpuhunt_name"] == name
            and rule["provider"] in ("", provider)
            and fnmatch.fnmatchcase(instance, rule["instance_pattern"] or "*")
            and (np.isnan(memory) or abs(memory / rule["memory_gb"] - 1.0) <= MEMORY_TOLERANCE)
        ]
        # A rule of the provider before a general one; then the size that is nearest.
        fitting.sort(key=lambda rule: (rule["provider"] == "", abs(memory - rule["memory_gb"])))
        return str(fitting[0]["gpu"]) if fitting else name

    for key in set(zip(table["instance_type"], table["name"], table["gpu_memory_gb"].round(1), strict=True)):
        answers[key] = named(*key)
    return [
        answers[key] for key in zip(table["instance_type"], table["name"], table["gpu_memory_gb"].round(1), strict=True)
    ]


def _region(provider: str, location: str | None) -> str:
    """Region of a zone; '*' where the catalog does not say."""
    text = (location or "").strip(" ,")
    if provider == "gcp":
        text = re.sub(r"-[a-z]$", "", text)
    elif provider == "aws":
        text = re.sub(r"(?<=\d)[a-z]$", "", text)
    return text or "*"
