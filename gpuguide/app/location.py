"""
The browser's side of a page: the address bar holds the state, clicks on marked elements come back as values.

What a kernel cannot do from afar happens here: reading and writing the address, naming controls for screen readers,
handing over downloads, and saying so when the kernel is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from gpuguide.app.files import STATIC, style
from gpuguide.spec.link import read_query, write_query

Handler = Callable[[Mapping[str, Any]], None]


class Browser(anywidget.AnyWidget):
    """One a page; invisible."""

    _esm = (STATIC / "page.js").read_text("utf-8")
    _css = style("chart", "page")

    search: Any = traitlets.Unicode(None, allow_none=True).tag(
        sync=True
    )  # from the browser, once: the address it came with
    tongue: Any = traitlets.Unicode("").tag(sync=True)  # from the browser: its language
    query: Any = traitlets.Unicode("").tag(sync=True)  # to the browser: what the address should say
    pin: Any = traitlets.Unicode("").tag(sync=True)  # the scenario as an address, for comparison; empty = none
    language: Any = traitlets.Unicode("en").tag(sync=True)
    title: Any = traitlets.Unicode("").tag(sync=True)
    names: Any = traitlets.Dict().tag(sync=True)  # accessible names of controls by CSS class
    spoken: Any = traitlets.Dict().tag(sync=True)  # values of sliders in words, likewise
    words: Any = traitlets.Dict().tag(sync=True)  # what to say when the kernel is gone
    tick: Any = traitlets.Int(0).tag(sync=True)  # answers drawn so far

    def __init__(self, on_set: Handler, on_near: Handler, on_download: Handler, on_own: Handler, **values: Any) -> None:
        super().__init__(**values)
        self._handlers = {"set": on_set, "near": on_near, "download": on_download, "own": on_own}
        self.on_msg(self._heard)

    def _heard(self, _: Any, content: Mapping[str, Any], buffers: list[bytes]) -> None:
        kind = content.get("kind")
        if kind == "ping":
            self.send({"kind": "pong"})
        elif kind in self._handlers:
            self._handlers[str(kind)]({**content, "buffers": buffers})

    def download(self, filename: str, media_type: str, content: bytes) -> None:
        """Hand a file to the reader."""
        self.send({"kind": "file", "filename": filename, "type": media_type}, [content])


__all__ = ["Browser", "read_query", "write_query"]
