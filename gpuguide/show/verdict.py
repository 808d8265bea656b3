"""The answer in one sentence, the tiles under it, and what a reader should know before acting."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuguide.show.figures import machine_name
from gpuguide.show.html import NOTHING, Html, tag
from gpuguide.show.tables import badge
from gpuguide.text import Text

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision

ATTRIBUTION = "GPU rental price data by gpurentalprices.com, CC BY 4.0"
SUREST = 0.99
"""The rate of interruptions is an assumption: no run is more certain to be in time. [-]"""


def verdict(decision: Decision, text: Text) -> str:
    """One sentence: what to rent, how well it fits, how long it takes, what it costs; or what is missing."""
    best = decision.first
    if best is None:
        return _nothing(decision, text)
    spare = text.memory(max(0.0, best["usable_bytes"] - best["memory_total_typical_bytes"]))
    values: dict[str, Any] = {
        "machine": machine(best),
        "provider": text.name("option.providers", best["provider"]),
        "price": text.money(best["usd_per_hour"]),
        "cost": text.band("money", best["cost_total_low_usd"], best["cost_total_high_usd"]),
        "fit": text(f"verdict.{best['fit']}", spare=spare),
    }
    if decision.scenario.workload == "serve":
        speed, million = text.number(best["tokens_per_s_typical"]), text.money(best["usd_per_million_tokens"])
        return text("verdict.serve", **values, speed=speed, million=million)
    key = "verdict.media" if decision.scenario.is_media else "verdict.train"
    return text(key, **values, time=text.hours(best["hours_typical"]))


def _nothing(decision: Decision, text: Text) -> str:
    said = decision.verdict
    if said["key"] == "verdict_no":
        missing = text.memory(float(said["missing_bytes"]))
        return text("verdict.none_missing", machine=machine({"nodes": 1} | dict(said)), missing=missing)
    if said["key"] == "verdict_no_offer":
        return text("verdict.none_left", step=text.name("funnel", said["dropped_by"]))
    return text("verdict.no_plan")


def machine(row: Any) -> str:
    """What to rent, by its GPUs."""
    return machine_name(str(row["gpu"]), float(row["gpus"]), float(row["nodes"]))


def verdict_box(decision: Decision, text: Text) -> Html:
    """The sentence as the page shows it, marked by how good the news is."""
    best = decision.first
    state = "no" if best is None else str(best["fit"])
    return tag("p", badge(text, state), " ", verdict(decision, text), class_=f"gg-verdict {state}")


def tiles(decision: Decision, text: Text) -> Html:
    """Four figures under the verdict."""
    best = decision.first
    row = decision.nearest
    serving = decision.scenario.workload == "serve"
    where = "" if row is None else machine(row)
    items = [
        _tile(text, row, "memory", "memory_total_{}_bytes", text("tile.memory", machine=where)),
        _tile(text, best, "money", "cost_total_{}_usd", text("tile.month" if serving else "tile.run")),
    ]
    if serving:
        million = NOTHING if best is None else text.money(best["usd_per_million_tokens"])
        items.append(_tile(text, best, "number", "tokens_per_s_{}", text("tile.tokens_per_s")))
        items.append(_plain_tile(million, text("tile.per_million")))
    else:
        left, all_offers = len(decision.best_first), max((count for _, count in decision.funnel), default=0)
        items.append(_tile(text, best, "hours", "hours_{}", _time_name(best, text)))
        if decision.scenario.is_media:
            thousand = NOTHING if best is None else text.money(best["usd_per_1000_items"])
            items.append(_plain_tile(thousand, text("tile.per_thousand")))
        else:
            items.append(_plain_tile(text.count(left), text("tile.offers", all=text.count(all_offers))))
    return tag("dl", items, class_="gg-tiles")


def _time_name(best: Any, text: Text) -> str:
    """What the time is of; with a deadline, how likely it is kept."""
    chance = None if best is None else best.get("probability_in_time")
    return text("tile.time") if chance is None else text("tile.time_chance", chance=text.percent(min(chance, SUREST)))


def _tile(text: Text, row: Any, form: str, column: str, name: str) -> Html:
    if row is None:
        return _plain_tile(NOTHING, name)
    low, typical, high = (row[column.format(band)] for band in ("low", "typical", "high"))
    value, ranged = text.form(form, typical), text.band(form, low, high)
    return _plain_tile(value, name, ranged if ranged != value else None)


def _plain_tile(value: str, name: str, ranged: str | None = None) -> Html:
    small = tag("small", ranged) if ranged else None
    return tag("div", tag("dt", name), tag("dd", tag("b", value), small), class_="gg-tile")


def warning(key: str, values: Mapping[str, Any], text: Text) -> str:
    """One of a decision's warnings as a sentence."""
    return text(key, **{**values, "provider": text.name("option.providers", values.get("provider", ""))})


def warnings(decision: Decision, text: Text) -> Html | None:
    """What a reader should know before acting, one sentence each."""
    said = [tag("li", warning(key, values, text)) for key, values in decision.warnings]
    return tag("ul", said, class_="gg-warnings") if said else None


def prices_of(decision: Decision) -> tuple[dt.date | None, dt.date | None]:
    """Oldest and newest price of the market that was asked."""
    dates = {str(day)[:10] for day in decision.question.market.codes("as_of")[1] if day}
    if not dates:
        return None, None
    return dt.date.fromisoformat(min(dates)), dt.date.fromisoformat(max(dates))


def footer(decision: Decision | None, text: Text) -> Html:
    """Where prices come from and how old they are."""
    dated = None
    if decision is not None:
        oldest, newest = prices_of(decision)
        dated = tag("p", text("footer.dates", oldest=text.date(oldest), newest=text.date(newest)))
    link = tag("a", ATTRIBUTION, href="https://gpurentalprices.com", rel="noopener", lang="en")
    sources, estimates = tag("p", link, ". ", text("footer.sources")), tag("p", text("footer.estimates"))
    return tag("footer", dated, sources, estimates, class_="gg-foot")
