"""Comparison and accuracy: pages that are no declaration."""

import pytest

from gpuguide import Scenario, load_catalog
from gpuguide.accuracy.report import score_folder
from gpuguide.accuracy.table import summarise
from gpuguide.app import accuracy_page, compare_page, media_page
from gpuguide.app.compare import PRESETS
from gpuguide.text import Text


def click(page, **values):
    page.browser._heard(None, {"kind": "set", "values": values}, [])


@pytest.fixture(scope="module")
def accuracy():
    return accuracy_page(table="training_memory")


def test_scenarios_stand_side_by_side():
    """A column of another scenario, or a missing one."""
    page = compare_page(
        a=Scenario(workload="qlora", model="llama-3.1-8b"), b={"workload": "lora", "model": "llama-3.1-8b"}
    )
    shown = page._views["compare"].value
    assert page._error.value == ""
    for decision in page.decisions.values():
        assert Text("en").money(decision.best["cost_total_typical_usd"]) in shown
    assert {place: decision.scenario.workload for place, decision in page.decisions.items()} == {
        "a": "qlora",
        "b": "lora",
    }


def test_a_comparison_can_be_sent_and_taken_apart():
    """All of it lives in the address."""
    page = compare_page(**PRESETS["methods"])
    other = compare_page()
    other.browser.search = f"?{page.browser.query}"
    assert other._views["compare"].value == page._views["compare"].value
    click(other, b="")
    assert list(other.decisions) == ["a", "c"]
    assert "b=" not in other.browser.query
    click(other, language="tr")
    assert "Kiralanan" in other._views["compare"].value


@pytest.mark.parametrize("name", PRESETS)
def test_examples_of_comparisons_give_answers(name):
    """An example that shows an error is worse than none."""
    page = compare_page()
    click(page, **PRESETS[name])
    assert page._error.value == ""
    assert len(page.decisions) == len([query for query in PRESETS[name].values() if query])


def test_a_wrong_scenario_is_said_and_the_others_stay():
    """One bad link among four."""
    page = compare_page()
    click(page, a="workload=serve&model=llama-3.1-8b", b="workload=serve&model=no-such-model", c="nope=1")
    assert page._error.value.startswith("<p>")
    assert list(page.decisions) == ["a"]


def test_the_page_shows_the_figures_of_the_command_line(accuracy):
    """Two accuracies of the same estimates."""
    expected = summarise(score_folder(load_catalog(), only="training_memory").scored["training_memory"])
    assert Text("en").percent(expected.median_abs_error) in accuracy._views["summary"].value
    points = sum(len(trace["x"]) for trace in accuracy._views["scatter"].figure["data"] if trace["mode"] == "markers")
    assert points == len(accuracy.shown) == expected.scored


def test_a_search_narrows_charts_and_table(accuracy):
    """The filter would touch only one of them."""
    everything = len(accuracy.shown)
    accuracy._search.value = "QLoRA"
    assert 0 < len(accuracy.shown) < everything
    assert "find=QLoRA" in accuracy.browser.query
    assert sum(accuracy._views["errors"].figure["data"][0]["y"]) == len(accuracy.shown)
    accuracy._search.value = "<script>nothing"
    assert len(accuracy.shown) == 0
    assert "<script>" not in accuracy._views["worst"].value
    accuracy._search.value = ""


def test_a_clicked_point_shows_its_source_and_inputs(accuracy):
    """A measurement without a source is a rumour."""
    row = str(accuracy.shown.iloc[0]["row_id"])
    accuracy._views["scatter"]._asked(None, {"kind": "click", "point": row}, [])
    shown = accuracy._views["run"].value
    assert "https://" in shown or "source" in shown
    assert "seq_len" in shown
    assert f"row={row}" in accuracy.browser.query


def test_every_table_says_what_was_asked_for_a_run():
    """A run whose estimate nobody can check, as parts of a run had none of the published values."""
    page = accuracy_page()
    for name in page._names:
        click(page, table=name)
        if len(page.shown):
            click(page, row=str(page.shown.iloc[0]["row_id"]))
            shown = page._views["run"].value
            assert page._error.value == "", name
            published, asked = shown.split("<h3>What we asked our estimate</h3>")
            assert "<dt>row_id</dt>" in published, name
            assert asked.count("<dt>") >= 5, name


def test_runs_are_filtered_by_what_they_ran_on(accuracy):
    """A filter of the list that leaves the chart as it was, or that another table cannot undo."""
    click(accuracy, table="decode_throughput:decode_bs1")
    everything = len(accuracy.shown)
    accuracy._facts["gpu"].value = "RTX4090"
    on_one = accuracy.shown
    assert 0 < len(on_one) < everything
    assert set(on_one["gpu"]) == {"RTX4090"}
    assert "of_gpu=RTX4090" in accuracy.browser.query
    assert f"{len(on_one)} runs" in accuracy._sentence.value
    other = accuracy_page()
    other.browser.search = f"?{accuracy.browser.query}"
    assert len(other.shown) == len(on_one)
    click(accuracy, table="training_memory")
    assert set(accuracy.only.values()) == {""}
    click(accuracy, of_gpu="<b>no")
    assert "no GPU called “&lt;b&gt;no”" in accuracy._error.value
    click(accuracy, of_gpu="")


def test_a_run_is_chosen_without_a_mouse(accuracy):
    """A chart is nothing to someone who cannot point."""
    click(accuracy, table="training_memory", row="")
    accuracy._pick.value = accuracy._pick.options[5][1]
    assert accuracy.row == accuracy._pick.options[5][1]
    assert "What we asked" in accuracy._views["run"].value
    accuracy._pick.value = ""
    assert "What we asked" not in accuracy._views["run"].value


def test_every_table_opens_in_both_languages():
    """A table that cannot be drawn, or whose name is a key."""
    page = accuracy_page()
    for language in ("en", "tr"):
        for name in page._names:
            click(page, table=name, language=language)
            assert page._error.value == "", name
            assert page.table == name


@pytest.mark.parametrize("search", ["?table=nope", "?row=%3Cb%3E", "?find=" + "x" * 5000, "?language=xx"])
def test_hostile_links_to_accuracy(search):
    """A page must open whatever its address says."""
    page = accuracy_page()
    page.browser.search = search
    assert "<b>" not in page._error.value
    assert len(page.browser.query) < 400


@pytest.mark.parametrize("workload", ["image", "video", "audio"])
def test_another_kind_of_media_brings_a_model_that_can_make_it(workload):
    """A picture model would be asked for speech."""
    page = media_page()
    click(page, workload=workload)
    assert page._error.value == ""
    assert page.scenario.workload == workload
