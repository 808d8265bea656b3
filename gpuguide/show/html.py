"""HTML from Python, escaped unless it is marked as HTML already."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

VOID = ("input", "br", "img", "hr")

NOTHING = "–"
"""Where a table or a tile has nothing to say."""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = Any  # Html, text, a number, None, or an iterable of them


def tag(name: str, *children: Child, **attributes: Any) -> Html:
    """
    One element.

    Parameters
    ----------
    name : str
    children : Html, str, None or iterables of them
        Texts are escaped.
    attributes
        ``class_`` is class, other underscores become hyphens; True gives a bare attribute, None and False none; a
        mapping is written as JSON.

    Examples
    --------
    >>> tag("b", "1 < 2", class_="n")
    '<b class="n">1 &lt; 2</b>'
    """
    opened = "".join(map(_attribute, attributes, attributes.values()))
    if name in VOID:
        return Html(f"<{name}{opened}>")
    return Html(f"<{name}{opened}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    """Several children one after the other."""
    return Html("".join(map(_child, children)))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return str.__str__(child)
    if isinstance(child, str):
        return escape(child, quote=False)
    if isinstance(child, Iterable):
        return join(child)
    return escape(str(child), quote=False)


def _attribute(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    shown = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {shown}"
    if isinstance(value, Mapping):
        value = json.dumps(dict(value), ensure_ascii=False, separators=(",", ":"))
    return f' {shown}="{escape(str(value), quote=True)}"'


def button(label: Child, **attributes: Any) -> Html:
    """A button that never sends a form."""
    return tag("button", label, type="button", **attributes)
