"""Public functions take anything: an answer or a GuideError of one sentence, whatever type or value comes."""

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpuguide
from gpuguide import Catalog, Decision, GuideError, Scenario, decide, load_catalog
from gpuguide.decide.decision import plain

FINITE_OR_NOT = [
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    0,
    1,
    0.5,
    1e-300,
    1e300,
    10**30,
    10**5000,
    np.float64(2),
]
JUNK = [
    None, True, b"x", "", " ", "\x00", "\ud800", "a" * 10_000, "ığüşöçİ", "١٢٣", "<b>", "{0.__class__}", "%s%n", "../x",
    "~nobody/x", "llama-3.1-8b\n", [], ["a"], {}, {"a": [1]}, (), object(), Path("/x"), pd.NA, pd.NaT, *FINITE_OR_NOT,
]  # fmt: skip


def named(value: object) -> str:
    try:
        return "an object" if type(value) is object else repr(value)[:30]
    except ValueError:
        return "a number of 5000 digits"


VALUES = [pytest.param(value, id=named(value)) for value in JUNK]


def answer(call: object, *words: object, **options: object) -> object:
    """What a call returns, or None where it refuses in one sentence; anything else escapes."""
    try:
        return call(*words, **options)
    except GuideError as error:
        said = str(error)
        assert said.isprintable()
        assert 15 < len(said) < 800
        return None


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def decision(catalog: Catalog) -> Decision:
    return decide(catalog.resolve(Scenario(workload="lora", model="llama-3.1-8b")))


def test_every_public_name_is_swept() -> None:
    """A new public name has no test here yet."""
    errors = {name for name in gpuguide.__all__ if isinstance(getattr(gpuguide, name), type)}
    errors = {name for name in errors if issubclass(getattr(gpuguide, name), Exception)}

    assert set(gpuguide.__all__) - errors == {"Catalog", "Decision", "Question", "Scenario", "decide", "load_catalog"}


@pytest.mark.parametrize("value", VALUES)
def test_catalog(catalog: Catalog, value: object) -> None:
    """Each method, each argument."""
    answer(catalog.gpu, value)
    answer(catalog.model, value)
    answer(catalog.nodes, value)
    for options in ({"gpus_per_node": value}, {"nodes": value}, {"nodes": 2, "fabric": value}, {"fabric_gbps": value}):
        answer(catalog.nodes, "H100-SXM", **options)
    for name in ("gpus", "providers", "kinds"):
        answer(catalog.offers, **{name: value})
        answer(catalog.offers, **{name: [value]})
    answer(catalog.offers, min_memory_gb=value)
    answer(catalog.resolve, value)
    answer(load_catalog, value)
    answer(Catalog, value)
    answer(Catalog, None, value)
    answer(decide, value)


@pytest.mark.parametrize("value", VALUES)
def test_decision(decision: Decision, value: object) -> None:
    """Numbers of rows."""
    answer(decision.top, value)
    answer(decision.table, top=value)
    answer(decision.as_json, top=value)


KEYS = sorted(Scenario.model_fields)


@pytest.mark.parametrize("key", KEYS)
def test_scenario_takes_or_refuses_every_value(key: str) -> None:
    """Each key with each value, alone and in a mapping."""
    for value in JUNK:
        answer(Scenario, **{key: value})
        answer(Scenario.from_mapping, {key: value})


@pytest.mark.parametrize("value", VALUES)
def test_scenario_from_anything(value: object) -> None:
    """Not a mapping, or keys that are no text."""
    answer(Scenario.from_mapping, value)
    try:
        answer(Scenario.from_mapping, {value: 1})
    except TypeError:
        assert not isinstance(value, str)  # a list is no key in Python itself


BASES = (
    {"workload": "serve"},
    {"workload": "lora", "model": "qwen2.5-7b"},
    {"workload": "full", "params_b": 1.5, "gpus": 8},
    {"workload": "image", "model": "flux.1-dev"},
)
NUMBERS = st.one_of(
    st.integers(-2, 10),
    st.integers(-(10**18), 10**18),
    st.floats(),
    st.sampled_from([1e-9, 1e9, 1e15, 8, 16, 64, 4096]),
)
WORDS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["H100-SXM", "H100-SXM,A100-SXM-80GB", "fp8", "int8", "nf4", "adamw", "adafactor", "full", "none"]),
    st.sampled_from(["auto", "any", "spot", "reserved", "aws", "eu", "tr", "office", "bursts", "fastest", "sglang"]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    base=st.sampled_from(BASES),
    values=st.dictionaries(st.sampled_from(KEYS), st.one_of(NUMBERS, WORDS, st.none(), st.booleans()), max_size=3),
)
def test_whatever_is_asked_is_answered(catalog: Catalog, base: dict[str, object], values: dict[str, object]) -> None:
    """From values through the whole decision: JSON without NaN, costs not negative, or one sentence."""
    scenario = answer(Scenario.from_mapping, base | values)
    question = None if scenario is None else answer(catalog.resolve, scenario)
    decision = None if question is None else answer(decide, question)
    if decision is None:
        return
    rows = decision.top(3)
    json.dumps(plain(decision.verdict), allow_nan=False)
    json.dumps(plain([dict(values) for _, values in decision.warnings]), allow_nan=False)
    remaining = [count for _, count in decision.funnel]
    assert remaining == sorted(remaining, reverse=True)
    if len(decision.best_first):
        assert (rows["cost_total_typical_usd"] >= 0).all()
        assert (rows["memory_total_low_bytes"] <= rows["memory_total_high_bytes"]).all()


def test_two_threads_may_ask_at_once(catalog: Catalog) -> None:
    """`decide` is promised to be thread-safe: the same answers as one after the other."""
    from concurrent.futures import ThreadPoolExecutor

    asked = [Scenario(workload="lora", model="llama-3.1-8b", sequence_length=512 * n) for n in range(1, 9)]

    def best(scenario: Scenario) -> tuple[object, ...]:
        row = decide(catalog.resolve(scenario)).best
        return row["provider"], row["gpu"], float(row["cost_total_typical_usd"])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(best, asked)) == [best(scenario) for scenario in asked]


def test_the_day_may_be_any(catalog: Catalog) -> None:
    """Prices of the future and of long ago: ages change, answers stay."""
    for day in (dt.date.min, dt.date(2000, 2, 29), dt.date.max):
        other = Catalog(today=day)
        ages = other.market["age_days"]
        assert ages.notna().all()
        decide(other.resolve(Scenario(model="llama-3.1-8b"))).as_json(top=1)
