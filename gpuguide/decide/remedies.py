"""
What would help: changes of a scenario, each answered by `decide` itself and compared with the answer as it stands.

A remedy for a misfit makes it fit; a remedy for a fit makes it cheaper or faster. Each says what it costs in speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuguide.decide.decision import Decision
from gpuguide.decide.pipeline import decide
from gpuguide.errors import GuideError
from gpuguide.spec.scenario import Scenario

WORTHWHILE = 0.03
"""Least relative gain in cost or time that is worth a line."""
SMALLER_FORMATS = ("fp8", "awq", "nf4")
MOST = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """One change and what it does."""

    change: Mapping[str, Any]  # scenario keys with their new values
    makes_fit: bool
    memory_bytes: float  # typical need per GPU after the change [bytes]
    cost_usd: float  # typical total after the change; nan where nothing fits [USD]
    cost_ratio: float  # over the cost before; nan where there was none
    time_ratio: float  # over the time before; per token when serving
    unit_ratio: float  # over the cost per token before, serving only; nan elsewhere
    gpu: str | None
    gpus: int | None

    def as_json(self) -> dict[str, Any]:
        """The change, and its effect in numbers."""
        effect = {name: getattr(self, name) for name in self.__slots__ if name != "change"}
        return {"change": dict(self.change), "effect": effect}


def remedies(decision: Decision, *, most: int = MOST) -> list[Remedy]:
    """
    Changes that would help, best first.

    Parameters
    ----------
    decision : Decision
        The answer as it stands.
    most : int
        How many to give.

    Notes
    -----
    Where something fits, changes are tried on the whole market; where nothing does, those come first that make it fit
    at the least cost.
    """
    found = []
    for change in changes(decision.scenario):
        try:
            after = decide(decision.question.again(decision.scenario.model_copy(update=dict(change))))
        except GuideError:
            continue  # this change is not possible for this model or job
        remedy = _compare(decision, after, change)
        if remedy is not None:
            found.append(remedy)
    return sorted(found, key=_gain)[:most]


def _gain(remedy: Remedy) -> tuple[bool, float]:
    """Order of remedies: what makes it fit by cost, then the largest gain in cost, unit cost or time."""
    if remedy.makes_fit:
        return False, remedy.cost_usd
    ratios = [ratio for ratio in (remedy.cost_ratio, remedy.unit_ratio, remedy.time_ratio) if np.isfinite(ratio)]
    return True, min(ratios)


def changes(scenario: Scenario) -> Iterator[Mapping[str, Any]]:
    """Single changes worth trying for the workload, gentlest first."""
    if scenario.is_training:
        if not scenario.fused_loss:
            yield {"fused_loss": True}
        if scenario.recompute not in ("auto", "full"):
            yield {"recompute": "full"}
        if scenario.attention == "eager":
            yield {"attention": "fused"}
        if scenario.micro_batch and scenario.micro_batch > 1:
            yield {"micro_batch": 1}
        if scenario.optimizer == "adamw":
            yield {"optimizer": "adamw-8bit"}
        if scenario.workload == "full":
            yield {"workload": "lora", "recipe": None}
        if scenario.workload in ("full", "lora"):
            yield {"workload": "qlora", "recipe": None}
        if scenario.workload in ("full", "pretrain") and scenario.recipe != "fp8":
            yield {"recipe": "fp8"}
        if scenario.offload == "none":
            yield {"offload": "auto"}
        if scenario.sequence_length and scenario.sequence_length > 1024:
            yield {"sequence_length": scenario.sequence_length // 2}
    elif scenario.workload == "serve":
        for smaller in SMALLER_FORMATS:
            if scenario.weight_format != smaller:
                yield {"weight_format": smaller}
        if scenario.kv_format != "fp8":
            yield {"kv_format": "fp8"}
        if scenario.concurrency:
            yield {"concurrency": scenario.concurrency * 2}
    elif scenario.is_media:
        yield {"quantization": "fp8"}
        for moved in ("all", "sequential"):
            if scenario.offload != moved:
                yield {"offload": moved}
        if scenario.batch > 1:
            yield {"batch": 1}
    if scenario.gpus is not None:
        yield {"gpus": scenario.gpus * 2, "nodes": None}
    if scenario.gpu or scenario.providers or scenario.regions or scenario.countries:
        yield {"gpu": (), "providers": (), "regions": (), "countries": ()}
    if scenario.pricing == "on_demand" and scenario.workload != "serve":
        yield {"pricing": "any"}


def _compare(before: Decision, after: Decision, change: Mapping[str, Any]) -> Remedy | None:
    """The remedy, or None when the change gains nothing."""
    old, new = before.first, after.first
    if new is None:
        return None
    unit_ratio = float("nan")
    cost, hours = float(new["cost_total_typical_usd"]), float(new["hours_typical"])
    if old is None:
        ratio = time_ratio = float("nan")
    else:
        ratio, time_ratio = cost / float(old["cost_total_typical_usd"]), hours / float(old["hours_typical"])
        if before.scenario.workload == "serve":
            time_ratio = float(new["tpot_s_typical"]) / float(old["tpot_s_typical"])
            unit_ratio = float(new["usd_per_million_tokens"]) / float(old["usd_per_million_tokens"])
        gains = [gain for gain in (ratio, time_ratio, unit_ratio) if np.isfinite(gain)]
        if not np.isfinite(ratio) or min(gains) > 1 - WORTHWHILE:
            return None
    return Remedy(
        change=change,
        makes_fit=old is None,
        memory_bytes=float(new["memory_total_typical_bytes"]),
        cost_usd=cost,
        cost_ratio=ratio,
        time_ratio=time_ratio,
        unit_ratio=unit_ratio,
        gpu=str(new["gpu"]),
        gpus=int(new["gpus"]),
    )
