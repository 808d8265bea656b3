"""How hard a machine is to get: how many providers and regions list it; several GPUs together are rarer than one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.columns import Columns
from gpuguide.decide.market import codes

if TYPE_CHECKING:
    import pandas as pd

SCARCE_PROVIDERS = 3
"""Fewer providers than this offer the topology: check availability first."""


def scarcity(offers: pd.DataFrame) -> pd.DataFrame:
    """
    How many providers and regions offer each topology.

    Parameters
    ----------
    offers : DataFrame
        Columns of `catalog.offers.market`, with `nodes`.

    Returns
    -------
    DataFrame
        One row per GPU, GPUs per machine and machines: `providers`, `regions`, `offers`, `scarce`.
    """
    import pandas as pd

    place = codes(offers, "provider")[0] * (codes(offers, "region")[0].max(initial=0) + 1) + codes(offers, "region")[0]
    table = pd.DataFrame(
        {
            "gpu": offers["computed_as"].array,
            "gpus_per_node": offers["gpus_per_node"].to_numpy(),
            "nodes": offers["nodes"].to_numpy() if "nodes" in offers else 1,
            "provider": codes(offers, "provider")[0],
            "place": place,
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
        Of `catalog.offers.market`, with `nodes`.
    places : array of int
        Rows in question.

    Returns
    -------
    array of int
        [-]
    """
    import pandas as pd

    gpu, _ = pd.factorize(offers.values("computed_as"))
    size, nodes = (offers.values(name).astype(np.int64) for name in ("gpus_per_node", "nodes"))
    machine = (gpu * (size.max(initial=0) + 1) + size) * (nodes.max(initial=0) + 1) + nodes
    wanted, back = np.unique(machine[places], return_inverse=True)
    provider = offers.values("provider")
    counts = [len(set(provider[machine == one])) for one in wanted]
    return np.array(counts, dtype=np.intp)[back]
