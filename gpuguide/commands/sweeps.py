"""`gpuguide sweep`: every point of a grid, into one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gpuguide.commands.own import Assumed, need


def sweep(
    grid: Annotated[
        Path, typer.Argument(metavar="GRID", help="TOML: fixed keys, and a table [grid] of those that vary.")
    ],
    out: Annotated[Path, typer.Option("--output", "-o", help="FILE.parquet or FILE.csv.")] = Path("sweep.parquet"),
    scheduler: Annotated[str, typer.Option(metavar="ADDRESS", help="A Dask scheduler, such as tcp://host:8786.")] = "",
    workers: Annotated[
        int, typer.Option(min=0, max=1024, help="Processes on this machine; 0: as many as it has cores.")
    ] = 0,
    assumptions: Assumed = None,
    today: Annotated[str, typer.Option(help="Day from which prices age, YYYY-MM-DD; the current day if empty.")] = "",
) -> None:
    """
    Answer every point of a grid of scenarios and write one row each.

    Example: `gpuguide sweep examples/grid.toml -o costs.parquet`
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from gpuguide.commands.days import checked_day
    from gpuguide.sweep.grid import read_grid
    from gpuguide.sweep.run import LONG_STRETCH
    from gpuguide.sweep.run import sweep as run

    need("pyarrow", "sweep", "a sweep")
    asked = read_grid(grid)
    cores = workers or os.cpu_count() or 1
    used = cores if workers or len(asked) > LONG_STRETCH else 1
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task(f"{len(asked):,} points", total=len(asked))
        swept = run(
            asked, out, scheduler=scheduler, workers=used, assumptions=assumptions, today=checked_day(today),
            told=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    resumed = f", {swept.resumed} finished stretches taken over" if swept.resumed else ""
    typer.echo(
        f"{out}: {swept.points:,} points in {swept.seconds:.1f} s ({swept.points / swept.seconds:,.0f} a second, "
        f"{swept.workers} workers{resumed}); peak memory {swept.peak_bytes / 1e9:.2f} GB"
    )
