"""What a page declares: its controls, its cards, and what a card draws from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuguide.text import Text

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision

Groups = Mapping[str, Sequence[str]]
"""Keys of controls by group."""
PAGES = ("memory", "train", "finetune", "serve", "media", "scale", "spot", "market", "compare", "accuracy")
"""In the order of the navigation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a card draws from: the decision, and a way to ask about a neighbouring scenario."""

    decision: Decision
    text: Text
    ask: Callable[[Mapping[str, Any]], Decision]
    given: Mapping[str, Any]  # what the controls say


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One box of the answer; `draw` makes a figure (a mapping), HTML (a text) or columns of a grid from an Answer."""

    key: str  # title under card.KEY.title, a line of explanation under card.KEY.help
    draw: Callable[..., Any]
    chart: bool = True
    grid: tuple[tuple[int, str], ...] | None = None  # a long table, sorted by these columns: (place, 'asc' or 'desc')
    wide: bool = False
    slow: bool = False
    download: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """What makes a page different from the others."""

    name: str
    workloads: tuple[str, ...]
    groups: Groups
    cards: tuple[Card, ...]
    start: Mapping[str, Any]
    presets: Mapping[str, Mapping[str, Any]]  # name (text under preset.PAGE.NAME) to values
