"""The place under the roof: published ridges, and traffic that grows with what is moved."""

import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.estimate.results import MemoryBreakdown
from gpuguide.estimate.roofline import decode_bytes, ridge, training_bytes

RIDGES = [  # dense bf16 FLOP per byte; hardware tables of ml-engineering: A100 153, RTX 4090 164, H100 295, L40S 419
    pytest.param("A100-80GB-SXM", 153, id="A100"),
    pytest.param("RTX4090", 164, id="RTX 4090"),
    pytest.param("H100-SXM", 295, id="H100"),
    pytest.param("L40S", 419, id="L40S"),
]


@pytest.mark.parametrize(("name", "expected"), RIDGES)
def test_published_ridges(name, expected):
    gpu = load_catalog().gpu(name)
    found = ridge(peak_flops_per_s=gpu.flops["bf16"], memory_bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s)
    assert found == pytest.approx(expected, rel=0.01)


def test_traffic_counts_each_part_as_often_as_it_is_used():
    memory = MemoryBreakdown(weights=10.0, gradients=10.0, optimizer=40.0, activations=5.0, kv_cache=3.0)
    assert training_bytes(memory=memory, micro_batches=2.0) == 2 * (30 + 10) + 2 * 60
    assert decode_bytes(memory=memory) == 13.0


def test_batching_moves_a_server_to_the_right():
    """More requests per reading of the weights: the point moves towards the ridge, never past the roof."""
    catalog = load_catalog()
    before = 0.0
    for concurrency in (1, 16, 64):
        asked = Scenario(workload="serve", model="llama-3.1-8b", concurrency=concurrency, gpu=("H100-SXM",), gpus=1)
        row = decide(catalog.resolve(asked)).best
        assert row["intensity_flop_per_byte"] > before
        roof = min(row["peak_flops_per_s"], row["intensity_flop_per_byte"] * row["memory_bandwidth_bytes_per_s"])
        assert row["achieved_flops_per_s"] <= roof * 1.001
        before = row["intensity_flop_per_byte"]
