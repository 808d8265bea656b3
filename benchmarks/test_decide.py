"""How long an answer takes: every offer of the market ranked, in one process on one core."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest

from gpuguide import Catalog, Question, Scenario, decide, load_catalog
from gpuguide.show.tables import as_csv


def test_warm(benchmark: Any, question: Question) -> None:
    """A slider step: the question is resolved, the answer is not known."""
    decision = benchmark(decide, question)
    benchmark.extra_info |= {
        "offers": len(question.offers),
        "shapes": len(question.shapes),
        "plans": int(decision.rows.found.fit.plans_tried.sum()),
        "ranked": len(decision.best_first),
    }


@pytest.mark.parametrize("workload", ["lora", "full", "serve"])
def test_slider(benchmark: Any, catalog: Catalog, workload: str) -> None:
    """The same with another value each time, and the ten best offers as a table."""
    key = "concurrency" if workload == "serve" else "sequence_length"
    values = cycle([1, 2, 4, 8, 16, 32, 64, 128] if workload == "serve" else [512, 1024, 2048, 4096, 8192])

    def step() -> None:
        decide(catalog.resolve(Scenario.from_mapping({"workload": workload, key: next(values)}))).top(10)

    benchmark(step)


@pytest.mark.parametrize("workload", ["lora", "full", "serve", "pretrain"])
def test_cold(benchmark: Any, workload: str) -> None:
    """The first answer of a process that has imported everything: tables are read, the market is joined."""

    def first() -> None:
        catalog = Catalog()
        decide(catalog.resolve(Scenario.from_mapping({"workload": workload, "model": "llama-3.1-8b"})))

    benchmark(first)


def test_ranking_as_csv(benchmark: Any, catalog: Catalog) -> None:
    """The whole ranking as a table, which only downloads ask for."""
    question = catalog.resolve(Scenario(workload="lora", model="llama-3.1-8b"))
    benchmark(lambda: as_csv(decide(question).ranking))


def test_remedies(benchmark: Any, catalog: Catalog) -> None:
    """What would help: each remedy is an answer of its own."""
    question = catalog.resolve(Scenario(workload="full", model="llama-3.1-70b"))
    benchmark(lambda: decide(question).remedies)


def test_load_catalog(benchmark: Any) -> None:
    """Models, GPUs, assumptions and the market of every provider, from CSV to arrays, each row checked."""

    def load() -> Catalog:
        catalog = Catalog()
        _ = catalog.assumptions, catalog.market
        return catalog

    benchmark(load)


def test_resolve(benchmark: Any, catalog: Catalog) -> None:
    """Names looked up, defaults filled."""
    scenario = Scenario(workload="lora", model="llama-3.1-8b")
    catalog.resolve(scenario)
    benchmark(catalog.resolve, scenario)


def test_load_catalog_again(benchmark: Any) -> None:
    """What a page pays for the tables that another has read."""
    load_catalog()
    benchmark(load_catalog)
