"""A derived architecture has the same typical answer and a wider band."""

from dataclasses import replace

import pytest

from gpuguide import Scenario, decide, load_catalog


@pytest.mark.parametrize("workload", ["lora", "serve"])
def test_parameter_count_alone_widens_the_band(workload):
    """The same shape, read and derived: an equal band would hide that heads and widths are guesses."""
    catalog = load_catalog()
    asked = Scenario(workload=workload, params_b=8, gpu=("H100-SXM",), gpus=1, offer_kinds=("on_demand", "marketplace"))
    derived = decide(catalog.resolve(asked))
    known = decide(replace(derived.question, model=replace(derived.question.model, derived=False)))
    for quantity in ("memory_total_{}_bytes", "hours_{}", "tokens_per_s_{}"):
        wide, narrow = derived.best, known.best
        assert wide[quantity.format("typical")] == pytest.approx(narrow[quantity.format("typical")])
    assert wide["memory_total_high_bytes"] > narrow["memory_total_high_bytes"]
    assert wide["tokens_per_s_low"] < narrow["tokens_per_s_low"]
