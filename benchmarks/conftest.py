"""Scenarios that are timed, and the catalog they are asked of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuguide import Catalog, Question, Scenario, load_catalog

collect_ignore = [path.name for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_")]
"""Scripts are run by themselves."""

SCENARIOS: dict[str, dict[str, object]] = {
    "lora": {"workload": "lora", "model": "llama-3.1-8b"},
    "qlora": {"workload": "qlora", "model": "llama-3.1-70b"},
    "full": {"workload": "full", "model": "llama-3.1-8b"},
    "pretrain": {"workload": "pretrain", "model": "llama-3.1-8b"},
    "pretrain-moe": {"workload": "pretrain", "model": "mixtral-8x7b"},
    "serve": {"workload": "serve", "model": "llama-3.1-70b", "concurrency": 32},
    "serve-moe": {"workload": "serve", "model": "deepseek-v3", "concurrency": 32},
    "image": {"workload": "image", "model": "flux.1-dev"},
}


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(params=SCENARIOS.values(), ids=SCENARIOS.keys())
def question(request: pytest.FixtureRequest, catalog: Catalog) -> Question:
    return catalog.resolve(Scenario.from_mapping(request.param))
