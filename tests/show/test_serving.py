"""Serving pictures say the numbers of their tables, in words of both languages, also where there is nothing to draw."""

import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.show.formats import format_bars, format_table
from gpuguide.show.serving import latency_curve, latency_table
from gpuguide.text import Text

CASES = {
    "fits": {"model": "llama-3.1-8b", "concurrency": 16, "max_tpot_s": 0.05, "max_ttft_s": 1.0},
    "nothing fits": {"model": "llama-3.1-405b", "gpu": ["L4"], "gpus": 1, "max_tpot_s": 0.05},
    "llama.cpp": {"model": "llama-3.1-8b", "engine": "llama.cpp", "weight_format": "Q4_K_M"},
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def answer(request):
    """A decision, and a way to ask for its neighbours."""
    catalog, scenario = load_catalog(), Scenario(workload="serve", **request.param)

    def ask(change):
        return decide(catalog.resolve(scenario.model_copy(update=dict(change))))

    return ask, ask({})


@pytest.mark.parametrize("language", ["en", "tr"])
def test_pictures_and_tables_agree(answer, language):
    """A point without its row, or a word left out in one language."""
    ask, decision = answer
    text = Text(language)
    curve, table = latency_curve(decision, text), str(latency_table(decision, text))
    lines = [trace for trace in curve["data"] if trace["mode"] == "lines+markers"]
    assert len(lines) % 2 == 0
    if not lines:
        assert text("table.nothing_fits") in table
        assert curve["layout"]["annotations"][0]["text"] == text("table.nothing_fits")
    else:
        assert table.count("<tr") - 1 == sum(len(line["x"]) for line in lines) / 2
        for line in lines[:1]:
            assert all(text.number(y) in table for y in line["y"])
            assert "None" not in "".join(line["text"])
            assert "nan" not in "".join(line["text"])
    bars, rows = format_bars(ask, decision, text), str(format_table(ask, decision, text))
    assert len(bars["data"]) == 3
    assert rows.count("<tr") - 1 >= len(bars["data"][0]["y"])
    assert "nan" not in rows


def test_limits_are_drawn_where_the_reader_set_them():
    """The reader's line at another place than the limit the ranking obeys."""
    decision = decide(load_catalog().resolve(Scenario(workload="serve", **CASES["fits"])))
    layout = latency_curve(decision, Text("en"))["layout"]
    assert [shape["x0"] for shape in layout["shapes"]] == [0.05, 1.0]
    assert [note["text"] for note in layout["annotations"]] == ["your limit, 50 ms", "your limit, 1 s"]


def test_reasons_are_words():
    """A key, or an empty cell, in place of a reason."""
    scenario = Scenario(workload="serve", **CASES["llama.cpp"])
    decision = decide(load_catalog().resolve(scenario))
    ask = lambda change: decide(decision.question.again(decision.scenario.model_copy(update=dict(change))))  # noqa: E731
    shown = str(format_table(ask, decision, Text("en")))
    assert "llama.cpp does not load it; choose another engine" in shown
    assert "dropped_by" not in shown
    assert "None" not in shown
