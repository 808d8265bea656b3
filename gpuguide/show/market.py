"""The market as a table: every offer with what it costs, how it is billed, and how old its price is."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.decide.market import age_badge, outcomes
from gpuguide.decide.scarcity import scarcity
from gpuguide.show.html import NOTHING, Html, join, tag
from gpuguide.text import Text

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.decide.decision import Decision

CONVERTED = re.compile(r"converted from (?P<currency>[A-Z]{3})")
"""How a row's note says that its price was in another currency."""
BADGES = {"fresh": "fits", "ok": "fits", "stale": "tight", "old": "no"}
"""Colours of the badges of age."""
PER_GPU = ["provider", "gpu", "region", "pricing", "kind", "months", "as_of", "source", "note", "usd_per_gpu_hour"]
"""What machines of several sizes have in common when a provider sells GPUs one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """
    One column of a long table: each distinct cell once, and which of them stands in each row.

    `words` are HTML; `order` says by what they are sorted where that is not the words themselves.
    """

    key: str  # text of the head
    codes: list[int]
    words: list[str]
    order: list[float | None] | None = None
    number: bool = False


def listed(offers: pd.DataFrame, memory_gb: Callable[[str], float]) -> pd.DataFrame:
    """
    Offers as providers list them: a price per GPU is one row, however many GPUs it may be multiplied to.

    Parameters
    ----------
    offers : DataFrame
        Columns of `catalog.offers.market`.
    memory_gb : callable
        Marketed memory of a GPU by the name it is computed as. [GB]

    Returns
    -------
    DataFrame
        The same columns and `most_gpus` (largest number at this price), `gpu_memory_gb`, `usd_per_gpu_hour`,
        `usd_per_gb_hour` and `currency`; cheapest GPU first.
    """
    gpus = offers["gpus_per_node"].to_numpy(np.float64)
    each = offers["usd_per_hour"].to_numpy(np.float64) / gpus
    memory = offers["computed_as"].map({name: memory_gb(name) for name in offers["computed_as"].unique()})
    rows = offers.assign(
        gpu_memory_gb=memory.astype(float),
        usd_per_gpu_hour=each.round(6),
        usd_per_gb_hour=each / memory.astype(float),
        currency=offers["note"].str.extract(CONVERTED, expand=False).fillna("USD"),
        most_gpus=offers["gpus_per_node"],
    ).sort_values(["usd_per_gpu_hour", "gpus_per_node", "as_of"], ascending=[True, True, False], kind="stable")
    single = rows["price_basis"] == "per_gpu"
    sold = rows[single]
    largest = sold.groupby(PER_GPU, dropna=False, sort=False)["gpus_per_node"].transform("max")
    rows.loc[single, "most_gpus"] = largest
    twice = sold.duplicated(PER_GPU).reindex(rows.index, fill_value=False)
    kept: pd.DataFrame = rows[~twice].reset_index(drop=True)
    return kept


def columns(rows: pd.DataFrame, text: Text) -> list[Cells]:
    """The table of `listed` offers, one column of cells after the other."""

    def number(key: str, column: str, said: Callable[[float], str]) -> Cells:
        return coded(key, rows[column].tolist(), lambda value: _plain(said(value), value), number=True)

    return [
        coded("market.provider", rows["provider"].tolist(), lambda name: tag("b", _provider(name, text))),
        coded("market.gpu", rows["gpu"].tolist(), lambda name: tag("span", name, class_="gg-nowrap")),
        coded(
            "market.gpus", list(zip(rows["gpus_per_node"], rows["most_gpus"], strict=True)),
            lambda pair: text.count(pair[0]) if pair[0] == pair[1] else f"{pair[0]}–{pair[1]}",
            order=lambda pair: pair[0], number=True,
        ),
        number("market.memory", "gpu_memory_gb", text.number),
        coded(
            "market.kind", list(zip(rows["pricing"], rows["kind"], rows["months"].fillna(0), strict=True)),
            lambda row: _kind(row, text),
        ),
        number("market.per_hour", "usd_per_hour", text.money),
        number("market.per_gpu_hour", "usd_per_gpu_hour", text.money),
        number("market.per_gb_hour", "usd_per_gb_hour", text.money),
        coded(
            "market.as_of", list(zip(rows["as_of"], rows["age_days"], strict=True)),
            lambda row: join([tag("span", text.date(row[0]), class_="gg-nowrap"), " ", age(row[1], text)]),
            order=lambda row: -row[1],
        ),
        coded("market.region", rows["region"].tolist(), lambda name: _region(name, text)),
        coded("market.machine", rows["instance_type"].tolist(), lambda name: tag("span", name)),
        number("market.billing", "billing_granularity_s", text.duration),
        number("market.minimum", "minimum_charge_s", lambda value: text.duration(value) if value else NOTHING),
        coded("market.currency", list(zip(rows["currency"], rows["note"], strict=True)), lambda row: _currency(*row)),
        coded("market.source", list(zip(rows["source"], rows["note"], strict=True)), lambda row: _source(*row)),
    ]  # fmt: skip


def scarce(offers: pd.DataFrame, text: Text) -> list[Cells]:
    """How many providers and regions rent each size of each GPU."""
    rows = scarcity(offers[offers["computed_as"] != ""])
    said = {True: text("market.scarce"), False: text("market.common")}

    def count(key: str, column: str) -> Cells:
        return coded(key, rows[column].tolist(), text.count, number=True)

    return [
        coded("market.gpu", rows["gpu"].tolist(), lambda name: tag("b", name)),
        count("market.gpus", "gpus_per_node"),
        count("market.providers", "providers"),
        count("market.regions", "regions"),
        count("market.offers", "offers"),
        coded(
            "market.availability", rows["scarce"].tolist(),
            lambda rare: tag("span", said[rare], class_=f"gg-badge {'tight' if rare else 'fits'}"),
        ),
    ]  # fmt: skip


def dropped(decision: Decision, text: Text) -> list[Cells]:
    """Every GPU at every provider, and the question at which the last of its offers fell out."""
    rows = outcomes(decision.rows.market, decision.rows.funnel)
    said = {step: tag("span", text.name("funnel", step), class_="gg-badge no") for step in rows["step"].unique()}
    said[""] = tag("span", text("market.left"), class_="gg-badge fits")
    return [
        coded("market.provider", rows["provider"].tolist(), lambda name: tag("b", _provider(name, text))),
        coded("market.gpu", rows["gpu"].tolist(), str),
        coded("market.outcome", rows["step"].tolist(), lambda step: said[step]),
        coded("market.offers", rows["offers"].tolist(), text.count, number=True),
        coded("market.offers_left", rows["left"].tolist(), text.count, number=True),
    ]


def sentence(rows: pd.DataFrame, text: Text) -> Html:
    """What the market that is shown holds, in one sentence."""
    if rows.empty:
        return tag("p", text("market.nothing"), class_="gg-verdict no")
    counts = {
        "offers": text.count(len(rows)),
        "gpus": text.count(rows["gpu"].nunique()),
        "providers": text.count(rows["provider"].nunique()),
    }
    first = rows.iloc[0]
    cheapest = {
        "gpu": first["gpu"],
        "provider": _provider(first["provider"], text),
        "price": text.money(first["usd_per_gpu_hour"]),
    }
    oldest, newest = text.date(rows["as_of"].min()), text.date(rows["as_of"].max())
    said = text("market.sentence", **counts, **cheapest, oldest=oldest, newest=newest)
    return tag("p", said, class_="gg-verdict")


def age(age_days: float, text: Text) -> Html | None:
    """How old a price is, as a badge; nothing where the day is not known."""
    word = str(age_badge(np.asarray(age_days)).item())
    return tag("span", text(f"age.{word}"), class_=f"gg-badge {BADGES[word]}") if word else None


def coded(
    key: str,
    values: Sequence[Hashable],
    said: Callable[[Any], str],
    *,
    order: Callable[[Any], float] | None = None,
    number: bool = False,
) -> Cells:
    """A column from its values: each distinct one is put into words once."""
    place: dict[Hashable, int] = {}
    # Not-a-number equals nothing, itself included.
    codes = [place.setdefault(None if value != value else value, len(place)) for value in values]
    distinct = list(place)
    ranks = (lambda value: value) if number and order is None else order
    return Cells(
        key=key,
        codes=codes,
        words=[_html(NOTHING if value is None else said(value)) for value in distinct],
        order=None if ranks is None else [None if value is None else _short(ranks(value)) for value in distinct],
        number=number,
    )


def _html(word: str) -> str:
    return str.__str__(word) if isinstance(word, Html) else str.__str__(join([word]))


def _short(value: Any) -> float:
    return float(f"{float(value):.6g}")


def _plain(word: str, value: Any) -> str:
    return NOTHING if value is None else word


def _provider(name: str, text: Text) -> str:
    return text.name("option.providers", name)


def _region(name: str, text: Text) -> str:
    return text("table.any_region") if name in ("*", "") else name


def _kind(row: tuple[str, str, float], text: Text) -> str:
    pricing, kind, months = row
    said = text.name("option.pricing", pricing)
    if months:
        said = text("market.for_months", kind=said, count=int(months))
    if kind == "on_demand":
        return said
    named = text.name("option.offer_kinds", kind)
    return named if pricing == "on_demand" else f"{named}, {said}"


def _currency(currency: str, note: str) -> Html | str:
    return currency if currency == "USD" else tag("span", f"{currency} → USD", title=note, class_="gg-nowrap")


def _source(source: str, note: str) -> Html:
    return tag("span", source, title=note or None, class_="gg-source")
