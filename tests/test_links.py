"""A link, a file and a report of one state are one state: the same scenario, the same numbers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gpuguide import Scenario, UnknownName, decide, load_catalog
from gpuguide.cli import app
from gpuguide.errors import InvalidScenario
from gpuguide.report.document import Report
from gpuguide.report.sections import as_toml
from gpuguide.spec.link import ADDRESS, is_link, link_of, read_query, scenario_of

STATES = [
    Scenario(workload="lora", model="llama-3.1-8b", train_tokens=2.5e7, sequence_length=2048, lora_rank=64),
    Scenario(workload="serve", model="llama-3.1-70b", weight_format="fp8", concurrency=32, max_tpot_s=0.05),
    Scenario(workload="qlora", model="llama-3.1-8b", gpu=("L4", "L40S"), pricing="any", headroom=0.1),
    Scenario(workload="pretrain", params_b=1.3, gpus=8, deadline_hours=500.0, language="tr"),
]


def numbers(decision):
    """What two answers to the same question have in common, to the last digit."""
    return json.dumps(decision.as_json(top=5)["ranking"], sort_keys=True)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.workload)
def test_link_file_and_report_give_the_same_numbers(state, tmp_path):
    """Someone who is sent a link must see what the sender saw."""
    catalog = load_catalog()
    file = tmp_path / "scenario.toml"
    file.write_text(as_toml(state), "utf-8")
    expected = numbers(decide(catalog.resolve(state)))

    printed = CliRunner().invoke(app, ["decide", str(file), "--link"]).output.strip()
    by_link = CliRunner().invoke(app, ["decide", printed, "--json", "--top", "5"]).output
    by_file = CliRunner().invoke(app, ["decide", str(file), "--json", "--top", "5"]).output
    report = Report.from_names({"link": printed})

    assert printed == link_of(state, ADDRESS)
    assert json.dumps(json.loads(by_link)["ranking"], sort_keys=True) == expected
    assert json.dumps(json.loads(by_file)["ranking"], sort_keys=True) == expected
    assert numbers(report.decision) == expected


KEYS = {
    "workload": st.sampled_from(["pretrain", "full", "lora", "qlora", "serve"]),
    "model": st.sampled_from(["llama-3.1-8b", "owner/name", "./a folder/config.json", "ü+&=?#%"]),
    "train_tokens": st.floats(1, 1e15),
    "sequence_length": st.integers(1, 100_000_000),
    "fused_loss": st.booleans(),
    "headroom": st.floats(0, 0.9),
    "gpu": st.lists(st.sampled_from(["H100-SXM", "L4", "RTX4090"]), max_size=3).map(tuple),
    "max_tpot_s": st.floats(1e-6, 1e3),
    "lora_rank": st.integers(1, 65_536),
}


@given(values=st.fixed_dictionaries({}, optional=KEYS))
def test_every_scenario_survives_its_link(values):
    """A digit lost on the way would be another scenario."""
    state = Scenario(**values)

    assert scenario_of(link_of(state, ADDRESS)) == state
    assert is_link(link_of(state))
    assert is_link(link_of(state, ADDRESS))


@given(text=st.text(max_size=300))
def test_any_text_in_an_address_is_read_or_dropped(text):
    """An address comes from anywhere; a page must not fall over it."""
    assert isinstance(read_query(text), dict)


def test_links_are_short():
    """Only what was set is written."""
    assert link_of(STATES[0]) == (
        "workload=lora&model=llama-3.1-8b&train_tokens=2.5e7&sequence_length=2048&lora_rank=64"
    )


def test_a_wrong_link_is_refused_in_words():
    """Dropping what is not understood would answer another question than the one sent."""
    with pytest.raises(UnknownName, match="did you mean model"):
        scenario_of("http://127.0.0.1:8866/serve?modle=phi-4")
    with pytest.raises(InvalidScenario):
        scenario_of("workload=serve&concurrency=-1")


@pytest.mark.parametrize("name", ["job.toml", "-", "folder/model=8b.toml", "a=b"])
def test_a_file_is_no_link(name):
    """A file whose name has an equals sign is still a file."""
    assert not is_link(name)


@pytest.mark.parametrize(
    ("page", "given"),
    [
        ("finetune", {"workload": "lora", "model": "phi-4", "lora_rank": 64}),
        ("serve", {"model": "llama-3.1-70b", "weight_format": "fp8", "concurrency": 32}),
        ("train", {"params_b": 1.3, "gpus": 8}),
        ("spot", {"workload": "full", "model": "llama-3.1-8b", "pricing": "on_demand"}),
    ],
)
def test_the_address_of_a_page_is_such_a_link(page, given):
    """What stands in the address bar, sent to someone with a terminal, must be the same question."""
    import gpuguide.app as pages

    shown = getattr(pages, f"{page}_page")(**given)

    linked = load_catalog().resolve(scenario_of(shown.browser.query))

    assert linked.scenario == shown.decision.scenario
    assert numbers(decide(linked)) == numbers(shown.decision)
