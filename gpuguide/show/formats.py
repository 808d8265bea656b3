"""One model in every common weight format: memory, speed and price of the best offer of each, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.decide.formats import Ask, formats
from gpuguide.show import figures
from gpuguide.show.figures import Figure, machine_name
from gpuguide.show.html import NOTHING, Html
from gpuguide.show.theme import token
from gpuguide.show.told import FIT, Said, Told, ranged, table_of
from gpuguide.text import Text
from gpuguide.text.text import unknown
from gpuguide.units import GIB

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.decide.decision import Decision


def format_bars(ask: Ask, decision: Decision, text: Text) -> Figure:
    """Memory, speed and price of the same model in each weight format, on the best offer of each."""
    table = _formats(ask, decision)
    served = table[table["reason"] == ""]
    rate = float(text.currency_per_usd or 1.0)
    labels = [
        f"<b>{name}</b>" if own else name for name, own in zip(_names(served, text), served["asked"], strict=True)
    ]
    panels: tuple[tuple[str, str, pd.Series, Callable[[float], str]], ...] = (
        ("chart.gib_together", "series", served["need_bytes"] / GIB, text.number),
        ("chart.tokens_per_s", "series-2", served["tokens_per_s_typical"], text.number),
        ("chart.million", "series-3", served["usd_per_million_tokens"] * rate, lambda usd: text.money(usd / rate)),
    )
    said = [_format_words(row, text) for row in served.to_dict("records")]
    height = figures.ROW_HEIGHT * max(len(labels), 3)
    layout = figures.layout_of(text, height=height + 96, rows=labels)
    axis = {key: dict(layout[key]) for key in ("xaxis", "yaxis")}
    narrow: dict[str, Any] = {"height": 3 * (height + 84)}
    data = []
    for place, (title, colour, values, words) in enumerate(panels):
        shown = "" if place == 0 else str(place + 1)
        known = values.to_numpy(float)
        data.append(
            {
                "type": "bar", "orientation": "h", "name": text(title, currency=text.currency),
                "x": figures.plain(known), "y": labels, "text": [words(value) for value in known],
                "textposition": "auto", "insidetextanchor": "end", "cliponaxis": False,
                "insidetextfont": {"size": 12, "color": token("on-accent")}, "outsidetextfont": {"size": 12},
                "constraintext": "none",
                "hovertext": said, "hovertemplate": "%{hovertext}<extra></extra>",
                "marker": {"color": token(colour)}, "xaxis": f"x{shown}", "yaxis": f"y{shown}", "showlegend": False,
            }
        )  # fmt: skip
        layout[f"xaxis{shown}"] = axis["xaxis"] | {
            "title": {"text": text(title, currency=text.currency)},
            "anchor": f"y{shown}", "domain": [round(place * 0.345, 3), round(place * 0.345 + 0.31, 3)],
            "range": [0, float(np.nanmax(known, initial=1e-9)) * 1.08], "nticks": 5,
        }  # fmt: skip
        layout[f"yaxis{shown}"] = axis["yaxis"] | {"anchor": f"x{shown}", "showticklabels": place == 0}
        top = 1 - place * 0.345
        narrow |= {
            f"xaxis{shown}.domain": [0, 1], f"yaxis{shown}.domain": [round(max(top - 0.26, 0), 3), round(top, 3)],
            f"yaxis{shown}.showticklabels": True, f"yaxis{shown}.tickfont.size": 10,
        }  # fmt: skip
    drawn = figures.figure(data, layout, text("chart.formats_label", count=len(served)))
    return drawn | {"narrow": drawn["narrow"] | narrow}


def format_table(ask: Ask, decision: Decision, text: Text) -> Html:
    """The numbers behind the bars, and in words why a format cannot be served."""
    table = _formats(ask, decision)
    told = format_columns(table, decision, text)
    return table_of(told, text, caption=text("table.formats_caption"), marked=list(table["asked"]))


def format_columns(table: pd.DataFrame, decision: Decision, text: Text) -> list[Told]:
    """One row a format."""
    rows = table.to_dict("records")
    chosen, engine = text.listed(list(decision.scenario.gpu)), str(decision.scenario.engine)

    def known(tell: Callable[[dict[Any, Any]], Said]) -> list[Said]:
        """Cells of what can be served; a dash for what cannot."""
        return [Said(NOTHING) if row["reason"] else tell(row) for row in rows]

    def named(name: str, row: dict[Any, Any]) -> Said:
        other = text("table.with_engine", engine=text.name("option.engine", row["engine"]))
        return Said(name, "" if row["engine"] == engine else other)

    def offer(row: dict[Any, Any]) -> Said:
        return Said(machine_name(row["gpu"], row["gpus"], row["nodes"]), text.name("option.providers", row["provider"]))

    def amount(key: str) -> list[Said]:
        return known(lambda row: Said(text.money(row[key])))

    return [
        Told("table.format", [named(*both) for both in zip(_names(table, text), rows, strict=True)], number=False),
        Told(FIT, [Said(_fit(row), _why(row, chosen, text)) for row in rows], number=False),
        Told("table.best_offer", known(offer), number=False),
        Told("table.needs", known(lambda row: Said(text.memory(row["need_bytes"]))), phone=False),
        Told("table.tokens_per_s", known(lambda row: ranged(row, "tokens_per_s", "number", text))),
        Told("table.each", known(lambda row: ranged(row, "tpot_s", "duration", text)), phone=False),
        Told("table.cost_month", amount("cost_total_typical_usd")),
        Told("table.per_million", amount("usd_per_million_tokens")),
    ]


def _formats(ask: Ask, decision: Decision) -> pd.DataFrame:
    """Decided once for picture and table."""
    made: dict[str, pd.DataFrame] = vars(decision).setdefault("_formats", {})
    if "all" not in made:
        made["all"] = formats(decision, ask)
    return made["all"]


def _names(table: pd.DataFrame, text: Text) -> list[str]:
    return [text.name("option.weight_format", name) for name in table["weight_format"]]


def _fit(row: dict[Any, Any]) -> str:
    return NOTHING if row["reason"] in ("engine", "groups") else str(row["fit"])


def _why(row: dict[Any, Any], chosen: str, text: Text) -> str:
    """How the format stands on the GPUs asked for: what is free, what is lacking, or why it cannot be."""
    if row["reason"] in ("engine", "groups"):
        return text(f"format.{row['reason']}", engine=text.name("option.engine", row["engine"]))
    if row["fit"] != "no":
        return text("table.spare", spare=text.memory(max(0.0, row["usable_bytes"] - row["memory_total_typical_bytes"])))
    if row["dropped_by"]:
        said = text("format.left", step=text.name("funnel", row["dropped_by"]))
    elif unknown(row["lacks_bytes"]):
        return text("verdict.no_plan")
    else:
        said = text("format.lacks", lacks=text.memory(row["lacks_bytes"]))
    return text("format.on", gpus=chosen, said=said) if chosen else said


def _format_words(row: dict[Any, Any], text: Text) -> str:
    """What a bar says."""
    return text(
        "chart.format_point",
        format=text.name("option.weight_format", row["weight_format"]),
        machine=machine_name(row["gpu"], row["gpus"], row["nodes"]),
        provider=text.name("option.providers", row["provider"]),
        need=text.memory(row["need_bytes"]),
        rate=text.number(row["tokens_per_s_typical"]),
        token=text.duration(row["tpot_s_typical"]),
        month=text.money(row["cost_total_typical_usd"]),
        million=text.money(row["usd_per_million_tokens"]),
    )
