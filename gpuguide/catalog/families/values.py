"""Reads one config as its model class would: other spellings of a key, class defaults, types and bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from gpuguide.errors import InvalidScenario, NotModelled

MOST_LAYERS = 10_000
MOST = 1_000_000_000  # of any width or count: a thousand times the largest known
Json = Mapping[str, Any]

OLD_NAMES: Mapping[str, Mapping[str, str]] = {
    "bloom": {"n_embed": "hidden_size"},
    "falcon": {
        "n_embed": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_head_kv": "num_kv_heads",
    },
}
"""Spellings of the first checkpoints, beyond the aliases of today's classes."""


@cache
def class_facts() -> dict[str, Any]:
    """Defaults, aliases and nested parts of every model class, from `defaults.json`."""
    text = resources.files("gpuguide.catalog.families").joinpath("defaults.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts


class Values:
    """
    Values of one config.

    Parameters
    ----------
    given : mapping
        The config as read from JSON.
    model_type : str
        Name of the class whose defaults and aliases apply.
    path : str
        Where the config stands within its file ('text_config'), for messages.
    defaulted : list of str
        Shared by all parts of one file: keys answered by a class default, as `name = value`.
    """

    def __init__(self, given: Json, model_type: str, *, path: str = "", defaulted: list[str] | None = None) -> None:
        facts = class_facts().get(model_type, {})
        self.given, self.model_type, self.path = given, model_type, path
        self.defaulted: list[str] = [] if defaulted is None else defaulted
        self._defaults: Json = facts.get("defaults", {})
        self._parts: Json = facts.get("parts", {})
        self._spellings: dict[str, list[str]] = {}
        for other, name in {**facts.get("aliases", {}), **OLD_NAMES.get(model_type, {})}.items():
            self._spellings.setdefault(name, []).append(other)
            self._spellings.setdefault(other, []).append(name)

    # -- whole numbers ------------------------------------------------------------------------------------------------

    def number(self, key: str, *, least: int = 1, most: int = MOST) -> int:
        """A whole number that the class needs; refused by name when neither the config nor the class gives it."""
        value = self.optional(key, least=least, most=most)
        if value is None:
            raise self.missing(key)
        return value

    def optional(self, key: str, *, least: int = 1, most: int = MOST) -> int | None:
        """A whole number, or None where the config says null or the class leaves it open."""
        name, value = self._find(key)
        return None if value is None else self._whole(name, value, least, most)

    def layers(self, key: str = "num_hidden_layers") -> int:
        """Number of layers."""
        return self.number(key, most=MOST_LAYERS)

    def square(self, key: str) -> tuple[int, int]:
        """A size given once or as [height, width]."""
        name, value = self._find(key)
        if value is None:
            raise self.missing(key)
        sides = value if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
        if len(sides) != 2:
            raise self.wrong(name, value, "it must be one number or two")
        return self._whole(name, sides[0], 1, MOST), self._whole(name, sides[1], 1, MOST)

    def real(self, key: str) -> float:
        """A number with a fraction."""
        name, value = self._find(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MOST:
            raise self.wrong(name, value, "it must be a positive number")
        return float(value)

    # -- other types --------------------------------------------------------------------------------------------------

    def flag(self, key: str) -> bool:
        """True or false; null and what no class has are false."""
        name, value = self._find(key)
        if value is None:
            return False
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise self.wrong(name, value, "it must be true or false")

    def text(self, key: str) -> str | None:
        """A word, or None."""
        name, value = self._find(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, value, "it must be text")
        return value

    def words(self, key: str, length: int | None = None) -> list[str] | None:
        """A list of words, of the given length; or None."""
        name, value = self._find(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.wrong(name, value, "it must be a list of words")
        if length is not None and len(value) != length:
            raise self.wrong(name, f"a list of {len(value)}", f"the model has {length} layers")
        return value

    def numbers(self, key: str) -> list[int] | None:
        """A list of whole numbers, or None."""
        name, value = self._find(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) > MOST_LAYERS:
            raise self.wrong(name, value, f"it must be a list of at most {MOST_LAYERS} whole numbers")
        return [self._whole(name, item, 0, MOST) for item in value]

    def has(self, key: str) -> bool:
        """Whether the config itself gives a value, by any spelling."""
        return any(self.given.get(name) is not None for name in self._names(key))

    def part(self, key: str, model_type: str | None = None, *, flat: bool = False) -> Values:
        """
        A nested config; with `flat`, this one where it is not nested.

        A part says its own type only where the class takes any; where it is left out, its class defaults apply.
        """
        spec: Json = self._parts.get(key, {})
        given = self.given.get(key)
        expected = model_type or spec.get("model_type")
        if given is None and flat:
            return Values(self.given, expected or self.model_type, path=self.path, defaulted=self.defaulted)
        if given is None:
            if not expected:
                raise self.missing(key)
            given = spec.get("values", {})
            self.defaulted.append(key)
        if not isinstance(given, Mapping):
            raise self.wrong(key, given, "it must be a nested object")
        said = given.get("model_type")
        chosen = said if model_type is None and isinstance(said, str) else expected
        if not chosen:
            raise self.missing(f"{key}.model_type")
        return Values(given, chosen, path=f"{self.path}{key}.", defaulted=self.defaulted)

    # -- refusals -----------------------------------------------------------------------------------------------------

    def missing(self, key: str) -> InvalidScenario:
        """The error for a key that decides the answer and is not there."""
        return InvalidScenario(
            "model", "this config", f"it lacks {self.path}{key}, which its model class does not supply"
        )

    def wrong(self, key: str, value: object, allowed: str) -> InvalidScenario:
        """The error for a key with an impossible value."""
        return InvalidScenario(f"{self.path}{key}", value, allowed)

    def unmodelled(self, what: str) -> NotModelled:
        """The error for a variant whose parameters are not known here."""
        return NotModelled(what, "give the model by params_b, or by num_hidden_layers, hidden_size and the like")

    # -- lookup -------------------------------------------------------------------------------------------------------

    def _names(self, key: str) -> list[str]:
        return [key, *self._spellings.get(key, ())]

    def _find(self, key: str) -> tuple[str, Any]:
        names = self._names(key)
        nulled = None
        for name in names:
            if name in self.given:
                if self.given[name] is not None:
                    return name, self.given[name]
                nulled = name
        if nulled is not None:
            return nulled, None
        for name in names:
            if name in self._defaults:
                value = self._defaults[name]
                if value is not None and not isinstance(value, bool):
                    note = f"{self.path}{name} = {value}"
                    if note not in self.defaulted:
                        self.defaulted.append(note)
                return name, value
        return key, None

    def _whole(self, name: str, value: Any, least: int, most: int) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= most:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, value, "it must be a whole number")
        if not least <= value <= most:
            raise self.wrong(name, value, f"it must be {least} to {most:,}")
        return value
