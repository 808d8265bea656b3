"""
A grid of scenarios: what is fixed, what varies, and the scenario at each place; checked whole before any work.

    workload = "lora"                       # fixed keys stand first
    model = "llama-3.1-8b"

    [grid]                                  # each key takes each of its values
    gpu = ["H100-SXM", "L40S", "RTX4090"]
    sequence_length = [1024, 2048, 4096]
    train_tokens = { from = 1e6, to = 1e9, steps = 13, scale = "log" }
    lora_rank = { from = 8, to = 64, step = 8 }

Points are numbered with the last key fastest, after keys have been sorted so that points answered in one pass lie
together: sequence lengths, batches, tokens and the like come last, GPUs before them, everything else first.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpuguide.errors import DataError, InvalidScenario, UnknownName, nearest
from gpuguide.files import read_text
from gpuguide.spec.scenario import Scenario

MOST_POINTS = 100_000_000
"""Largest grid; at ten thousand points a second it takes three hours."""
MOST_VALUES = 1_000_000
MOST_BYTES = 10_000_000
TOGETHER = ("sequence_length", "global_batch", "max_context", "prompt_tokens", "output_tokens", "concurrency",
            "train_tokens")  # fmt: skip
"""Keys whose values one pass over arrays can hold, the fastest last."""
RANGE_KEYS = ("from", "to", "step", "steps", "scale")


@dataclass(frozen=True, slots=True)
class Grid:
    """
    Fixed keys and axes.

    Attributes
    ----------
    fixed : mapping
        Keys with one value.
    axes : mapping
        Keys with their values, slowest first; each value is as a Scenario holds it.
    """

    fixed: Mapping[str, Any]
    axes: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    @property
    def fingerprint(self) -> str:
        """Short name of exactly this grid."""
        plain = json.dumps([dict(self.fixed), {key: list(values) for key, values in self.axes.items()}], default=str)
        return hashlib.sha256(plain.encode()).hexdigest()[:24]

    def places(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Of the points first..last (exclusive), the place of each key's value among its axis."""
        numbers = np.arange(first, last)
        found = {}
        for key in reversed(list(self.axes)):
            numbers, found[key] = np.divmod(numbers, len(self.axes[key]))
        return {key: found[key] for key in self.axes}

    def scenario(self, number: int) -> Scenario:
        """The scenario of one point."""
        places = self.places(number, number + 1)
        values = {key: self.axes[key][int(place[0])] for key, place in places.items()}
        return Scenario.from_mapping({**self.fixed, **values})


def read_grid(path: Path) -> Grid:
    """
    A grid from a TOML file.

    Raises
    ------
    DataError
        If the file cannot be read, or the grid is empty or too large.
    UnknownName, InvalidScenario
        If a key or one of its values is not a scenario's.
    """
    try:
        raw = tomllib.loads(read_text(path, most_bytes=MOST_BYTES))
    except FileNotFoundError:
        raise DataError(str(path), None, None, "there is no such file; give a grid as TOML") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(path.name, None, None, f"is not valid TOML ({' '.join(str(error).split())[:150]})") from None
    axes = raw.pop("grid", None)
    if not isinstance(axes, dict) or not axes:
        raise DataError(path.name, None, "grid", "a table [grid] with at least one key and its values is needed")
    return grid_of(raw, axes, name=path.name)


def grid_of(fixed: Mapping[str, Any], axes: Mapping[str, Any], *, name: str = "grid") -> Grid:
    """
    A grid from plain values.

    Raises
    ------
    DataError, UnknownName, InvalidScenario
        One sentence for what is wrong.
    """
    for key in (*fixed, *axes):
        if key not in Scenario.model_fields:
            known = Scenario.model_fields
            raise UnknownName("scenario key", str(key)[:60], nearest(str(key)[:60], known), len(known))
    twice = sorted(set(fixed) & set(axes))
    if twice:
        raise DataError(name, None, twice[0], "is both fixed and in the grid")
    # Lengths first: a range of 10^12 must be refused, not written out.
    lengths = {key: _length(name, key, values) for key, values in axes.items()}
    points = math.prod(lengths.values())
    if points > MOST_POINTS:
        raise DataError(
            name,
            None,
            "grid",
            f"has {points:.3g} points, more than the {MOST_POINTS:,} a sweep may have: thin its ranges",
        )
    base = Scenario.from_mapping(fixed)
    checked = {key: _values(name, key, values, base) for key, values in axes.items()}
    order = sorted(checked, key=lambda key: TOGETHER.index(key) + 2 if key in TOGETHER else 1 if key == "gpu" else 0)
    return Grid(base.model_dump(mode="json", exclude_unset=True), {key: checked[key] for key in order})


def _length(name: str, key: str, values: Any) -> int:
    """How many values an axis has, without writing them out."""
    if isinstance(values, Mapping):
        return _steps(name, key, values)
    if not isinstance(values, list):
        raise DataError(name, None, key, "give a list of values, or a range with from, to and step or steps")
    if not values:
        raise DataError(name, None, key, "its list is empty: give at least one value, or take the key out of [grid]")
    return len(values)


def _steps(name: str, key: str, given: Mapping[str, Any]) -> int:
    for word in given:
        if word not in RANGE_KEYS:
            raise DataError(name, None, key, f"a range has no {word!r}; it has {', '.join(RANGE_KEYS)}")
    first, last = (_number(name, key, given, word) for word in ("from", "to"))
    if ("step" in given) == ("steps" in given):
        raise DataError(name, None, key, "give either step, the distance of values, or steps, how many there are")
    if given.get("scale", "linear") not in ("linear", "log"):
        raise DataError(name, None, key, f"scale = {given['scale']!r} is neither linear nor log")
    if last < first:
        raise DataError(name, None, key, f"its range ends at {last:g}, before it starts at {first:g}")
    if "steps" in given:
        steps = _number(name, key, given, "steps")
        if not float(steps).is_integer() or steps < 1:
            raise DataError(name, None, key, "steps is a whole number of at least 1")
        count = int(steps)
    else:
        step = _number(name, key, given, "step")
        if step <= 0 or given.get("scale") == "log":
            raise DataError(name, None, key, "step is above zero and linear; a log range takes steps")
        count = math.floor((last - first) / step * (1 + 1e-12)) + 1
    if given.get("scale") == "log" and first <= 0:
        raise DataError(name, None, key, "a log range starts above zero")
    return count


def _number(name: str, key: str, given: Mapping[str, Any], word: str) -> float:
    value = given.get(word)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(name, None, key, f"a range needs a number as {word}")
    return float(value)


def _values(name: str, key: str, values: Any, base: Scenario) -> list[Any]:
    """The values of an axis as a Scenario holds them, without repeats."""
    written = values if isinstance(values, list) else list(_range(name, key, values))
    if len(written) > MOST_VALUES:
        raise DataError(name, None, key, f"has {len(written):,} values, more than {MOST_VALUES:,}")
    whole = Scenario.model_fields[key].annotation is not None and "int" in str(Scenario.model_fields[key].annotation)
    found: dict[str, Any] = {}
    for value in written:
        asked = round(value) if whole and isinstance(value, float) and not isinstance(values, list) else value
        held = getattr(Scenario.from_mapping({"workload": base.workload, key: asked}), key)
        if held is None:
            raise InvalidScenario(key, value, "an axis needs values; leave the key out for its default")
        found.setdefault(repr(held), held)
    return list(found.values())


def _range(name: str, key: str, given: Mapping[str, Any]) -> Iterator[float]:
    count = _steps(name, key, given)
    if count > MOST_VALUES:
        raise DataError(name, None, key, f"has {count:,} values, more than {MOST_VALUES:,}")
    first, last = float(given["from"]), float(given["to"])
    if "step" in given:
        yield from (float(f"{first + place * float(given['step']):.12g}") for place in range(count))
    elif count == 1:
        yield first
    elif given.get("scale") == "log":
        yield from (float(f"{number:.12g}") for number in np.geomspace(first, last, count))
    else:
        yield from (float(f"{number:.12g}") for number in np.linspace(first, last, count))


def combinations(grid: Grid, keys: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """All combinations of the values of some axes."""
    return itertools.product(*(grid.axes[key] for key in keys))
