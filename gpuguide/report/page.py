"""An executed report as one HTML file that needs nothing else: no code cells, one plotly.js, ready for A4."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpuguide.report.document import PLOTLY
from gpuguide.show.html import Html, join, tag
from gpuguide.show.theme import LIGHT


def page_of(notebook: Any, *, language: str, title: str, identity: str = "", home: Html | None = None) -> str:
    """
    The HTML of an executed notebook.

    Parameters
    ----------
    notebook : NotebookNode
        As papermill returns it.
    language, title : str
        Of the document.
    identity : str
        What the report was made from, kept in its head.
    home : Html, optional
        Link back to an index.
    """
    body = join(_pieces(notebook))
    return document(join([home, tag("main", body)]), language=language, title=title, identity=identity, charts=True)


def document(body: Html, *, language: str, title: str, identity: str = "", charts: bool = False) -> str:
    """A complete HTML document around a body; plotly.js is embedded once, and only where there are charts."""
    style = _static("report.css").replace(
        "/*COLOURS*/", "".join(f"--gg-{name}:{value};" for name, value in LIGHT.items())
    )
    scripts = [_script(plotly_js()), _script(_static("report.js"))] if charts else []
    head = [
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width,initial-scale=1">'),
        Html(f'<meta name="gpuguide-made-from" content="{escape(identity)}">') if identity else None,
        tag("title", title),
        tag("style", Html(style)),
    ]
    html = tag("html", tag("head", head), tag("body", body, scripts), lang=language)
    return f"<!doctype html>\n{html}\n"


def _pieces(notebook: Any) -> Iterator[Html]:
    charts = 0
    for output in _outputs(notebook):
        data: Mapping[str, Any] = output.get("data", {})
        if PLOTLY in data:
            charts += 1
            yield _chart(data[PLOTLY], charts)
        elif "text/html" in data:
            yield Html("".join(data["text/html"]))


def _outputs(notebook: Any) -> Iterable[Mapping[str, Any]]:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield from (output for output in cell.outputs if output.output_type in ("display_data", "execute_result"))


def _chart(figure: Mapping[str, Any], number: int) -> Html:
    """A place for a chart, its legend in words, and its numbers for the script that draws it."""
    kept = {key: figure[key] for key in ("data", "layout", "narrow", "turn") if key in figure}
    numbers = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    height = figure.get("layout", {}).get("height", 360)
    picture = tag("div", role="img", aria_label=figure.get("label", ""), style=f"min-height:{height}px")
    return tag(
        "figure",
        legend(figure.get("data", ())),
        picture,
        tag("script", Html(numbers), type="application/json"),
        class_="gg-chart",
        id=f"chart-{number}",
    )


def legend(traces: Iterable[Mapping[str, Any]]) -> Html | None:
    """Names and colours of a chart's series, as words that wrap."""
    entries = []
    for trace in traces:
        marker, line = trace.get("marker") or {}, trace.get("line") or {}
        colour = marker.get("color") if isinstance(marker.get("color"), str) else line.get("color")
        symbol = str(marker.get("symbol", ""))
        kind = "bar" if trace.get("type") == "bar" else "limit" if symbol.startswith("line") else "dot"
        sign = tag("i", class_=kind, style=f"background:{colour or LIGHT['limit']}")
        entries.append(tag("li", sign, str(trace.get("name", ""))))
    return tag("ul", entries, class_="gg-legend") if len(entries) > 1 else None


def plotly_js() -> str:
    """The plotly.js that the plotly package ships, read without importing plotly."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("reports need the plotly package: pip install 'gpuguide[report]'")
    return (Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js").read_text("utf-8")


def _script(source: str) -> Html:
    # A closing tag inside a string would end the element early.
    return tag("script", Html(source.replace("</script", "<\\/script")))


def _static(name: str) -> str:
    return (resources.files("gpuguide.report") / "static" / name).read_text("utf-8")
