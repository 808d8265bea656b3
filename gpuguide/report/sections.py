"""Sections of a report as HTML, from a decision and a language; charts come from `gpuguide.show`."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuguide.report.sensitivity import Move, Mover
from gpuguide.show.html import Html, join, tag
from gpuguide.show.remedies import value_in_words
from gpuguide.show.tables import Column, empty, html_table
from gpuguide.show.theme import FONT, token
from gpuguide.show.verdict import ATTRIBUTION, prices_of
from gpuguide.spec.link import link_of
from gpuguide.spec.scenario import Scenario
from gpuguide.text import SEPARATORS, Text
from gpuguide.units import HOUR

if TYPE_CHECKING:
    from gpuguide.accuracy.table import TableScore
    from gpuguide.decide.decision import Decision

NOT_ASKED = ("workload", "language", "currency", "currency_per_usd")
"""Keys that say how to answer, or that the title names already."""
GIVEN = "given by the user"
"""Source of a constant that `Assumptions.replace` has put in."""


def heading(decision: Decision, text: Text, *, title: str, today: dt.date) -> Html:
    """Title, day and what was decided about."""
    model = decision.question.model.name
    workload = text.name("option.workload", decision.scenario.workload)
    return tag(
        "header",
        tag("p", "gpuguide · ", text.date(today), class_="gg-kicker"),
        tag("h1", title or text("report.title", workload=workload, model=model)),
    )


def asked(given: Scenario, filled: Scenario, text: Text) -> Html:
    """What was set, and what was taken for the rest."""
    own = given.model_dump(exclude_defaults=True)
    own = {key: value for key, value in own.items() if key not in NOT_ASKED and value not in (None, ())}
    rest = {
        key: value
        for key, value in filled.model_dump(exclude_defaults=True).items()
        if key not in own and key not in NOT_ASKED and value not in (None, ())
    }
    workload = {"workload": given.workload}
    parts = [tag("h3", text("report.you_set")), _facts(workload | own, text)]
    if rest:
        parts += [tag("h3", text("report.taken")), _facts(rest, text)]
    return join(parts)


def _facts(values: Mapping[str, Any], text: Text) -> Html:
    return tag(
        "dl",
        [tag("div", tag("dt", label(key, text)), tag("dd", _said(key, value, text))) for key, value in values.items()],
        class_="gg-facts",
    )


def label(key: str, text: Text) -> str:
    """Name of a key of the scenario as the pages have it, with its unit."""
    name = f"control.{key}.label"
    if not text.has(name):
        return text.name("report.key", key)
    unit = f"control.{key}.unit"
    return f"{text(name)} ({text(unit)})" if text.has(unit) else text(name)


def _said(key: str, value: Any, text: Text) -> str:
    if key in ("headroom", "memory_utilization"):
        return text.percent(value)
    if key == "budget_usd":
        return text.money(value)
    return value_in_words(key, value, text)


# ---- what would change the answer ------------------------------------------------------------------------------------


def tornado(found: Sequence[Mover], cost: float, text: Text, *, serving: bool) -> dict[str, Any]:
    """Bars from the cost as it stands to the cost at either end of each input, the widest on top."""
    rate = float(text.currency_per_usd or 1.0)
    names = [mover_name(mover, text) for mover in found]
    base = cost * rate
    data = []
    for end, colour in (("low", "series"), ("high", "series-2")):
        moves: list[Move] = [getattr(mover, end) for mover in found]
        data.append(
            {
                "type": "bar", "orientation": "h", "name": text(f"report.{end}_end"), "y": names, "base": base,
                "x": [None if math.isnan(move.cost) else float(f"{move.cost * rate - base:.4g}") for move in moves],
                "customdata": [
                    [mover_value(mover, move.value, text), text.money(move.cost)]
                    for mover, move in zip(found, moves, strict=True)
                ],
                "hovertemplate": "%{y}: %{customdata[0]}<br>%{customdata[1]}<extra></extra>",
                "marker": {"color": token(colour), "line": {"width": 1, "color": token("card")}},
            }
        )  # fmt: skip
    axis = {
        "gridcolor": token("grid"), "linecolor": token("line"), "zeroline": False, "fixedrange": True,
        "tickfont": {"size": 12}, "automargin": True,
    }  # fmt: skip
    title = text("report.tornado_million" if serving else "report.tornado_cost", currency=text.currency)
    layout = {
        "height": 90 + 34 * max(len(names), 2), "barmode": "overlay", "bargap": 0.3, "showlegend": False,
        "separators": SEPARATORS[text.language], "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": token("ink")}, "margin": {"l": 10, "r": 16, "t": 8, "b": 44},
        "xaxis": axis | {"title": {"text": title}},
        "yaxis": axis | {"categoryorder": "array", "categoryarray": names, "autorange": "reversed"},
        "shapes": [
            {"type": "line", "x0": base, "x1": base, "y0": 0, "y1": 1, "yref": "paper", "line": {"color": token("ink")}}
        ],
    }  # fmt: skip
    narrow = {"font.size": 11, "yaxis.tickfont.size": 10, "margin.r": 6, "margin.l": 8}
    return {"data": data, "layout": layout, "narrow": narrow, "label": text("report.tornado_label", count=len(names))}


def movers_table(found: Sequence[Mover], text: Text) -> Html:
    """The same in numbers: what each input was moved over, the cost at both ends, and who would then come first."""
    columns = [
        Column("report.input", [mover_name(mover, text) for mover in found]),
        Column("report.range", [_range(mover, text) for mover in found], number=True, phone=False),
        Column("report.at_low", [text.money(mover.low.cost) for mover in found], number=True),
        Column("report.at_high", [text.money(mover.high.cost) for mover in found], number=True),
        Column("report.then_first", [_then(mover, text) for mover in found]),
    ]
    return html_table(text, caption=text("report.movers_caption"), columns=columns)


def mover_name(mover: Mover, text: Text) -> str:
    """What was moved, in words."""
    if mover.kind == "input":
        name = f"control.{mover.name}.label"
        return text(name) if text.has(name) else mover.name
    return assumption_name(mover.name, text) if mover.kind == "assumption" else text("report.price")


def assumption_name(name: str, text: Text) -> str:
    """An assumption in words where there are any, else its name in the table."""
    return text.name("report.assumption", name)


def mover_value(mover: Mover, value: float, text: Text) -> str:
    """A value of a mover as read by people."""
    if mover.kind == "price":
        return text.money(value)
    if mover.kind == "input":
        return text.exact(float(f"{value:.4g}"))
    return in_unit(value, mover.unit, text)


def _range(mover: Mover, text: Text) -> str:
    low, high = (mover_value(mover, move.value, text) for move in (mover.low, mover.high))
    return text("report.from_to", low=low, high=high)


def _then(mover: Mover, text: Text) -> str:
    moves = [(end, move) for end, move in (("low", mover.low), ("high", mover.high)) if move.moved]
    if not moves:
        return text("report.same")
    said = []
    for end, move in moves:
        where = text.name("option.providers", move.provider)
        who = text("report.nothing") if move.best is None else f"{move.gpus}× {move.best}, {where}"
        said.append(text(f"report.then_{end}", offer=who))
    return "; ".join(said)


# ---- where the numbers come from -------------------------------------------------------------------------------------


def assumptions_table(decision: Decision, assumed: Sequence[Mover], text: Text) -> Html:
    """Every constant behind the best offer's numbers, with its band and its source."""
    rows = [decision.question.assumptions.rows[mover.name] for mover in assumed]
    if not rows:
        return empty(text("table.nothing_fits"))
    columns = [
        Column("report.input", [assumption_name(row.name, text) for row in rows]),
        Column("report.typical", [in_unit(row.typical, row.unit, text) for row in rows], number=True),
        Column("report.band", [_band(row.low, row.high, row.unit, text) for row in rows], number=True),
        Column("report.source", [_source(row.source, row.calibrated, text) for row in rows]),
    ]
    return html_table(text, caption=text("report.assumptions_caption", count=len(rows)), columns=columns)


def in_unit(value: float, unit: str, text: Text) -> str:
    """A constant with its unit, as people read it."""
    if unit == "s":
        return text.duration(value)
    if unit in ("bytes", "bytes/s") and abs(value) >= 1e6:
        return text.memory(value) + unit.removeprefix("bytes")
    shown = text.compact(value) if abs(value) >= 1e6 else text.number(value)
    return shown if unit in ("-", "1", "") else f"{shown} {unit}"


def _band(low: float, high: float, unit: str, text: Text) -> str:
    first, last = (in_unit(end, unit, text) for end in (low, high))
    if unit not in ("s", "bytes", "bytes/s"):  # the unit stands beside the typical value
        first, last = first.removesuffix(f" {unit}"), last.removesuffix(f" {unit}")
    return text("report.from_to", low=first, high=last)


def _source(source: str, calibrated: bool, text: Text) -> Html:
    if source == GIVEN:
        return tag("span", text("report.given"))
    mark = tag("small", text("report.calibrated")) if calibrated else None
    return join([tag("span", source, lang="en"), mark])


def accuracy_table(scores: Mapping[str, TableScore], text: Text) -> Html:
    """How far such estimates have been from what others measured."""
    if not scores:
        return empty(text("report.not_measured"))
    rows = list(scores.items())
    columns = [
        Column("report.measured", [text.name("report.table", name.replace(":", "_")) for name, _ in rows]),
        Column("report.runs", [text.count(score.scored) for _, score in rows], number=True),
        Column("report.median_error", [text.percent(score.median_abs_error) for _, score in rows], number=True),
        Column("report.p90_error", [text.percent(score.p90_abs_error) for _, score in rows], number=True),
        Column("report.in_band", [text.percent(score.within_band) for _, score in rows], number=True),
    ]
    return html_table(text, caption=text("report.accuracy_caption"), columns=columns)


def prices(decision: Decision, text: Text) -> Html:
    """How old prices are, of the market and of the offers shown, and where they come from."""
    oldest, newest = prices_of(decision)
    best = decision.best
    said = [text("footer.dates", oldest=text.date(oldest), newest=text.date(newest))]
    if best is not None:
        said.insert(0, text("report.price_of_best", as_of=text.date(best["as_of"]), source=best["source"]))
    link = tag("a", ATTRIBUTION, href="https://gpurentalprices.com", lang="en")
    return join([tag("p", " ".join(said)), tag("p", link, ". ", text("footer.sources"))])


def repeat(given: Scenario, text: Text, *, version: str, address: str) -> Html:
    """The scenario as a file and as a link, so that anyone gets the same numbers again."""
    return join(
        [
            tag("p", text("report.repeat_help", version=version)),
            tag("pre", as_toml(given)),
            tag("p", tag("code", link_of(given, address))),
        ]
    )


def as_toml(scenario: Scenario) -> str:
    """A scenario as a TOML file, without keys left to their default."""
    given = {"workload": scenario.workload} | scenario.model_dump(mode="json", exclude_defaults=True)
    return "\n".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in given.items()) + "\n"


def time_of(decision: Decision, text: Text) -> Html:
    """How long it takes, or how fast it answers: least, typical, most."""
    best = decision.best
    if best is None:
        return empty(text("table.nothing_fits"))
    row = best.to_dict()
    lines: list[tuple[str, str]] = []
    for name, form, scale in TIMES:
        if name == "hours" and decision.scenario.workload == "serve":
            continue  # a month, rented whatever the speed
        if f"{name}_typical" in row and row[f"{name}_typical"] == row[f"{name}_typical"]:
            low, typical, high = (row[f"{name}_{band}"] * scale for band in ("low", "typical", "high"))
            ranged = text.band(form, low, high)
            shown = text.form(form, typical)
            lines.append((text(f"report.time.{name}"), shown if ranged == shown else f"{shown} ({ranged})"))
    if row.get("bound"):
        lines.append((text("report.time.bound"), text.name("report.bound", row["bound"])))
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in lines], class_="gg-facts")


TIMES = (
    ("hours", "duration", HOUR), ("step_s", "duration", 1.0), ("tokens_per_s", "number", 1.0), ("mfu", "percent", 1.0),
    ("ttft_s", "duration", 1.0), ("tpot_s", "duration", 1.0), ("queue_s", "duration", 1.0),
    ("batch_s", "duration", 1.0), ("items_per_s", "number", 1.0),
)  # fmt: skip
"""Quantities of time and rate, how they are shown, and what they are multiplied with first."""
