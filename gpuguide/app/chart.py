"""
A chart that follows a control: one trait holds what plotly.js draws, and the picture changes in place when it does.

Leaner than a FigureWidget, which brings its own copy of plotly.js for every chart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from gpuguide.show.theme import css_variables

STATIC = Path(__file__).parent / "static"


def plotly_js() -> Path:
    """The plotly.js that the plotly package ships; found without importing plotly."""
    from importlib.util import find_spec

    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("charts need the plotly package: pip install 'gpuguide[app]'")
    return Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


class Chart(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget ships no types for its base
    """One chart; `show` takes a figure of `gpuguide.show.figures`."""

    _esm = (STATIC / "chart.js").read_text("utf-8")
    _css = css_variables()

    figure = traitlets.Dict({"data": [], "layout": {}}).tag(sync=True)  # data, layout, narrow, label
    exports = traitlets.Dict().tag(sync=True)  # picture formats offered, with their titles
    filename = traitlets.Unicode("chart").tag(sync=True)

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.on_msg(self._asked)

    def show(self, figure: Mapping[str, Any]) -> None:
        """
        Draw a figure.

        Parameters
        ----------
        figure : mapping
            `data` and `layout` as plotly.js takes them; `narrow`: layout values for a phone by dotted path; `label`: what a
            screen reader says.
        """
        self.figure = dict(figure)

    def _asked(self, _: Any, content: Mapping[str, Any], buffers: list[bytes]) -> None:
        if content.get("kind") == "plotly":
            self.send({"kind": "plotly"}, [plotly_js().read_bytes()])
