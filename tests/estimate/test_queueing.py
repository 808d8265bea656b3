"""Sharing a replica: time per token between others' prompts, waits, and the name of what binds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.estimate import queueing
from gpuguide.estimate.decode import Step

SECONDS = st.floats(1e-4, 10.0)


@pytest.mark.parametrize(
    ("expected_ms", "output"),
    [
        pytest.param(75.0, 128.0, id="vLLM 0.12, Qwen3-32B on 2 x H100, 32 requests, 4096 in, 128 out"),
        pytest.param(35.7, 512.0, id="the same, 512 out"),
        pytest.param(29.3, 1024.0, id="the same, 1024 out"),
    ],
)
def test_prompts_between_tokens(expected_ms, output):
    """Measured by aiconfigurator: one step of 22.7 ms and prompts of 209 ms explain all three."""
    found = queueing.time_per_token_s(
        step_s=22.7e-3, prefill_s=209e-3, running=33.0, output_tokens=output, first_s=1e-9
    )
    assert found * 1e3 == pytest.approx(expected_ms, rel=0.03)


@given(step=SECONDS, prompt=SECONDS, running=st.floats(1, 1000), output=st.floats(2, 10_000), first=SECONDS)
def test_time_per_token_is_never_below_a_step(step, prompt, running, output, first):
    """Others' prompts only delay; the answer solves its equation."""
    token = queueing.time_per_token_s(
        step_s=step, prefill_s=prompt, running=running, output_tokens=output, first_s=first + prompt
    )
    share = (running - 1) * prompt / (first + prompt + output * token)
    assert token >= step * (1 - 1e-9)
    assert token * (1 - share) == pytest.approx(step, rel=1e-5, abs=1e-9)


def test_alone_a_request_waits_for_nobody():
    """One request: a step per token, no prompts ahead."""
    assert queueing.time_per_token_s(
        step_s=0.01, prefill_s=1.0, running=1.0, output_tokens=100.0, first_s=1.0
    ) == pytest.approx(0.01)
    assert queueing.prompts_ahead_s(prefill_s=1.0, running=1.0, stay_s=2.0, burst=0.5) == 0.0


def test_wait_for_room_by_littles_law():
    """64 in the system, 32 at once, 10 s each: the other 32 leave the queue at 3.2 a second."""
    assert queueing.queue_s(waiting=32.0, running=32.0, stay_s=10.0) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("name", "parts", "prompts", "short"),
    [
        ("memory bandwidth", (1.0, 5.0, 1.0, 1.0, 1.0, 0.0), 0.0, False),
        ("compute", (1.0, 2.0, 1.0, 1.0, 1.0, 0.0), 9.0, False),
        ("interconnect", (1.0, 2.0, 1.0, 1.0, 3.0, 3.0), 0.0, False),
        ("overhead", (9.0, 2.0, 1.0, 1.0, 1.0, 0.0), 0.0, False),
        ("kv_room", (9.0, 2.0, 1.0, 1.0, 1.0, 0.0), 0.0, True),
    ],
)
def test_what_binds(name, parts, prompts, short):
    """The largest part names it; requests that wait for room outrank all."""
    names = ("overhead_s", "weights_s", "compute_s", "cache_s", "tensor_parallel_s", "expert_parallel_s")
    step = Step(**{part: np.full((3, 1, 1), value) for part, value in zip(names, parts, strict=True)})
    found = queueing.binding(step=step, prefill_share_s=prompts, short_of_room=np.array(short))
    assert set(found.ravel()) == {name}


WAITS = [  # waiting over one prompt's time: requests, stay [s], share that starts together
    pytest.param(0.4 / (2 * 0.6) + 0.25 * 4, 5.0, 1.0, 0.25, id="busy two fifths of the time, four others"),
    pytest.param(0.9 / (2 * 0.1), 100.0, 1.0, 0.0, id="busier than is followed"),
    pytest.param(0.0, 0.5, 1.0, 0.25, id="nobody else"),
]


@pytest.mark.parametrize(("expected", "running", "stay", "burst"), WAITS)
def test_prompts_ahead_by_hand(expected, running, stay, burst):
    """A queue with one server and equal times: busy / (2 (1 - busy)), and those of the burst that go first."""
    found = queueing.prompts_ahead_s(prefill_s=0.1, running=running, stay_s=stay, burst=burst)

    assert found == pytest.approx(0.1 * expected)
