"""What would help: each change as a line that can be applied with one click."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuguide.show.html import Html, button, tag
from gpuguide.show.tables import empty
from gpuguide.text import Text

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision
    from gpuguide.decide.remedies import Remedy


def remedy_list(decision: Decision, text: Text) -> Html:
    """Changes that make the job fit, or make it cheaper or faster, best first."""
    lines = [_line(remedy, text) for remedy in decision.remedies]
    return tag("ul", lines, class_="gg-remedies") if lines else empty(text("remedy.none"))


def _line(remedy: Remedy, text: Text) -> Html:
    said = change_sentence(remedy.change, text)
    effects = _effect(text, "cost", remedy.cost_ratio) + _effect(text, "time", remedy.time_ratio)
    effects += _effect(text, "unit", remedy.unit_ratio)
    if remedy.makes_fit:
        effects = [text("remedy.makes_fit", machine=f"{remedy.gpus}× {remedy.gpu}", cost=text.money(remedy.cost_usd))]
    settable = {key: list(value) if isinstance(value, tuple) else value for key, value in remedy.change.items()}
    name = text("remedy.apply_what", what=said)
    apply = button(text("remedy.apply"), class_="gg-button", data_set=settable, aria_label=name)
    return tag("li", tag("div", tag("b", said), tag("small", text.listed(effects))), apply)


def change_sentence(change: Mapping[str, Any], text: Text) -> str:
    """'Weight format: FP8' for every key that is given a value."""
    shown = [
        text("remedy.change", label=text(f"control.{key}.label"), value=value_in_words(key, value, text))
        for key, value in change.items()
        if value is not None
    ]
    return text.listed(shown)


def value_in_words(key: str, value: Any, text: Text) -> str:
    """A value of the Scenario as a reader knows it from the controls."""
    if isinstance(value, bool):
        return text("option.yes" if value else "option.no")
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or text("option.all")
    if isinstance(value, int | float):
        return text.exact(value)
    return text.name(f"option.{key}", value)


def _effect(text: Text, what: str, ratio: float) -> list[str]:
    """'costs 40 % less' where it differs by at least one percent."""
    if not math.isfinite(ratio) or abs(ratio - 1) < 0.01:
        return []
    if ratio > 2:
        return [text(f"remedy.{what}_times", times=text.number(ratio, 2))]
    return [text(f"remedy.{what}_{'less' if ratio < 1 else 'more'}", share=text.percent(abs(1 - ratio)))]
