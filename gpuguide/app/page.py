"""A page: controls on one side, the answer on the other, and what happens between a moved slider and a drawn chart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from gpuguide.app.declaration import Answer, Card, Declaration
from gpuguide.app.location import write_query
from gpuguide.app.own_model import OwnModel
from gpuguide.app.panel import Panel
from gpuguide.app.shell import Shell, html, may_open
from gpuguide.catalog.carried import carried
from gpuguide.catalog.resolve import row_named
from gpuguide.decide.market import filters
from gpuguide.errors import GuideError
from gpuguide.show import verdict
from gpuguide.show.html import Html, join, tag
from gpuguide.show.tables import as_csv
from gpuguide.spec.scenario import Scenario

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog
    from gpuguide.decide.decision import Decision
    from gpuguide.spec.model import MediaModel, Model

REMEMBERED = 24
"""Answers that a reader may come back to, each with its first picture."""
NEIGHBOURS = 64
"""Answers that pictures of many decisions were made of: so many that they can be drawn again, kept apart since they
would push out all others."""
PAINTED_AFTER_S = 0.04
"""A browser draws the first picture in about so long; what is made meanwhile would take its time on few cores. [s]"""
AHEAD_AFTER_S = 0.1
"""A hand that rests so long is not dragging: the next press of a key can be prepared. [s]"""
SLOW_AFTER_S = 0.25
"""Pictures that need several decisions wait until the reader's hand rests. [s]"""


class Page(Shell):
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
        super().__init__(declaration.name, given, declaration.presets)
        self.declaration = declaration
        self.catalog = catalog
        self.scenario: Scenario | None = None
        self.decision: Decision | None = None
        self._first = dict(declaration.start) | {key: value for key, value in given.items() if value is not None}
        self._first_card, *self._other_cards = sorted(declaration.cards, key=lambda card: not card.chart or card.slow)
        self.decide = lru_cache(REMEMBERED)(self._decide)
        self._decide_beside = lru_cache(NEIGHBOURS)(self._decide)
        self._first_picture = lru_cache(REMEMBERED)(self._draw_first)
        self._first_words = lru_cache(REMEMBERED)(self._say_first)
        self._pending: asyncio.TimerHandle | None = None
        start = Scenario.from_mapping(self._first)
        self.panel = Panel(declaration.groups, declaration.workloads, catalog, self._guarded(self._ask), self._say)
        lead = "own.lead_media" if "image" in declaration.workloads else "own.lead"
        self.own = OwnModel(self.browser, self._take, lead=lead)
        self.panel.beside("model", self.own.widget)
        self._verdict, self._tiles = html("gg-live", "gg-steady"), html("gg-steady")
        cards = [self._card(card) for card in declaration.cards]
        self._assemble([self._verdict], self.panel.widget, [self._tiles, *cards])
        self._translate()
        self.panel.start(start)
        self._guarded(lambda _: self.panel.emit())(None)

    def __repr__(self) -> str:
        return f"<{self.name} page: {self.said}>"

    @property
    def said(self) -> str:
        """The verdict in words."""
        return "" if self.decision is None else verdict.verdict(self.decision, self.text)

    # ---- what the reader does ----------------------------------------------------------------------------------------

    def _say(self, error: GuideError) -> None:
        super()._say(error)
        self.panel.refresh()

    def _set(self, message: Mapping[str, Any]) -> None:
        changes = dict(message.get("values") or {})
        wrong: GuideError | None = None
        if message.get("link"):
            changes, wrong = readable(changes, self._named)
            try:
                may_open(changes.get("model"), self.catalog.models)
            except GuideError as error:  # all else in the link still counts
                del changes["model"]
                wrong = wrong or error
        self._speak(changes)
        if "workload" in changes and changes["workload"] not in self.declaration.workloads:
            del changes["workload"]
        self.panel.apply(changes, shown=bool(message.get("shown")))
        if wrong is not None:
            self._say(wrong)

    def _near(self, message: Mapping[str, Any]) -> None:
        self.panel.near(message.get("mark"))
        if self._pending is None:  # else something is being drawn, which comes first
            self._go_on(self._look_ahead())

    def _download(self, message: Mapping[str, Any]) -> None:
        what = message.get("what")
        if what == "reset":
            self.panel.start(Scenario.from_mapping(dict(self._first) | {"language": self.text.language}))
            self.panel.emit()
        elif self.decision is not None and what == "csv":
            self.browser.download(f"gpuguide-{self.name}.csv", "text/csv", as_csv(self.decision.ranking))
        elif self.decision is not None and what == "xlsx":
            book = BytesIO()
            self.decision.ranking.assign(plan=self.decision.ranking["plan"].map(str)).to_excel(book, index=False)
            self.browser.download(f"gpuguide-{self.name}.xlsx", XLSX, book.getvalue())

    def _own(self, message: Mapping[str, Any]) -> None:
        self.own.heard(message)

    def _take(self, model: Model | MediaModel) -> None:
        """Go on with a model of the reader's own, or raise and stay with the last one."""
        workload = self.panel.workload_for(model)
        before = self.panel.held()
        try:
            self.panel.put({"workload": workload, "model": carried(model)})
            self._ask(self.panel.scenario())
        except Exception:
            self.panel.hold(before)
            raise

    def _named(self, scenario: Scenario) -> None:
        """Refuse names that no table has, so that all else in a link still counts."""
        if scenario.model_fields_set & {"gpu", "providers", "offer_kinds", "countries"}:
            filters(self.catalog.market, scenario, known_gpus=set(scenario.gpu) <= set(self.catalog.gpus))
        row_named("engine", scenario.engine, self.catalog.engines)
        row_named("optimizer", scenario.optimizer, self.catalog.optimizers)

    # ---- from a Scenario to the picture ------------------------------------------------------------------------------

    def _decide(self, scenario: Scenario) -> Decision:
        from gpuguide.decide.pipeline import decide

        may_open(scenario.model, self.catalog.models)
        return decide(self.catalog.resolve(scenario))

    def _draw_first(self, scenario: Scenario) -> Any:
        """What the card that a reader sees first shows; it follows from the scenario alone."""
        return self._first_card.draw(self._answer(self.decide(scenario)))

    def _say_first(self, scenario: Scenario) -> tuple[Html, Html]:
        """The verdict with its warnings, and the tiles."""
        decision = self.decide(scenario)
        warnings = verdict.warnings(decision, self.text)
        # A phone keeps the verdict alone in sight; the warnings scroll along.
        return (
            join([verdict.verdict_box(decision, self.text), warnings]),
            join([tag("div", warnings, class_="phone-only"), verdict.tiles(decision, self.text)]),
        )

    def _answer(self, decision: Decision) -> Answer:
        return Answer(decision=decision, text=self.text, ask=self._neighbour, given=self.panel.given())

    def _ask(self, scenario: Scenario) -> None:
        if scenario == self.scenario and not self._error.value:
            return
        self.decision = self.decide(scenario)
        self.scenario = scenario
        self._error.value = ""
        self.panel.hint(self.decision.scenario)
        self._draw()

    def _draw(self) -> None:
        if self.decision is None or self.scenario is None:
            return
        scenario, answer = self.scenario, self._answer(self.decision)
        self._draw_card(self._first_card, lambda: self._first_picture(scenario))
        self._verdict.value, self._tiles.value = self._first_words(scenario)
        self._go_on(self._draw_rest(answer))

    def _draw_card(self, card: Card, drawn: Callable[[], Any]) -> None:
        self._guarded(lambda _: self._show(card.key, drawn()))(None)  # one broken picture spoils no other

    def _draw_rest(self, answer: Answer) -> Iterator[float]:
        """Draw one card after the other; yields how long to wait before the next. [s]"""
        yield PAINTED_AFTER_S
        for card in self._other_cards:
            if not card.slow:
                yield 0.0
                self._draw_card(card, partial(card.draw, answer))
        self._footer.value = verdict.footer(answer.decision, answer.text)
        self._address()
        if self.browser.search is not None:
            self.browser.tick += 1
        yield from self._look_ahead()
        yield SLOW_AFTER_S - AHEAD_AFTER_S
        for card in self._other_cards:
            if card.slow:
                self._draw_card(card, partial(card.draw, answer))
                yield 0.0

    def _go_on(self, rest: Iterator[float]) -> None:
        """Draw the rest in turns of its own, between which a newer change may come: then it is not drawn at all."""
        if self._pending is not None:
            self._pending.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # outside a kernel: at once
            list(rest)
            return

        def turn() -> None:
            pause = next(rest, None)
            while self.browser.search is None and pause in (0.0, PAINTED_AFTER_S):  # nobody sees the page yet
                pause = next(rest, None)
            self._pending = None if pause is None else loop.call_later(pause, turn)

        turn()

    def _look_ahead(self) -> Iterator[float]:
        """Decide and draw what one more step of the same slider would show: a key is often pressed again."""
        yield AHEAD_AFTER_S
        with suppress(GuideError):
            for following in self.panel.ahead():
                self._first_picture(following)
                self._first_words(following)
                yield 0.0

    def _neighbour(self, changes: Mapping[str, Any]) -> Decision:
        given = self.panel.given() | self._spoken() | dict(changes)
        asked = Scenario.from_mapping({key: value for key, value in given.items() if value is not None})
        # Where the reader stands is one of the points of a picture.
        return self.decision if self.decision and asked == self.scenario else self._decide_beside(asked)

    def _address(self) -> None:
        """The state as a link: all that differs from the defaults of a Scenario, so that it means the same anywhere."""
        start, said = self.declaration.start, self.panel.given()
        given = {key: value for key, value in said.items() if key in start or value != self._default(key)}
        # What the page would start with and the reader has taken away is said too.
        either = {"model", "params_b"}
        given |= {key: "" for key in start if key not in said and not (key in either and either & set(said))}
        if len(self.declaration.workloads) == 1:
            given.pop("workload", None)
        self.browser.query = write_query(given | self._spoken())
        self.browser.pin = write_query(
            {"workload": said["workload"]} | {key: value for key, value in given.items() if value != ""}
        )
        self.browser.spoken = self.panel.spoken()

    def _default(self, key: str) -> Any:
        field = self.panel.fields.get(key)
        return None if field is None else field.control.start

    def _translate(self) -> None:
        super()._translate()
        self.panel.relabel(self.text)
        self.own.relabel(self.text)
        self.browser.names = self.panel.names()
        self.scenario = None  # the same numbers have to be said again


XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def readable(
    given: Mapping[str, Any], check: Callable[[Scenario], None] = lambda scenario: None
) -> tuple[dict[str, Any], GuideError | None]:
    """Values of a link that a Scenario can have, and the first that it cannot; `check` may refuse more."""
    good: dict[str, Any] = {}
    wrong: GuideError | None = None
    for key, value in given.items():
        try:
            check(Scenario.from_mapping({key: value}))
        except GuideError as error:
            wrong = wrong or error
        else:
            good[key] = value
    return good, wrong
