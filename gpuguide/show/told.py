"""Tables in words that both a page and a terminal show: a column is told once, and drawn by either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpuguide.show.html import Html, join, tag
from gpuguide.show.tables import Column, badge, html_table
from gpuguide.text import Text

FIT = "table.fit"
"""Head of the column whose cells are keys of `fit.`, shown as badges."""


class Said(NamedTuple):
    """A cell in words: what it says, and a note under it."""

    main: str
    note: str = ""


class Told(NamedTuple):
    """A column in words: text key of its head, cells, whether they are numbers, and whether a phone shows it."""

    key: str
    cells: Sequence[Said]
    number: bool = True
    phone: bool = True


def ranged(row: dict[Any, Any], name: str, form: str, text: Text) -> Said:
    """The typical value of a banded quantity with its range under it."""
    low, typical, high = (row[f"{name}_{band}"] for band in ("low", "typical", "high"))
    return Said(text.form(form, typical), text.band(form, low, high))


def table_of(told: Sequence[Told], text: Text, *, caption: str, marked: Sequence[bool]) -> Html:
    """The columns on a page; marked rows are the reader's own."""
    columns = [
        Column(column.key, [_cell(said, text, column.key == FIT) for said in column.cells], column.number, column.phone)
        for column in told
    ]
    return html_table(text, caption=caption, columns=columns, row_class=["front" if own else "" for own in marked])


def _cell(said: Said, text: Text, fit: bool) -> Html:
    verdict = fit and text.has(f"fit.{said.main}")
    # A range is short and stays on its line; why something does not fit is a sentence.
    style = "white-space:normal;max-width:none;min-width:10em" if fit and said.main not in ("fits", "tight") else None
    main = badge(text, said.main) if verdict else tag("span", said.main, class_="gg-nowrap")
    return join([main, tag("small", said.note, style=style) if said.note else None])


def lines_of(told: Sequence[Told], text: Text) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the columns for a terminal, each note in brackets behind its value."""
    heads = [text(column.key) for column in told]
    cells = [
        [f"{_plain(said, text)} ({said.note})" if said.note else _plain(said, text) for said in column.cells]
        for column in told
    ]
    return heads, [list(row) for row in zip(*cells, strict=True)]


def _plain(said: Said, text: Text) -> str:
    return text.name("fit", said.main)
