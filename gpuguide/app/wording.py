"""
Errors in the reader's language.

What pydantic finds wrong with a field comes with its kind and figures. Our own checks say it in an English sentence:
`finding.` in `text/en.toml` holds every such sentence with its parts named, as message catalogues do, so that the one
that was said can be told, taken apart, and said in another language.
"""

from __future__ import annotations

import re
from functools import cache

from gpuguide.errors import DataError, GuideError, InvalidScenario, NotModelled, UnknownName
from gpuguide.text import Text, texts

REASONS = {
    "int_type": "whole", "int_parsing": "whole", "int_parsing_size": "whole", "int_from_float": "whole",
    "float_type": "number", "float_parsing": "number", "finite_number": "number", "number": "number",
    "bool_type": "boolean", "bool_parsing": "boolean", "string_type": "text", "string_unicode": "text",
    "tuple_type": "names", "literal_error": "choice", "string_too_long": "longest", "string_too_short": "shortest",
    "greater_than": "greater_than", "greater_than_equal": "greater_than_equal",
    "less_than": "less_than", "less_than_equal": "less_than_equal",
}  # fmt: skip
"""Kinds of findings of pydantic, and the text under `allowed.` that says them."""
GROUPS = {"task": "option.workload", "workload": "option.workload"}
"""Parts of a finding that have a name in the reader's language, and where it stands."""
NUMBER = re.compile(r"\d[\d,]*(\.\d+)?(e[+-]?\d+)?")


def error_sentence(error: GuideError, text: Text) -> str:
    """What is wrong, what is allowed and what to do, in one sentence."""
    if isinstance(error, UnknownName):
        hint = " " + text("error_near", near=", ".join(error.near)) if error.near else ""
        return text(error.key, kind=text.name("kind", error.kind), name=error.values["name"]) + hint
    if isinstance(error, InvalidScenario):
        allowed = _reason(error, text) or _after_colon(said(error.allowed, text))
        return text(error.key, field=_named(error.field, text), value=error.values["value"], allowed=allowed)
    if isinstance(error, NotModelled):
        what = said(str(error.values["what"]), text)
        if not what:
            return text("error_not_modelled_plain")
        return text(error.key, what=what, instead=_after_colon(said(str(error.values["instead"]), text)))
    if isinstance(error, DataError):
        row = text("error_row", row=error.row) if error.row is not None else ""
        column = text("error_column", column=error.column) if error.column else ""
        return text(error.key, place=f"{error.file}{row}{column}", problem=_after_colon(said(error.problem, text)))
    return str(error) if text.language == "en" else text("error_ours")


def said(finding: str, text: Text) -> str:
    """An English finding in the reader's language; empty where that language has no words for it."""
    if text.language == "en":
        return finding
    if re.fullmatch(r"\S+", finding):  # a name, or one value
        return finding
    for key, pattern in _patterns():
        found = pattern.fullmatch(finding)
        if found:
            return text(f"finding.{key}", **{name: _part(name, part, text) for name, part in found.groupdict().items()})
    return ""


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Every finding as a pattern of its English sentence, the one with most words of its own first."""
    sentences = {key.partition(".")[2]: str(words) for key, words in texts("en").items() if key.startswith("finding.")}
    by_words = sorted(sentences.items(), key=lambda item: -len(re.sub(r"\{\w+\}", "", item[1])))
    return [(key, re.compile(_pattern(words), re.DOTALL)) for key, words in by_words]


def _pattern(words: str) -> str:
    pieces = re.split(r"\{(\w+)\}", words)
    return "".join(f"(?P<{piece}>.+?)" if place % 2 else re.escape(piece) for place, piece in enumerate(pieces))


def _part(name: str, part: str, text: Text) -> str:
    """One part of a finding: numbers as the reader writes them, keys and workloads by their names."""
    if name in GROUPS:
        return text.name(GROUPS[name], part)
    if name == "setting":
        return _named(part, text)
    return text.exact(float(part.replace(",", ""))) if NUMBER.fullmatch(part) else part


def _reason(error: InvalidScenario, text: Text) -> str:
    key = REASONS.get(error.reason or "")
    if key is None:
        return ""
    figures = {name: _figure(value, text) for name, value in error.facts.items()}
    if key == "choice":
        names = re.findall(r"'([^']*)'", str(error.facts.get("expected", "")))
        figures["choices"] = ", ".join(text.name(f"option.{error.field}", name) for name in names)
    return text(f"allowed.{key}", **figures)


def _figure(value: object, text: Text) -> str:
    return text.exact(float(value)) if isinstance(value, int | float) else str(value)


def _named(field: str, text: Text) -> str:
    """Labels in place of keys: of one, or of several joined by '+' or 'x'."""
    parts = re.split(r"( [+x] )", field)
    labels = [text(f"control.{part}.label") if text.has(f"control.{part}.label") else part for part in parts]
    return "".join(labels)


def _after_colon(words: str) -> str:
    return f": {words}" if words else ""
