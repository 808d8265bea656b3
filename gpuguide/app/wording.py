"""Errors in the reader's language: the sentence of the error's key, and the reason where it can be recognised."""

from __future__ import annotations

import re

from gpuguide.errors import GuideError
from gpuguide.text import Text

REASONS = (
    (re.compile(r"should be greater than or equal to (?P<limit>[\d.e+]+)"), "greater_equal"),
    (re.compile(r"should be greater than (?P<limit>[\d.e+]+)"), "greater"),
    (re.compile(r"should be less than or equal to (?P<limit>[\d.e+]+)"), "less_equal"),
    (re.compile(r"should be less than (?P<limit>[\d.e+]+)"), "less"),
    (re.compile(r"reads at most (?P<limit>\d+) tokens"), "context"),
    (re.compile(r"prompt_tokens and output_tokens together need (?P<limit>\d+)"), "exchange"),
    (re.compile(r"smallest adapted layer is (?P<limit>\d+) wide"), "rank"),
    (re.compile(r"divide the model's (?P<limit>\d+) attention heads"), "heads"),
    (re.compile(r"the model has (?P<limit>\d+) layers"), "layers"),
    (re.compile(r"largest machine asked for has (?P<limit>\d+) GPUs"), "machine"),
    (re.compile(r"valid (?:number|integer)|not a number above zero"), "number"),
)
"""Findings of the checks, and the text under `allowed.` that says the same."""


def error_sentence(error: GuideError, text: Text) -> str:
    """What is wrong and what is allowed, in one sentence."""
    if not text.has(error.key):
        return str(error)
    values = {key: "" if value is None else str(value) for key, value in error.values.items()}
    field = values.get("field", "")
    if text.has(f"control.{field}.label"):
        values["field"] = text(f"control.{field}.label")
    if "kind" in values:
        values["kind"] = text.name("kind", values["kind"])
    if "allowed" in values:
        values["allowed"] = _reason(values["allowed"], text)
    hint = " " + text("error_near", near=values["near"]) if values.get("near") else ""
    return text(error.key, **values) + hint


def _reason(finding: str, text: Text) -> str:
    for pattern, key in REASONS:
        found = pattern.search(finding)
        if found:
            limit = found.groupdict().get("limit")
            return text(f"allowed.{key}", limit=text.exact(float(limit)) if limit else "")
    return f": {finding}" if text.language == "en" else ""
