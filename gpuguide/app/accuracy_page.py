"""The accuracy page: every estimate beside what others have measured and published."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import pandas as pd

from gpuguide.accuracy import scorers
from gpuguide.accuracy.report import FOLDER, read_measurements, score_folder
from gpuguide.accuracy.table import TableScore, summarise
from gpuguide.app.declaration import Card
from gpuguide.app.location import write_query
from gpuguide.app.shell import Shell
from gpuguide.errors import UnknownName, nearest
from gpuguide.show import accuracy
from gpuguide.show.html import tag
from gpuguide.show.verdict import footer

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

CARDS = (
    Card(key="scatter", draw=accuracy.scatter),
    Card(key="errors", draw=accuracy.errors),
    Card(key="run", draw=accuracy.run, chart=False, wide=True),
    Card(key="worst", draw=accuracy.worst, chart=False, wide=True),
    Card(key="summary", draw=accuracy.summary, chart=False, wide=True),
)
START = "training_memory"
LONGEST_SEARCH = 100
NEXT_TABLE_S = 0.05
"""Pause between two tables that are scored in the background, so that the reader comes first. [s]"""


class AccuracyPage(Shell):
    """
    Estimate against measurement for every public run.

    Parameters
    ----------
    catalog : Catalog
    given : mapping
        `table`, `find` and `row` to start from, and the language.
    """

    def __init__(self, catalog: Catalog, given: Mapping[str, Any]) -> None:
        super().__init__("accuracy", {key: value for key, value in given.items() if key == "language"})
        self.catalog = catalog
        self._names = list(scorers.all_scorers())
        self._scored: dict[str, pd.DataFrame] = {}
        self._scores: dict[str, TableScore | None] = dict.fromkeys(self._names)
        self.table, self.find, self.row = START, "", ""
        self._quiet = False
        self._list = widgets.Dropdown(options=self._names, value=START)
        self._search = widgets.Text(continuous_update=False)
        self._heads = {"choose": widgets.HTML(), "find": widgets.HTML()}
        self._list.observe(self._guarded(lambda change: self._moved(table=change["new"])), "value")
        self._search.observe(self._guarded(lambda change: self._moved(find=change["new"])), "value")
        side = widgets.VBox([self._field("choose", self._list), self._field("find", self._search)])
        side.add_class("gg-side")
        side.add_class("gg-card")
        self._assemble([], side, [self._card(card) for card in CARDS])
        self._views["scatter"].on_click = self._guarded(lambda row: self._moved(row=row))
        self._translate()
        self._set({"values": {key: given[key] for key in ("table", "find", "row") if given.get(key)}})
        self._score_next()

    def __repr__(self) -> str:
        return f"<accuracy page: {self.table}, {len(self.shown)} runs>"

    @property
    def shown(self) -> pd.DataFrame:
        """The compared runs of the chosen table that match the search."""
        rows = accuracy.compared(self._scored_table(self.table))
        if self.find:
            rows = rows[rows["label"].astype(str).str.contains(self.find, case=False, regex=False)]
        return rows

    def _field(self, key: str, control: Any) -> widgets.VBox:
        box = widgets.VBox([self._heads[key], control])
        box.add_class("gg-field")
        box.add_class(f"gg-c-{key}")
        return box

    def _moved(self, **changes: str) -> None:
        if not self._quiet:
            self._set({"values": changes})

    def _set(self, message: Mapping[str, Any]) -> None:
        changes = dict(message.get("values") or {})
        self._speak(changes)
        wanted = str(changes.get("table") or self.table)
        if wanted not in self._names:
            raise UnknownName("table", wanted[:60], nearest(wanted[:60], self._names), len(self._names))
        if wanted != self.table:
            self.row = ""
        self.table = wanted
        if "find" in changes:
            self.find = str(changes["find"] or "")[:LONGEST_SEARCH]
        if "row" in changes:
            self.row = str(changes["row"] or "")[:LONGEST_SEARCH]
        self._error.value = ""
        self._draw()

    def _draw(self) -> None:
        text, rows = self.text, self.shown
        self._quiet = True
        self._list.value, self._search.value = self.table, self.find
        self._quiet = False
        said = accuracy.form_of(self.table, text)
        self._show("scatter", accuracy.scatter(rows, text, said, self.row))
        self._show("errors", accuracy.errors(rows, text))
        self._show("worst", accuracy.worst(rows, text, said))
        picked = rows[rows["row_id"].astype(str) == self.row]
        inputs = self._inputs(self.row) if len(picked) else {}
        self._show(
            "run",
            accuracy.run(
                {str(key): value for key, value in picked.iloc[0].items()} if len(picked) else None, inputs, text, said
            ),
        )
        self._summary()
        state = (
            {"table": self.table} | ({"find": self.find} if self.find else {}) | ({"row": self.row} if self.row else {})
        )
        self.browser.query = write_query(state | self._spoken())
        if self.browser.search is not None:
            self.browser.tick += 1

    def _summary(self) -> None:
        self._show("summary", accuracy.summary(self._scores, self.text, self.table))

    def _scored_table(self, name: str) -> pd.DataFrame:
        if name not in self._scored:
            self._scored[name] = score_folder(self.catalog, only=name).scored[name]
            self._scores[name] = summarise(self._scored[name])
        return self._scored[name]

    def _score_next(self) -> None:
        """Score the other tables one by one while the reader looks at the first."""
        left = [name for name in self._names if name not in self._scored]
        if not left:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # outside a kernel nobody waits for them
            return

        def score(_: Any = None) -> None:
            self._scored_table(left[0])
            self._summary()
            self._score_next()

        loop.call_later(NEXT_TABLE_S, self._guarded(score), None)

    def _inputs(self, row: str) -> dict[str, Any]:
        """What the table of measurements says of a run."""
        table = read_measurements(self.catalog.folder / FOLDER / f"{self.table.partition(':')[0]}.csv")
        found = table[table["row_id"].astype(str) == row]
        return {} if found.empty else {str(key): value for key, value in found.iloc[0].items()}

    def _translate(self) -> None:
        super()._translate()
        text = self.text
        self._quiet = True
        self._list.options = [(accuracy.title(name, text), name) for name in self._names]
        self._list.value = self.table
        self._quiet = False
        self._heads["choose"].value = tag("div", tag("span", text("accuracy.choose")), class_="gg-label")
        find = [tag("span", text("accuracy.find")), tag("small", text("accuracy.find_help"))]
        self._heads["find"].value = tag("div", find, class_="gg-label gg-tall")
        self.browser.names = {"gg-c-choose": text("accuracy.choose"), "gg-c-find": text("accuracy.find")}
        self._footer.value = footer(None, text)
