"""The market page: every offer in one table, how prices moved, and how hard a machine is to get."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import numpy as np

from gpuguide.app.chart import Chart
from gpuguide.app.declaration import Card
from gpuguide.app.location import write_query
from gpuguide.app.page import XLSX, readable
from gpuguide.app.panel import Panel
from gpuguide.app.shell import Shell, html, served
from gpuguide.catalog.trend import history
from gpuguide.decide.market import KINDS, filters
from gpuguide.show import market, trend
from gpuguide.show.tables import as_csv
from gpuguide.show.verdict import footer
from gpuguide.spec.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.catalog.catalog import Catalog

GROUPS = {
    "market": ("pricing", "gpu", "gpus"),
    "market+": ("offer_kinds", "providers", "countries", "max_price_age_days"),
}
CARDS = (
    Card(key="offers", draw=market.columns, grid=((6, "asc"),), chart=False, wide=True, download=True),
    Card(key="trend", draw=trend.table, chart=False, wide=True),
    Card(key="scarce", draw=market.scarce, grid=((0, "asc"), (1, "asc")), chart=False, wide=True),
)
UNDERSTOOD = (*GROUPS["market"], *GROUPS["market+"], "regions", "language", "currency", "currency_per_usd")
START: Mapping[str, Any] = {"workload": "serve", "pricing": "any", "offer_kinds": KINDS}


class MarketPage(Shell):
    """
    All offers.

    Parameters
    ----------
    catalog : Catalog
    given : mapping
        Keys of the Scenario that narrow the market: gpu, gpus, providers, pricing, offer_kinds, max_price_age_days,
        regions; language and currency.
    """

    def __init__(self, catalog: Catalog, given: Mapping[str, Any]) -> None:
        super().__init__("market", given)
        self.catalog = catalog
        self.rows: pd.DataFrame = catalog.market
        self._luggage: dict[str, Any] = {}
        self._addressed = False
        self._line = Chart(filename="gpuguide-market-trend")
        self._first = dict(START) | {key: value for key, value in given.items() if value is not None}
        self.panel = Panel(GROUPS, ("serve",), catalog, self._guarded(self._ask), self._say)
        self._sentence = html("gg-live")
        self._assemble([self._sentence], self.panel.widget, [self._card(card) for card in CARDS])
        self._translate()
        self.panel.start(Scenario.from_mapping(self._first))
        self._guarded(lambda _: self.panel.emit())(None)

    def __repr__(self) -> str:
        return f"<market page: {len(self.rows)} offers>"

    def _card(self, card: Card) -> widgets.VBox:
        box = super()._card(card)
        if card.key == "trend":
            self._trend = box
        return box

    def _set(self, message: Mapping[str, Any]) -> None:
        changes = dict(message.get("values") or {})
        wrong = None
        if message.get("link"):
            changes, wrong = readable(changes)
            # What the page before was about goes along in the address, for the page after.
            self._luggage = {key: changes.pop(key) for key in set(changes) - set(UNDERSTOOD)}
        self._speak(changes)
        self.panel.apply(changes, shown=bool(message.get("shown")))
        if wrong is not None:
            self._say(wrong)

    def _begin(self, search: str | None) -> None:
        self._addressed = True
        super()._begin(search)
        if not self._views["offers"].packed:
            self.panel.emit()

    def _ask(self, scenario: Scenario) -> None:
        if served() and not self._addressed:
            return  # the address and the browser's language come first: the table is sent once
        said = self.panel.given()
        if "offer_kinds" not in said:
            scenario = scenario.model_copy(update={"offer_kinds": KINDS})
        masks = filters(self.catalog.market, scenario)
        if not scenario.gpu:
            del masks["gpu"]  # GPUs that no estimate exists for are for rent all the same
        offers = self.catalog.market[np.logical_and.reduce(list(masks.values()))]
        self.rows = market.listed(offers, self._memory_gb)
        self._error.value = ""
        text = self.text
        self._sentence.value = market.sentence(self.rows, text)
        self._show("offers", market.columns(self.rows, text))
        self._show("scarce", market.scarce(offers, text))
        self._draw_trend(scenario)
        differs = {key: value for key, value in said.items() if _same(START.get(key)) != _same(value)}
        self.browser.query = write_query(self._luggage | differs | self._spoken())
        if self.browser.search is not None:
            self.browser.tick += 1

    def _draw_trend(self, scenario: Scenario) -> None:
        """A chart with its table where prices were read more than once, else a sentence in their place."""
        rows = history()
        if scenario.providers:
            rows = rows[rows["provider"].isin(scenario.providers)]
        title, said = self._trend.children[0], self._views["trend"]
        found = trend.trends(rows, scenario.gpu, scenario.pricing)
        if found:
            self._line.show(trend.chart(found, self.text))
            said.value = trend.table(found, self.text)
            self._trend.children = (title, self._line, said)
        else:
            said.value = trend.none_yet(rows, scenario.gpu, self.text)
            self._trend.children = (title, said)

    def _memory_gb(self, name: str) -> float:
        gpu = self.catalog.gpus.get(name)
        return float("nan") if gpu is None else gpu.memory_gb

    def _download(self, message: Mapping[str, Any]) -> None:
        what = message.get("what")
        if what == "reset":
            self.panel.start(Scenario.from_mapping(dict(self._first) | {"language": self.text.language}))
            self.panel.emit()
        elif what == "csv":
            self.browser.download("gpuguide-market.csv", "text/csv", as_csv(self.rows))
        elif what == "xlsx":
            book = io.BytesIO()
            self.rows.to_excel(book, index=False)
            self.browser.download("gpuguide-market.xlsx", XLSX, book.getvalue())

    def _translate(self) -> None:
        super()._translate()
        self.panel.relabel(self.text)
        self.browser.names = self.panel.names()
        self._line.exports = {kind: self.text("export", kind=kind.upper()) for kind in ("png", "svg")}
        self._footer.value = footer(None, self.text)


def _same(value: Any) -> Any:
    """Names in any order are the same choice."""
    return sorted(value) if isinstance(value, tuple | list) else value
