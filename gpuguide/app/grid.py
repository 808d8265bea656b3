"""
A table too long to read from top to bottom: sorted, searched and filtered in the browser, by the DataTables of itables.

itables' own widget would bring 700 kB of library over the websocket each time a page opens. Here the same bundle comes
from the server that serves the page, where browsers keep it; JupyterLab asks the kernel for it once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets

from gpuguide.app.files import STATIC, tables_js
from gpuguide.show.market import Cells
from gpuguide.text import SEPARATORS, Text

ROWS_SHOWN = 25
NUMBER_RULES = ("equal", "notEqual", "greater", "greaterOrEqual", "less", "lessOrEqual", "empty", "notEmpty")
TEXT_RULES = ("contains", "notContains", "equal", "notEqual", "starts", "ends", "empty", "notEmpty")


class Grid(anywidget.AnyWidget):
    """One table; `show` takes columns of `gpuguide.show.market`."""

    _esm = (STATIC / "grid.js").read_text("utf-8")
    _css = (STATIC / "grid.css").read_text("utf-8")

    packed: Any = traitlets.Bytes(b"").tag(sync=True)  # the table as JSON, deflated

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.table: dict[str, Any] = {}
        self.on_msg(self._asked)

    def show(self, columns: Sequence[Cells], text: Text, *, label: str, order: Sequence[tuple[int, str]]) -> None:
        """
        Show a table.

        Parameters
        ----------
        columns : sequence of Cells
        text : Text
            In whose words the table's own controls speak.
        label : str
            What a screen reader says of it.
        order : sequence of (column, 'asc' or 'desc')
            How rows are sorted until the reader sorts them.
        """
        self.table = {
            "columns": [
                {
                    "title": text(column.key), "codes": column.codes, "words": column.words, "number": column.number,
                    "order": column.order, "help": _help(column.key.rpartition(".")[2], text),
                }
                for column in columns
            ],
            "label": label, "order": [list(pair) for pair in order], "rows": ROWS_SHOWN, "words": words(text),
            "pages": text("grid.pages"),
        }  # fmt: skip
        self.packed = zlib.compress(json.dumps(self.table, ensure_ascii=False, separators=(",", ":")).encode())

    def _asked(self, _: Any, content: Mapping[str, Any], buffers: list[bytes]) -> None:
        if content.get("kind") == "tables":
            self.send({"kind": "tables"}, [tables_js().read_bytes()])


def _help(key: str, text: Text) -> str:
    """What the head of a column says when it is pointed at."""
    return text(f"market.help.{key}") if text.has(f"market.help.{key}") else ""


def words(text: Text) -> dict[str, Any]:
    """What the table's own controls say, as DataTables' `language` takes it."""
    signs = SEPARATORS[text.language]
    rules = {
        kind: {rule: text(f"grid.rule_{rule}") for rule in kinds}
        for kind, kinds in (("number", NUMBER_RULES), ("text", TEXT_RULES))
    }
    lists = {name: text(f"grid.list_{name}") for name in ("all", "none", "search", "empty")}
    return {
        "search": text("grid.search"),
        "lengthMenu": text("grid.length", menu="_MENU_"),
        "info": text("grid.info", start="_START_", end="_END_", total="_TOTAL_"),
        "infoEmpty": text("grid.none"),
        "infoFiltered": text("grid.of_all", all="_MAX_"),
        "zeroRecords": text("grid.none"),
        "emptyTable": text("grid.none"),
        "decimal": signs[0],
        "thousands": signs[1],
        "paginate": {name: text(f"grid.{name}") for name in ("first", "previous", "next", "last")},
        "aria": {"orderable": ": " + text("grid.up"), "orderableReverse": ": " + text("grid.down"),
                 "orderableRemove": ": " + text("grid.unsorted"), "paginate": {
                     name: text(f"grid.{name}") for name in ("first", "previous", "next", "last")}},
        "columnControl": {
            "dropdown": text("grid.column"), "list": lists, "search": rules,
            "searchClear": text("grid.clear"), "buttons": {"searchClear": text("grid.clear")},
        },
    }  # fmt: skip
