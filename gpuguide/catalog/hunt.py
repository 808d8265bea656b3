"""
Catalogs of gpuhunt as rows of `offers.csv`: downloads with a deadline, names of GPUs, spot beside on demand.

gpuhunt parses its own files; what it does not do (time limits, one failure apart from another) happens here.
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpuguide.catalog.checks import COLUMNS, usable
from gpuguide.errors import GuideError

OURS = {"lambdalabs": "lambda", "vastai": "vast", "digitalocean": "digitalocean"}
"""Names of providers that differ from ours; all others are the same."""
KINDS = {"vastai": "marketplace"}
LARGEST_BYTES = 256_000_000
CHUNK = 65_536
PATIENCE_S = 10.0
"""Longest silence of a server. [s]"""
MEMORY_TOLERANCE = 0.15
"""Names without a size of their own: MI325X is listed with 288 GB there and has 256."""

_environment = threading.Lock()


class CatalogProblem(Exception):
    """Why one provider's catalog could not be used; its rows stay as they are."""


def gpuhunt_package() -> Any:
    """
    The package behind live prices, imported only when they are asked for.

    Raises
    ------
    GuideError
        If the extra is not installed.
    """
    try:
        import gpuhunt
    except ImportError:
        raise GuideError('live prices need one more package: pip install "gpuguide[refresh]"') from None
    return gpuhunt


def gpuhunt_version() -> str:
    """Installed version of gpuhunt."""
    return metadata.version("gpuhunt")


def known_providers() -> dict[str, str]:
    """Providers with a public catalog: our name and gpuhunt's."""
    gpuhunt_package()
    from gpuhunt._internal.catalog import OFFLINE_PROVIDERS

    return {OURS.get(name, name): name for name in OFFLINE_PROVIDERS}


def base_address() -> str:
    """Where the catalogs are: `GPUHUNT_CATALOG_URL`, else gpuhunt's own."""
    from gpuhunt._internal.catalog import CATALOG_URL

    address = os.environ.get("GPUHUNT_CATALOG_URL", str(CATALOG_URL)).rstrip("/")
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise GuideError(f"GPUHUNT_CATALOG_URL = {address[:60]} is not possible: give an http or https address")
    return address


def latest_version(base: str, name: str, *, until: float, cancel: threading.Event) -> tuple[str, date]:
    """
    Version of a provider's catalog and the day in it, which is the date of its prices.

    Raises
    ------
    CatalogProblem
        If it cannot be had in time or is not a version.
    """
    text = _fetch(f"{base}/{name}/version", until, cancel, 200).decode("utf-8", "replace").strip()
    match = re.fullmatch(r"(\d{4})(\d{2})(\d{2})(-\d+)?", text)
    try:
        day = date(*(int(part) for part in match.groups()[:3])) if match else None
    except ValueError:
        day = None
    if day is None:
        raise CatalogProblem(f"version {text[:30]!r} is not a date")
    return text, day


def download(base: str, name: str, version: str, folder: Path, *, until: float, cancel: threading.Event) -> None:
    """
    Save a provider's catalog as `<name>.csv`.

    Raises
    ------
    CatalogProblem
        If it cannot be had in time, or is no archive with that file.
    """
    packed = _fetch(f"{base}/{name}/{version}/catalog.zip", until, cancel, LARGEST_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            if archive.getinfo(f"{name}.csv").file_size > LARGEST_BYTES:
                raise CatalogProblem("the catalog is larger than a catalog can be")
            (folder / f"{name}.csv").write_bytes(archive.read(f"{name}.csv"))
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise CatalogProblem(f"the archive is broken: {error}") from None


def read_rows(
    name: str, folder: Path, *, version: str, day: date, shipped: pd.DataFrame, names: pd.DataFrame
) -> pd.DataFrame:
    """
    A downloaded catalog as rows of `offers.csv`, not yet checked.

    Parameters
    ----------
    name : str
        gpuhunt's name of the provider.
    folder : Path
        With `<name>.csv`.
    version, day : str, date
        Of the catalog.
    shipped : DataFrame
        `offers.csv`: a machine known there keeps the GPU it has there.
    names : DataFrame
        `live_names.csv`.

    Raises
    ------
    CatalogProblem
        If nothing can be read.
    """
    package = gpuhunt_package()
    with _catalog_folder(folder):
        try:
            catalog = package.Catalog(balance_resources=False, auto_reload=False)
            items = catalog.query(provider=[name], min_gpu_count=1)
        except Exception as error:  # whatever a broken file makes the parser raise
            raise CatalogProblem(f"the catalog cannot be read: {error}") from None
    if not items:
        raise CatalogProblem("the catalog is empty")
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
        source=f"gpuhunt {gpuhunt_version()} catalog {name} {version}",
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


@contextmanager
def _catalog_folder(folder: Path) -> Iterator[None]:
    """gpuhunt's documented way to be given files: an environment variable."""
    with _environment:
        before = os.environ.get("GPUHUNT_CATALOG_DIR")
        os.environ["GPUHUNT_CATALOG_DIR"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ["GPUHUNT_CATALOG_DIR"]
            else:
                os.environ["GPUHUNT_CATALOG_DIR"] = before


def _fetch(address: str, until: float, cancel: threading.Event, largest: int) -> bytes:
    """Body of an answer, within the deadline however slowly it drips."""
    parts, size = [], 0
    try:
        left = until - time.monotonic()
        if left <= 0 or cancel.is_set():
            raise CatalogProblem("no answer in time")
        with urllib.request.urlopen(address, timeout=min(PATIENCE_S, left)) as answer:
            while chunk := answer.read1(CHUNK):
                size += len(chunk)
                if size > largest:
                    raise CatalogProblem("the answer is larger than a catalog can be")
                if time.monotonic() > until or cancel.is_set():
                    raise CatalogProblem("no answer in time")
                parts.append(chunk)
            expected = answer.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        raise CatalogProblem(f"the server answers {error.code}") from None
    except TimeoutError:
        raise CatalogProblem("no answer in time") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        late = isinstance(reason, TimeoutError)
        raise CatalogProblem("no answer in time" if late else f"no connection: {reason}") from None
    except ValueError as error:
        raise CatalogProblem(f"no connection: {error}") from None
    if expected is not None and expected.isdigit() and size != int(expected):
        raise CatalogProblem("the answer broke off")
    return b"".join(parts)
