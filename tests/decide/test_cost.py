"""Cost of a run and of serving: bills worked out by hand, parts that sum, and what may never be cheaper."""

from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.catalog import offers as market_table
from gpuguide.catalog.formats import assumptions_from_table
from gpuguide.catalog.package import read_table
from gpuguide.decide.cost import PARTS, break_even_tokens, run_cost
from gpuguide.spec.scenario import Scenario
from tests.decide.cost_cases import PLAIN, an_offer, cost_of, serve

HOUR = 3600.0
EMPTY = pd.DataFrame()


@pytest.fixture(scope="module")
def assumptions():
    return assumptions_from_table(read_table("assumptions"))


@pytest.fixture(scope="module")
def plain():
    return PLAIN


@pytest.fixture(scope="module")
def market(gpus):
    return market_table.market(gpus=gpus, today=date(2026, 11, 30), live=EMPTY).frame("str")


BILLS = [
    pytest.param(
        an_offer(55.04, minimum_charge_s=60.0), {"work_h": 10 / 60}, 55.04 / 6, id="p5.48xlarge, 10 min per second"
    ),
    pytest.param(
        an_offer(55.04, minimum_charge_s=60.0), {"work_h": 20 / 3600}, 55.04 / 60, id="p5.48xlarge, 20 s: minimum 60 s"
    ),
    pytest.param(
        an_offer(2.99, billing_granularity_s=60.0), {"work_h": 61 / 3600}, 2.99 * 2 / 60, id="Lambda, 61 s per minute"
    ),
    pytest.param(
        an_offer(3.99, billing_granularity_s=3600.0), {"work_h": 10 / 60}, 3.99, id="10 min at 3.99, by the hour"
    ),
    pytest.param(
        an_offer(3.99, billing_granularity_s=3600.0),
        {"work_h": 2.0, "sessions": 12},
        12 * 3.99,
        id="2 h in 12 sessions, by the hour: 12 h are billed",
    ),
    pytest.param(an_offer(3.99), {"work_h": 2.0, "sessions": 12}, 2 * 3.99, id="2 h in 12 sessions, per second"),
    pytest.param(
        an_offer(3.99), {"work_h": 2.0, "sessions": 4, "setup_minutes": 15}, 3 * 3.99, id="4 starts of 15 min"
    ),
    pytest.param(
        an_offer(0.0001, egress_usd_per_gb=0.09, egress_free_gb_month=100.0, egress_from_gb_1=10_240.0,
                 egress_usd_per_gb_1=0.085),
        {"egress_gb": 20_480.0},
        0.0001 + 10_140 * 0.09 + 10_240 * 0.085,
        id="AWS: 20 TiB out, two tiers, 100 GB free",
    ),
    pytest.param(
        an_offer(19.71, egress_usd_per_gb=0.0), {"egress_gb": 5000.0}, 19.71, id="CoreWeave spot price, free transfer"
    ),
    pytest.param(
        an_offer(23.78, pricing="reserved", months=36.0), {"work_h": 100}, 2378.0, id="p5.48xlarge, 36 months reserved"
    ),
    pytest.param(
        an_offer(1.0, volume_usd_per_gb_month=0.08),
        {"work_h": 73.0, "storage_gb": 1000.0},
        73.0 + 8.0,
        id="EBS gp3: 1,000 GB for a tenth of a month",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("offer", "keys", "expected_usd"), BILLS)
def test_bills_worked_out_by_hand(plain, offer, keys, expected_usd):
    """To the cent, in all three bands: nothing here is uncertain."""
    cost = cost_of(offer, plain, **keys)

    assert cost.total[:, 0] == pytest.approx([expected_usd] * 3, abs=0.005)


def test_volume_is_paid_between_sessions(plain):
    """Three sessions a day apart: two days of a stopped machine's volume."""
    assumptions = plain.replace(cost_hours_between_sessions=(24.0, 24.0, 24.0))
    offer = an_offer(0.0001, volume_usd_per_gb_month=0.1)

    cost = cost_of(offer, assumptions, sessions=3, storage_gb=730.0)

    assert cost.storage[1, 0] == pytest.approx(0.1 * (1 + 48))


def test_setup_is_boot_image_and_weights(plain):
    """Llama 2 70B in 16 bit is 140 GB: 700 s at 0.2 GB/s, 50 s of image, 240 s of boot."""
    cost = cost_of(an_offer(3600.0), plain, weight_bytes=140e9, setup_minutes=None)

    assert cost.setup[1, 0] == pytest.approx(700 + 50 + 240)
    assert cost.setup[0, 0] < cost.setup[1, 0] < cost.setup[2, 0]


def test_parts_sum_to_the_total(market, assumptions):
    """To the cent on every offer of the market, with everything switched on."""
    table = market_table.clusters(market, (1, 2, 8)).frame()
    rng = np.random.default_rng(1)
    work = np.sort(rng.uniform(0.1, 400, (3, len(table))), axis=0) * HOUR
    cost = run_cost(
        work_s=work, offers=table, scenario=Scenario(sessions=3, deadline_hours=200, pricing="any"),
        checkpoint_bytes=1.1e12, weight_bytes=1.4e11, data_bytes=5e11, needs_checkpoints=True, tokens=1e9,
        assumptions=assumptions,
    )  # fmt: skip

    parts = np.stack([getattr(cost, part) for part in PARTS])
    assert np.isfinite(parts).all()
    assert (parts >= 0).all()
    assert np.abs(parts.sum(axis=0) - cost.total).max() < 0.005
    assert (cost.total[0] <= cost.total[1] * (1 + 1e-9)).all()
    assert (cost.total[1] <= cost.total[2] * (1 + 1e-9)).all()
    assert ((cost.probability_in_time >= 0) & (cost.probability_in_time <= 1)).all()
    assert (cost.wall_hours * HOUR >= work).all()
    assert (cost.billed_hours * HOUR >= work).all()
    np.testing.assert_allclose(
        cost.billed_hours * table["usd_per_hour"].to_numpy(),
        sum(getattr(cost, part) for part in PARTS if part not in ("storage", "egress")),
        rtol=1e-9,
    )


def test_one_offer_is_the_row_of_all(market, assumptions):
    """A column that is mixed up between offers would show here."""
    table = market_table.clusters(market, (1,)).frame().iloc[::97].reset_index(drop=True)
    keys = {"sessions": 2, "interruptions_per_hour": 0.05, "deadline_hours": 30, "storage_gb": None, "egress_gb": None}
    together = cost_of(table, assumptions, work_h=20, checkpoint_bytes=1e11, weight_bytes=1e10, **keys)

    for place in range(len(table)):
        alone = cost_of(
            table.iloc[[place]].reset_index(drop=True), assumptions, work_h=20, checkpoint_bytes=1e11,
            weight_bytes=1e10, **keys,
        )  # fmt: skip
        for name in (*PARTS, "total", "wall_hours", "probability_in_time"):
            np.testing.assert_allclose(getattr(together, name)[:, place], getattr(alone, name)[:, 0], rtol=1e-9)


@given(
    rare=st.floats(0, 2), more=st.floats(0, 2), work_h=st.floats(0.1, 300), notice_s=st.sampled_from([0.0, 30, 120]),
    step_s=st.sampled_from([1.0, 60.0, 3600.0]), checkpoint_gb=st.floats(0.1, 2000), sessions=st.integers(1, 20),
    interval_s=st.none() | st.floats(60, 20_000),
)  # fmt: skip
def test_more_interruptions_are_never_cheaper(
    assumptions, rare, more, work_h, notice_s, step_s, checkpoint_gb, sessions, interval_s
):
    offer = an_offer(
        10.0, pricing="spot", interruption_notice_s=notice_s, billing_granularity_s=step_s, volume_usd_per_gb_month=0.1
    )
    totals = [
        cost_of(
            offer, assumptions, work_h=work_h, checkpoint_bytes=checkpoint_gb * 1e9, sessions=sessions,
            interruptions_per_hour=rate, checkpoint_interval_s=interval_s, setup_minutes=5,
        ).total
        for rate in (rare, min(rare + more, 60))
    ]  # fmt: skip

    assert (totals[0] <= totals[1] * (1 + 1e-9)).all()


@given(
    fine=st.sampled_from([1.0, 60.0]), times=st.sampled_from([1, 5, 60]), work_h=st.floats(0.01, 100),
    sessions=st.integers(1, 50), spot=st.booleans(),
)  # fmt: skip
def test_finer_billing_is_never_dearer(assumptions, fine, times, work_h, sessions, spot):
    totals = [
        cost_of(
            an_offer(10.0, pricing="spot" if spot else "on_demand", billing_granularity_s=step),
            assumptions, work_h=work_h, sessions=sessions, checkpoint_bytes=1e9,
        ).total
        for step in (fine, fine * times)
    ]  # fmt: skip

    assert (totals[0] <= totals[1] * (1 + 1e-9)).all()


@given(
    notice_s=st.floats(0, 200), more_s=st.floats(0, 200), per_hour=st.floats(0, 3), checkpoint_gb=st.floats(0.1, 500)
)
def test_longer_notice_is_never_worse(assumptions, notice_s, more_s, per_hour, checkpoint_gb):
    totals = [
        cost_of(
            an_offer(10.0, pricing="spot", interruption_notice_s=notice), assumptions, work_h=50,
            checkpoint_bytes=checkpoint_gb * 1e9, interruptions_per_hour=per_hour,
        ).total
        for notice in (notice_s, notice_s + more_s)
    ]  # fmt: skip

    assert (totals[1] <= totals[0] * (1 + 1e-9)).all()


def test_machines_fail_without_spot_too(assumptions):
    """Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs (Meta 2024)."""
    offer = an_offer(98.32, gpus_per_node=8, nodes=2048)

    cost = cost_of(offer, assumptions, work_h=54 * 24, checkpoint_bytes=405e9 * 14, setup_minutes=10)

    assert cost.expected_interruptions[1, 0] == pytest.approx(419, rel=0.25)
    assert cost.checkpoint_interval_s[1, 0] < 3600
    assert cost.interruptions[1, 0] > 0


def test_interruptions_grow_with_machines(plain):
    """One machine that is taken away stops the run."""
    one, four = (
        cost_of(an_offer(10.0, pricing="spot", nodes=nodes), plain, interruptions_per_hour=0.01, work_h=10)
        for nodes in (1, 4)
    )

    assert four.expected_interruptions[1, 0] == pytest.approx(4 * one.expected_interruptions[1, 0], rel=0.05)


MLPERF = read_table("mlperf_training", None)


@pytest.mark.parametrize("gpu", ["H100-SXM", "H200-SXM", "B200"])
def test_fine_tuning_run_of_mlperf(market, plain, gpu):
    """Llama 2 70B LoRA on 8 GPUs: published minutes x list price, on every on-demand machine that bills it so."""
    rows = MLPERF[(MLPERF["benchmark"] == "llama2_70b_lora") & (MLPERF["gpu"] == gpu) & (MLPERF["gpus"] == 8)]
    minutes = float(rows["time_to_train_min"].median())
    offers = market_table.clusters(market, (1,)).frame()
    offers = offers[
        (offers["computed_as"] == gpu) & (offers["gpus_per_node"] == 8) & (offers["pricing"] == "on_demand")
        & (offers["kind"] == "on_demand") & offers["billing_granularity_s"].notna()
    ].reset_index(drop=True)  # fmt: skip
    list_price = offers["usd_per_hour"].to_numpy()

    cost = cost_of(offers, plain, work_h=minutes / 60)

    assert len(offers) >= 5
    expected = list_price * minutes / 60
    np.testing.assert_allclose(cost.compute[1], expected, rtol=1e-9)
    assert (cost.total[1] >= expected * (1 - 1e-9)).all()
    assert (cost.total[1] <= expected * 1.05).all()
    each = list_price / 8
    assert (
        each.min() * 8 * minutes / 60 <= cost.total[1].min() <= cost.total[1].max() <= each.max() * 8.4 * minutes / 60
    )


# ---- serving and media -----------------------------------------------------------------------------------------------


def test_month_of_an_always_on_server(plain):
    """730 h at 2.00 are 1,460; busy 30 % of the time, 788.4 million tokens."""
    cost = serve(an_offer(2.0), plain)

    assert cost.total[1, 0] == pytest.approx(1460.0)
    assert cost.compute[1, 0] == pytest.approx(438.0)
    assert cost.idle[1, 0] == pytest.approx(1022.0)
    assert cost.busy_share[1, 0] == pytest.approx(0.3)
    assert cost.usd_per_million_tokens[1, 0] == pytest.approx(1460.0 / 788.4)
    assert not cost.risky[0]


def test_stopping_between_uses_pays_only_for_use(plain):
    """Per second: the busy 30 %. By the hour: 22 days of 10 hours, each rounded up."""
    per_second = serve(an_offer(2.0), plain)
    by_the_hour = serve(an_offer(2.0, billing_granularity_s=3600.0), plain)

    assert per_second.total_if_stopped[1, 0] == pytest.approx(438.0, abs=22 * 2 / 3600)
    assert by_the_hour.total_if_stopped[1, 0] == pytest.approx(22 * 10 * 2.0)


def test_bursts_cost_more_per_token_than_a_steady_load(assumptions):
    steady, bursts = (serve(an_offer(2.0), assumptions, load=load) for load in ("steady", "bursts"))

    assert (bursts.usd_per_million_tokens > 3 * steady.usd_per_million_tokens).all()


def test_serverless_is_billed_while_it_runs(plain):
    cost = serve(an_offer(2.0, kind="serverless"), plain)

    assert cost.idle[1, 0] == 0.0
    assert cost.total[1, 0] == pytest.approx(438.0, abs=22 * 2 / 3600)


def test_serving_on_spot_is_risky(plain):
    """Taken away every 50 hours and away for 20 minutes: 99.3 % available."""
    assumptions = plain.replace(spot_wait_s=(900.0, 900.0, 900.0))
    cost = serve(an_offer(1.0, pricing="spot"), assumptions, interruptions_per_hour=0.02, setup_minutes=5.0)

    assert cost.risky[0]
    assert cost.availability[1, 0] == pytest.approx(1 / (1 + 0.02 / HOUR * 1200))
    assert cost.expected_interruptions[1, 0] == pytest.approx(0.02 * 730)


def test_parts_of_a_month_sum(market, assumptions):
    table = market_table.clusters(market, (1, 2)).frame()
    for load in ("steady", "office", "bursts"):
        cost = serve(table, assumptions, load=load, setup_minutes=None, storage_gb=None, egress_gb=None)
        parts = np.stack([getattr(cost, part) for part in PARTS])
        assert (parts >= 0).all()
        assert np.abs(parts.sum(axis=0) - cost.total).max() < 0.005
        assert (np.diff(cost.usd_per_million_tokens, axis=0) >= -1e-9).all()


def test_break_even_against_a_price_per_token():
    """1,460 a month against 2.00 per million: 730 million tokens."""
    assert break_even_tokens(usd_per_month=1460.0, api_usd_per_million=2.0) == pytest.approx(730e6)


def test_thousand_images(plain):
    """3,600 images at 1 s each for 2.00 an hour: 0.56 per thousand."""
    cost = cost_of(an_offer(2.0), plain, work_h=1.0, needs_checkpoints=False, items=3600)

    assert cost.usd_per_1000_items[1, 0] == pytest.approx(2.0 / 3.6)
    assert np.isnan(cost.checkpoint_interval_s).all()
    assert cost.checkpoints[1, 0] == 0.0


def test_all_offers_in_time(market, assumptions, benchmark):
    """A page waits for this at every slider move."""
    table = market_table.clusters(market, (1, 2, 4, 8, 16, 32, 64)).frame()
    work = np.full((3, len(table)), 50 * HOUR) * np.array([[0.8], [1.0], [1.3]])
    scenario = Scenario(pricing="any")

    benchmark(
        run_cost, work_s=work, offers=table, scenario=scenario, checkpoint_bytes=1e11, weight_bytes=1e10,
        data_bytes=1e10, needs_checkpoints=True, assumptions=assumptions,
    )  # fmt: skip
