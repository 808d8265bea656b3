"""Reports: whole in both languages, sealed into one file, refused in words, and as cheap as their cells."""

import json
import math
import re
import shutil
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from gpuguide import DataError, Scenario, UnknownName, decide, load_catalog
from gpuguide.cli import app
from gpuguide.report.batch import JOURNAL, Made, write_report, write_reports
from gpuguide.report.document import PLOTLY, SUMMARY, Report
from gpuguide.report.index import index_page
from gpuguide.report.kernel import check_parameters, notebook_path
from gpuguide.report.paper import browser
from gpuguide.report.sections import in_unit
from gpuguide.report.sensitivity import assumption_movers, cost_of, movers
from gpuguide.text import Text

SCENARIOS = {
    "lora": {"workload": "lora", "model": "llama-3.1-8b"},
    "serve": {"workload": "serve", "model": "llama-3.1-70b", "weight_format": "fp8", "concurrency": 32},
    "spot": {"workload": "full", "model": "llama-3.1-8b", "pricing": "spot", "deadline_hours": 100},
    "none": {"workload": "full", "model": "llama-3.1-8b", "gpu": ("L4",), "gpus": 1},
    "image": {"workload": "image", "model": "flux.1-dev"},
}
SECTIONS = ("question", "answer", "funnel", "memory", "time", "cost", "shortlist", "changes", "sources")


def report_of(name, **more):
    return Report(Scenario(**SCENARIOS[name], **more), load_catalog())


# ---- the sections ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "tr"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_section_is_there_in_both_languages(name, language):
    """A section that is empty, or that shows a key in place of a text."""
    report = report_of(name, language=language)
    report.accuracy = dict  # the measurements are scored elsewhere
    for section in SECTIONS:
        bundles = [data for data, _ in getattr(report, section)().outputs()]
        shown = " ".join(data.get("text/html", "") for data in bundles)
        assert bundles, section
        assert not re.search(r"\b(report|table|control|option|chart)\.[a-z_]+\.?[a-z_]*\b", shown), shown[:500]
        assert "var(--gg" not in json.dumps([data.get(PLOTLY) for data in bundles])


def test_the_answer_says_what_an_index_needs():
    """The index is made from this alone."""
    report = report_of("lora")
    (first, _), *_ = report.answer().outputs()

    best = report.decision.best
    assert first[SUMMARY]["cost_usd"][1] == pytest.approx(best["cost_total_typical_usd"])
    assert first[SUMMARY]["gpu"] == best["gpu"]


def test_a_bar_of_the_tornado_ends_where_the_changed_scenario_costs():
    """A sensitivity that does not agree with the answer to the changed question is worse than none."""
    report = report_of("lora")
    decision = report.decision
    found = {mover.name: mover for mover in movers(decision, assumption_movers(decision), most=50)}
    place = int(decision.best_first[0])
    more = decision.scenario.model_copy(update={"train_tokens": decision.scenario.train_tokens * 1.25})
    again = decide(decision.question.again(more))

    row = again.rows.table(again.best_first[again.best_first == place]).iloc[0]
    assert found["train_tokens"].high.cost == pytest.approx(row["cost_total_typical_usd"])
    price = found["usd_per_hour"]
    assert price.low.cost < cost_of(decision) < price.high.cost


def test_movers_are_sorted_and_each_moves_something():
    """What is shown first is what a reader looks into first."""
    report = report_of("serve")
    cost = cost_of(report.decision)
    widths = [mover.width(cost) for mover in report.movers]

    assert widths == sorted(widths, reverse=True)
    assert min(widths) > 0
    assert all(math.isfinite(mover.low.cost) or math.isfinite(mover.high.cost) for mover in report.movers)


def test_nothing_fits_is_a_report_too():
    """Why nothing fits is worth keeping."""
    report = report_of("none")

    assert report.summary()["fit"] == "no"
    assert report.movers == []


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        pytest.param(2e8, "bytes/s", "0.186 GiB/s", id="a rate is not a time"),
        pytest.param(240.0, "s", "4 min", id="a time"),
        pytest.param(0.82, "-", "0.82", id="a share"),
        pytest.param(0.08, "USD/GB/month", "0.08 USD/GB/month", id="any other unit"),
    ],
)
def test_constants_are_shown_in_their_unit(value, unit, expected):
    """Download speed was once shown as a duration."""
    assert in_unit(value, unit, Text("en")).replace("\u00a0", " ") == expected


# ---- parameters ------------------------------------------------------------------------------------------------------


def test_unknown_parameters_are_refused():
    """Papermill takes any name: a typo would give a report of the default job."""
    with pytest.raises(UnknownName, match="did you mean"):
        check_parameters({"scenari": {}})
    with pytest.raises(UnknownName, match="did you mean model"):
        Report.from_names({"scenario": {}, "modle": "phi-4"})


def test_keys_may_be_given_by_themselves():
    """`papermill report.ipynb out.ipynb -p workload qlora -p model phi-4`."""
    report = Report.from_names({"scenario": {"workload": "lora"}, "model": "phi-4", "language": "tr", "In": [], "_": 1})

    assert (report.scenario.workload, report.scenario.model, report.scenario.language) == ("lora", "phi-4", "tr")


def test_the_notebook_is_short_and_has_no_outputs():
    """Stored outputs would be of another day."""
    notebook = json.loads(notebook_path().read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]

    assert all(not cell["outputs"] for cell in code)
    assert ["".join(cell["source"]).split("report.")[-1].split("(")[0] for cell in code[1:]] == list(SECTIONS)


# ---- files -----------------------------------------------------------------------------------------------------------


class Loads(HTMLParser):
    """What a page would fetch, and how many scripts and code cells it holds."""

    def __init__(self):
        super().__init__()
        self.fetched, self.scripts, self.ids = [], 0, []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.scripts += tag == "script" and given.get("type") != "application/json"
        self.ids.append(given.get("id"))
        if tag in ("script", "img", "link", "iframe"):
            self.fetched += [given[name] for name in ("src", "href") if name in given]


@pytest.mark.notebook
@pytest.mark.slow
def test_a_batch_is_sealed_compared_and_taken_up_again(tmp_path):
    """The whole way: JSON Lines in, a report each and an index out, a wrong scenario listed, a second run kept."""
    lines = [
        {**SCENARIOS["lora"], "title": "Ön deneme <b>"},
        {"workload": "lora", "modle": "x"},
        {"workload": "serve", "model": "nonesuch-7b", "title": "Nonesuch"},
        {**SCENARIOS["lora"], "language": "tr", "title": "İkinci"},
    ]
    file = tmp_path / "scenarios.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    out = tmp_path / "reports"

    first = CliRunner().invoke(app, ["report", str(file), "-o", str(out)])
    again = CliRunner().invoke(app, ["report", str(file), "-o", str(out)])

    assert "2 of 4 reports" in first.output
    assert again.output.count("up to date, kept") == 2
    assert sorted(path.name for path in out.iterdir()) == [
        JOURNAL, "001-on-deneme-b.html", "004-ikinci.html", "index.html",
    ]  # fmt: skip
    index = (out / "index.html").read_text("utf-8")
    assert "did you mean model" in index
    assert "no model named 'nonesuch-7b'" in index.replace("&#x27;", "'")
    assert "Ön deneme &lt;b&gt;" in index
    page = (out / "001-on-deneme-b.html").read_text("utf-8")
    loads = Loads()
    loads.feed(page)
    assert loads.fetched == []
    assert loads.scripts == 2  # plotly.js once, and what draws the charts
    assert sum(str(name).startswith("chart-") for name in loads.ids) >= 4
    assert "report.answer()" not in page
    assert 'lang="tr"' in (out / "004-ikinci.html").read_text("utf-8")
    # The second report came from a kernel that was warm: it costs little more than its cells.
    entry = json.loads((out / JOURNAL).read_text("utf-8").splitlines()[1])
    assert entry["seconds"] < 1.5 * entry["cells_s"] + 0.5


@pytest.mark.notebook
@pytest.mark.slow
def test_the_report_says_what_decide_says(tmp_path):
    """A report that is kept as proof must hold the same numbers."""
    made = write_report(SCENARIOS["lora"], tmp_path / "report.ipynb")
    best = decide(load_catalog().resolve(Scenario(**SCENARIOS["lora"]))).best

    assert made.summary["cost_usd"][1] == pytest.approx(best["cost_total_typical_usd"], rel=1e-9)
    assert json.loads((tmp_path / "report.ipynb").read_text("utf-8"))["nbformat"] == 4


@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason="there is no browser to print with")
def test_a_pdf_is_printed_by_a_browser(tmp_path):
    """Pages, not a screenshot."""
    write_report(SCENARIOS["lora"], tmp_path / "report.pdf")

    content = (tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 4


def test_without_a_browser_a_pdf_is_refused_in_words(tmp_path, monkeypatch):
    """`no such file: chromium` helps nobody."""
    from gpuguide.report import paper

    monkeypatch.setattr(paper, "browser", lambda: None)
    with pytest.raises(DataError, match=r"needs Chromium, Chrome or Edge.*write \.html"):
        paper.print_pdf(tmp_path / "a.html", tmp_path / "a.pdf")


@pytest.mark.parametrize("name", ["report.docx", "report"])
def test_other_formats_are_refused_before_any_work(name, tmp_path):
    """A kernel started for nothing."""
    with pytest.raises(DataError, match=r"\.html, \.pdf, \.ipynb"):
        write_report(SCENARIOS["lora"], tmp_path / name)


def test_an_unwritable_place_is_said_before_any_work(tmp_path):
    """Not after the kernel has worked."""
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(DataError, match="cannot be written"):
        write_reports([SCENARIOS["lora"]], tmp_path / "file" / "reports.html")


def test_links_of_an_index_hold_when_its_folder_is_moved(tmp_path):
    """Reports are sent on as a folder."""
    (tmp_path / "a b").mkdir()
    made = [
        Made(
            name="one", file=tmp_path / "a b" / "001-one.html", summary={"workload": "lora", "model": "m", "fit": "no"}
        ),
        Made(name="two", file=None, sentence="no model named 'x'"),
    ]
    page = index_page(made, language="tr", folder=tmp_path)

    assert 'href="a%20b/001-one.html"' in page
    assert str(tmp_path) not in page
    assert "no model named 'x'" in page


@pytest.mark.browser
@pytest.mark.slow
def test_a_report_opens_offline_at_every_width(tmp_path, chromium):
    """Charts drawn, nothing fetched, nothing wider than the screen, no error in the console."""
    write_report(SCENARIOS["serve"], tmp_path / "report.html")
    for width in (390, 860, 1400):
        page = chromium.new_page(viewport={"width": width, "height": 900})
        said, asked = [], []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto((tmp_path / "report.html").as_uri())
        page.wait_for_selector("html[data-drawn]")
        charts = page.eval_on_selector_all("figure.gg-chart .main-svg", "found => found.length")
        wide = page.evaluate("document.documentElement.scrollWidth")

        assert charts >= 4
        assert wide <= width
        assert said == []
        assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
        page.close()
    shutil.rmtree(tmp_path, ignore_errors=True)
