"""Throughput against latency: the decision's own numbers at its own load, and curves that bend as physics bends."""

import numpy as np
import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.decide.curve import load_curves
from gpuguide.errors import NotModelled

JOBS = {
    "one GPU": {"model": "llama-3.1-8b", "concurrency": 16},
    "experts over several GPUs": {"model": "deepseek-v3", "concurrency": 64, "max_context": 32768},
    "arrivals instead of concurrency": {"model": "llama-3.1-70b", "requests_per_s": 2.0},
    "llama.cpp": {"model": "llama-3.1-8b", "engine": "llama.cpp", "weight_format": "Q4_K_M", "concurrency": 4},
}


@pytest.fixture(scope="module", params=JOBS.values(), ids=JOBS)
def decision(request):
    return decide(load_catalog().resolve(Scenario(workload="serve", **request.param)))


@pytest.fixture(scope="module")
def curves(decision):
    return load_curves(decision)


def test_at_the_readers_load_the_curve_is_the_decision(decision, curves):
    """A picture that says other numbers than the ranking beside it."""
    if decision.scenario.requests_per_s:
        pytest.skip("the load is a whole number of requests near the one that arrivals lead to")
    own = curves[curves["asked"]].drop_duplicates("place")
    assert len(own) == curves["place"].nunique() > 1
    by_gpu = decision.by_gpu.set_index("gpu")
    for row in own.to_dict("records"):
        for name in ("tokens_per_s", "tpot_s", "ttft_s"):
            assert row[f"{name}_typical"] == pytest.approx(by_gpu.loc[row["gpu"], f"{name}_typical"])


def test_arrivals_are_marked_at_the_load_they_lead_to(decision, curves):
    """Little's law: the requests that run at once are the rate times the stay."""
    best = decision.best
    own = curves[curves["asked"] & (curves["place"] == 0)].iloc[0]
    assert own["concurrency"] == pytest.approx(best["running"] * best["replicas"], abs=0.5)
    assert own["tokens_per_s_typical"] == pytest.approx(best["tokens_per_s_typical"], rel=0.05)


def test_more_requests_are_more_tokens_and_longer_waits(curves):
    """A batch that makes each request faster, or the whole slower, would be a free lunch or a bug."""
    for _, rows in curves.groupby("place"):
        assert (np.diff(rows["concurrency"]) > 0).all()
        for name in ("tokens_per_s", "tpot_s", "ttft_s"):
            assert (np.diff(rows[f"{name}_typical"]) >= -1e-9).all()


def test_bands_enclose_and_servers_are_their_gpus(curves):
    for name in ("tokens_per_s", "tokens_per_s_per_gpu", "tpot_s", "ttft_s"):
        assert (curves[f"{name}_low"] <= curves[f"{name}_typical"]).all()
        assert (curves[f"{name}_typical"] <= curves[f"{name}_high"]).all()
    assert np.allclose(curves["tokens_per_s_per_gpu_typical"] * curves["gpus"], curves["tokens_per_s_typical"])


def test_the_last_load_is_what_there_is_room_for(curves):
    """Each curve ends where requests would queue, and says so there alone (or at the reader's own load beyond)."""
    for _, rows in curves.groupby("place"):
        assert rows["full"].to_numpy()[-1]
        assert not rows["full"].to_numpy()[:-1].any() or rows["asked"].to_numpy()[-1]


def test_targets_part_the_curve():
    """Loads that keep the limit come first; one that breaks it never stands before one that keeps it."""
    scenario = Scenario(workload="serve", model="llama-3.1-8b", max_tpot_s=0.05, max_ttft_s=1.0)
    curves = load_curves(decide(load_catalog().resolve(scenario)))
    kept = (curves["tpot_s_typical"] <= 0.05) & (curves["ttft_s_typical"] <= 1.0)
    assert (curves["within_targets"] == kept).all()
    assert kept.any()
    assert not kept.all()
    for _, rows in curves.groupby("place"):
        assert (np.diff(rows["within_targets"].astype(int)) <= 0).all()


def test_nothing_fits_is_no_row_and_training_is_refused():
    asked = Scenario(workload="serve", model="llama-3.1-405b", gpu=["L4"], gpus=1)
    assert load_curves(decide(load_catalog().resolve(asked))).empty
    with pytest.raises(NotModelled):
        load_curves(decide(load_catalog().resolve(Scenario(workload="qlora", model="llama-3.1-8b"))))
