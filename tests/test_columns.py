"""Tables as columns: the same rows, numbers and CSV as a DataFrame of them."""

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.columns import Columns, words

TABLE = Columns(
    {
        "provider": words(["aws", "runpod", "aws", ""]),
        "gpus": np.array([8, 1, 4, 2]),
        "usd": np.array([55.04, np.nan, 1e-7, 31.92]),
        "spot": np.array([True, False, True, False]),
    }
)
PLACES = np.array([2, 0, 2])


def test_rows_at_places_are_those_of_a_frame():
    """Places of places count from the rows in hand, not from the whole table."""
    pd.testing.assert_frame_equal(TABLE.at(PLACES).frame(), TABLE.frame().iloc[PLACES].reset_index(drop=True))
    assert TABLE.at(PLACES).at(np.array([1])).records() == TABLE.records()[:1]
    assert len(TABLE.at(PLACES)) == 3
    assert len(Columns({})) == 0


@pytest.mark.parametrize("table", [TABLE, Columns.of(TABLE.frame()), Columns.of(TABLE.frame("str"))])
def test_columns_and_frames_are_read_alike(table):
    numbers, known = table.at(PLACES).codes("provider")

    assert [known[number] for number in numbers] == ["aws", "aws", "aws"]
    assert table.equal("provider", "aws").tolist() == [True, False, True, False]
    assert table.numbers("gpus").dtype == np.float64
    assert "usd" in table
    assert "eur" not in table


def test_changed_columns_keep_their_place_and_the_table_its_values():
    changed = TABLE.but(usd=np.zeros(4), eur=np.ones(4))

    assert changed.names == [*TABLE.names, "eur"]
    assert TABLE.values("usd")[0] == 55.04


def test_what_is_empty_has_no_code():
    assert Columns({"x": words(["a", None, float("nan"), "a"])}).codes("x")[0].tolist() == [0, -1, -1, 0]


@given(
    numbers=st.lists(st.floats(), min_size=1, max_size=5),
    text=st.text(st.characters(codec="utf-8", exclude_characters="\r\0")),
)
def test_csv_is_that_of_pandas(numbers, text):
    """Numbers to the last digit, quotes only where they must be, nothing for what is not known."""
    table = Columns(
        {
            "a": np.array(numbers),
            "b": words([text] * len(numbers)),
            "c": words([None] * len(numbers)),
            "d": np.arange(len(numbers)),
            "e": np.arange(len(numbers)) > 1,
        }
    )
    written = io.StringIO()
    table.write_csv(written)

    assert written.getvalue() == table.frame().to_csv(index=False, lineterminator="\n")
