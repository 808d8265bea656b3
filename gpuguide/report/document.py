"""
What the cells of the report notebook call: one method a section, each shown as HTML and charts.

A cell's names are its parameters: `scenario` (keys and values), `file` or `link`, or any key of the scenario by itself.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.errors import DataError, GuideError, InvalidScenario, UnknownName, nearest
from gpuguide.report import sections
from gpuguide.report.sensitivity import Mover, assumption_movers, cost_of, movers
from gpuguide.show import figures, tables
from gpuguide.show.html import Html, tag
from gpuguide.show.names import text_with_names
from gpuguide.show.remedies import remedy_list
from gpuguide.show.theme import resolved
from gpuguide.show.verdict import tiles, verdict, verdict_box, warnings
from gpuguide.spec.link import ADDRESS, scenario_of
from gpuguide.spec.scenario import Scenario
from gpuguide.text import Text

if TYPE_CHECKING:
    from gpuguide.accuracy.table import TableScore
    from gpuguide.catalog.catalog import Catalog
    from gpuguide.decide.decision import Decision

PARAMETERS = ("scenario", "file", "link", "language", "title", "assumptions", "today")
SHORTLIST = 12
FIRST_GPUS, MOST_GPUS = 10, 24
"""Kinds of GPU in the memory chart: so many of the best, so many in all; more rows than these fill a page."""
PLOTLY = "application/vnd.plotly.v1+json"
SUMMARY = "application/vnd.gpuguide.summary+json"
"""What an index page says of a report, beside the answer's first output."""
TABLES = {
    "training": ("training_memory", "training_throughput:dense", "training_throughput:moe", "mlperf_training"),
    "serve": ("inference_memory:peak", "decode_throughput:decode_bs1", "decode_throughput:serving_online",
              "decode_throughput:serving_offline_max"),
    "image": ("diffusion_inference:memory", "diffusion_inference:speed"),
    "video": ("diffusion_inference:memory", "diffusion_inference:speed"),
    "audio": ("audio_inference:memory", "audio_inference:speed"),
}  # fmt: skip
"""Measurements that say how right such estimates have been, by kind of workload."""


class Section:
    """A titled part of the report: HTML and figures in the order in which they are read."""

    def __init__(self, key: str, text: Text, *parts: Html | dict[str, Any] | None) -> None:
        self.key, self.text = key, text
        self.summary: dict[str, Any] | None = None
        self.parts = [part for part in parts if part is not None]

    def outputs(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """MIME bundles with their metadata, as a notebook stores them."""
        bundles: list[tuple[dict[str, Any], dict[str, Any]]] = []
        title = f"report.section.{self.key}"
        head: list[Html] = [tag("h2", self.text(title), id=self.key)] if self.text.has(title) else []
        explained = f"report.help.{self.key}"
        head += [tag("p", self.text(explained), class_="gg-help")] if self.text.has(explained) else []
        for part in (*head, *self.parts):
            if isinstance(part, str):
                bundles.append(({"text/html": str(part), "text/plain": self.key}, {}))
            else:
                figure = resolved(part)
                bundles.append(({PLOTLY: figure, "text/plain": figure.get("label", "")}, {}))
        if self.summary is not None and bundles:
            bundles[0][0][SUMMARY] = self.summary
        return bundles

    def _ipython_display_(self) -> None:
        from IPython.display import publish_display_data

        for data, metadata in self.outputs():
            publish_display_data(data, metadata)  # type: ignore[no-untyped-call]


class Report:
    """
    A scenario, decided, in sections.

    Parameters
    ----------
    scenario : Scenario
    catalog : Catalog
    title : str
        In place of the one made from workload and model.
    """

    def __init__(self, scenario: Scenario, catalog: Catalog, title: str = "") -> None:
        self.scenario, self.catalog, self.title = scenario, catalog, title
        self.text = text_with_names(scenario.language, scenario.currency, scenario.currency_per_usd)

    @classmethod
    def from_names(cls, names: Mapping[str, Any]) -> Report:
        """
        A report from the names a notebook holds after its parameters cell.

        Raises
        ------
        UnknownName
            If a name is neither a parameter nor a key of the scenario; papermill itself would go on without it.
        """
        own = {name: value for name, value in names.items() if not name.startswith("_") and name not in NOTEBOOK}
        for name in own:
            if name not in PARAMETERS and name not in Scenario.model_fields:
                known = (*PARAMETERS, *Scenario.model_fields)
                raise UnknownName("report parameter", name, nearest(name, known), len(known))
        given = cls._given(own)
        keys = {key: value for key, value in own.items() if key in Scenario.model_fields and value not in (None, "")}
        scenario = Scenario.from_mapping({**given, **keys})
        return cls(scenario, catalog_for(own.get("assumptions") or "", own.get("today") or ""), own.get("title") or "")

    @staticmethod
    def _given(own: Mapping[str, Any]) -> dict[str, Any]:
        sources = [name for name in ("scenario", "file", "link") if own.get(name)]
        if len(sources) > 1:
            raise InvalidScenario(sources[1], own[sources[1]], f"give either {' or '.join(sources)}, not both")
        if own.get("link"):
            return scenario_of(str(own["link"])).model_dump(exclude_unset=True)
        if own.get("file"):
            from gpuguide.catalog.scenarios import read_scenarios

            found = read_scenarios(str(own["file"]))
            if len(found) > 1:
                raise DataError(
                    str(own["file"]), None, None, "holds several scenarios; `gpuguide report` makes one report of each"
                )
            return found[0].model_dump(exclude_unset=True)
        return dict(own.get("scenario") or {})

    @cached_property
    def decision(self) -> Decision:
        """The answer."""
        from gpuguide.decide.pipeline import decide

        return decide(self.catalog.resolve(self.scenario))

    @cached_property
    def movers(self) -> list[Mover]:
        """What moves the cost most."""
        return movers(self.decision, self.assumed)

    @cached_property
    def assumed(self) -> list[Mover]:
        """The assumptions behind the numbers, each at its ends."""
        return assumption_movers(self.decision)

    # ---- sections, in the order of the notebook ----------------------------------------------------------------------

    def question(self) -> Section:
        """What was asked."""
        head = sections.heading(self.decision, self.text, title=self.title, today=self.catalog.today)
        return Section("", self.text, head)

    def answer(self) -> Section:
        """The verdict, four figures, and what to know before acting; then what was asked."""
        decision, text = self.decision, self.text
        asked = sections.asked(self.scenario, decision.scenario, text)
        section = Section(
            "answer", text, verdict_box(decision, text), tiles(decision, text), warnings(decision, text), asked
        )
        section.summary = self.summary()
        return section

    def funnel(self) -> Section:
        """From the market to the choice."""
        return Section("funnel", self.text, tables.funnel(self.decision, self.text))

    def memory(self) -> Section:
        """Memory by part, and on every kind of GPU."""
        decision, text = self.decision, self.text
        parts: list[Html | dict[str, Any]] = [tables.memory_table(decision, text), tables.plan_list(decision, text)]
        if len(decision.each_gpu):
            figure = figures.memory_by_gpu(_with_fewer_gpus(decision), text)
            parts.append({key: value for key, value in figure.items() if key != "turn"})
        return Section("memory", text, *parts)

    def time(self) -> Section:
        """How long it takes, and on what the time goes."""
        decision, text = self.decision, self.text
        parts: list[Html | dict[str, Any]] = [sections.time_of(decision, text)]
        if decision.best is not None:
            if decision.scenario.is_training and "compute_s" in decision.best:
                parts.append(figures.step_time(decision, text, count=6))
            parts.append(figures.time_and_cost(decision, text))
        return Section("time", text, *parts)

    def cost(self) -> Section:
        """What the best offers cost, by part."""
        decision, text = self.decision, self.text
        if decision.best is None:
            return Section("cost", text, tables.empty(text("table.nothing_fits")))
        return Section("cost", text, figures.cost_of_offers(decision, text, count=8))

    def shortlist(self) -> Section:
        """The offers to look at first."""
        return Section("shortlist", self.text, tables.ranking_table(self.decision, self.text, rows=SHORTLIST))

    def changes(self) -> Section:
        """What would change the answer, and what would help."""
        text, found = self.text, self.movers
        parts: list[Html | dict[str, Any]] = []
        if found:
            serving = self.scenario.workload == "serve"
            parts += [sections.tornado(found, cost_of(self.decision), text, serving=serving)]
            parts += [sections.movers_table(found, text)]
        parts += [tag("h3", text("card.remedies.title")), remedy_list(self.decision, text)]
        return Section("changes", text, *parts)

    def sources(self) -> Section:
        """Accuracy so far, assumptions with their sources, prices with their days, and how to repeat this."""
        from gpuguide import __version__

        text = self.text
        return Section(
            "sources",
            text,
            tag("h3", text("report.accuracy")),
            sections.accuracy_table(self.accuracy(), text),
            tag("h3", text("report.prices")),
            sections.prices(self.decision, text),
            tag("h3", text("report.assumptions")),
            sections.assumptions_table(self.decision, self.assumed, text),
            tag("h3", text("report.repeat")),
            sections.repeat(self.scenario, text, version=__version__, address=ADDRESS),
        )

    def accuracy(self) -> dict[str, TableScore]:
        """Scores of the measurements that are about this kind of job."""
        scenario = self.scenario
        kind = "training" if scenario.is_training else scenario.workload
        found = {name: score_of(self.catalog, name) for name in TABLES[kind]}
        return {name: score for name, score in found.items() if score is not None and score.scored}

    def summary(self) -> dict[str, Any]:
        """What an index page says of this report, plain values."""
        best = self.decision.best
        said: dict[str, Any] = {
            "title": self.title,
            "workload": self.scenario.workload,
            "model": self.decision.question.model.name,
            "verdict": verdict(self.decision, self.text),
            "fit": "no" if best is None else str(best["fit"]),
        }
        if best is not None:
            said |= {
                "provider": str(best["provider"]), "gpu": str(best["gpu"]), "gpus": int(best["gpus"]),
                "nodes": int(best["nodes"]), "usd_per_hour": float(best["usd_per_hour"]),
                "hours": float(best["hours_typical"]),
                "cost_usd": [float(best[f"cost_total_{band}_usd"]) for band in ("low", "typical", "high")],
            }  # fmt: skip
            million = best.get("usd_per_million_tokens")
            if million is not None and self.scenario.workload == "serve":
                said["usd_per_million_tokens"] = float(million)
        return said


def _with_fewer_gpus(decision: Decision) -> Decision:
    """The decision with only as many kinds of GPU as fit one page: the best, and every so many of the rest."""
    each = decision.each_gpu
    if len(each) <= MOST_GPUS:
        return decision
    rest = np.linspace(FIRST_GPUS, len(each) - 1, MOST_GPUS - FIRST_GPUS).round().astype(int)
    few = copy.copy(decision)
    vars(few)["each_gpu"] = each[[*range(FIRST_GPUS), *np.unique(rest)]]
    return few


NOTEBOOK = ("In", "Out", "exit", "quit", "open", "get_ipython", "Report", "report")
"""Names that a kernel or the notebook itself defines."""


@lru_cache(maxsize=4)
def catalog_for(assumptions: str = "", today: str = "") -> Catalog:
    """The shipped catalog, with the user's own assumptions and day where given; kept while the kernel lives."""
    from gpuguide.catalog.catalog import Catalog, load_catalog
    from gpuguide.catalog.own import with_assumptions

    catalog = Catalog(today=dt.date.fromisoformat(today)) if today else load_catalog()
    return with_assumptions(catalog, Path(assumptions)) if assumptions else catalog


@lru_cache(maxsize=64)
def score_of(catalog: Catalog, name: str) -> TableScore | None:
    """Figures of one table of measurements; None where there is no such table yet."""
    from gpuguide.accuracy.report import score_folder

    try:
        return score_folder(catalog, only=name).by_table().get(name)
    except GuideError:
        return None


__all__: Sequence[str] = ["Report", "Section"]
