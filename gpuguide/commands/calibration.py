"""`gpuguide calibrate`: the efficiencies of one's own stack, from one's own runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog


def calibrate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Your runs: CSV files as docs/measurements.md says.")],
    out: Annotated[Path, typer.Option("--output", "-o", help="FILE.toml for --assumptions.")] = Path("mine.toml"),
    language: Annotated[str, typer.Option(help="Language of the answer: en or tr.")] = "en",
) -> None:
    """
    Fit the few efficiencies to your own runs, drawn towards the shipped values, and say what it gains.

    Example: `gpuguide calibrate my-runs -o mine.toml`
    """
    from rich.console import Console
    from rich.table import Table

    from gpuguide.accuracy.calibrate import calibrate as fit
    from gpuguide.accuracy.calibrate import toml_of
    from gpuguide.catalog.catalog import load_catalog
    from gpuguide.files import check_writable, write_text
    from gpuguide.text import Text

    check_writable(out)
    text, catalog = Text(language), load_catalog()
    found = fit(catalog, folder)
    table = Table(box=None, header_style="bold", pad_edge=False, title=text("calibrate.caption", count=found.runs))
    table.add_column(text("calibrate.name"))
    for key in ("before", "after", "runs"):
        table.add_column(text(f"calibrate.{key}"), justify="right")
    for one in found.constants:
        if one.moved:
            table.add_row(one.name, f"{one.shipped:.4g}", f"{one.fitted:.4g}", text.count(one.runs))
    console = Console()
    console.print(table)
    said = zip(
        ("error_before", "error_after", "error_left_out"),
        (found.error_before, found.error_after, found.error_left_out),
        strict=True,
    )
    console.print(", ".join(f"{text(f'calibrate.{key}')} {text.percent(error)}" for key, error in said))
    if not found.helps:
        console.print(text("calibrate.unchanged"))
        return
    write_text(out, toml_of(found, catalog.assumptions.rows, folder=folder.name))
    console.print(text("calibrate.written", file=str(out)))


def print_cross_validation(catalog: Catalog, folder: Path | None, only: str | None, *, as_json: bool) -> None:
    """How the calibrated constants do on sources that were left out of their fit."""
    from rich.console import Console
    from rich.table import Table

    from gpuguide.accuracy.calibrate import cross_validate
    from gpuguide.accuracy.report import FOLDER

    found = cross_validate(catalog, folder or catalog.folder / FOLDER, only)
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("table")
    for name in ("rows", "sources", "median error", "source left out"):
        table.add_column(name, justify="right")
    table.add_column("worst source")
    for name, row in found["tables"].items():
        errors = (f"{row[key]:.1%}" for key in ("median_abs_error", "median_abs_error_left_out"))
        worst = f"{row['worst_source']['source_id']} {row['worst_source']['median_abs_error']:.1%}"
        table.add_row(name, str(row["rows"]), str(row["sources"]), *errors, worst)
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)
