"""
What would change the answer: each input moved alone, the cost of the best offer read again, the widest first.

Assumptions move to the ends of their own bands, inputs and the price by a quarter. The machine stays the one chosen, so
that bars compare; for those shown the whole market is asked again, to see whether another offer would come first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide.decision import Decision
from gpuguide.decide.pipeline import decide
from gpuguide.errors import GuideError
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.scenario import Question, Scenario

QUARTER = 0.25
"""Inputs and prices are moved by this share, both ways; a choice of ours, the same for all so that they compare. [-]"""
LEAST_EFFECT = 0.003
"""Movers with less than this relative effect are left out. [-]"""
MOST = 8
INPUTS = {
    "training": ("train_tokens", "sequence_length", "global_batch", "lora_rank", "sessions", "checkpoint_interval_s",
                 "interruptions_per_hour", "storage_gb", "egress_gb", "setup_minutes"),
    "serve": ("prompt_tokens", "output_tokens", "concurrency", "requests_per_s", "hours_per_month", "storage_gb",
              "egress_gb", "setup_minutes"),
    "media": ("width", "height", "frames", "steps", "batch", "items", "audio_seconds", "setup_minutes"),
}  # fmt: skip
"""Keys of the scenario that are moved, by kind of workload."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """One end of a mover: the value taken, the cost there, and which offer would then come first."""

    value: float
    cost: float  # nan where the job is then impossible on this machine
    best: str | None = None  # gpu of the offer that would come first; None = nothing fits
    provider: str | None = None
    gpus: int | None = None
    moved: bool = False  # another offer comes first


@dataclass(frozen=True, kw_only=True, slots=True)
class Mover:
    """One input with both its ends."""

    kind: str  # assumption, input, price
    name: str
    base: float  # the value as it stands
    unit: str = ""
    low: Move
    high: Move

    def width(self, cost: float) -> float:
        """How far the cost moves, both ends together, relative to the cost as it stands. [-]"""
        ends = [abs(move.cost / cost - 1.0) for move in (self.low, self.high) if math.isfinite(move.cost)]
        return sum(ends)


@dataclass(frozen=True, slots=True)
class Watched(Assumptions):
    """Assumptions that remember which of them were looked up."""

    seen: set[str] = field(default_factory=set, compare=False)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        self.seen.add(name)
        return Assumptions.__getitem__(self, name)

    def typical(self) -> Assumptions:
        """The same without a band; what is looked up there is remembered too."""
        plain = Assumptions(self.rows).typical()
        return Watched(self.rows, plain._arrays, self.seen)

    def value(self, name: str) -> float:
        """The typical value alone."""
        self.seen.add(name)
        return Assumptions.value(self, name)


def cost_of(decision: Decision) -> float:
    """What is compared: the cost of the job, or of a million tokens when serving; nan where nothing fits. [USD]"""
    best = decision.best
    if best is None:
        return math.nan
    name = "usd_per_million_tokens" if decision.scenario.workload == "serve" else "cost_total_typical_usd"
    return float(best[name])


def assumption_movers(decision: Decision) -> list[Mover]:
    """The assumptions that the best offer's cost, time or memory depends on, each moved to its ends, in table order."""
    if decision.best is None:
        return []
    table = decision.question.assumptions
    watched = Watched(table.rows)
    narrow = _on_best(decision, decision.question)
    base = _felt(replace(narrow, assumptions=watched))
    found = []
    for name, row in table.rows.items():
        if name not in watched.seen or row.low == row.high:
            continue
        felt = [_felt(replace(narrow, assumptions=_pinned(table, name, value))) for value in (row.low, row.high)]
        if any(
            not math.isclose(end, here, rel_tol=1e-6) for ends in felt for end, here in zip(ends, base, strict=True)
        ):
            low, high = (Move(value=value, cost=ends[0]) for value, ends in zip((row.low, row.high), felt, strict=True))
            found.append(Mover(kind="assumption", name=name, base=row.typical, unit=row.unit, low=low, high=high))
    return found


def _felt(question: Question) -> tuple[float, float, float]:
    """Cost, time and memory of the one offer of a question; nan where it does not fit."""
    try:
        decision = decide(question)
    except GuideError:
        return math.nan, math.nan, math.nan
    best = decision.best
    if best is None:
        return math.nan, math.nan, math.nan
    time = best["tpot_s_typical"] if decision.scenario.workload == "serve" else best["hours_typical"]
    return cost_of(decision), float(time), float(best["memory_total_typical_bytes"])


def movers(decision: Decision, assumed: Sequence[Mover], *, most: int = MOST) -> list[Mover]:
    """
    Inputs by how far they move the cost of the best offer, the widest first.

    Parameters
    ----------
    decision : Decision
        The answer as it stands; without a fitting offer there is nothing to move.
    assumed : sequence of Mover
        From `assumption_movers`.
    most : int
        How many to give.
    """
    cost = cost_of(decision)
    if not math.isfinite(cost) or cost <= 0:
        return []
    found = [*assumed, *_inputs(decision), _price(decision)]
    wide = [mover for mover in found if mover.width(cost) >= LEAST_EFFECT]
    wide.sort(key=lambda mover: (-mover.width(cost), mover.name))
    return [_asked_again(decision, mover) for mover in wide[:most]]


def _inputs(decision: Decision) -> Iterator[Mover]:
    scenario = decision.scenario
    kind = "training" if scenario.is_training else "media" if scenario.is_media else "serve"
    for name in INPUTS[kind]:
        base = getattr(scenario, name)
        if base is None or not base:
            continue
        ends = [_moved(scenario, name, factor) for factor in (1 - QUARTER, 1 + QUARTER)]
        if all(getattr(end, name) == base for end in ends):
            continue
        moves = [Move(value=float(getattr(end, name)), cost=_cost_of_scenario(decision, end)) for end in ends]
        yield Mover(kind="input", name=name, base=float(base), low=moves[0], high=moves[1])


def _price(decision: Decision) -> Mover:
    narrow = _on_best(decision, decision.question)
    base = float(narrow.market.numbers("usd_per_hour")[0])
    ends = []
    for value in (base * (1 - QUARTER), base * (1 + QUARTER)):
        moved = replace(narrow, market=narrow.market.but(usd_per_hour=np.array([value])))
        ends.append(Move(value=value, cost=_cost(moved)))
    return Mover(kind="price", name="usd_per_hour", base=base, low=ends[0], high=ends[1])


def _asked_again(decision: Decision, mover: Mover) -> Mover:
    """The mover with the offer that would come first at either end."""
    return replace(mover, low=_first_at(decision, mover, mover.low), high=_first_at(decision, mover, mover.high))


def _first_at(decision: Decision, mover: Mover, move: Move) -> Move:
    question = decision.question
    if mover.kind == "assumption":
        question = replace(question, assumptions=_pinned(question.assumptions, mover.name, move.value))
    elif mover.kind == "input":
        changed = decision.scenario.model_copy(update={mover.name: _like(decision.scenario, mover.name, move.value)})
        try:
            question = question.again(changed)
        except GuideError:
            return move
    else:
        prices = question.market.numbers("usd_per_hour").copy()
        prices[int(decision.best_first[0])] = move.value
        question = replace(question, market=question.market.but(usd_per_hour=prices))
    answer = decide(question)
    if not len(answer.best_first):
        return replace(move, moved=True)
    row = answer.top(1).iloc[0]
    moved = _who(row) != _who(decision.top(1).iloc[0])
    return replace(
        move, best=str(row["gpu"]), provider=str(row["provider"]), gpus=int(row["gpus"]), moved=moved
    )  # fmt: skip


def _who(row: Any) -> tuple[Any, ...]:
    return row["provider"], row["gpu"], row["gpus"], row["nodes"]


def _pinned(table: Assumptions, name: str, value: float) -> Assumptions:
    return table.replace(**{name: (value, value, value)})


def _on_best(decision: Decision, question: Question) -> Question:
    """The question with the best offer alone on its market, and no limit that could drop it."""
    market = question.market.at(decision.best_first[:1])
    free = {"deadline_hours": None, "budget_usd": None, "max_ttft_s": None, "max_tpot_s": None}
    return replace(
        question,
        scenario=question.scenario.model_copy(update=free),
        shapes=question.shapes.take(market.values("shape")),
        market=market.but(shape=np.zeros(1, dtype=np.intp)),
    )


def _moved(scenario: Scenario, name: str, factor: float) -> Scenario:
    return scenario.model_copy(update={name: _like(scenario, name, getattr(scenario, name) * factor)})


def _like(scenario: Scenario, name: str, value: float) -> Any:
    """A value of the kind its key has: counts stay whole and above zero."""
    return max(1, round(value)) if isinstance(getattr(scenario, name), int) else value


def _cost_of_scenario(decision: Decision, scenario: Scenario) -> float:
    try:
        return _cost(_on_best(decision, decision.question.again(scenario)))
    except GuideError:
        return math.nan  # beyond what this model can do


def _cost(question: Question) -> float:
    try:
        return cost_of(decide(question))
    except GuideError:
        return math.nan
