"""
What can go wrong, as a tree; every message is one sentence: what was given, what is allowed, what to do.

    GuideError
    |-- UnknownName       a name that no table has
    |-- InvalidScenario   a value that a scenario may not have
    |-- DataError         a broken row in a table
    `-- NotModelled       a question the estimates do not cover: refused rather than guessed
    StaleData (warning)   prices older than a reader would expect
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping, Sequence


class GuideError(Exception):
    """Base of all errors that a user can mend; `key` and `values` let a page word the same in its language."""

    key = "error"

    def __init__(self, message: str, **values: object) -> None:
        # One line, and nothing a terminal would act on, whatever stood in the input.
        line = " ".join(message.split())
        super().__init__("".join(sign if sign.isprintable() else "?" for sign in line))
        self.values = values


class UnknownName(GuideError):
    """A name that is in no table; carries the nearest names."""

    key = "error_unknown_name"

    def __init__(self, kind: str, name: str, near: Sequence[str] = (), known: int | None = None) -> None:
        where = f" among {known} known" if known else ""
        hint = f"; did you mean {', '.join(near)}?" if near else "; `gpuguide --help` says where names are listed"
        shown = short(name)
        super().__init__(f"no {kind} named '{shown}'{where}{hint}", kind=kind, name=shown, near=", ".join(near))
        self.kind, self.name, self.near = kind, name, tuple(near)


class InvalidScenario(GuideError):
    """
    A value that a scenario may not have.

    `reason` and `facts` carry the kind of a finding and its figures, as pydantic names them, for pages that word it.
    """

    key = "error_invalid_scenario"

    def __init__(
        self, field: str, value: object, allowed: str, *, reason: str | None = None, facts: Mapping[str, object] = {}
    ) -> None:
        super().__init__(
            f"{field} = {short(value)} is not possible: {allowed}", field=field, value=short(value), allowed=allowed
        )
        self.field, self.value, self.allowed = field, value, allowed
        self.reason, self.facts = reason, dict(facts)


class DataError(GuideError):
    """A broken row in a data file."""

    key = "error_data"

    def __init__(self, file: str, row: int | None, column: str | None, problem: str) -> None:
        place = (
            short(file, 300) + (f", row {row}" if row is not None else "") + (f", column {column}" if column else "")
        )
        problem = short(problem, 400)
        super().__init__(f"{place}: {problem}", file=file, row=row, column=column, problem=problem)
        self.file, self.row, self.column, self.problem = file, row, column, problem


class NotModelled(GuideError):
    """A question the estimates do not cover."""

    key = "error_not_modelled"

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(f"{what} is not modelled: {instead}", what=what, instead=instead)


class StaleData(UserWarning):
    """Prices are older than the limit asked for."""


def must_be(field: str, value: object, kinds: type | tuple[type, ...], allowed: str) -> None:
    """
    Refuse a value of another type in one sentence; `True` is no number.

    Raises
    ------
    InvalidScenario
        If the value is none of the kinds.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise InvalidScenario(field, value, allowed)


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Names most like the given one, best first; case does not count."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    folded = name.casefold()
    close = difflib.get_close_matches(folded, by_folded, n=count, cutoff=0.5)
    close += [key for key in by_folded if folded and folded in key and key not in close]
    return [by_folded[key] for key in close[:count]]


def short(value: object, limit: int = 60) -> str:
    """A value as it may stand in a sentence."""
    try:
        # Containers may hold themselves, or far more than can be shown.
        text = reprlib.repr(value) if isinstance(value, list | tuple | dict | set) else str(value)
    except Exception:  # a number of too many digits, or an object that cannot be shown
        text = f"this {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."
