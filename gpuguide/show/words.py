"""The sentences of a decision, for readers of JSON: the same that pages and terminal show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuguide.show.names import text_with_names
from gpuguide.show.verdict import verdict, warning

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision


def spoken(decision: Decision) -> dict[str, Any]:
    """
    Verdict and warnings as sentences in the scenario's language.

    Returns
    -------
    dict
        `verdict`, one sentence; `verdict_values`, the figures it names; `warnings`, with keys and figures.
    """
    scenario = decision.scenario
    text = text_with_names(scenario.language, scenario.currency, scenario.currency_per_usd)
    return {
        "verdict": verdict(decision, text),
        "verdict_values": dict(decision.verdict),
        "warnings": [
            {"key": key, "sentence": warning(key, values, text), **values} for key, values in decision.warnings
        ],
    }
