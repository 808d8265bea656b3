"""Collectives on a table of round numbers, to the last digit: interpolation, the fabric, start-up, sends."""

from dataclasses import replace

import numpy as np
import pytest

from gpuguide.estimate import network
from gpuguide.spec.hardware import LinkTable
from gpuguide.units import MIB
from tests.estimate.training_cases import assumptions, machines

SIZES, RANKS = (8192.0, 1e6, 1e8), (2.0, 4.0, 8.0)
RING = ((1e9, 10e9, 50e9), (2e9, 20e9, 80e9), (3e9, 30e9, 100e9))
REDUCE = tuple(tuple(1.5 * rate for rate in row) for row in RING)
RATE, LATENCY = 40e9, 2e-5


def table(rates):
    return LinkTable(
        ranks=np.array(RANKS), message_bytes=np.array(SIZES), bus_bandwidth_bytes_per_s=np.array([rates]),
        latency_s=np.zeros((1, 3)), domain_gpus=np.array([8.0]),
    )  # fmt: skip


NODES = replace(
    machines(("H100-SXM", 8, 4)), ring=table(RING), all_reduce=table(REDUCE),
    fabric_bytes_per_s=np.array([RATE]), fabric_latency_s=np.array([LATENCY]),
)  # fmt: skip


def moved_s(message, ranks, rates=RING):
    """Time of one whole message inside a machine: linear in the message, then in the logarithm of ranks."""
    size = 0 if message < 1e6 else 1
    part = (message - SIZES[size]) / (SIZES[size + 1] - SIZES[size])
    rows = [SIZES[size] * (1 - part) / row[size] + SIZES[size + 1] * part / row[size + 1] for row in rates]
    place = min(int(np.log2(ranks)) - 1, 1)
    beyond = min(np.log2(ranks / RANKS[place]), 1.0)
    return rows[place] + beyond * (rows[place + 1] - rows[place])


@pytest.mark.parametrize("message", [8192.0, 3e5, 1e6, 4e7, 3e8])
@pytest.mark.parametrize("ranks", [2.0, 3.0, 4.0, 6.0, 8.0])
def test_inside_a_machine(message, ranks):
    """Gathering passes (n - 1) / n of the message once, all-reduce twice from its own table."""
    asked = {"message_bytes": message, "ranks": ranks, "nodes": NODES}
    share = (ranks - 1) / ranks

    for collective in (network.all_gather_s, network.reduce_scatter_s, network.all_to_all_s):
        assert collective(**asked)[0] == pytest.approx(share * moved_s(message, ranks), rel=1e-12)
    reduced = 2 * share * moved_s(message, ranks, REDUCE)
    assert network.all_reduce_s(**asked)[0] == pytest.approx(reduced, rel=1e-12)
    link = assumptions()["network_link_efficiency"].ravel()
    banded = network.all_reduce_s(**asked, assumptions=assumptions())
    assert banded.ravel() == pytest.approx(reduced / link, rel=1e-12)


@pytest.mark.parametrize("message", [1.0, 3e5, 4e7])
@pytest.mark.parametrize(("ranks", "inside"), [(32.0, 8.0), (16.0, 8.0), (8.0, 2.0), (4.0, 1.0)])
def test_over_machines(message, ranks, inside):
    """The slower of both links, then latencies: one a machine round a ring, two a doubling up and down a tree."""
    asked = {"message_bytes": message, "ranks": ranks, "nodes": NODES, "ranks_per_node": inside}
    domains, sent = ranks / inside, max(message, 8192.0)
    share = (ranks - 1) / ranks

    def slower(passes, rates):
        near = moved_s(sent, inside, rates) if inside > 1 else 0.0
        return passes * share * max(near, sent / (RATE * inside / 8))

    gathered = slower(1, RING) + LATENCY * domains
    assert network.all_gather_s(**asked)[0] == pytest.approx(gathered, rel=1e-12)
    assert network.reduce_scatter_s(**asked)[0] == pytest.approx(gathered, rel=1e-12)
    tree = 2 * LATENCY * (1 + np.log2(domains)) * (0.5 + 0.5 * min(sent / MIB, 1.0))
    assert network.all_reduce_s(**asked)[0] == pytest.approx(slower(2, REDUCE) + tree, rel=1e-12)
    near = (inside - 1) / ranks * moved_s(sent, inside) if inside > 1 else 0.0
    away = sent * (ranks - inside) / ranks / (RATE / 8) + LATENCY * domains
    assert network.all_to_all_s(**asked)[0] == pytest.approx(max(near, away), rel=1e-12)


@pytest.mark.parametrize("message", [1.0, 3e5, 2e7])
def test_sends(message):
    """As fast as two ranks move it next door; over the fabric every GPU has its share of it."""
    sent = max(message, 8192.0)
    near = network.send_s(message_bytes=message, nodes=NODES)
    far = network.send_s(message_bytes=message, nodes=NODES, across=True)

    assert near[0] == pytest.approx(0.5 * moved_s(2 * sent, 2.0), rel=1e-12)
    assert far[0] == pytest.approx(sent * 8 / RATE + LATENCY, rel=1e-12)
    both = network.send_s(message_bytes=message, nodes=NODES, across=np.array([[0.0], [1.0]]))
    np.testing.assert_array_equal(both.ravel(), [near[0], far[0]])


def test_slower_links_of_machines_without_a_fast_one():
    """Each shape at the efficiency of its own links."""
    known = assumptions()
    every, pcie = known["network_link_efficiency"].ravel(), known["network_pcie_efficiency"].ravel()
    both = network.link_efficiency(machines(("H100-SXM", 8, 1), ("L40S", 8, 1)), known)

    np.testing.assert_array_equal(both[:, 0, 0], every)
    np.testing.assert_array_equal(both[:, 0, 1], pcie)
    np.testing.assert_array_equal(network.link_efficiency(NODES, known).ravel(), every)
