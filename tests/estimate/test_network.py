"""Collectives against published bus bandwidth, and what must hold between them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.estimate import network
from gpuguide.units import GB, GIB, MIB
from tests.estimate.training_cases import assumptions, machines

ALL_REDUCE = [  # measured bus bandwidth [GB/s], tolerance, GPU, GPUs per machine, machines, fabric, message
    pytest.param(222.3, 0.01, ("A100-80GB-SXM", 8, 1), 512 * MIB, id="A100 x 8, 512 MiB, aiconfigurator"),
    pytest.param(234.9, 0.02, ("A100-80GB-SXM", 8, 1), 16 * GIB, id="A100 x 8, 16 GiB, ml-engineering network"),
    pytest.param(361.9, 0.01, ("H100-SXM", 8, 1), 64 * MIB, id="H100 x 8, 64 MiB, aiconfigurator"),
    pytest.param(39.9, 0.80, ("H200-SXM", 8, 1), 1 * MIB, id="H200 x 8, 1 MiB, ml-engineering: two sources differ"),
    pytest.param(741.0, 0.15, ("B200", 8, 1), 4 * GIB, id="B200 x 8, 4 GiB, ml-engineering network"),
    pytest.param(586.0, 0.01, ("GB200", 4, 18), 512 * MIB, id="GB200 NVL72, 512 MiB, coreweave nccl-tests"),
    pytest.param(24.7, 0.10, ("RTXPRO6000-Server", 8, 1), 512 * MIB, id="RTX PRO 6000 x 8, aiconfigurator"),
    pytest.param(20.1, 0.10, ("L40S", 2, 1), 512 * MIB, id="L40S x 2, aiconfigurator"),
    pytest.param(13.0, 0.15, ("L40S", 8, 1), 512 * MIB, id="L40S x 8: what TensorRT-LLM's published rates need"),
    pytest.param(20.0, 0.25, ("A100-80GB-PCIe", 4, 1), 4 * GIB, id="A100 PCIe x 3, nccl-tests issue 178"),
    pytest.param(312.9, 0.02, ("MI300X", 8, 1), 4 * GIB, id="MI300X x 8, ml-engineering network"),
    pytest.param(28.0, 0.20, ("RTX5090", 8, 1), 4 * GIB, id="RTX 5090 x 8, nccl issue 1639"),
    pytest.param(356.0, 0.05, ("H100-SXM", 8, 8, "InfiniBand", 3200.0), 512 * MIB, id="64 x H100 NDR, coreweave"),
    pytest.param(386.6, 0.05, ("H100-SXM", 8, 8, "InfiniBand", 3200.0), 8 * GIB, id="64 x H100 NDR, 8 GiB, coreweave"),
    pytest.param(369.9, 0.05, ("H200-SXM", 8, 16, "EFA", 3200.0), 16 * GIB, id="128 x H200 EFA v3, aws-samples"),
    pytest.param(327.0, 0.10, ("B200", 8, 4, "EFA", 3200.0), 512 * MIB, id="32 x B200 EFA v4, ml-engineering"),
    pytest.param(66.2, 0.05, ("H100-SXM", 8, 2, "GPUDirect-TCPX", 800.0), 1 * GIB, id="16 x H100 TCPX, skypilot"),
    pytest.param(
        91.0, 0.05, ("A100-80GB-SXM", 8, 2, "InfiniBand", 800.0), 4 * GIB, id="16 x A100 HDR x4, nccl-tests 100"
    ),
]


@pytest.mark.parametrize(("expected", "tolerance", "shape", "message"), ALL_REDUCE)
def test_bus_bandwidth_of_all_reduce(expected, tolerance, shape, message):
    """A factor of two in the convention, a link rate per direction or a fabric per GPU mistaken would show here."""
    nodes = machines(shape)
    ranks = nodes.gpus[0]

    seconds = network.all_reduce_s(message_bytes=message, ranks=ranks, nodes=nodes)[0]

    assert 2 * (ranks - 1) / ranks * message / seconds / GB == pytest.approx(expected, rel=tolerance)


def test_gathering_uses_the_ring():
    """The switch cannot reduce what is copied: 367 GB/s on eight H200, not 482. Source: ml-engineering."""
    nodes = machines(("H200-SXM", 8, 1))
    message = 16 * GIB

    seconds = network.all_gather_s(message_bytes=message, ranks=8.0, nodes=nodes)[0]

    assert 7 / 8 * message / seconds / GB == pytest.approx(367.6, rel=0.05)


def test_a_pair_of_mi300x_has_one_link():
    """48 GB/s between two, 6.5 times less than among eight. Source: ml-engineering network/README.md."""
    nodes = machines(("MI300X", 8, 1))
    pair = network.all_reduce_s(message_bytes=4 * GIB, ranks=2.0, nodes=nodes)[0]

    assert 4 * GIB / pair / GB == pytest.approx(47.7, rel=0.02)


@given(
    message=st.floats(1e3, 1e11),
    ranks=st.sampled_from([2.0, 3.0, 4.0, 8.0, 16.0, 64.0]),
    more=st.floats(1.0, 100.0),
)
def test_larger_messages_never_take_less(message, ranks, more):
    """A dip in the interpolation between measured sizes would show here."""
    nodes = machines(("H100-SXM", 8, 8), ("L40S", 8, 8), ("GB200", 4, 16))
    for collective in (network.all_reduce_s, network.all_gather_s, network.reduce_scatter_s, network.all_to_all_s):
        small = collective(message_bytes=message, ranks=ranks, nodes=nodes)
        large = collective(message_bytes=message * more, ranks=ranks, nodes=nodes)
        assert np.all(large >= small * 0.999)
        assert np.all(small > 0)


def test_one_rank_takes_no_time():
    """A group of one that costs something would punish plans without that kind of parallelism."""
    nodes = machines(("H100-SXM", 8, 2), ("RTX4090", 1, 1))

    assert np.all(network.all_reduce_s(message_bytes=GIB, ranks=1.0, nodes=nodes) == 0)
    assert np.all(network.all_to_all_s(message_bytes=GIB, ranks=1.0, nodes=nodes) == 0)


def test_arrays_equal_scalars():
    """Broadcasting that mixes the plan and the node axis would show here."""
    nodes = machines(("H100-SXM", 8, 4), ("A100-80GB-SXM", 8, 2), ("RTX4090", 4, 1))
    messages = np.array([[1e4], [1e6], [3e7], [1e9]])
    ranks = np.array([[2.0], [4.0], [8.0], [16.0]])

    whole = network.all_reduce_s(message_bytes=messages, ranks=ranks, nodes=nodes, assumptions=assumptions())

    assert whole.shape == (3, 4, 3)
    for plan in range(4):
        alone = network.all_reduce_s(
            message_bytes=messages[plan, 0], ranks=ranks[plan, 0], nodes=nodes, assumptions=assumptions()
        )
        np.testing.assert_allclose(whole[:, plan], alone.reshape(3, 3))


def test_neighbouring_groups_share_the_fabric():
    """Eight groups of one rank per machine must not each have the whole machine's network."""
    nodes = machines(("H100-SXM", 8, 8))
    spread = network.all_gather_s(message_bytes=16 * GIB, ranks=8.0, nodes=nodes, ranks_per_node=1.0)
    packed = network.all_gather_s(message_bytes=16 * GIB, ranks=64.0, nodes=nodes, ranks_per_node=8.0)

    assert spread[0] / packed[0] == pytest.approx(8 * (7 / 8) / (63 / 64), rel=0.08)


def test_the_next_stage_on_another_machine_is_further():
    """Sends over the fabric as fast as over NVLink would hide what pipelines across machines cost."""
    nodes = machines(("H100-SXM", 8, 2))

    near = network.send_s(message_bytes=64 * MIB, nodes=nodes)
    far = network.send_s(message_bytes=64 * MIB, nodes=nodes, across=1.0)

    assert far[0] > 3 * near[0]


def test_what_leaves_the_machine_by_hand():
    """Of 16 ranks' equal shares, half go to the other machine; 8 ranks send nothing there."""
    nodes = machines(("H100-SXM", 8, 2))
    asked = {"message_bytes": 1e9, "ranks": 16.0, "nodes": nodes}

    np.testing.assert_allclose(
        network.all_to_all_s(**asked), network.all_to_all_s(**asked, away_bytes=1e9 * (16 - 8) / 16)
    )
    inside = asked | {"ranks": 8.0}
    np.testing.assert_allclose(network.all_to_all_s(**inside), network.all_to_all_s(**inside, away_bytes=0.0))


def test_scattering_takes_as_long_as_gathering():
    """363 against 361 GB/s on eight H200. Source: stas00/ml-engineering network/README.md."""
    nodes = machines(("H200-SXM", 8, 2))
    for ranks in (8.0, 16.0):
        asked = {"message_bytes": 1e9, "ranks": ranks, "nodes": nodes}
        np.testing.assert_array_equal(network.reduce_scatter_s(**asked), network.all_gather_s(**asked))


def test_a_message_to_the_next_stage_by_hand():
    """Twice the bytes take twice as long beyond the start-up; next to nothing takes the start-up alone."""
    nodes = machines(("H100-SXM", 8, 2))
    times = [float(network.send_s(message_bytes=size, nodes=nodes, across=True)[0]) for size in (1e9, 2e9, 3e9, 1.0)]

    assert times[2] - times[1] == pytest.approx(times[1] - times[0])
    assert times[1] - times[0] > 100 * times[3]
