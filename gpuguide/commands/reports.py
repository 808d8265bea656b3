"""`gpuguide report`: one report, or a batch with an index."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuguide.commands.own import Assumed, catalog_with, need
from gpuguide.errors import GuideError

if TYPE_CHECKING:
    from gpuguide.report.batch import Made


def report(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCENARIO]...", help="TOML, YAML, JSON or JSON Lines files, links, or -."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "-o", help="FILE.html, .pdf or .ipynb; for several scenarios a folder too.")
    ] = Path("report.html"),
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key; repeat for more.")
    ] = None,
    assumptions: Assumed = None,
    today: Annotated[str, typer.Option(help="Day from which prices age, YYYY-MM-DD; the current day if empty.")] = "",
) -> None:
    """
    Write a report of each scenario; several scenarios give several reports and an index that compares them.

    Example: `gpuguide report scenarios.jsonl -o reports/`
    """
    from gpuguide.catalog.scenarios import read_rows
    from gpuguide.commands.days import checked_day
    from gpuguide.report.batch import write_report, write_reports

    need("papermill", "report", "a report")
    today = checked_day(today)
    catalog_with(assumptions)  # a wrong file is said before any work
    sources: list[str | None] = [*scenarios] if scenarios else [None]
    rows = [row for source in sources for row in read_rows(source, set_ or ())]
    own = str(assumptions or "")
    started = time.perf_counter()
    if len(rows) == 1 and out.suffix:
        made = write_report(rows[0], out, assumptions=own, today=today)
        typer.echo(f"{made.file}: {made.seconds:.1f} s, of which its cells took {made.cells_s:.1f} s")
        return
    with _Progress(len(rows)) as progress:
        every = write_reports(rows, out, assumptions=own, today=today, told=progress.told)
    _conclude(every, time.perf_counter() - started)


class _Progress:
    """A bar that counts reports, and one line for each that is done."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=Console(stderr=True),
        )  # fmt: skip
        self.task = self.bar.add_task("reports", total=total)

    def __enter__(self) -> _Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()

    def told(self, made: Made, number: int, total: int) -> None:
        if made.file is None:
            said = f"{number:>3} {made.name}: {made.sentence}"
        elif made.kept:
            said = f"{number:>3} {made.file.name}: up to date, kept"
        else:
            said = f"{number:>3} {made.file.name}: {made.seconds:.1f} s, cells {made.cells_s:.1f} s"
        self.bar.console.print(said, highlight=False, markup=False, soft_wrap=True)
        self.bar.advance(self.task)


def _conclude(made: Sequence[Made], seconds: float) -> None:
    done = [one for one in made if one.file is not None]
    new = [one for one in done if not one.kept]
    cells = sum(one.cells_s for one in new)
    whole = sum(one.seconds for one in new)
    ratio = f"; {whole / cells:.2f} times the time of their cells" if cells else ""
    typer.echo(f"{len(done)} of {len(made)} reports in {seconds:.1f} s{ratio}")
    failed = len(made) - len(done)
    if failed:
        raise GuideError(
            f"{failed} of {len(made)} scenarios could not be answered; the index lists them with the reason"
        )
