"""The frame of a page as HTML: navigation, the question it answers, titles of cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuguide.app.declaration import PAGES, Card
from gpuguide.show.html import Html, button, join, tag
from gpuguide.text import LANGUAGES, Text

CARRIED = (
    "model", "params_b", "gpu", "providers", "regions", "countries", "offer_kinds", "pricing", "max_price_age_days",
    "preference", "headroom", "currency", "currency_per_usd", "language",
)  # fmt: skip
"""Keys of the address that go along when the reader changes the page."""


def header(current: str, text: Text) -> Html:
    """Navigation between pages, which takes the model along, and the language switch."""

    def link(name: str) -> Html:
        here = "page" if name == current else None
        return tag("li", tag("a", text(f"page.{name}.short"), href=name, aria_current=here))

    switch = [
        button(name, lang=code, data_set={"language": code}, aria_pressed=str(code == text.language).lower())
        for code, name in LANGUAGES.items()
    ]
    return tag(
        "header",
        tag("a", "gpuguide", class_="gg-brand", href="index"),
        tag("nav", tag("ul", [link(name) for name in ("index", *PAGES)]), aria_label=text("nav")),
        tag("div", switch, class_="gg-language", role="group", aria_label=text("language")),
        data_carry=",".join(CARRIED),
    )


def intro(name: str, presets: Mapping[str, Mapping[str, Any]], text: Text) -> Html:
    """The question a page answers, why it matters, and ready-made examples."""
    chips = [button(text(f"preset.{name}.{key}"), class_="gg-chip", data_set=values) for key, values in presets.items()]
    examples = tag(
        "div", tag("span", text("examples")), chips, class_="gg-chips", role="group", aria_label=text("examples")
    )
    title = tag("h1", text(f"page.{name}.title"), id="gg-question", tabindex="-1")
    return join([title, tag("p", text(f"page.{name}.lead")), examples if chips else None])


def card_title(card: Card, text: Text) -> Html:
    """Title of a card with its explanation and downloads."""
    kinds = ("csv", "xlsx") if card.download else ()
    downloads = [
        button(kind.upper(), class_="gg-tool", data_download=kind, aria_label=text("export_table", kind=kind.upper()))
        for kind in kinds
    ]
    title = tag("h2", text(f"card.{card.key}.title"))
    explained = tag("p", text(f"card.{card.key}.help")) if text.has(f"card.{card.key}.help") else None
    return join([tag("div", title, tag("span", downloads, class_="gg-tools"), class_="gg-title"), explained])
