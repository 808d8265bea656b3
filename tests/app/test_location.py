"""The state of a page in its address: exact on the way out, forgiving on the way in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.app.location import read_query, write_query
from gpuguide.spec.scenario import Scenario


def test_addresses_are_short_and_readable():
    """People read, shorten and send them."""
    values = {
        "model": "llama-3.1-8b",
        "train_tokens": 1.4e11,
        "gpu": ["H100-SXM", "L40S"],
        "fused_loss": True,
        "headroom": 0.05,
    }
    assert (
        write_query(values) == "model=llama-3.1-8b&train_tokens=1.4e11&gpu=H100-SXM,L40S&fused_loss=true&headroom=0.05"
    )


@given(st.floats(1, 1e15) | st.integers(1, 10**6).map(float))
def test_no_digit_is_lost(tokens):
    """The link would answer another question."""
    read = Scenario.from_mapping(read_query(write_query({"train_tokens": tokens})))
    assert read.train_tokens == tokens


@pytest.mark.parametrize(
    "search", [None, "", "?", "?&&&=", "?a", "?" + "x" * 10**6, "?" + "a=1&" * 5000, "?%ff%fe=%00"]
)
def test_hostile_addresses_are_survived(search):
    """A page must open whatever its address says."""
    assert isinstance(read_query(search), dict)
