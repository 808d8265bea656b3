"""Decisions that tests of the pictures share."""

import pytest

from gpuguide import Scenario, decide, load_catalog

SCENARIOS = {
    "serve": {"workload": "serve", "model": "llama-3.1-8b", "concurrency": 8},
    "qlora": {"workload": "qlora", "model": "llama-3.1-8b"},
    "pretrain": {"workload": "pretrain", "params_b": 7, "train_tokens": 1e11},
    "nothing": {"workload": "full", "model": "llama-3.1-405b", "gpus": 1, "gpu": ["L4"], "zero_stage": 0},
}


@pytest.fixture(scope="session")
def decision_of():
    """The decision of a scenario by name."""
    known = {}

    def decided(name):
        if name not in known:
            known[name] = decide(load_catalog().resolve(Scenario(**SCENARIOS[name])))
        return known[name]

    return decided
