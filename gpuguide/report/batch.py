"""
Reports of one scenario or of many: each its own file, an index that compares them, and a journal to go on from.

A scenario that cannot be answered stops none of the others; the index lists it with its sentence.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuguide.errors import DataError, GuideError
from gpuguide.files import check_writable, digest_of, read_text, whole, write_text
from gpuguide.report.kernel import WarmKernel
from gpuguide.report.page import page_of
from gpuguide.spec.scenario import Scenario

FORMATS = (".html", ".pdf", ".ipynb")
JOURNAL = ".reports.jsonl"
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What became of one scenario."""

    name: str
    file: Path | None  # None where it could not be answered
    sentence: str = ""  # why not
    summary: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    cells_s: float = 0.0
    kept: bool = False  # made by an earlier, interrupted batch


Told = Callable[[Made, int, int], None]


def write_report(row: Row, out: Path, *, assumptions: str = "", today: str = "") -> Made:
    """
    One report of one scenario.

    Raises
    ------
    GuideError
        If the scenario cannot be answered or the file not be written.
    """
    suffix = _format(out)
    check_writable(out)
    with WarmKernel() as kernel:
        return _make(kernel, row, "", out, suffix, assumptions, today)


def write_reports(
    rows: Sequence[Row], out: Path, *, assumptions: str = "", today: str = "", told: Told | None = None
) -> list[Made]:
    """
    Reports of several scenarios and an index page.

    Parameters
    ----------
    rows : sequence of mappings
        Plain scenarios, checked one by one, so that a wrong one does not stop the rest.
    out : Path
        A folder: reports as HTML and `index.html` in it. A file: its ending says the format, the index has its name
        with .html, and reports stand in a folder beside it.
    assumptions, today : str
        File of one's own assumptions; day from which prices age.
    told : callable, optional
        Called after each scenario with what became of it, its number, and how many there are.

    Returns
    -------
    list of Made
        In the order of the scenarios.

    Notes
    -----
    Each finished report is written to a journal in the folder; a batch that was interrupted takes over every report
    that was made from the same scenario, data, assumptions and day.
    """
    suffix = _format(out) if out.suffix else ".html"
    folder, index = (out.with_suffix(""), out.with_suffix(".html")) if out.suffix else (out, out / "index.html")
    check_writable(index)
    check_writable(folder / JOURNAL)
    journal = folder / JOURNAL
    known = {entry["identity"]: entry for entry in _entries(journal)}
    names = _names(rows)
    files = [folder / f"{number:03d}-{name}{suffix}" for number, name in enumerate(names, start=1)]
    identities = [identity_of(row, suffix, assumptions, today) for row in rows]
    kept = [
        _taken_over(known.get(identity), name, file)
        for identity, name, file in zip(identities, names, files, strict=True)
    ]
    made: list[Made] = []
    with ExitStack() as stack:
        kernel = stack.enter_context(WarmKernel()) if None in kept else None
        for place, one in enumerate(kept):
            if one is None and kernel is not None:
                one = _one(kernel, rows[place], names[place], files[place], suffix, assumptions, today, index)
                if one.file is not None:
                    _note(journal, identities[place], one)
            if one is not None:
                made.append(one)
                if told is not None:
                    told(one, place + 1, len(rows))
    write_text(index, _index_page(made, rows, index))
    journal.unlink(missing_ok=True) if all(one.file for one in made) else None
    return made


def identity_of(row: Row, suffix: str, assumptions: str, today: str) -> str:
    """What a report depends on, in short: scenario, form, version, data, assumptions and day."""
    import datetime as dt

    from gpuguide import __version__
    from gpuguide.catalog.package import data_folder

    facts = [dict(row), suffix, __version__, _digest(data_folder()), today or dt.date.today().isoformat()]
    facts.append(read_text(Path(assumptions)) if assumptions else "")
    plain = json.dumps(facts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(plain.encode()).hexdigest()[:24]


@lru_cache(maxsize=4)
def _digest(folder: Path) -> str:
    return digest_of(folder)


def _one(
    kernel: WarmKernel, row: Row, name: str, file: Path, suffix: str, assumptions: str, today: str, index: Path
) -> Made:
    started = time.perf_counter()
    try:
        return _make(kernel, row, name, file, suffix, assumptions, today, index)
    except GuideError as error:
        return Made(name=name, file=None, sentence=str(error), seconds=time.perf_counter() - started)
    except RuntimeError as error:
        return Made(name=name, file=None, sentence=f"our fault: {error}", seconds=time.perf_counter() - started)


def _make(
    kernel: WarmKernel,
    row: Row,
    name: str,
    out: Path,
    suffix: str,
    assumptions: str,
    today: str,
    index: Path | None = None,
) -> Made:
    started = time.perf_counter()
    row = dict(row)
    title = str(row.pop("title", "") or "")
    scenario = Scenario.from_mapping(row)  # a wrong key is said before a kernel is asked
    given = {key: value for key, value in row.items() if value is not None}
    parameters = {"scenario": json.loads(json.dumps(given, default=str)), "title": title}
    parameters |= {"assumptions": str(Path(assumptions).resolve()) if assumptions else "", "today": today}
    executed = kernel.run(parameters)
    summary = _summary(executed.notebook)
    shown = title or f"{summary.get('model', '')} · {scenario.workload}"
    if suffix == ".ipynb":
        import nbformat

        with whole(out) as partial:
            nbformat.write(executed.notebook, str(partial))  # type: ignore[no-untyped-call]
    else:
        home = _home(index, out, scenario.language) if index is not None else None
        page = page_of(executed.notebook, language=scenario.language, title=shown, home=home)
        if suffix == ".html":
            write_text(out, page)
        else:
            _print(page, out)
    return Made(
        name=name, file=out, summary=summary, seconds=time.perf_counter() - started, cells_s=executed.cells_s
    )  # fmt: skip


def _summary(notebook: Any) -> dict[str, Any]:
    """What the answer's cell said of itself, for the index."""
    from gpuguide.report.document import SUMMARY

    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if SUMMARY in output.get("data", {}):
                return dict(output["data"][SUMMARY])
    return {}


def _print(page: str, out: Path) -> None:
    import tempfile

    from gpuguide.report.paper import print_pdf

    with tempfile.TemporaryDirectory(prefix="gpuguide-report-") as folder, whole(out) as partial:
        html = Path(folder) / "report.html"
        html.write_text(page, "utf-8")
        partial.unlink()
        print_pdf(html, partial)


def _home(index: Path, out: Path, language: str) -> Any:
    from gpuguide.show.html import tag
    from gpuguide.text import Text

    steps = "../" if index.parent != out.parent else ""
    return tag("p", tag("a", f"← {Text(language)('report.contents')}", href=f"{steps}{index.name}"), class_="gg-home")


def _index_page(made: Sequence[Made], rows: Sequence[Row], index: Path) -> str:
    from gpuguide.report.index import index_page

    languages = [str(row.get("language") or "en") for row in rows]
    return index_page(made, language=max(set(languages), key=languages.count), folder=index.parent)


def _format(out: Path) -> str:
    suffix = out.suffix.casefold()
    if suffix not in FORMATS:
        raise DataError(out.name, None, None, f"a report is written as one of {', '.join(FORMATS)}")
    return suffix


# ---- the journal -----------------------------------------------------------------------------------------------------


def _entries(journal: Path) -> Iterator[dict[str, Any]]:
    """Lines of the journal; one cut short by an interruption is passed over."""
    if not journal.is_file():
        return
    for line in journal.read_text("utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and "identity" in entry:
            yield entry


def _note(journal: Path, identity: str, made: Made) -> None:
    entry = {
        "identity": identity, "file": made.file.name if made.file else "", "summary": dict(made.summary),
        "seconds": made.seconds, "cells_s": made.cells_s,
    }  # fmt: skip
    try:
        with journal.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(entry, ensure_ascii=False) + "\n")
    except OSError as error:
        raise DataError(str(journal), None, None, f"cannot be written ({error.strerror})") from None


def _taken_over(entry: Mapping[str, Any] | None, name: str, file: Path) -> Made | None:
    if entry is None or entry.get("file") != file.name or not file.is_file():
        return None
    return Made(
        name=name, file=file, summary=entry.get("summary", {}), seconds=float(entry.get("seconds", 0.0)),
        cells_s=float(entry.get("cells_s", 0.0)), kept=True,
    )  # fmt: skip


def _names(rows: Sequence[Row]) -> list[str]:
    """A readable file name for each scenario."""
    named = []
    for row in rows:
        words = [str(row[key]) for key in ("workload", "model", "params_b") if row.get(key)]
        named.append(_slug(str(row.get("title") or "-".join(words) or "scenario")))
    return named


def _slug(words: str) -> str:
    # Folders of a model's path say nothing to a reader of file names.
    name = words.rpartition("/")[2] if words.count("/") > 1 else words
    # Letters with marks become the letters without: a file name that every system can send on.
    ascii_name = unicodedata.normalize("NFKD", name.replace("ı", "i")).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^0-9a-zA-Z.]+", "-", ascii_name)
    return plain.strip("-.")[:60].casefold() or "scenario"
