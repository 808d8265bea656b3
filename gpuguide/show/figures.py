"""
Charts as plain `data` and `layout` for plotly.js: a Decision and a Text in, a dictionary out; no plotly is imported.

Every figure has `data`, `layout`, `narrow` (layout values for a phone, by dotted path) and `label` (what a screen reader
says). Colours are tokens of `gpuguide.show.theme`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.show.theme import FONT, token
from gpuguide.text import SEPARATORS, Text
from gpuguide.units import GIB

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.decide.decision import Decision

Figure = dict[str, Any]

MEMORY_PARTS = ("weights", "kv_cache", "gradients", "optimizer", "activations", "logits", "buffers", "reserved")
COST_PARTS = ("compute", "setup", "rounding", "interruptions", "checkpoints", "storage", "egress", "idle")
ROW_HEIGHT = 24
MOST_ROWS = 40


def memory_by_gpu(decision: Decision, text: Text) -> Figure:
    """
    What the best plan needs on each kind of GPU, by parts, against what that GPU can give.

    GPUs stand in the order of their usable memory, so that rows keep their places while a control moves.
    """
    rows = decision.by_gpu.sort_values(["usable_bytes", "gpu"], kind="stable").tail(MOST_ROWS)
    usable = rows["usable_bytes"].to_numpy(dtype=np.float64) / GIB
    total = rows["memory_total_typical_bytes"].to_numpy(dtype=np.float64) / GIB
    labels = [_machine(text, row) for row in rows[["gpu", "gpus", "nodes"]].itertuples(index=False)]
    # A need far beyond every card is cut off: the place where it crosses the line is what is read here.
    most = min(float(np.nanmax(total, initial=1.0)), 1.6 * float(np.nanmax(usable, initial=1.0)))
    most = max(most, float(np.nanmax(usable, initial=1.0))) * 1.04
    data: list[dict[str, Any]] = []
    for part in MEMORY_PARTS:
        size = rows[f"memory_{part}_bytes"].to_numpy(dtype=np.float64) / GIB
        if not np.any(size > 0):
            continue
        name = text(f"part.{part}")
        data.append(
            _bars(
                name,
                part,
                size,
                labels,
                hover=[
                    f"{label}<br>{name}: {text.memory(value * GIB)}" for label, value in zip(labels, size, strict=True)
                ],
            )
        )
    colours = [token(fit) for fit in rows["fit"]]
    data.append(
        {
            "type": "scatter", "mode": "markers", "name": text("chart.usable"), "x": _plain(usable), "y": labels,
            "marker": {"symbol": "line-ns", "size": ROW_HEIGHT - 6, "line": {"width": 3, "color": colours}, "color": token("limit")},
            "hoverinfo": "text",
            "hovertext": [
                f"{label}<br>{text(f'fit.{fit}')}: {text('chart.of_usable', need=text.memory(need * GIB), usable=text.memory(room * GIB))}"
                for label, fit, need, room in zip(labels, rows["fit"], total, usable, strict=True)
            ],
        }
    )  # fmt: skip
    layout = _layout(text, height=_height(len(rows)), legend=True)
    layout |= {"barmode": "stack", "bargap": 0.28}
    layout["xaxis"] |= {"title": {"text": text("chart.gib_per_gpu")}, "range": [0, round(most, 2)]}
    layout["yaxis"] |= {"automargin": True, "categoryorder": "array", "categoryarray": labels[::-1]}
    return _figure(data, layout, text("chart.memory_label", fits=int((rows["fit"] != "no").sum()), all=len(rows)))


def cost_of_offers(decision: Decision, text: Text, count: int = 10) -> Figure:
    """What the best offers cost for the whole job, by parts, with the range of the estimate."""
    rows = decision.ranking.head(count)
    labels = _distinct([f"{row.provider} · {_machine(text, row)}" for row in rows.itertuples()])
    rate = float(text.currency_per_usd or 1.0)
    data: list[dict[str, Any]] = []
    for part in COST_PARTS:
        amount = (
            rows[f"cost_{part}_usd"].to_numpy(dtype=np.float64) if f"cost_{part}_usd" in rows else np.zeros(len(rows))
        )
        if not np.any(amount > 0):
            continue
        name = text(f"cost.{part}")
        data.append(
            _bars(
                name,
                part,
                amount * rate,
                labels,
                hover=[f"{label}<br>{name}: {text.money(value)}" for label, value in zip(labels, amount, strict=True)],
            )
        )
    if len(rows):
        low, mid, high = (
            rows[f"cost_total_{band}_usd"].to_numpy(dtype=np.float64) * rate for band in ("low", "typical", "high")
        )
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": text("chart.range"), "x": _plain(mid), "y": labels,
                "marker": {"size": 6, "color": token("ink")},
                "error_x": {"type": "data", "symmetric": False, "array": _plain(high - mid), "arrayminus": _plain(mid - low), "color": token("ink"), "thickness": 1.5, "width": 5},
                "hoverinfo": "text",
                "hovertext": [f"{label}<br>{text.band('money', a / rate, b / rate)}" for label, a, b in zip(labels, low, high, strict=True)],
            }
        )  # fmt: skip
    layout = _layout(text, height=_height(count, row=34), legend=True)
    layout |= {"barmode": "stack", "bargap": 0.35}
    layout["xaxis"] |= {"title": {"text": cost_title(decision, text)}, "rangemode": "tozero", **_money_axis(text)}
    layout["yaxis"] |= {"automargin": True, "categoryorder": "array", "categoryarray": labels[::-1]}
    return _figure(data, layout, text("chart.cost_label", count=len(rows)))


def cost_title(decision: Decision, text: Text) -> str:
    """What an amount is for: a run, or a month of serving."""
    key = "chart.cost_month" if decision.scenario.workload == "serve" else "chart.cost_run"
    return text(key, currency=text.currency)


def time_and_cost(decision: Decision, text: Text, count: int = 400) -> Figure:
    """Time against cost of everything that fits; the front holds offers that no other beats in both."""
    rows = decision.ranking.head(count)
    time, unit = _time_axis(rows, decision)
    rate = float(text.currency_per_usd or 1.0)
    cost = rows["cost_total_typical_usd"].to_numpy(dtype=np.float64) * rate
    front = rows["pareto"].to_numpy(dtype=bool) if len(rows) else np.zeros(0, dtype=bool)
    said = [
        f"{row.provider} · {_machine(text, row)}<br>{text.money(row.cost_total_typical_usd)}"
        for row in rows.itertuples()
    ]
    data = []
    for name, chosen, colour, size in (("chart.others", ~front, "faded", 7), ("chart.front", front, "series", 10)):
        place = np.flatnonzero(chosen)
        place = place[np.argsort(time[place])]
        data.append(
            {
                "type": "scatter", "mode": "lines+markers" if colour == "series" else "markers", "name": text(name),
                "x": _plain(time[place]), "y": _plain(cost[place]), "hoverinfo": "text", "hovertext": [said[index] for index in place],
                "marker": {"size": size, "color": token(colour)}, "line": {"color": token(colour), "width": 1, "dash": "dot"},
            }
        )  # fmt: skip
    layout = _layout(text, height=360, legend=True)
    layout["xaxis"] |= {"title": {"text": text(unit)}, "type": "log", "dtick": "D1" if _narrow_range(time) else 1}
    layout["yaxis"] |= {"title": {"text": cost_title(decision, text)}, "type": "log", **_money_axis(text)}
    return _figure(data, layout, text("chart.front_label", count=int(front.sum())))


def step_time(decision: Decision, text: Text, count: int = 10) -> Figure:
    """Where the time of one step goes on the best offers: work, links, bubbles."""
    rows = decision.ranking.drop_duplicates(["gpu", "gpus", "nodes"]).head(count)
    labels = _distinct([_machine(text, row) for row in rows.itertuples()])
    data = []
    for part, colour in STEP_PARTS.items():
        if part not in rows:
            continue
        size = rows[part].to_numpy(dtype=np.float64)
        if not np.any(size > 0):
            continue
        name = text(f"step.{part}")
        data.append(
            _bars(
                name,
                colour,
                size,
                labels,
                hover=[f"{label}<br>{name}: {text.duration(value)}" for label, value in zip(labels, size, strict=True)],
            )
        )
    layout = _layout(text, height=_height(len(rows), row=30), legend=True)
    layout |= {"barmode": "stack", "bargap": 0.35}
    layout["xaxis"] |= {"title": {"text": text("chart.seconds_per_step")}, "rangemode": "tozero"}
    layout["yaxis"] |= {"automargin": True, "categoryorder": "array", "categoryarray": labels[::-1]}
    return _figure(data, layout, text("chart.step_label", count=len(rows)))


STEP_PARTS = {
    "compute_s": "weights", "memory_bound_s": "buffers", "tensor_parallel_s": "kv_cache", "pipeline_bubble_s": "gradients",
    "data_parallel_s": "optimizer", "expert_parallel_s": "activations", "offload_s": "reserved",
    "encode_s": "buffers", "denoise_s": "weights", "decode_s": "gradients",
}  # fmt: skip
"""Parts of a step and the colours they borrow."""


def memory_of_variants(variants: Sequence[tuple[str, Decision]], text: Text) -> Figure:
    """The same model under several jobs, side by side: memory of the best plan on one GPU of each."""
    labels = [name for name, _ in variants]
    data = []
    for part in MEMORY_PARTS:
        size = np.array([_of_memory(decision, part) for _, decision in variants]) / GIB
        if np.any(size > 0):
            name = text(f"part.{part}")
            data.append(
                _bars(
                    name,
                    part,
                    size,
                    labels,
                    hover=[
                        f"{label}<br>{name}: {text.memory(value * GIB)}"
                        for label, value in zip(labels, size, strict=True)
                    ],
                )
            )
    layout = _layout(text, height=_height(len(labels), row=40), legend=True)
    layout |= {"barmode": "stack", "bargap": 0.35}
    layout["xaxis"] |= {"title": {"text": text("chart.gib_per_gpu")}, "rangemode": "tozero"}
    layout["yaxis"] |= {"automargin": True, "categoryorder": "array", "categoryarray": labels[::-1]}
    return _figure(data, layout, text("chart.variants_label", count=len(labels)))


def lines(
    text: Text, series: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, x: str, y: str, label: str, log_x: bool = True,
    log_y: bool = False, mark: float | None = None, money: bool = False,
) -> Figure:  # fmt: skip
    """Lines over one axis, for sweeps; `mark` is where the reader stands."""
    names = ("series", "series-2", "series-3", "series-4")
    dashes = ("solid", "dash", "dot", "dashdot")
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": name, "x": _plain(np.asarray(xs, dtype=np.float64)),
            "y": _plain(np.asarray(ys, dtype=np.float64)), "line": {"color": token(names[index % 4]), "width": 2.5, "dash": dashes[index % 4]},
            "marker": {"size": 6, "color": token(names[index % 4])},
        }
        for index, (name, (xs, ys)) in enumerate(series.items())
    ]  # fmt: skip
    layout = _layout(text, height=340, legend=len(series) > 1)
    layout["hovermode"] = "x unified"
    layout["xaxis"] |= {"title": {"text": x}, "type": "log" if log_x else "linear"}
    layout["yaxis"] |= {"title": {"text": y}, "type": "log" if log_y else "linear"} | (
        _money_axis(text) if money else {}
    )
    if not log_y:
        layout["yaxis"]["rangemode"] = "tozero"
    if mark is not None:
        layout["shapes"] = [
            {
                "type": "line",
                "x0": mark,
                "x1": mark,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": token("mute"), "width": 1, "dash": "dash"},
            }
        ]
    return _figure(data, layout, label)


# ---- pieces ----------------------------------------------------------------------------------------------------------


def _figure(data: list[dict[str, Any]], layout: dict[str, Any], label: str) -> Figure:
    return {"data": data, "layout": layout, "narrow": NARROW, "label": label}


NARROW: dict[str, Any] = {
    "font.size": 11,
    "legend.font.size": 11,
    "yaxis.tickfont.size": 10,
    "margin.r": 6,
    "margin.l": 8,
}


def _bars(name: str, colour: str, size: Any, labels: Sequence[str], hover: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "bar", "orientation": "h", "name": name, "x": _plain(size), "y": list(labels), "hoverinfo": "text",
        "hovertext": list(hover), "marker": {"color": token(colour), "line": {"width": 1, "color": token("card")}},
    }  # fmt: skip


def _layout(text: Text, *, height: int, legend: bool) -> dict[str, Any]:
    axis = {
        "gridcolor": token("grid"),
        "linecolor": token("line"),
        "zerolinecolor": token("line"),
        "tickfont": {"size": 12},
        "fixedrange": True,
    }
    return {
        "height": height, "separators": SEPARATORS[text.language], "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": token("ink")}, "margin": {"l": 10, "r": 16, "t": 8, "b": 44},
        "showlegend": legend, "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "yref": "paper", "traceorder": "normal"},
        "hoverlabel": {"bgcolor": token("card"), "bordercolor": token("line"), "font": {"color": token("ink"), "family": FONT}, "align": "left"},
        "xaxis": axis | {"automargin": True}, "yaxis": axis | {"automargin": True},
    }  # fmt: skip


def _height(rows: int, row: int = ROW_HEIGHT) -> int:
    return 110 + row * max(rows, 3)


def _money_axis(text: Text) -> dict[str, Any]:
    sample = text.money(0.0)
    sign = "".join(letter for letter in sample if not letter.isdigit() and letter not in ".,\u00a0")
    return {"tickprefix": sign} if sample.startswith(sign) else {"ticksuffix": f"\u00a0{sign}"}


def _machine(text: Text, row: Any) -> str:
    """'8× H100-SXM', and '2 × 8 H100-SXM' over several machines."""
    gpus, nodes = int(row.gpus), int(row.nodes)
    if nodes > 1:
        return f"{nodes}×{gpus // nodes} {row.gpu}"
    return f"{gpus}× {row.gpu}"


def _distinct(labels: Sequence[str]) -> list[str]:
    """Bars of equal name would be stacked on one another; an invisible mark keeps them apart."""
    seen: dict[str, int] = {}
    kept = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        kept.append(label + "\u200b" * (seen[label] - 1))
    return kept


def _plain(values: Any) -> list[float | None]:
    """Short numbers for the wire; not-a-number as null."""
    return [
        float(f"{value:.5g}") if value == value and abs(value) != np.inf else None
        for value in np.asarray(values, dtype=np.float64).tolist()
    ]


def _time_axis(rows: pd.DataFrame, decision: Decision) -> tuple[Any, str]:
    if decision.scenario.workload == "serve":
        return rows["tpot_s_typical"].to_numpy(dtype=np.float64) * 1e3, "chart.tpot_ms"
    return rows["hours_typical"].to_numpy(dtype=np.float64), "chart.hours"


def _narrow_range(values: Any) -> bool:
    known = values[np.isfinite(values) & (values > 0)]
    return bool(len(known)) and float(known.max() / known.min()) < 30


def _of_memory(decision: Decision, part: str) -> float:
    if decision.memory is None:
        return 0.0
    band = np.asarray(getattr(decision.memory, part), dtype=np.float64).reshape(-1)
    return float(band[1 if len(band) > 1 else 0])
