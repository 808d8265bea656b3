"""Engine presets: the limits a server starts with on a card."""

import numpy as np
import pytest

from gpuguide.catalog.formats import rows_by_name
from gpuguide.catalog.package import read_table
from gpuguide.spec.engine import LIMITS, WINDOW_POLICIES, Engine
from gpuguide.units import GIB

ENGINES = rows_by_name(read_table("engines"), Engine)


@pytest.mark.parametrize(
    ("tokens", "sequences", "memory_gib", "architecture"),
    [
        pytest.param(8192, 1024, 79.2, "Hopper", id="H100 80 GB"),
        pytest.param(2048, 256, 79.2, "Ampere", id="A100 80 GB keeps the small limits: vLLM PR 17885"),
        pytest.param(2048, 256, 31.4, "Blackwell", id="RTX 5090"),
    ],
)
def test_limits_by_card(tokens, sequences, memory_gib, architecture):
    """Working memory follows these limits: the wrong ones are gigabytes off."""
    engine = ENGINES["vllm"]

    assert engine.prefill_tokens_on(memory_gib * GIB, architecture) == tokens
    assert engine.sequences_on(memory_gib * GIB, architecture) == sequences


def test_limits_of_many_cards_at_once():
    """One array of cards must give what each gives alone."""
    memory = np.array([79.2, 79.2, 24.0]) * GIB
    architecture = np.array(["Hopper", "Ampere", "Ada"], dtype=object)

    np.testing.assert_array_equal(ENGINES["vllm"].sequences_on(memory, architecture), [1024, 256, 256])


def test_presets_are_of_known_kinds():
    """A word that no formula knows would fall through a branch."""
    for engine in ENGINES.values():
        assert engine.limit in LIMITS
        assert engine.window_policy in WINDOW_POLICIES
    assert {"vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers"} <= set(ENGINES)
