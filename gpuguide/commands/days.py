"""A day given on the command line."""

from __future__ import annotations

import datetime as dt

from gpuguide.errors import InvalidScenario


def checked_day(given: str) -> str:
    """
    The day as given, empty for the current one.

    Raises
    ------
    InvalidScenario
        If it is no day.
    """
    if given:
        try:
            dt.date.fromisoformat(given)
        except ValueError:
            raise InvalidScenario("--today", given, "write a day as YYYY-MM-DD") from None
    return given
