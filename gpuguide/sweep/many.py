"""
Many questions in one pass: points that differ in lengths, batches, tokens and GPUs become one long node axis.

Each point brings its own copy of the machine shapes it may use, and each entry of the pass knows its point; the
estimates then broadcast as they do for one question. Of offers on equal terms only the cheapest is priced.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.decide import market
from gpuguide.decide.columns import Columns
from gpuguide.decide.cost import CostBreakdown, run_cost, serving_cost
from gpuguide.decide.estimates import SIMPLER_IS_WORTH, asked_tokens_per_s, kinds_of_parallelism
from gpuguide.decide.fit import Fit, best_plans, flat, sizes_of
from gpuguide.decide.price import STORED_BYTES, checkpoint_bytes, result_bytes
from gpuguide.decide.search import Pairs, serving_pairs, training_pairs
from gpuguide.decide.storage import feed, needed_bytes_per_s
from gpuguide.estimate.derived import memory_with_doubt, time_doubt
from gpuguide.estimate.results import MemoryBreakdown
from gpuguide.estimate.serving import serving_speed
from gpuguide.estimate.serving_memory import kv_room_bytes, serving_fits_limit, serving_memory
from gpuguide.estimate.training import training_speed
from gpuguide.estimate.training_memory import training_memory
from gpuguide.estimate.weights import stored_weights
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob, TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.spec.scenario import Question
from gpuguide.sweep.world import Market, PointNodes, World, first_of
from gpuguide.units import TYPICAL, Number

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
        more = []
        if isinstance(question.job, ServingJob):
            shapes = question.shapes
            large = np.asarray(question.job.engine.is_large(shapes.memory_bytes, shapes.architecture), dtype=np.float64)
            more.append(np.broadcast_to(large, shapes.gpus.shape))
        self.sizes, self.size_of_shape = sizes_of(question.shapes, *more)
        if isinstance(question.job, TrainingJob):
            self.able = np.isfinite(question.shapes.flops[question.job.recipe.compute_precision])
        else:
            self.able = np.ones(len(question.shapes), dtype=np.bool_)

    # ---- what does not depend on a point's numbers -------------------------------------------------------------------

    def market(self, gpus: tuple[str, ...]) -> Market:
        """Offers that a renter who allows these GPUs accepts, the cheapest of those on equal terms."""
        if gpus not in self._markets:
            offers = self.question.offers
            keep = np.ones(len(offers), dtype=np.bool_)
            for mask in market.filters(offers, self.question.scenario.model_copy(update={"gpu": gpus})).values():
                keep &= mask
            keep &= self.able[offers["shape"].to_numpy()]
            places = np.flatnonzero(keep)
            order = np.lexsort(
                (offers["age_days"].to_numpy(np.float64)[places], offers["usd_per_hour"].to_numpy()[places])
            )
            places = places[order]
            terms = [name for name in offers.columns if name not in NOT_IN_THE_BILL]
            first = ~offers.iloc[places][terms].duplicated().to_numpy()
            places = np.sort(places[first])
            shapes, back = np.unique(offers["shape"].to_numpy()[places], return_inverse=True)
            self._markets[gpus] = Market(places, shapes.astype(np.intp), back.ravel().astype(np.intp))
        return self._markets[gpus]

    def pairs(self, key: Hashable, question: Question) -> Pairs:
        """Legal plans on every size for the numbers of one combination."""
        if key not in self._pairs:
            model, job, scenario = question.model, question.job, question.scenario
            if isinstance(job, TrainingJob) and isinstance(model, Model):
                self._pairs[key] = training_pairs(model, job, scenario, self.sizes)
            elif isinstance(job, ServingJob) and isinstance(model, Model):
                self._pairs[key] = serving_pairs(model, job, scenario, self.sizes)
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
        job = _jobs(self.question.job, numbers)
        fit, quantities, work_s, meets = self._estimates(world, job)
        return self._first(world, job, numbers, fit, quantities, work_s, meets)

    def _estimates(self, world: World, job: _Jobs) -> tuple[Fit, dict[str, Floats], Floats, NDArray[np.bool_]]:
        model, scenario, assumptions = self.question.model, self.question.scenario, self.question.assumptions
        assert isinstance(model, Model)  # noqa: S101  # only language models come here

        def training_bytes(plan: Plan, nodes: Nodes, assumed: Assumptions) -> MemoryBreakdown:
            asked = job.training(nodes)
            need = training_memory(model=model, job=asked, plan=plan, nodes=nodes, assumptions=assumed)
            return memory_with_doubt(need, model=model, assumptions=assumed)

        def step_s(plan: Plan, nodes: Nodes, assumed: Assumptions) -> Number:
            speed = training_speed(model=model, job=job.training(nodes), plan=plan, nodes=nodes, assumptions=assumed)
            return speed.step_s * SIMPLER_IS_WORTH ** kinds_of_parallelism(plan)

        def serving_bytes(plan: Plan, nodes: Nodes, assumed: Assumptions) -> MemoryBreakdown:
            asked = job.serving(nodes)
            need = serving_memory(model=model, job=asked, plan=plan, nodes=nodes, assumptions=assumed)
            return memory_with_doubt(need, model=model, assumptions=assumed)

        def served(plan: Plan, nodes: Nodes, assumed: Assumptions) -> Any:
            asked = job.serving(nodes)
            room = kv_room_bytes(model=model, job=asked, plan=plan, nodes=nodes, assumptions=assumed)
            return serving_speed(
                model=model, job=asked, plan=plan, nodes=nodes, assumptions=assumed, kv_room_bytes=room
            )

        def token_s(plan: Plan, nodes: Nodes, assumed: Assumptions) -> Number:
            speed, asked = served(plan, nodes, assumed), job.serving(nodes)
            late = (speed.tpot_s > (asked.max_tpot_s or np.inf)) | (speed.ttft_s > (asked.max_ttft_s or np.inf))
            late |= speed.tokens_per_s < asked_tokens_per_s(asked)
            seconds: Floats = np.where(late, 1e6 * (1 + speed.tpot_s), 1 / np.maximum(speed.tokens_per_s, 1e-9))
            return seconds

        usable = world.shapes.memory_bytes
        if self.serving:
            usable = np.asarray(
                serving_fits_limit(job=job.serving(world.shapes), nodes=world.shapes, assumptions=assumptions)
            )
        fit = best_plans(
            pairs=world.pairs,
            sizes=world.sizes,
            size_of_shape=world.size_of_shape,
            shapes=world.shapes,
            assumptions=assumptions,
            usable_bytes=np.broadcast_to(usable, world.shapes.memory_bytes.shape),
            headroom=0.0 if self.serving else scenario.headroom,
            able=np.ones(len(world.shapes), dtype=np.bool_),  # others have no offers here
            memory_of=serving_bytes if self.serving else training_bytes,
            seconds_of=token_s if self.serving else step_s,
        )
        doubt = time_doubt(model=model, assumptions=assumptions)
        if self.serving:
            speed = served(fit.plan, fit.nodes, assumptions)
            asked = job.serving(fit.nodes)
            rates = flat(speed.tokens_per_s) / doubt
            shape = rates.shape
            found = {name: _wide(getattr(speed, name), shape) * doubt for name in ("ttft_s", "tpot_s")}
            found["tokens_per_s"] = rates
            meets = found["tpot_s"][1] <= (asked.max_tpot_s or np.inf)
            meets &= found["ttft_s"][1] <= (asked.max_ttft_s or np.inf)
            meets &= found["tokens_per_s"][1] >= asked_tokens_per_s(asked)
            return fit, found, np.zeros(shape), meets
        trained = training_speed(
            model=model, job=job.training(fit.nodes), plan=fit.plan, nodes=fit.nodes, assumptions=assumptions
        )
        rates = flat(trained.tokens_per_s) / doubt
        found = {
            "tokens_per_s": rates, "step_s": flat(trained.step_s) * doubt,
            "mfu": _wide(trained.mfu, rates.shape) / doubt,
        }  # fmt: skip
        return fit, found, job.training(fit.nodes).train_tokens / rates, np.ones(rates.shape[1], dtype=np.bool_)

    def _first(
        self,
        world: World,
        job: _Jobs,
        numbers: Mapping[str, Floats],
        fit: Fit,
        quantities: Mapping[str, Floats],
        work_s: Floats,
        meets: NDArray[np.bool_],
    ) -> Answers:
        """Price what fits and take the best of every point; else the nearest to fitting."""
        scenario, offers = self.question.scenario, self.question.offers
        place_of_shape = np.full(len(world.shapes), -1, dtype=np.intp)
        place_of_shape[fit.shape] = np.arange(len(fit.shape))
        place, offer, point = place_of_shape[world.offer_shape], world.offers, world.offer_point
        planned = place >= 0
        place = np.maximum(place, 0)
        rentable = np.flatnonzero(planned & (fit.verdict[place] < 2) & meets[place]) if len(fit.shape) else place[:0]
        cost, hours = self._price(
            job, numbers, fit, quantities, work_s, place[rentable], offer[rentable], point[rentable]
        )
        typical = cost.total[TYPICAL] if cost is not None else np.zeros(0)
        within = np.ones(len(rentable), dtype=np.bool_)
        if scenario.deadline_hours is not None:
            within &= hours[TYPICAL] <= scenario.deadline_hours
        if scenario.budget_usd is not None:
            within &= typical <= scenario.budget_usd
        left = np.flatnonzero(within)
        time = quantities["tpot_s"][TYPICAL, place[rentable]] if self.serving else hours[TYPICAL]
        with np.errstate(divide="ignore"):
            key = {
                "cheapest": typical, "fastest": time, "balanced": np.log(typical) + np.log(time)
            }[scenario.preference]  # fmt: skip
        second = typical if scenario.preference == "fastest" else time
        age = offers["age_days"].to_numpy(np.float64)[offer[rentable]]
        tight = fit.verdict[place[rentable]]
        order = left[
            np.lexsort(
                (
                    age[left], second[left], np.nan_to_num(key[left], nan=np.inf), tight[left],
                    point[rentable][left],
                )
            )
        ]  # fmt: skip
        chosen, place_in_cost = (
            first_of(point[rentable][order], world.points),
            np.full(world.points, -1, dtype=np.intp),
        )
        place_in_cost[chosen >= 0] = order[chosen[chosen >= 0]]
        row = np.full(world.points, -1, dtype=np.intp)
        row[place_in_cost >= 0] = rentable[place_in_cost[place_in_cost >= 0]]
        outcome = np.where(row >= 0, 0, 4)
        outcome[row >= 0] = fit.verdict[place[row[row >= 0]]]
        # Where nothing is left: the offer nearest to fitting, or one that fits and was dropped.
        missing = np.where(planned, fit.missing_bytes[place], np.inf) if len(fit.shape) else np.full(len(place), np.inf)
        near = np.lexsort((offers["usd_per_hour"].to_numpy()[offer], missing, point))
        near_of = first_of(point[near], world.points)
        lost = np.flatnonzero((row < 0) & (near_of >= 0))
        candidate = near[near_of[lost]]
        possible = planned[candidate]
        row[lost[possible]] = candidate[possible]
        outcome[lost[possible]] = np.where(fit.verdict[place[candidate[possible]]] < 2, 3, 2)
        known = row >= 0
        at = np.where(known, place[np.maximum(row, 0)], 0) if len(place) else np.zeros(world.points, dtype=np.intp)
        total = np.full((3, world.points), np.nan)
        million = np.full((3, world.points), np.nan)
        wall = np.full((3, world.points), np.nan)
        answered = place_in_cost >= 0
        if cost is not None:
            total[:, answered] = cost.total[:, place_in_cost[answered]]
            wall[:, answered] = hours[:, place_in_cost[answered]]
            if cost.usd_per_million_tokens is not None:
                million[:, answered] = cost.usd_per_million_tokens[:, place_in_cost[answered]]
        empty = not len(fit.shape)
        memory = np.full((3, world.points), np.nan) if empty else np.where(known, flat(fit.memory.total)[:, at], np.nan)
        usable = np.full(world.points, np.nan) if empty else np.where(known, fit.usable_bytes[at], np.nan)
        said = {
            name: np.where(answered, values[:, at], np.nan) if not empty else np.full((3, world.points), np.nan)
            for name, values in quantities.items()
        }
        return Answers(
            offer=np.where(known, world.offers[np.maximum(row, 0)], -1) if len(world.offers) else row,
            verdict=outcome,
            plan=fit.plan.take(at) if not empty else Plan(),
            memory_bytes=memory,
            usable_bytes=usable,
            quantities=said | {"hours": wall},
            cost_usd=total,
            usd_per_million_tokens=million,
        )

    def _price(
        self,
        job: _Jobs,
        numbers: Mapping[str, Floats],
        fit: Fit,
        quantities: Mapping[str, Floats],
        work_s: Floats,
        place: Index,
        offer: Index,
        point: Index,
    ) -> tuple[CostBreakdown | None, Floats]:
        """What each rentable offer costs, as `decide.price` would say for its point."""
        if not len(place):
            return None, np.zeros((3, 0))
        question = self.question
        model, scenario, assumptions = question.model, question.scenario, question.assumptions
        assert isinstance(model, Model)  # noqa: S101  # only language models come here
        columns = Columns(question.offers, offer)
        if isinstance(question.job, ServingJob):
            weights = float(np.asarray(stored_weights(model=model, weight_format=question.job.weight_format).total))
            month = serving_cost(
                offers=columns, scenario=scenario, weight_bytes=weights, assumptions=assumptions,
                tokens_per_s=quantities["tokens_per_s"][:, place],
            )  # fmt: skip
            return month, month.wall_hours
        assert isinstance(question.job, TrainingJob)  # noqa: S101
        tokens = numbers["train_tokens"][point]
        width = assumptions["storage_bytes_per_token"][:, :, 0]
        reads = feed(
            needed_bytes_per_s=needed_bytes_per_s(per_s=quantities["tokens_per_s"][:, place], bytes_each=width),
            nodes=columns.numbers("nodes"), source="volume", assumptions=assumptions,
        )  # fmt: skip
        run = run_cost(
            work_s=work_s[:, place] * reads.slow_down,
            offers=columns,
            scenario=scenario,
            checkpoint_bytes=checkpoint_bytes(model, question.job),
            weight_bytes=float(model.params) * STORED_BYTES if question.job.method != "pretrain" else 0.0,
            data_bytes=tokens * float(width[1, 0]),  # type: ignore[arg-type]
            needs_checkpoints=True,
            assumptions=assumptions,
            tokens=tokens,  # type: ignore[arg-type]
            result_bytes=result_bytes(model, question.job),
        )
        return run, run.wall_hours


class _Jobs:
    """The job of each entry of a pass: numbers of its point, everything else as in the question."""

    def __init__(self, job: object, numbers: Mapping[str, Floats]) -> None:
        self._job, self._numbers = job, numbers

    def training(self, nodes: Nodes) -> TrainingJob:
        """As (entry,) arrays."""
        assert isinstance(self._job, TrainingJob)  # noqa: S101
        return replace(self._job, **self._at(nodes))

    def serving(self, nodes: Nodes) -> ServingJob:
        """As (entry,) arrays."""
        assert isinstance(self._job, ServingJob)  # noqa: S101
        return replace(self._job, **self._at(nodes))

    def _at(self, nodes: Nodes) -> dict[str, Any]:
        assert isinstance(nodes, PointNodes)  # noqa: S101  # every entry of a pass knows its point
        return {name: values[nodes.point] for name, values in self._numbers.items()}


def _jobs(job: object, numbers: Mapping[str, Floats]) -> _Jobs:
    return _Jobs(job, numbers)


def _wide(value: Number, shape: tuple[int, ...]) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    return np.broadcast_to(array.reshape(array.shape[0], -1) if array.ndim > 1 else array, shape)


def numbers_of(job: object) -> tuple[str, ...]:
    """Names of the job's numbers that may differ within a pass."""
    return TRAINING_NUMBERS if isinstance(job, TrainingJob) else SERVING_NUMBERS
