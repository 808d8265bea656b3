"""Every GPU of the table gets links, and every provider's words a fabric."""

import numpy as np
import pytest

from gpuguide.catalog.links import bridged, fabric, fast_link, link_tables
from gpuguide.units import GB
from tests.estimate.training_cases import tables


def test_every_gpu_has_rising_positive_bandwidth():
    """An empty cell would make plans on that GPU free or impossible."""
    gpus = list(tables()["gpus"].values())
    for table in link_tables(gpus, [8.0] * len(gpus)):
        assert np.all(np.isfinite(table.bus_bandwidth_bytes_per_s))
        assert np.all(table.bus_bandwidth_bytes_per_s > 0)
        assert np.all(table.latency_s > 0)
        assert np.all(table.latency_s < 1e-4)


LINKS = [
    pytest.param("H100-SXM", True, 8.0, id="NVSwitch"),
    pytest.param("GB200", True, 72.0, id="NVL72 rack"),
    pytest.param("MI300X", True, 8.0, id="xGMI"),
    pytest.param("L40S", False, 8.0, id="PCIe"),
    pytest.param("A100-80GB-PCIe", False, 8.0, id="optional bridge counts as PCIe"),
]


@pytest.mark.parametrize(("name", "fast", "domain"), LINKS)
def test_kind_of_link(name, fast, domain):
    """A PCIe card shown with NVLink would win tensor-parallel plans it cannot run."""
    gpu = tables()["gpus"][name]

    assert fast_link(gpu) is fast
    assert link_tables([gpu], [8.0])[0].domain_gpus[0] == domain


def test_faster_links_give_more():
    """Scaling by the wrong column would turn this order round."""
    gpus = [tables()["gpus"][name] for name in ("V100-32GB-SXM2", "A100-80GB-SXM", "H100-SXM", "B200")]
    bandwidth = link_tables(gpus, [8.0] * 4)[0].bus_bandwidth_bytes_per_s[:, 2, 4]

    assert np.all(np.diff(bandwidth) > 0)


FABRICS = [  # name, stated Gbit/s, GPU, GPUs, expected line rate [GB/s]
    pytest.param("EFA", 3200.0, "H100-SXM", 8, 400.0, id="p5"),
    pytest.param("EFA", 3200.0, "A100-80GB-SXM", 8, 50.0, id="p4de has EFA v1"),
    pytest.param("InfiniBand (Quantum-2)", 3200.0, "H100-SXM", 8, 400.0, id="ND H100 v5"),
    pytest.param("GPUDirect-TCPX / TCPXO", 1600.0, "H100-SXM", 8, 200.0, id="A3 Mega"),
    pytest.param("GPUDirect-TCPX / TCPXO", 1600.0, "H200-SXM", 8, 400.0, id="A3 Ultra has RDMA"),
    pytest.param(None, None, "H100-SXM", 8, 400.0, id="reference machine where nothing is stated"),
    pytest.param(None, None, "H100-SXM", 2, 12.5, id="a share of a machine has Ethernet"),
    pytest.param(None, None, "L40S", 8, 12.5, id="PCIe server"),
    pytest.param(None, None, "RTX4090", 8, 3.125, id="workstation"),
    pytest.param("", float("nan"), "GB200", 4, 200.0, id="tray of a rack, 400 Gbit/s per GPU"),
]


@pytest.mark.parametrize(("name", "gbps", "gpu", "count", "expected"), FABRICS)
def test_fabric_of_a_machine(name, gbps, gpu, count, expected):
    """Bits taken for bytes, or one machine's network for one GPU's, is a factor of eight."""
    rate, latency, words = fabric(name, gbps, tables()["gpus"][gpu], count)

    assert 0.5 * expected * GB < rate <= expected * GB
    assert 1e-6 < latency < 1e-3
    assert words


def test_one_slow_host_does_not_set_a_curve():
    """Eight L40S of one host without peer access reached 1.45 GB/s; others of its generation reach ten times that."""
    cards = [tables()["gpus"][name] for name in ("L40S", "A100-80GB-PCIe", "RTX4090")]
    bandwidth = link_tables(cards, [8.0] * 3)[0].bus_bandwidth_bytes_per_s[:, :3, 4]

    assert np.all(bandwidth > 10 * GB)
    assert np.all(bandwidth < cards[0].pcie_bytes_per_s)
    assert np.all(bandwidth == bandwidth[0])  # the host decides, not the card


def test_fewer_lanes_carry_less():
    """A card with eight lanes would be taken for one with sixteen of its generation."""
    gpus = tables()["gpus"]

    assert gpus["RTX4060"].pcie_bytes_per_s == gpus["RTX4070"].pcie_bytes_per_s / 2


@pytest.mark.parametrize(
    ("name", "cards", "measured", "tolerance"),
    [
        pytest.param("A100-80GB-PCIe", 2, 208.0, 0.15, id="nccl-tests issue 178"),
        pytest.param("H100-PCIe", 2, 116.0, 1.2, id="nccl issue 1161, reported as too low"),
    ],
)
def test_bridge_where_a_machine_has_one(name, cards, measured, tolerance):
    """Pairs joined by NVLink were computed with a tenth of their rate."""
    gpu = bridged(tables()["gpus"][name], cards)
    table = link_tables([gpu], [8.0])[0]

    assert fast_link(gpu)
    assert table.domain_gpus[0] == cards
    assert table.bus_bandwidth_bytes_per_s[0, 0, 4] == pytest.approx(measured * GB, rel=tolerance)


def test_card_without_a_bridge_stays_on_pcie():
    """A bridge that no vendor sells would be computed for a GeForce."""
    gpu = tables()["gpus"]["RTX4090"]

    assert bridged(gpu, 2) is gpu


DIRECT = [  # Gbit/s of a machine, network, GPU
    pytest.param(800.0, "GPUDirect-TCPX", "H100-SXM", id="A3 High: 4 x 200 Gbit/s"),
    pytest.param(1600.0, "GPUDirect-TCPXO", "H100-SXM", id="A3 Mega: 8 x 200 Gbit/s"),
]


@pytest.mark.parametrize(("gbps", "name", "gpu"), DIRECT)
def test_machines_of_google_where_no_rate_is_stated(gbps, name, gpu):
    """Their H100 machines would be given the eight 400 Gbit/s adapters of a reference machine."""
    rate, _, said = fabric(name, None, tables()["gpus"][gpu], 8)

    assert said == f"{name} {gbps:g} Gbit/s"
    assert rate < gbps * GB / 8


def test_later_machines_of_google_have_rdma_and_earlier_ones_none():
    """TCPX is of H100 machines: B200 is joined by RoCE, A100 by plain Ethernet."""
    assert fabric("GPUDirect-TCPX", 3200.0, tables()["gpus"]["B200"], 8)[2].startswith("RoCE")
    assert fabric("GPUDirect-TCPX", None, tables()["gpus"]["A100-80GB-SXM"], 8)[2].startswith("Ethernet")
