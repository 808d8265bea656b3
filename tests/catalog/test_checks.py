"""Mistakes that price sources were seen to make, one test each; the numbers are those of the reports."""

from datetime import date

import numpy as np
import pandas as pd
import pytest

from gpuguide.catalog import checks, hunt
from gpuguide.catalog import offers as market_table
from gpuguide.catalog.gpus import gpus_from_table
from gpuguide.catalog.live import overlaid
from gpuguide.catalog.package import read_table
from gpuguide.decide.market import funnel
from gpuguide.errors import DataError
from gpuguide.spec.scenario import Scenario

TODAY = date(2026, 11, 30)


@pytest.fixture(scope="module")
def shipped():
    return read_table("offers")


@pytest.fixture(scope="module")
def gpus():
    return gpus_from_table(read_table("gpus"))


@pytest.fixture(scope="module")
def check(shipped, gpus):
    bounds = checks.price_bounds(shipped)
    names = frozenset(read_table("unstated_gpus")["name"])

    def run(*rows):
        return checks.checked(
            a_table(*rows), bounds=bounds, memory_gb={name: gpu.memory_gb for name, gpu in gpus.items()}, names=names
        )

    return run


def a_table(*rows):
    usual = {
        "provider": "aws", "instance_type": "p5.48xlarge", "gpu": "H100-SXM", "gpu_count": 8, "gpu_memory_gb": 80,
        "vcpus": 192, "ram_gb": 2048, "region": "us-east-1", "price_usd_per_hour": 55.04, "spot_usd_per_hour": np.nan,
        "kind": "on_demand", "price_basis": "instance", "source": "a test", "as_of": "2026-11-29", "note": "",
    }  # fmt: skip
    return pd.DataFrame([usual | row for row in rows])[list(checks.COLUMNS)]


def reasons(result):
    return result.quarantined["reason"].tolist()


def market_with(rows, gpus):
    return market_table.market(gpus=gpus, today=TODAY, live=rows).frame("str")


# ---- the fifteen reported pitfalls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"gpu": "B200", "gpu_count": 1, "price_usd_per_hour": 0.01}, id="B200 at 0.01, skypilot 9156"),
        pytest.param({"gpu": "H200-SXM", "gpu_count": 8, "price_usd_per_hour": 8.0}, id="H200 at 1.0 per GPU"),
        pytest.param({"gpu": "H100-SXM", "gpu_count": 8, "price_usd_per_hour": 8.0}, id="H100 at 1.0 per GPU"),
    ],
)
def test_1_a_bid_floor_is_no_price(check, row):
    result = check({"provider": "mithril"} | row)

    assert result.good.empty
    assert reasons(result) == ["price per GPU out of bounds"]


@pytest.mark.parametrize("price", [0.0, -55.04, np.nan, np.inf, "free"])
def test_2_zero_is_not_cheapest(check, gpus, price):
    """Capacity blocks, retired and preview sizes are listed with 0 (gpuhunt 36 and 183, skypilot 2496)."""
    row = {"price_usd_per_hour": price}

    assert reasons(check(row)) == ["no price above zero"]
    market = market_table.clusters(market_with(a_table(row), gpus), (1,)).frame()
    assert np.isfinite(market["usd_per_hour"]).all()
    assert (market["usd_per_hour"] > 0).all()


def test_3_our_memory_wins_over_the_cloud(check):
    """An L4 reported with 183,105 MiB, 1,464,840 for all (aws-cli 8970)."""
    result = check(
        {
            "gpu": "L4",
            "gpu_count": 8,
            "instance_type": "g6.48xlarge",
            "gpu_memory_gb": 192.0,
            "price_usd_per_hour": 13.4,
        }
    )

    assert len(result.good) == 1
    assert result.notes["reason"].tolist() == ["memory differs from the GPU table by more than 10 %"]
    memory, agrees = checks.memory_per_gpu_gb(reported=183_105, unit="MiB", gpu_count=8, known_gb=24.0)
    assert (memory, agrees) == (24.0, True)  # all eight together
    assert checks.memory_per_gpu_gb(reported=1_464_840, unit="MiB", gpu_count=8, known_gb=24.0) == (24.0, False)


@pytest.mark.parametrize(
    ("reported", "unit", "count"),
    [
        pytest.param(640, "GB", 8, id="all eight: 640 GB"),
        pytest.param(80, "GB", 8, id="one: 80 GB (kaito 1098)"),
        pytest.param(81_920, "MiB", 8, id="one in MiB: Lambda file"),
        pytest.param(80, "MiB", 8, id="80 under a heading of MiB: RunPod file"),
    ],
)
def test_4_total_and_single_memory_give_the_same(reported, unit, count):
    assert checks.memory_per_gpu_gb(reported=reported, unit=unit, gpu_count=count, known_gb=80.0) == (80.0, True)


def test_4_zero_memory_is_not_known():
    """TotalGpuMemoryInMiB is 0 in the Nebius file."""
    memory, agrees = checks.memory_per_gpu_gb(reported=0, unit="MiB", gpu_count=8, known_gb=np.nan)

    assert np.isnan(memory)
    assert not agrees


def test_5_two_memory_sizes_under_one_name_stay_apart(check):
    """The Vast file has A100 with 40 and with 80 GB at the same price."""
    result = check(
        {"gpu": "A100-40GB", "gpu_count": 1, "gpu_memory_gb": 40, "price_usd_per_hour": 1.2},
        {"gpu": "A100-80GB", "gpu_count": 1, "gpu_memory_gb": 80, "price_usd_per_hour": 1.2},
    )

    assert sorted(result.good["gpu"]) == ["A100-40GB", "A100-80GB"]


def test_6_unknown_form_factor_stays_not_stated(shipped, gpus):
    """H100 is three products (gpuhunt 220); an unknown machine is computed as the slowest of them."""
    names = read_table("live_names")
    rows = pd.DataFrame(
        {"instance_type": ["new-h100.8x", "p5.48xlarge", "Standard_NC40ads_H100_v5"], "name": ["H100"] * 3,
         "gpu_memory_gb": [80.0, 80.0, 94.0]}
    )  # fmt: skip

    assert hunt._gpu_names(rows, "somewhere", shipped, names)[0] == "H100"
    assert hunt._gpu_names(rows, "aws", shipped, names)[1] == "H100-SXM"
    assert hunt._gpu_names(rows, "azure", shipped, names)[2] == "H100-NVL"
    market = market_table.market(gpus=gpus, today=TODAY, live=pd.DataFrame()).frame("str")
    assert set(market.loc[market["gpu"] == "H100", "computed_as"]) == {"H100-PCIe"}


def test_7_a_price_of_the_gpu_alone_is_no_machine(check):
    """a2-highgpu-1g at 0.94 is half a price; on demand no A100-40GB-SXM machine is sold at a quarter of the list."""
    result = check(
        {"provider": "gcp", "instance_type": "a2-highgpu-8g", "gpu": "A100-40GB-SXM", "gpu_memory_gb": 40,
         "price_usd_per_hour": 8 * 0.35}
    )  # fmt: skip

    assert reasons(result) == ["price per GPU out of bounds"]


def test_8_price_basis_decides_what_is_scaled(gpus):
    """dstack 1890: a bid for two GPUs multiplied by two again."""
    assert checks.scaled_price(usd_per_hour=3.99, price_basis="per_gpu", gpus=8) == pytest.approx(31.92)
    with pytest.raises(DataError, match="never scaled"):
        checks.scaled_price(usd_per_hour=55.04, price_basis="instance", gpus=2)
    market = market_table.market(gpus=gpus, today=TODAY, live=pd.DataFrame()).frame("str")
    p5 = market[(market["instance_type"].str.startswith("p5.48xlarge")) & (market["pricing"] == "on_demand")]
    assert p5["gpus_per_node"].unique().tolist() == [8]
    assert p5["usd_per_hour"].min() == pytest.approx(55.04)


def test_9_spot_above_on_demand_is_emptied_and_rounding_forgiven(check):
    """32.9365 against 32.93646 in the AWS file; 1.07 above 0.96 at another (skypilot 4914)."""
    rounding = check({"price_usd_per_hour": 32.93646, "spot_usd_per_hour": 32.9365}).good
    above = check({"price_usd_per_hour": 32.93646, "spot_usd_per_hour": 36.0})

    assert rounding["spot_usd_per_hour"].tolist() == [32.93646]
    assert above.good["spot_usd_per_hour"].isna().all()
    assert above.notes["reason"].tolist() == ["spot above on demand, emptied"]


def test_10_no_spot_and_spot_at_the_list_price_differ(check):
    """AWS zones without an offer, 0.00 in the Vast file: missing. A spot price equal to the list price is a price."""
    result = check(
        {"region": "a", "spot_usd_per_hour": 0.0}, {"region": "b", "spot_usd_per_hour": 55.04}, {"region": "c"}
    ).good.set_index("region")["spot_usd_per_hour"]

    assert result.isna().tolist() == [True, False, True]
    assert result["b"] == 55.04


def test_11_missing_price_is_never_first_and_never_below_a_limit(gpus):
    """p5e.48xlarge has a spot but no list price (skypilot 7091)."""
    market = market_table.clusters(
        market_table.market(gpus=gpus, today=TODAY, live=pd.DataFrame()).frame("str"), (1,)
    ).frame()
    p5e = market[market["instance_type"] == "p5e.48xlarge"]

    assert set(p5e["pricing"]) == {"spot"}
    market.loc[market.index[0], "usd_per_hour"] = np.nan
    assert not funnel(market, Scenario(pricing="any", budget_usd=60)).keep[0]


def test_12_eight_gpus_cheaper_than_four_are_marked(check):
    """dstack 1044."""
    result = check(
        {"instance_type": "n3-A100x4", "gpu": "A100-80GB-PCIe", "gpu_count": 4, "price_usd_per_hour": 5.4},
        {"instance_type": "n3-A100x8", "gpu": "A100-80GB-PCIe", "gpu_count": 8, "price_usd_per_hour": 5.2},
    )

    assert result.good.empty or result.notes["reason"].tolist() == ["more GPUs for less money"]
    fine = a_table({"gpu_count": 4, "price_usd_per_hour": 5.4}, {"gpu_count": 8, "price_usd_per_hour": 10.8})
    wrong = a_table({"gpu_count": 4, "price_usd_per_hour": 15.4}, {"gpu_count": 8, "price_usd_per_hour": 10.8})
    assert checks.shrinks_with_count(fine).tolist() == [False, False]
    assert checks.shrinks_with_count(wrong).tolist() == [False, True]


@pytest.mark.parametrize("count", [0.125, 0.5, 0.0, 1.5, np.nan])
def test_13_a_fraction_of_a_gpu_is_not_a_gpu(check, count):
    """g6f is an eighth of an L4; a slice is never rounded up."""
    result = check(
        {"gpu": "L4", "instance_type": "g6f.large", "gpu_count": count, "gpu_memory_gb": 3, "price_usd_per_hour": 0.2}
    )

    assert reasons(result) == ["not a whole number of GPUs"]


def test_14_newest_wins_and_shows_its_age(shipped, gpus, check):
    """Two rows under one id gave 0.41 or 1.46 by chance (akash 155)."""
    rows = [{"price_usd_per_hour": 60.0, "as_of": "2026-11-29"}, {"price_usd_per_hour": 50.0, "as_of": "2026-10-01"}]
    for order in (rows, rows[::-1]):
        result = check(*order)
        assert result.good["price_usd_per_hour"].tolist() == [60.0]
        market = market_with(result.good, gpus)
        own = market[(market["provider"] == "aws") & (market["pricing"] == "on_demand")]
        assert own["usd_per_hour"].tolist() == [60.0]
        assert own["age_days"].tolist() == [1.0]


def test_15_blank_region_is_everywhere_and_all_rows_are_ranked(check, gpus):
    """A null location broke the list (gpuhunt 178); cheaper offers were missing (skypilot 4904)."""
    result = check(
        {"region": None}, {"region": "", "instance_type": "b"}, {"region": ", US, NA ", "instance_type": "c"}
    )

    assert sorted(result.good["region"]) == ["*", "*", "US, NA"]
    market = market_with(result.good, gpus)
    kept = market_table.clusters(market, (1,)).frame()
    assert len(kept[(kept["provider"] == "aws") & (kept["pricing"] == "on_demand")]) == 3


# ---- what else never reaches a ranking -------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [100.0, 1 / 100, 85.0, 150.0], ids=["x100", "cents", "rupees", "yen"])
def test_another_unit_or_currency_is_set_aside_row_by_row(check, factor):
    assert check({"price_usd_per_hour": 55.04 * factor}).good.empty


@pytest.mark.parametrize("factor", [7.1, 1 / 7.1, 8.0, 34.0], ids=["yuan", "inverse", "per GPU", "lira"])
def test_a_provider_whose_prices_all_moved_is_refused(shipped, factor):
    """Within the bounds of a GPU, yet every price of the provider at once."""
    old = shipped[(shipped["provider"] == "aws")]
    moved = old.assign(
        price_usd_per_hour=old["price_usd_per_hour"] * factor, spot_usd_per_hour=old["spot_usd_per_hour"] * factor
    )

    assert checks.shifted(moved, old) == pytest.approx(factor)
    assert checks.shifted(old, old) is None


def test_prices_that_rose_by_a_third_are_taken(shipped):
    """Verda +42 %, Nebius +31 % within three months of 2026."""
    old = shipped[(shipped["provider"] == "verda")]

    assert checks.shifted(old.assign(price_usd_per_hour=old["price_usd_per_hour"] * 1.42), old) is None


def test_shipped_prices_pass_their_own_checks(shipped, gpus):
    """Bounds so tight that they refuse what people read would hide good offers."""
    result = checks.checked(
        shipped, bounds=checks.price_bounds(shipped), memory_gb={name: gpu.memory_gb for name, gpu in gpus.items()},
        names=frozenset(read_table("unstated_gpus")["name"]),
    )  # fmt: skip

    assert len(result.quarantined) <= 0.005 * len(shipped), result.quarantined[["provider", "gpu", "reason"]]


def test_newer_rows_replace_a_providers_kind_only(shipped):
    """RunPod's community prices are another product than its secure ones; older rows replace nothing."""
    rows = a_table({"provider": "runpod", "instance_type": "x", "gpu": "L4", "gpu_count": 1, "price_usd_per_hour": 0.5})
    together = overlaid(shipped, rows).frame("str")
    own = together[together["provider"] == "runpod"]

    assert (own["kind"] == "community").sum() == (
        (shipped["provider"] == "runpod") & (shipped["kind"] == "community")
    ).sum()
    assert own.loc[own["kind"] == "on_demand", "instance_type"].tolist() == ["x"]
    assert len(overlaid(shipped, rows.assign(as_of="2026-01-01"))) == len(shipped)
