"""What all pages share: the frame, the browser's side, languages, and the one wrapper around every callback."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from gpuguide.app.chart import Chart
from gpuguide.app.declaration import Card
from gpuguide.app.first import MARK, asked_for, first_look, wanted
from gpuguide.app.frame import card_title, header, intro
from gpuguide.app.grid import Grid
from gpuguide.app.location import Browser, read_query
from gpuguide.app.wording import error_sentence
from gpuguide.catalog.carried import is_carried, model_of
from gpuguide.errors import GuideError, UnknownName, nearest
from gpuguide.show.html import Html, join, tag
from gpuguide.show.names import text_with_names
from gpuguide.spec.scenario import Scenario
from gpuguide.text import LANGUAGES

if TYPE_CHECKING:
    from gpuguide.catalog.models import Models

logger = logging.getLogger(__name__)

MONEY = ("currency", "currency_per_usd")


class Shell:
    """
    The frame of one page.

    Parameters
    ----------
    name : str
        Of the page; its words stand under `page.NAME` and `preset.NAME`.
    given : mapping
        Keys of the Scenario; language and currency are read here.
    presets : mapping
        Values by name, offered as examples.
    """

    def __init__(
        self, name: str, given: Mapping[str, Any], presets: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.name = name
        self._presets = presets or {}
        self._from_address: Mapping[str, Any] = {}
        self._language_chosen = given.get("language") is not None
        spoken = {key: given[key] for key in ("language", *MONEY) if given.get(key) is not None}
        start = Scenario.from_mapping(spoken)
        self.text = text_with_names(start.language, start.currency, start.currency_per_usd)
        acts = {"on_set": self._set, "on_near": self._near, "on_download": self._download, "on_own": self._own}
        self.browser = Browser(**{name: self._guarded(act) for name, act in acts.items()})
        self._header, self._intro, self._footer = html("gg-head"), html("gg-intro"), html("gg-end")
        self._error = html("gg-error")
        self._titles: dict[str, widgets.HTML] = {}
        self._views: dict[str, Any] = {}
        self._cards: dict[str, Card] = {}

    def _assemble(self, answer: Sequence[Any], side: Any, main: Sequence[Any]) -> None:
        """Put the parts together: what is said first, controls, and the rest."""
        top = widgets.VBox([self._error, *answer])
        top.add_class("gg-top")
        body = widgets.VBox(list(main))
        body.add_class("gg-main")
        parts = [self.browser, self._header, self._intro, top, *([side] if side else []), body, self._footer]
        page = widgets.Box(parts)
        for name in ("gg", f"gg-page-{self.name}", *([] if side else ["gg-no-side"])):
            page.add_class(name)
        # The room's width decides how a page is laid out: in JupyterLab it is not the window's.
        self.root = widgets.Box([page])
        self.root.add_class("gg-room")
        self.browser.observe(self._guarded(lambda change: self._arrived(change["new"])), "search")

    def _card(self, card: Card) -> widgets.VBox:
        title = widgets.HTML()
        view: Any = widgets.HTML()
        if card.grid is not None:
            view = Grid()
        elif card.chart:
            view = Chart(filename=f"gpuguide-{self.name}-{card.key}")
        self._titles[card.key], self._views[card.key], self._cards[card.key] = title, view, card
        box = widgets.VBox([title, view])
        box.add_class("gg-card")
        box.add_class(f"gg-card-{card.key}")
        if card.wide:
            box.add_class("gg-wide")
        return box

    def _show(self, key: str, drawn: Any) -> None:
        view, card = self._views[key], self._cards[key]
        if isinstance(view, Chart):
            view.show(drawn)
        elif card.grid is not None:
            view.show(drawn, self.text, label=self.text(f"card.{key}.title"), order=card.grid)
        else:
            view.value = drawn

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if wanted():
            self._guarded(lambda _: self._show_looks())(None)
        display(self.root)  # type: ignore[no-untyped-call]

    def _show_looks(self) -> None:
        from IPython.display import display

        display({"text/html": self._looks()}, raw=True, metadata={MARK: True})  # type: ignore[no-untyped-call]

    def _looks(self) -> Html:
        """The page as its first reader will see it; made before anybody asks, in every language that may be wanted."""
        asked, now = asked_for(), self.text.language
        if asked is not None:
            query, tongue = asked
            self.browser.tongue = tongue
            self._begin(f"?{query}")
            return first_look(self.root, self.text, query=query)
        looks = []
        for language in sorted(LANGUAGES, key=lambda code: code == now):  # the page's own last: it stays
            self._set({"values": {"language": language}})
            looks.append(first_look(self.root, self.text, query=""))
        return join(looks)

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
                logger.exception("%s page", self.name)
                self._error.value = tag("p", self.text("error_ours"))

        return guarded

    def _say(self, error: GuideError) -> None:
        self._error.value = tag("p", error_sentence(error, self.text))

    def _arrived(self, search: str | None) -> None:
        """The browser is there."""
        try:
            self._begin(search)
        finally:
            self.browser.tick += 1

    def _begin(self, search: str | None) -> None:
        """Take the state of an address, and the browser's language unless one was chosen."""
        given = read_query(search)
        tongue = self.browser.tongue[:2]
        if "language" not in given and not self._language_chosen and tongue in LANGUAGES:
            given["language"] = tongue
        if given != self._from_address:
            self._from_address = given
            self._set({"values": given, "link": True})

    def _speak(self, changes: Mapping[str, Any]) -> bool:
        """Take language and currency from changes; whether they are other ones now."""
        wanted = {key: changes[key] for key in ("language", *MONEY) if changes.get(key)}
        if not wanted:
            return False
        checked = Scenario.from_mapping({"language": self.text.language} | wanted)
        text = text_with_names(checked.language, checked.currency, checked.currency_per_usd)
        if all(getattr(text, name) == getattr(self.text, name) for name in ("language", *MONEY)):
            return False
        self.text = text
        self._translate()
        return True

    def _spoken(self) -> dict[str, Any]:
        """Language and currency as keys of an address."""
        if self.text.currency == "USD":
            return {"language": self.text.language}
        return {
            "language": self.text.language,
            "currency": self.text.currency,
            "currency_per_usd": self.text.currency_per_usd,
        }

    def _set(self, message: Mapping[str, Any]) -> None:
        """Values from a link, a preset, a remedy or the language switch: under `values`; `link` when from outside."""
        raise NotImplementedError

    def _near(self, message: Mapping[str, Any]) -> None:
        """A hand is at a slider, but has not moved it: its field's CSS class stands under `mark`."""

    def _download(self, message: Mapping[str, Any]) -> None:
        """What was asked for stands under `what`."""

    def _own(self, message: Mapping[str, Any]) -> None:
        """Something was given as the reader's own model: `OwnModel` reads it."""

    def _translate(self) -> None:
        """Say the frame in the page's language."""
        text = self.text
        self.browser.language = text.language
        self.browser.title = f"{text(f'page.{self.name}.title')} · gpuguide"
        self.browser.words = {"lost": text("lost"), "restart": text("restart")}
        self._header.value = header(self.name, text)
        self._intro.value = intro(self.name, self._presets, text)
        exports = {kind: text("export", kind=kind.upper()) for kind in ("png", "svg")}
        for key, card in self._cards.items():
            self._titles[key].value = card_title(card, text)
            if isinstance(self._views[key], Chart):
                self._views[key].exports = exports


def html(*classes: str) -> widgets.HTML:
    """An HTML widget with CSS classes."""
    widget = widgets.HTML()
    for name in classes:
        widget.add_class(name)
    return widget


def may_open(name: str | None, models: Models) -> None:
    """
    Refuse the model of a scenario that this page must not look for, or that a link carries damaged.

    Raises
    ------
    UnknownName, InvalidScenario
    """
    if name and is_carried(name):
        model_of(name)
    elif name and served() and name not in models:
        raise UnknownName("model", name[:80], nearest(name[:80], models.names()), len(models))


def served() -> bool:
    """Whether readers from elsewhere may sit in front of this page, so that it must open no file they name."""
    return os.environ.get("SERVER_SOFTWARE", "").startswith("voila")
