"""Electricity of a node against published measurements, and greenhouse gas by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.catalog.formats import assumptions_from_table
from gpuguide.catalog.package import read_table
from gpuguide.estimate.energy import energy, node_power_w


@pytest.fixture(scope="module")
def assumptions():
    return assumptions_from_table(read_table("assumptions"))


def use(assumptions, **changes):
    values = {
        "gpus": 8.0, "tdp_w": 700.0, "busy_s": 3600.0, "idle_s": 0.0, "grid_g_per_kwh": np.array([[100.0]] * 3),
        "serving": False,
    }  # fmt: skip
    return energy(**(values | changes), assumptions=assumptions)


def test_power_of_an_h100_node_in_training(assumptions):
    """7.75 kW while training, 8.4 kW at most (Newkirk et al. 2025, Latif et al. 2025); PUE is on top."""
    pue = assumptions["energy_pue"][:, :, 0]
    at_plug = use(assumptions).power_w / pue

    assert at_plug[1, 0] == pytest.approx(7750, rel=0.02)
    assert at_plug[0, 0] < 7750 < 8400 < at_plug[2, 0]


def test_serving_draws_less_than_training(assumptions):
    assert (use(assumptions, serving=True).kwh < use(assumptions).kwh).all()


def test_greenhouse_gas_by_hand(assumptions):
    """One hour of 7,728 W x 1.2 in Norway (30 g/kWh): 0.28 kg."""
    result = use(assumptions, grid_g_per_kwh=np.array([[30.0]] * 3))

    assert result.kwh[1, 0] == pytest.approx(7.728 * 1.2)
    assert result.kg_co2e[1, 0] == pytest.approx(7.728 * 1.2 * 0.03)


def test_unknown_power_stays_unknown(assumptions):
    """A TPU has no published board power: nan, not zero."""
    assert np.isnan(use(assumptions, tdp_w=np.array([np.nan])).kwh).all()


@given(busy=st.floats(0, 1e7), idle=st.floats(0, 1e7), gpus=st.integers(1, 10_000), tdp=st.floats(50, 1500))
def test_bands_are_ordered_and_idling_is_cheaper_than_working(assumptions, busy, idle, gpus, tdp):
    result = use(assumptions, gpus=float(gpus), tdp_w=tdp, busy_s=busy, idle_s=idle)
    at_work = use(assumptions, gpus=float(gpus), tdp_w=tdp, busy_s=busy + idle, idle_s=0.0)

    assert (np.diff(result.kwh[:, 0]) >= 0).all()
    assert (result.kwh <= at_work.kwh * (1 + 1e-12)).all()


def test_array_is_scalar_by_scalar():
    gpus, tdp = np.array([1.0, 8.0, 16.0]), np.array([72.0, 700.0, 1000.0])
    together = node_power_w(gpus=gpus, tdp_w=tdp, load=0.9, host_share=0.4)

    alone = [node_power_w(gpus=g, tdp_w=t, load=0.9, host_share=0.4) for g, t in zip(gpus, tdp, strict=True)]
    assert together.tolist() == alone
