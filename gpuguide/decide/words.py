"""What the verdict and the warnings have to name: keys and values, to be said in the reader's language elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from gpuguide.spec.model import Model
from gpuguide.spec.scenario import Question
from gpuguide.units import BANDS

STALE_DAYS, OLD_DAYS = 30, 90
"""From when a price is called stale and old: GPU clouds moved 20 to 60 % within 11 weeks (`docs/data.md`). [days]"""
FEW_PROVIDERS = 3
"""Up to so many providers a shape is called scarce."""

Warned = tuple[str, Mapping[str, Any]]


def verdict_of(question: Question, ranking: pd.DataFrame, rejected: pd.DataFrame) -> dict[str, Any]:
    """Key of the sentence that answers the question first, with the values it names."""
    scenario = question.scenario
    about = {"workload": scenario.workload, "model": question.model.name}
    if len(ranking):
        row = ranking.iloc[0]
        return about | {
            "key": f"verdict_{row['fit']}",
            **{
                name: row[name]
                for name in ("provider", "region", "instance_type", "gpu", "pricing", "as_of", "usd_per_hour")
            },
            "gpus": int(row["gpus"]),
            "nodes": int(row["nodes"]),
            "spare_bytes": row["usable_bytes"] - row["memory_total_typical_bytes"],
            "hours": {band: row[f"hours_{band}"] for band in BANDS},
            "cost_usd": {band: row[f"cost_total_{band}_usd"] for band in BANDS},
            "usd_per_million_tokens": row.get("usd_per_million_tokens"),
        }
    if rejected.empty:
        return about | {"key": "verdict_no_plan"}
    fitting = rejected[rejected["fit"] != "no"]
    if len(fitting):
        # Memory was not what removed them: some other limit of the scenario did.
        return about | {"key": "verdict_no_offer", "dropped_by": str(fitting["dropped_by"].mode().iloc[0])}
    row = rejected.iloc[0]
    return about | {
        "key": "verdict_no",
        "gpu": row["gpu"],
        "gpus": int(row["gpus"]),
        "missing_bytes": row["missing_bytes"],
        "needed_bytes": row["memory_total_typical_bytes"],
        "usable_bytes": row["usable_bytes"],
    }


def warnings_of(question: Question, ranking: pd.DataFrame) -> list[Warned]:
    """What a reader should know before renting the first offer."""
    found: list[Warned] = []
    scenario, model = question.scenario, question.model
    if isinstance(model, Model) and model.derived:
        found.append(("warning_derived_model", {"model": model.name}))
    if scenario.recipe == "fp16-mixed":
        found.append(("warning_loss_scaling", {}))
    if scenario.workload == "serve" and scenario.pricing in ("spot", "any"):
        found.append(("warning_spot_serving", {}))
    if ranking.empty:
        return found
    best = ranking.iloc[0]
    if best["age_days"] >= STALE_DAYS:
        key = "warning_old_price" if best["age_days"] >= OLD_DAYS else "warning_stale_price"
        found.append((key, {"as_of": best["as_of"], "days": int(best["age_days"])}))
    same = ranking[
        (ranking["gpu"] == best["gpu"]) & (ranking["gpus"] == best["gpus"]) & (ranking["nodes"] == best["nodes"])
    ]
    providers = same["provider"].nunique()
    if best["gpus"] > 1 and providers <= FEW_PROVIDERS:
        found.append(("warning_scarce", {"gpu": best["gpu"], "gpus": int(best["gpus"]), "providers": int(providers)}))
    hourly = ranking.loc[ranking["usd_per_hour"].idxmin()]
    if hourly["usd_per_hour"] < best["usd_per_hour"] * 0.999 and scenario.preference == "cheapest":
        found.append(
            (
                "note_dearer_per_hour",
                {
                    "gpu": hourly["gpu"], "provider": hourly["provider"], "usd_per_hour": hourly["usd_per_hour"],
                    "cost_usd": hourly["cost_total_typical_usd"], "best_usd_per_hour": best["usd_per_hour"],
                    "best_cost_usd": best["cost_total_typical_usd"],
                },
            )
        )  # fmt: skip
    return found
