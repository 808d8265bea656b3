"""`gpuguide decide --across`: not one answer but a row of them, as load grows or in each weight format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuguide.errors import InvalidScenario

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.decide.decision import Decision

LOAD, FORMATS = "load", "formats"


def across(decision: Decision, what: str) -> pd.DataFrame:
    """
    The neighbouring answers as a table.

    Raises
    ------
    InvalidScenario
        If they are neither across load nor across formats.
    """
    from gpuguide.decide.curve import load_curves
    from gpuguide.decide.formats import formats
    from gpuguide.decide.pipeline import decide

    def ask(change: Mapping[str, Any]) -> Decision:
        return decide(decision.question.again(decision.scenario.model_copy(update=dict(change))))

    if what == LOAD:
        return load_curves(decision)
    if what == FORMATS:
        return formats(decision, ask)
    raise InvalidScenario("across", what, f"choose from {LOAD}, {FORMATS}")


def print_across(table: pd.DataFrame, decision: Decision, what: str) -> None:
    """The same words as on the page."""
    from gpuguide.show.formats import format_columns
    from gpuguide.show.names import text_with_names
    from gpuguide.show.serving import curve_columns
    from gpuguide.show.terminal import print_told

    scenario = decision.scenario
    text = text_with_names(scenario.language, scenario.currency, scenario.currency_per_usd)
    print_told(curve_columns(table, text) if what == LOAD else format_columns(table, decision, text), text)
