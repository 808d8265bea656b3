"""
Live prices over the shipped ones: fetch, check, replace provider by provider; a failure leaves everything as it was.

    progress = lambda step: print(step.provider, step.status)
    report = refresh(progress=progress)

What was fetched lies in the cache folder (`live.cache_folder`): the rows, what they are, and a history for trends.
"""

from __future__ import annotations

import json
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from gpuguide.catalog import checks, hunt
from gpuguide.catalog.live import HISTORY, LIVE, META, cache_folder, read_live, read_meta
from gpuguide.catalog.package import read_table
from gpuguide.errors import DataError, UnknownName, nearest

DEADLINE_S = 30.0
LEAST_SHARE = 0.5
"""A catalog with fewer rows than this share of what was known is half of one."""

Outcome = tuple[str, str, str, date | None]
"""Our name of a provider, what became of its download, version, day of the version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One provider is done: for a progress bar."""

    provider: str
    status: str  # new, unchanged, kept
    done: int
    total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderReport:
    """What became of one provider."""

    provider: str
    status: str  # new: replaced; unchanged: the catalog is the one we have; kept: something was wrong, old rows stay
    rows: int = 0  # now on this computer
    as_of: str = ""
    problem: str = ""
    quarantined: dict[str, int] = field(default_factory=dict)  # rows set aside, by reason
    notes: dict[str, int] = field(default_factory=dict)  # rows kept with a remark


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What became of a refresh."""

    providers: tuple[ProviderReport, ...]
    cancelled: bool = False
    folder: Path = Path()

    @property
    def changed(self) -> bool:
        """Whether any prices were replaced."""
        return any(provider.status == "new" for provider in self.providers)


def refresh(
    *,
    providers: Sequence[str] = (),
    folder: Path | None = None,
    tables: Path | None = None,
    deadline_s: float = DEADLINE_S,
    progress: Callable[[Step], None] | None = None,
    cancel: threading.Event | None = None,
) -> Report:
    """
    Fetch live prices and lay those that pass every check over the shipped ones.

    Parameters
    ----------
    providers : sequence of str
        Only these; all with a public catalog when empty.
    folder : Path, optional
        Cache; this computer's when left out.
    tables : Path, optional
        Data folder that the prices are checked against; the shipped one when left out.
    deadline_s : float
        For everything together; what is not there by then is left as it was. [s]
    progress : callable, optional
        Called with a `Step` after each provider, from this thread.
    cancel : Event, optional
        Set by another thread to stop; nothing is then written.

    Returns
    -------
    Report
        Also when every provider failed: old prices and their dates stand.

    Raises
    ------
    GuideError
        If the extra is not installed.
    UnknownName
        If a provider has no public catalog.
    DataError
        If the cache cannot be written; it is then as before.
    """
    cache = folder or cache_folder()
    stop = cancel or threading.Event()
    known = hunt.known_providers()
    for name in providers:
        if name not in known:
            raise UnknownName("provider with a live catalog", name, nearest(name, known), len(known))
    chosen = {name: known[name] for name in (providers or known)}
    shipped = read_table("offers", tables)
    old, meta = read_live(cache), read_meta(cache)
    until = time.monotonic() + deadline_s
    reports: dict[str, ProviderReport] = {}
    fresh: dict[str, pd.DataFrame] = {}
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="gpuguide-", ignore_cleanup_errors=True) as scratch:
        for name, problem, version, day in _downloads(chosen, Path(scratch), meta, old, until, stop):
            if problem == "" and day is not None:
                rows, report = _checked_rows(name, chosen[name], Path(scratch), version, day, shipped, old, tables)
            else:
                rows, report = None, _kept(name, old, problem)
            reports[name] = report
            if rows is not None:
                fresh[name], versions[name] = rows, version
            if progress is not None:
                progress(Step(provider=name, status=report.status, done=len(reports), total=len(chosen)))
    cancelled = stop.is_set()
    if cancelled:
        fresh = {}
        reports = {name: _kept(name, old, "cancelled") for name in chosen}
    if fresh:
        _write(cache, old, fresh, versions, meta)
    ordered = tuple(reports[name] for name in chosen)
    return Report(providers=ordered, cancelled=cancelled, folder=cache)


def _downloads(
    chosen: dict[str, str],
    scratch: Path,
    meta: dict[str, Any],
    old: pd.DataFrame,
    until: float,
    stop: threading.Event,
) -> Iterator[Outcome]:
    """Outcomes as they come in, at the deadline those of providers that did not answer."""
    base = hunt.base_address()
    have = meta.get("providers", {}) if isinstance(meta.get("providers"), dict) else {}
    stored = set(old["provider"])
    outcomes: queue.Queue[Outcome] = queue.Queue()

    def fetch(ours: str, theirs: str) -> None:
        version, day, problem = "", None, ""
        try:
            version, day = hunt.latest_version(base, theirs, until=until, cancel=stop)
            if ours in stored and version == have.get(ours, {}).get("version"):
                problem = "unchanged"
            else:
                hunt.download(base, theirs, version, scratch, until=until, cancel=stop)
        except hunt.CatalogProblem as error:
            problem = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        outcomes.put((ours, problem, version, day))

    for ours, theirs in chosen.items():
        # Daemons: a server that never answers must not keep the program from ending.
        threading.Thread(target=fetch, args=(ours, theirs), daemon=True).start()
    waiting = dict(chosen)
    while waiting and not stop.is_set():
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            outcome = outcomes.get(timeout=min(left, 0.1))
        except queue.Empty:
            continue
        waiting.pop(outcome[0], None)
        yield outcome
    for ours in waiting:
        yield (ours, "cancelled" if stop.is_set() else "no answer in time", "", None)


def _checked_rows(
    name: str,
    theirs: str,
    scratch: Path,
    version: str,
    day: date,
    shipped: pd.DataFrame,
    old: pd.DataFrame,
    tables: Path | None,
) -> tuple[pd.DataFrame | None, ProviderReport]:
    """Rows that may replace a provider's, or why not."""
    previous = old[old["provider"] == name]
    if previous.empty:
        previous = shipped[(shipped["provider"] == name) & (shipped["kind"] == "on_demand")]
    if day > datetime.now(UTC).date():
        return None, _kept(name, old, f"its date {day} is in the future")
    if len(previous) and day.isoformat() < previous["as_of"].max():
        return None, _kept(name, old, f"it is of {day}, older than the prices we have ({previous['as_of'].max()})")
    try:
        rows = hunt.read_rows(
            theirs, scratch, version=version, day=day, shipped=shipped, names=read_table("live_names", tables)
        )
    except hunt.CatalogProblem as error:
        return None, _kept(name, old, str(error))
    cards, others = read_table("gpus", tables), read_table("unstated_gpus", tables)
    result = checks.checked(
        rows,
        bounds=checks.price_bounds(shipped),
        memory_gb=dict(zip(cards["gpu"], cards["memory_gb"], strict=True)),
        names=frozenset(others["name"]),
    )
    counts = {str(reason): int(many) for reason, many in result.quarantined["reason"].value_counts().items()}
    remarks = {str(reason): int(many) for reason, many in result.notes["reason"].value_counts().items()}
    problem = _wrong_as_a_whole(result.good, previous)
    if problem:
        return None, _kept(name, old, problem, counts)
    report = ProviderReport(
        provider=name, status="new", rows=len(result.good), as_of=day.isoformat(), quarantined=counts, notes=remarks
    )
    return result.good, report


def _wrong_as_a_whole(good: pd.DataFrame, previous: pd.DataFrame) -> str:
    """Why a provider's rows are refused although each may be right."""
    if good.empty:
        return "no row passed the checks"
    if len(good) < LEAST_SHARE * len(previous):
        return f"only {len(good)} rows passed where {len(previous)} were known"
    factor = checks.shifted(good, previous) if len(previous) else None
    if factor is not None:
        return f"all prices moved by a factor of {factor:.3g}: another currency or unit"
    return ""


def _kept(name: str, old: pd.DataFrame, problem: str, quarantined: dict[str, int] | None = None) -> ProviderReport:
    own = old[old["provider"] == name]
    return ProviderReport(
        provider=name,
        status="unchanged" if problem == "unchanged" else "kept",
        rows=len(own),
        as_of=str(own["as_of"].max()) if len(own) else "",
        problem="" if problem == "unchanged" else problem,
        quarantined=quarantined or {},
    )


def _write(
    cache: Path, old: pd.DataFrame, fresh: dict[str, pd.DataFrame], versions: dict[str, str], meta: dict[str, Any]
) -> None:
    """Everything beside the old files first; then they change places, each in one step."""
    kept = old[~old["provider"].isin(list(fresh))]
    table = pd.concat([kept, *fresh.values()], ignore_index=True).sort_values(checks.KEY, kind="stable")
    moment = datetime.now(UTC)
    about = dict(meta.get("providers", {})) if isinstance(meta.get("providers"), dict) else {}
    for name, rows in fresh.items():
        about[name] = {"version": versions[name], "as_of": str(rows["as_of"].max()), "rows": len(rows)}
    described = {
        "fetched_at": moment.isoformat(timespec="seconds"),
        "gpuhunt": hunt.gpuhunt_version(),
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
