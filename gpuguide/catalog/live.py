"""
Newer prices beside the shipped ones: where they are kept on this computer, and how they overlay the table.

Fetched by `refresh`, read by `offers`; no network here.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.catalog.checks import COLUMNS, KEY
from gpuguide.catalog.package import read_csv
from gpuguide.columns import Columns, words
from gpuguide.errors import DataError, GuideError

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


def read_live(folder: Path | None = None) -> pd.DataFrame:
    """`live_columns` as a DataFrame."""
    return live_columns(folder).frame("str")


def live_columns(folder: Path | None = None) -> Columns:
    """
    Rows that `refresh` has left, columns of `offers.csv`; none where there are none or the file is broken.

    A broken cache is never an error: the shipped prices are there.
    """
    try:
        header, _, rows = read_csv((folder or cache_folder()) / LIVE)
        columns = {name: [row[header.index(name)] for row in rows] for name in COLUMNS}
    except (GuideError, ValueError):
        columns = {name: [] for name in COLUMNS}
    return Columns(
        {name: _number_column(cells) if name in NUMBERS else words(cells) for name, cells in columns.items()}
    )


def _number_column(cells: list[str]) -> NDArray[np.float64]:
    return np.array([_number(cell) for cell in cells], dtype=np.float64)


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def read_meta(folder: Path | None = None) -> dict[str, Any]:
    """When and from what the live rows were fetched; empty where there are none."""
    try:
        meta = json.loads(((folder or cache_folder()) / META).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}


def overlaid(shipped: pd.DataFrame | Columns, live: pd.DataFrame | Columns) -> Columns:
    """
    The shipped table with newer rows over it.

    A provider's rows of one kind are replaced together, and only by newer ones: a marketplace or community price is
    another product and stays.
    """
    old, new = Columns.of(shipped), Columns.of(live)
    of_old, of_new = (list(zip(rows.values("provider"), rows.values("kind"), strict=True)) for rows in (old, new))
    newest_old, newest_new = (_newest(rows, pairs) for rows, pairs in ((old, of_old), (new, of_new)))
    replaced = {pair for pair, day in newest_new.items() if day >= newest_old.get(pair, "")}
    kept = old.at(np.flatnonzero([pair not in replaced for pair in of_old]))
    fresh = new.at(np.flatnonzero([pair in replaced for pair in of_new]))
    return Columns({name: np.concatenate([kept.values(name), fresh.values(name)]) for name in old.names})


def _newest(rows: Columns, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Newest day of each provider and kind."""
    newest: dict[tuple[str, str], str] = {}
    for pair, day in zip(pairs, rows.values("as_of"), strict=True):
        newest[pair] = max(str(day or ""), newest.get(pair, ""))
    return newest


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
