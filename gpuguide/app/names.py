"""Providers and countries by the names they go by, on pages; links and the command line keep the short keys."""

from __future__ import annotations

from functools import cache

from gpuguide.catalog.package import read_table
from gpuguide.text import Text


@cache
def provider_names() -> dict[str, str]:
    """Name of every provider, by the key under which a Text looks it up; what stands in brackets is left out."""
    table = read_table("providers")
    return {
        f"option.providers.{key}": str(name).partition(" (")[0]
        for key, name in zip(table["provider"], table["name"], strict=True)
    }


def page_text(language: str, currency: str, currency_per_usd: float | None) -> Text:
    """Words of a page: those of its language, and the names of providers and countries."""
    text = Text(language, currency, currency_per_usd)
    countries = {f"option.countries.{code}": name for code, name in text.locale.territories.items()}
    text.texts = {**text.texts, **provider_names(), **countries}
    return text
