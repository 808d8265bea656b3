"""
A chart that follows a control: one trait holds what plotly.js draws, and the picture changes in place when it does.

Leaner than a FigureWidget, which brings its own copy of plotly.js for every chart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from gpuguide.app.files import STATIC, plotly_js, style


class Chart(anywidget.AnyWidget):
    """One chart; `show` takes a figure of `gpuguide.show.figures`."""

    _esm = (STATIC / "chart.js").read_text("utf-8")
    _css = style("chart")

    figure: Any = traitlets.Dict({"data": [], "layout": {}}).tag(sync=True)  # data, layout, narrow, label
    exports: Any = traitlets.Dict().tag(sync=True)  # picture formats offered, with their titles
    filename: Any = traitlets.Unicode("chart").tag(sync=True)

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.on_click: Callable[[Any], None] | None = None  # called with the `customdata` of a point
        self.on_msg(self._asked)

    def show(self, figure: Mapping[str, Any]) -> None:
        """
        Draw a figure.

        Parameters
        ----------
        figure : mapping
            `data` and `layout` as plotly.js takes them; `narrow`: layout values for a phone by dotted path; `label`:
            what a screen reader says; `turn`: from which width lying bars stand, and how tall the picture then is.
        """
        self.figure = dict(figure)

    def _asked(self, _: Any, content: Mapping[str, Any], buffers: list[bytes]) -> None:
        if content.get("kind") == "plotly":
            self.send({"kind": "plotly"}, [plotly_js().read_bytes()])
        elif content.get("kind") == "click" and self.on_click is not None:
            self.on_click(str(content.get("point", "")))
