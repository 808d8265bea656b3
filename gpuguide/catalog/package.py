"""
The data folder: tables in the types that `datapackage.json` states, each row checked on reading.

A broken row raises `DataError` with the file, the row as an editor counts it (the header is row 1) and the column.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gpuguide.columns import Columns, words
from gpuguide.errors import DataError, UnknownName, nearest

if TYPE_CHECKING:
    import pandas as pd

DESCRIPTOR = "datapackage.json"


def data_folder() -> Path:
    """
    Folder of the tables: shipped inside an installed package, `data/` beside it in a checkout.

    Raises
    ------
    DataError
        If neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data", package.parent / "data"):
        if (folder / DESCRIPTOR).is_file():
            return folder
    raise DataError(DESCRIPTOR, None, None, f"is not beside the package in {package}; install gpuguide again")


def read_table(name: str, folder: Path | None = None, *, lenient: bool = False) -> pd.DataFrame:
    """`read_columns` as a DataFrame; its words are pandas' strings."""
    return read_columns(name, folder, lenient=lenient).frame("str")


def read_columns(name: str, folder: Path | None = None, *, lenient: bool = False) -> Columns:
    """
    One CSV table, checked.

    Parameters
    ----------
    name : str
        Resource of `datapackage.json`, such as 'offers'.
    folder : Path, optional
        Another folder with the same files; the descriptor is its own where it has one.
    lenient : bool
        For tables from elsewhere: what cannot be read is empty, columns may be missing or added; no other check.

    Returns
    -------
    Columns
        Numbers are float64 with nan where empty, required integers int64, yes and no are bool, dates ISO text,
        text is '' where empty.

    Raises
    ------
    DataError
        On the first broken row.
    UnknownName
        If the data package has no such table.
    """
    resource, path = _locate(name, folder)
    header, lines, rows = read_csv(path)
    columns = {column: [row[place] for row in rows] for place, column in enumerate(header)}
    fields = {field["name"]: field for field in resource["schema"]["fields"]}
    if lenient:
        blank = [""] * len(rows)
        names = [*fields, *(column for column in header if column not in fields)]
        return Columns({name: _convert(fields.get(name, _TEXT), columns.get(name, blank), _ignore) for name in names})

    def fail(index: int, column: str, problem: str) -> NoReturn:
        raise DataError(path.name, lines[index], column, problem)

    _check_header(path.name, header, list(fields))
    table = {column: _checked(field, columns[column], fail) for column, field in fields.items()}
    _check_keys(resource, columns, folder, fail)
    for rule in resource.get("rules", ()):
        _check_rule(rule, table, columns, folder, fail)
    return Columns(table)


def read_objects(name: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """
    One JSON table as a list of objects, checked; rows are counted from 1.

    Raises
    ------
    DataError
        On the first broken object.
    """
    resource, path = _locate(name, folder)
    try:
        objects = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DataError(path.name, error.lineno, None, f"is not JSON: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(path.name, None, None, f"cannot be read: {error}") from None
    if not isinstance(objects, list):
        raise DataError(path.name, 1, None, "must be a list of objects")
    for row, thing in enumerate(objects, start=1):
        if not isinstance(thing, dict):
            raise DataError(path.name, row, None, "must be an object")
        for field in resource["schema"]["fields"]:
            problem = _problem(field, thing.get(field["name"]))
            if problem:
                raise DataError(path.name, row, field["name"], problem)

    def fail(index: int, column: str, problem: str) -> NoReturn:
        raise DataError(path.name, index + 1, column, problem)

    key = _as_list(resource["schema"].get("primaryKey", []))
    _check_unique(key, {column: [str(thing[column]) for thing in objects] for column in key}, fail)
    return objects


@lru_cache(maxsize=8)
def describe(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """Resources of the data package by name, as `datapackage.json` has them."""
    path = (folder or data_folder()) / DESCRIPTOR
    try:
        package = json.loads(path.read_text(encoding="utf-8"))
        return {resource["name"]: resource for resource in package["resources"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(DESCRIPTOR, None, None, f"cannot be read: {error}") from None


Fail = Callable[[int, str, str], None]
"""Called with the place of a row, its column and what is wrong."""
_TEXT = {"type": "string"}
_KINDS: dict[str, Any] = {"number": (int, float), "integer": int, "boolean": bool, "object": dict, "array": list}


def _ignore(index: int, column: str, problem: str) -> None:
    """What cannot be read stays empty."""


def _locate(name: str, folder: Path | None) -> tuple[dict[str, Any], Path]:
    own = folder if folder and (folder / DESCRIPTOR).is_file() else None
    resources = describe(own)
    if name not in resources:
        raise UnknownName("table", name, nearest(name, resources), len(resources))
    resource = resources[name]
    path = (folder or data_folder()) / resource["path"]
    if folder and not path.is_file():
        # A folder of one's own need not repeat the sub-folders.
        path = folder / Path(resource["path"]).name
    return resource, path


def read_csv(path: Path) -> tuple[list[str], list[int], list[list[str]]]:
    """Header, row numbers and rows; all rows as long as the header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            numbered = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise DataError(path.name, reader.line_num, None, f"is not CSV: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(path.name, None, None, f"cannot be read: {error}") from None
    if not numbered:
        raise DataError(path.name, 1, None, "has no header")
    header = numbered[0][1]
    for line, row in numbered[1:]:
        if len(row) != len(header):
            raise DataError(path.name, line, None, f"has {len(row)} cells where the header has {len(header)}")
    return header, [line for line, _ in numbered[1:]], [row for _, row in numbered[1:]]


def _check_header(file: str, header: Sequence[str], expected: Sequence[str]) -> None:
    for column in expected:
        if column not in header:
            raise DataError(file, 1, column, "is missing from the header")
    for column in header:
        if column not in expected:
            near = nearest(column, expected, 1)
            hint = f"; is it {near[0]}?" if near else ""
            raise DataError(file, 1, column, f"is not described in {DESCRIPTOR}{hint}")


def _convert(field: dict[str, Any], texts: Sequence[str], fail: Fail) -> Any:
    """Cells of one column in their type."""
    kind, name = field["type"], field.get("name", "")
    if kind in ("number", "integer"):
        return _numbers(texts, kind, name, fail)
    if kind == "boolean":
        true, false = field.get("trueValues", ["true"]), field.get("falseValues", ["false"])
        for index in _others(texts, {*true, *false}):
            fail(index, name, f"{texts[index]!r} is neither {true[0]} nor {false[0]}")
        return np.array([text in true for text in texts], dtype=bool)
    if kind == "date":
        for index in _others(texts, {text for text in set(texts) if _is_date(text)}):
            fail(index, name, f"{texts[index]!r} is not a date; write it as 2026-11-30")
    return words(list(texts))


def _numbers(texts: Sequence[str], kind: str, name: str, fail: Fail) -> NDArray[np.float64]:
    numbers = [np.nan] * len(texts)
    for index, text in enumerate(texts):
        if text:
            try:
                numbers[index] = float(text)
                wrong_sign = "_" in text  # float() also reads 1_000
            except ValueError:
                wrong_sign = True
            if wrong_sign:
                numbers[index] = np.nan
                fail(index, name, f"{text!r} is not a number")
    values = np.array(numbers, dtype=np.float64)
    wrong = np.isinf(values) | (np.isnan(values) & np.array([bool(text) for text in texts], dtype=bool))
    if kind == "integer":
        wrong |= np.isfinite(values) & (values % 1 != 0)
    for index in _places(wrong):
        fail(index, name, f"{texts[index]!r} is not {'a whole' if kind == 'integer' else 'a finite'} number")
    return values


def _checked(field: dict[str, Any], texts: Sequence[str], fail: Fail) -> Any:
    """Cells of one column in their type, within the constraints of the field."""
    name, constraints = field["name"], field.get("constraints", {})
    required = constraints.get("required", False)
    if required and "" in texts:
        fail(texts.index(""), name, "is empty and must not be")
    values = _convert(field, texts, fail)
    unit = f" {field['unit']}" if field.get("unit", "1") != "1" else ""
    for bound, outside, word in (("minimum", np.less, "at least"), ("maximum", np.greater, "at most")):
        if bound in constraints:
            for index in _places(outside(values, constraints[bound])):  # nan is on neither side
                fail(index, name, f"{texts[index]} is out of range; it must be {word} {constraints[bound]}{unit}")
    if "enum" in constraints:
        for index in _others(texts, set(constraints["enum"])):
            fail(index, name, f"{texts[index]!r} is not one of {', '.join(constraints['enum'])}")
    return values.astype(np.int64) if field["type"] == "integer" and required else values


def _problem(field: dict[str, Any], value: Any) -> str | None:
    """What is wrong with one value of a JSON table."""
    constraints = field.get("constraints", {})
    if value is None:
        return "is empty and must not be" if constraints.get("required") else None
    kind = _KINDS.get(field["type"], str)
    if not isinstance(value, kind) or (isinstance(value, bool) and field["type"] != "boolean"):
        return f"{value!r} is not of type {field['type']}"
    if field["type"] == "date" and not _is_date(value):
        return f"{value!r} is not a date; write it as 2026-11-30"
    if "enum" in constraints and value not in constraints["enum"]:
        return f"{value!r} is not one of {', '.join(constraints['enum'])}"
    if "minimum" in constraints and not value >= constraints["minimum"]:
        return f"{value} is out of range; it must be at least {constraints['minimum']}"
    if "maximum" in constraints and not value <= constraints["maximum"]:
        return f"{value} is out of range; it must be at most {constraints['maximum']}"
    return None


def _check_keys(
    resource: dict[str, Any], columns: Mapping[str, Sequence[str]], folder: Path | None, fail: Fail
) -> None:
    schema = resource["schema"]
    _check_unique(_as_list(schema.get("primaryKey", [])), columns, fail)
    for key in schema.get("foreignKeys", ()):
        for column, target in zip(_as_list(key["fields"]), _as_list(key["reference"]["fields"]), strict=True):
            _check_known(column, columns[column], [(key["reference"]["resource"], target)], folder, fail)


def _check_unique(key: list[str], columns: Mapping[str, Sequence[str]], fail: Fail) -> None:
    if not key:
        return
    seen = set()
    for index, cells in enumerate(zip(*(columns[column] for column in key), strict=True)):
        if cells in seen:
            fail(index, key[0], f"{' '.join(cells)} is there twice; {', '.join(key)} must name one row")
        seen.add(cells)


def _check_rule(
    rule: dict[str, Any],
    table: Mapping[str, Any],
    columns: Mapping[str, Sequence[str]],
    folder: Path | None,
    fail: Fail,
) -> None:
    """What a Frictionless schema has no word for; see `rules` in `datapackage.json`."""
    if rule["rule"] == "one_of":
        _check_known(rule["column"], columns[rule["column"]], [tuple(t.split(".")) for t in rule["in"]], folder, fail)
    elif rule["rule"] == "any_present":
        for index in _places(np.all([np.isnan(table[column]) for column in rule["columns"]], axis=0)):
            fail(index, rule["columns"][0], f"one of {' and '.join(rule['columns'])} must be given")
    elif rule["rule"] == "not_above":
        column, limit = rule["column"], rule["limit"]
        for index in _places(table[column] > table[limit]):
            fail(index, column, f"{columns[column][index]} is more than {limit}, {columns[limit][index]}")


def _check_known(
    column: str, texts: Sequence[str], targets: Iterable[tuple[str, ...]], folder: Path | None, fail: Fail
) -> None:
    places, known = [], set[str]()
    for resource_name, target in targets:
        resource, path = _locate(resource_name, folder)
        if not path.is_file():  # a folder with only some of the tables refers to the shipped ones
            resource, path = _locate(resource_name, None)
        places.append(resource["path"])
        known |= _cells(path, target, path.stat().st_mtime_ns if path.is_file() else 0)
    for index in _others(texts, known):
        near = nearest(texts[index], sorted(known))
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        fail(index, column, f"{texts[index]!r} is not in {' or '.join(places)}{hint}")


@lru_cache(maxsize=32)
def _cells(path: Path, column: str, changed_ns: int) -> frozenset[str]:
    """Cells of a column that others refer to, read again when the file has changed."""
    header, _, rows = read_csv(path)
    place = header.index(column)
    return frozenset(row[place] for row in rows)


def _others(texts: Sequence[str], allowed: set[str]) -> list[int]:
    """Places of cells that are neither empty nor allowed."""
    return [index for index, text in enumerate(texts) if text and text not in allowed]


def _places(mask: Any) -> list[int]:
    places: list[int] = np.flatnonzero(mask).tolist()
    return places


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
