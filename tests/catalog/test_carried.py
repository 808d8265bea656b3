"""A model within a link: the same numbers on the other side, and nothing that a stranger could write in its place."""

import base64
import json
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuguide import load_catalog
from gpuguide.catalog.carried import LONGEST_CODE, PREFIX, carried, is_carried, model_of
from gpuguide.catalog.config import parse_config
from gpuguide.catalog.package import data_folder
from gpuguide.catalog.source import read_model
from gpuguide.errors import GuideError, InvalidScenario

CATALOG = load_catalog()
CONFIGS = sorted((data_folder() / "hf_configs").glob("*.json"))
MIXTRAL = CATALOG.model("mixtral-8x7b")


def packed(values):
    """A link's word for any values, as a stranger would make it."""
    return PREFIX + base64.urlsafe_b64encode(zlib.compress(json.dumps(values).encode())).decode().rstrip("=")


def values_of(model):
    return json.loads(zlib.decompress(base64.urlsafe_b64decode(carried(model).removeprefix(PREFIX) + "===")))


@pytest.mark.parametrize("name", CATALOG.models.names()[::7])
def test_every_model_comes_back_number_by_number(name):
    """A link would answer for a slightly different model."""
    model = CATALOG.model(name)
    code = carried(model)
    assert model_of(code) == model
    assert read_model(code, CATALOG.models) == model
    assert len(code) < 1_000


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configs_travel_too(path):
    """The same for models that were read from a file."""
    model = parse_config(json.loads(path.read_text()), name=path.stem)
    assert model_of(carried(model)) == model


@pytest.mark.parametrize("name", [None, "", "llama-3.1-8b", "meta-llama/own:x", "./own:x"])
def test_names_are_no_models(name):
    """A path or Hub id would be taken for a packed model."""
    assert not is_carried(name)


BROKEN = {
    "not packed": PREFIX + "hello",
    "empty": PREFIX,
    "cut off": carried(MIXTRAL)[:-20],
    "too long": PREFIX + "A" * LONGEST_CODE,
    "bomb": packed("0" * 10_000_000),
    "a list": packed([1, 2, 3]),
    "a text": packed("task"),
    "nested": PREFIX + base64.urlsafe_b64encode(zlib.compress(b"[" * 15_000)).decode(),
    "nothing": packed({}),
    "another key": packed(values_of(MIXTRAL) | {"path": "/etc/passwd"}),
    "a name of markup lines": packed(values_of(MIXTRAL) | {"name": "a\nb"}),
    "no name": packed(values_of(MIXTRAL) | {"name": " "}),
    "a long name": packed(values_of(MIXTRAL) | {"name": "x" * 200}),
    "not a number": packed(values_of(MIXTRAL) | {"params": float("nan")}),
    "infinite": packed(values_of(MIXTRAL) | {"layers": float("inf")}),
    "negative": packed(values_of(MIXTRAL) | {"hidden": -1}),
    "huge": packed(values_of(MIXTRAL) | {"hidden": 10**400}),
    "a boolean": packed(values_of(MIXTRAL) | {"hidden": True}),
    "no layers": packed(values_of(MIXTRAL) | {"layers": 0}),
    "attention without heads": packed(values_of(MIXTRAL) | {"heads": 0}),
    "more experts than there are": packed(values_of(MIXTRAL) | {"experts_per_token": 99}),
    "more active than all": packed(values_of(MIXTRAL) | {"params_active": 1e15}),
    "an unknown kind": packed(values_of(MIXTRAL) | {"kind": "<script>"}),
    "a command for a Hub id": packed(values_of(MIXTRAL) | {"hub_id": "a/b; rm -rf ~"}),
    "no components": packed(values_of(CATALOG.model("flux.1-dev")) | {"components": []}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_damaged_links_get_one_sentence(case):
    """Anybody can write a link: nothing in it may be believed, open a file, or fill the memory."""
    with pytest.raises(InvalidScenario) as error:
        model_of(BROKEN[case])
    assert "load its file again" in str(error.value)
    assert len(str(error.value)) < 150


SCALAR = st.none() | st.booleans() | st.integers(-1, 10**6) | st.floats(0, 1e6) | st.text(max_size=5)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(values_of(MIXTRAL))), SCALAR, max_size=3))
def test_a_changed_link_is_answered_or_refused(changes):
    """A formula that divides by what a stranger set to zero."""
    from gpuguide import Scenario, decide

    try:
        model = packed(values_of(MIXTRAL) | changes)
        decide(CATALOG.resolve(Scenario(workload="serve", model=model)))
    except GuideError:
        pass


def test_a_hub_id_travels():
    """What an export downloads would be another model, or none."""
    model = replace(MIXTRAL, hub_id="mistralai/Mixtral-8x7B-v0.1")
    assert model_of(carried(model)).hub_id == model.hub_id
