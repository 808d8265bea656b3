"""The option `--assumptions`, and the catalog that answers with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

Assumed = Annotated[
    Path | None,
    typer.Option("--assumptions", metavar="FILE", help="Your own assumptions, as `gpuguide calibrate` writes them."),
]


def catalog_with(assumptions: Path | None) -> Catalog:
    """The shipped catalog, with the user's own assumptions where given."""
    from gpuguide.catalog.catalog import load_catalog

    catalog = load_catalog()
    if assumptions is None:
        return catalog
    from gpuguide.catalog.own import with_assumptions

    return with_assumptions(catalog, assumptions)


def use_everywhere(assumptions: Path) -> None:
    """Answer with a file of assumptions in this process and in every kernel it starts, once it has been checked."""
    import os

    from gpuguide.catalog.catalog import OWN_ASSUMPTIONS

    catalog_with(assumptions)
    os.environ[OWN_ASSUMPTIONS] = str(assumptions.resolve())


def need(module: str, extra: str, what: str) -> None:
    """
    Say which packages are missing before any work.

    Raises
    ------
    GuideError
        With the command that installs them.
    """
    from importlib.util import find_spec

    from gpuguide.errors import GuideError

    if find_spec(module) is None:
        raise GuideError(f"{what} needs {module}, which is not installed: pip install 'gpuguide[{extra}]'")
