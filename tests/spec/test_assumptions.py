"""Constants with a band: least need first, names that must exist, one's own values in their place."""

import numpy as np
import pytest

from gpuguide import UnknownName
from gpuguide.spec.assumptions import Assumption, Assumptions


def constant(name, favourable):
    return Assumption(
        name=name, low=1.0, typical=2.0, high=4.0, unit="s", favourable=favourable, calibrated=False,
        source="made for tests", as_of="2026-11-30", note="",
    )  # fmt: skip


@pytest.fixture
def two():
    """A time, of which less is better, and a rate, of which more is."""
    return Assumptions({name: constant(name, end) for name, end in (("wait_s", "low"), ("rate", "high"))})


@pytest.mark.parametrize(("name", "band"), [("wait_s", [1, 2, 4]), ("rate", [4, 2, 1])])
def test_the_favourable_end_comes_first(two, name, band):
    """Bands that run the wrong way would make the least estimate the largest."""
    assert two[name].tolist() == [[[value]] for value in band]
    assert two.typical()[name].tolist() == [[[2.0]]]
    assert two.value(name) == 2.0


def test_an_unknown_name_gets_the_nearest(two):
    """A misspelt constant would be missing from a formula without a word."""
    with pytest.raises(UnknownName, match="did you mean wait_s"):
        two["wait"]
    with pytest.raises(UnknownName, match="did you mean wait_s"):
        two.replace(wait=(1.0, 2.0, 3.0))


def test_own_values_stand_beside_the_shipped_ones(two):
    """A calibration that changed the shipped constants would change every other answer."""
    mine = two.replace(wait_s=(3.0, 5.0, 9.0))

    assert np.squeeze(mine["wait_s"]).tolist() == [3.0, 5.0, 9.0]
    assert np.squeeze(two["wait_s"]).tolist() == [1.0, 2.0, 4.0]
    assert mine.rows["wait_s"].source == "given by the user"
    assert mine["rate"].tolist() == two["rate"].tolist()
    assert (list(mine), len(mine)) == (["wait_s", "rate"], 2)
