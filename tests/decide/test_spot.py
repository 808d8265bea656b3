"""Interruptions: expectations and the finish time against simulation, the interval against a search, and order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.decide.finish import probability_by
from gpuguide.decide.spot import expected_run, optimal_interval_s

HOUR = 3600.0
RUNS = 20_000


def a_run(work_h=10.0, write_s=60.0, start_s=600.0, restart_s=600.0, wait_s=900.0, per_hour=0.05, notice_s=0.0,
          noticed=0.0, **options):  # fmt: skip
    values = (work_h * HOUR, write_s, start_s, restart_s, wait_s, np.asarray(per_hour) / HOUR, notice_s, noticed)
    names = ("work_s", "checkpoint_s", "start_s", "restart_s", "wait_s", "rate_per_s", "notice_s", "noticed_share")
    arrays = {name: np.atleast_1d(np.asarray(value, dtype=float)) for name, value in zip(names, values, strict=True)}
    return expected_run(**arrays, **options)


def simulate(run, per_hour, seed=3, runs=RUNS):
    """Wall and billed time and interruptions of many runs, event by event, all runs at once."""
    rng = np.random.default_rng(seed)
    rate = per_hour / HOUR
    wall, billed, hits = np.zeros(runs), np.zeros(runs), np.zeros(runs)

    def attempt(length, open_):
        """Uninterrupted stretch of the given length, waiting and beginning anew after each interruption."""
        while open_.any():
            life = rng.exponential(1.0 / rate, runs)
            done = open_ & (life >= length)
            broken = open_ & ~done
            used = np.where(done, length, np.where(broken, life, 0.0))
            wall[:] += used + np.where(broken, rng.exponential(max(run.wait_s[0], 1e-9), runs), 0.0)
            billed[:] += used
            hits[broken] += 1
            open_ = broken

    everyone = np.ones(runs, dtype=bool)
    attempt(run.start_s[0], everyone.copy())
    for many, length in run.segments:
        for _ in range(round(float(many[0]))):
            left, open_ = np.full(runs, length[0]), everyone.copy()
            while open_.any():
                life = rng.exponential(1.0 / rate, runs)
                done = open_ & (life >= left)
                broken = open_ & ~done
                used = np.where(done, left, np.where(broken, life, 0.0))
                saved = broken & (rng.random(runs) < run.saved_share[0])
                written = np.where(saved, run.checkpoint_s[0], 0.0)
                wall += used + written + np.where(broken, rng.exponential(max(run.wait_s[0], 1e-9), runs), 0.0)
                billed += used + written
                hits[broken] += 1
                left = np.where(saved, left - life, length[0])
                attempt(run.restart_s[0], broken.copy())
                open_ = broken
    return wall, billed, hits


CASES = [
    pytest.param({"work_h": 10, "per_hour": 0.02, "write_s": 120}, id="rarely interrupted"),
    pytest.param({"work_h": 30, "per_hour": 0.1, "write_s": 300, "restart_s": 900, "wait_s": 600}, id="3 times"),
    pytest.param({"work_h": 5, "per_hour": 0.3, "write_s": 600}, id="slow checkpoints"),
    pytest.param({"work_h": 10, "per_hour": 0.1, "wait_s": 3600}, id="long waits"),
    pytest.param({"work_h": 60, "per_hour": 0.03, "notice_s": 120, "noticed": 0.9, "wait_s": 300}, id="with notice"),
    pytest.param({"work_h": 20, "per_hour": 0.05, "notice_s": 120, "noticed": 1.0, "wait_s": 7200}, id="sure notice"),
    pytest.param({"work_h": 20, "per_hour": 0.1, "interval_s": 5000.0}, id="given interval with a rest"),
    pytest.param({"work_h": 40, "per_hour": 0.5, "write_s": 30, "restart_s": 300}, id="20 times"),
]


@pytest.mark.parametrize("case", CASES)
def test_expectations_and_finish_time_against_simulation(case):
    """Within 1 %: means exactly, probabilities of a deadline in percentage points."""
    run = a_run(**case)
    wall, billed, hits = simulate(run, case["per_hour"])

    assert run.wall_s[0] == pytest.approx(wall.mean(), rel=0.01)
    assert run.billed_s[0] == pytest.approx(billed.mean(), rel=0.01)
    assert run.interruptions[0] == pytest.approx(hits.mean(), abs=4 * hits.std() / np.sqrt(RUNS))
    deadlines = np.quantile(wall, [0.1, 0.3, 0.5, 0.7, 0.9, 0.97])
    for deadline in deadlines:
        simulated = np.mean(wall <= deadline * (1 + 1e-9))
        assert probability_by(run, deadline * (1 + 1e-9))[0] == pytest.approx(simulated, abs=0.01)


def test_many_interruptions_have_a_narrow_finish_time():
    """16,384 GPUs for eight weeks: half the runs take longer than the mean, none much longer."""
    run = a_run(work_h=1300, per_hour=0.33)
    added = run.wall_s - run.shortest_s
    wall, _, _ = simulate(run, 0.33, runs=1000)

    for share in (0.9, 1.0, 1.1):
        deadline = float((run.shortest_s + share * added)[0])
        assert probability_by(run, deadline)[0] == pytest.approx(np.mean(wall <= deadline), abs=0.04)


def test_finish_time_at_its_ends():
    run = a_run()

    assert probability_by(run, float(run.shortest_s[0]) - 1.0)[0] == 0.0
    assert probability_by(run, 1e9)[0] == 1.0
    assert probability_by(run, float(run.shortest_s[0]))[0] == pytest.approx(
        np.exp(-0.05 / HOUR * float(run.shortest_s[0])), abs=2e-3
    )


@given(hours=st.floats(9.0, 40.0), more=st.floats(0.1, 20.0))
def test_a_later_deadline_is_never_less_likely(hours, more):
    run = a_run()

    assert probability_by(run, (hours + more) * HOUR)[0] >= probability_by(run, hours * HOUR)[0] - 3e-3


@pytest.mark.parametrize(
    ("checkpoint_s", "mean_s"), [(60, 3600), (60, 86_400), (600, 7200), (5, 1e7), (3000, 3600), (9000, 3600)]
)
def test_interval_is_the_best_one(checkpoint_s, mean_s):
    """Daly's form is close to the optimum of exp(R/M) (exp((t + d)/M) - 1) M W / t; the Newton steps meet it."""
    tried = np.geomspace(1.0, 20.0 * mean_s, 200_001)
    cost = np.expm1((tried + checkpoint_s) / mean_s) / tried

    best = optimal_interval_s(checkpoint_s=np.array([checkpoint_s]), mean_time_between_s=np.array([mean_s]))[0]

    assert np.expm1((best + checkpoint_s) / mean_s) / best <= cost.min() * (1 + 1e-9)


def test_interval_published_by_daly():
    """Daly 2006, first and higher order: for checkpoints far shorter than the time between failures sqrt(2 d M)."""
    best = optimal_interval_s(checkpoint_s=np.array([300.0]), mean_time_between_s=np.array([86_400.0]))[0]
    half = 300.0 / (2 * 86_400.0)
    daly = np.sqrt(2 * 300.0 * 86_400.0) * (1 + np.sqrt(half) / 3 + half / 9) - 300.0

    assert best == pytest.approx(daly, rel=1e-3)


def test_nothing_interrupts():
    """One checkpoint at the end, no lost second."""
    run = a_run(per_hour=0.0)

    assert run.wall_s[0] == run.shortest_s[0] == 10 * HOUR + 60 + 600
    assert run.checkpoints[0] == 1


@given(
    work_h=st.floats(0.1, 500), write_s=st.floats(0.1, 2000), restart_s=st.floats(1, 3000), rare=st.floats(0, 2),
    more=st.floats(0, 2), noticed=st.floats(0, 1), notice_s=st.sampled_from([0.0, 30.0, 120.0]),
)  # fmt: skip
def test_more_interruptions_are_never_cheaper(work_h, write_s, restart_s, rare, more, noticed, notice_s):
    run = a_run(
        work_h=work_h, write_s=write_s, restart_s=restart_s, per_hour=[rare, rare + more], noticed=noticed,
        notice_s=notice_s,
    )  # fmt: skip

    assert run.billed_s[0] <= run.billed_s[1] * (1 + 1e-9)
    assert run.wall_s[0] <= run.wall_s[1] * (1 + 1e-9)


@given(
    write_s=st.floats(0.1, 500), notice_s=st.floats(0, 300), more_s=st.floats(0, 300), per_hour=st.floats(0, 2),
    noticed=st.floats(0, 1), interval_s=st.none() | st.floats(60, 20_000),
)  # fmt: skip
def test_longer_notice_is_never_worse(write_s, notice_s, more_s, per_hour, noticed, interval_s):
    run = a_run(
        write_s=write_s, notice_s=[notice_s, notice_s + more_s], per_hour=per_hour, noticed=noticed,
        interval_s=interval_s,
    )  # fmt: skip

    assert run.billed_s[1] <= run.billed_s[0] * (1 + 1e-12)


@given(per_hour=st.floats(0.001, 1), interval_s=st.floats(60, 50_000))
def test_no_given_interval_beats_the_best(per_hour, interval_s):
    """The floor and ceiling of Daly's count are compared, so that no whole number of segments is better."""
    assert a_run(per_hour=per_hour).billed_s[0] <= a_run(per_hour=per_hour, interval_s=interval_s).billed_s[0] + 1e-6


def test_items_kept_one_by_one_lose_only_the_restart():
    """Images that are done stay done."""
    run = a_run(per_hour=0.1, keeps_everything=True)
    rate, work = 0.1 / HOUR, 10 * HOUR

    assert run.billed_s[0] == pytest.approx(work * np.exp(rate * 600) + np.expm1(rate * 600) / rate)


def test_sessions_start_once_each():
    assert a_run(per_hour=0.0, sessions=5.0).shortest_s[0] == 10 * HOUR + 5 * (600 + 60)


def test_array_is_scalar_by_scalar():
    """A broadcast that mixes offers would show here."""
    rates, writes = [0.01, 0.1, 0.5], [10.0, 60.0, 400.0]
    together = a_run(per_hour=rates, write_s=writes, notice_s=120.0, noticed=0.9)
    alone = [
        a_run(per_hour=rate, write_s=write, notice_s=120.0, noticed=0.9)
        for rate, write in zip(rates, writes, strict=True)
    ]

    for name in ("billed_s", "wall_s", "interruptions", "checkpoints", "checkpoint_interval_s", "last_checkpoints"):
        assert getattr(together, name).tolist() == pytest.approx([float(getattr(run, name)[0]) for run in alone])
    assert probability_by(together, 12 * HOUR) == pytest.approx([probability_by(run, 12 * HOUR)[0] for run in alone])
