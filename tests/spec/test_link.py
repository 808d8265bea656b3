"""Links that are longer than any state, or hold more keys than there are."""

import pytest

from gpuguide.errors import InvalidScenario
from gpuguide.spec.link import LONGEST_QUERY, MOST_KEYS, in_link, read_query, scenario_of, values_of


def test_a_link_too_long_to_be_meant_is_refused():
    """Megabytes in an address would hold up the page."""
    long = "workload=lora&model=" + "x" * LONGEST_QUERY
    with pytest.raises(InvalidScenario, match="use a file"):
        values_of(long)
    with pytest.raises(InvalidScenario, match="use a file"):
        scenario_of(f"http://127.0.0.1:8866/serve?{long}")


def test_an_address_is_read_as_far_as_it_can_be():
    """A browser's address is not refused: what is too long or too many is dropped."""
    assert read_query("?workload=lora&token=secret&model=phi-4") == {"workload": "lora", "model": "phi-4"}
    assert read_query("workload=lora&model=" + "x" * LONGEST_QUERY) == {"workload": "lora"}
    assert read_query("&".join(f"key{number}=1" for number in range(MOST_KEYS + 1))) == {}
    assert read_query(None) == {}


@pytest.mark.parametrize(
    ("value", "text"), [(1e18, "1e18"), (123456789.0, "123456789"), (2.5e-7, "2.5e-07"), (1e5, "100000")]
)
def test_numbers_are_short_and_exact(value, text):
    """A rounded number would be another question."""
    assert in_link(value) == text
    assert float(in_link(value)) == value
