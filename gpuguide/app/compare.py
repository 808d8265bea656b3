"""The compare page: up to four scenarios side by side, all of them in the address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import ipywidgets as widgets

from gpuguide.app.declaration import Card
from gpuguide.app.location import read_query, write_query
from gpuguide.app.own_model import OwnModel
from gpuguide.app.shell import Shell, may_open
from gpuguide.catalog.carried import carried
from gpuguide.errors import GuideError, InvalidScenario
from gpuguide.show import compare
from gpuguide.show.verdict import footer
from gpuguide.spec.model import MediaModel, Model
from gpuguide.spec.scenario import Scenario

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog
    from gpuguide.decide.decision import Decision

PLACES = ("a", "b", "c", "d")
PAGE_FOR = {"serve": "serve", "qlora": "finetune", "lora": "finetune", "full": "finetune", "pretrain": "train"}
CARDS = (
    Card(key="compare", draw=compare.table, chart=False, wide=True),
    Card(key="compare_memory", draw=compare.memory),
    Card(key="compare_cost", draw=compare.cost),
    Card(key="architecture", draw=compare.architectures, chart=False, wide=True),
)
LLAMA_70B = "workload=serve&model=llama-3.1-70b&max_context=16384&concurrency=16"
TUNE = "&model=llama-3.1-8b&sequence_length=4096&train_tokens=1e8"
PRESETS: Mapping[str, Mapping[str, str]] = {
    "formats": {"a": LLAMA_70B, "b": f"{LLAMA_70B}&weight_format=fp8", "c": f"{LLAMA_70B}&weight_format=awq", "d": ""},
    "methods": {"a": f"workload=qlora{TUNE}", "b": f"workload=lora{TUNE}", "c": f"workload=full{TUNE}", "d": ""},
    "payment": {"a": f"workload=full{TUNE}", "b": f"workload=full{TUNE}&pricing=spot", "c": "", "d": ""},
}


class ComparePage(Shell):
    """
    Scenarios side by side.

    Parameters
    ----------
    catalog : Catalog
    given : mapping
        `a` to `d`: scenarios as the address of a page has them (``workload=serve&model=llama-3.1-8b``) or as mappings;
        language and currency.
    """

    def __init__(self, catalog: Catalog, given: Mapping[str, Any]) -> None:
        super().__init__("compare", {key: value for key, value in given.items() if key not in PLACES}, PRESETS)
        self.catalog = catalog
        self.queries: dict[str, str] = {}
        self.decisions: dict[str, Decision] = {}
        self.own = OwnModel(self.browser, self._take, lead="own.lead_compare", taken="own.added")
        box = widgets.VBox([self.own.widget])
        for name in ("gg-card", "gg-wide"):
            box.add_class(name)
        self._assemble([], None, [*(self._card(card) for card in CARDS), box])
        self._translate()
        chosen = {place: _as_query(given[place]) for place in PLACES if given.get(place)}
        self._guarded(self._set)({"values": chosen or PRESETS["formats"]})

    def __repr__(self) -> str:
        return f"<compare page: {len(self.decisions)} scenarios>"

    def _set(self, message: Mapping[str, Any]) -> None:
        changes = dict(message.get("values") or {})
        if message.get("link") and any(changes.get(place) for place in PLACES):
            self.queries, self.decisions = {}, {}
        self._speak(changes)
        self._error.value = ""
        wrong: GuideError | None = None
        for place in PLACES:
            if place not in changes:
                continue
            self.queries.pop(place, None)
            self.decisions.pop(place, None)
            if changes[place]:
                try:
                    self.decisions[place] = self._decide(str(changes[place]))
                    self.queries[place] = str(changes[place])
                except GuideError as error:
                    wrong = wrong or error
        self._draw()
        if wrong is not None:
            raise wrong

    def _own(self, message: Mapping[str, Any]) -> None:
        self.own.heard(message)

    def _take(self, model: Model | MediaModel) -> None:
        """Put a model of the reader's own beside the others, under the first scenario that it can do."""
        free = [place for place in PLACES if place not in self.queries]
        if not free:
            what = "four scenarios stand here already: take one away first"
            raise InvalidScenario("model", model.name, what)
        bare = f"workload={_workload_of(model)}"
        wrong: GuideError | None = None
        for query in (*self.queries.values(), bare):
            given = {key: value for key, value in read_query(query).items() if key != "params_b"}
            asked = write_query(given | {"model": carried(model)})
            try:
                self.decisions[free[0]] = self._decide(asked)
            except GuideError as error:
                wrong = wrong or error
                continue
            self.queries[free[0]] = asked
            self._draw()
            return
        if wrong is not None:
            raise wrong

    def _decide(self, query: str) -> Decision:
        from gpuguide.decide.pipeline import decide

        scenario = Scenario.from_mapping({key: value for key, value in read_query(query).items() if value != ""})
        may_open(scenario.model, self.catalog.models)
        return decide(self.catalog.resolve(scenario))

    def _draw(self) -> None:
        text = self.text
        entries = [
            compare.Entry(
                place=place,
                decision=self.decisions[place],
                link=f"{PAGE_FOR.get(self.decisions[place].scenario.workload, 'media')}?{self.queries[place]}",
            )
            for place in PLACES
            if place in self.decisions
        ]
        self._show("compare", compare.table(entries, text))
        self._show("compare_memory", compare.memory(entries, text))
        self._show("compare_cost", compare.cost(entries, text))
        self._show("architecture", compare.architectures(entries, text))
        self._footer.value = footer(entries[0].decision if entries else None, text)
        self.browser.query = write_query(
            {place: self.queries[place] for place in PLACES if place in self.queries} | self._spoken()
        )
        if self.browser.search is not None:
            self.browser.tick += 1

    def _translate(self) -> None:
        super()._translate()
        self.own.relabel(self.text)
        self._footer.value = footer(None, self.text)


def _workload_of(model: Model | MediaModel) -> str:
    """What a model is for, where no scenario says."""
    if not isinstance(model, MediaModel):
        return "serve"
    return model.task if model.task in ("image", "video") else "audio"


def _as_query(scenario: Any) -> str:
    """A scenario as an address, from a mapping, a Scenario or an address."""
    if isinstance(scenario, Scenario):
        return write_query(scenario.model_dump(exclude_unset=True))
    if isinstance(scenario, Mapping):
        return write_query(scenario)
    return write_query(dict(parse_qsl(str(scenario).removeprefix("?"))))
