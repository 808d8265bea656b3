"""How far the cards go: the roof over each, what still fits on each, and the rungs from one GPU to a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.decide.ladder import ladder
from gpuguide.decide.limits import limits
from gpuguide.errors import NotModelled
from gpuguide.show import figures
from gpuguide.show.figures import Figure, machine_name
from gpuguide.show.html import NOTHING, Html, join, tag
from gpuguide.show.tables import Column, badge, empty, html_table
from gpuguide.show.theme import token
from gpuguide.text import Text
from gpuguide.units import HOUR, TFLOP

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision

ROOFS = 6
"""Cards whose roof is drawn, best offers first."""


def roofline(decision: Decision, text: Text) -> Figure:
    """Arithmetic per byte against rate: the roof of each card, and where this job sits under it."""
    rows = decision.rows.columns(decision.each_gpu)
    if "intensity_flop_per_byte" in rows:
        known = (rows.values("fit") != "no") & np.isfinite(rows.numbers("intensity_flop_per_byte"))
        rows = rows.at(np.flatnonzero(known)[:ROOFS])
    else:
        rows = rows.at(np.arange(0))
    intensity, ridges = np.ones(1), np.ones(1)
    if len(rows):
        intensity = rows.numbers("intensity_flop_per_byte")
        ridges = rows.numbers("peak_flops_per_s") / rows.numbers("memory_bandwidth_bytes_per_s")
    left, right = min(intensity.min(), ridges.min()) / 4, max(intensity.max(), ridges.max()) * 4
    data: list[dict[str, Any]] = []
    reached: list[float] = []
    for (colour, dash), row, ridge in zip(figures.SERIES * 2, rows.records(), ridges, strict=False):
        peak, bandwidth = row["peak_flops_per_s"], row["memory_bandwidth_bytes_per_s"]
        name = machine_name(row["gpu"], row["gpus"], row["nodes"])
        share = row["achieved_flops_per_s"] / peak
        rate = text.number(row["achieved_flops_per_s"] / TFLOP)
        bound = text.name("limited_by", str(row["bound"]).replace(" ", "_"))
        said = text("chart.roof_point", machine=name, rate=rate, share=text.percent(share), bound=bound)
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": name, "legendgroup": name, "hoverinfo": "skip",
                "x": [left, ridge, right], "y": [left * bandwidth / TFLOP, peak / TFLOP, peak / TFLOP],
                "line": {"color": token(colour), "width": 2, "dash": dash},
            }
        )  # fmt: skip
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": "", "legendgroup": name, "showlegend": False,
                "x": [row["intensity_flop_per_byte"]], "y": [row["achieved_flops_per_s"] / TFLOP], "text": [said],
                "hovertemplate": "%{text}<extra></extra>", "marker": {"size": 11, "color": token(colour)},
            }
        )  # fmt: skip
        reached += [row["achieved_flops_per_s"] / TFLOP, peak / TFLOP]
    layout = figures.layout_of(text, height=420)
    layout["xaxis"] |= {"title": {"text": text("chart.intensity")}, **figures.log_axis([left, right], text.number)}
    layout["yaxis"] = layout["xaxis"] | {
        "title": {"text": text("chart.rate")},
        **figures.log_axis([value for value in reached if value > 0] or [1.0], text.number),
    }
    return figures.figure(data, layout, text("chart.roof_label", count=len(rows)))


def energy_list(decision: Decision, text: Text) -> Html:
    """Electricity and greenhouse gas of the best offer's run, or of a month of serving, with their ranges."""
    best = decision.first
    if best is None:
        return empty(text("table.nothing_fits"))
    items = []
    for name, unit in (("energy", "kwh"), ("co2e", "kg")):
        low, typical, high = (text.number(best[f"{name}_{band}_{unit}"]) for band in ("low", "typical", "high"))
        shown = text(f"energy.{unit}", typical=typical, low=low, high=high)
        items.append([tag("dt", text(f"energy.{name}")), tag("dd", shown)])
    return tag("dl", items, class_="gg-plan")


def limits_table(decision: Decision, text: Text) -> Html:
    """The longest context, the largest batch and the largest model that one GPU of each kind holds."""
    try:
        table = limits(decision.question)
    except NotModelled:
        return empty(text("table.no_limits"))
    shown = decision.rows.market.at(decision.each_gpu).values("gpu")
    table = table[table["gpu"].isin(shown)] if len(shown) else table
    table = table.sort_values("max_batch", key=lambda most: most < 1, kind="stable")  # what holds nothing comes last
    columns = [
        Column("table.gpu", [str(gpu) for gpu in table["gpu"]]),
        Column("table.usable", [text.memory(value) for value in table["usable_bytes"]], number=True),
        Column(
            "table.max_context",
            [text.compact(value) if value else NOTHING for value in table["max_context_tokens"]],
            number=True,
        ),
        Column(
            "table.max_batch", [text.count(value) if value else NOTHING for value in table["max_batch"]], number=True
        ),
        Column(
            "table.max_model", [text.compact(value) if value else NOTHING for value in table["max_params"]], number=True
        ),
    ]
    return html_table(text, caption=text("table.limits_caption"), columns=columns)


def ladder_list(decision: Decision, text: Text) -> Html:
    """One GPU, one machine, a cluster: the best offer of each, and which rung to take."""
    found = ladder(decision)
    if found.chosen is None:
        return empty(text("table.nothing_fits"))
    items = []
    for row in found.rows.to_dict("records"):
        chosen = row["rung"] == found.chosen
        serving = decision.scenario.workload == "serve"
        pace = text.duration(row["tpot_s_typical"] if serving else row["hours_typical"] * HOUR)
        cost = text.money(row["cost_total_typical_usd"])
        line = text("ladder.line", machine=machine_name(row["gpu"], row["gpus"], row["nodes"]), pace=pace, cost=cost)
        reason = tag("small", text(f"ladder.{found.reason}")) if chosen else None
        name = tag("b", text(f"ladder.{row['rung']}"))
        said = join([badge(text, str(row["fit"])), name, tag("span", line)])
        items.append(tag("li", said, reason, class_="chosen" if chosen else ""))
    return tag("ol", items, class_="gg-ladder")
