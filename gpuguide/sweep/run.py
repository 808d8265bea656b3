"""
A sweep from grid to file: stretches of points are answered here, by processes of this machine, or by a Dask cluster.

Every finished stretch is a file of its own until all are there; then they are joined in order. So memory
stays constant however large the grid, an interrupted sweep goes on where it stopped, a lost worker loses no rows, and
the bytes are the same whoever computed them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuguide.errors import DataError
from gpuguide.files import check_writable, digest_of, read_text, whole
from gpuguide.sweep.grid import Grid

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

FORMATS = (".parquet", ".csv")
LONG_STRETCH, SHORT_STRETCH = 20_000, 500
"""Points of one stretch where GPU and their number are given, and where the whole market is searched for each."""
LEAST_STRETCHES = 16
"""A small grid is cut into at least so many, that several processes have work."""
IN_FLIGHT = 2
"""Stretches handed to each thread of a cluster at a time."""
CONNECT_S = 20

Told = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All that rows depend on beside the grid; equal on every worker, or the worker refuses."""

    version: str
    data: str  # digest of the tables
    today: str
    assumptions: str = ""  # text of the file of one's own assumptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What a sweep did."""

    points: int
    seconds: float
    resumed: int  # stretches taken over from an interrupted sweep
    peak_bytes: int  # resident memory at its highest, all processes of this machine together
    workers: int


def sweep(
    grid: Grid,
    out: Path,
    *,
    scheduler: str = "",
    workers: int = 1,
    assumptions: Path | None = None,
    today: str = "",
    told: Told | None = None,
) -> Swept:
    """
    Answer every point of a grid and write the rows to a file.

    Parameters
    ----------
    grid : Grid
    out : Path
        .parquet or .csv; replaced only when all rows are there.
    scheduler : str
        Address of a Dask scheduler, such as tcp://10.0.0.5:8786; its workers need this version and these tables.
    workers : int
        Processes on this machine where no scheduler is given; 1 works in this process.
    assumptions : Path, optional
        File of one's own assumptions.
    today : str
        Day from which prices age.
    told : callable, optional
        Called with points done and points in all.

    Raises
    ------
    DataError
        If the file cannot be written, or the cluster not be reached.
    """
    if out.suffix.casefold() not in FORMATS:
        raise DataError(out.name, None, None, f"a sweep is written as one of {', '.join(FORMATS)}")
    _check_names(grid, assumptions, today)
    check_writable(out)
    started = time.perf_counter()
    settings = settings_of(assumptions, today)
    stretches = stretches_of(grid)
    folder = out.parent / f".{out.name}.{_identity(grid, settings)}"
    folder.mkdir(exist_ok=True)
    waiting = [stretch for stretch in stretches if not _part(folder, stretch).is_file()]
    resumed = len(stretches) - len(waiting)
    done = len(grid) - sum(last - first for first, last in waiting)
    if told is not None:
        told(done, len(grid))
    with _computed(grid, settings, waiting, scheduler, workers if len(waiting) > 1 else 1) as (parts, peak_of, used):
        for stretch, content in parts:
            if isinstance(content, str):
                raise DataError("sweep", None, None, content)
            with whole(_part(folder, stretch)) as partial:
                partial.write_bytes(content)
            done += stretch[1] - stretch[0]
            if told is not None:
                told(done, len(grid))
        peak = peak_of()
    _join([_part(folder, stretch) for stretch in stretches], out)
    shutil.rmtree(folder, ignore_errors=True)
    return Swept(
        points=len(grid),
        seconds=time.perf_counter() - started,
        resumed=resumed,
        peak_bytes=peak + peak_memory(),
        workers=used,
    )


def _check_names(grid: Grid, assumptions: Path | None, today: str) -> None:
    """Names of GPUs, providers and models, asked once each before any work."""
    catalog = _catalog(settings_of(assumptions, today))
    from gpuguide.spec.scenario import Scenario

    for key in ("gpu", "providers", "offer_kinds", "model"):
        for value in grid.axes.get(key, [grid.fixed[key]] if key in grid.fixed else []):
            asked = {key: value}
            if key == "model":
                from gpuguide.catalog.source import read_model

                read_model(str(value), catalog.models)
            else:
                catalog.resolve(Scenario.from_mapping(asked))


def settings_of(assumptions: Path | None = None, today: str = "") -> Settings:
    """The settings of this machine."""
    from gpuguide import __version__
    from gpuguide.catalog.package import data_folder

    return Settings(
        version=__version__,
        data=_digest(data_folder()),
        today=today or dt.date.today().isoformat(),
        assumptions=read_text(assumptions) if assumptions else "",
    )


@lru_cache(maxsize=4)
def _digest(folder: Path) -> str:
    return digest_of(folder)


def stretches_of(grid: Grid) -> list[tuple[int, int]]:
    """First and last (exclusive) point of every stretch; depends on the grid alone."""
    named = set(grid.fixed) | set(grid.axes)
    longest = LONG_STRETCH if {"gpu", "gpus"} <= named else SHORT_STRETCH
    length = max(1, min(longest, -(-len(grid) // LEAST_STRETCHES)))
    return [(first, min(first + length, len(grid))) for first in range(0, len(grid), length)]


def compute(grid: Grid, settings: Settings, first: int, last: int) -> bytes | str:
    """
    Rows of one stretch as the bytes of a Parquet file; runs on a worker.

    A sentence in their place where this worker has another version or other tables than the sweep.
    """
    import pyarrow.parquet as pq

    from gpuguide import __version__
    from gpuguide.catalog.package import data_folder
    from gpuguide.sweep.points import rows_of

    if (__version__, _digest(data_folder())) != (settings.version, settings.data):
        return f"a worker has gpuguide {__version__} with other tables than this sweep; install the same everywhere"
    written = io.BytesIO()
    pq.write_table(rows_of(grid, _catalog(settings), first, last), written, compression="zstd")
    return written.getvalue()


@lru_cache(maxsize=2)
def _catalog(settings: Settings) -> Catalog:
    from gpuguide.catalog.catalog import Catalog
    from gpuguide.catalog.own import parse_assumptions, replaced

    catalog = Catalog(today=dt.date.fromisoformat(settings.today))
    if settings.assumptions:
        return replaced(catalog, parse_assumptions("assumptions", settings.assumptions, catalog.assumptions))
    return catalog


def _identity(grid: Grid, settings: Settings) -> str:
    """What rows depend on, in short: parts of another sweep are never taken over."""
    import pyarrow as pa

    return hashlib.sha256(repr((grid.fingerprint, settings, pa.__version__)).encode()).hexdigest()[:16]


def _part(folder: Path, stretch: tuple[int, int]) -> Path:
    return folder / f"{stretch[0]:012d}.parquet"


def _join(parts: list[Path], out: Path) -> None:
    """All parts in order as one file, one part in memory at a time."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    with whole(out) as partial:
        schema = pq.read_schema(parts[0])
        if out.suffix.casefold() == ".csv":
            with pc.CSVWriter(str(partial), schema) as writer:
                for part in parts:
                    writer.write_table(pq.read_table(part, partitioning=None))
        else:
            with pq.ParquetWriter(str(partial), schema, compression="zstd") as writer:
                for part in parts:
                    table = pq.read_table(part, partitioning=None)
                    writer.write_table(table, row_group_size=max(len(table), 1))


# ---- who computes ----------------------------------------------------------------------------------------------------

Part = tuple[tuple[int, int], bytes | str]


@contextmanager
def _computed(
    grid: Grid, settings: Settings, waiting: list[tuple[int, int]], scheduler: str, workers: int
) -> Iterator[tuple[Iterable[Part], Callable[[], int], int]]:
    """The parts of the given stretches, in the order in which they are ready."""
    if not scheduler and workers < 2:
        yield ((stretch, compute(grid, settings, *stretch)) for stretch in waiting), lambda: 0, 1
        return
    from dask.distributed import Client, LocalCluster

    if not scheduler:
        cluster = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
        )
        with cluster, Client(cluster) as client:  # type: ignore[no-untyped-call]
            yield _ready(client, grid, settings, waiting), lambda: _peaks(client), workers
        return
    try:
        client = Client(scheduler, timeout=CONNECT_S)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise DataError(scheduler, None, None, f"no Dask scheduler answers there ({_short(error)})") from None
    with client:
        threads = sum(_threads(client))
        if not threads:
            raise DataError(scheduler, None, None, "its cluster has no workers; start some with `dask worker ADDRESS`")
        yield _ready(client, grid, settings, waiting), lambda: 0, threads


def _ready(client: Any, grid: Grid, settings: Settings, waiting: list[tuple[int, int]]) -> Iterator[Part]:
    """
    A few stretches for every thread at a time, so that neither the scheduler nor this process ever holds many.

    A stretch whose worker is lost is computed again by another one.
    """
    from dask.distributed import as_completed

    left = iter(waiting)
    stretch_of: dict[Any, tuple[int, int]] = {}

    def submit() -> Any:
        stretch = next(left, None)
        if stretch is None:
            return None
        future = client.submit(compute, grid, settings, *stretch, pure=False, retries=3)
        stretch_of[future.key] = stretch
        return future

    window = IN_FLIGHT * max(1, sum(_threads(client)))
    ready: Any = as_completed(  # type: ignore[no-untyped-call]
        [future for future in (submit() for _ in range(window)) if future is not None]
    )
    for future in ready:
        stretch = stretch_of.pop(future.key)
        try:
            content = future.result()
        except Exception as error:
            content = f"points from {stretch[0]} on could not be computed ({_short(error)})"
        future.release()
        yield stretch, content
        following = submit()
        if following is not None:
            ready.add(following)


def _threads(client: Any) -> list[int]:
    return [int(count) for count in client.nthreads().values()]


def _peaks(client: Any) -> int:
    return sum(int(value) for value in client.run(peak_memory).values())


def peak_memory() -> int:
    """Resident memory of this process at its highest. [bytes]"""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:150] or type(error).__name__
