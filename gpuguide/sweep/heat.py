"""A sweep as a picture: one number over two keys, the best of all other keys in each cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gpuguide.errors import DataError, UnknownName, nearest
from gpuguide.show.theme import FONT, LIGHT, resolved, token
from gpuguide.text import SEPARATORS, Text


def read_rows(path: Path) -> pd.DataFrame:
    """
    Rows of a sweep.

    Raises
    ------
    DataError
        If the file cannot be read as what its name says.
    """
    try:
        return pd.read_parquet(path) if path.suffix.casefold() == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise DataError(path.name, None, None, f"cannot be read ({' '.join(str(error).split())[:150]})") from None


def heat_map(rows: pd.DataFrame, *, x: str, y: str, value: str = "cost_usd_typical", language: str = "en") -> Any:
    """
    A heat map for a notebook: shown by JupyterLab, and by anything that knows Plotly's figures.

    Parameters
    ----------
    rows : DataFrame
        From `read_rows`.
    x, y : str
        Keys of the grid.
    value : str
        A number of each row; where several rows fall into a cell the least is shown, with its machine.
    language : str

    Raises
    ------
    UnknownName
        If the sweep has no such column.
    """
    for name in (x, y, value):
        if name not in rows:
            raise UnknownName("column of the sweep", name, nearest(name, rows.columns), len(rows.columns))
    text = Text(language)
    answered = rows[rows["outcome"].isin(["fits", "tight"]) & rows[value].notna()]
    if answered.empty:
        raise DataError("sweep", None, value, "no point of it has an answer to show")
    best = answered.loc[answered.groupby([x, y], sort=True, observed=True)[value].idxmin()]
    best = best.assign(said=[_said(row, value, text) for row in best.to_dict("records")])
    cells = best.pivot_table(index=y, columns=x, values=value, sort=True)
    words = best.pivot_table(index=y, columns=x, values="said", aggfunc="first", sort=True)
    words = words.reindex(index=cells.index, columns=cells.columns).fillna("")
    return Heat(_figure(cells, words, _label(x, text), _label(y, text), value, text))


def _figure(cells: pd.DataFrame, words: pd.DataFrame, x: str, y: str, value: str, text: Text) -> dict[str, Any]:
    axis = {"type": "category", "tickfont": {"size": 12}, "automargin": True, "linecolor": token("line")}
    numbers = cells.to_numpy(dtype=float)
    small = numbers.size <= 120
    shown = [[_number(number, value, text) for number in row] for row in numbers]
    return {
        "data": [
            {
                "type": "heatmap", "x": _names(cells.columns, text), "y": _names(cells.index, text),
                "z": [[None if number != number else float(f"{number:.4g}") for number in row] for row in numbers],
                "text": shown, "texttemplate": "%{text}" if small else "", "customdata": words.to_numpy().tolist(),
                "hovertemplate": "%{customdata}<extra></extra>", "xgap": 1, "ygap": 1,
                "colorscale": [[0.0, "#e8f1fb"], [0.5, "#6aaed6"], [1.0, LIGHT["series"]]],
                "colorbar": {"title": {"text": value.replace("_", " "), "side": "right"}, "thickness": 14},
            }
        ],
        "layout": {
            "height": 120 + 34 * max(4, min(len(cells), 24)), "separators": SEPARATORS[text.language],
            "font": {"family": FONT, "size": 13, "color": token("ink")}, "margin": {"l": 10, "r": 10, "t": 10, "b": 50},
            "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": token("raised"),
            "xaxis": axis | {"title": {"text": x}}, "yaxis": axis | {"title": {"text": y}},
        },
        "label": text("sweep.heat_label", value=value, x=x, y=y),
    }  # fmt: skip


def _said(row: dict[Any, Any], value: str, text: Text) -> str:
    gpus = row.get("best_gpus")
    machine = f"{int(gpus)}× {row['best_gpu']}" if gpus == gpus and gpus else str(row.get("best_gpu"))
    return f"{machine}, {row.get('best_provider')}<br>{_number(row[value], value, text)}"


def _number(number: float, value: str, text: Text) -> str:
    if number != number:
        return ""
    if "usd" in value:
        return text.money(number)
    if value.endswith("bytes") or "_bytes_" in value:
        return text.memory(number)
    return text.hours(number) if value.startswith("hours") else text.number(number)


def _names(values: pd.Index, text: Text) -> list[str]:
    return [text.compact(value) if isinstance(value, int | float) else str(value) for value in values.tolist()]


def _label(key: str, text: Text) -> str:
    name = f"control.{key}.label"
    return text(name) if text.has(name) else key


class Heat:
    """A figure that shows itself in a notebook."""

    def __init__(self, figure: dict[str, Any]) -> None:
        self.figure = figure

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"application/vnd.plotly.v1+json": resolved(self.figure), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return str(self.figure["label"])
