"""
The market: every machine that can be rented and every way to pay for it, one row each.

List prices per GPU become machines of 1, 2, 4 and 8 GPUs, prices per machine stay as they are; both are joined to what
is known of the provider: billing, storage, transfer, notice, network between machines, electricity.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpuguide.catalog import checks, links
from gpuguide.catalog.live import live_columns, overlaid
from gpuguide.catalog.package import read_columns
from gpuguide.columns import Columns, words
from gpuguide.spec.hardware import Gpu
from gpuguide.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.intp]

COUNTS = (1, 2, 4, 8)
"""Sizes in which GPUs are sold singly and together."""
WHOLE, WHOLE_OF_RACK = 8, 4
"""GPUs of a whole machine, and of one tray of a rack whose GPUs are all linked."""
FACTS = (
    "billing_granularity_s", "minimum_charge_s", "interruption_notice_s", "volume_usd_per_gb_month",
    "egress_usd_per_gb", "egress_free_gb_month",
)  # fmt: skip
TIERS = 3
ANYWHERE = "*"


def market(
    *, folder: Path | None = None, gpus: Mapping[str, Gpu], today: date, live: pd.DataFrame | None = None
) -> Columns:
    """
    Everything that can be rented as one machine.

    Parameters
    ----------
    folder : Path, optional
        Tables; the shipped ones when left out.
    gpus : mapping
        GPUs by name.
    today : date
        Day from which ages are counted.
    live : DataFrame, optional
        Newer rows of some providers, columns of `offers.csv`; what `gpuguide refresh` has left on this computer when
        left out, an empty table for none.

    Returns
    -------
    Columns
        `provider, instance_type, region, gpu, computed_as, gpus_per_node, vcpus, ram_gb, usd_per_hour` (whole machine)
        `, pricing` ('on_demand', 'spot', 'reserved') `, kind, price_basis, months, commitment_usd, as_of, age_days,
        source, note`, the provider's facts, `fabric, fabric_gbps_per_node, clusters` (may be joined by a fast network)
        and `grid_zone, grid_<band>_g_per_kwh`. `computed_as` is empty where no GPU can stand in for the offer's.
    """
    shipped = read_columns("offers", folder)
    unstated = read_columns("unstated_gpus", folder)
    stand_in: dict[str, str] = dict(zip(unstated.values("name"), unstated.values("stand_in"), strict=True))
    rows = _with_live(shipped, live, gpus, stand_in)
    providers = read_columns("providers", folder)
    table = _machines(rows, providers, read_columns("gpus", folder))
    reserved = _reserved(Columns(table), read_columns("reserved", folder))
    table = {name: np.concatenate([values, reserved[name]]) for name, values in table.items()}
    card = _computed_as(table["gpu"].tolist(), gpus, stand_in)
    table["computed_as"] = words(card)
    table["age_days"] = _age_days(table["as_of"].tolist(), today)
    of_provider = _places(providers.values("provider").tolist(), table["provider"].tolist())
    for fact in FACTS:
        table[fact] = _looked_up(providers.values(fact), of_provider)
    _add_tiers(table, read_columns("egress_tiers", folder))
    _add_fabric(table, card, of_provider, providers, read_columns("fabrics", folder), gpus)
    _add_grid(table, read_columns("grid_regions", folder), read_columns("grid_intensity", folder))
    return Columns(table)


def clusters(offers: pd.DataFrame | Columns, nodes: Sequence[int], *, everything: bool | None = None) -> Columns:
    """
    The market as machines and clusters of equal machines.

    Parameters
    ----------
    offers : Columns or DataFrame
        From `market`.
    nodes : sequence of int
        Numbers of machines.
    everything : bool, optional
        Also join machines without a fast network or with fewer than 8 GPUs; when left out, only where one number of
        machines is asked for.

    Returns
    -------
    Columns
        Rows with a known GPU; added columns `nodes`, `gpus` (all together), `node_usd_per_hour`; `usd_per_hour` and
        `commitment_usd` are of all nodes.
    """
    offers = Columns.of(offers)
    join_all = len(set(nodes)) == 1 if everything is None else everything
    known = np.flatnonzero(offers.values("computed_as") != "")
    joined = known if join_all else known[offers.values("clusters")[known]]
    places = [known if count == 1 else joined for count in nodes]
    counts = np.repeat(np.asarray(nodes, dtype=np.int64), [len(place) for place in places])
    rows = offers.at(np.concatenate(places) if places else np.array([], dtype=np.intp))
    each = rows.values("usd_per_hour")
    return rows.but(
        usd_per_hour=each * counts,
        commitment_usd=rows.values("commitment_usd") * counts,
        nodes=counts,
        gpus=rows.values("gpus_per_node") * counts,
        node_usd_per_hour=each,
    )


def _with_live(
    shipped: Columns, live: pd.DataFrame | Columns | None, gpus: Mapping[str, Gpu], stand_in: Mapping[str, str]
) -> Columns:
    """Shipped rows with newer ones over them; the newer are checked again, since anybody can edit a cache."""
    newer = live_columns() if live is None else Columns.of(live)
    if not len(newer):
        return shipped
    good = checks.passed(
        newer,
        bounds=checks.price_bounds(shipped),
        memory_gb={name: gpu.memory_gb for name, gpu in gpus.items()},
        names=frozenset(stand_in),
    )
    return overlaid(shipped, good)


def _machines(rows: Columns, providers: Columns, cards: Columns) -> dict[str, NDArray[Any]]:
    """One row per machine and price: list prices per GPU in several counts, spot and on demand apart."""
    count = rows.numbers("gpu_count")
    single = rows.equal("price_basis", "per_gpu") & (count == 1)
    of_provider = _places(providers.values("provider").tolist(), rows.values("provider").tolist())
    most = np.fmin(
        np.nan_to_num(_found(_most_per_machine(cards), rows.values("gpu").tolist(), np.nan), nan=max(COUNTS)),
        np.nan_to_num(_looked_up(providers.values("most_gpus_per_machine"), of_provider), nan=max(COUNTS)),
    )
    place, factor = [np.flatnonzero(~single)], [np.ones(int((~single).sum()))]
    for times in COUNTS:
        at = np.flatnonzero(single & (times <= most))
        place.append(at)
        factor.append(np.full(len(at), float(times)))
    at, times_ = np.concatenate(place), np.concatenate(factor)
    list_price = checks.usable(rows.numbers("price_usd_per_hour"))[at] * times_
    spot = checks.usable(rows.numbers("spot_usd_per_hour"))[at] * times_
    spot = np.where(spot > list_price * (1.0 + checks.ROUNDING), np.nan, spot)
    pieces = [
        (np.flatnonzero(np.isfinite(price)), price, word) for price, word in ((list_price, "on_demand"), (spot, "spot"))
    ]
    index = np.concatenate([keep for keep, _, _ in pieces])
    base, many = at[index], times_[index]
    sold = rows.at(base)
    columns = {name: sold.values(name) for name in ("provider", "instance_type", "region", "gpu")}
    columns["instance_type"] = _names(columns["instance_type"], many, single[base])
    columns["region"] = np.where(columns["region"] == "", ANYWHERE, columns["region"])
    columns["gpus_per_node"] = (count[base] * many).astype(np.int64)
    columns["vcpus"] = sold.numbers("vcpus") * many
    columns["ram_gb"] = sold.numbers("ram_gb") * many
    columns["usd_per_hour"] = np.concatenate([price[keep] for keep, price, _ in pieces])
    columns["pricing"] = np.repeat(words([word for _, _, word in pieces]), [len(keep) for keep, _, _ in pieces])
    columns |= {name: sold.values(name) for name in ("kind", "price_basis", "as_of", "source", "note")}
    columns["months"] = np.full(len(index), np.nan)
    columns["commitment_usd"] = np.zeros(len(index))
    whole = (count[base] >= 1) & (count[base] % 1 == 0)
    kept = whole & ~_listed_as_machine(Columns(columns), single[base])
    return {name: values[kept] for name, values in columns.items()}


def _most_per_machine(cards: Columns) -> dict[str, float]:
    """Most GPUs in one machine by GPU: the last number of '1-8', the first of '4 (72 per rack)'."""
    last = (text.partition(" ")[0].rpartition("-")[2] for text in cards.values("typical_gpus_per_node"))
    most = (float(text) if text.isdecimal() else np.nan for text in last)
    return dict(zip(cards.values("gpu"), most, strict=True))


def _names(instance: NDArray[np.object_], many: Floats, single: Bools) -> NDArray[np.object_]:
    """'1x-h100-sxm' in four becomes '4x-h100-sxm', another name gets ' x4'."""
    names = instance.copy()
    for place in np.flatnonzero(single & (many > 1)):
        name, times = str(instance[place]), int(many[place])
        names[place] = f"{times}x-{name[3:]}" if name.startswith("1x-") else f"{name} x{times}"
    return names


def _listed_as_machine(table: Columns, single: Bools) -> Bools:
    """Sizes made from a price per GPU that the provider also lists as a machine, no older than that price."""
    keys = ["provider", "gpu", "gpus_per_node", "pricing", "kind"]
    rows = _joined(table, keys)
    newest: dict[tuple[object, ...], str] = {}
    dates = table.values("as_of").tolist()
    for key, date_, made in zip(rows, dates, single.tolist(), strict=True):
        if not made and date_ > newest.get(key, ""):
            newest[key] = date_
    own = np.array([newest.get(key, "") for key in rows], dtype=object)
    listed: Bools = single & (own >= np.array(dates, dtype=object))
    return listed


def _reserved(table: Columns, reserved: Columns) -> dict[str, NDArray[Any]]:
    """Rows of the market at prices under a commitment."""
    on_demand, per_gpu = table.equal("pricing", "on_demand"), table.equal("price_basis", "per_gpu")
    count = table.numbers("gpus_per_node")
    places, sources, prices = [np.array([], dtype=np.intp)], [np.array([], dtype=np.intp)], [np.array([])]
    for place, row in enumerate(reserved.records()):
        match = on_demand & table.equal("provider", row["provider"]) & table.equal("gpu", row["gpu"])
        match &= per_gpu == (row["price_basis"] == "per_gpu")
        for name in ("instance_type", "region"):
            if row[name] not in ("", ANYWHERE):
                match &= table.equal(name, row[name])
        found = np.flatnonzero(match)
        times = np.ones(len(found))
        if row["price_basis"] == "per_gpu":  # one row a size, whatever the machine is called
            times, first = np.unique(count[found], return_index=True)
            found = found[first]
        places.append(found)
        sources.append(np.full(len(found), place))
        prices.append(float(row["usd_per_hour"]) * times)
    stated, usd = reserved.at(np.concatenate(sources)), np.concatenate(prices)
    rows = table.at(np.concatenate(places)).but(
        **{name: stated.values(name) for name in ("months", "source", "as_of", "note")},
        pricing=words(["reserved"] * len(usd)),
        usd_per_hour=usd,
        commitment_usd=np.nan_to_num(usd * stated.numbers("months") * HOURS_PER_MONTH),
    )
    return {name: rows.values(name) for name in table.names}


def _computed_as(names: list[str], gpus: Mapping[str, Gpu], stand_in: Mapping[str, str]) -> list[str]:
    """The GPU to compute with: the offer's own, else the slower card that may stand for it, else ''."""
    cards = {name: name if name in gpus else stand_in.get(name, "") for name in set(names)}
    return [cards[name] if cards[name] in gpus else "" for name in names]


def _age_days(as_of: list[str], today: date) -> Floats:
    days = {text: (today - date.fromisoformat(text)).days if text else np.nan for text in set(as_of)}
    ages: Floats = np.maximum(_found(days, as_of, np.nan), 0.0)
    return ages


def _add_tiers(table: dict[str, NDArray[Any]], tiers: Columns) -> None:
    steps: dict[str, list[tuple[float, float]]] = {}
    for row in tiers.records():
        steps.setdefault(row["provider"], []).append((row["from_gb"], row["egress_usd_per_gb"]))
    known = list(steps)
    at = _places(known, table["provider"].tolist())
    for tier in range(TIERS):
        found = [sorted(steps[name])[tier] if tier < len(steps[name]) else (np.nan, np.nan) for name in known]
        values = np.array(found, dtype=np.float64).reshape(-1, 2)
        for place, column in enumerate((f"egress_from_gb_{tier + 1}", f"egress_usd_per_gb_{tier + 1}")):
            table[column] = _looked_up(values[:, place], at)


def _add_fabric(
    table: dict[str, NDArray[Any]],
    card: list[str],
    of_provider: Index,
    providers: Columns,
    fabrics: Columns,
    gpus: Mapping[str, Gpu],
) -> None:
    """Network between machines: of the instance, else of the provider's GPU, else of the provider's best machines."""
    fast = _found({name: links.fast_link(gpu) for name, gpu in gpus.items()}, card, 0.0) > 0
    rack = _found({name: "rack" in gpu.link for name, gpu in gpus.items()}, card, 0.0) > 0
    count = table["gpus_per_node"]
    whole = fast & ((count >= WHOLE) | (rack & (count >= WHOLE_OF_RACK)))
    name = words([""] * len(card))
    gbps = np.full(len(card), np.nan)
    decided = np.zeros(len(card), dtype=np.bool_)
    of_machine = fabrics.values("instance_type") != ""
    for key, stated in (("instance_type", of_machine), ("gpu", ~of_machine)):
        rows = fabrics.at(np.flatnonzero(stated))
        place = _places(_joined(rows, ["provider", key]), _joined(Columns(table), ["provider", key]))
        use = (place >= 0) & whole & ~decided
        name[use] = rows.values("fabric")[place[use]]
        gbps[use] = rows.numbers("fabric_gbps_per_node")[place[use]]
        decided |= use
    general = np.where(of_provider >= 0, providers.values("fabric")[of_provider], "")
    rest = whole & ~decided & (general != "")
    name[rest] = general[rest]
    gbps[rest] = _looked_up(providers.values("fabric_gbps_per_node"), of_provider)[rest]
    table["fabric"], table["fabric_gbps_per_node"] = name, gbps
    table["clusters"] = (name != "") & (_found({n: g.tier == "datacenter" for n, g in gpus.items()}, card, 0.0) > 0)


def _add_grid(table: dict[str, NDArray[Any]], regions: Columns, intensity: Columns) -> None:
    keys = ["provider", "region"]
    place = _places(_joined(regions, keys), _joined(Columns(table), keys))
    zone = np.where(place >= 0, regions.values("zone")[place], ANYWHERE)
    table["grid_zone"] = zone
    at = _places(intensity.values("zone").tolist(), zone.tolist())
    for band in ("low", "typical", "high"):
        table[f"grid_{band}_g_per_kwh"] = _looked_up(intensity.values(f"{band}_g_per_kwh"), at)


def _joined(table: Columns, keys: Sequence[str]) -> list[tuple[object, ...]]:
    """Several columns as one key a row."""
    return list(zip(*(table.values(key).tolist() for key in keys), strict=True))


def _places(known: Sequence[Hashable], names: Sequence[Hashable]) -> Index:
    """Row of each name among the known ones, -1 where it is not."""
    row_of = {name: row for row, name in enumerate(known)}
    return np.array([row_of.get(name, -1) for name in names], dtype=np.intp)


def _found(values: Mapping[str, float], names: Iterable[str], otherwise: float) -> Floats:
    """The number of each name."""
    return np.array([values.get(name, otherwise) for name in names], dtype=np.float64)


def _looked_up(column: NDArray[Any], places: Index) -> Floats:
    """Numbers of a column at the given rows, nan at -1."""
    return np.append(np.asarray(column, dtype=np.float64), np.nan)[places]
