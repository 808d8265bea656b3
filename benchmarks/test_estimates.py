"""How many (plan, machine) pairs a second one core estimates: memory with its band, time with typical values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuguide import Catalog, Scenario
from gpuguide.decide.fit import PIECE
from gpuguide.decide.search import serving_pairs, training_pairs
from gpuguide.estimate.serving import serving_speed
from gpuguide.estimate.serving_memory import kv_room_bytes, serving_memory
from gpuguide.estimate.training import training_speed
from gpuguide.estimate.training_memory import training_memory

TRAINING = {
    "dense": {"workload": "pretrain", "model": "llama-3.1-8b"},
    "experts": {"workload": "pretrain", "model": "mixtral-8x7b"},
    "fine-tuning": {"workload": "full", "model": "llama-3.1-8b"},
}


@pytest.fixture(params=TRAINING.values(), ids=TRAINING.keys())
def pairs(request: pytest.FixtureRequest, catalog: Catalog) -> dict[str, Any]:
    """A piece of the search as `decide` gives it to the estimates, drawn from all pairs of the market."""
    question = catalog.resolve(Scenario.from_mapping(request.param))
    every = training_pairs(question.model, question.job, question.scenario, question.shapes)
    some = np.sort(np.random.default_rng(0).choice(len(every), PIECE, replace=False))
    return {
        "model": question.model,
        "job": question.job,
        "plan": every.plan.take(some),
        "nodes": question.shapes.take(every.shape[some]),
        "assumptions": question.assumptions,
    }


def test_memory_and_speed(benchmark: Any, pairs: dict[str, Any]) -> None:
    typical = pairs | {"assumptions": pairs["assumptions"].typical()}
    benchmark(lambda: (training_memory(**pairs).total, training_speed(**typical).step_s))
    benchmark.extra_info["pairs"] = PIECE


def test_memory(benchmark: Any, pairs: dict[str, Any]) -> None:
    benchmark(lambda: training_memory(**pairs).total)
    benchmark.extra_info["pairs"] = PIECE


def test_speed(benchmark: Any, pairs: dict[str, Any]) -> None:
    typical = pairs | {"assumptions": pairs["assumptions"].typical()}
    benchmark(lambda: training_speed(**typical).step_s)
    benchmark.extra_info["pairs"] = PIECE


def test_serving(benchmark: Any, catalog: Catalog) -> None:
    """Serving memory, room for the cache and speed of every split on every shape."""
    question = catalog.resolve(Scenario(workload="serve", model="llama-3.1-70b", concurrency=32))
    every = serving_pairs(question.model, question.job, question.scenario, question.shapes)
    nodes, assumptions = question.shapes.take(every.shape), question.assumptions
    given = {"model": question.model, "job": question.job, "plan": every.plan, "nodes": nodes}

    def estimate() -> None:
        _ = serving_memory(**given, assumptions=assumptions).total
        typical = assumptions.typical()
        room = kv_room_bytes(**given, assumptions=typical)
        serving_speed(**given, assumptions=typical, kv_room_bytes=room)

    benchmark(estimate)
    benchmark.extra_info["pairs"] = len(every)
