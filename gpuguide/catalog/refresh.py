"""
Live prices over the shipped ones: fetch, check, replace provider by provider; a failure leaves everything as it was.

    progress = lambda step: print(step.provider, step.status)
    report = refresh(progress=progress)

What was fetched lies in the cache folder (`live.cache_folder`): the rows, what they are, and a history for trends.
"""

from __future__ import annotations

import io
import os
import queue
import re
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from gpuguide.catalog import checks, hunt
from gpuguide.catalog.live import cache_folder, read_live, read_meta, write_live
from gpuguide.catalog.package import read_table
from gpuguide.errors import GuideError, UnknownName, nearest

DEADLINE_S = 30.0
PATIENCE_S = 10.0
"""Longest silence of a server. [s]"""
LARGEST_BYTES = 256_000_000
CHUNK = 65_536
_environment = threading.Lock()

Outcome = tuple[str, str, str, date | None]
"""Our name of a provider, what became of its download, version, day of the version."""


class CatalogProblem(Exception):
    """Why one provider's catalog could not be used; its rows stay as they are."""


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
    known = known_providers()
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
        write_live(cache, fresh, versions, f"gpuhunt {metadata.version('gpuhunt')}")
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
    base = base_address()
    have = meta.get("providers", {}) if isinstance(meta.get("providers"), dict) else {}
    stored = set(old["provider"])
    outcomes: queue.Queue[Outcome] = queue.Queue()

    def fetch(ours: str, theirs: str) -> None:
        version, day, problem = "", None, ""
        try:
            version, day = _latest_version(base, theirs, until=until, cancel=stop)
            if ours in stored and version == have.get(ours, {}).get("version"):
                problem = "unchanged"
            else:
                _download(base, theirs, version, scratch, until=until, cancel=stop)
        except CatalogProblem as error:
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
        items = _items(theirs, scratch)
    except CatalogProblem as error:
        return None, _kept(name, old, str(error))
    rows = hunt.rows_of_items(
        items, name=theirs, source=f"gpuhunt {metadata.version('gpuhunt')} catalog {theirs} {version}", day=day,
        shipped=shipped, names=read_table("live_names", tables),
    )  # fmt: skip
    cards, others = read_table("gpus", tables), read_table("unstated_gpus", tables)
    result = checks.checked(
        rows,
        bounds=checks.price_bounds(shipped),
        memory_gb=dict(zip(cards["gpu"], cards["memory_gb"], strict=True)),
        names=frozenset(others["name"]),
    )
    counts = {str(reason): int(many) for reason, many in result.quarantined["reason"].value_counts().items()}
    remarks = {str(reason): int(many) for reason, many in result.notes["reason"].value_counts().items()}
    problem = checks.wrong_as_a_whole(result.good, previous)
    if problem:
        return None, _kept(name, old, problem, counts)
    report = ProviderReport(
        provider=name, status="new", rows=len(result.good), as_of=day.isoformat(), quarantined=counts, notes=remarks
    )
    return result.good, report


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


def known_providers() -> dict[str, str]:
    """Providers with a public catalog: our name and gpuhunt's."""
    gpuhunt_package()
    from gpuhunt._internal.catalog import OFFLINE_PROVIDERS

    return {hunt.OURS.get(name, name): name for name in OFFLINE_PROVIDERS}


def base_address() -> str:
    """Where the catalogs are: `GPUHUNT_CATALOG_URL`, else gpuhunt's own."""
    from gpuhunt._internal.catalog import CATALOG_URL

    address = os.environ.get("GPUHUNT_CATALOG_URL", str(CATALOG_URL)).rstrip("/")
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise GuideError(f"GPUHUNT_CATALOG_URL = {address[:60]} is not possible: give an http or https address")
    return address


def _latest_version(base: str, name: str, *, until: float, cancel: threading.Event) -> tuple[str, date]:
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


def _download(base: str, name: str, version: str, folder: Path, *, until: float, cancel: threading.Event) -> None:
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


def _items(name: str, folder: Path) -> list[Any]:
    """What gpuhunt reads in a downloaded catalog."""
    with _catalog_folder(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # gpuhunt 0.1.34 leaves the file to the garbage collector
        try:
            catalog = gpuhunt_package().Catalog(balance_resources=False, auto_reload=False)
            items = list(catalog.query(provider=[name], min_gpu_count=1))
        except Exception as error:  # whatever a broken file makes the parser raise
            raise CatalogProblem(f"the catalog cannot be read: {error}") from None
    if not items:
        raise CatalogProblem("the catalog is empty")
    return items


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
