"""A media pipeline phase by phase: what each holds of one GPU, which is the fullest, and how long it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.decide.phases import PARTS, phases
from gpuguide.errors import NotModelled
from gpuguide.show import figures
from gpuguide.show.figures import Figure, machine_name
from gpuguide.show.html import NOTHING, Html
from gpuguide.show.tables import empty
from gpuguide.show.theme import token
from gpuguide.show.told import Said, Told, table_of
from gpuguide.text import Text
from gpuguide.text.text import unknown
from gpuguide.units import GIB

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.decide.decision import Decision


def phase_bars(decision: Decision, text: Text) -> Figure:
    """Bars of memory for each phase, with the range of its total, against what the GPU can give."""
    try:
        table = phases(decision)
    except NotModelled:
        return figures.blank(text("chart.no_phases"), text)
    if table.empty:
        return figures.blank(text("table.no_plan"), text)
    row = decision.top(1).iloc[0]
    labels = [f"<b>{name}</b>" if peak else name for name, peak in zip(_names(table, text), table["peak"], strict=True)]
    parts = {part: table[f"{part}_bytes"].to_numpy(float) / GIB for part in PARTS}
    data = figures.stacked(text, "part", parts, labels, unit="GiB")
    layout = figures.layout_of(text, height=figures.ROW_HEIGHT * 2 * len(labels) + 80, rows=labels)
    layout["xaxis"] |= {"title": {"text": text("chart.gib_per_gpu")}, "rangemode": "tozero"}
    low, mid, high = (table[f"total_{band}_bytes"].to_numpy(float) / GIB for band in ("low", "typical", "high"))
    usable = float(row["usable_bytes"]) / GIB
    data.append(
        {
            "type": "scatter", "mode": "markers", "name": text("chart.range"), "x": figures.plain(mid), "y": labels,
            "marker": {"size": 6, "color": token("ink")},
            "error_x": {
                "type": "data", "symmetric": False, "array": figures.plain(high - mid),
                "arrayminus": figures.plain(mid - low), "color": token("ink"), "thickness": 1.5, "width": 5,
            },
            "text": [text.band("memory", *ends) for ends in zip(low * GIB, high * GIB, strict=True)],
            "hovertemplate": "%{y}<br>%{text}<extra></extra>",
        }
    )  # fmt: skip
    machine = machine_name(*row[["gpu", "gpus", "nodes"]])
    data.append(
        {
            "type": "scatter", "mode": "lines", "name": text("chart.usable_line", machine=machine),
            "x": [usable, usable], "y": [labels[0], labels[-1]],
            "line": {"color": token("limit"), "width": 2},
            "hovertemplate": f"{text('chart.usable')}: {text.memory(usable * GIB)}<extra></extra>",
        }
    )  # fmt: skip
    line = {"type": "line", "x0": usable, "x1": usable, "y0": 0, "y1": 1, "yref": "paper"}
    layout["shapes"] = [line | {"line": {"color": token("limit"), "width": 2}}]
    layout["xaxis"]["range"] = [0, round(1.06 * float(max(usable, np.max(high))), 2)]
    return figures.figure(data, layout, text("chart.phases_label", count=len(table)))


def phase_table(decision: Decision, text: Text) -> Html:
    """The numbers behind the bars, and how long each phase takes."""
    try:
        table = phases(decision)
    except NotModelled:
        return empty(text("table.no_phases"))
    if table.empty:
        return empty(text("table.no_plan"))
    row = decision.top(1).iloc[0]
    caption = text("table.memory_caption", machine=machine_name(*row[["gpu", "gpus", "nodes"]]))
    return table_of(phase_columns(table.to_dict("records"), text), text, caption=caption, marked=list(table["peak"]))


def phase_columns(rows: Sequence[Mapping[Any, Any]], text: Text) -> list[Told]:
    """One row a phase."""
    named = [(text(f"phase.{row['phase']}"), row) for row in rows]
    gib = {part: [Said(text.gib(row[f"{part}_bytes"])) for row in rows] for part in PARTS[:2]}
    total = [
        Said(text.gib(row["total_typical_bytes"]), text.band("gib", row["total_low_bytes"], row["total_high_bytes"]))
        for row in rows
    ]
    seconds = [Said(NOTHING if unknown(row["seconds"]) else text.duration(row["seconds"])) for row in rows]
    return [
        Told(
            "table.phase", [Said(name, text("phase.peak") if row["peak"] else "") for name, row in named], number=False
        ),
        *(Told(f"part.{part}", cells) for part, cells in gib.items()),
        Told("part.total", total),
        Told("table.time", seconds),
    ]


def _names(table: pd.DataFrame, text: Text) -> list[str]:
    return [text(f"phase.{name}") for name in table["phase"]]
