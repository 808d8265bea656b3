"""Several decisions side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpuguide.catalog.carried import is_carried
from gpuguide.errors import short
from gpuguide.show import figures
from gpuguide.show.architecture import architecture_table
from gpuguide.show.figures import Figure
from gpuguide.show.html import NOTHING, Html, button, join, tag
from gpuguide.show.tables import badge, bold, empty
from gpuguide.show.verdict import machine
from gpuguide.text import Text

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision

SAID = (
    "weight_format",
    "kv_format",
    "max_context",
    "concurrency",
    "sequence_length",
    "lora_rank",
    "pricing",
    "gpu",
    "gpus",
)
"""Keys that tell scenarios apart, in the order in which they are said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One scenario: its place on the page, its answer, and where its own page is."""

    place: str
    decision: Decision
    link: str


def names(entries: Sequence[Entry], text: Text) -> list[str]:
    """What each scenario is, by model and job and by what differs from the others."""
    scenarios = [entry.decision.scenario for entry in entries]
    differ = [key for key in SAID if len({str(getattr(scenario, key)) for scenario in scenarios}) > 1]
    found = []
    for entry, scenario in zip(entries, scenarios, strict=True):
        parts = [f"{short(entry.decision.question.model.name, 40)}, {text.name('option.workload', scenario.workload)}"]
        for key in differ:
            value = getattr(scenario, key)
            if value in (None, ()):
                continue
            shown = text.exact(value) if isinstance(value, int | float) else text.name(f"option.{key}", _plain(value))
            parts.append(text(f"compare.by.{key}", value=shown))
        found.append(", ".join(parts))
    return found


def table(entries: Sequence[Entry], text: Text) -> Html:
    """One column a scenario, one row a figure."""
    if not entries:
        return empty(text("compare.empty"))
    bests = [entry.decision.first for entry in entries]
    said = names(entries, text)
    heads = [
        join(
            [
                tag("a", name, href=f"{entry.link}&language={text.language}"),
                " ",
                button("×", class_="gg-tool", data_set={entry.place: ""}, aria_label=text("compare.remove", what=name)),
            ]
        )
        for entry, name in zip(entries, said, strict=True)
    ]
    serving = any(entry.decision.scenario.workload == "serve" for entry in entries)
    rows: list[tuple[str, list[Any]]] = [
        ("table.fit", [badge(text, "no" if best is None else str(best["fit"])) for best in bests]),
        (
            "compare.rent",
            [
                NOTHING
                if best is None
                else join([bold(machine(best)), tag("small", text.name("option.providers", best["provider"]))])
                for best in bests
            ],
        ),
        ("table.per_hour", [_cell(best, "usd_per_hour", text.money) for best in bests]),
        ("compare.memory", [_band(best, "memory_total_{}_bytes", "memory", text) for best in bests]),
    ]
    if serving:
        rows += [
            ("table.tokens_per_s", [_band(best, "tokens_per_s_{}", "number", text) for best in bests]),
            ("table.per_million", [_cell(best, "usd_per_million_tokens", text.money) for best in bests]),
        ]
    if not all(entry.decision.scenario.workload == "serve" for entry in entries):
        rows.append(("table.time", [_time(entry, best, text) for entry, best in zip(entries, bests, strict=True)]))
    month = all(entry.decision.scenario.workload == "serve" for entry in entries)
    rows.append(
        (
            "table.cost_month" if month else "table.cost_run",
            [_band(best, "cost_total_{}_usd", "money", text) for best in bests],
        )
    )
    head = tag("tr", tag("th", text("compare.what"), scope="col"), [tag("th", cell, scope="col") for cell in heads])
    body = [tag("tr", tag("th", text(key), scope="row"), [tag("td", cell) for cell in cells]) for key, cells in rows]
    whole = tag(
        "table", tag("caption", text("compare.label")), tag("thead", head), tag("tbody", body), class_="gg-compare"
    )
    return tag("div", whole, class_="gg-scroll", tabindex="0", role="region", aria_label=text("compare.label"))


def memory(entries: Sequence[Entry], text: Text) -> Figure:
    """Memory of each scenario's best plan on one GPU."""
    pairs = [(name, entry.decision) for name, entry in zip(names(entries, text), entries, strict=True)]
    return figures.memory_of_variants(pairs, text)


def cost(entries: Sequence[Entry], text: Text) -> Figure:
    """Cost of each scenario's best offer, by parts."""
    rows = [
        entry.decision.first | {"provider": name}
        for name, entry in zip(names(entries, text), entries, strict=True)
        if entry.decision.first is not None
    ]
    frame = pd.DataFrame(rows) if rows else pd.DataFrame(columns=_COLUMNS)
    return figures.cost_bars(frame, text, title=text("chart.run_cost"), count=max(len(rows), 3), between="<br>")


def architectures(entries: Sequence[Entry], text: Text) -> Html:
    """What each scenario's model is; a model that stands in several is shown once."""
    questions = {entry.decision.question.model: entry.decision.scenario.model for entry in entries}
    return architecture_table([(model, is_carried(name)) for model, name in questions.items()], text)


_COLUMNS = [
    "provider", "gpu", "gpus", "nodes", *(f"cost_{part}_usd" for part in figures.COST_PARTS),
    *(f"cost_total_{band}_usd" for band in ("low", "typical", "high")),
]  # fmt: skip


def _plain(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _cell(best: Any, column: str, form: Any) -> str:
    return NOTHING if best is None else form(best.get(column))


def _band(best: Any, template: str, form: str, text: Text) -> Any:
    if best is None or template.format("typical") not in best:
        return NOTHING
    low, typical, high = (best[template.format(band)] for band in ("low", "typical", "high"))
    return join([bold(text.form(form, typical)), tag("small", text.band(form, low, high))])


def _time(entry: Entry, best: Any, text: Text) -> Any:
    if entry.decision.scenario.workload == "serve":
        return NOTHING
    return _band(best, "hours_{}", "hours", text)
