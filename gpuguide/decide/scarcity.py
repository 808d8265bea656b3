"""How hard a machine is to get: how many providers and regions list it; several GPUs together are rarer than one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns

if TYPE_CHECKING:
    import pandas as pd

SCARCE_PROVIDERS = 3
"""Fewer providers than this offer the topology: check availability first."""


def scarcity(offers: pd.DataFrame | Columns) -> pd.DataFrame:
    """
    How many providers and regions offer each topology.

    Parameters
    ----------
    offers : Columns or DataFrame
        Of `catalog.offers.clusters`; of machines alone, all count as one.

    Returns
    -------
    DataFrame
        One row per GPU, GPUs per machine and machines: `providers`, `regions`, `offers`, `scarce`.
    """
    import pandas as pd

    offers = Columns.of(offers)
    provider, region = offers.codes("provider")[0], offers.codes("region")[0]
    table = pd.DataFrame(
        {
            "gpu": offers.values("computed_as"),
            "gpus_per_node": offers.values("gpus_per_node"),
            "nodes": offers.values("nodes") if "nodes" in offers else 1,
            "provider": provider,
            "place": provider * (region.max(initial=0) + 1) + region,
        }
    )
    grouped = table.groupby(["gpu", "gpus_per_node", "nodes"], sort=True, observed=True)
    counted = grouped.agg(
        providers=("provider", "nunique"), regions=("place", "nunique"), offers=("place", "size")
    ).reset_index()
    counted["scarce"] = counted["providers"] < SCARCE_PROVIDERS
    return counted


def providers_of(offers: Columns, places: NDArray[np.intp]) -> NDArray[np.intp]:
    """
    How many providers offer the very machine that some offers are of; fewer than `SCARCE_PROVIDERS` is scarce.

    Parameters
    ----------
    offers : Columns
        Of `catalog.offers.clusters`.
    places : array of int
        Rows in question.

    Returns
    -------
    array of int
        [-]
    """
    gpu, _ = offers.codes("computed_as")
    size, nodes = (offers.values(name).astype(np.int64) for name in ("gpus_per_node", "nodes"))
    machine = (gpu * (size.max(initial=0) + 1) + size) * (nodes.max(initial=0) + 1) + nodes
    wanted, back = np.unique(machine[places], return_inverse=True)
    provider = offers.values("provider")
    counts = [len(set(provider[machine == one])) for one in wanted]
    return np.array(counts, dtype=np.intp)[back]
