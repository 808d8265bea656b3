"""
One GPU, one machine, or a cluster: the best offer of each rung, and why the chosen rung is the one to take (T7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision

RUNGS = ("one_gpu", "one_machine", "cluster")


@dataclass(frozen=True, slots=True)
class Ladder:
    """Best offer of each rung that has one, and the rung of the best offer of all with its reason."""

    rows: pd.DataFrame  # columns of a ranking, and `rung`
    chosen: str | None
    reason: str  # key: only_fit, cheapest, fastest, none


def ladder(decision: Decision) -> Ladder:
    """
    The rungs of a decision.

    Parameters
    ----------
    decision : Decision

    Returns
    -------
    Ladder
        Its reason is `only_fit` where no lower rung holds the job, else what the scenario prefers.
    """
    market, order = decision.question.market, decision.best_first
    if not len(order):
        return Ladder(decision.rows.table(order).assign(rung=[]), None, "none")
    gpus = market.values("gpus")[order]
    nodes = market.values("nodes")[order]
    rung = np.where(gpus == 1, 0, np.where(nodes == 1, 1, 2))
    first = {place: int(np.flatnonzero(rung == place)[0]) for place in range(3) if (rung == place).any()}
    table = decision.rows.table(order[list(first.values())])
    table["rung"] = [RUNGS[place] for place in first]
    chosen = int(rung[0])
    lower = [place for place in first if place < chosen]
    reason = decision.scenario.preference if lower or chosen == 0 else "only_fit"
    return Ladder(table, RUNGS[chosen], reason)
