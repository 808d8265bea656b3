"""
What is touched: the pages of the suite, alive in a notebook, in JupyterLab and under Voila.

Every function takes keys of the Scenario and shows its page: ``serve_page(model="llama-3.1-70b", language="tr")``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuguide.app.accuracy import AccuracyPage
    from gpuguide.app.alone import Alone
    from gpuguide.app.chart import Chart
    from gpuguide.app.compare import ComparePage
    from gpuguide.app.market import MarketPage
    from gpuguide.app.page import Page
    from gpuguide.show.html import Html

__all__ = [
    "accuracy_page",
    "compare_page",
    "finetune_page",
    "index_page",
    "market_page",
    "media_page",
    "memory_page",
    "scale_page",
    "serve_page",
    "show_figure",
    "show_table",
    "spot_page",
    "train_page",
]


def _page(name: str, given: dict[str, Any]) -> Page:
    from gpuguide.app.page import Page
    from gpuguide.app.pages import DECLARATIONS
    from gpuguide.catalog.catalog import load_catalog

    return Page(DECLARATIONS[name], load_catalog(), given)


def index_page(**scenario: Any) -> Page:
    """Three questions that lead to an answer and to the page with its details."""
    return _page("index", scenario)


def memory_page(**scenario: Any) -> Page:
    """Does it fit: memory of a job on every kind of GPU."""
    return _page("memory", scenario)


def train_page(**scenario: Any) -> Page:
    """What a training run takes: time, plan and cost."""
    return _page("train", scenario)


def finetune_page(**scenario: Any) -> Page:
    """QLoRA, LoRA and full fine-tuning of one model, side by side."""
    return _page("finetune", scenario)


def serve_page(**scenario: Any) -> Page:
    """Serving a language model: memory, speed and price per million tokens."""
    return _page("serve", scenario)


def scale_page(**scenario: Any) -> Page:
    """How many GPUs are worth it."""
    return _page("scale", scenario)


def spot_page(**scenario: Any) -> Page:
    """Spot, on demand and reserved, with what interruptions cost."""
    return _page("spot", scenario)


def media_page(**scenario: Any) -> Page:
    """Images, video and sound: what a picture, a clip or an hour costs."""
    return _page("media", scenario)


def market_page(**given: Any) -> MarketPage:
    """Every offer in one table: `gpu`, `providers`, `pricing`, `gpus`, `offer_kinds` narrow it."""
    from gpuguide.app.market import MarketPage
    from gpuguide.catalog.catalog import load_catalog

    return MarketPage(load_catalog(), given)


def compare_page(**given: Any) -> ComparePage:
    """Up to four scenarios side by side: `a` to `d`, each as an address, a mapping or a Scenario."""
    from gpuguide.app.compare import ComparePage
    from gpuguide.catalog.catalog import load_catalog

    return ComparePage(load_catalog(), given)


def accuracy_page(**given: Any) -> AccuracyPage:
    """Estimates against published measurements: `table`, `find` and `row` say where to start."""
    from gpuguide.app.accuracy import AccuracyPage
    from gpuguide.catalog.catalog import load_catalog

    return AccuracyPage(load_catalog(), given)


def show_figure(figure: Mapping[str, Any]) -> Chart:
    """A figure of `gpuguide.show.figures` or `sweeps` alone, in any notebook."""
    from gpuguide.app.chart import Chart

    alone = Chart()
    alone.show(figure)
    return alone


def show_table(html: Html) -> Alone:
    """A table or sentence of `gpuguide.show` alone, in any notebook."""
    from gpuguide.app.alone import Alone

    return Alone(html=html)


def warm_up() -> None:
    """Import and read what every page needs, and answer once, so that a fork of this process starts at once."""
    from gpuguide.app.pages import DECLARATIONS
    from gpuguide.catalog.catalog import load_catalog
    from gpuguide.decide.pipeline import decide
    from gpuguide.spec.scenario import Scenario
    from gpuguide.text import LANGUAGES, texts

    for language in LANGUAGES:
        texts(language)
    catalog = load_catalog()
    for declaration in DECLARATIONS.values():
        decide(catalog.resolve(Scenario.from_mapping(declaration.start)))
