"""All-reduce inside an engine and the division of work over PCIe, by hand."""

import numpy as np
import pytest

from gpuguide.estimate import network
from gpuguide.estimate.serving_links import attention_layout, reduce_of, reduce_on, split_work
from gpuguide.spec.plan import Plan
from tests.estimate.serving_cases import ASSUMPTIONS, job, machines

FAST, SLOW = machines(("H100-SXM", 8)), machines(("L40S", 8))
BOTH = machines(("H100-SXM", 8), ("L40S", 8))


def test_division_of_work_over_pcie():
    """Four ranks divide by four anywhere; eight by four times 2 ** 0.39 where there is no fast link."""
    ranks = np.array([[1.0], [2.0], [4.0], [8.0], [16.0]])
    slowed = [1, 2, 4, 4 * 2**0.39, 4 * 4**0.39]

    found = np.broadcast_to(split_work(ranks=ranks, nodes=BOTH), (5, 2))
    np.testing.assert_array_equal(found[:, 0], ranks.ravel())
    np.testing.assert_allclose(found[:, 1], slowed)
    np.testing.assert_allclose(np.ravel(split_work(ranks=ranks, nodes=SLOW)), slowed)
    # Where no rank waits the answer keeps the shape of the plans alone, which spares the search the node axis.
    assert split_work(ranks=ranks, nodes=FAST) is ranks
    assert split_work(ranks=ranks[:3], nodes=BOTH).shape == (3, 1)


@pytest.mark.parametrize("ranks", [2.0, 4.0, 8.0, 16.0])
@pytest.mark.parametrize("message", [8192.0, 1e6, 1e8])
def test_all_reduce_of_an_engine(ranks, message):
    """A fast link saves part of the start-up; PCIe is as fast as its ring, unless the group leaves the machine."""
    start, library = (
        float(network.all_reduce_s(message_bytes=size, ranks=ranks, nodes=SLOW)[0])
        for size in (network.SMALLEST_MESSAGE_BYTES, message)
    )
    ring = start + 2 * (1 - 1 / ranks) * message / (0.45 * SLOW.pcie_bytes_per_s[0])
    slow = library if ranks > 8 else min(library, ring)
    found = reduce_on(ranks=ranks, nodes=SLOW, assumptions=ASSUMPTIONS).seconds(message)
    np.testing.assert_allclose(np.ravel(found), slow / ASSUMPTIONS["network_pcie_efficiency"].ravel())

    start, library = (
        float(network.all_reduce_s(message_bytes=size, ranks=ranks, nodes=FAST)[0])
        for size in (network.SMALLEST_MESSAGE_BYTES, message)
    )
    kept = ASSUMPTIONS["serving_speed_reduce_start"].ravel()
    fast = (library - (1 - kept) * start) / ASSUMPTIONS["network_link_efficiency"].ravel()
    found = reduce_on(ranks=ranks, nodes=FAST, assumptions=ASSUMPTIONS).seconds(message)
    np.testing.assert_allclose(np.ravel(found), fast)

    together = reduce_on(ranks=ranks, nodes=BOTH, assumptions=ASSUMPTIONS).seconds(message)
    np.testing.assert_allclose(together[:, 0, 0], fast)
    np.testing.assert_allclose(together[:, 0, 1], slow / ASSUMPTIONS["network_pcie_efficiency"].ravel())


def test_who_splits_a_request():
    """Tensor ranks, or none of them; expert ranks beyond them are replicas that share experts."""
    plan = Plan(tensor_parallel=4.0, expert_parallel=16.0)

    assert attention_layout(job=job(), plan=plan) == (4.0, 4.0)
    assert attention_layout(job=job(), plan=Plan(tensor_parallel=4.0)) == (4.0, 1.0)
    assert attention_layout(job=job(attention_data_parallel=True), plan=plan) == (1.0, 4.0)


def test_single_gpus_reduce_nothing():
    """None where no plan has two ranks, nor where each rank attends to requests of its own."""
    asked = {"nodes": FAST, "assumptions": ASSUMPTIONS}
    some = Plan(tensor_parallel=np.array([[1.0], [2.0]]))

    assert reduce_of(job=job(), plan=Plan(), **asked) is None
    assert reduce_of(job=job(attention_data_parallel=True), plan=some, **asked) is None
    seconds = reduce_of(job=job(), plan=some, **asked).seconds(1e6)
    alone = reduce_on(ranks=2.0, nodes=FAST, assumptions=ASSUMPTIONS).seconds(1e6)
    np.testing.assert_allclose(seconds[:, 1], alone[:, 0])
