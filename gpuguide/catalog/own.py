"""
Assumptions of one's own: a TOML file that replaces some constants, and a catalog that uses them.

    [compute_matmul_share]
    low = 0.70
    typical = 0.76
    high = 0.80
"""

from __future__ import annotations

import copy
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuguide.errors import DataError, UnknownName, nearest
from gpuguide.files import read_text

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog
    from gpuguide.spec.assumptions import Assumptions

Band = tuple[float, float, float]
ENDS = ("low", "typical", "high")
MOST_BYTES = 1_000_000


def read_assumptions(path: Path, known: Assumptions) -> dict[str, Band]:
    """
    Bands by name from a file.

    Parameters
    ----------
    path : Path
        TOML; each table is named as in `data/assumptions.csv` and has `typical`, and `low` and `high` unless they are
        to keep their distance from it. A single number stands for a typical value.
    known : Assumptions
        What may be replaced.

    Raises
    ------
    DataError
        If the file cannot be read, or a band is not low <= typical <= high.
    UnknownName
        If there is no such assumption; carries the nearest.
    """
    try:
        text = read_text(path, most_bytes=MOST_BYTES)
    except FileNotFoundError:
        raise DataError(str(path), None, None, "there is no such file of assumptions") from None
    except (OSError, ValueError) as error:
        raise DataError(path.name, None, None, f"cannot be read ({' '.join(str(error).split())[:150]})") from None
    return parse_assumptions(path.name, text, known)


def parse_assumptions(name: str, text: str, known: Assumptions) -> dict[str, Band]:
    """The same from the text of a file; its name is for messages."""
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(name, None, None, f"is not valid TOML ({' '.join(str(error).split())[:150]})") from None
    for key in raw:
        if key not in known:
            raise UnknownName("assumption", key, nearest(key, known), len(known))
    return {key: _band(name, key, value, known) for key, value in raw.items()}


def _band(file: str, name: str, value: Any, known: Assumptions) -> Band:
    row = known.rows[name]
    given: Mapping[str, Any] = value if isinstance(value, dict) else {"typical": value}
    for key in given:
        if key not in ENDS:
            raise DataError(file, None, name, f"has no key {key!r}; give low, typical and high")
    numbers = {key: given[key] for key in given}
    for key, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise DataError(file, None, name, f"{key} = {number!r} is not a number")
    typical = float(numbers.get("typical", row.typical))
    scale = typical / row.typical if row.typical else 1.0
    low, high = (float(numbers.get(key, getattr(row, key) * scale)) for key in ("low", "high"))
    if not low <= typical <= high:
        raise DataError(file, None, name, f"needs low <= typical <= high, not {low:g}, {typical:g}, {high:g}")
    return low, typical, high


def with_assumptions(catalog: Catalog, path: Path) -> Catalog:
    """A catalog that answers with the assumptions of a file in place of its own."""
    return replaced(catalog, read_assumptions(path, catalog.assumptions))


def replaced(catalog: Catalog, bands: Mapping[str, Band]) -> Catalog:
    """A catalog with some constants replaced; its tables are shared with the given one."""
    changed = copy.copy(catalog)
    changed._clusters = catalog._clusters
    vars(changed)["assumptions"] = catalog.assumptions.replace(**dict(bands))
    return changed
