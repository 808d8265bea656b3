"""How prices of GPUs moved: median and least over time, as a chart and a table; a sentence where there is no trend."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpuguide.catalog.trend import OFFER, market_trend
from gpuguide.show import figures
from gpuguide.show.figures import Figure
from gpuguide.show.html import Html
from gpuguide.show.tables import Column, bold, empty, html_table
from gpuguide.show.theme import token
from gpuguide.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_LINES = len(figures.SERIES)
"""GPUs in one picture."""
MOST_DATES = 4
"""So many dates fit beside each other on a phone."""


def trends(rows: pd.DataFrame, gpus: Sequence[str], pricing: str) -> dict[str, pd.DataFrame]:
    """Trend of each GPU that has one; of the GPUs whose prices were read most often when none are asked for."""
    rows = rows[rows.duplicated(OFFER, keep=False)]
    names = gpus or rows["gpu"].value_counts().index.tolist()
    found: dict[str, pd.DataFrame] = {}
    for name in names:
        trend = market_trend(rows, gpu=name, pricing=pricing)
        if len(trend):
            found[name] = trend
        if len(found) == MOST_LINES:
            break
    return found


def chart(found: Mapping[str, pd.DataFrame], text: Text) -> Figure:
    """Median and least price of a GPU-hour, one colour a GPU."""
    rate = float(text.currency_per_usd or 1.0)
    data: list[dict[str, Any]] = []
    for (colour, _), (gpu, trend) in zip(figures.SERIES, found.items(), strict=False):
        offers = [text("trend.offers", count=int(count), all=text.count(count)) for count in trend["offers"]]
        for key, column, dash in (("trend.median", "typical", "solid"), ("trend.least", "low", "dot")):
            words = [
                f"{text(key, gpu=gpu)}, {text.date(day)}<br>{text.money(usd)} · {count}"
                for day, usd, count in zip(trend["as_of"], trend[column], offers, strict=True)
            ]
            data.append(
                {
                    "type": "scatter", "mode": "lines+markers", "name": gpu, "text": words,
                    "showlegend": dash == "solid",
                    "x": trend["as_of"].tolist(), "y": figures.plain(trend[column] * rate),
                    "line": {"color": token(colour), "width": 2.5, "dash": dash, "shape": "hv"},
                    "marker": {"size": 7, "color": token(colour)}, "hovertemplate": "%{text}<extra></extra>",
                }
            )  # fmt: skip
    days = sorted({day for trend in found.values() for day in trend["as_of"]})
    ticks = _apart(days)
    layout = figures.layout_of(text, height=380)
    layout["xaxis"] |= {"type": "date", "tickvals": ticks, "tickangle": 0}
    layout["xaxis"]["ticktext"] = [text.date(day) for day in ticks]
    title = {"text": text("trend.per_gpu_hour", currency=text.currency)}
    layout["yaxis"] |= {"title": title, "rangemode": "tozero", **figures.money_axis(text)}
    return figures.figure(data, layout, text("trend.label", count=len(found), first=days[0], last=days[-1]))


def _apart(days: Sequence[str]) -> list[str]:
    """Days far enough from each other for their words to stand side by side."""
    first, last = dt.date.fromisoformat(days[0]), dt.date.fromisoformat(days[-1])
    kept: list[dt.date] = []
    for day in map(dt.date.fromisoformat, days):
        if not kept or (day - kept[-1]) * (MOST_DATES - 1) >= last - first:
            kept.append(day)
    return [day.isoformat() for day in kept]


def table(found: Mapping[str, pd.DataFrame], text: Text) -> Html:
    """The same in numbers."""
    rows = pd.concat([trend.assign(gpu=gpu) for gpu, trend in found.items()])
    columns = [
        Column("market.gpu", rows["gpu"].tolist()),
        Column("market.as_of", [text.date(day) for day in rows["as_of"]]),
        Column("trend.median_head", [bold(text.money(usd)) for usd in rows["typical"]], number=True),
        Column("trend.least_head", [text.money(usd) for usd in rows["low"]], number=True),
        Column("market.offers", [text.count(count) for count in rows["offers"]], number=True),
    ]
    return html_table(text, caption=text("trend.caption"), columns=columns)


def none_yet(rows: pd.DataFrame, gpus: Sequence[str], text: Text) -> Html:
    """Why there is no line: every price here was read once."""
    chosen = rows[rows["gpu"].isin(gpus)] if gpus else rows
    if chosen.empty:
        return empty(text("market.nothing"))
    oldest, newest = text.date(chosen["as_of"].min()), text.date(chosen["as_of"].max())
    return empty(text("trend.none", count=text.count(len(chosen)), oldest=oldest, newest=newest))
