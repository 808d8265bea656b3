"""Scenarios from files, standard input and `key=value` words, always as one sentence when something is wrong."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuguide.errors import DataError, InvalidScenario
from gpuguide.spec.scenario import Scenario

MOST_BYTES = 10_000_000
"""Largest scenario file read; 20 scenarios take a few kilobytes. [bytes]"""


def read_scenarios(source: str | None, overrides: Iterable[str] = ()) -> list[Scenario]:
    """
    Scenarios from a TOML, YAML, JSON or JSON Lines file, a link, `-` for standard input, or from overrides alone.

    Raises
    ------
    DataError
        If the file cannot be read as what its name says.
    UnknownName, InvalidScenario
        If a key or value is not a scenario's.
    """
    return [Scenario.from_mapping(row) for row in read_rows(source, overrides)]


def read_rows(source: str | None, overrides: Iterable[str] = ()) -> list[dict[str, Any]]:
    """
    Keys and values of each scenario, not yet checked: where one may be wrong without stopping the rest.

    Raises
    ------
    DataError
        If the file cannot be read as what its name says.
    """
    changes = dict(_key_and_value(word) for word in overrides)
    rows: list[Mapping[str, Any]] = [{}]
    if source is not None:
        from gpuguide.spec.link import is_link, values_of

        is_file = os.path.exists(source)  # noqa: PTH110 - of too long a name it says no, where Path.exists raises
        rows = [values_of(source)] if is_link(source) and not is_file else _rows(source)
    return [{**row, **changes} for row in rows]


def _rows(source: str) -> list[Mapping[str, Any]]:
    try:
        if source == "-":
            name, text, kind = "standard input", sys.stdin.read(MOST_BYTES + 1), ""
        else:
            path = Path(source)
            name, kind = path.name or repr(source), path.suffix.casefold()
            with path.open("rb") as file:  # never more than this, also of a device without an end
                text = file.read(MOST_BYTES + 1).decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(source, None, None, "there is no such file; give a TOML, YAML or JSON file, or -") from None
    except (OSError, ValueError) as error:
        name = "standard input" if source == "-" else source
        raise DataError(name, None, None, f"cannot be read ({_reason(error)})") from None
    if len(text) > MOST_BYTES:
        raise DataError(name, None, None, f"is larger than the {MOST_BYTES // 1_000_000} MB a scenario may have")
    found = _parse(name, text, kind)
    rows = found if isinstance(found, list) else [found]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise DataError(name, number, None, "a scenario is a table of keys and values")
    if not rows:
        raise DataError(name, None, None, "holds no scenario")
    return rows


def _parse(name: str, text: str, kind: str) -> Any:
    try:
        if kind == ".toml":
            return tomllib.loads(text)
        if kind in (".yaml", ".yml"):
            return _yaml(text)
        if kind in (".json", ".jsonl", ".ndjson") or text.lstrip()[:1] in "{[":
            return _json_or_lines(text)
        return tomllib.loads(text) if "=" in text else _yaml(text)
    except (ValueError, RecursionError) as error:
        raise DataError(name, getattr(error, "lineno", None), None, f"is not valid ({_reason(error)})") from None


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(_reason(error)) from None


def _json_or_lines(text: str) -> Any:
    """One JSON document, or one scenario a line."""
    try:
        return json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        return [json.loads(line) for line in lines]


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _key_and_value(word: str) -> tuple[str, Any]:
    key, sign, value = word.partition("=")
    if not sign or not key.strip():
        raise InvalidScenario("--set", word, "write key=value, such as --set workload=lora")
    return key.strip(), _number_in_full(value.strip())


def _number_in_full(value: str) -> str | None:
    """`1e12` also for keys that count: pydantic reads digits only. Empty means the default."""
    if not value:
        return None
    try:
        number = float(value.replace("_", ""))
    except ValueError:
        return value
    return str(int(number)) if number.is_integer() and abs(number) < 1e18 and not value.isdigit() else value
