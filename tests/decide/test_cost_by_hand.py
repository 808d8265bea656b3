"""Bills of runs and months part by part, worked out by hand."""

import numpy as np
import pytest

from gpuguide.decide.billing import rounding_after_interruption
from gpuguide.decide.cost import TEXT_BYTES_PER_TOKEN, break_even_tokens, run_cost, serving_cost
from gpuguide.spec.scenario import Scenario
from tests.decide.cost_cases import HOUR, PLAIN, an_offer, cost_of, serve


def test_a_run_by_hand():
    """3 sessions of 2 h, 5 min to start, 10 forgotten after each, by the hour: 9 hours on the bill for 6.75 used."""
    forgetful = PLAIN.replace(cost_idle_minutes_per_session=(10.0, 10.0, 10.0))
    offer = an_offer(2.0, billing_granularity_s=HOUR, volume_usd_per_gb_month=0.073)
    cost = cost_of(
        offer, forgetful, work_h=6.0, sessions=3, setup_minutes=5, storage_gb=100.0, needs_checkpoints=False, tokens=2e6
    )
    hours = 6 + 3 * 5 / 60

    assert cost.compute[1, 0] == pytest.approx(12.0)
    assert cost.setup[1, 0] == pytest.approx(2 * 0.25)
    assert cost.idle[1, 0] == pytest.approx(2 * 0.5)
    assert cost.rounding[1, 0] == pytest.approx(2 * (9 - 6.75))
    assert cost.storage[1, 0] == pytest.approx(100 * 0.073 * hours / 730)
    assert cost.billed_hours[1, 0] == pytest.approx(9.0)
    assert cost.wall_hours[1, 0] == pytest.approx(hours)
    assert cost.usd_per_million_tokens[1, 0] == pytest.approx(cost.total[1, 0] / 2)
    assert cost.usd_per_useful_gpu_hour[1, 0] == pytest.approx(cost.total[1, 0] / 6)


def test_what_a_run_keeps_and_takes_out():
    """Weights, data and the checkpoints kept lie on the volume; the result, or else the weights, leave it."""
    kept = PLAIN.value("cost_checkpoints_kept")
    offer = an_offer(1.0, volume_usd_per_gb_month=0.73, egress_usd_per_gb=0.1)

    def cost(result=None, checkpoints=True):
        return run_cost(
            work_s=np.full((3, 1), HOUR), offers=offer, scenario=Scenario(setup_minutes=0.0), checkpoint_bytes=2e9,
            weight_bytes=10e9, data_bytes=5e9, needs_checkpoints=checkpoints, assumptions=PLAIN, result_bytes=result,
        )  # fmt: skip

    hours = cost().wall_hours[1, 0]
    assert cost().storage[1, 0] == pytest.approx((15 + 2 * kept) * 0.73 * hours / 730)
    assert cost(checkpoints=False).storage[1, 0] == pytest.approx(15 * 0.73 / 730)
    assert cost().egress[1, 0] == pytest.approx(10 * 0.1)
    assert cost(result=3e9).egress[1, 0] == pytest.approx(3 * 0.1)


def test_a_month_of_serving_by_hand():
    """Text that leaves: 4 bytes a token of 788.4 million; weights of 16 GB lie on the volume all month."""
    offer = an_offer(2.0, volume_usd_per_gb_month=0.1, egress_usd_per_gb=0.09)
    cost = serve(offer, PLAIN, storage_gb=None, egress_gb=None)

    assert cost.storage[1, 0] == pytest.approx(16 * 0.1)
    assert cost.egress[1, 0] == pytest.approx(788.4e6 * TEXT_BYTES_PER_TOKEN / 1e9 * 0.09)
    assert cost.billed_hours[1, 0] == pytest.approx(730.0)
    assert cost.wall_hours[1, 0] == 730.0
    assert cost.usd_per_useful_gpu_hour[1, 0] == pytest.approx(cost.total[1, 0] / (0.3 * 730))


def test_a_month_on_spot_by_hand():
    """Taken away 14.6 times: each restart is paid, and half an hour of a begun one is not worked."""
    offer = an_offer(1.0, pricing="spot", billing_granularity_s=HOUR)
    cost = serve(offer, PLAIN, interruptions_per_hour=0.02, setup_minutes=6.0)
    away = 0.02 * 730

    assert cost.interruptions[1, 0] == pytest.approx(away * 0.1)
    assert cost.setup[1, 0] == pytest.approx(0.1)
    lost = float(np.asarray(rounding_after_interruption(rate_per_s=0.02 / HOUR, granularity_s=HOUR)))
    whole = np.ceil(730 + away * 0.1 + 0.1) - (730 + away * 0.1 + 0.1)
    assert cost.rounding[1, 0] == pytest.approx(whole + away * lost / HOUR)
    assert cost.billed_hours[1, 0] == pytest.approx(cost.total[1, 0])


def test_items_instead_of_tokens():
    """Two pictures a second of 730 h at 30 %: 1.5768 million for 1,460."""
    scenario = Scenario(workload="serve", load="office", setup_minutes=0.0, storage_gb=0.0)
    cost = serving_cost(
        offers=an_offer(2.0), scenario=scenario, weight_bytes=0.0, assumptions=PLAIN, items_per_s=np.full((3, 1), 2.0)
    )

    assert cost.usd_per_1000_items[1, 0] == pytest.approx(1460 / (2 * 0.3 * 730 * 3.6))
    assert cost.usd_per_million_tokens is None
    assert cost.egress[1, 0] == 0.0


def test_price_of_each_gpu_and_least_charge():
    """Two machines of four: eight GPUs share the price of an hour; 40 s of use pay for a minute at 2 USD an hour."""
    pair = an_offer(16.0, gpus_per_node=4, nodes=2)
    run, month = cost_of(pair, PLAIN, work_h=3.0), serve(pair, PLAIN)
    assert run.usd_per_useful_gpu_hour[1, 0] == pytest.approx(2.0)
    assert month.usd_per_useful_gpu_hour[1, 0] == pytest.approx(2.0 / 0.3)
    assert month.usd_per_million_tokens[1, 0] == pytest.approx(16 * 730 / 788.4)
    assert run.usd_per_1000_items is None
    assert month.usd_per_1000_items is None
    assert run.usd_per_million_tokens is None
    least = an_offer(2.0, minimum_charge_s=60.0)
    short = cost_of(least, PLAIN, work_h=40 / HOUR, items=50.0)
    assert short.minimum_charge_usd[1, 0] == pytest.approx(20 / HOUR * 2)
    assert short.rounding[1, 0] == pytest.approx(20 / HOUR * 2)
    assert short.usd_per_1000_items[1, 0] == pytest.approx(60 / HOUR * 2 / 50 * 1000)
    long = serve(an_offer(2.0, minimum_charge_s=730 * HOUR + 30), PLAIN)
    assert long.minimum_charge_usd[1, 0] == pytest.approx(30 / HOUR * 2)


def test_stopped_between_uses_by_hand():
    """An hour at a time pays for starts and started hours instead of for waiting; no checkpoints either way."""
    offer = an_offer(2.0, billing_granularity_s=HOUR)
    starts = PLAIN.value("cost_starts_per_month_office")
    scenario = Scenario(workload="serve", load="office", setup_minutes=6.0, storage_gb=0.0, egress_gb=0.0)

    def month(stops):
        return serving_cost(
            offers=offer, scenario=scenario, weight_bytes=0.0, assumptions=PLAIN, stop_when_idle=stops,
            tokens_per_s=np.full((3, 1), 1000.0),
        )  # fmt: skip

    waits, stops = month(False), month(True)
    used = 0.3 * 730
    each = used / starts + 0.1
    assert waits.total[1, 0] == pytest.approx(2 * np.ceil(730.1))
    assert waits.idle[1, 0] == pytest.approx(2 * (730 - used))
    assert waits.setup[1, 0] == pytest.approx(2 * 0.1)
    assert stops.total[1, 0] == pytest.approx(2 * starts * np.ceil(each))
    assert stops.idle[1, 0] == 0.0
    assert stops.setup[1, 0] == pytest.approx(2 * starts * 0.1)
    assert stops.rounding[1, 0] == pytest.approx(2 * starts * (np.ceil(each) - each))
    assert stops.billed_hours[1, 0] == pytest.approx(starts * np.ceil(each))
    assert waits.total_if_stopped[1, 0] == stops.total_if_stopped[1, 0] == stops.total[1, 0]
    assert waits.checkpoints[1, 0] == stops.checkpoints[1, 0] == 0.0
    assert stops.total[1, 0] != waits.total[1, 0]
    assert waits.busy_share[1, 0] == pytest.approx(0.3)


def test_answers_while_machines_are_taken_away():
    """Of each hour of use 0.02 waits and restarts; taken away 14.6 times by the month's hours."""
    offer = an_offer(1.0, pricing="spot")
    month = serve(offer, PLAIN, interruptions_per_hour=0.02, setup_minutes=6.0)
    wait = PLAIN.value("spot_wait_s") / HOUR

    assert month.availability[1, 0] == pytest.approx(1 / (1 + 0.02 * (wait + 0.1)))
    assert month.expected_interruptions[1, 0] == pytest.approx(14.6)
    assert month.risky[0]
    assert not serve(an_offer(1.0), PLAIN).risky[0]


def test_a_run_that_keeps_every_item():
    """Without checkpoints their size changes nothing but what lies on the volume."""
    offer = an_offer(3.0, pricing="spot")
    asked = {"work_h": 10.0, "needs_checkpoints": False, "interruptions_per_hour": 0.1, "setup_minutes": 6.0}
    small, large = (cost_of(offer, PLAIN, checkpoint_bytes=size, **asked) for size in (0.0, 1e13))

    np.testing.assert_array_equal(small.total, large.total)
    assert np.all(small.checkpoints == 0)
    assert np.all(np.isnan(small.checkpoint_interval_s))
    kept = cost_of(offer, PLAIN, checkpoint_bytes=1e11, **(asked | {"needs_checkpoints": True}))
    assert np.all(kept.checkpoints > 0)
    assert np.all(kept.checkpoint_interval_s > 0)
    for cost in (small, kept):
        parts = cost.compute + cost.checkpoints + cost.setup + cost.interruptions + cost.idle
        assert cost.billed_hours[1, 0] == pytest.approx((parts + cost.rounding)[1, 0] / 3)


def test_sessions_on_the_volume():
    """Three sessions lie two nights apart on the volume; ten minutes of each are forgotten."""
    apart = PLAIN.replace(cost_hours_between_sessions=(16.0,) * 3, cost_idle_minutes_per_session=(10.0,) * 3)
    offer = an_offer(2.0, volume_usd_per_gb_month=0.073)
    cost = cost_of(offer, apart, work_h=6.0, sessions=3, storage_gb=1000.0, needs_checkpoints=False)

    assert cost.storage[1, 0] == pytest.approx(1000 * 0.073 * (6 + 2 * 16) / 730)
    assert cost.idle[1, 0] == pytest.approx(2 * 0.5)
    assert cost.billed_hours[1, 0] == pytest.approx(6.5)
    assert cost.total[1, 0] == pytest.approx(13 + 1000 * 0.073 * 38 / 730)


def test_break_even_by_hand():
    """1,460 USD a month against 0.5 USD a million: 2,920 million."""
    assert break_even_tokens(usd_per_month=1460.0, api_usd_per_million=0.5) == 2_920e6


def test_what_a_month_keeps_and_takes_out_as_told():
    """The volume and the transfer that the user names; pictures leave nothing unless they say so."""
    offer = an_offer(2.0, volume_usd_per_gb_month=0.1, egress_usd_per_gb=0.09)
    assert serve(offer, PLAIN, storage_gb=50.0).storage[1, 0] == pytest.approx(5.0)
    assert serve(offer, PLAIN, egress_gb=70.0).egress[1, 0] == pytest.approx(6.3)
    scenario = Scenario(workload="serve", load="office", setup_minutes=0.0, storage_gb=0.0)
    pictures = serving_cost(
        offers=offer, scenario=scenario, weight_bytes=0.0, assumptions=PLAIN, items_per_s=np.full((3, 1), 2.0)
    )
    assert pictures.egress[1, 0] == 0.0


@pytest.mark.parametrize(("deadline", "chance"), [(9.0, 0.0), (12.0, 1.0)])
def test_a_deadline_without_interruptions(deadline, chance):
    """Ten hours of work are late for nine and in time for twelve."""
    cost = cost_of(an_offer(1.0), PLAIN, work_h=10.0, deadline_hours=deadline, needs_checkpoints=False)

    assert cost.probability_in_time[1, 0] == pytest.approx(chance, abs=0.02)
    assert cost_of(an_offer(1.0), PLAIN).probability_in_time is None
