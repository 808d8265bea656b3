"""A trend is of the same offers throughout, or there is none."""

import pandas as pd
import pytest

from gpuguide.catalog.trend import history, market_trend
from gpuguide.show.trend import chart, none_yet, table, trends
from gpuguide.text import Text


def rows(*offers):
    """(provider, day, price an hour), one H100 each unless a fourth value names another GPU."""
    return pd.DataFrame(
        [
            {
                "provider": provider, "instance_type": "x", "region": "*", "kind": "on_demand", "as_of": day,
                "gpu": other[0] if other else "H100-SXM", "gpu_count": 1, "price_usd_per_hour": usd,
                "spot_usd_per_hour": usd / 2,
            }
            for provider, day, usd, *other in offers
        ]
    )  # fmt: skip


JAN, FEB, MAR = "2026-01-01", "2026-02-01", "2026-03-01"


def test_prices_read_once_make_no_trend(tmp_path):
    """The shipped table: many days, but never the same offer; a line there would be a comparison of providers."""
    assert market_trend(rows(("a", JAN, 4), ("b", FEB, 2), ("c", MAR, 1)), gpu="H100-SXM").empty
    assert trends(history(tmp_path), [], "on_demand") == {}


def test_a_new_provider_does_not_move_the_line():
    """A cheap newcomer would look like a fall in prices."""
    old = (("a", JAN, 4.0), ("b", JAN, 2.0), ("a", FEB, 4.4), ("b", FEB, 2.2))
    alone = market_trend(rows(*old), gpu="H100-SXM")
    joined = market_trend(rows(*old, ("c", FEB, 0.1)), gpu="H100-SXM")
    assert alone.equals(joined)
    assert alone["typical"].tolist() == pytest.approx([3.0, 3.3])
    assert alone["low"].tolist() == pytest.approx([2.0, 2.2])
    assert alone["offers"].tolist() == [2, 2]


def test_a_price_stays_until_it_is_read_anew():
    """An offer that was not read on a day would drop out of that day's median."""
    found = market_trend(rows(("a", JAN, 4), ("b", JAN, 2), ("a", FEB, 6), ("b", MAR, 3)), gpu="H100-SXM")
    assert found["as_of"].tolist() == [JAN, FEB, MAR]
    assert found["typical"].tolist() == pytest.approx([3, 4, 4.5])


def test_spot_and_other_gpus_stay_apart():
    """Half the price from a day on which only spot was read."""
    market = rows(("a", JAN, 4), ("a", FEB, 6), ("a", JAN, 1, "T4"))
    assert market_trend(market, gpu="H100-SXM", pricing="spot")["typical"].tolist() == [2, 3]
    assert market_trend(market, gpu="T4").empty


@pytest.mark.parametrize("language", ["en", "tr"])
def test_chart_and_table_show_the_same(language):
    """Two pictures of one history."""
    text = Text(language)
    found = trends(rows(("a", JAN, 4), ("a", FEB, 6)), [], "on_demand")
    figure, numbers = chart(found, text), table(found, text)
    median, least = figure["data"]
    assert median["x"] == least["x"] == [JAN, FEB]
    assert median["y"] == [4, 6]
    for usd in (4, 6):
        assert text.money(usd) in numbers
    assert text.date(FEB) in figure["layout"]["xaxis"]["ticktext"]
    assert text.date(FEB) in none_yet(rows(("a", FEB, 4)), ["H100-SXM"], text)
