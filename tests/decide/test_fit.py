"""The plan kept for a machine is the fastest of those that fit best, whatever the order of the search."""

import numpy as np
import pytest

from gpuguide.decide.fit import Space, best_plans, sizes_of, verdict_of
from gpuguide.decide.search import Pairs
from gpuguide.estimate.results import MemoryBreakdown
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.plan import Plan
from gpuguide.units import GIB


@pytest.mark.parametrize(
    ("low", "typical", "high", "usable", "headroom", "expected"),
    [
        pytest.param(10, 11, 12, 24, 0.05, 0, id="clear"),
        pytest.param(10, 23.5, 23.9, 24, 0.05, 1, id="headroom is not left free"),
        pytest.param(10, 20, 25, 24, 0.05, 1, id="high estimate is over"),
        pytest.param(23, 25, 30, 24, 0.0, 2, id="typical is over"),
    ],
)
def test_fits_tight_and_no_are_three_answers(low, typical, high, usable, headroom, expected):
    total = np.array([[low], [typical], [high]]) * GIB
    assert verdict_of(total_bytes=total, usable_bytes=np.array([usable * GIB]), headroom=headroom) == [expected]


def fitted(pairs, shapes, memory_of, seconds_of):
    """Best plans on shapes that are all able, with 5 % left free."""
    sizes, size_of_shape = sizes_of(shapes)
    able = np.ones(len(shapes), dtype=bool)
    return best_plans(
        Space(pairs=pairs, sizes=sizes, size_of_shape=size_of_shape, shapes=shapes, able=able),
        assumptions=Assumptions({}),
        usable_bytes=shapes.memory_bytes,
        headroom=0.05,
        memory_of=memory_of,
        seconds_of=seconds_of,
    )


def test_fastest_plan_that_fits_is_kept(machines):
    """Memory falls with recompute, time rises: the small card needs recompute 2, the large one 0."""
    shapes = machines("RTX4090", "H100-SXM")
    recompute = np.array([0.0, 1.0, 2.0])
    pairs = Pairs(Plan(recompute=recompute, micro_batch=np.ones(3)), np.zeros(3, dtype=int))

    def memory_of(plan, nodes, assumptions):
        need = (60 - 20 * np.asarray(plan.recompute)) * GIB
        return MemoryBreakdown(weights=np.broadcast_to(need, (3, 1, need.size)))

    fit = fitted(pairs, shapes, memory_of, lambda plan, nodes, assumptions: 1 + np.asarray(plan.recompute))

    assert fit.plan.recompute.tolist() == [2.0, 0.0]
    assert fit.verdict.tolist() == [0, 0]
    assert fit.best_s.tolist() == [3.0, 1.0]
    assert np.isnan(fit.runner_up_s[0])
    assert fit.runner_up_s[1] == 2.0


def test_largest_micro_batches_are_timed(machines):
    """Of plans alike but for the micro-batch only the largest that fit are worth timing."""
    shapes = machines("RTX4090")
    pairs = Pairs(Plan(micro_batch=np.array([1.0, 2.0, 4.0, 8.0])), np.zeros(4, dtype=int))
    timed = []

    def memory_of(plan, nodes, assumptions):
        need = 4 * np.asarray(plan.micro_batch) * GIB
        return MemoryBreakdown(weights=np.broadcast_to(need, (3, 1, need.size)))

    def seconds_of(plan, nodes, assumptions):
        timed.extend(plan.micro_batch.tolist())
        return 1 / np.asarray(plan.micro_batch)

    fit = fitted(pairs, shapes, memory_of, seconds_of)

    assert fit.plan.micro_batch.tolist() == [4.0]
    assert sorted(timed) == [2.0, 4.0]


def test_nothing_fits_gives_the_least_misfit(machines):
    shapes = machines("T4")
    pairs = Pairs(Plan(recompute=np.array([0.0, 2.0]), micro_batch=np.ones(2)), np.zeros(2, dtype=int))

    def memory_of(plan, nodes, assumptions):
        need = (100 - 10 * np.asarray(plan.recompute)) * GIB
        return MemoryBreakdown(weights=np.broadcast_to(need, (3, 1, need.size)))

    fit = fitted(pairs, shapes, memory_of, lambda plan, nodes, assumptions: np.ones(plan.recompute.size))

    assert fit.plan.recompute.tolist() == [2.0]
    assert fit.verdict.tolist() == [2]
    assert fit.missing_bytes[0] == pytest.approx(80 * GIB - shapes.memory_bytes[0])
