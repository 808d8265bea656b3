"""The accuracy page: every estimate beside what others have measured and published."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import pandas as pd

from gpuguide.accuracy import scorers
from gpuguide.accuracy.inputs import FACTS, facts_of, inputs_of, run_of
from gpuguide.accuracy.report import FOLDER, read_measurements, score_folder
from gpuguide.accuracy.table import TableScore, summarise
from gpuguide.app.declaration import Card
from gpuguide.app.location import write_query
from gpuguide.app.shell import Shell, html
from gpuguide.errors import UnknownName, nearest
from gpuguide.show import accuracy
from gpuguide.show.html import Html, tag
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
KIND_OF = {"gpu": "GPU", "model": "model", "method": "method", "engine": "engine"}
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
        `table`, `find`, `row`, `of_gpu`, `of_model`, `of_method` and `of_engine` to start from, and the language.
    """

    def __init__(self, catalog: Catalog, given: Mapping[str, Any]) -> None:
        super().__init__("accuracy", {key: value for key, value in given.items() if key == "language"})
        self.catalog = catalog
        self._names = list(scorers.all_scorers())
        self._read: dict[str, pd.DataFrame] = {}
        self._scored: dict[str, pd.DataFrame] = {}
        self._scores: dict[str, TableScore | None] = dict.fromkeys(self._names)
        self.table, self.find, self.row = START, "", ""
        self.only = dict.fromkeys(FACTS, "")  # a value of each fact, or empty for all
        self._quiet = False
        self._list = widgets.Dropdown(options=self._names, value=START)
        self._search = widgets.Text(continuous_update=False)
        self._facts = {fact: widgets.Dropdown(options=[("", "")], value="") for fact in FACTS}
        self._pick = widgets.Dropdown(options=[("", "")], value="")
        controls = {"table": self._list, "find": self._search, **self._keyed(self._facts), "row": self._pick}
        for key, control in controls.items():
            control.observe(self._guarded(self._mover(key)), "value")
        self._heads = {key: widgets.HTML() for key in controls}
        self._fields = {key: self._field(key, control) for key, control in controls.items()}
        side = widgets.VBox(list(self._fields.values()))
        side.add_class("gg-side")
        side.add_class("gg-card")
        self._sentence = html("gg-live")
        self._assemble([self._sentence], side, [self._card(card) for card in CARDS])
        self._views["scatter"].on_click = self._guarded(lambda row: self._moved(row=row))
        self._translate()
        self._set({"values": {key: given[key] for key in self._heads if given.get(key)}})
        self._score_next()

    def __repr__(self) -> str:
        return f"<accuracy page: {self.table}, {len(self.shown)} runs>"

    @property
    def shown(self) -> pd.DataFrame:
        """The compared runs of the chosen table that match what was chosen and searched for."""
        rows = self._compared()
        for fact, value in self.only.items():
            if value:
                rows = rows[rows[fact] == value]
        if self.find:
            words = rows["label"].astype(str).str.cat(rows[list(FACTS)], sep=" ")
            rows = rows[words.str.contains(self.find, case=False, regex=False)]
        return rows

    def _compared(self) -> pd.DataFrame:
        rows = accuracy.compared(self._scored_table(self.table))
        facts = facts_of(self._measurements(self.table)).reindex([run_of(str(row)) for row in rows["row_id"]])
        said = {fact: facts[fact].fillna("").to_numpy() if fact in facts else "" for fact in FACTS}
        return rows.assign(**said)

    @staticmethod
    def _keyed(by_fact: Mapping[str, Any]) -> dict[str, Any]:
        """Keys of the address: a scenario of another page has a `gpu` and a `model` too."""
        return {f"of_{fact}": value for fact, value in by_fact.items()}

    def _field(self, key: str, control: Any) -> widgets.VBox:
        box = widgets.VBox([self._heads[key], control])
        box.add_class("gg-field")
        box.add_class(f"gg-c-{key}")
        return box

    def _mover(self, key: str) -> Callable[[Any], None]:
        return lambda change: self._moved(**{key: change["new"]})

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
            self.only = dict.fromkeys(FACTS, "")
        self.table = wanted
        if "find" in changes:
            self.find = str(changes["find"] or "")[:LONGEST_SEARCH]
        if "row" in changes:
            self.row = str(changes["row"] or "")[:LONGEST_SEARCH]
        self._narrow(
            {fact: changes[key] for key, fact in self._keyed({fact: fact for fact in FACTS}).items() if key in changes}
        )
        self._error.value = ""
        self._draw()

    def _narrow(self, wanted: Mapping[str, Any]) -> None:
        """Take only runs of one GPU, model, method or engine; empty for all."""
        rows = self._compared()
        for fact, value in wanted.items():
            name = str(value or "")
            known = set(rows[fact])
            if name and name not in known:
                raise UnknownName(KIND_OF[fact], name[:60], nearest(name[:60], known), len(known))
            self.only[fact] = name

    def _draw(self) -> None:
        text, rows = self.text, self.shown
        self._offer(rows)
        self._sentence.value = accuracy.sentence(rows, text)
        said = accuracy.form_of(self.table, text)
        self._show("scatter", accuracy.scatter(rows, text, said, self.row))
        self._show("errors", accuracy.errors(rows, text))
        self._show("worst", accuracy.worst(rows, text, said))
        self._show("run", self._run(rows[rows["row_id"].astype(str) == self.row], said))
        self._summary()
        state = {"table": self.table, "find": self.find, **self._keyed(self.only), "row": self.row}
        self.browser.query = write_query({key: value for key, value in state.items() if value} | self._spoken())
        if self.browser.search is not None:
            self.browser.tick += 1

    def _offer(self, rows: pd.DataFrame) -> None:
        """Bring the controls to what is chosen, and to what there is to choose."""
        every, text = self._compared(), self.text
        self._quiet = True
        self._list.value, self._search.value = self.table, self.find
        for fact, control in self._facts.items():
            counts = every[fact][every[fact] != ""].value_counts().sort_index(key=lambda names: names.str.casefold())
            options = [(f"{name} ({text.count(count)})", name) for name, count in counts.items()]
            control.options = [(text("accuracy.all"), ""), *options]
            control.value = self.only[fact]
            self._fields[f"of_{fact}"].layout.display = None if len(options) > 1 else "none"
        runs = sorted(zip(rows["label"].astype(str), rows["row_id"].astype(str), strict=True))
        self._pick.options = [(text("accuracy.no_run"), ""), *((f"{label} · {row}", row) for label, row in runs)]
        self._pick.value = self.row if self.row in set(rows["row_id"].astype(str)) else ""
        self._quiet = False

    def _run(self, picked: pd.DataFrame, said: Callable[[float], str]) -> Html:
        """The chosen run: what was published, and what we asked."""
        if picked.empty:
            return accuracy.no_run(self.text)
        row = {str(key): value for key, value in picked.iloc[0].items()}
        table = self._measurements(self.table)
        found = table[table["row_id"].astype(str) == run_of(str(row["row_id"]))]
        published = {str(key): value for key, value in found.iloc[0].items()}
        asked = inputs_of(scorers.all_scorers()[self.table], found, self.catalog)
        return accuracy.run(row, published, asked, self.text, said)

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

    def _measurements(self, name: str) -> pd.DataFrame:
        """The file of a table of measurements."""
        file = name.partition(":")[0]
        if file not in self._read:
            self._read[file] = read_measurements(self.catalog.folder / FOLDER / f"{file}.csv")
        return self._read[file]

    def _translate(self) -> None:
        super()._translate()
        text = self.text
        self._quiet = True
        self._list.options = [(accuracy.title(name, text), name) for name in self._names]
        self._list.value = self.table
        self._quiet = False
        small = {"find": text("accuracy.find_help")}
        for key, head in self._heads.items():
            help_ = tag("small", small[key]) if key in small else None
            head.value = tag("div", tag("span", text(f"accuracy.control.{key}")), help_, class_="gg-label gg-tall")
        self.browser.names = {f"gg-c-{key}": text(f"accuracy.control.{key}") for key in self._heads}
        self._footer.value = footer(None, text)
