"""A quick start of the command line: what takes a third of the time of an answer and serves none is left out."""

from __future__ import annotations

import atexit
import copy
import gc
import os

import typer

OWN_KERNELS = ("app", "lab")
"""Commands that start kernels in which users may write: these inherit what is set here."""


def start_quickly(word: str) -> None:
    """Before anything else is imported, for the command of that name."""
    # One answer makes 100,000 objects, nearly all of which stay: looking through them for garbage finds nothing.
    gc.set_threshold(500_000)
    atexit.register(gc.freeze)  # nor does it at the end
    if word not in OWN_KERNELS:
        # Looking for plug-ins of pydantic reads the files of every installed package.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        # No formula multiplies large matrices: numpy need not start a thread on every core.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def commands_for(word: str, app: typer.Typer) -> typer.Typer:
    """All commands, or the one that is asked for by name: reading the options of the others takes a while."""
    asked = [info for info in app.registered_commands if word == (info.name or getattr(info.callback, "__name__", ""))]
    if not asked:
        return app
    alone = copy.copy(app)
    alone.registered_commands = asked
    return alone
