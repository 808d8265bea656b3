"""
On what terms each offer is rented: a market table as arrays, with assumptions where a provider states nothing.

`cost` multiplies these with the seconds of a run or a month.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns
from gpuguide.decide import billing
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.scenario import Scenario
from gpuguide.units import GB, HOUR, MINUTE, Number

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

EGRESS_TIERS = 3
"""Further tiers of transfer prices in a market table: columns `egress_from_gb_1`, `egress_usd_per_gb_1`, ..."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Columns of a market table as arrays; what is not stated takes the assumption, with its band."""

    usd_per_s: Floats  # (offer,)
    nodes: Floats
    gpus: Floats
    step_s: Floats  # (band, offer)
    minimum_s: Floats
    notice_s: Floats
    volume_usd: Floats
    egress_usd: Floats
    free_gb: Floats
    tiers: Floats  # (tier, 2, offer)
    spot: Bools
    community: Bools
    serverless: Bools


def terms_of(offers: pd.DataFrame | Columns, assumptions: Assumptions) -> Terms:
    """Columns of `catalog.offers.market` as arrays."""
    market = Columns.of(offers)

    def column(name: str, default: float) -> Floats:
        return market.numbers(name) if name in market else np.full(len(market), default)

    def known(name: str, assumption: str) -> Floats:
        values = column(name, np.nan)
        return np.where(np.isnan(values), flat(assumptions, assumption), values)

    nodes = column("nodes", 1.0)
    tiers = [
        np.stack([column(f"egress_from_gb_{tier}", np.nan), column(f"egress_usd_per_gb_{tier}", np.nan)])
        for tier in range(1, EGRESS_TIERS + 1)
    ]
    spot = market.equal("pricing", "spot")
    return Terms(
        usd_per_s=column("usd_per_hour", np.nan) / HOUR,
        nodes=nodes,
        gpus=column("gpus_per_node", 1.0) * nodes,
        step_s=known("billing_granularity_s", "cost_billing_granularity_s"),
        minimum_s=known("minimum_charge_s", "cost_minimum_charge_s"),
        notice_s=np.nan_to_num(column("interruption_notice_s", 0.0)),
        volume_usd=known("volume_usd_per_gb_month", "cost_volume_usd_per_gb_month"),
        egress_usd=known("egress_usd_per_gb", "cost_egress_usd_per_gb"),
        free_gb=np.nan_to_num(column("egress_free_gb_month", 0.0)),
        tiers=np.stack(tiers),
        spot=spot,
        community=market.equal("kind", "community") & ~spot,
        serverless=market.equal("kind", "serverless"),
    )


def interruptions(market: Terms, scenario: Scenario, assumptions: Assumptions) -> tuple[Floats, Floats]:
    """Rate for all machines together [1/s], and the share that comes with a notice and is survived by it [-]."""
    given = scenario.interruptions_per_hour
    taken = flat(assumptions, "spot_interruptions_per_hour") if given is None else np.full((3, 1), given)
    leaving = flat(assumptions, "spot_community_interruptions_per_hour")
    away = np.where(market.spot, taken, np.where(market.community, leaving, 0.0)) * market.nodes
    broken = flat(assumptions, "spot_failures_per_gpu_hour") * market.gpus
    total = away + broken
    announced = np.where(market.spot, away / np.where(total > 0, total, 1.0), 0.0)
    share = announced * flat(assumptions, "spot_notice_success_share")
    return total / HOUR, share


def start_s(
    market: Terms,
    scenario: Scenario,
    weight_bytes: float,
    checkpoint_bytes: Number,
    needs_checkpoints: bool,
    assumptions: Assumptions,
    *,
    copied_bytes: Number = 0.0,
) -> tuple[Floats, Floats]:
    """
    First start and restart [s]: every machine loads image, weights and its share of what is copied to its own drives.

    A restart reads the checkpoint instead of the weights alone.
    """
    if scenario.setup_minutes is not None:
        machine = np.full((3, 1), scenario.setup_minutes * MINUTE)
        weights = np.zeros((3, 1))
    else:
        download = flat(assumptions, "cost_download_bytes_per_s")
        machine = flat(assumptions, "cost_boot_s") + flat(assumptions, "cost_image_bytes") / download
        machine = machine + copied_bytes / market.nodes / download
        weights = weight_bytes / download
    start = machine + weights + 0.0 * market.nodes
    if not needs_checkpoints:
        return start, start
    rate = flat(assumptions, "cost_checkpoint_write_bytes_per_s") * market.nodes
    return start, machine + (weight_bytes + np.asarray(checkpoint_bytes, dtype=np.float64)) / rate


def stored_gb_of(
    scenario: Scenario,
    checkpoint_bytes: Number,
    weight_bytes: float,
    data_bytes: Number,
    needs_checkpoints: bool,
    assumptions: Assumptions,
) -> Floats:
    if scenario.storage_gb is not None:
        return np.full((1, 1), scenario.storage_gb)
    kept = flat(assumptions, "cost_checkpoints_kept") if needs_checkpoints else np.zeros((1, 1))
    return (weight_bytes + data_bytes + kept * np.asarray(checkpoint_bytes, dtype=np.float64)) / GB


def egress_of(market: Terms, out_gb: Number) -> Floats:
    return billing.egress_usd(
        egress_gb=out_gb, free_gb=market.free_gb, first_usd_per_gb=market.egress_usd, steps=market.tiers
    )


def flat(assumptions: Assumptions, name: str) -> Floats:
    """A constant with shape (band, 1)."""
    return assumptions[name][:, :, 0]
