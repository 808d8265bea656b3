"""
The first look: what a page says, as plain HTML, until its controls are alive.

Voila's front end takes a second or two before it shows a widget, and by then the kernel has long answered. So the
answer goes along with the page itself, and the browser shows it before it loads anything else.
"""

from __future__ import annotations

import json
import os
from typing import Any

import ipywidgets as widgets

from gpuguide.app.chart import Chart
from gpuguide.app.location import Browser
from gpuguide.show.html import Html, tag
from gpuguide.text import Text

MARK = "gpuguide_first_look"
"""Metadata of the output, by which the template of the page knows it."""
VARIABLE = "GPUGUIDE_FIRST_LOOK"
"""Set by our own server: other templates would show the first look and leave it there."""
LEAST_HEIGHT = 300
"""Room kept for what is drawn later. [px]"""
SLIDER, FIELD, TITLE = 112, 76, 34
"""Heights of a slider with its one-tap values, of another control, and of the title of a group. [px]"""


def wanted() -> bool:
    """Whether this page is shown by a server whose template knows what a first look is."""
    return VARIABLE in os.environ


def asked_for() -> tuple[str, str] | None:
    """Query of the address and language of the browser a page is made for; None when it is made before one asks."""
    if os.environ.get("VOILA_PREHEAT") != "False":
        return None
    return os.environ.get("QUERY_STRING", ""), os.environ.get("HTTP_ACCEPT_LANGUAGE", "")


def first_look(root: widgets.Widget, text: Text, *, query: str) -> Html:
    """
    A page as it stands, for a browser that speaks its language and asks with this query.

    Parameters
    ----------
    root : Widget
    text : Text
        In the page's language.
    query : str
        As in the address, without its question mark.

    Returns
    -------
    Html
        A template element; charts are the JSON that `chart.js` draws, inputs only the room that they will take.
    """
    return tag("template", _still(root, text), data_look=text.language, data_query=query)


def _still(widget: Any, text: Text) -> Html | None:
    """One widget and what is in it, under the classes that ipywidgets would give them."""
    if isinstance(widget, Browser) or not _seen(widget):
        return None
    classes = " ".join(widget._dom_classes)
    if "gg-side" in widget._dom_classes:
        words = tag("p", tag("small", text("starting_controls")), role="status")
        return tag("div", words, class_=f"gg-blank {classes}", style=f"height:{_height(widget)}px")
    if isinstance(widget, widgets.Box):
        return tag(
            "div", [_still(child, text) for child in widget.children], class_=f"jupyter-widgets widget-box {classes}"
        )
    if isinstance(widget, widgets.HTML):
        content = tag("div", Html(widget.value), class_="widget-html-content")
        return tag("div", content, class_=f"jupyter-widgets widget-html {classes}")
    if isinstance(widget, Chart) and widget.figure["data"]:
        figure = json.dumps({"figure": widget.figure, "exports": widget.exports}, separators=(",", ":"))
        data = tag("script", Html(figure.replace("<", "\\u003c")), type="application/json")
        turn = widget.figure.get("turn") or {}
        heights = {"lying": widget.figure["layout"]["height"], "upright": turn.get("height"), "from": turn.get("from")}
        return tag("div", data, class_="gg-still", data_heights=heights)
    return tag("div", style=f"min-height:{LEAST_HEIGHT}px")


def _seen(widget: Any) -> bool:
    return widget.layout.display != "none" and "gg-folded" not in widget._dom_classes


def _height(panel: Any) -> int:
    """About how tall the controls will be. [px]"""
    if not _seen(panel):
        return 0
    if "gg-field" in panel._dom_classes:
        return SLIDER if any("gg-exact" in child._dom_classes for child in panel.children) else FIELD
    return sum(_height(child) for child in panel.children if isinstance(child, widgets.Box)) + TITLE
