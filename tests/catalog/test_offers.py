"""The market table: what is sold, at what price, on what terms."""

from datetime import date

import numpy as np
import pandas as pd
import pytest

from gpuguide.catalog import offers
from gpuguide.catalog.gpus import gpus_from_table
from gpuguide.catalog.package import read_table

TODAY = date(2026, 11, 30)


@pytest.fixture(scope="module")
def gpus():
    return gpus_from_table(read_table("gpus"))


@pytest.fixture(scope="module")
def market(gpus):
    return offers.market(gpus=gpus, today=TODAY, live=pd.DataFrame()).frame("str")


@pytest.fixture(scope="module")
def shipped():
    return read_table("offers")


PUBLISHED = [  # list prices a reader can look up: provider, instance, region, pricing, USD per hour
    pytest.param("aws", "p5.48xlarge", "us-east-1", "on_demand", 55.04, id="AWS P5"),
    pytest.param("aws", "p4d.24xlarge", "us-east-1", "reserved", 9.37, id="AWS P4d, 36 months"),
    pytest.param("runpod", "1x-h100-sxm", "*", "on_demand", 3.99, id="RunPod H100 SXM"),
    pytest.param("runpod", "8x-h100-sxm", "*", "on_demand", 31.92, id="eight of them"),
    pytest.param("hyperstack", "8x-h100-sxm", "*", "reserved", 21.76, id="Hyperstack reserved, 2.72 a GPU"),
    pytest.param("coreweave", "h100-8x", "*", "spot", 19.71, id="CoreWeave HGX H100 spot"),
]


@pytest.mark.parametrize(("provider", "instance", "region", "pricing", "usd"), PUBLISHED)
def test_published_prices(market, provider, instance, region, pricing, usd):
    row = market[
        (market["provider"] == provider) & (market["instance_type"] == instance) & (market["region"] == region)
        & (market["pricing"] == pricing)
    ]  # fmt: skip

    assert row["usd_per_hour"].min() == pytest.approx(usd)


def test_every_shipped_price_is_in_the_market(market, shipped):
    """Spot and on demand apart; a size made from a price per GPU gives way to the machine the provider lists."""
    machines = shipped[shipped["price_basis"] == "instance"]
    sold = market[(market["price_basis"] == "instance") & (market["pricing"] != "reserved")]

    assert len(sold) == machines["price_usd_per_hour"].notna().sum() + machines["spot_usd_per_hour"].notna().sum()
    np.testing.assert_allclose(
        sold.loc[sold["pricing"] == "spot", "usd_per_hour"].sum(), machines["spot_usd_per_hour"].sum()
    )


def test_prices_per_gpu_become_machines_of_several(market):
    own = market[(market["provider"] == "verda") & (market["gpu"] == "H100-SXM") & (market["pricing"] == "on_demand")]

    assert own.set_index("gpus_per_node")["usd_per_hour"].to_dict() == {1: 3.25, 2: 6.5, 4: 13.0, 8: 26.0}


def test_consumer_pcs_are_sold_singly(market):
    """Salad rents one card in somebody's PC; a GH200 has one GPU."""
    assert market.loc[market["provider"] == "salad", "gpus_per_node"].max() == 1
    assert market.loc[market["gpu"] == "GH200-96GB", "gpus_per_node"].max() == 1
    assert market.loc[market["gpu"].isin(["GB200", "GB300"]), "gpus_per_node"].max() == 4


def test_size_that_the_provider_lists_is_not_made_up(market):
    """Only a price per GPU that is newer than the machine on the list makes another machine of that size."""
    keys = ["provider", "gpu", "gpus_per_node", "pricing", "kind"]
    made = market["price_basis"] == "per_gpu"
    listed = market[~made].groupby(keys)["as_of"].max().rename("listed")
    both = market[made & (market["pricing"] != "reserved")].join(listed, on=keys).dropna(subset=["listed"])

    assert len(both) > 0
    assert (both["as_of"] > both["listed"]).all()


def test_terms_of_the_provider_are_joined(market):
    aws = market[market["provider"] == "aws"].iloc[0]

    assert (aws["billing_granularity_s"], aws["minimum_charge_s"], aws["interruption_notice_s"]) == (1, 60, 120)
    assert (aws["egress_usd_per_gb"], aws["egress_free_gb_month"], aws["egress_from_gb_1"]) == (0.09, 100, 10_240)
    assert market.loc[market["provider"] == "cudo", "billing_granularity_s"].isna().all()


@pytest.mark.parametrize(
    ("instance", "fabric", "gbps"),
    [
        ("p5.48xlarge", "EFA", 3200),
        ("p4d.24xlarge", "EFA", 400),
        ("a3-highgpu-8g", "GPUDirect-TCPX", 800),
        ("Standard_ND96is_noIB_H100_v5", "Ethernet", 80),
        ("Standard_ND128isr_NDR_GB200_v6", "InfiniBand NDR", 1600),
        ("g5.48xlarge", "", np.nan),
        ("a3-highgpu-1g", "", np.nan),
    ],
)
def test_network_of_the_instance(market, instance, fabric, gbps):
    """A provider's fastest network is not every machine's."""
    row = market[market["instance_type"] == instance].iloc[0]

    assert row["fabric"] == fabric
    assert row["fabric_gbps_per_node"] == pytest.approx(gbps, nan_ok=True)


def test_ages_are_counted_from_the_given_day(market):
    dates = pd.to_datetime(market["as_of"])

    assert (market["age_days"] == (pd.Timestamp(TODAY) - dates).dt.days.clip(lower=0)).all()


def test_gpus_of_unstated_make_are_computed_as_the_slower_card(market):
    assert set(market.loc[market["gpu"] == "A100-80GB", "computed_as"]) == {"A100-80GB-PCIe"}


def test_gpus_without_specification_are_listed_but_not_computed(gpus):
    """A card that the table of GPUs lacks must not be ranked with the rates of another."""
    known = {name: gpu for name, gpu in gpus.items() if name != "RTX3060"}
    market = offers.market(gpus=known, today=TODAY, live=pd.DataFrame()).frame("str")

    assert set(market.loc[market["gpu"] == "RTX3060", "computed_as"]) == {""}
    assert "" not in set(offers.clusters(market, (1, 2)).frame()["computed_as"])


def test_electricity_of_the_place(market):
    """Norway is clean, the place of most offers is not known."""
    norway = market[market["region"] == "norwayeast"].iloc[0]

    assert norway["grid_zone"] == "NO"
    assert norway["grid_typical_g_per_kwh"] < 60
    assert set(market.loc[market["region"] == "*", "grid_zone"]) == {"*"}
    bands = market[[f"grid_{band}_g_per_kwh" for band in ("low", "typical", "high")]].to_numpy()
    assert (np.diff(bands, axis=1) >= 0).all()


def test_every_region_of_the_market_has_a_place(market):
    """A new region without a zone would be counted as unknown without a word."""
    placed = market[(market["region"] != "*") & (market["grid_zone"] == "*")]

    assert placed[["provider", "region"]].drop_duplicates().to_numpy().tolist() == []


def test_clusters_are_of_linked_data_centre_machines(market):
    table = offers.clusters(market, (1, 2, 16)).frame()
    many = table[table["nodes"] > 1]

    assert set(many["gpus_per_node"]) <= {4, 8, 16}
    assert (many["fabric"] != "").all()
    assert (many["usd_per_hour"] == many["node_usd_per_hour"] * many["nodes"]).all()
    assert (many["gpus"] == many["gpus_per_node"] * many["nodes"]).all()
    assert (table["nodes"] == 1).sum() == (market["computed_as"] != "").sum()


def test_asked_for_explicitly_any_machines_are_joined(market):
    assert len(offers.clusters(market, (2,)).frame()) == (market["computed_as"] != "").sum()
    assert len(offers.clusters(market, (2,), everything=False).frame()) < 500


def test_a_row_of_zero_gpus_or_blank_region_does_no_harm(gpus):
    """A cache that somebody edited."""
    live = pd.DataFrame(
        [["aws", "x", "L4", 0, 24, 4, 16, None, 1.0, 0.5, "on_demand", "instance", "s", "2026-11-29", ""]],
        columns=list(offers.checks.COLUMNS),
    )

    market = offers.market(gpus=gpus, today=TODAY, live=live).frame("str")

    assert "p5.48xlarge" in set(market["instance_type"])
