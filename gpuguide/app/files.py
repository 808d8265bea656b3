"""Files that browsers get: where they lie in this package, and the plotly.js that the plotly package brings."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

STATIC = Path(__file__).parent / "static"


def plotly_js() -> Path:
    """The plotly.js that the plotly package ships; found without importing plotly."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("charts need the plotly package: pip install 'gpuguide[app]'")
    return Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
