"""The bill of the best offer, part by part: a waterfall and the same as a table, both adding up to the last digit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from babel.numbers import get_currency_precision

from gpuguide.show import figures
from gpuguide.show.figures import Figure
from gpuguide.show.html import NOTHING, Html, tag
from gpuguide.show.tables import Column, bold, empty, html_table
from gpuguide.show.theme import token
from gpuguide.text import Text

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision

ORDER = (
    "compute", "discount", "setup", "rounding", "minimum", "interruptions", "checkpoints", "idle", "storage", "egress",
)  # fmt: skip
"""From what a renter thinks of first to what comes on top."""
COLOURS = {"discount": "fits", "minimum": "rounding", "total": "accent"}
SMALL = 1.0
"""Below this total, cents alone would hide the parts: two more digits are shown."""
ROW = 34


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """
    Parts of a cost that add up as they are shown.

    `parts` and `total` are in the shown currency, rounded to `places` decimals; `best` is the offer's row.
    """

    parts: Mapping[str, float]
    total: float
    places: int
    best: Mapping[str, Any]
    list_usd_per_hour: float | None  # on demand, where another way to pay is cheaper

    def said(self, amount: float, text: Text) -> str:
        """An amount with every shown digit."""
        return text.exact_money(amount, self.places)


def bill(decision: Decision, text: Text) -> Bill | None:
    """The bill of the best offer; None where nothing fits."""
    best = decision.first
    if best is None:
        return None
    usd = {part: float(best[f"cost_{part}_usd"]) for part in figures.COST_PARTS}
    least = float(best.get("minimum_charge_usd") or 0.0)
    usd["minimum"], usd["rounding"] = least, usd["rounding"] - least
    total = sum(usd.values())
    on_demand = _list_price(decision, best)
    if on_demand is not None:
        paid = usd["compute"]
        usd["compute"] = paid * on_demand / float(best["usd_per_hour"])
        usd["discount"] = paid - usd["compute"]
    rate = float(text.currency_per_usd or 1.0)
    places = get_currency_precision(text.currency) + (2 if total * rate < SMALL else 0)
    values = shared_out([usd.get(part, 0.0) * rate for part in ORDER], places)
    parts = {part: value for part, value in zip(ORDER, values, strict=True) if value or part == "compute"}
    return Bill(parts=parts, total=round(total * rate, places), places=places, best=best, list_usd_per_hour=on_demand)


def shared_out(amounts: Sequence[float], places: int) -> list[float]:
    """
    Amounts rounded so that they add up to their rounded sum: what rounding leaves goes to those that lost most.

    Examples
    --------
    >>> shared_out([0.333, 0.333, 0.334], 2)
    [0.33, 0.33, 0.34]
    """
    units = np.asarray(amounts, dtype=np.float64) * 10.0**places
    whole = np.floor(units)
    left = int(round(float(units.sum())) - whole.sum())
    if left > 0:
        whole[np.argsort(whole - units, kind="stable")[:left]] += 1
    return [float(round(value / 10.0**places, places)) for value in whole]


def waterfall(decision: Decision, text: Text) -> Figure:
    """Each part starts where the one before ended; the last bar is the whole."""
    found = bill(decision, text)
    parts = dict(found.parts) | {"total": found.total} if found else {}
    names = [_name(part, text) for part in parts]
    ends = np.cumsum(list(parts.values()))
    starts = [0.0 if part == "total" else end - value for (part, value), end in zip(parts.items(), ends, strict=True)]
    labels = (
        [f"{name}  {found.said(parts[part], text)}" for name, part in zip(names, parts, strict=True)] if found else []
    )
    hover = (
        [f"{label}<br>{_why(found, part, text)}" for label, part in zip(labels, parts, strict=True)] if found else []
    )
    data = [
        {
            "type": "bar", "orientation": "h", "y": labels, "x": list(parts.values()), "base": starts,
            "text": hover, "hovertemplate": "%{text}<extra></extra>", "textposition": "none",
            "marker": {"color": [token(COLOURS.get(part, part)) for part in parts]},
        }
    ]  # fmt: skip
    layout = figures.layout_of(text, height=70 + ROW * max(len(parts), 3), rows=labels)
    layout["xaxis"] |= {
        "title": {"text": figures.cost_title(decision, text)}, "rangemode": "tozero", **figures.money_axis(text)
    }  # fmt: skip
    line = {"color": token("mute"), "width": 1, "dash": "dot"}
    layout["shapes"] = [
        {"type": "line", "x0": end, "x1": end, "y0": row + 0.35, "y1": row + 0.65, "line": line}
        for row, end in enumerate(ends[:-1])
    ]
    total = found.said(found.total, text) if found else text("not_known")
    return figures.figure(data, layout, text("bill.label", count=max(len(parts) - 1, 0), total=total))


def bill_table(decision: Decision, text: Text) -> Html:
    """The same in numbers, and what each part is for."""
    found = bill(decision, text)
    if found is None:
        return empty(text("table.nothing_fits"))
    rows = dict(found.parts) | {"total": found.total}
    columns = [
        Column("bill.part", [_name(part, text) for part in rows]),
        Column("bill.amount", [bold(found.said(value, text)) for value in rows.values()], number=True),
        Column(
            "table.share", [NOTHING if share is None else text.percent(share) for share in _shares(rows)], number=True
        ),
        Column("bill.why", [tag("span", _why(found, part, text)) for part in rows]),
    ]
    who, what = text.name("option.providers", found.best["provider"]), found.best
    machine = figures.machine_name(str(what["gpu"]), float(what["gpus"]), float(what["nodes"]))
    ends = text.band("money", what["cost_total_low_usd"], what["cost_total_high_usd"])
    caption = text("bill.caption", machine=machine, provider=who, range=ends)
    return html_table(
        text, caption=caption, columns=columns, row_class=["total" if part == "total" else "" for part in rows]
    )


def _shares(rows: Mapping[str, float]) -> list[float | None]:
    """Shares of what is paid in the end: work counts after its discount, which has none of its own."""
    paid = {part: value for part, value in rows.items() if part != "discount"}
    paid["compute"] += rows.get("discount", 0.0)
    return [paid[part] / (rows["total"] or 1.0) if part in paid else None for part in rows]


def _name(part: str, text: Text) -> str:
    return text(f"cost.{part}")


def _why(found: Bill, part: str, text: Text) -> str:
    best = found.best
    paid = float(best["usd_per_hour"])
    hourly = paid if found.list_usd_per_hour is None else found.list_usd_per_hour
    values = {
        "hours": text.hours(float(best["cost_compute_usd"]) / paid),
        "price": text.money(hourly),
        "paid": text.money(paid),
        "count": text.number(float(best.get("expected_interruptions") or 0.0), 2),
        "share": text.percent(1.0 - paid / hourly),
        "pricing": text.name("option.pricing", best["pricing"]),
    }
    stopped = best.get("total_if_stopped")
    if part == "idle" and stopped is not None and stopped < best["cost_total_typical_usd"]:
        return text("bill.why_idle_stopped", stopped=text.money(float(stopped)))
    return text(f"bill.why_{part}", **values)


def _list_price(decision: Decision, best: Mapping[str, Any]) -> float | None:
    """On demand, the same machines at the same provider, where that is dearer than how they are paid for here."""
    if best["pricing"] == "on_demand":
        return None
    offers = decision.question.market
    same = np.ones(len(offers), dtype=np.bool_)
    for column in ("provider", "gpu", "gpus", "nodes", "region", "kind"):
        same &= offers.values(column) == best[column]
    same &= offers.equal("pricing", "on_demand")
    very = same & offers.equal("instance_type", best["instance_type"])
    same = very if very.any() else same  # some providers give spot machines a name of their own
    prices = offers.numbers("usd_per_hour")[same]
    return float(prices.min()) if len(prices) and prices.min() > float(best["usd_per_hour"]) else None
