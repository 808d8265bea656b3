"""Rows of a ranking: everything known of the offers asked for, and of no others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns
from gpuguide.decide.cost import PARTS as COST_PARTS
from gpuguide.decide.cost import CostBreakdown
from gpuguide.decide.estimates import Estimate
from gpuguide.decide.fit import VERDICTS, flat, spread
from gpuguide.decide.market import Funnel
from gpuguide.decide.price import price
from gpuguide.decide.scarcity import providers_of
from gpuguide.decide.search import Index, plan_as_dict
from gpuguide.decide.storage import Feed
from gpuguide.estimate.energy import energy
from gpuguide.estimate.results import PARTS, MemoryBreakdown
from gpuguide.spec.job import ServingJob
from gpuguide.spec.scenario import Question
from gpuguide.units import BANDS, HOUR, TYPICAL, in_order

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

PLACE = (
    "provider", "region", "instance_type", "gpu", "gpus", "nodes", "pricing", "kind", "as_of", "age_days", "source",
)  # fmt: skip
"""Columns taken from the market as they are."""
RATES = (
    "usd_per_million_tokens", "usd_per_1000_items", "usd_per_useful_gpu_hour", "minimum_charge_usd",
    "probability_in_time", "billed_hours", "expected_interruptions", "checkpoint_interval_s", "busy_share",
    "availability", "total_if_stopped",
)  # fmt: skip
"""Columns taken from the cost as they are, where it has them."""
FEW = 100
"""Tables of at most so many rows are kept: a page asks for the best offer and the best ten again and again. [rows]"""


@dataclass(frozen=True, slots=True)
class Rows:
    """Estimates per shape and the market, from which tables of chosen offers are made on demand."""

    question: Question
    found: Estimate
    place: Index  # (offer,): place of its shape in `found`
    funnel: Funnel
    on_front: NDArray[np.bool_]  # (offer,)
    _made: dict[bytes, Columns] = field(default_factory=dict, repr=False, compare=False)
    _frames: dict[bytes, pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    @property
    def market(self) -> Columns:
        """All offers."""
        return self.question.market

    def table(self, offers: Index) -> pd.DataFrame:
        """The given offers in the given order; columns as `Decision` names them."""
        if len(offers) > FEW:
            return self.columns(offers).frame()
        key = offers.tobytes()
        if key not in self._frames:
            self._frames[key] = self.columns(offers).frame()
        return self._frames[key].copy(deep=False)

    def columns(self, offers: Index) -> Columns:
        """The same as columns, which need no pandas."""
        if len(offers) > FEW:
            return self._columns(offers)
        key = offers.tobytes()
        if key not in self._made:
            self._made[key] = self._columns(offers)
        return self._made[key]

    def total_usd(self, offers: Index) -> Floats:
        """Typical total cost of the given offers alone. [USD]"""
        cost, _ = price(self.question, self.found, self.place[offers], self.market.at(offers))
        total: Floats = np.broadcast_to(cost.total, (len(BANDS), len(offers)))[TYPICAL]
        return total

    def fitted(self, offers: Index) -> Columns:
        """Of the given offers only what fills their memory, and whether it fits: a picture of that needs no prices."""
        return Columns(self._placed(offers) | self._verdicts(offers) | self._memory(offers))

    def outlined(self, offers: Index) -> Columns:
        """Of the given offers only time and cost, for pictures of hundreds."""
        cost, _ = price(self.question, self.found, self.place[offers], self.market.at(offers))
        columns = self._placed(offers) | bands("hours_{}", cost.wall_hours) | bands("cost_total_{}_usd", cost.total)
        if "tpot_s" in self.found.banded:
            columns |= bands("tpot_s_{}", self.found.banded["tpot_s"][:, self.place[offers]])
        return Columns(columns | {"pareto": self.on_front[offers]})

    def _placed(self, offers: Index) -> dict[str, NDArray[Any]]:
        market = self.market.at(offers)
        return {name: market.values(name) for name in (*PLACE, "usd_per_hour")}

    def _verdicts(self, offers: Index) -> dict[str, NDArray[Any]]:
        return {"fit": VERDICTS[self.found.fit.verdict[self.place[offers]]]}

    def _memory(self, offers: Index) -> dict[str, NDArray[Any]]:
        fit, place = self.found.fit, self.place[offers]
        columns = {
            f"memory_{part}_bytes": spread(getattr(fit.memory, part), len(fit.shape))[TYPICAL, place] for part in PARTS
        }
        columns |= bands("memory_total_{}_bytes", flat(fit.memory.total)[:, place])
        return columns | {"usable_bytes": fit.usable_bytes[place], "missing_bytes": fit.missing_bytes[place]}

    def _columns(self, offers: Index) -> Columns:
        place, market = self.place[offers], self.market.at(offers)
        cost, reads = price(self.question, self.found, place, market)
        columns = self._placed(offers) | {"providers": providers_of(self.market, offers)}
        columns |= self._verdicts(offers) | {"plan": self._plans(place)} | self._memory(offers)
        for quantity, values in self.found.banded.items():
            columns |= bands(f"{quantity}_{{}}", values[:, place])
        for quantity, typical in self.found.single.items():
            columns[quantity] = typical[place]
        columns |= bands("hours_{}", cost.wall_hours)
        for part in COST_PARTS:
            columns[f"cost_{part}_usd"] = np.broadcast_to(getattr(cost, part), cost.total.shape)[TYPICAL]
        columns |= bands("cost_total_{}_usd", cost.total)
        columns |= _rates(cost, reads)
        columns |= self._energy(market, place, cost)
        columns["pareto"] = self.on_front[offers]
        names = np.array(["", *(name for name, _ in self.funnel.remaining[1:])], dtype=object)
        columns["dropped_by"] = names[self.funnel.dropped_at[offers]]
        return Columns(columns)

    def memory(self, offer: int) -> MemoryBreakdown:
        """Memory of one GPU of an offer by parts, each with shape (band,)."""
        fit = self.found.fit
        return MemoryBreakdown(
            **{part: spread(getattr(fit.memory, part), len(fit.shape))[:, self.place[offer]] for part in PARTS}
        )

    def _energy(self, market: Columns, place: Index, cost: CostBreakdown) -> dict[str, Floats]:
        """Electricity and greenhouse gas of the run, or of a month of serving."""
        serving = isinstance(self.question.job, ServingJob)
        busy_s = self.found.work_s[:, place]
        if cost.busy_share is not None:
            busy_s = busy_s * cost.busy_share
        used = energy(
            gpus=market.numbers("gpus"),
            tdp_w=self.found.fit.nodes.tdp_w[place],
            busy_s=busy_s,
            idle_s=np.maximum(cost.billed_hours * HOUR - busy_s, 0.0),
            grid_g_per_kwh=np.stack([market.numbers(f"grid_{band}_g_per_kwh") for band in BANDS]),
            serving=serving,
            assumptions=self.question.assumptions,
        )
        return bands("energy_{}_kwh", np.asarray(used.kwh)) | bands("co2e_{}_kg", np.asarray(used.kg_co2e))

    def _plans(self, place: Index) -> NDArray[np.object_]:
        """Plans in words and numbers, one dictionary for each distinct shape."""
        plans = np.empty(len(place), dtype=object)
        distinct, back = np.unique(place, return_inverse=True)
        words = [plan_as_dict(self.found.fit.plan.take(int(index))) for index in distinct]
        for row, index in enumerate(back):
            plans[row] = words[index]
        return plans


def _rates(cost: CostBreakdown, reads: Feed | None) -> dict[str, Any]:
    """Prices per unit of work, and what interruptions and storage do to the run; typical values."""
    rates: dict[str, Any] = {}
    for name in RATES:
        value = getattr(cost, name)
        if value is not None:
            rates[name] = np.broadcast_to(value, cost.total.shape)[TYPICAL]
    if reads is not None:
        rates["storage_slow_down"] = np.broadcast_to(reads.slow_down, cost.total.shape)[TYPICAL]
        for name in ("needed", "available"):
            read = np.broadcast_to(getattr(reads, f"{name}_bytes_per_s"), cost.total.shape)
            rates[f"data_{name}_bytes_per_s"] = read[TYPICAL]
    if cost.risky is not None:
        rates["risky"] = cost.risky
    return rates


def bands(template: str, values: Floats) -> dict[str, Floats]:
    """Three columns of a banded quantity: low, typical, high."""
    return {template.format(name): row for name, row in zip(BANDS, in_order(values), strict=True)}
