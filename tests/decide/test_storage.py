"""Reading against consuming."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide import Scenario, decide, load_catalog
from gpuguide.catalog.formats import assumptions_from_table
from gpuguide.catalog.package import read_table
from gpuguide.decide.storage import SOURCES, checkpoint_write_s, feed, needed_bytes_per_s
from gpuguide.errors import InvalidScenario
from gpuguide.units import GB


@pytest.fixture(scope="module")
def assumptions():
    return assumptions_from_table(read_table("assumptions"))


def test_tokens_never_starve_a_run(assumptions):
    """T9: a million tokens per second are 2 MB/s."""
    needed = needed_bytes_per_s(per_s=1e6, bytes_each=2.0)

    assert needed == 2e6
    for source in SOURCES:
        assert feed(needed_bytes_per_s=needed, nodes=1.0, source=source, assumptions=assumptions).slow_down.max() == 1.0


def test_images_from_a_small_volume_starve_a_run(assumptions):
    """2,500 images of 0.3 MB per second are 750 MB/s; EBS gp3 as created gives 125 MB/s: six times longer."""
    needed = needed_bytes_per_s(per_s=2500.0, bytes_each=3e5)
    slow = feed(needed_bytes_per_s=needed, nodes=1.0, source="volume", assumptions=assumptions, rate_bytes_per_s=1.25e8)
    usual = feed(needed_bytes_per_s=needed, nodes=1.0, source="volume", assumptions=assumptions)
    local = feed(needed_bytes_per_s=needed, nodes=1.0, source="nvme", assumptions=assumptions)

    assert slow.slow_down == pytest.approx(6.0)
    assert slow.starves
    assert usual.slow_down[:, 0].tolist() == pytest.approx([1.0, 1.5, 6.0])
    assert not local.starves.any()


@given(needed=st.floats(1, 1e12), more=st.floats(0, 1e12), nodes=st.integers(1, 100), source=st.sampled_from(SOURCES))
def test_faster_consumption_never_waits_less_and_more_machines_never_wait_longer(
    assumptions, needed, more, nodes, source
):
    calm, hungry, wide = (
        feed(needed_bytes_per_s=rate, nodes=float(count), source=source, assumptions=assumptions).slow_down
        for rate, count in ((needed, nodes), (needed + more, nodes), (needed, nodes + 1))
    )

    assert (calm <= hungry).all()
    assert (wide <= calm).all()
    assert (calm >= 1).all()
    assert (np.diff(calm[:, 0]) >= 0).all()


def test_checkpoint_of_llama_2_70b(assumptions):
    """280 GB written by one machine at 0.2 to 5 GB/s; two machines write half each."""
    one = checkpoint_write_s(checkpoint_bytes=280e9, nodes=np.array([1.0]), assumptions=assumptions)
    two = checkpoint_write_s(checkpoint_bytes=280e9, nodes=np.array([2.0]), assumptions=assumptions)

    assert one[1, 0] == pytest.approx(280.0)
    assert one[2, 0] == pytest.approx(1400.0)
    np.testing.assert_allclose(two * 2, one)


def test_unknown_source_is_refused(assumptions):
    with pytest.raises(InvalidScenario, match="volume, nvme, bucket"):
        feed(needed_bytes_per_s=1.0, nodes=1.0, source="tape", assumptions=assumptions)


# ---- as a renter asks ------------------------------------------------------------------------------------------------

PICTURES = {"workload": "full", "model": "llama-3.1-8b", "train_tokens": 1e9, "gpu": ["H100-SXM"], "gpus": 8}


def decided(**scenario):
    return decide(load_catalog().resolve(Scenario.from_mapping(PICTURES | scenario)))


def test_a_slow_reader_makes_the_run_longer_by_the_ratio():
    """GPUs that wait for data would be billed as if they worked."""
    free = decided(data_bytes_per_token=1000, data_gb_per_s=1000).ranking.set_index("instance_type")
    needed_gb_per_s = free["data_needed_bytes_per_s"].iloc[0] / GB
    slow = decided(data_bytes_per_token=1000, data_gb_per_s=needed_gb_per_s / 3)
    row, before = slow.best, free.loc[slow.best["instance_type"]]
    assert row["storage_slow_down"] == pytest.approx(3, rel=1e-6)
    assert row["cost_compute_usd"] == pytest.approx(3 * float(np.min(before["cost_compute_usd"])), rel=1e-6)
    assert "warning_storage_starves" in dict(slow.warnings)
    assert "warning_storage_starves" not in dict(decided().warnings)


def test_the_sources_stand_in_the_order_of_their_rates():
    """A network volume that outruns drives in the machine, or a control that changes nothing."""
    rates = {source: decided(data_source=source).best["data_available_bytes_per_s"] for source in SOURCES}
    assert rates["volume"] <= rates["bucket"] < rates["nvme"]


def test_local_drives_are_filled_at_each_start():
    """The fastest storage for nothing: the copy before work would be free."""
    heavy = {"data_bytes_per_token": 500, "interruptions_per_hour": 0}
    volume, local, often = (
        decided(**heavy, **change).best
        for change in ({}, {"data_source": "nvme"}, {"data_source": "nvme", "sessions": 4})
    )
    assert local["cost_setup_usd"] > volume["cost_setup_usd"]
    assert often["cost_setup_usd"] == pytest.approx(4 * local["cost_setup_usd"], rel=1e-6)
    assert decided(**heavy, data_source="nvme", setup_minutes=0).best["cost_setup_usd"] == 0


def test_a_source_that_does_not_exist_is_refused():
    """A misspelt source would be read as the default."""
    with pytest.raises(InvalidScenario):
        Scenario(data_source="floppy")
