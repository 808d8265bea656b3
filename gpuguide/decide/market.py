"""
From the market to a choice: filters in the order in which a renter should ask, the front of time and cost, scarcity.

First what the job needs (memory, bandwidth, links), only then price, billing and age.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns
from gpuguide.errors import UnknownName, nearest
from gpuguide.spec.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

STEPS = (
    "gpu", "precision", "memory", "bandwidth", "topology",
    "provider", "region", "kind", "pricing", "age", "deadline", "budget",
)  # fmt: skip
"""In this order: what the job needs, then what the renter accepts."""

FRESH_DAYS, OK_DAYS, STALE_DAYS = 7, 30, 90


@dataclass(frozen=True, kw_only=True, slots=True)
class Funnel:
    """How many offers remain after each step, and at which step each of the others dropped out."""

    remaining: tuple[tuple[str, int], ...]  # starts with ('market', all)
    keep: Bools  # (offer,)
    dropped_at: NDArray[np.intp]  # (offer,) place in `remaining`; 0 = not dropped

    def reason(self, offer: int) -> str | None:
        """Name of the step that removed an offer, None if it remained."""
        place = int(self.dropped_at[offer])
        return self.remaining[place][0] if place else None


def narrow(offers: int, steps: Sequence[tuple[str, Bools]]) -> Funnel:
    """
    Apply filters one after the other.

    Parameters
    ----------
    offers : int
        Number of offers.
    steps : sequence of (name, array of bool)
        What each step keeps, whatever the others say.

    Returns
    -------
    Funnel
    """
    keep = np.ones(offers, dtype=np.bool_)
    dropped = np.zeros(offers, dtype=np.intp)
    remaining = [("market", offers)]
    for place, (name, kept) in enumerate(steps, start=1):
        dropped[keep & ~kept] = place
        keep = keep & kept
        remaining.append((name, int(keep.sum())))
    return Funnel(remaining=tuple(remaining), keep=keep, dropped_at=dropped)


def outcomes(offers: Columns, found: Funnel) -> pd.DataFrame:
    """
    What became of every GPU at every provider.

    Parameters
    ----------
    offers : Columns
        Of the market that was narrowed.
    found : Funnel

    Returns
    -------
    DataFrame
        One row per provider and GPU: `provider, gpu, offers, left` and `step`, where the offer that came furthest
        dropped out; '' where offers are left.
    """
    import pandas as pd

    provider, providers = offers.codes("provider")
    gpu, gpus = offers.codes("gpu")
    pair, back = np.unique(provider * len(gpus) + gpu, return_inverse=True)
    furthest = np.zeros(len(pair), dtype=np.intp)
    np.maximum.at(furthest, back, found.dropped_at)
    left = np.bincount(back, weights=found.keep, minlength=len(pair)).astype(np.intp)
    steps = np.array([name for name, _ in found.remaining], dtype=object)
    return pd.DataFrame(
        {
            "provider": np.asarray(providers, dtype=object)[pair // max(len(gpus), 1)],
            "gpu": np.asarray(gpus, dtype=object)[pair % max(len(gpus), 1)],
            "offers": np.bincount(back, minlength=len(pair)),
            "left": left,
            "step": np.where(left > 0, "", steps[furthest]),
        }
    )


def funnel(
    offers: pd.DataFrame | Columns,
    scenario: Scenario,
    *,
    supported: Bools | None = None,
    fits: Bools | None = None,
    fast_enough: Bools | None = None,
    linked: Bools | None = None,
    hours: Floats | None = None,
    total_usd: Floats | None = None,
    known_gpus: bool = False,
) -> Funnel:
    """
    The decision funnel over all offers.

    Parameters
    ----------
    offers : Columns or DataFrame
        Of `catalog.offers.clusters`.
    scenario : Scenario
        What the renter accepts.
    supported, fits, fast_enough, linked : array of bool, optional
        Whether the GPU has the job's precision, memory suffices with headroom, latency or throughput targets are met,
        the links carry the plan; steps left out keep everything.
    hours, total_usd : array, optional
        Typical time and cost of the run, for deadline and budget. [h], [USD]
    known_gpus : bool
        The scenario's GPUs were looked up already: one that nobody offers just now leaves no offer, and is no mistake.

    Returns
    -------
    Funnel
        Steps of `STEPS` that apply.
    """
    own = filters(offers, scenario, known_gpus=known_gpus)
    count = len(offers)
    masks: dict[str, Bools] = {"gpu": own.pop("gpu")}
    asked = {"precision": supported, "memory": fits, "bandwidth": fast_enough}
    masks.update({name: mask for name, mask in asked.items() if mask is not None})
    topology = own.pop("topology")
    masks["topology"] = topology if linked is None else topology & linked
    masks.update(own)
    if scenario.deadline_hours is not None and hours is not None:
        masks["deadline"] = np.nan_to_num(hours, nan=np.inf) <= scenario.deadline_hours
    if scenario.budget_usd is not None and total_usd is not None:
        masks["budget"] = np.nan_to_num(total_usd, nan=np.inf) <= scenario.budget_usd
    return narrow(count, [(name, masks[name]) for name in STEPS if name in masks])


def filters(offers: pd.DataFrame | Columns, scenario: Scenario, *, known_gpus: bool = False) -> dict[str, Bools]:
    """
    What a scenario accepts of each offer, by step; needs no estimate.

    Raises
    ------
    UnknownName
        If the scenario names a GPU, provider or country that no offer has, or an offer kind that does not exist.
    """
    offers = Columns.of(offers)
    masks: dict[str, Bools] = {}
    wanted = _among(offers, "gpu", scenario.gpu, None if known_gpus else "GPU")
    if scenario.gpu:
        wanted = wanted | _among(offers, "computed_as", scenario.gpu, None)
    masks["gpu"] = wanted & ~offers.equal("computed_as", "")
    nodes = offers.numbers("nodes") if "nodes" in offers else np.ones(len(offers))
    topology = np.ones(len(offers), dtype=np.bool_)
    if scenario.gpus is not None:
        topology &= offers.numbers("gpus_per_node") * nodes == scenario.gpus
    if scenario.nodes is not None:
        topology &= nodes == scenario.nodes
    masks["topology"] = topology
    masks["provider"] = _among(offers, "provider", scenario.providers, "provider")
    masks["region"] = _in_region(offers, scenario.regions) & _in_country(offers, scenario.countries)
    masks["kind"] = _among(offers, "kind", scenario.offer_kinds, "kind of offer")
    paid = scenario.pricing
    masks["pricing"] = np.ones(len(offers), dtype=np.bool_) if paid == "any" else offers.equal("pricing", paid)
    # A price that is no number, or is not above zero, never reaches a ranking.
    usd = offers.numbers("usd_per_hour")
    masks["pricing"] = masks["pricing"] & np.isfinite(usd) & (usd > 0)
    if scenario.max_price_age_days is not None:
        masks["age"] = np.nan_to_num(offers.numbers("age_days"), nan=np.inf) <= scenario.max_price_age_days
    return masks


def pareto(time: Floats, cost: Floats) -> Bools:
    """
    Which offers no other beats in both time and cost.

    Parameters
    ----------
    time, cost : array, shape (offer,)
        Lower is better; what is not finite is never on the front.

    Returns
    -------
    array of bool
        Equal points are on the front together.
    """
    time, cost = np.asarray(time, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    front = np.zeros(time.shape, dtype=np.bool_)
    finite = np.flatnonzero(np.isfinite(time) & np.isfinite(cost))
    if not len(finite):
        return front
    order = finite[np.lexsort((cost[finite], time[finite]))]
    sorted_time, sorted_cost = time[order], cost[order]
    first = np.concatenate(([True], sorted_time[1:] != sorted_time[:-1]))
    group = np.cumsum(first) - 1
    cheapest = sorted_cost[first]  # of each distinct time, since costs are sorted within it
    before = np.concatenate(([np.inf], np.minimum.accumulate(cheapest)[:-1]))
    front[order] = (sorted_cost == cheapest[group]) & (cheapest < before)[group]
    return front


def dearer_but_cheaper(*, usd_per_hour: Floats, total_usd: Floats, among: Bools) -> Bools:
    """
    Offers that cost more per hour than the cheapest machine, and less for the run.

    Parameters
    ----------
    usd_per_hour, total_usd : array, shape (offer,)
        [USD/h], [USD]
    among : array of bool
        Offers to compare: what fits and is accepted.

    Returns
    -------
    array of bool
    """
    flags = np.zeros(len(usd_per_hour), dtype=np.bool_)
    places = np.flatnonzero(among & np.isfinite(usd_per_hour) & np.isfinite(total_usd))
    if not len(places):
        return flags
    # Of several at the cheapest hourly price, the one that makes the run cheapest is the fair rival.
    rival = places[np.lexsort((total_usd[places], usd_per_hour[places]))[0]]
    flags[places] = (usd_per_hour[places] > usd_per_hour[rival]) & (total_usd[places] < total_usd[rival])
    return flags


def age_badge(age_days: Floats) -> NDArray[np.object_]:
    """'fresh' below 7 days, 'ok' below 30, 'stale' below 90, else 'old'; '' where the date is not known."""
    age = np.asarray(age_days, dtype=np.float64)
    words = np.select(
        [age < FRESH_DAYS, age < OK_DAYS, age < STALE_DAYS, age >= STALE_DAYS], ["fresh", "ok", "stale", "old"], ""
    )
    return words.astype(object)


def _among(offers: Columns, column: str, wanted: Sequence[str], kind: str | None) -> Bools:
    """Rows whose value is wanted, case ignored; all when nothing is. Unknown names raise where `kind` is given."""
    if not wanted:
        return np.ones(len(offers), dtype=np.bool_)
    picked = np.zeros(len(offers), dtype=np.bool_)
    for name in wanted:
        same = offers.equal(column, name)
        picked |= same if same.any() else _other_spelling(offers, column, name, kind)
    return picked


def _other_spelling(offers: Columns, column: str, name: str, kind: str | None) -> Bools:
    """Rows whose value is the name in other case."""
    number, known = offers.codes(column)
    for place, value in enumerate(known):
        if str(value).casefold() == name.casefold():
            return np.asarray(number == place)
    if kind is not None and name.casefold() not in _also_known(offers, column):
        raise UnknownName(kind, name, nearest(name, [str(value) for value in known]), len(known))
    return np.zeros(len(offers), dtype=np.bool_)


ANYWHERE = "*"
EU = {
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IT", "LT", "LU", "LV",
    "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
}  # fmt: skip
"""Members of the European Union on 2026-11-30; source: european-union.europa.eu, "EU countries"."""
KINDS = ("on_demand", "marketplace", "community", "serverless")


def _also_known(offers: Columns, column: str) -> set[str]:
    """Names that exist although no offer has them just now."""
    if column == "kind":
        return set(KINDS)
    if column == "gpu":
        return {str(name).casefold() for name in offers.codes("computed_as")[1]}
    return set()


def _in_region(offers: Columns, wanted: Sequence[str]) -> Bools:
    """Rows whose region contains one of the words; a price that holds everywhere is in every region."""
    if not wanted:
        return np.ones(len(offers), dtype=np.bool_)
    number, known = offers.codes("region")
    words = [word.casefold() for word in wanted]
    chosen = np.array([str(k) == "*" or any(w in str(k).casefold() for w in words) for k in known] + [False])
    picked: Bools = chosen[number]
    return picked


def countries(offers: pd.DataFrame | Columns) -> list[str]:
    """Two letters of every country that an offer names."""
    return sorted({str(zone).partition("-")[0] for zone in Columns.of(offers).codes("grid_zone")[1]} - {ANYWHERE})


def _in_country(offers: Columns, wanted: Sequence[str]) -> Bools:
    """Rows in one of the countries; a price that holds everywhere is in every country."""
    if not wanted:
        return np.ones(len(offers), dtype=np.bool_)
    known = countries(offers)
    allowed = {ANYWHERE}
    for name in wanted:
        folded = name.upper()
        if folded not in (*known, "EU"):
            raise UnknownName("country", name, nearest(name, known), len(known))
        allowed |= EU if folded == "EU" else {folded}
    number, zones = offers.codes("grid_zone")
    chosen: Bools = np.array([str(zone).partition("-")[0] in allowed for zone in zones] + [False])
    return chosen[number]
