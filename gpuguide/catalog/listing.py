"""The market as people read it: the rows asked for, with the price of one GPU, cheapest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gpuguide.columns import Columns
from gpuguide.errors import InvalidScenario, UnknownName, must_be, nearest
from gpuguide.spec.hardware import Gpu

SHOWN = (
    "provider", "instance_type", "region", "gpu", "gpus_per_node", "gpu_memory_gb", "pricing", "kind", "usd_per_hour",
    "usd_per_gpu_hour", "as_of", "age_days", "source", "note",
)  # fmt: skip


def listed(
    market: Columns,
    cards: Mapping[str, Gpu],
    *,
    gpus: Sequence[str] = (),
    min_memory_gb: float = 0.0,
    providers: Sequence[str] = (),
    kinds: Sequence[str] = (),
) -> Columns:
    """Rows of a market as `Catalog.offers` describes them."""
    must_be("min_memory_gb", min_memory_gb, (int, float, np.number), "give a number of gigabytes")
    if not min_memory_gb < 1e9:  # nan too
        raise InvalidScenario("min_memory_gb", min_memory_gb, "give a number of gigabytes")
    keep = np.ones(len(market), dtype=np.bool_)
    for column, kind, asked in (
        ("gpu", "GPU", _names("gpus", gpus)),
        ("provider", "provider", _names("providers", providers)),
        ("kind", "kind of offer", _names("kinds", kinds)),
    ):
        number, found = market.codes(column)
        known = [*found, *(cards if column == "gpu" else ())]
        names = [spelling(kind, name, known) for name in asked]
        if names:
            keep &= np.array([name in names for name in found], dtype=np.bool_)[number]
    number, found = market.codes("computed_as")
    memory_gb = np.array([cards[name].memory_gb if name in cards else np.nan for name in found])[number]
    keep &= np.nan_to_num(memory_gb) >= min_memory_gb
    places = np.flatnonzero(keep)
    rows = market.at(places)
    each = rows.numbers("usd_per_hour") / rows.numbers("gpus_per_node")
    # The younger of equal prices first: days as numbers, later days lower.
    days, back = np.unique(rows.values("as_of").astype(str), return_inverse=True)
    order = np.lexsort((len(days) - back, each))
    shown = rows.but(gpu_memory_gb=memory_gb[places], usd_per_gpu_hour=each).at(order)
    return Columns({name: shown.values(name) for name in SHOWN})


def spelling(kind: str, name: str, known: Iterable[object]) -> str:
    """
    The table's spelling of a name; case does not count.

    Raises
    ------
    UnknownName
        If there is none; carries the nearest names.
    """
    by_folded = {str(candidate).casefold(): str(candidate) for candidate in known}
    if name.casefold() not in by_folded:
        raise UnknownName(kind, name, nearest(name, by_folded.values()), len(by_folded))
    return by_folded[name.casefold()]


def _names(field: str, names: Sequence[str]) -> Sequence[str]:
    """A list of names; one name alone stands for itself."""
    names = (names,) if isinstance(names, str) else names
    must_be(field, names, (list, tuple, set, frozenset), "give a list of names")
    for name in names:
        must_be(field, name, str, "give a list of names")
    return names
