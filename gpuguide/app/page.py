"""A page: controls on one side, the answer on the other, and what happens between a moved slider and a drawn chart."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from gpuguide.app.chart import Chart
from gpuguide.app.declaration import Answer, Card, Declaration
from gpuguide.app.frame import card_title, header, intro
from gpuguide.app.location import Browser, read_query, write_query
from gpuguide.app.panel import Panel
from gpuguide.app.wording import error_sentence
from gpuguide.errors import GuideError
from gpuguide.show import verdict
from gpuguide.show.html import join, tag
from gpuguide.show.tables import as_csv
from gpuguide.spec.scenario import Scenario
from gpuguide.text import LANGUAGES, Text

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog
    from gpuguide.decide.decision import Decision

logger = logging.getLogger(__name__)

REMEMBERED = 64
SLOW_AFTER_S = 0.25
"""Pictures that need several decisions wait until the reader's hand rests. [s]"""


class Page:
    """
    A page of the suite, alive wherever ipywidgets are: a notebook, JupyterLab, Voila.

    Parameters
    ----------
    declaration : Declaration
    catalog : Catalog
    given : mapping
        Keys of the Scenario to start from.
    """

    def __init__(self, declaration: Declaration, catalog: Catalog, given: Mapping[str, Any]) -> None:
        self.declaration = declaration
        self.catalog = catalog
        self.scenario: Scenario | None = None
        self.decision: Decision | None = None
        self._first = dict(declaration.start) | {key: value for key, value in given.items() if value is not None}
        self._known: OrderedDict[Scenario, Decision] = OrderedDict()
        self._pending: asyncio.TimerHandle | None = None
        self._language_chosen = "language" in given
        start = Scenario.from_mapping(self._first)
        self.text = Text(start.language, start.currency, start.currency_per_usd)
        self.browser = Browser(on_set=self._guarded(self._set), on_download=self._guarded(self._download))
        self.panel = Panel(declaration.groups, declaration.workloads, catalog, self._guarded(self._ask), self._say)
        self._build()
        self._translate()
        self.panel.start(start)
        self._guarded(lambda _: self.panel.emit())(None)
        self.browser.observe(self._guarded(lambda change: self._arrived(change["new"])), "search")

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.root)  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        return f"<{self.declaration.name} page: {self.said}>"

    @property
    def said(self) -> str:
        """The verdict in words."""
        return "" if self.decision is None else verdict.verdict(self.decision, self.text)

    # ---- the widgets, made once --------------------------------------------------------------------------------------

    def _build(self) -> None:
        self._header, self._intro, self._footer = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self._error, self._verdict, self._tiles = _html("gg-error"), _html("gg-live"), widgets.HTML()
        self._titles: dict[str, widgets.HTML] = {}
        self._views: dict[str, Any] = {}
        boxes = [self._card(card) for card in self.declaration.cards]
        main = widgets.VBox([self._tiles, *boxes])
        main.add_class("gg-main")
        top = widgets.VBox([self._error, self._verdict])
        top.add_class("gg-top")
        for widget, name in ((self._header, "gg-head"), (self._intro, "gg-intro"), (self._footer, "gg-end")):
            widget.add_class(name)
        self.root = widgets.Box([self.browser, self._header, self._intro, top, self.panel.widget, main, self._footer])
        self.root.add_class("gg")
        self.root.add_class(f"gg-page-{self.declaration.name}")

    def _card(self, card: Card) -> widgets.VBox:
        title = widgets.HTML()
        view = Chart(filename=f"gpuguide-{self.declaration.name}-{card.key}") if card.chart else widgets.HTML()
        self._titles[card.key], self._views[card.key] = title, view
        box = widgets.VBox([title, view])
        box.add_class("gg-card")
        box.add_class(f"gg-card-{card.key}")
        if card.wide:
            box.add_class("gg-wide")
        return box

    # ---- what the reader does ----------------------------------------------------------------------------------------

    def _guarded(self, action: Callable[[Any], None]) -> Callable[[Any], None]:
        """
        The one wrapper around every callback: what goes wrong is said on the page, and the last good picture stays.
        """

        def guarded(given: Any) -> None:
            try:
                action(given)
            except GuideError as error:
                self._say(error)
            except Exception:
                logger.exception("%s page", self.declaration.name)
                self._error.value = tag("p", self.text("error_ours"))

        return guarded

    def _say(self, error: GuideError) -> None:
        self._error.value = tag("p", error_sentence(error, self.text))
        self.panel.refresh()

    def _arrived(self, search: str | None) -> None:
        """The browser is there: take the state of the address, and its language unless one was chosen."""
        given = read_query(search)
        if "language" not in given and not self._language_chosen:
            tongue = self.browser.tongue[:2]
            if tongue in LANGUAGES and tongue != self.text.language:
                given["language"] = tongue
        if given:
            self._set({"values": given, "link": True})
        self.browser.tick += 1

    def _set(self, message: Mapping[str, Any]) -> None:
        """Values from a link, a preset, a remedy or the language switch."""
        changes = dict(message.get("values") or {})
        wrong: GuideError | None = None
        if message.get("link"):
            changes, wrong = _readable(changes)
        if {"language", "currency", "currency_per_usd"} & set(changes):
            checked = Scenario.from_mapping(
                {"language": self.text.language}
                | {key: changes[key] for key in ("language", "currency", "currency_per_usd") if changes.get(key)}
            )
            if (checked.language, checked.currency) != (self.text.language, self.text.currency):
                self.text = Text(checked.language, checked.currency, checked.currency_per_usd)
                self._translate()
        if "workload" in changes and changes["workload"] not in self.declaration.workloads:
            del changes["workload"]
        self.panel.apply(changes, shown=bool(message.get("shown")))
        if wrong is not None:
            self._say(wrong)

    def _download(self, message: Mapping[str, Any]) -> None:
        what = message.get("what")
        if what == "reset":
            self.panel.start(Scenario.from_mapping(dict(self._first) | {"language": self.text.language}))
            self.panel.emit()
        elif self.decision is not None and what == "csv":
            self.browser.download(f"gpuguide-{self.declaration.name}.csv", "text/csv", as_csv(self.decision.ranking))
        elif self.decision is not None and what == "xlsx":
            from io import BytesIO

            book = BytesIO()
            self.decision.ranking.assign(plan=self.decision.ranking["plan"].map(str)).to_excel(book, index=False)
            self.browser.download(f"gpuguide-{self.declaration.name}.xlsx", XLSX, book.getvalue())

    # ---- from a Scenario to the picture ------------------------------------------------------------------------------

    def decide(self, scenario: Scenario) -> Decision:
        """The decision for a scenario, remembered."""
        if scenario in self._known:
            self._known.move_to_end(scenario)
            return self._known[scenario]
        from gpuguide.decide.pipeline import decide

        started = time.perf_counter()
        decision = decide(self.catalog.resolve(scenario))
        logger.debug("decided in %.0f ms", 1e3 * (time.perf_counter() - started))
        self._known[scenario] = decision
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return decision

    def _ask(self, scenario: Scenario) -> None:
        if scenario == self.scenario and not self._error.value:
            return
        self.decision = self.decide(scenario)
        self.scenario = scenario
        self._error.value = ""
        self.panel.hint(self.decision.scenario)
        self._draw()

    def _draw(self) -> None:
        if self.decision is None:
            return
        answer = Answer(decision=self.decision, text=self.text, ask=self._neighbour, given=self.panel.given())
        show = self._guarded(lambda card: self._show(card, answer))  # one broken picture spoils no other
        now = [card for card in self.declaration.cards if not card.slow]
        # Charts first: the browser paints them while the rest is made.
        for card in filter(lambda card: card.chart, now):
            show(card)
        said = (verdict.verdict_box(self.decision, self.text), verdict.warnings(self.decision, self.text))
        self._verdict.value = join(said)
        self._tiles.value = verdict.tiles(self.decision, self.text)
        for card in filter(lambda card: not card.chart, now):
            show(card)
        self._footer.value = verdict.footer(self.decision, self.text)
        self._address()
        if any(card.slow for card in self.declaration.cards):
            self._soon(answer)
        if self.browser.search is not None:
            self.browser.tick += 1

    def _show(self, card: Card, answer: Answer) -> None:
        drawn = card.draw(answer)
        if card.chart:
            self._views[card.key].show(drawn)
        else:
            self._views[card.key].value = drawn

    def _soon(self, answer: Answer) -> None:
        """Draw what needs several decisions when no newer change comes in between."""
        if self._pending is not None:
            self._pending.cancel()

        def draw() -> None:
            for card in self.declaration.cards:
                if card.slow and answer.decision is self.decision:
                    self._guarded(lambda card: self._show(card, answer))(card)

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # outside a kernel: at once
            draw()
        else:
            self._pending = loop.call_later(SLOW_AFTER_S, draw)

    def _neighbour(self, changes: Mapping[str, Any]) -> Decision:
        given = self.panel.given() | {"language": self.text.language} | dict(changes)
        return self.decide(Scenario.from_mapping({key: value for key, value in given.items() if value is not None}))

    def _address(self) -> None:
        """The state as a link: all that differs from the defaults of a Scenario, so that it means the same anywhere."""
        start, said = self.declaration.start, self.panel.given()
        given = {key: value for key, value in said.items() if key in start or value != self._default(key)}
        # What the page would start with and the reader has taken away is said too.
        either = {"model", "params_b"}
        given |= {key: "" for key in start if key not in said and not (key in either and either & set(said))}
        if len(self.declaration.workloads) == 1:
            given.pop("workload", None)
        given["language"] = self.text.language
        if self.text.currency != "USD":
            given |= {"currency": self.text.currency, "currency_per_usd": self.text.currency_per_usd}
        self.browser.query = write_query(given)
        self.browser.spoken = self.panel.spoken()

    def _default(self, key: str) -> Any:
        field = self.panel.fields.get(key)
        return None if field is None else field.control.start

    # ---- words -------------------------------------------------------------------------------------------------------

    def _translate(self) -> None:
        text, name = self.text, self.declaration.name
        self.browser.language = text.language
        self.browser.title = f"{text(f'page.{name}.title')} · gpuguide"
        self.browser.words = {"lost": text("lost"), "restart": text("restart")}
        self.panel.relabel(text)
        self.browser.names = self.panel.names()
        self._header.value = header(name, text)
        self._intro.value = intro(self.declaration, text)
        exports = {kind: text("export", kind=kind.upper()) for kind in ("png", "svg")}
        for card in self.declaration.cards:
            self._titles[card.key].value = card_title(card, text)
            if card.chart:
                self._views[card.key].exports = exports
        self.scenario = None  # the same numbers have to be said again


XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def _html(*classes: str) -> widgets.HTML:
    widget = widgets.HTML()
    for name in classes:
        widget.add_class(name)
    return widget


def _readable(given: Mapping[str, Any]) -> tuple[dict[str, Any], GuideError | None]:
    """Values of a link that a Scenario can have, and the first that it cannot."""
    good: dict[str, Any] = {}
    wrong: GuideError | None = None
    for key, value in given.items():
        try:
            Scenario.from_mapping({key: value})
        except GuideError as error:
            wrong = wrong or error
        else:
            good[key] = value
    return good, wrong
