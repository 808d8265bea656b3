"""Throughput against latency as more requests run at once: the curve of each of a few machines, and its table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.decide.curve import load_curves
from gpuguide.show import figures
from gpuguide.show.figures import Figure, machine_name
from gpuguide.show.html import Html
from gpuguide.show.tables import empty
from gpuguide.show.theme import token
from gpuguide.show.told import Said, Told, ranged, table_of
from gpuguide.text import Text

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.decide.decision import Decision

LATENCIES = (("tpot_s", "max_tpot_s", "chart.time_per_token"), ("ttft_s", "max_ttft_s", "chart.first_token"))
"""Speeds drawn under each other, the limit that the scenario may set, and the title of the axis."""
BESIDE = ((0.0, 0.46), (0.54, 1.0))
"""Where the two pictures lie in one frame, as shares of its width."""
UNDER = ((0.58, 1.0), (0.0, 0.42))
"""The same on a phone, as shares of its height."""
TICKS_S = tuple(step * 10.0**power for power in range(-4, 5) for step in (1, 1.5, 2, 3, 4, 5, 6, 8))
"""Latencies of one machine lie close together: finer steps than those of a run."""
MOST_TICKS = 5


def latency_curve(decision: Decision, text: Text) -> Figure:
    """Tokens a second against time per token and to the first token, on the best offer of a few GPUs."""
    curves = _curves(decision)
    if curves.empty:
        return figures.blank(text("table.nothing_fits"), text)
    layout = figures.layout_of(text, height=380)
    layout |= {"shapes": [], "annotations": [], "margin": layout["margin"] | {"t": 26}}
    x, y = layout["xaxis"], layout["yaxis"]
    narrow: dict[str, Any] = {"height": 620}
    data: list[dict[str, Any]] = []
    for place, (name, limit, title) in enumerate(LATENCIES):
        shown = "2" if place else ""
        data += _one_picture(curves, name, text, place)
        target = getattr(decision.scenario, limit)
        reach = np.append(curves[f"{name}_typical"], [target] if target else [])
        low, high = float(reach.min()) / 1.25, float(reach.max()) * 1.25
        layout[f"xaxis{shown}"] = x | {
            "title": {"text": text(title)},
            "anchor": f"y{shown}",
            "domain": list(BESIDE[place]),
            **_time_axis(low, high, text),
        }
        layout[f"yaxis{shown}"] = y | {
            "title": {"text": text("chart.tokens_per_gpu")},
            "anchor": f"x{shown}",
            "rangemode": "tozero",
        }
        narrow |= {f"xaxis{shown}.domain": [0, 1], f"yaxis{shown}.domain": list(UNDER[place])}
        narrow |= {f"yaxis{shown}.tickfont.size": 10, f"xaxis{shown}.nticks": 4}
        if target:
            layout["shapes"].append(_limit_line(target, shown))
            layout["annotations"].append(_limit_words(target, shown, text, before=target > math.sqrt(low * high)))
    drawn = figures.figure(data, layout, text("chart.curve_label", count=curves["place"].nunique()))
    return drawn | {"narrow": drawn["narrow"] | narrow}


def latency_table(decision: Decision, text: Text) -> Html:
    """The numbers behind the curves."""
    curves = _curves(decision)
    if curves.empty:
        return empty(text("table.nothing_fits"))
    caption = text("table.curve_caption", count=curves["place"].nunique())
    return table_of(curve_columns(curves, text), text, caption=caption, marked=list(curves["asked"]))


def curve_columns(curves: pd.DataFrame, text: Text) -> list[Told]:
    """One row a machine and load; the machine is named where it changes."""
    rows = curves.to_dict("records")
    first = ~curves["place"].duplicated()
    machines = [
        Said(machine_name(row["gpu"], row["gpus"], row["nodes"]), text.name("option.providers", row["provider"]))
        if new
        else Said("")
        for row, new in zip(rows, first, strict=True)
    ]
    notes = {(True, True): "chart.yours_full", (True, False): "chart.yours", (False, True): "chart.full"}
    loads = []
    for row in rows:
        note = notes.get((bool(row["asked"]), bool(row["full"])))
        loads.append(Said(text.count(row["concurrency"]), text(note) if note else ""))
    return [
        Told("table.machine", machines, number=False),
        Told("table.requests", loads),
        Told("table.tokens_per_gpu", [Said(text.number(row["tokens_per_s_per_gpu_typical"])) for row in rows]),
        Told("table.tokens_per_server", [ranged(row, "tokens_per_s", "number", text) for row in rows], phone=False),
        Told("table.each", [ranged(row, "tpot_s", "duration", text) for row in rows]),
        Told("table.first_token", [ranged(row, "ttft_s", "duration", text) for row in rows]),
    ]


def _curves(decision: Decision) -> pd.DataFrame:
    """Estimated once for picture and table."""
    made: dict[str, pd.DataFrame] = vars(decision).setdefault("_curves", {})
    if "all" not in made:
        made["all"] = load_curves(decision)
    return made["all"]


def _one_picture(curves: pd.DataFrame, name: str, text: Text, place: int) -> list[dict[str, Any]]:
    """Lines of all machines, the range of the best, and the reader's own load on each."""
    axes: dict[str, Any] = {"xaxis": f"x{place + 1}" if place else "x", "yaxis": f"y{place + 1}" if place else "y"}
    data: list[dict[str, Any]] = []
    own: list[dict[str, Any]] = []
    for (colour, dash), (_, rows) in zip(figures.SERIES, curves.groupby("place"), strict=False):
        machine = machine_name(*rows.iloc[0][["gpu", "gpus", "nodes"]])
        said = [_point(machine, row, text) for row in rows.to_dict("records")]
        x, y = figures.plain(rows[f"{name}_typical"]), figures.plain(rows["tokens_per_s_per_gpu_typical"])
        if not data:
            quick = (rows[f"{name}_low"], rows["tokens_per_s_per_gpu_high"])
            slow = (rows[f"{name}_high"], rows["tokens_per_s_per_gpu_low"])
            data.append(
                {
                    "type": "scatter", "mode": "lines", "name": text("chart.range_of", machine=machine),
                    "x": figures.plain([*quick[0], *slow[0][::-1]]), "y": figures.plain([*quick[1], *slow[1][::-1]]),
                    "fill": "toself", "line": {"width": 0, "color": token(colour)}, "fillcolor": token(colour),
                    "opacity": 0.16, "hoverinfo": "skip", "showlegend": place == 0, **axes,
                }
            )  # fmt: skip
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": machine, "x": x, "y": y, "text": said,
                "hovertemplate": "%{text}<extra></extra>", "line": {"color": token(colour), "width": 2.5, "dash": dash},
                "marker": {"size": 6, "color": token(colour)}, "showlegend": place == 0, **axes,
            }
        )  # fmt: skip
        own += [{"x": x[at], "y": y[at], "said": said[at]} for at in np.flatnonzero(rows["asked"])]
    if own:
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": text("chart.your_load"), "showlegend": place == 0,
                **{axis: [point[axis] for point in own] for axis in ("x", "y")}, "text": [one["said"] for one in own],
                "hovertemplate": "%{text}<extra></extra>", **axes,
                "marker": {"size": 13, "color": token("card"), "line": {"width": 3, "color": token("ink")}},
            }
        )  # fmt: skip
    return data


def _point(machine: str, row: dict[Any, Any], text: Text) -> str:
    """What a point of a curve says."""
    bands = {name: (row[f"{name}_low"], row[f"{name}_high"]) for name in ("tpot_s", "ttft_s")}
    return text(
        "chart.curve_point",
        machine=machine,
        provider=text.name("option.providers", row["provider"]),
        count=row["concurrency"],
        requests=text.count(row["concurrency"]),
        rate=text.number(row["tokens_per_s_typical"]),
        each=text.number(row["tokens_per_s_per_gpu_typical"]),
        token=text.duration(row["tpot_s_typical"]),
        tokens=text.band("duration", *bands["tpot_s"]),
        first=text.duration(row["ttft_s_typical"]),
        firsts=text.band("duration", *bands["ttft_s"]),
    )


def _time_axis(low: float, high: float, text: Text) -> dict[str, Any]:
    """A logarithmic axis of exactly this range, with as many words as fit under half a card."""
    apart = math.log(high / low) / MOST_TICKS
    ticks: list[float] = []
    for tick in TICKS_S:
        if low <= tick <= high and (not ticks or math.log(tick / ticks[-1]) > apart):
            ticks.append(tick)
    words = [text.duration(tick) for tick in ticks]
    return {"type": "log", "range": [math.log10(low), math.log10(high)], "tickvals": ticks, "ticktext": words}


def _limit_line(target: float, shown: str) -> dict[str, Any]:
    line = {"color": token("no"), "width": 1.5, "dash": "dash"}
    where = {"xref": f"x{shown}", "yref": f"y{shown} domain"}
    return {"type": "line", "x0": target, "x1": target, "y0": 0, "y1": 1, "line": line, **where}


def _limit_words(target: float, shown: str, text: Text, *, before: bool) -> dict[str, Any]:
    return {
        "x": math.log10(target), "xref": f"x{shown}", "y": 1, "yref": f"y{shown} domain", "showarrow": False,
        "text": text("chart.your_limit", limit=text.duration(target)), "font": {"size": 12, "color": token("no")},
        "xanchor": "right" if before else "left", "yanchor": "bottom",
    }  # fmt: skip
