"""Tables as HTML, every cell escaped, numbers in the reader's form; and the same rows for a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.decide.market import OK_DAYS
from gpuguide.decide.scarcity import SCARCE_PROVIDERS
from gpuguide.estimate.results import PARTS
from gpuguide.show.figures import SHOWN, best_rows, machine_name
from gpuguide.show.html import Html, join, tag
from gpuguide.show.market import age
from gpuguide.text import Text

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.columns import Columns
    from gpuguide.decide.decision import Decision

COSTS = ("cost_total_low_usd", "cost_total_typical_usd", "cost_total_high_usd")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: text key of its head, cells, whether numbers are aligned right, and whether a phone shows it."""

    key: str
    cells: Sequence[str]
    number: bool = False
    phone: bool = True

    @property
    def mark(self) -> str | None:
        """CSS classes of its cells."""
        names = [name for name, wanted in (("n", self.number), ("wide-only", not self.phone)) if wanted]
        return " ".join(names) or None


def html_table(text: Text, *, caption: str, columns: Sequence[Column], row_class: Sequence[str] = ()) -> Html:
    """A table in a box that scrolls by keyboard too."""
    marks = [column.mark for column in columns]
    head = [tag("th", text(column.key), scope="col", class_=mark) for column, mark in zip(columns, marks, strict=True)]
    body = [
        tag(
            "tr",
            [tag("td", cell, class_=mark) for cell, mark in zip(row, marks, strict=True)],
            class_=(row_class[index] if row_class else "") or None,
        )
        for index, row in enumerate(zip(*(column.cells for column in columns), strict=True))
    ]
    table = tag("table", tag("caption", caption), tag("thead", tag("tr", head)), tag("tbody", body))
    return tag("div", table, class_="gg-scroll", tabindex="0", role="region", aria_label=caption)


def ranking_table(decision: Decision, text: Text, rows: int = SHOWN) -> Html:
    """The best offers, one a row: where, what, how well it fits, how long, how much, how old the price is."""
    total = len(decision.best_first)
    if not total:
        return empty(text("table.nothing_fits"))
    table = best_rows(decision, rows)
    caption = text("table.ranking_caption", shown=text.count(len(table)), count=total, all=text.count(total))
    fit = _rows(table, "fit", "usable_bytes", "memory_total_typical_bytes")
    columns = [
        Column("table.provider", [_provider(text, *row) for row in _rows(table, "provider", "region")]),
        Column(
            "table.machine",
            [_machine(text, *row) for row in _rows(table, "gpu", "gpus", "nodes", "instance_type", "providers")],
        ),
        Column("table.fit", [_fit(text, *row) for row in fit]),
        Column(
            "table.per_hour", [_per_hour(text, *row) for row in _rows(table, "usd_per_hour", "pricing")], number=True
        ),
        *_work_columns(decision, table, text),
        Column(_cost_key(decision), [_cost(text, *row) for row in _rows(table, *COSTS)], number=True),
        Column("table.as_of", [_age(text, *row) for row in _rows(table, "as_of", "age_days", "source")]),
    ]
    return html_table(
        text, caption=caption, columns=columns, row_class=["front" if best else "" for best in table.values("pareto")]
    )


def _work_columns(decision: Decision, table: Columns, text: Text) -> list[Column]:
    if decision.scenario.workload == "serve":
        million = [text.money(value) for value in table.values("usd_per_million_tokens").tolist()]
        speed = [
            join([text.number(rate), tag("small", text("table.each_token", time=text.duration(seconds)))])
            for rate, seconds in _rows(table, "tokens_per_s_typical", "tpot_s_typical")
        ]
        return [
            Column("table.tokens_per_s", speed, number=True),
            Column("table.per_million", million, number=True),
        ]
    time = [Column("table.time", [text.hours(value) for value in table.values("hours_typical").tolist()], number=True)]
    if decision.scenario.is_media:
        thousand = [text.money(value) for value in table.values("usd_per_1000_items").tolist()]
        time.append(Column("table.per_thousand", thousand, number=True))
    return time


def _cost_key(decision: Decision) -> str:
    return "table.cost_month" if decision.scenario.workload == "serve" else "table.cost_run"


def memory_table(decision: Decision, text: Text) -> Html:
    """Memory of the best plan by parts: least, typical, most; the numbers behind the bars."""
    memory = decision.memory
    if memory is None:
        return empty(text("table.no_plan"))
    bands = {part: _band(getattr(memory, part)) for part in PARTS}
    bands = {part: band for part, band in bands.items() if band[2] > 0}
    bands["total"] = _band(memory.total)
    whole = bands["total"][1] or 1.0
    columns = [
        Column("table.part", [tag("span", _swatch(part), text(f"part.{part}"), class_="gg-nowrap") for part in bands]),
        Column("table.least", [text.gib(band[0]) for band in bands.values()], number=True, phone=False),
        Column("table.typical", [bold(text.gib(band[1])) for band in bands.values()], number=True),
        Column("table.most", [text.gib(band[2]) for band in bands.values()], number=True),
        Column("table.share", [text.percent(band[1] / whole) for band in bands.values()], number=True),
    ]
    best = decision.first
    caption = text("table.memory_caption_none")
    if best is not None:
        caption = text("table.memory_caption", machine=f"{int(best['gpus'])}× {best['gpu']}")
    return html_table(
        text, caption=caption, columns=columns, row_class=["total" if part == "total" else "" for part in bands]
    )


def funnel(decision: Decision, text: Text) -> Html:
    """Offers that are left after each question, in the order in which they are asked."""
    most = max((remaining for _, remaining in decision.funnel), default=1) or 1
    return tag(
        "ol",
        [
            tag(
                "li",
                tag("span", text.name("funnel", step), class_="gg-step"),
                tag(
                    "span", tag("i", style=f"width:{100 * remaining / most:.1f}%"), class_="gg-bar", aria_hidden="true"
                ),
                bold(text.count(remaining)),
            )
            for step, remaining in decision.funnel
        ],
        class_="gg-funnel",
    )


ALONE = {
    "data_parallel": 1, "tensor_parallel": 1, "pipeline_parallel": 1, "context_parallel": 1, "expert_parallel": 1,
    "virtual_pipeline": 1, "zero_stage": 0,
}  # fmt: skip
"""What a plan says when nothing is split."""


def plan_list(decision: Decision, text: Text) -> Html:
    """The plan behind the best offer, only what differs from one plain GPU."""
    best = decision.first
    if best is None:
        return empty(text("table.no_plan"))
    plan: Mapping[str, Any] = best["plan"]
    items = []
    for key, value in plan.items():
        serving = decision.scenario.workload == "serve" and key == "micro_batch"
        if value in (ALONE.get(key), None, False, "none") or serving or not text.has(f"plan.{key}"):
            continue
        shown = text.name(f"option.{key}", value) if isinstance(value, str) else text.count(value)
        items.append([tag("dt", text(f"plan.{key}")), tag("dd", text("option.yes") if value is True else shown)])
    if "data_needed_bytes_per_s" in best:
        needed, available = (text.memory(best[f"data_{name}_bytes_per_s"]) for name in ("needed", "available"))
        items.append([tag("dt", text("plan.data")), tag("dd", text("plan.reads", needed=needed, available=available))])
    return tag("dl", items, class_="gg-plan") if items else empty(text("plan.plain"))


def as_csv(frame: pd.DataFrame) -> bytes:
    """A ranking for a spreadsheet or a script: plain numbers, units in the names."""
    return frame.to_csv(index=False).encode("utf-8")


# ---- cells -----------------------------------------------------------------------------------------------------------


def empty(sentence: str) -> Html:
    """A sentence in place of a table."""
    return tag("p", sentence, class_="gg-empty")


def bold(shown: str) -> Html:
    """A cell that stands out."""
    return tag("b", shown)


def badge(text: Text, fit: str) -> Html:
    """Fits, tight or does not fit."""
    return tag("span", text(f"fit.{fit}"), class_=f"gg-badge {fit}")


def _rows(table: Columns, *columns: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(table.values(column).tolist() for column in columns), strict=True)


def _machine(text: Text, gpu: str, gpus: float, nodes: float, instance_type: str, providers: float) -> Html:
    rare = providers < SCARCE_PROVIDERS
    scarce = [" ", tag("span", text("market.scarce"), class_="gg-badge tight")] if rare else None
    name = tag("span", machine_name(gpu, gpus, nodes), class_="gg-machine")
    return join([name, scarce, tag("small", instance_type or "")])


def _provider(text: Text, name: str, region: str) -> Html:
    return join(
        [
            tag("b", text.name("option.providers", name)),
            tag("small", text("table.any_region") if region in ("*", "") else region),
        ]
    )


def _per_hour(text: Text, usd: float, pricing: str) -> Html:
    return join([text.money(usd), tag("small", text.name("option.pricing", pricing))])


def _cost(text: Text, low: float, typical: float, high: float) -> Html:
    return join([bold(text.money(typical)), tag("small", text.band("money", low, high))])


def _fit(text: Text, fit: str, usable: float, need: float) -> Html:
    return join([badge(text, fit), tag("small", text("table.spare", spare=text.memory(max(0.0, usable - need))))])


def _age(text: Text, as_of: Any, age_days: float, source: str) -> Html:
    mark = [" ", age(age_days, text)] if age_days >= OK_DAYS else None
    return join([tag("span", text.date(as_of), title=source), mark])


def _swatch(part: str) -> Html | None:
    return None if part == "total" else tag("i", class_="gg-swatch", style=f"background:var(--gg-{part})")


def _band(value: Any) -> tuple[float, float, float]:
    band = np.broadcast_to(np.asarray(value, dtype=np.float64).reshape(-1), (3,))
    return float(band[0]), float(band[1]), float(band[2])
