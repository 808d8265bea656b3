"""Serving as a whole in plain numbers: stays at every batch, open loads, limits found, batches that end together."""

import numpy as np
import pytest

from gpuguide.estimate import prefill
from gpuguide.estimate.decode import decode_step
from gpuguide.estimate.serving import (
    largest_concurrency_within,
    most_running,
    serving_speed,
    static_batch_tokens_per_s,
)
from gpuguide.estimate.serving_links import reduce_of
from gpuguide.estimate.serving_rates import rates
from gpuguide.spec.plan import Plan
from gpuguide.units import GB
from tests.estimate.serving_cases import ASSUMPTIONS, job, machines, plans, question

NODES = machines(("H100-SXM", 8))
ROOM = 2 * GB


def known(name):
    return float(ASSUMPTIONS.value(f"serving_speed_{name}"))


def one(value):
    return float(np.broadcast_to(value, np.broadcast_shapes(np.shape(value), (3, 1, 1)))[1].ravel()[0])


def room_for(shared, room):
    """Requests that a replica runs at once."""
    own = {key: value for key, value in shared.items() if key != "assumptions"}
    return float(np.ravel(most_running(**own, kv_room_bytes=room))[0])


def parts(own, plan):
    """Arguments that steps and prompts share."""
    asked = question("llama-3.1-8b", own, plan, NODES)
    return asked | {
        "known": rates(**{key: asked[key] for key in ("model", "job", "nodes", "assumptions")}),
        "reduce": reduce_of(**{key: asked[key] for key in ("job", "plan", "nodes", "assumptions")}),
    }


def at(running, own, plan, groups=1.0):
    """Token, first token and stay with so many requests on a replica: the quadratic solved by repetition."""
    shared = parts(own, plan)
    prompt = prefill.prompt_time(tokens=own.prompt_tokens, **shared)
    alone, each = one(prompt.alone_s), one(prompt.shared_s)
    middle = own.prompt_tokens + own.output_tokens / 2
    step = one(decode_step(running=running, context=middle, **shared).total) / (1 + own.speculative_tokens)
    served, others = step / 2 + alone, max(running / groups - 1, 0)
    token = step
    for _ in range(2000):
        token = step + token * others * each / (served + own.output_tokens * token)
    admitted = served + known("arrival_s")
    stay = admitted + (own.output_tokens - 1) * token
    busy = min(others * each / stay, 0.9)
    first = admitted + each * (busy / (2 * (1 - busy)) + known("burst") * others)
    return token, first, stay


@pytest.mark.parametrize("running", [1.0, 7.0, 60.0])
@pytest.mark.parametrize("replicas", [1.0, 2.0])
def test_a_closed_load(running, replicas):
    """Every request alone with the others of its replica; tokens of all replicas; drafts divide the step."""
    own = job(concurrency=running * replicas, speculative_tokens=0.5)
    plan = Plan(tensor_parallel=2.0, data_parallel=replicas)
    found = serving_speed(**question("llama-3.1-8b", own, plan, NODES), kv_room_bytes=40 * GB)
    token, first, stay = at(running, own, plan)

    assert one(found.tpot_s) == pytest.approx(token, rel=1e-6)
    assert one(found.ttft_s) == pytest.approx(first, rel=1e-6)
    assert one(found.tokens_per_s) == pytest.approx(running * 256 / stay * replicas, rel=1e-6)
    assert one(found.running) == running
    assert one(found.queue_s) == 0
    prompt = prefill.prompt_time(tokens=own.prompt_tokens, **parts(own, plan))
    assert one(found.prefill_tokens_per_s) == pytest.approx(1024 / one(prompt.shared_s) * replicas)


@pytest.mark.parametrize("share", [0.05, 0.4, 0.9, 0.98])
def test_an_open_load(share):
    """Little's law for the requests there, Sakasegawa's wait for room that so many servers leave."""
    closed = job(concurrency=1e6)
    most = room_for(question("llama-3.1-8b", closed, Plan(), NODES), ROOM)
    full = at(most, closed, Plan())[2]
    rate = share * most / full
    own = job(requests_per_s=2 * rate, concurrency=None)
    found = serving_speed(**question("llama-3.1-8b", own, Plan(data_parallel=2.0), NODES), kv_room_bytes=ROOM)
    wait = share ** np.sqrt(2 * (most + 1)) / (1 - share) * full / most

    assert one(found.queue_s) == pytest.approx(wait, rel=1e-6)
    running = one(found.running)
    token, first, stay = at(min(running + 1, most), own, Plan())
    assert running == pytest.approx(min(rate * stay, most), rel=0.02)
    assert one(found.tpot_s) == pytest.approx(token, rel=0.02)
    assert one(found.ttft_s) == pytest.approx(first + wait, rel=0.02)
    assert one(found.tokens_per_s) == pytest.approx(2 * rate * 256, rel=0.02)


def test_more_than_room_arrives():
    """Beyond the highest rate requests wait without end, at 98 % of it."""
    own = job(requests_per_s=1e5, concurrency=None)
    found = serving_speed(**question("llama-3.1-8b", own, Plan(), NODES), kv_room_bytes=ROOM)

    assert np.isinf(one(found.queue_s))
    assert one(found.bound == "kv_room")


@pytest.mark.parametrize("replicas", [1.0, 3.0])
def test_requests_within_a_limit(replicas):
    """Between two powers of two as far as a straight line says; no more than room, times replicas."""
    own, plan = job(), Plan(data_parallel=replicas)
    shared = question("llama-3.1-8b", own, plan, NODES)
    below, above = (at(size, own, plan) for size in (16.0, 32.0))
    for place, name in enumerate(("max_tpot_s", "max_ttft_s")):
        limit = below[place] + 0.3 * (above[place] - below[place])
        for told in ({name: limit}, {}):
            asked = shared if told else shared | {"job": job(**{name: limit})}
            found = largest_concurrency_within(**asked, kv_room_bytes=1000 * GB, **told)
            assert one(found) == pytest.approx((16 + 0.3 * 16) * replicas, rel=1e-6)
        exact = largest_concurrency_within(**shared, kv_room_bytes=1000 * GB, **{name: above[place] * (1 + 1e-9)})
        assert one(exact) == pytest.approx(32 * replicas, rel=1e-6)
        alone = at(1.0, own, plan)[place]
        assert one(largest_concurrency_within(**shared, kv_room_bytes=1000 * GB, **{name: alone * 0.999})) == 0
    little = largest_concurrency_within(**shared, kv_room_bytes=ROOM, max_tpot_s=1e3)
    most = room_for(shared, ROOM)
    assert one(little) == most * replicas


@pytest.mark.parametrize("drafted", [0.0, 1.5])
def test_batches_that_end_together(drafted):
    """All prompts, then 256 steps, or fewer where each gives more than a token."""
    own, plan = job(concurrency=48.0, speculative_tokens=drafted), Plan(tensor_parallel=2.0)
    shared = parts(own, plan)
    start = prefill.prompt_time(tokens=1024.0, prompts=48.0, **shared)
    step = decode_step(running=48.0, context=1024.0 + 128, **shared)
    seconds = one(start.alone_s) + 256 / (1 + drafted) * one(step.total)

    found = static_batch_tokens_per_s(**question("llama-3.1-8b", own, plan, NODES))
    assert one(found) == pytest.approx(48 * 256 / seconds)


def test_ranks_with_requests_of_their_own():
    """Under attention data parallel four ranks take prompts of their own and hold requests of their own."""
    own = job(attention_data_parallel=True, concurrency=40.0, max_sequences=6.0)
    plan = Plan(tensor_parallel=4.0)
    shared = question("llama-3.1-8b", own, plan, NODES)
    most = room_for(shared, 40 * GB)
    assert most == 24
    found = serving_speed(**shared, kv_room_bytes=40 * GB)
    token, first, stay = at(24.0, own, plan, groups=4.0)
    assert one(found.running) == 24
    assert one(found.tpot_s) == pytest.approx(token, rel=1e-6)
    assert one(found.queue_s) == pytest.approx(16 * stay / 24, rel=1e-6)
    assert one(found.ttft_s) == pytest.approx(first + 16 * stay / 24, rel=1e-6)
    prompt = prefill.prompt_time(tokens=1024.0, **parts(own, plan))
    assert one(found.prefill_tokens_per_s) == pytest.approx(1024 / one(prompt.shared_s) * 4)


def test_answers_of_a_few_tokens_keep_bands_in_order():
    """The faster end is not later than the typical one, however short the answers."""
    own = job(output_tokens=2.0, concurrency=64.0)
    found = serving_speed(**question("llama-3.1-8b", own, plans((1, 1, 1)), NODES), kv_room_bytes=40 * GB)
    first = found.ttft_s[:, 0, 0]

    assert first[0] <= first[1] <= first[2]
    single = job(output_tokens=1.0, concurrency=1.0)
    found = serving_speed(**question("llama-3.1-8b", single, Plan(), NODES), kv_room_bytes=40 * GB)
    assert one(found.tokens_per_s) == pytest.approx(1 / one(found.ttft_s), rel=1e-6)
