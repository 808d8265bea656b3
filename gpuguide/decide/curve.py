"""
Throughput against latency: what the best machines do with the same plan as more and more requests run at once.

One estimate for all machines and all loads; nothing is searched or priced again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpuguide.decide.decision import Decision
from gpuguide.errors import NotModelled
from gpuguide.estimate.derived import time_doubt
from gpuguide.estimate.serving import most_running, serving_speed
from gpuguide.estimate.serving_memory import kv_room_bytes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.units import BANDS, TYPICAL, Number

Floats = NDArray[np.float64]

MACHINES = 4
"""GPUs compared: the best offer of each. [-]"""
WHERE = ("provider", "gpu", "gpus", "nodes", "usd_per_hour")
"""Columns taken from the ranking as they are."""


def load_curves(decision: Decision, *, machines: int = MACHINES) -> pd.DataFrame:
    """
    Speed of the best offer of each GPU at 1, 2, 4 ... requests at once, up to what its cache room holds.

    Parameters
    ----------
    decision : Decision
        Of a serving job; each machine keeps the plan that the decision found for it.
    machines : int
        GPUs compared, best first.

    Returns
    -------
    DataFrame
        One row per machine and load, loads rising: `WHERE`, `place` (0 = best offer), `concurrency` over all replicas,
        `tokens_per_s_<band>`, `tokens_per_s_per_gpu_<band>`, `tpot_s_<band>`, `ttft_s_<band>`, `within_targets`
        (typical latencies keep the scenario's limits), `asked` (the scenario's own load), `full` (no room for more).
        No row where nothing fits.

    Raises
    ------
    NotModelled
        For workloads other than serving.

    Notes
    -----
    The most is what the typical estimate has room for; a load beyond it waits for room and is a row only where it is
    the scenario's own.
    """
    model, job = decision.question.model, decision.question.job
    if not isinstance(model, Model) or not isinstance(job, ServingJob):
        raise NotModelled(f"throughput of {decision.scenario.workload} against load", "ask for workload=serve")
    offers = _best_of_each_gpu(decision, machines)
    rows = decision.rows.table(offers)
    if rows.empty:
        return pd.DataFrame(columns=[*WHERE, "place", "concurrency"])
    places = decision.rows.place[offers]
    fit, assumptions = decision.rows.found.fit, decision.question.assumptions
    plan, nodes = fit.plan.take(places), fit.nodes.take(places)

    def room(of: ServingJob) -> Number:
        return kv_room_bytes(model=model, job=of, plan=plan, nodes=nodes, assumptions=assumptions)

    asked = np.round(rows["running"] * rows["replicas"]) if job.requests_per_s else job.concurrency
    own = np.broadcast_to(np.asarray(asked, dtype=np.float64), (1, len(rows)))
    closed = replace(job, requests_per_s=None, concurrency=own)
    most = most_running(model=model, job=closed, plan=plan, nodes=nodes, kv_room_bytes=room(closed))
    most = np.floor(np.broadcast_to(most * plan.data_parallel, (len(BANDS), 1, len(rows)))[TYPICAL])
    powers = 2.0 ** np.arange(np.floor(np.log2(most.max())) + 1)[:, None]
    loads = np.sort(np.concatenate([np.broadcast_to(powers, (len(powers), len(rows))), most, own]), axis=0)
    repeated = np.concatenate([np.zeros_like(most, dtype=bool), np.diff(loads, axis=0) == 0])
    closed = replace(job, requests_per_s=None, concurrency=loads)
    speed = serving_speed(
        model=model, job=closed, plan=plan, nodes=nodes, assumptions=assumptions, kv_room_bytes=room(closed)
    )
    doubt = time_doubt(model=model, assumptions=assumptions)[:, :, None]
    # Machine after machine, loads rising within each.
    machine, load = np.nonzero((((loads <= most) | (loads == own)) & ~repeated).T)

    def taken(name: str, values: Number) -> dict[str, Floats]:
        """Typical and both ends: the band with the least room runs fewer at once, so the order may turn."""
        banded = np.broadcast_to(values, (len(BANDS), *loads.shape))[:, load, machine]
        ends = (banded.min(axis=0), banded[TYPICAL], banded.max(axis=0))
        return {f"{name}_{band}": values for band, values in zip(BANDS, ends, strict=True)}

    columns: dict[str, Any] = {name: rows[name].to_numpy()[machine] for name in WHERE} | {"place": machine}
    columns["concurrency"] = at = loads[load, machine]
    columns |= taken("tokens_per_s", speed.tokens_per_s / doubt)
    columns |= taken("tokens_per_s_per_gpu", speed.tokens_per_s / doubt / nodes.gpus)
    columns |= taken("tpot_s", speed.tpot_s * doubt) | taken("ttft_s", speed.ttft_s * doubt)
    columns["within_targets"] = (columns["tpot_s_typical"] <= (job.max_tpot_s or np.inf)) & (
        columns["ttft_s_typical"] <= (job.max_ttft_s or np.inf)
    )
    columns["asked"], columns["full"] = at == own[0, machine], at >= most[0, machine]
    return pd.DataFrame(columns)


def _best_of_each_gpu(decision: Decision, most: int) -> NDArray[np.intp]:
    """Offers that fit, the best of each GPU, best first."""
    codes = decision.question.market.values("gpu_code")[decision.best_first]
    first = np.sort(np.unique(codes, return_index=True)[1])[:most]
    return decision.best_first[first]
