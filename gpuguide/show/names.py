"""Providers and countries by the names they go by, wherever a person reads; links, CSV and JSON rows keep the keys."""

from __future__ import annotations

from functools import cache

from gpuguide.catalog.catalog import shown_name
from gpuguide.catalog.package import read_columns
from gpuguide.text import Text


@cache
def provider_names() -> dict[str, str]:
    """Name of every provider, by the key under which a Text looks it up; what stands in brackets is left out."""
    table = read_columns("providers")
    return {
        f"option.providers.{key}": shown_name(str(name))
        for key, name in zip(table.values("provider"), table.values("name"), strict=True)
    }


def text_with_names(language: str, currency: str = "USD", currency_per_usd: float | None = None) -> Text:
    """Words of a language, and the names of providers and countries."""
    text = Text(language, currency, currency_per_usd)
    countries = {f"option.countries.{code}": name for code, name in text.locale.territories.items()}
    text.texts = {**text.texts, **provider_names(), **countries}
    return text
