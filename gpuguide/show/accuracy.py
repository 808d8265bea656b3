"""Estimates against published measurements: scatter, errors, tables, and one run in detail."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.show import figures
from gpuguide.show.figures import Figure
from gpuguide.show.html import NOTHING, Html, button, join, tag
from gpuguide.show.tables import Column, bold, empty, html_table
from gpuguide.show.theme import token
from gpuguide.text import Text

if TYPE_CHECKING:
    from gpuguide.accuracy.table import TableScore

MOST_POINTS = 1500
AT_COMMIT = re.compile(r"(github\.com/\S+) @(\w+) (\S+)")
"""How some tables write where a run was published: repository, commit and file."""
WORST_FIRST = 40
IN_BYTES = ("torch_memory", "training_memory", "training_memory_components")
"""Tables whose values are bytes; the others are in the unit that their title names."""
BINS = np.linspace(-1.0, 1.0, 41)
"""Edges of relative errors; what is beyond stands in the last bar of its side. [-]"""


def compared(scored: pd.DataFrame) -> pd.DataFrame:
    """Rows with a measured value and an estimate, with the error and whether the value lies in the band."""
    numbers = scored[["measured", "low", "typical", "high"]].to_numpy(dtype=np.float64)
    asked = (scored["skip"].fillna("") == "").to_numpy()
    rows: pd.DataFrame = scored[asked & np.isfinite(numbers).all(axis=1) & (numbers > 0).all(axis=1)].copy()
    rows["error"] = rows["typical"].astype(float) / rows["measured"].astype(float) - 1
    rows["inside"] = (rows["low"] <= rows["measured"]) & (rows["measured"] <= rows["high"])
    return rows


def form_of(table: str, text: Text) -> Callable[[float], str]:
    """How values of a table are written."""
    return text.memory if table in IN_BYTES else text.number


def scatter(rows: pd.DataFrame, text: Text, said: Callable[[float], str], chosen: str | None = None) -> Figure:
    """Estimate over measurement, one point a run; on the line both are equal."""
    shown = rows.head(MOST_POINTS)
    data: list[dict[str, Any]] = []
    for name, inside, colour in (("accuracy.inside", True, "series"), ("accuracy.outside", False, "series-2")):
        part = shown[shown["inside"] == inside]
        words = [
            f"{label}<br>{text('accuracy.hover', measured=said(measured), typical=said(typical))}"
            for label, measured, typical in zip(part["label"], part["measured"], part["typical"], strict=True)
        ]
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": text(name), "x": figures.plain(part["measured"]),
                "y": figures.plain(part["typical"]), "customdata": [str(row) for row in part["row_id"]], "text": words,
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"size": 7, "color": token(colour), "opacity": 0.75},
            }
        )  # fmt: skip
    if len(rows):
        ends = [float(rows[["measured", "typical"]].min().min()), float(rows[["measured", "typical"]].max().max())]
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": text("accuracy.equal"), "x": ends, "y": ends,
                "line": {"color": token("mute"), "width": 1.5, "dash": "dash"}, "hoverinfo": "skip",
            }
        )  # fmt: skip
    picked = shown[shown["row_id"].astype(str) == chosen]
    if len(picked):
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": text("accuracy.chosen"),
                "x": figures.plain(picked["measured"]), "y": figures.plain(picked["typical"]), "hoverinfo": "skip",
                "marker": {"size": 15, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": token("ink")}},
            }
        )  # fmt: skip
    layout = figures.layout_of(text, height=440)
    every = pd.concat([rows["measured"], rows["typical"]]) if len(rows) else np.ones(1)
    # Round numbers of bytes are no round numbers of GiB.
    ticks = [2.0**power for power in range(10, 50)] if said == text.memory else None
    axis = figures.log_axis(every, said, ticks)
    layout["xaxis"] |= {"title": {"text": text("accuracy.measured")}, **axis}
    layout["yaxis"] |= {"title": {"text": text("accuracy.estimated")}, **axis}
    return figures.figure(data, layout, text("accuracy.scatter_label", count=len(rows)))


def errors(rows: pd.DataFrame, text: Text) -> Figure:
    """How many runs are off by how much."""
    counts, _ = np.histogram(np.clip(rows["error"].astype(float), BINS[0], BINS[-1] - 1e-9), bins=BINS)
    middles = (BINS[:-1] + BINS[1:]) / 2
    data = [
        {
            "type": "bar", "name": text("accuracy.runs"), "x": figures.plain(middles * 100), "y": counts.tolist(),
            "marker": {"color": token("series")}, "hovertemplate": "%{x:.0f} %: %{y}<extra></extra>",
        }
    ]  # fmt: skip
    layout = figures.layout_of(text, height=440)
    layout["bargap"] = 0.05
    layout["xaxis"] |= {"title": {"text": text("accuracy.error")}, "range": [-100, 100], "dtick": 50}
    layout["yaxis"] |= {"title": {"text": text("accuracy.runs")}}
    return figures.figure(data, layout, text("accuracy.errors_label", count=len(rows)))


def summary(scores: Mapping[str, TableScore | None], text: Text, chosen: str) -> Html:
    """One row a table of measurements; None stands for one that is still being scored."""
    names = [
        button(
            title(name, text),
            class_="gg-link",
            data_set={"table": name},
            aria_current="true" if name == chosen else None,
        )
        for name in scores
    ]
    known = [(score if score is not None and score.scored else None) for score in scores.values()]

    def column(attribute: str) -> list[str]:
        values = [None if score is None else getattr(score, attribute) for score in known]
        return [NOTHING if value is None else text.percent(round(value, 4) + 0.0) for value in values]  # never -0 %

    counts = [
        "…" if score is None else f"{text.count(score.scored)} / {text.count(score.rows)}" for score in scores.values()
    ]
    columns = [
        Column("accuracy.table", names),
        Column("accuracy.scored", counts, number=True),
        Column("accuracy.median", [bold(value) for value in column("median_abs_error")], number=True),
        Column("accuracy.p90", column("p90_abs_error"), number=True),
        Column("accuracy.bias", column("bias"), number=True),
        Column("accuracy.in_band", column("within_band"), number=True),
    ]
    return html_table(text, caption=text("accuracy.summary_caption"), columns=columns)


def title(name: str, text: Text) -> str:
    """A table of measurements in words, with its unit."""
    return text.name("measured", name.replace(":", "_"))


def worst(rows: pd.DataFrame, text: Text, said: Callable[[float], str]) -> Html:
    """The runs we are farthest off, so that nobody has to look for them."""
    if rows.empty:
        return empty(text("accuracy.none"))
    shown = rows.reindex(rows["error"].abs().sort_values(ascending=False).index).head(WORST_FIRST)
    labels = [
        button(str(label), class_="gg-link", data_set={"row": str(row)})
        for label, row in zip(shown["label"], shown["row_id"], strict=True)
    ]
    bands = [f"{said(low)}–{said(high)}" for low, high in zip(shown["low"], shown["high"], strict=True)]
    columns = [
        Column("accuracy.run", labels),
        Column("accuracy.measured", [said(value) for value in shown["measured"]], number=True),
        Column("accuracy.estimated", [bold(said(value)) for value in shown["typical"]], number=True),
        Column("accuracy.band", bands, number=True),
        Column("accuracy.error", [text.percent(value) for value in shown["error"]], number=True),
    ]
    caption = text("accuracy.worst_caption", shown=text.count(len(shown)), all=text.count(len(rows)))
    return html_table(text, caption=caption, columns=columns)


def sentence(rows: pd.DataFrame, text: Text) -> Html:
    """How far off the shown runs are, in one sentence."""
    if rows.empty:
        return empty(text("accuracy.none"))
    off = rows["error"].abs()
    values = {"half": off.median(), "nine": off.quantile(0.9), "inside": rows["inside"].mean()}
    return tag("p", text("accuracy.sentence", count=len(rows), **values), class_="gg-verdict")


def no_run(text: Text) -> Html:
    """Before a run is chosen."""
    return empty(text("accuracy.pick"))


def run(
    row: Mapping[str, Any],
    published: Mapping[str, Any],
    asked: Mapping[str, Mapping[str, Any]],
    text: Text,
    said: Callable[[float], str],
) -> Html:
    """One run: what was measured and what we say, all that was published of it and where, and what we asked."""
    known = {key: value for key, value in published.items() if value == value and value not in (None, "")}
    link = next((str(known.pop(key)) for key in ("source_url", "source_path_or_url") if key in known), "")
    source = str(known.pop("source_title", "") or known.get("source_id", "") or known.get("source", ""))
    link = AT_COMMIT.sub(r"https://\1/blob/\2/\3", link)
    if link.startswith(("https://", "http://")):
        shown: Any = tag("a", source or link, href=link, rel="noopener")
    else:
        shown = join([source, " ", tag("small", link)])
    band = text("accuracy.hover", measured=said(row["measured"]), typical=said(row["typical"]))
    whole = text("accuracy.range", low=said(row["low"]), high=said(row["high"]), error=row["error"])
    parts = [
        [tag("h4", text(f"accuracy.part.{name}")), _values(values, text)] for name, values in asked.items() if values
    ]
    ours = [tag("h3", text("accuracy.asked")), parts or tag("p", text("accuracy.none_asked"), class_="gg-plain")]
    theirs = [tag("h3", text("accuracy.published")), _values(known, text)]
    sides = [
        tag("section", side, tabindex="0", aria_label=text(f"accuracy.{name}"))
        for name, side in (("published", theirs), ("asked", ours))
    ]
    return join(
        [
            tag("p", bold(str(row["label"])), ": ", band, ". ", whole),
            tag("p", text("accuracy.source"), " ", shown),
            tag("div", sides, class_="gg-run"),
        ]
    )


def _values(values: Mapping[str, Any], text: Text) -> Html:
    """Names and values; numbers in the reader's form, all else as it was published."""
    items = []
    for key, value in values.items():
        if isinstance(value, bool | np.bool_):
            form = text("option.yes" if value else "option.no")
        elif isinstance(value, int | float | np.number) and np.isfinite(value):
            form = text.exact(float(value))
        else:
            form = str(value)[:300]
        items.append([tag("dt", str(key)), tag("dd", form)])
    return tag("dl", items, class_="gg-plan gg-inputs")
