"""Scenario files in every form, and what a broken one says."""

import io

import pytest

from gpuguide.catalog.scenarios import read_scenarios
from gpuguide.errors import DataError, GuideError, InvalidScenario

SAME = {
    "a.toml": 'workload = "lora"\nsequence_length = 2048\n',
    "a.yaml": "workload: lora\nsequence_length: 2048\n",
    "a.json": '{"workload": "lora", "sequence_length": 2048}',
}


@pytest.mark.parametrize("name", SAME)
def test_every_form_gives_the_same_scenario(tmp_path, name):
    path = tmp_path / name
    path.write_text(SAME[name], encoding="utf-8")
    (scenario,) = read_scenarios(str(path))
    assert (scenario.workload, scenario.sequence_length) == ("lora", 2048)


def test_json_lines_give_one_scenario_each(tmp_path):
    path = tmp_path / "many.jsonl"
    path.write_text('{"workload": "lora"}\n{"workload": "serve"}\n', encoding="utf-8")
    assert [one.workload for one in read_scenarios(str(path))] == ["lora", "serve"]


def test_a_long_link_is_a_link():
    """The system refuses to look for a file of so long a name; a model of one's own makes links long."""
    (scenario,) = read_scenarios(f"model=own:{'A' * 900}&concurrency=7")
    assert scenario.concurrency == 7


def test_standard_input_and_overrides(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"workload": "lora"}'))
    (scenario,) = read_scenarios("-", ["train_tokens=1e12", "gpus=256", "gpu=H100-SXM"])
    assert (scenario.train_tokens, scenario.gpus, scenario.gpu) == (1e12, 256, ("H100-SXM",))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "workload = "),
        ("a.json", '{"workload": '),
        ("a.yaml", "workload: [lora"),
        ("a.json", "[1, 2]"),
        ("a.json", "[]"),
        ("a.json", "[" * 100_000),
        ("a.yaml", "\x00"),
    ],
)
def test_broken_file_is_one_sentence(tmp_path, name, text):
    """A parser's own error, or a traceback, must not reach the user."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(GuideError) as caught:
        read_scenarios(str(path))
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_scenarios(str(tmp_path / "absent.toml"))
    with pytest.raises(DataError):
        read_scenarios(str(tmp_path))


def test_override_without_equal_sign():
    with pytest.raises(InvalidScenario, match="key=value"):
        read_scenarios(None, ["workload"])
