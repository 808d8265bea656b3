"""Phases as bars and rows in both languages, and a sentence where a model has none."""

import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.show.media import phase_bars, phase_table
from gpuguide.text import Text


@pytest.mark.parametrize(("language", "peak"), [("en", "the fullest"), ("tr", "en dolu aşama")])
def test_bars_and_rows_say_the_same(language, peak):
    """A phase that is drawn but not told, or two of them marked as the fullest."""
    decision = decide(load_catalog().resolve(Scenario(workload="image", model="flux.1-dev", quantization="nf4")))
    figure, table = phase_bars(decision, Text(language)), str(phase_table(decision, Text(language)))
    labels = figure["data"][0]["y"]
    assert table.count("<tr") - 1 == len(labels)
    assert table.count(peak) == 1
    assert sum(label.startswith("<b>") for label in labels) == 1


def test_models_without_phases_say_so():
    decision = decide(load_catalog().resolve(Scenario(workload="audio", model="whisper-large-v3")))
    assert phase_bars(decision, Text("en"))["data"] == []
    assert Text("en")("table.no_phases") in str(phase_table(decision, Text("en")))
