"""The funnel, the front of time and cost, and scarcity, each against a plain loop or a count by hand."""

from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpuguide.catalog import offers as market_table
from gpuguide.decide.market import STEPS, age_badge, dearer_but_cheaper, filters, funnel, narrow, pareto
from gpuguide.decide.scarcity import scarcity
from gpuguide.errors import UnknownName
from gpuguide.spec.scenario import Scenario


@pytest.fixture(scope="module")
def table(gpus):
    market = market_table.market(gpus=gpus, today=date(2026, 11, 30), live=pd.DataFrame()).frame("str")
    return market_table.clusters(market, (1, 2, 8)).frame()


IN_EU = {"NL", "SE", "FI", "DE", "BE", "FR", "IT", "IE", "PL", "RO", "ES", "CZ", "BG", "DK", "EE"}
"""Of the countries in the table, those of the European Union (europa.eu); GB, CH and NO are not."""
SMALL = st.sampled_from([0.5, 1.0, 2.0, 3.0, np.nan, np.inf])


@given(points=hnp.arrays(np.float64, st.tuples(st.integers(0, 30), st.just(2)), elements=SMALL))
def test_front_is_what_a_loop_finds(points):
    """Nothing on the front is beaten, everything off it is; nan is never on it."""
    time, cost = points[:, 0], points[:, 1]
    expected = [
        bool(np.isfinite([t, c]).all())
        and not any(
            np.isfinite([u, d]).all() and u <= t and d <= c and (u < t or d < c)
            for u, d in zip(time, cost, strict=True)
        )
        for t, c in zip(time, cost, strict=True)
    ]

    assert pareto(time, cost).tolist() == expected


def test_dearer_machine_that_makes_a_cheaper_run():
    """T15: 8 H100 at 32.00 for 1 h against 8 A100 at 16.00 for 3 h."""
    flags = dearer_but_cheaper(
        usd_per_hour=np.array([16.0, 32.0, 20.0, 40.0]),
        total_usd=np.array([48.0, 32.0, 60.0, 30.0]),
        among=np.array([True, True, True, False]),
    )

    assert flags.tolist() == [False, True, False, False]


def test_cheapest_by_the_hour_may_be_several():
    """Of two at the same price per hour the better one is the rival."""
    flags = dearer_but_cheaper(
        usd_per_hour=np.array([1.0, 1.0, 2.0]), total_usd=np.array([9.0, 5.0, 7.0]), among=np.ones(3, dtype=bool)
    )

    assert not flags.any()


def test_funnel_counts_and_reasons():
    """Each offer is charged to the first step that removes it."""
    steps = [("memory", np.array([True, True, False, False])), ("pricing", np.array([True, False, True, False]))]

    result = narrow(4, steps)

    assert result.remaining == (("market", 4), ("memory", 2), ("pricing", 1))
    assert [result.reason(place) for place in range(4)] == [None, "pricing", "memory", "memory"]
    assert result.keep.tolist() == [True, False, False, False]


def test_funnel_asks_in_the_order_of_a_renter(table):
    """T14: memory, bandwidth, links; only then price, billing, age."""
    everything = np.ones(len(table), dtype=bool)
    scenario = Scenario(max_price_age_days=200, deadline_hours=10, budget_usd=100, gpus=8)
    result = funnel(
        table, scenario, supported=everything, fits=everything, fast_enough=everything, linked=everything,
        hours=np.full(len(table), 5.0), total_usd=np.full(len(table), 50.0),
    )  # fmt: skip

    assert [name for name, _ in result.remaining] == ["market", *STEPS]
    counts = [count for _, count in result.remaining]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == result.keep.sum() > 0


@pytest.mark.parametrize(
    ("keys", "holds"),
    [
        ({"gpu": ["h100-sxm"]}, lambda row: row.gpu == "H100-SXM"),
        ({"providers": "aws,RunPod"}, lambda row: row.provider in ("aws", "runpod")),
        ({"regions": "us-east"}, lambda row: "us-east" in row.region or row.region == "*"),
        ({"countries": "de,FR"}, lambda row: row.grid_zone in ("DE", "FR", "*")),
        ({"countries": "EU"}, lambda row: row.grid_zone == "*" or row.grid_zone in IN_EU),
        ({"countries": ["US"]}, lambda row: row.grid_zone == "*" or row.grid_zone.startswith("US")),
        ({"offer_kinds": "marketplace"}, lambda row: row.kind == "marketplace"),
        ({"pricing": "spot"}, lambda row: row.pricing == "spot"),
        ({"pricing": "reserved"}, lambda row: row.pricing == "reserved"),
        ({"max_price_age_days": 60}, lambda row: row.age_days <= 60),
        ({"gpus": 16, "nodes": 2}, lambda row: row.gpus == 16 and row.nodes == 2),
    ],
)
def test_each_filter_keeps_what_it_says(table, keys, holds):
    """Also that it keeps something: a filter that never matches passes any check."""
    scenario = Scenario(**({"pricing": "any", "offer_kinds": "on_demand,marketplace,community,serverless"} | keys))
    kept = table[funnel(table, scenario).keep]

    assert len(kept) > 0
    assert all(holds(row) for row in kept.itertuples())


def test_a_country_is_counted_where_the_funnel_asks_for_the_place(table):
    """An offer in Virginia under "Germany"; or a drop that the funnel does not show."""
    free, german = (dict(funnel(table, Scenario(countries=asked)).remaining) for asked in ((), ("DE",)))
    stated = table["grid_zone"].isin(["DE", "*"]).sum()

    assert free["region"] == free["provider"]
    assert 0 < german["region"] < german["provider"] == free["provider"]
    assert german["region"] <= stated


def test_h100_of_unknown_form_is_computed_as_the_slower_card(table):
    """Asking for H100-PCIe also shows the offers that are computed as one; asking for H100 the offers of that name."""
    as_pcie = table[funnel(table, Scenario(gpu=["H100-PCIe"], pricing="any")).keep]
    unstated = table[funnel(table, Scenario(gpu=["H100"], pricing="any")).keep]

    assert {"H100-PCIe", "H100"} == set(as_pcie["gpu"])
    assert set(unstated["gpu"]) == {"H100"}


@pytest.mark.parametrize(
    ("key", "value"),
    [("gpu", "H100SXM"), ("providers", "amazon"), ("offer_kinds", "ondemand"), ("countries", "Atlantis")],
)
def test_unknown_names_are_refused_with_the_nearest(table, key, value):
    with pytest.raises(UnknownName, match=value):
        filters(table, Scenario(**{key: [value]}))


def test_a_known_gpu_that_nobody_offers_leaves_no_offer(table):
    """Gaudi2 is in gpus.csv and in no offer: an empty answer, not "no GPU named Gaudi2"."""
    narrowed = funnel(table, Scenario(gpu=["Gaudi2"]), known_gpus=True)

    assert not narrowed.keep.any()


@pytest.mark.parametrize("bad", [np.nan, 0.0, -1.0, np.inf])
def test_impossible_prices_never_pass(table, bad):
    """nan passes a naive upper limit, 0 is the cheapest of all."""
    broken = table.copy()
    broken.loc[broken.index[::2], "usd_per_hour"] = bad

    assert not funnel(broken, Scenario(pricing="any")).keep[::2].any()


def test_age_is_marked():
    assert age_badge(np.array([0, 6.9, 7, 29, 30, 89, 90, 400, np.nan])).tolist() == [
        "fresh", "fresh", "ok", "ok", "stale", "stale", "old", "old", "",
    ]  # fmt: skip


def test_scarce_topologies(table):
    """T13: one H100 is sold by many, eight machines of eight linked ones by few."""
    counts = scarcity(table).set_index(["gpu", "gpus_per_node", "nodes"])
    own = table[(table["computed_as"] == "H100-SXM") & (table["gpus_per_node"] == 8) & (table["nodes"] == 8)]

    assert counts.loc[("H100-SXM", 8, 8), "providers"] == own["provider"].nunique()
    assert counts.loc[("H100-SXM", 8, 8), "regions"] == len(own[["provider", "region"]].drop_duplicates())
    assert counts.loc[("H100-SXM", 1, 1), "providers"] > counts.loc[("H100-SXM", 8, 8), "providers"]
    assert counts.loc[("MI325X", 8, 1), "scarce"]
    assert not counts.loc[("H100-SXM", 8, 1), "scarce"]


def test_filters_in_time(table, benchmark):
    benchmark(
        funnel, table, Scenario(gpu=["H100-SXM"], regions=["us"], providers=["aws", "gcp"], max_price_age_days=90)
    )
