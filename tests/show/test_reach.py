"""Roof, limits and ladder show the decision's own numbers, in words of both languages."""

import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.show.reach import ladder_list, limits_table, roofline
from gpuguide.text import Text

JOBS = [
    {"workload": "serve", "model": "llama-3.1-8b", "concurrency": 16},
    {"workload": "lora", "model": "llama-3.1-8b"},
]


@pytest.fixture(scope="module")
def decisions():
    catalog = load_catalog()
    return [decide(catalog.resolve(Scenario(**job))) for job in JOBS]


@pytest.mark.parametrize("language", ["en", "tr"])
def test_points_lie_under_their_roof(decisions, language):
    """A point above the roof would say that a card does more than it can."""
    for decision in decisions:
        figure = roofline(decision, Text(language))
        roofs = [trace for trace in figure["data"] if trace["mode"] == "lines"]
        points = [trace for trace in figure["data"] if trace["mode"] == "markers"]
        assert len(roofs) == len(points) > 2
        for roof, point in zip(roofs, points, strict=True):
            left, bandwidth = roof["x"][0], roof["y"][0] / roof["x"][0]
            assert left < point["x"][0]
            assert point["y"][0] <= min(roof["y"][1], bandwidth * point["x"][0]) * 1.01
            assert "limited_by" not in point["text"][0]


@pytest.mark.parametrize(("language", "words"), [("en", "Longest context"), ("tr", "En uzun bağlam")])
def test_limits_and_ladder_are_worded(decisions, language, words):
    for decision in decisions:
        assert words in limits_table(decision, Text(language))
        assert str(ladder_list(decision, Text(language))).count('class="chosen"') == 1


def test_media_has_no_roof_and_says_so():
    """Where a picture would be empty, an empty picture and one sentence, not an error."""
    decision = decide(load_catalog().resolve(Scenario(workload="image")))
    assert roofline(decision, Text("en"))["data"] == []
    assert "one size at a time" in limits_table(decision, Text("en"))
