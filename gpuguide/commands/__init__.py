"""Commands that keep, repeat and hand on answers; `gpuguide.cli` puts them beside its own."""

from __future__ import annotations

import typer

from gpuguide.commands.calibration import calibrate
from gpuguide.commands.export import export
from gpuguide.commands.reports import report
from gpuguide.commands.sweeps import sweep


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (report, sweep, export, calibrate):
        app.command()(command)


__all__ = ["register"]
