"""
From a question to a decision, top to bottom: search, memory, speed, fit, cost, rank.

`decide` is pure: it opens no file, reads no clock and may be called from several threads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.decide import market, rank
from gpuguide.decide.decision import Decision, plain
from gpuguide.decide.price import price
from gpuguide.decide.rows import Rows
from gpuguide.decide.search import asked_for
from gpuguide.errors import NotModelled, must_be
from gpuguide.estimate.results import PARTS
from gpuguide.spec.job import MediaJob, ServingJob, TrainingJob
from gpuguide.spec.model import MediaModel, Model
from gpuguide.spec.scenario import Question
from gpuguide.units import BANDS, TYPICAL

if TYPE_CHECKING:
    from gpuguide.decide.estimates import Estimate


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
    must_be("question", question, Question, "give what Catalog.resolve(scenario) returns")
    found = estimate(question)
    scenario, offers, fit = question.scenario, question.market, found.fit
    shape = offers.values("shape")
    place = fit.places(len(question.shapes))[shape]
    planned = place >= 0
    # An offer without a legal plan borrows the first shape's numbers; the funnel drops it before they are seen.
    place = np.maximum(place, 0)
    # Sizes the scenario rules out were not estimated: they drop out at the topology step, not for want of memory.
    unasked = ~asked_for(scenario, question.shapes)[shape]
    able = found.able[shape]
    narrow = partial(market.funnel, offers, scenario, supported=able, fits=planned, linked=planned, known_gpus=True)
    if planned.any():
        narrow = partial(
            narrow,
            fits=planned & (fit.verdict[place] < 2) | unasked,
            fast_enough=found.meets_targets[place] | unasked,
        )
    narrowed = narrow()
    kept = np.flatnonzero(narrowed.keep)
    if len(kept):
        cost, _ = price(question, found, place[kept], offers.at(kept))
        hours, total_usd = np.full((2, len(offers)), np.nan)
        hours[kept], total_usd[kept] = cost.wall_hours[TYPICAL], cost.total[TYPICAL]
        if scenario.deadline_hours is not None or scenario.budget_usd is not None:
            narrowed = narrow(hours=hours, total_usd=total_usd)
            kept = np.flatnonzero(narrowed.keep)
        time = found.banded["tpot_s"][TYPICAL, place] if scenario.workload == "serve" else hours
        best_first = kept[
            rank.order(
                fit=fit.verdict[place[kept]],
                cost_usd=total_usd[kept],
                time=time[kept],
                age_days=offers.at(kept).numbers("age_days"),
                preference=scenario.preference,
            )
        ]
        on_front = np.zeros(len(offers), dtype=bool)
        on_front[kept] = market.pareto(time[kept], total_usd[kept])
    else:
        best_first, on_front = kept, np.zeros(len(offers), dtype=bool)
    others = np.flatnonzero(~narrowed.keep & planned)
    if len(others):
        usd = offers.at(others).numbers("usd_per_hour")
        # What the reader ruled out by name or size is not "the nearest", however little it lacks.
        own = market.filters(offers, scenario, known_gpus=True)
        ruled_out = ~(own["gpu"] & own["topology"])[others]
        others = others[np.lexsort((usd, fit.missing_bytes[place[others]], ruled_out))]
    rows = Rows(question, found, place, narrowed, on_front)
    return Decision(question=question, rows=rows, best_first=best_first, others=others)


def estimate(question: Question) -> Estimate:
    """
    Best plan of every shape for the question's job.

    Raises
    ------
    NotModelled
        If the model is not made for the workload.
    """
    # Each workload brings formulas that the others have no use for.
    model, job = question.model, question.job
    if isinstance(job, TrainingJob) and isinstance(model, Model):
        from gpuguide.decide.training import estimate_training

        return estimate_training(question, model, job)
    if isinstance(job, ServingJob) and isinstance(model, Model):
        from gpuguide.decide.serving import estimate_serving

        return estimate_serving(question, model, job)
    if isinstance(job, MediaJob) and isinstance(model, MediaModel):
        from gpuguide.decide.media import estimate_media

        return estimate_media(question, model, job)
    raise NotModelled(
        f"workload {question.scenario.workload} of {model.name}", "choose a workload the model is made for"
    )


PICTURES = ("image", "video")


def memory_of(question: Question) -> dict[str, Any]:
    """
    Memory by part of the best plan on the best offer's machine: what `gpuguide memory` prints.

    Where nothing fits, of the machine that misses by least. Pictures and clips are told phase by phase too.
    """
    decision = decide(question)
    asked = {"scenario": decision.scenario.model_dump(mode="json")}
    row = decision.nearest
    if row is None:
        return asked | {"fit": "no", "plan": None, "memory_bytes": None}
    found = {
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
    if question.scenario.workload in PICTURES:
        from gpuguide.decide.phases import phase_rows

        found["phases"] = plain(phase_rows(decision))
    return asked | found
