"""Billing steps, minimum charges and tiered transfer, against bills worked out by hand from published price lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.decide.billing import billed_seconds, egress_usd, rounding_after_interruption, stored_usd

HOURS = st.floats(0.01, 1e6)


@pytest.mark.parametrize(
    ("used_s", "granularity_s", "minimum_s", "expected_s"),
    [
        pytest.param(30.0, 1, 60, 60, id="30 s on EC2 Linux: per second, 60 s minimum"),
        pytest.param(90.5, 1, 60, 91, id="90.5 s on EC2 Linux"),
        pytest.param(61.0, 60, 0, 120, id="61 s at Lambda: per minute"),
        pytest.param(3600.0, 3600, 0, 3600, id="exactly an hour, billed by the hour"),
        pytest.param(3601.0, 3600, 0, 7200, id="one second more, billed by the hour"),
        pytest.param(3600.0 * (1 + 1e-12), 3600, 0, 3600, id="an hour with the dust of a division"),
        pytest.param(0.0, 60, 60, 0, id="never started"),
    ],
)
def test_time_on_the_bill(used_s, granularity_s, minimum_s, expected_s):
    """A wrong step turns ten minutes into an hour."""
    actual = billed_seconds(used_s=used_s, granularity_s=granularity_s, minimum_s=minimum_s)

    assert actual == pytest.approx(expected_s)


@given(used_s=st.floats(1.0, 1e7), fine=st.sampled_from([1, 60, 600]), times=st.sampled_from([1, 2, 6, 60]))
def test_finer_billing_is_never_dearer(used_s, fine, times):
    """Steps that divide the coarser ones."""
    finer = billed_seconds(used_s=used_s, granularity_s=fine, minimum_s=0)
    coarser = billed_seconds(used_s=used_s, granularity_s=fine * times, minimum_s=0)

    assert used_s * (1 - 1e-8) <= finer <= coarser


@pytest.mark.parametrize("per_hour", [1e-6, 0.02, 1.0, 30.0])
def test_mean_rounding_after_an_interruption(per_hour):
    """The bill of a machine that is taken away at a random moment, by simulation."""
    rng = np.random.default_rng(7)
    life_s = rng.exponential(3600.0 / max(per_hour, 0.02), 400_000)
    simulated = np.mean(np.ceil(life_s / 3600.0) * 3600.0 - life_s)

    actual = rounding_after_interruption(rate_per_s=max(per_hour, 0.02) / 3600.0, granularity_s=3600.0)

    assert actual == pytest.approx(simulated, rel=0.01)
    assert rounding_after_interruption(rate_per_s=per_hour / 3600.0, granularity_s=60.0) >= 29.99


AWS = {"free_gb": 100.0, "first": 0.09, "steps": [(10_240, 0.085), (51_200, 0.07), (153_600, 0.05)]}
GCP = {"free_gb": 0.0, "first": 0.12, "steps": [(1_024, 0.11), (10_240, 0.08)]}


@pytest.mark.parametrize(
    ("tiers", "egress_gb", "expected_usd"),
    [
        pytest.param(AWS, 80, 0.0, id="AWS: within the 100 GB that are free"),
        pytest.param(AWS, 1_100, 90.0, id="AWS: 1,000 GB at 0.09"),
        pytest.param(AWS, 20_480, 10_140 * 0.09 + 10_240 * 0.085, id="AWS: into the second tier"),
        pytest.param(
            AWS, 200_000, 10_140 * 0.09 + 40_960 * 0.085 + 102_400 * 0.07 + 46_400 * 0.05, id="AWS: into the last tier"
        ),
        pytest.param(GCP, 1_000, 120.0, id="Google Cloud Premium: first tier"),
        pytest.param(GCP, 11_240, 1_024 * 0.12 + 9_216 * 0.11 + 1_000 * 0.08, id="Google Cloud Premium: third tier"),
        pytest.param({"free_gb": 10_000.0, "first": 0.0085, "steps": []}, 12_000, 17.0, id="Oracle: 10 TB free"),
        pytest.param({"free_gb": 0.0, "first": 0.0, "steps": []}, 50_000, 0.0, id="CoreWeave, Lambda, RunPod: free"),
    ],
)
def test_transfer_out(tiers, egress_gb, expected_usd):
    """One rate for all data is wrong by a third beyond 50 TB."""
    steps = np.full((3, 2, 1), np.nan)
    for place, (start, rate) in enumerate(tiers["steps"]):
        steps[place, :, 0] = start, rate

    actual = egress_usd(
        egress_gb=egress_gb,
        free_gb=np.array([tiers["free_gb"]]),
        first_usd_per_gb=np.array([tiers["first"]]),
        steps=steps,
    )

    assert actual[0] == pytest.approx(expected_usd)


@given(less=st.floats(0, 1e6), more=st.floats(0, 1e6))
def test_more_transfer_is_never_cheaper(less, more):
    steps = np.full((3, 2, 1), np.nan)
    for place, (start, rate) in enumerate(AWS["steps"]):
        steps[place, :, 0] = start, rate
    cost = egress_usd(
        egress_gb=np.array([[min(less, more)], [max(less, more)]]),
        free_gb=np.array([100.0]),
        first_usd_per_gb=np.array([0.09]),
        steps=steps,
    )

    assert cost[0, 0] <= cost[1, 0] + 1e-9


def test_volume_for_a_month():
    """1,000 GB of EBS gp3 at 0.08 for 730 hours."""
    assert stored_usd(stored_gb=1000, hours=730, usd_per_gb_month=0.08) == pytest.approx(80.0)
