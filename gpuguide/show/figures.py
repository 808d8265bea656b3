"""
Charts as plain `data` and `layout` for plotly.js: a Decision and a Text in, a dictionary out; no plotly is imported.

Every figure has `data`, `layout`, `narrow` (layout values for a phone, by dotted path) and `label` (what a screen
reader says); `turn` makes lying bars stand where the picture is wide. Colours are tokens of `gpuguide.show.theme`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns
from gpuguide.show.theme import FONT, token
from gpuguide.text import SEPARATORS, Text
from gpuguide.units import DAY, GIB, HOUR, MINUTE

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.decide.decision import Decision

Figure = dict[str, Any]
Floats = NDArray[np.float64]

MEMORY_PARTS = ("weights", "kv_cache", "gradients", "optimizer", "activations", "logits", "buffers", "reserved")
COST_PARTS = ("compute", "setup", "rounding", "interruptions", "checkpoints", "storage", "egress", "idle")
STEP_PARTS = {
    "compute_s": "weights", "memory_bound_s": "buffers", "tensor_parallel_s": "kv_cache",
    "pipeline_bubble_s": "gradients", "data_parallel_s": "optimizer", "expert_parallel_s": "activations",
    "offload_s": "reserved", "encode_s": "buffers", "denoise_s": "weights", "decode_s": "gradients",
}  # fmt: skip
"""Parts of a step and the colours they borrow."""
SERIES = (("series", "solid"), ("series-2", "dash"), ("series-3", "dot"), ("series-4", "dashdot"))
NARROW: dict[str, Any] = {
    "font.size": 11, "legend.font.size": 11, "yaxis.tickfont.size": 10, "margin.r": 6, "margin.l": 8, "xaxis.nticks": 4,
}  # fmt: skip
ROW_HEIGHT = 22
VISIBLE = 0.004
"""Parts below this share of a bar are no thicker than its outline."""
TIMES_S = (
    *(step * 10.0**power for power in (-3, -2, -1) for step in (1, 2, 5)),
    1, 2, 5, 10, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE,
    HOUR, 2 * HOUR, 5 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY, 10 * DAY, 30 * DAY, 100 * DAY, 365.25 * DAY,
    *(step * 3652.5 * DAY for step in (0.3, 1, 3, 10, 100, 1000)),
)  # fmt: skip
SHOWN = 20
"""Offers in the table of a page; a download holds all."""
MOST_TICKS = 6
"""So many words fit beside each other on a phone."""
TURN_FROM = 760
"""Width from which many rows become columns. [px]"""
BEYOND = 1.6
"""A need far beyond every card is cut off at so many times the largest: where it crosses the line is what is read."""


# ---- memory ----------------------------------------------------------------------------------------------------------


def memory_by_gpu(decision: Decision, text: Text) -> Figure:
    """
    What the best plan needs on each kind of GPU, by parts, against what that GPU can give.

    GPUs stand in the order of their usable memory, so that rows keep their places while a control moves.
    """
    rows = decision.rows.fitted(decision.each_gpu)
    rows = rows.at(np.lexsort([rows.values("gpu").astype(str), rows.numbers("usable_bytes")]))
    usable, total = rows.numbers("usable_bytes") / GIB, rows.numbers("memory_total_typical_bytes") / GIB
    machines = zip(rows.values("gpu"), rows.values("gpus"), strict=True)
    labels = [f"{gpu} ×{gpus:.0f}" if gpus > 1 else str(gpu) for gpu, gpus in machines]
    parts = {part: rows.numbers(f"memory_{part}_bytes") / GIB for part in MEMORY_PARTS}
    data = stacked(text, "part", parts, labels, unit="GiB")
    data.append(
        {
            "type": "scatter", "mode": "markers", "name": text("chart.usable"), "x": plain(usable), "y": labels,
            "marker": {
                "symbol": "line-ns", "size": ROW_HEIGHT - 6, "color": token("limit"),
                "line": {"width": 3, "color": [token(fit) for fit in rows.values("fit")]},
            },
            "text": [text(f"fit.{fit}") for fit in rows.values("fit")],
            "hovertemplate": f"%{{y}}: %{{text}}<br>{text('chart.usable')}: %{{x:.3~f}} GiB<extra></extra>",
        }
    )  # fmt: skip
    largest = float(np.nanmax(usable, initial=1.0))
    most = max(min(float(np.nanmax(total, initial=1.0)), BEYOND * largest), largest) * 1.04
    layout = layout_of(text, height=_height(len(rows)), rows=labels)
    layout["xaxis"] |= {"title": {"text": text("chart.gib_per_gpu")}, "range": [0, round(most, 2)]}
    label = text("chart.memory_label", fits=int((rows.values("fit") != "no").sum()), all=len(rows))
    return figure(data, layout, label) | {"turn": {"from": TURN_FROM, "height": 420}}


def memory_of_variants(variants: Sequence[tuple[str, Decision]], text: Text) -> Figure:
    """The same model under several jobs, side by side: memory of the best plan on one GPU of each."""
    known = [(name, row) for name, decision in variants if (row := decision.nearest) is not None]
    labels = [f"{name}<br>{machine_name(row['gpu'], row['gpus'], row['nodes'])}" for name, row in known]
    parts = {part: np.array([row[f"memory_{part}_bytes"] for _, row in known]) / GIB for part in MEMORY_PARTS}
    layout = layout_of(text, height=_height(len(labels), row=44), rows=labels)
    layout["xaxis"] |= {"title": {"text": text("chart.gib_per_gpu")}, "rangemode": "tozero"}
    return figure(
        stacked(text, "part", parts, labels, unit="GiB"), layout, text("chart.variants_label", count=len(labels))
    )


# ---- money and time --------------------------------------------------------------------------------------------------


def cost_of_offers(decision: Decision, text: Text, count: int = 10) -> Figure:
    """What the best offers cost for the whole job, by parts, with the range of the estimate."""
    rows = best_rows(decision, count)
    return cost_bars(rows, text, title=cost_title(decision, text), count=count)


def cost_bars(rows: Columns | pd.DataFrame, text: Text, *, title: str, count: int, between: str = " · ") -> Figure:
    """Rows of a ranking as bars of cost, by parts; `between` parts who from what in a label, '<br>' for long names."""
    rows = Columns.of(rows)
    named = zip(_providers(rows, text), _machines(rows), strict=True)
    labels = _distinct([f"{provider}{between}{machine}" for provider, machine in named])
    rate = float(text.currency_per_usd or 1.0)
    parts = {part: rows.numbers(f"cost_{part}_usd") * rate for part in COST_PARTS}
    data = stacked(text, "cost", parts, labels, unit=text.currency)
    low, mid, high = (rows.numbers(f"cost_total_{band}_usd") * rate for band in ("low", "typical", "high"))
    data.append(
        {
            "type": "scatter", "mode": "markers", "name": text("chart.range"), "x": plain(mid), "y": labels,
            "marker": {"size": 6, "color": token("ink")},
            "error_x": {
                "type": "data", "symmetric": False, "array": plain(high - mid), "arrayminus": plain(mid - low),
                "color": token("ink"), "thickness": 1.5, "width": 5,
            },
            "text": [text.band("money", *ends) for ends in zip(low / rate, high / rate, strict=True)],
            "hovertemplate": "%{y}<br>%{text}<extra></extra>",
        }
    )  # fmt: skip
    layout = layout_of(text, height=_height(count, row=34), rows=labels)
    layout["xaxis"] |= {"title": {"text": title}, "rangemode": "tozero", **money_axis(text)}
    return figure(data, layout, text("chart.cost_label", count=len(rows)))


def cost_title(decision: Decision, text: Text) -> str:
    """What an amount is for: a run, or a month of serving."""
    key = "chart.cost_month" if decision.scenario.workload == "serve" else "chart.cost_run"
    return text(key, currency=text.currency)


def best_rows(decision: Decision, count: int = SHOWN) -> Columns:
    """The first rows of the ranking, made once for all that show them; empty where nothing fits."""
    return decision.rows.columns(decision.best_first[: max(count, SHOWN)]).at(
        np.arange(len(decision.best_first))[:count]
    )


def time_and_cost(decision: Decision, text: Text, count: int = 200) -> Figure:
    """
    Time against cost: the whole front, which holds offers that no other beats in both, and the best of the others.

    The front's quick end may stand far down a ranking by cost.
    """
    best, on_front = decision.best_first, decision.rows.on_front[decision.best_first]
    others = best[~on_front]
    rows = decision.rows.outlined(np.concatenate([best[on_front], others[: max(0, count - int(on_front.sum()))]]))
    serving = decision.scenario.workload == "serve"
    time = rows.numbers("tpot_s_typical") if serving else rows.numbers("hours_typical") * HOUR
    cost = rows.numbers("cost_total_typical_usd") * float(text.currency_per_usd or 1.0)
    front = rows.values("pareto")
    lasting, costing = cache(text.duration), cache(_money(text))  # many offers are the same machine
    machines = zip(*(rows.values(name).tolist() for name in ("provider", "gpu", "gpus", "nodes")), strict=True)
    said = [
        f"{text.name('option.providers', name)} · {machine_name(*machine)}<br>{lasting(seconds)} · {costing(amount)}"
        for (name, *machine), seconds, amount in zip(machines, time.tolist(), cost.tolist(), strict=True)
    ]
    data = []
    for name, chosen, colour in (("chart.others", ~front, "faded"), ("chart.front", front, "series")):
        place = np.flatnonzero(chosen)
        place = place[np.argsort(time[place], kind="stable")]
        data.append(
            {
                "type": "scatter", "mode": "markers" if colour == "faded" else "lines+markers", "name": text(name),
                "x": plain(time[place]), "y": plain(cost[place]), "text": [said[index] for index in place],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"size": 7 if colour == "faded" else 10, "color": token(colour)},
                "line": {"color": token(colour), "width": 1.5, "dash": "dot"},
            }
        )  # fmt: skip
    layout = layout_of(text, height=_height(10, row=34))
    layout["xaxis"] |= {
        "title": {"text": text("chart.time_per_token" if serving else "chart.time")},
        **time_axis(time, text),
    }
    layout["yaxis"] |= {"title": {"text": cost_title(decision, text)}, **log_axis(cost, _money(text))}
    return figure(data, layout, text("chart.front_label", shown=text.count(len(rows)), count=int(front.sum())))


def step_time(decision: Decision, text: Text, count: int = 10) -> Figure:
    """Where the time of one step goes on the best machines: work, links, bubbles."""
    best = decision.best_first[:300]
    seen = zip(*(decision.rows.market.at(best).values(name).tolist() for name in ("gpu", "gpus", "nodes")), strict=True)
    first = {machine: place for place, machine in reversed(list(enumerate(seen)))}  # the best offer of each machine
    rows = decision.rows.columns(best[sorted(first.values())[:count]])
    labels = _machines(rows)
    parts = {part: rows.numbers(part) for part in STEP_PARTS if part in rows}
    data = stacked(text, "step", parts, labels, unit="s", colours=STEP_PARTS)
    layout = layout_of(text, height=_height(max(len(rows), count), row=34), rows=labels)
    layout["xaxis"] |= {
        "title": {"text": text("chart.seconds_per_batch" if decision.scenario.is_media else "chart.seconds_per_step")},
        "rangemode": "tozero",
    }
    return figure(data, layout, text("chart.step_label", count=len(rows)))


def lines(
    text: Text,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    label: str,
    said_x: Callable[[float], str] | None = None,
    log_y: bool = False,
    mark: float | None = None,
    money: bool = False,
) -> Figure:
    """Lines over a logarithmic axis: `mark` is where the reader stands, `said_x` words the ticks (None: time)."""
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": name, "x": plain(xs), "y": plain(ys),
            "line": {"color": token(colour), "width": 2.5, "dash": dash}, "marker": {"size": 7, "color": token(colour)},
        }
        for (colour, dash), (name, (xs, ys)) in zip(SERIES, series.items(), strict=False)
    ]  # fmt: skip
    layout = layout_of(text, height=360)
    layout["hovermode"] = "x unified"
    every_x = np.concatenate([np.asarray(xs, dtype=np.float64) for xs, _ in series.values()] or [np.ones(1)])
    layout["xaxis"] |= {"title": {"text": x}, **(log_axis(every_x, said_x) if said_x else time_axis(every_x, text))}
    every_y = np.concatenate([np.asarray(ys, dtype=np.float64) for _, ys in series.values()] or [np.ones(1)])
    layout["yaxis"] |= {"title": {"text": y}, "rangemode": "tozero"} | (money_axis(text) if money else {})
    if log_y:
        layout["yaxis"] = layout["xaxis"] | {
            "title": {"text": y},
            **log_axis(every_y, _money(text) if money else text.number),
        }
    if mark is not None:
        line = {"color": token("mute"), "width": 1, "dash": "dash"}
        layout["shapes"] = [{"type": "line", "x0": mark, "x1": mark, "y0": 0, "y1": 1, "yref": "paper", "line": line}]
    return figure(data, layout, label)


# ---- pieces ----------------------------------------------------------------------------------------------------------


def figure(data: list[dict[str, Any]], layout: dict[str, Any], label: str) -> Figure:
    """A chart as the page's widget takes it; the label is what a screen reader says."""
    return {"data": data, "layout": layout, "narrow": NARROW, "label": label}


def blank(sentence: str, text: Text) -> Figure:
    """A sentence where there is nothing to draw."""
    layout = layout_of(text, height=120)
    layout["xaxis"]["visible"] = layout["yaxis"]["visible"] = False
    place = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    layout["annotations"] = [place | {"text": sentence}]
    return figure([], layout, sentence)


def stacked(
    text: Text,
    group: str,
    parts: Mapping[str, Floats],
    labels: list[str],
    *,
    unit: str,
    colours: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Lying bars, one trace for each part that is large enough to be seen in any."""
    whole = sum(parts.values(), start=np.zeros(len(labels)))
    return [
        {
            "type": "bar", "orientation": "h", "name": text(f"{group}.{part}"), "x": plain(size), "y": labels,
            "hovertemplate": f"%{{y}}<br>{text(f'{group}.{part}')}: %{{x:,.3~r}} {unit}<extra></extra>",
            "marker": {"color": token((colours or {}).get(part, part)), "line": {"width": 1, "color": token("card")}},
        }
        for part, size in parts.items()
        if np.any(size > VISIBLE * whole)
    ]  # fmt: skip


def layout_of(text: Text, *, height: int, rows: Sequence[str] | None = None) -> dict[str, Any]:
    """What all charts share; with rows, bars that lie under each other, the first on top."""
    axis = {
        "gridcolor": token("grid"), "linecolor": token("line"), "zerolinecolor": token("line"), "fixedrange": True,
        "tickfont": {"size": 12}, "automargin": True,
    }  # fmt: skip
    layout: dict[str, Any] = {
        "height": height, "separators": SEPARATORS[text.language], "showlegend": False,
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": token("ink")}, "margin": {"l": 10, "r": 16, "t": 8, "b": 44},
        "hoverlabel": {
            "bgcolor": token("card"), "bordercolor": token("line"), "align": "left",
            "font": {"color": token("ink"), "family": FONT},
        },
        "xaxis": dict(axis), "yaxis": dict(axis),
    }  # fmt: skip
    if rows is not None:
        layout |= {"barmode": "stack", "bargap": 0.3}
        layout["yaxis"] |= {"categoryorder": "array", "categoryarray": list(rows), "showgrid": False}
        layout["yaxis"]["range"] = [len(rows) - 0.5, -0.5]
    return layout


def _height(rows: int, row: int = ROW_HEIGHT) -> int:
    return 70 + row * max(rows, 3)


def money_axis(text: Text) -> dict[str, Any]:
    """The sign of the shown currency on the ticks of an axis."""
    sample = text.money(0.0)
    sign = "".join(letter for letter in sample if not letter.isdigit() and letter not in ".,\u00a0")
    side = {"tickprefix": sign} if sample.startswith(sign) else {"ticksuffix": f"\u00a0{sign}"}
    return side | {"tickformat": ",~f"}


def time_axis(seconds: Any, text: Text) -> dict[str, Any]:
    """A logarithmic axis of time in the units people use."""
    return log_axis(seconds, text.duration, ticks=TIMES_S)


def _money(text: Text) -> Callable[[float], str]:
    """Words for an amount that is in the shown currency already."""
    return lambda amount: text.money(amount / float(text.currency_per_usd or 1.0))


def log_axis(values: Any, said: Callable[[float], str], ticks: Sequence[float] | None = None) -> dict[str, Any]:
    """A logarithmic axis whose ticks are words of ours: 1, 2, 5 where the range is short, else powers of ten."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known) & (known > 0)]
    if not known.size:
        return {"type": "log"}
    low, high = float(known.min()), float(known.max())
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1.0, 2.0, 5.0) if last - first <= 3 else (1.0,)
    ticks = ticks or [step * 10.0**power for power in range(first, last + 1) for step in steps]
    inside = [tick for tick in ticks if low / 1.6 <= tick <= high * 1.6]
    apart = (math.log(high / low) + 2 * math.log(1.6)) / MOST_TICKS
    kept: list[float] = []
    for tick in inside:
        if not kept or math.log(tick / kept[-1]) > apart:
            kept.append(tick)
    return {"type": "log", "tickvals": kept, "ticktext": [said(tick) for tick in kept]}


def _machines(rows: Columns) -> list[str]:
    sizes = (rows.values(name).tolist() for name in ("gpu", "gpus", "nodes"))
    return [machine_name(*size) for size in zip(*sizes, strict=True)]


def _providers(rows: Columns, text: Text) -> list[str]:
    return [text.name("option.providers", name) for name in rows.values("provider")]


def machine_name(gpu: str, gpus: float, nodes: float) -> str:
    """'8× H100-SXM', and '2×8 H100-SXM' over several machines."""
    return f"{nodes:.0f}×{gpus / nodes:.0f} {gpu}" if nodes > 1 else f"{gpus:.0f}× {gpu}"


def _distinct(labels: Sequence[str]) -> list[str]:
    """Bars of equal name would be stacked on one another; an invisible mark keeps them apart."""
    seen: dict[str, int] = {}
    kept = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        kept.append(label + "\u200b" * (seen[label] - 1))
    return kept


def plain(values: Any) -> list[float | None]:
    """Short numbers for the wire; not-a-number as null."""
    numbers = np.asarray(values, dtype=np.float64).tolist()
    return [float(f"{number:.4g}") if np.isfinite(number) else None for number in numbers]
