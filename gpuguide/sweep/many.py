"""
Many questions in one pass: points that differ in lengths, batches, tokens and GPUs become one long node axis.

Each point brings its own copy of the machine shapes it may use, and each entry of the pass knows its point; the
estimates then broadcast as they do for one question. Of offers on equal terms only the cheapest is priced.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide import market, rank
from gpuguide.decide.estimates import Estimate, legal_plans, machines_of
from gpuguide.decide.fit import flat
from gpuguide.decide.price import price
from gpuguide.decide.search import Pairs
from gpuguide.decide.serving import serving_on
from gpuguide.decide.training import training_on
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import MediaJob, ServingJob, TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.spec.scenario import Question
from gpuguide.sweep.world import Market, PointNodes, World, first_of
from gpuguide.units import TYPICAL

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

TRAINING_NUMBERS = ("sequence_length", "global_batch", "train_tokens")
SERVING_NUMBERS = ("prompt_tokens", "output_tokens", "max_context", "concurrency")
"""Numbers of a job that may differ between the points of one pass."""
NOT_IN_THE_BILL = frozenset((
    "provider", "instance_type", "region", "gpu", "vcpus", "ram_gb", "usd_per_hour", "node_usd_per_hour", "price_basis",
    "as_of", "source", "note", "months", "commitment_usd", "computed_as", "age_days", "fabric", "fabric_gbps_per_node",
    "clusters", "grid_zone", "grid_low_g_per_kwh", "grid_typical_g_per_kwh", "grid_high_g_per_kwh", "gpu_code",
))  # fmt: skip
"""Columns of the market that name an offer; offers equal in all others differ in price alone."""
ENTRIES = 60_000
"""Plans of one pass: more would not be faster and take more memory."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The first offer of every point; arrays have shape (point,), or (band, point)."""

    offer: Index  # place in the question's market; -1 = nothing to rent
    verdict: NDArray[np.int_]  # 0 fits, 1 tight, 2 does not fit, 3 dropped by another limit, 4 no legal plan
    plan: Plan
    memory_bytes: Floats
    usable_bytes: Floats
    quantities: Mapping[str, Floats]  # (band, point)
    cost_usd: Floats
    usd_per_million_tokens: Floats


class Pass:
    """
    Points of one question that differ in numbers of the job and in the GPUs allowed.

    Parameters
    ----------
    question : Question
        Of any of the points; all that is equal between them is taken from it.
    questions : mapping
        The question of each distinct combination of those numbers of which the search for plans depends.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self.serving = isinstance(question.job, ServingJob)
        self._markets: dict[tuple[str, ...], Market] = {}
        self._pairs: dict[Hashable, Pairs] = {}
        self.sizes, self.size_of_shape, self.able = machines_of(question.job, question.shapes)

    # ---- what does not depend on a point's numbers -------------------------------------------------------------------

    def market(self, gpus: tuple[str, ...]) -> Market:
        """Offers that a renter who allows these GPUs accepts, the cheapest of those on equal terms."""
        if gpus not in self._markets:
            offers = self.question.market
            keep = np.ones(len(offers), dtype=np.bool_)
            for mask in market.filters(offers, self.question.scenario.model_copy(update={"gpu": gpus})).values():
                keep &= mask
            keep &= self.able[offers.values("shape")]
            places = np.flatnonzero(keep)
            order = np.lexsort((offers.numbers("age_days")[places], offers.values("usd_per_hour")[places]))
            places = places[order]
            terms = [name for name in offers.names if name not in NOT_IN_THE_BILL]
            first = ~offers.at(places).frame()[terms].duplicated().to_numpy()
            places = np.sort(places[first])
            shapes, back = np.unique(offers.values("shape")[places], return_inverse=True)
            self._markets[gpus] = Market(places, shapes.astype(np.intp), back.ravel().astype(np.intp))
        return self._markets[gpus]

    def pairs(self, key: Hashable, question: Question) -> Pairs:
        """Legal plans on every size for the numbers of one combination."""
        if key not in self._pairs:
            model, job = _of_a_language_model(question)
            self._pairs[key] = legal_plans(model, job, question.scenario, self.sizes)
        return self._pairs[key]

    # ---- one pass ----------------------------------------------------------------------------------------------------

    def answer(
        self, numbers: Mapping[str, Floats], gpus: Sequence[tuple[str, ...]], kind: Index, pairs: Sequence[Pairs]
    ) -> Answers:
        """
        The first offer of every point.

        Parameters
        ----------
        numbers : mapping of arrays, shape (point,)
            The job's numbers that differ.
        gpus : sequence, one per kind
            GPUs allowed.
        kind : array of int, shape (point,)
            Which plans and GPUs a point has: its place in `gpus` and `pairs`.
        pairs : sequence of Pairs, one per kind
            From `pairs`.
        """
        markets = [self.market(allowed) for allowed in gpus]
        world = World(
            all_shapes=self.question.shapes, sizes=self.sizes, size_of_shape=self.size_of_shape, markets=markets,
            pairs=pairs, kind=kind,
        )  # fmt: skip
        return self._first(world, numbers, self._estimates(world, numbers))

    def _estimates(self, world: World, numbers: Mapping[str, Floats]) -> Estimate:
        """The best plan of every shape of every point; each entry of the pass has the numbers of its point."""
        model, job = _of_a_language_model(self.question)

        def at(nodes: Nodes) -> dict[str, Any]:
            return {name: values[cast(PointNodes, nodes).point] for name, values in numbers.items()}

        if isinstance(job, ServingJob):
            return serving_on(world.space, self.question, model, lambda nodes: replace(job, **at(nodes)))[0]
        return training_on(world.space, self.question, model, lambda nodes: replace(job, **at(nodes)))[0]

    def _first(self, world: World, numbers: Mapping[str, Floats], found: Estimate) -> Answers:
        """Price what fits and take the best of every point; else the nearest to fitting."""
        scenario, offers, fit, quantities = self.question.scenario, self.question.market, found.fit, found.banded
        if not len(fit.shape):
            return _nothing(world.points, quantities)
        place, offer, point = fit.places(len(world.space.shapes))[world.offer_shape], world.offers, world.offer_point
        planned = place >= 0
        place = np.maximum(place, 0)
        rentable = np.flatnonzero(planned & (fit.verdict[place] < 2) & found.meets_targets[place])
        cost, hours = None, np.zeros((3, 0))
        if len(rentable):
            asked = self.question
            if isinstance(asked.job, TrainingJob):
                asked = replace(asked, job=replace(asked.job, train_tokens=numbers["train_tokens"][point[rentable]]))
            cost, _ = price(asked, found, place[rentable], offers.at(offer[rentable]))
            hours = cost.wall_hours
        typical = cost.total[TYPICAL] if cost is not None else np.zeros(0)
        within = np.ones(len(rentable), dtype=np.bool_)
        if scenario.deadline_hours is not None:
            within &= hours[TYPICAL] <= scenario.deadline_hours
        if scenario.budget_usd is not None:
            within &= typical <= scenario.budget_usd
        left = np.flatnonzero(within)
        time = quantities["tpot_s"][TYPICAL, place[rentable]] if self.serving else hours[TYPICAL]
        order = left[
            rank.order(
                fit=fit.verdict[place[rentable[left]]],
                cost_usd=typical[left],
                time=time[left],
                age_days=offers.numbers("age_days")[offer[rentable[left]]],
                preference=scenario.preference,
                point=point[rentable[left]],
            )
        ]
        chosen = first_of(point[rentable][order], world.points)
        place_in_cost = np.full(world.points, -1, dtype=np.intp)
        place_in_cost[chosen >= 0] = order[chosen[chosen >= 0]]
        row = np.full(world.points, -1, dtype=np.intp)
        row[place_in_cost >= 0] = rentable[place_in_cost[place_in_cost >= 0]]
        outcome = np.where(row >= 0, 0, 4)
        outcome[row >= 0] = fit.verdict[place[row[row >= 0]]]
        # Where nothing is left: the offer nearest to fitting, or one that fits and was dropped.
        missing = np.where(planned, fit.missing_bytes[place], np.inf)
        near = np.lexsort((offers.values("usd_per_hour")[offer], missing, point))
        near_of = first_of(point[near], world.points)
        lost = np.flatnonzero((row < 0) & (near_of >= 0))
        candidate = near[near_of[lost]]
        possible = planned[candidate]
        row[lost[possible]] = candidate[possible]
        outcome[lost[possible]] = np.where(fit.verdict[place[candidate[possible]]] < 2, 3, 2)
        known = row >= 0
        at = np.where(known, place[np.maximum(row, 0)], 0)
        total, million, wall = (np.full((3, world.points), np.nan) for _ in range(3))
        answered = place_in_cost >= 0
        if cost is not None:
            total[:, answered] = cost.total[:, place_in_cost[answered]]
            wall[:, answered] = hours[:, place_in_cost[answered]]
            if cost.usd_per_million_tokens is not None:
                million[:, answered] = cost.usd_per_million_tokens[:, place_in_cost[answered]]
        said = {name: np.where(answered, values[:, at], np.nan) for name, values in quantities.items()}
        return Answers(
            offer=np.where(known, offer[np.maximum(row, 0)], -1),
            verdict=outcome,
            plan=fit.plan.take(at),
            memory_bytes=np.where(known, flat(fit.memory.total)[:, at], np.nan),
            usable_bytes=np.where(known, fit.usable_bytes[at], np.nan),
            quantities=said | {"hours": wall},
            cost_usd=total,
            usd_per_million_tokens=million,
        )


def _nothing(points: int, quantities: Iterable[str]) -> Answers:
    """No machine has a legal plan for any of the points."""
    unknown = np.full((3, points), np.nan)
    return Answers(
        offer=np.full(points, -1),
        verdict=np.full(points, 4),
        plan=Plan(),
        memory_bytes=unknown,
        usable_bytes=unknown[TYPICAL],
        quantities=dict.fromkeys((*quantities, "hours"), unknown),
        cost_usd=unknown,
        usd_per_million_tokens=unknown,
    )


def _of_a_language_model(question: Question) -> tuple[Model, TrainingJob | ServingJob]:
    """Model and job of a question; others are answered one by one."""
    assert isinstance(question.model, Model)  # noqa: S101
    assert not isinstance(question.job, MediaJob)  # noqa: S101
    return question.model, question.job


def numbers_of(job: object) -> tuple[str, ...]:
    """Names of the job's numbers that may differ within a pass."""
    return TRAINING_NUMBERS if isinstance(job, TrainingJob) else SERVING_NUMBERS
