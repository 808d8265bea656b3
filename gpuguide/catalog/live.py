"""
Newer prices beside the shipped ones: where they are kept on this computer, and how they overlay the table.

Fetched by `refresh`, read by `offers`; no network here.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuguide.catalog.checks import COLUMNS, KEY
from gpuguide.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

LIVE, META, HISTORY = "offers-live.csv", "offers-live.json", "history"
NUMBERS = ("gpu_count", "gpu_memory_gb", "vcpus", "ram_gb", "price_usd_per_hour", "spot_usd_per_hour")


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """
    Where this computer keeps what can be fetched again; `GPUGUIDE_CACHE` names another place.

    Returns
    -------
    Path
        Need not exist.
    """
    known = os.environ if environment is None else environment
    if known.get("GPUGUIDE_CACHE"):
        return Path(known["GPUGUIDE_CACHE"])
    try:
        home = Path.home()
    except RuntimeError:  # a user without an entry in the system's list, as in many containers
        home = Path(tempfile.gettempdir())
    if sys.platform == "win32":
        base = Path(known.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(known.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "gpuguide"


def has_live(folder: Path | None = None) -> bool:
    """Whether `refresh` has left rows here."""
    try:
        return ((folder or cache_folder()) / LIVE).is_file()
    except OSError:
        return False


def read_live(folder: Path | None = None) -> pd.DataFrame:
    """
    Rows that `refresh` has left, columns of `offers.csv`; none where there are none or the file is broken.

    A broken cache is never an error: the shipped prices are there.
    """
    import pandas as pd

    path = (folder or cache_folder()) / LIVE
    empty = pd.DataFrame({name: pd.Series(dtype="float64" if name in NUMBERS else "str") for name in COLUMNS})
    try:
        if not has_live(folder):
            return empty
        table = pd.read_csv(path, dtype=dict.fromkeys(set(COLUMNS) - set(NUMBERS), str), keep_default_na=False)
        for name in NUMBERS:
            table[name] = pd.to_numeric(table[name], errors="coerce")
        return table[list(COLUMNS)]
    except (OSError, ValueError, KeyError, pd.errors.ParserError):
        return empty


def read_meta(folder: Path | None = None) -> dict[str, Any]:
    """When and from what the live rows were fetched; empty where there are none."""
    try:
        meta = json.loads(((folder or cache_folder()) / META).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}


def overlaid(shipped: pd.DataFrame, live: pd.DataFrame) -> pd.DataFrame:
    """
    The shipped table with newer rows over it.

    A provider's rows of one kind are replaced together, and only by newer ones: a marketplace or community price is
    another product and stays.
    """
    import pandas as pd

    if live.empty:
        return shipped
    pair = ["provider", "kind"]
    newest = shipped.groupby(pair)["as_of"].max().reindex(pd.MultiIndex.from_frame(live[pair])).fillna("").to_numpy()
    fresh = live[live.groupby(pair)["as_of"].transform("max").to_numpy() >= newest]
    replaced = pd.MultiIndex.from_frame(shipped[pair]).isin(pd.MultiIndex.from_frame(fresh[pair].drop_duplicates()))
    return pd.concat([shipped[~replaced], fresh[shipped.columns]], ignore_index=True)


def write_live(cache: Path, fresh: Mapping[str, pd.DataFrame], versions: Mapping[str, str], fetched_with: str) -> None:
    """
    Replace the rows of some providers; the others stay.

    Everything is written beside the old files first; then they change places, each in one step.

    Parameters
    ----------
    cache : Path
        Folder, made where it is missing.
    fresh : mapping
        New rows by provider, columns of `offers.csv`.
    versions : mapping
        Version of the catalog they are from, by provider.
    fetched_with : str
        For the record: program and version.

    Raises
    ------
    DataError
        If the folder cannot be written; everything is then as before.
    """
    import pandas as pd

    old, meta = read_live(cache), read_meta(cache)
    kept = old[~old["provider"].isin(list(fresh))]
    table = pd.concat([kept, *fresh.values()], ignore_index=True).sort_values(KEY, kind="stable")
    moment = datetime.now(UTC)
    about = dict(meta.get("providers", {})) if isinstance(meta.get("providers"), dict) else {}
    for name, rows in fresh.items():
        about[name] = {"version": versions[name], "as_of": str(rows["as_of"].max()), "rows": len(rows)}
    described = {
        "fetched_at": moment.isoformat(timespec="seconds"),
        "fetched_with": fetched_with,
        "rows": len(table),
        "providers": about,
    }
    try:
        (cache / HISTORY).mkdir(parents=True, exist_ok=True)
        snapshot = cache / HISTORY / f"offers-{moment:%Y%m%dT%H%M%SZ}.parquet"
        ready = [
            (_beside(cache / LIVE, table.to_csv(index=False, lineterminator="\n").encode()), cache / LIVE),
            (_beside(cache / META, (json.dumps(described, indent=1) + "\n").encode()), cache / META),
            (_beside(snapshot, _parquet(table)), snapshot),
        ]
        for temporary, path in ready:
            temporary.replace(path)
    except OSError as error:
        raise DataError(LIVE, None, None, f"cannot be written: {error}; prices stay as they were") from None
    finally:
        for leftover in [*cache.glob("*.part"), *(cache / HISTORY).glob("*.part")]:
            leftover.unlink(missing_ok=True)


def _beside(path: Path, content: bytes) -> Path:
    """A finished file next to the one it will replace, on the disk before anything is renamed."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _parquet(table: pd.DataFrame) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), sink)
    return bytes(sink.getvalue().to_pybytes())
