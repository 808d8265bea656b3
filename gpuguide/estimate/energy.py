"""Electricity and greenhouse gas of a run: board power at its load, the rest of the machine, the building, the grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuguide.spec.assumptions import Assumptions
from gpuguide.units import HOUR, KB, Number

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class EnergyUse:
    """Of all machines together, whole building included; axes (band, offer)."""

    power_w: Number  # mean while working [W]
    kwh: Number
    kg_co2e: Number  # nan where the grid is not known


def node_power_w(*, gpus: Number, tdp_w: Number, load: Number, host_share: Number) -> Number:
    """
    Electric power of machines at their plug.

    Parameters
    ----------
    gpus : number or array
        GPUs of all machines. [-]
    tdp_w : number or array
        Rated maximum of one GPU board. [W]
    load : number or array
        Board power over the rated maximum. [-]
    host_share : number or array
        Processors, memory, fans and network, over the rated maximum of the GPUs; taken as constant. [-]

    Returns
    -------
    number or array
        [W]

    Notes
    -----
    Source: measured 8 x H100 nodes, 7.75 kW typical under training and 8.4 kW highest of 5.6 kW rated for the GPUs
    (Newkirk et al. 2025, arXiv 2506.14551; Latif et al. 2025, IEEE Access 13).

    Examples
    --------
    >>> float(round(node_power_w(gpus=8, tdp_w=700, load=0.9, host_share=0.48)))
    7728.0
    """
    return gpus * tdp_w * (load + host_share)


def energy(
    *,
    gpus: Number,
    tdp_w: Number,
    busy_s: Number,
    idle_s: Number,
    grid_g_per_kwh: Number,
    serving: bool,
    assumptions: Assumptions,
) -> EnergyUse:
    """
    Electricity and greenhouse gas of a run.

    Parameters
    ----------
    gpus : number or array, shape (offer,)
        GPUs of all machines. [-]
    tdp_w : number or array, shape (offer,)
        Rated maximum of one GPU board; nan = not known. [W]
    busy_s : number or array, shape (band, offer)
        Time at work. [s]
    idle_s : number or array, shape (band, offer)
        Time rented without work: starts, waits, quiet hours. [s]
    grid_g_per_kwh : array, shape (band, offer)
        Greenhouse gas of the electricity where the machines stand. [g CO2e / kWh]
    serving : bool
        Memory-bound generation draws less than training.
    assumptions : Assumptions
        `energy_*`.

    Returns
    -------
    EnergyUse
        Use alone: making the hardware is not included.

    Notes
    -----
    Source: `docs/formulas.md`, "Energy".
    """
    load = _band(assumptions, "energy_load_serving" if serving else "energy_load_training")
    idle = _band(assumptions, "energy_load_idle")
    host = _band(assumptions, "energy_host_share")
    building = _band(assumptions, "energy_pue")
    working = node_power_w(gpus=gpus, tdp_w=tdp_w, load=load, host_share=host) * building
    resting = node_power_w(gpus=gpus, tdp_w=tdp_w, load=idle, host_share=host) * building
    kwh = (working * busy_s + resting * idle_s) / (KB * HOUR)
    grid = grid_g_per_kwh * _band(assumptions, "energy_grid_spread")
    return EnergyUse(power_w=working, kwh=kwh, kg_co2e=kwh * grid / KB)


def _band(assumptions: Assumptions, name: str) -> Floats:
    """A constant with shape (band, 1)."""
    return assumptions[name][:, :, 0]
