"""Phases of a media pipeline: the fullest is the decision's memory, and offload empties all but what works."""

import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.decide.phases import phases
from gpuguide.errors import GuideError, NotModelled
from gpuguide.units import BANDS, GIB

CASES = [
    {"workload": "image", "model": "flux.1-dev"},
    {"workload": "image", "model": "flux.1-dev", "offload": "sequential", "gpu": ["RTX4090"]},
    {"workload": "video", "model": "wan2.1-t2v-14b", "offload": "all"},
    {"workload": "video", "model": "hunyuanvideo", "items": 1},
]


def decided(**keys):
    return decide(load_catalog().resolve(Scenario(**keys)))


@pytest.mark.parametrize("keys", CASES, ids=lambda keys: f"{keys['model']}, {keys.get('offload', 'none')}")
def test_the_fullest_phase_is_what_the_ranking_says(keys):
    """The page would mark another need than the one the offer was chosen by."""
    decision = decided(**keys)
    table, best = phases(decision), decision.best
    for band in BANDS:
        column = f"total_{band}_bytes"
        assert table[column].max() == pytest.approx(best[f"memory_{column}"])
    assert table["peak"].sum() == 1
    parts = table[["weights_bytes", "activations_bytes", "reserved_bytes"]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(table["total_typical_bytes"].to_numpy())
    assert table["seconds"].sum() == pytest.approx(best["batch_s_typical"])


def test_flux_on_a_10_gb_card():
    """24 GB of denoiser on 10 GB: component by component it lacks memory, module by module it fits and is offered."""
    asked = {"workload": "image", "model": "flux.1-dev", "gpu": ["RTX3080-10GB"], "gpus": 1}
    whole = decided(**asked)
    assert whole.best is None
    assert decided(**asked, offload="all").best is None
    found = decided(**asked, offload="sequential").best
    assert found["plan"]["offload"] == "sequential"
    assert found["memory_total_high_bytes"] < 5 * GIB
    assert {"offload": "sequential"} in [dict(remedy.change) for remedy in whole.remedies]


def test_what_has_no_phases_is_refused():
    for keys in ({"workload": "audio", "model": "whisper-large-v3"}, {"workload": "serve", "model": "llama-3.1-8b"}):
        with pytest.raises(NotModelled):
            phases(decided(**keys))


@pytest.mark.parametrize(
    "keys",
    [
        {"workload": "full", "model": "llama-3.1-8b"},
        {"workload": "audio", "model": "whisper-large-v3"},
        {"workload": "lora", "model": "flux.1-dev"},
    ],
    ids=["training", "one token at a time", "fine-tuning a pipeline"],
)
def test_sequential_offload_is_for_generating_with_pipelines(keys):
    """An answer for another way to move weights."""
    with pytest.raises(GuideError):
        decided(**keys, offload="sequential")
