"""
From a question to a decision, top to bottom: search, memory, speed, fit, cost, rank.

`decide` is pure: it opens no file, reads no clock and may be called from several threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gpuguide.decide import market, rank
from gpuguide.decide.decision import PLACE, Decision, plain
from gpuguide.decide.estimates import Estimate, estimate
from gpuguide.decide.price import price
from gpuguide.decide.rows import Rows
from gpuguide.decide.search import Index
from gpuguide.decide.words import verdict_of, warnings_of
from gpuguide.estimate.results import PARTS
from gpuguide.spec.scenario import Question
from gpuguide.units import BANDS, TYPICAL

MOST_REJECTED = 500
"""Offers that do not fit are listed up to so many, nearest first."""


def decide(question: Question) -> Decision:
    """
    Rank every offer of the market for a question.

    Parameters
    ----------
    question : Question
        From `Catalog.resolve`.

    Returns
    -------
    Decision
        Also when nothing fits: then the ranking is empty and the verdict says what is missing.
    """
    found = estimate(question)
    scenario, offers = question.scenario, question.offers
    fit = found.fit
    place = _place_of_shape(found, len(question.shapes))[offers["shape"].to_numpy()]
    planned = place >= 0
    if not planned.any():
        return _no_plan(question)
    # An offer without a legal plan borrows the first shape's numbers; the funnel drops it before they are seen.
    place = np.maximum(place, 0)
    cost, reads = price(question, found, place, offers)
    hours, total_usd = cost.wall_hours[TYPICAL], cost.total[TYPICAL]
    narrowed = market.funnel(
        offers,
        scenario,
        fits=planned & (fit.verdict[place] < 2),
        fast_enough=found.meets_targets[place],
        linked=planned,
        hours=hours,
        total_usd=total_usd,
    )
    time = found.banded["tpot_s"][TYPICAL, place] if scenario.workload == "serve" else hours
    chosen = np.flatnonzero(narrowed.keep)
    best_first = chosen[
        rank.order(
            fit=fit.verdict[place[chosen]],
            cost_usd=total_usd[chosen],
            time=time[chosen],
            age_days=offers["age_days"].to_numpy(dtype=np.float64)[chosen],
            preference=scenario.preference,
        )
    ]
    others = np.flatnonzero(~narrowed.keep & planned)
    others = others[np.lexsort((total_usd[others], fit.missing_bytes[place[others]]))]
    on_front = np.zeros(len(offers), dtype=bool)
    on_front[chosen] = market.pareto(time[chosen], total_usd[chosen])
    rows = Rows(question, found, cost, reads, place, narrowed, on_front)
    ranking = rows.table(best_first)
    rejected = rows.table(others[:MOST_REJECTED])
    return Decision(
        question=question,
        ranking=ranking,
        rejected=rejected,
        by_gpu=rows.table(_first_of_each_gpu(question, np.concatenate([best_first, others]))),
        funnel=narrowed.remaining,
        memory=rows.memory(best_first[0] if len(best_first) else others[0]),
        verdict=verdict_of(question, ranking, rejected),
        warnings=warnings_of(question, ranking),
    )


def _place_of_shape(found: Estimate, shapes: int) -> Index:
    """For every shape its place among the estimated ones; -1 where no plan is legal."""
    place = np.full(shapes, -1, dtype=np.intp)
    place[found.fit.shape] = np.arange(len(found.fit.shape))
    return place


def _first_of_each_gpu(question: Question, order: Index) -> Index:
    """Of each GPU the offer that comes first."""
    codes = pd.factorize(question.offers["gpu"].to_numpy()[order])[0]
    return order[np.sort(np.unique(codes, return_index=True)[1])]


def _no_plan(question: Question) -> Decision:
    """No machine of the market can hold a legal layout: an answer, not an error."""
    empty = pd.DataFrame(columns=[*PLACE, "fit", "plan"])
    return Decision(
        question=question, ranking=empty, rejected=empty, by_gpu=empty, memory=None,
        funnel=(("market", len(question.offers)), ("topology", 0)),
        verdict=verdict_of(question, empty, empty), warnings=warnings_of(question, empty),
    )  # fmt: skip


def memory_of(question: Question) -> dict[str, Any]:
    """
    Memory by part of the best plan on the best offer's machine: what `gpuguide memory` prints.

    Where nothing fits, of the machine that misses by least.
    """
    decision = decide(question)
    rows = decision.ranking if len(decision.ranking) else decision.rejected
    if rows.empty:
        return {"scenario": decision.scenario.model_dump(mode="json"), "fit": "no", "plan": None, "memory_bytes": None}
    row = rows.iloc[0]
    return {
        "scenario": decision.scenario.model_dump(mode="json"),
        "model": question.model.name,
        "gpu": row["gpu"],
        "gpus": int(row["gpus"]),
        "nodes": int(row["nodes"]),
        "fit": row["fit"],
        "plan": row["plan"],
        "memory_bytes": {
            part: {band: plain(row[f"memory_{part}_{band}_bytes"]) for band in BANDS}
            if part == "total"
            else plain(row[f"memory_{part}_bytes"])
            for part in (*PARTS, "total")
        },
        "usable_bytes": plain(row["usable_bytes"]),
        "missing_bytes": plain(row["missing_bytes"]),
    }
