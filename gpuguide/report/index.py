"""The page that compares reports: one row a scenario, what it says and costs, and the way to its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpuguide.report.page import document
from gpuguide.show.html import Html, join, tag
from gpuguide.show.names import text_with_names
from gpuguide.show.tables import Column, badge, html_table
from gpuguide.show.verdict import machine
from gpuguide.text import Text
from gpuguide.units import HOUR

if TYPE_CHECKING:
    from gpuguide.report.batch import Made


def index_page(made: Sequence[Made], *, language: str, folder: Path) -> str:
    """
    The index of a batch.

    Parameters
    ----------
    made : sequence of Made
    language : str
        Of the page; each report keeps its own.
    folder : Path
        Where the page stands; links are relative to it, so that the folder can be moved as a whole.
    """
    text = text_with_names(language)
    answered = [one for one in made if one.file is not None]
    failed = [(place, one) for place, one in enumerate(made, start=1) if one.file is None]
    body = [
        tag("header", tag("p", "gpuguide", class_="gg-kicker"), tag("h1", text("report.index_title"))),
        tag("p", text("report.index_lead", count=len(made))),
        _table(answered, text, folder) if answered else None,
    ]
    if failed:
        lines = [
            tag("li", tag("b", _name(one, place, text)), ": ", tag("span", one.sentence, lang="en"))
            for place, one in failed
        ]
        body += [tag("h2", text("report.index_failed", count=len(failed))), tag("ul", lines, class_="gg-failed")]
    page = tag("div", tag("main", body), class_="gg-wide-page")
    return document(page, language=language, title=text("report.index_title"))


def _table(made: Sequence[Made], text: Text, folder: Path) -> Html:
    said = [one.summary for one in made]
    columns = [
        Column("report.contents", [_link(one, place, text, folder) for place, one in enumerate(made, start=1)]),
        Column("table.fit", [badge(text, str(summary.get("fit", "no"))) for summary in said], phone=False),
        Column("table.machine", [_machine(summary, text) for summary in said]),
        Column("table.time", [_time(summary, text) for summary in said], number=True, phone=False),
        Column("report.typical_cost", [_cost(summary, text) for summary in said], number=True),
        Column("table.per_million", [_million(summary, text) for summary in said], number=True, phone=False),
        Column("report.seconds", [text.duration(one.seconds) for one in made], number=True, phone=False),
    ]
    return html_table(text, caption=text("report.contents"), columns=columns)


def _name(one: Made, place: int, text: Text) -> str:
    return str(one.summary.get("title") or one.name or text("report.scenario_number", number=place))


def _link(one: Made, place: int, text: Text, folder: Path) -> Html:
    summary = one.summary
    name = summary.get("title") or (
        f"{text.name('option.workload', summary['workload'])}: {summary['model']}"
        if summary.get("workload")
        else _name(one, place, text)
    )
    address = quote(one.file.relative_to(folder).as_posix()) if one.file else ""
    return join([tag("a", name, href=address), tag("small", summary.get("verdict", ""), class_="wide-only")])


def _machine(summary: Any, text: Text) -> Html:
    if "gpu" not in summary:
        return tag("span", text("table.nothing_fits"))
    provider = text.name("option.providers", summary["provider"])
    paid = text("report.paid", provider=provider, price=summary["usd_per_hour"])
    return join([tag("span", machine(summary), class_="gg-machine"), tag("small", paid)])


def _time(summary: Any, text: Text) -> str:
    return text.duration(summary["hours"] * HOUR) if "hours" in summary and summary["workload"] != "serve" else ""


def _cost(summary: Any, text: Text) -> Html:
    """The cost with its range; of a month where the job is serving."""
    if "cost_usd" not in summary:
        return Html("")
    low, typical, high = summary["cost_usd"]
    span = text("report.month" if summary["workload"] == "serve" else "report.job")
    return join([tag("b", text.money(typical)), tag("small", text.band("money", low, high)), tag("small", span)])


def _million(summary: Any, text: Text) -> str:
    return text.money(summary["usd_per_million_tokens"]) if "usd_per_million_tokens" in summary else ""
