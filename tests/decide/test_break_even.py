"""Renting against paying by the token: the note's figures agree with the ranking."""

import pytest

from gpuguide import Scenario, decide, load_catalog


@pytest.mark.parametrize(("api_usd", "key"), [(0.5, "note_break_even"), (1e-4, "note_never_breaks_even")])
def test_break_even_agrees_with_the_bill(api_usd, key):
    """Paying for that many tokens must cost exactly what the machine costs."""
    asked = Scenario(workload="serve", model="llama-3.1-8b", concurrency=64, api_usd_per_million_tokens=api_usd)
    decision = decide(load_catalog().resolve(asked))
    found = dict(decision.warnings)[key]
    month = decision.best["cost_total_typical_usd"]
    assert found["tokens"] * api_usd / 1e6 == pytest.approx(month)
    assert found["most"] * decision.best["usd_per_million_tokens"] / 1e6 == pytest.approx(month)
    assert (found["tokens"] <= found["most"]) == (key == "note_break_even")
