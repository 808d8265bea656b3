"""Files that browsers get: where they lie in this package, and the libraries that other packages bring."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from gpuguide.show.theme import css_variables

STATIC = Path(__file__).parent / "static"


def style(*names: str) -> str:
    """Stylesheets of this package one after the other, after the colours that they name."""
    return css_variables() + "".join((STATIC / f"{name}.css").read_text("utf-8") for name in names)


def plotly_js() -> Path:
    """The plotly.js that the plotly package ships."""
    return _shipped("plotly", "package_data/plotly.min.js")


def tables_js() -> Path:
    """The DataTables, with its extensions, that the itables package ships."""
    return _shipped("itables", "html/dt_bundle.js")


def _shipped(package: str, path: str) -> Path:
    """A file of another package, found without importing that package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"pages need the {package} package: pip install 'gpuguide[app]'")
    return Path(spec.submodule_search_locations[0]) / path
