"""A scenario refuses what cannot be, in one sentence that names the nearest allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.errors import GuideError, InvalidScenario, UnknownName
from gpuguide.spec.scenario import Scenario


def test_every_key_is_documented():
    """A key without a description would be missing from the published schema."""
    for name, field in Scenario.model_fields.items():
        assert field.description, name


def test_unknown_key_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean sequence_length"):
        Scenario.from_mapping({"sequence_lenght": 4096})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sequence_length", 0),
        ("sequence_length", -1),
        ("params_b", float("nan")),
        ("params_b", float("inf")),
        ("global_batch", "many"),
        ("workload", "dance"),
        ("headroom", 1.5),
        ("gpus", 0),
        ("lora_rank", 0),
        ("currency", "DOLLAR"),
    ],
)
def test_impossible_value_is_one_sentence(key, value):
    """Size zero, words for numbers, not-a-number and unknown choices are told, with the field's name first."""
    with pytest.raises(InvalidScenario) as caught:
        Scenario.from_mapping({key: value})
    sentence = str(caught.value)
    assert sentence.startswith(f"{key} = ")
    assert "\n" not in sentence


def test_lists_may_be_typed_with_commas():
    assert Scenario.from_mapping({"gpu": "H100-SXM, A100-80GB-SXM"}).gpu == ("H100-SXM", "A100-80GB-SXM")


def test_json_round_trip():
    """A scenario written to a file and read back asks the same question."""
    scenario = Scenario(workload="lora", model="llama-3.1-8b", sequence_length=4096, gpu=("L40S",))
    assert Scenario.from_mapping(scenario.model_dump(mode="json")) == scenario


@given(
    st.dictionaries(
        st.text(max_size=20) | st.sampled_from(sorted(Scenario.model_fields)),
        st.none() | st.integers() | st.floats() | st.text(max_size=50) | st.lists(st.integers(), max_size=3),
        max_size=4,
    )
)
def test_anything_is_a_scenario_or_a_sentence(values):
    """No input may escape as another kind of error."""
    try:
        Scenario.from_mapping(values)
    except GuideError as error:
        assert "\n" not in str(error)  # noqa: PT017
