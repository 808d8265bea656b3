"""What the verdict and the warnings have to name: keys and values, to be said in the reader's language elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.decide.cost import break_even_tokens
from gpuguide.decide.market import OK_DAYS
from gpuguide.decide.market import STALE_DAYS as OLD_DAYS
from gpuguide.decide.scarcity import SCARCE_PROVIDERS
from gpuguide.spec.model import Model
from gpuguide.units import BANDS, MILLION

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision

SURE = 0.95
"""A deadline that is kept less often than this is worth a warning. [-]"""
WORTH_STOPPING = 0.98
"""Stopping a server between uses is worth a word when it costs no more than this share of waiting. [-]"""
Warned = tuple[str, Mapping[str, Any]]


def verdict_of(decision: Decision) -> dict[str, Any]:
    """Key of the sentence that answers the question first, with the values it names."""
    question = decision.question
    about = {"workload": question.scenario.workload, "model": question.model.name}
    row = decision.first
    if row is not None:
        return about | {
            "key": f"verdict_{row['fit']}",
            **{name: row[name] for name in ("provider", "region", "instance_type", "gpu", "pricing", "as_of")},
            "usd_per_hour": row["usd_per_hour"],
            "gpus": int(row["gpus"]),
            "nodes": int(row["nodes"]),
            "spare_bytes": row["usable_bytes"] - row["memory_total_typical_bytes"],
            "hours": {band: row[f"hours_{band}"] for band in BANDS},
            "cost_usd": {band: row[f"cost_total_{band}_usd"] for band in BANDS},
            "usd_per_million_tokens": row.get("usd_per_million_tokens"),
        }
    fit = decision.rows.found.fit
    fitting = decision.others[fit.verdict[decision.rows.place[decision.others]] < 2]
    if len(fitting):
        # Memory was not what removed these: some other limit of the scenario did, and the last one to bite is named.
        step = int(decision.rows.funnel.dropped_at[fitting].max())
        return about | {"key": "verdict_no_offer", "dropped_by": decision.funnel[step][0]}
    nearest = decision.nearest
    if nearest is None:
        return about | {"key": "verdict_no_plan"}
    return about | {
        "key": "verdict_no",
        "gpu": nearest["gpu"],
        "gpus": int(nearest["gpus"]),
        "missing_bytes": nearest["missing_bytes"],
        "needed_bytes": nearest["memory_total_typical_bytes"],
        "usable_bytes": nearest["usable_bytes"],
    }


def warnings_of(decision: Decision) -> list[Warned]:
    """What a reader should know before renting the first offer."""
    found: list[Warned] = []
    scenario, model = decision.scenario, decision.question.model
    if isinstance(model, Model) and model.derived:
        found.append(("warning_derived_model", {"model": model.name}))
    if scenario.recipe == "fp16-mixed":
        found.append(("warning_loss_scaling", {}))
    if scenario.workload == "serve" and scenario.pricing in ("spot", "any"):
        found.append(("warning_spot_serving", {}))
    best = decision.first
    if best is None:
        return found
    if scenario.workload == "serve" and scenario.api_usd_per_million_tokens is not None:
        found.append(_break_even(best, scenario.api_usd_per_million_tokens))
    if best.get("probability_in_time", 1.0) < SURE:
        values = {"deadline_hours": scenario.deadline_hours, "probability": best["probability_in_time"]}
        found.append(("warning_deadline", values))
    stopped = best.get("total_if_stopped", best["cost_total_typical_usd"])
    if stopped < best["cost_total_typical_usd"] * WORTH_STOPPING:
        found.append(("note_stop_between", {"stopped_usd": stopped, "cost_usd": best["cost_total_typical_usd"]}))
    if best["age_days"] >= OK_DAYS:
        key = "warning_old_price" if best["age_days"] >= OLD_DAYS else "warning_stale_price"
        found.append((key, {"as_of": best["as_of"], "days": int(best["age_days"])}))
    if best.get("storage_slow_down", 1.0) > 1.001:
        found.append(("warning_storage_starves", {"slow_down": best["storage_slow_down"]}))
    ranked = decision.question.market.at(decision.best_first)
    same = np.logical_and.reduce([ranked.values(name) == best[name] for name in ("gpu", "gpus", "nodes")])
    providers = len(set(ranked.values("provider")[same]))
    if best["gpus"] > 1 and providers < SCARCE_PROVIDERS:
        found.append(("warning_scarce", {"gpu": best["gpu"], "gpus": int(best["gpus"]), "providers": providers}))
    found += _cheaper_rivals(decision, best)
    return found


def _break_even(best: Mapping[str, Any], api_usd_per_million: float) -> Warned:
    """From how many tokens a month the machine is cheaper than paying by the token, if it can make as many."""
    month = float(best["cost_total_typical_usd"])
    needed = float(np.asarray(break_even_tokens(usd_per_month=month, api_usd_per_million=api_usd_per_million)))
    most = month / float(best["usd_per_million_tokens"]) * MILLION
    key = "note_break_even" if needed <= most else "note_never_breaks_even"
    return key, {"tokens": needed, "most": most, "api_usd": api_usd_per_million, "cost_usd": month}


def _cheaper_rivals(decision: Decision, best: Mapping[str, Any]) -> list[Warned]:
    """The machine with the lowest hourly price, where its run costs more; and a tight one whose run costs less."""
    found: list[Warned] = []
    ranked = decision.question.market.values("usd_per_hour")[decision.best_first]
    hourly = int(np.argmin(ranked))
    rivals = decision.best_first[[hourly, *_first_tight(decision)]]
    offers, cost_usd = decision.rows.market.at(rivals), decision.rows.total_usd(rivals)
    for place, key in enumerate(("note_dearer_per_hour", "note_tight_is_cheaper")[: len(rivals)]):
        values = {
            "gpu": offers.values("gpu")[place],
            "gpus": int(offers.numbers("gpus")[place]),
            "provider": offers.values("provider")[place],
            "usd_per_hour": float(offers.numbers("usd_per_hour")[place]),
            "cost_usd": float(cost_usd[place]),
            "best_usd_per_hour": best["usd_per_hour"],
            "best_cost_usd": best["cost_total_typical_usd"],
        }
        cheaper_hour = values["usd_per_hour"] < values["best_usd_per_hour"] * 0.999
        cheaper_run = values["cost_usd"] < values["best_cost_usd"] * 0.999
        if (key == "note_dearer_per_hour" and cheaper_hour and not cheaper_run) or (
            key == "note_tight_is_cheaper" and cheaper_run and best["fit"] == "fits"
        ):
            found.append((key, values))
    return found


def _first_tight(decision: Decision) -> list[int]:
    """Place in the ranking of the best offer that is tight, if there is one."""
    fit = decision.rows.found.fit
    tight = np.flatnonzero(fit.verdict[decision.rows.place[decision.best_first]] == 1)
    return [int(tight[0])] if len(tight) else []
