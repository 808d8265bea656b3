"""Serving speed as a whole: published runs, load and room, targets, and what must hold between them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuguide.estimate.decode import decode_step
from gpuguide.estimate.kv_cache import cache_bytes_per_sequence
from gpuguide.estimate.serving import (
    largest_concurrency_within,
    most_running,
    prompt_s,
    serving_speed,
    static_batch_tokens_per_s,
)
from gpuguide.estimate.serving_memory import kv_room_bytes
from gpuguide.estimate.serving_rates import rates
from gpuguide.spec.plan import Plan
from gpuguide.units import GB
from tests.estimate.serving_cases import ASSUMPTIONS, MODELS, ROOM, job, machines, plans, question, typical

FIELDS = ("ttft_s", "tpot_s", "prefill_tokens_per_s", "tokens_per_s", "running", "replicas", "queue_s")


def served(model, asked, plan=None, nodes=None, room=ROOM):
    return serving_speed(**question(model, asked, plan, nodes), kv_room_bytes=room)


def roomy(model, asked, plan, nodes):
    shared = question(model, asked, plan, nodes)
    return serving_speed(**shared, kv_room_bytes=kv_room_bytes(**shared))


def offline(form, prompt, output):
    return job(
        "tensorrt-llm", form, prompt_tokens=float(prompt), output_tokens=float(output), concurrency=1e6,
        kv_bytes_per_element=1.0 if form == "fp8" else 2.0, max_context=float(prompt + output),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "form", "gpu", "ranks", "prompt", "output"),
    [
        pytest.param(8290, "fp8", "H200-SXM", 2, 128, 2048, id="H200 x 2, 70B FP8, 128 in, 2048 out"),
        pytest.param(14156, "fp8", "H200-SXM", 4, 128, 2048, id="H200 x 4"),
        pytest.param(1358, "fp8", "H200-SXM", 4, 2048, 128, id="H200 x 4, prompts dominate"),
        pytest.param(4166, "fp8", "H200-SXM", 1, 128, 2048, id="one H200: room for the cache"),
        pytest.param(912, "fp8", "H100-SXM", 1, 128, 2048, id="one H100: hardly any room, 4.6 times less"),
        pytest.param(1943, "fp8", "L40S", 4, 128, 2048, id="L40S x 4 over PCIe"),
        pytest.param(5242, "fp16", "A100-80GB-SXM", 8, 128, 2048, id="A100 x 8, FP16"),
    ],
)
def test_highest_throughput(expected, form, gpu, ranks, prompt, output):
    """TensorRT-LLM 0.17 performance overview, Llama 3.1 70B at full load: room, batch and prompts must all be right."""
    speed = roomy(
        "llama-3.1-70b", offline(form, prompt, output), Plan(tensor_parallel=float(ranks)), machines((gpu, ranks))
    )
    assert 1 / 1.6 <= typical(speed.tokens_per_s) / expected <= 1.6


@pytest.mark.parametrize(
    ("expected_ms", "requests_per_s", "prompt", "output"),
    [
        pytest.param(8.0, 2.0, 467, 256, id="2 requests/s"),
        pytest.param(11.0, 16.0, 467, 256, id="16 requests/s"),
        pytest.param(19.0, 32.0, 467, 256, id="32 requests/s"),
    ],
)
def test_open_load(expected_ms, requests_per_s, prompt, output):
    """TensorRT-LLM 0.14 online, 8B BF16 on one H100: time per token grows with the rate of requests."""
    asked = job("tensorrt-llm", prompt_tokens=float(prompt), output_tokens=float(output), requests_per_s=requests_per_s)
    speed = roomy("llama-3.1-8b", asked, Plan(), machines(("H100-SXM", 1)))
    assert typical(speed.tpot_s) * 1e3 == pytest.approx(expected_ms, rel=0.3)
    assert typical(speed.tokens_per_s) == pytest.approx(requests_per_s * output, rel=1e-6)


def test_more_than_can_be_served_queues_without_end():
    """A rate above the highest must not be answered by a finite wait."""
    speed = served("llama-3.1-8b", job(requests_per_s=10_000.0))
    assert np.all(np.isinf(speed.queue_s))
    assert np.all(np.isinf(speed.ttft_s))
    assert set(speed.bound.ravel()) == {"kv_room"}
    assert np.all(np.isfinite(speed.tokens_per_s))


def test_short_room_makes_requests_wait_not_decode_slower():
    """70B FP8 on one H200, 1024 in, 8192 out, 64 requests: 79 s to the first token, 30 ms a token (aiconfigurator)."""
    asked = job("tensorrt-llm", "fp8", prompt_tokens=1024.0, output_tokens=8192.0, max_context=9216.0, concurrency=64.0)
    plan, nodes = Plan(), machines(("H200-SXM", 1))
    short = roomy("llama-3.1-70b", asked, plan, nodes)
    few = roomy("llama-3.1-70b", replace(asked, concurrency=32.0), plan, nodes)

    assert typical(short.ttft_s) > 20
    assert typical(few.ttft_s) < 5
    assert typical(short.tpot_s) == pytest.approx(typical(few.tpot_s), rel=0.3)
    assert short.bound[1, 0, 0] == "kv_room"


def test_replicas_share_the_load():
    """Two replicas with twice the requests: the same latency, twice the throughput."""
    one = served("llama-3.1-8b", job(concurrency=16.0), plans((1, 1, 1)), machines(("H100-SXM", 2)))
    two = served("llama-3.1-8b", job(concurrency=32.0), plans((1, 1, 2)), machines(("H100-SXM", 2)))
    assert typical(two.tpot_s) == pytest.approx(typical(one.tpot_s))
    assert typical(two.tokens_per_s) == pytest.approx(2 * typical(one.tokens_per_s))
    assert typical(two.running) == typical(one.running)


def test_one_fast_gpu_answers_sooner_than_it_would_split_over_pcie():
    """Tensor parallel cuts latency over NVLink; over PCIe eight cards hardly beat four."""
    asked = job(form="fp8", concurrency=8.0)
    nodes = machines(("H100-SXM", 8), ("L40S", 8))
    speed = served("llama-3.1-70b", asked, plans((2, 1, 4), (4, 1, 2), (8, 1, 1)), nodes)
    tpot = np.asarray(speed.tpot_s)[1]
    assert tpot[0, 0] > tpot[1, 0] > tpot[2, 0]
    assert tpot[1, 1] / tpot[2, 1] < 1.35


def test_attention_data_parallel_runs_more_with_latent_cache():
    """A latent cache is on every tensor rank: with attention data parallel each rank holds requests of its own."""
    asked = job("sglang", "fp8", concurrency=4096.0, prompt_tokens=1024.0, output_tokens=1024.0)
    plan, nodes = Plan(tensor_parallel=8.0, expert_parallel=8.0), machines(("H200-SXM", 8))
    split = served("deepseek-v3", asked, plan, nodes)
    each = served("deepseek-v3", replace(asked, attention_data_parallel=True), plan, nodes)
    assert typical(each.running) == pytest.approx(min(8 * typical(split.running), 4096))
    assert typical(each.tokens_per_s) > 1.5 * typical(split.tokens_per_s)


@given(
    concurrency=st.floats(1, 2000),
    prompt=st.floats(1, 20_000),
    output=st.floats(1, 5_000),
    room=st.floats(1, 200),
    model=st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "gemma-3-27b"]),
)
@example(concurrency=2.0, prompt=1422.0, output=1.0, room=1.0, model="llama-3.1-8b")
@settings(max_examples=40)
def test_bands_are_ordered_and_finite(concurrency, prompt, output, room, model):
    """Band 0 is the fastest in every field, whatever the load."""
    speed = served(model, job(concurrency=concurrency, prompt_tokens=prompt, output_tokens=output), room=room * GB)
    for name in FIELDS:
        assert np.all(np.isfinite(getattr(speed, name))), name
    tpot, ttft = np.asarray(speed.tpot_s)[:, 0, 0], np.asarray(speed.ttft_s)[:, 0, 0]
    assert np.all(np.diff(tpot) >= 0)
    assert np.all(np.diff(ttft) >= 0)
    assert np.all(np.diff(np.asarray(speed.tokens_per_s)[:, 0, 0]) <= 1e-9)


@given(first=st.floats(1, 300), more=st.floats(1, 3))
def test_more_requests_are_slower_each_and_more_in_all(first, more):
    """Throughput against latency is a curve without turns."""
    few, many = (served("llama-3.1-8b", job(concurrency=size), room=200 * GB) for size in (first, first * more))
    assert typical(many.tpot_s) >= typical(few.tpot_s) * (1 - 1e-9)
    assert typical(many.tokens_per_s) >= typical(few.tokens_per_s) * (1 - 1e-9)


def test_plans_and_shapes_at_once_are_one_by_one():
    """The same answer for one pair and for a search, closed and open load."""
    shapes, degrees = [("H100-SXM", 8), ("L40S", 8)], [(1, 1, 8), (4, 1, 2), (2, 2, 2), (8, 1, 1)]
    for asked in (job(form="fp8", concurrency=64.0), job(form="fp8", requests_per_s=3.0)):
        together = served("qwen3-32b", asked, plans(*degrees), machines(*shapes))
        for row, degree in enumerate(degrees):
            for column, shape in enumerate(shapes):
                alone = served("qwen3-32b", asked, plans(degree), machines(shape))
                for name in FIELDS:
                    expected = np.broadcast_to(getattr(together, name), (3, len(degrees), len(shapes)))[:, row, column]
                    assert np.ravel(getattr(alone, name)) == pytest.approx(expected), name


def test_flat_pairs_are_the_same_as_the_grid():
    """A search pairs plans with shapes one by one: plan fields of shape (pair,) beside nodes of the same length."""
    nodes = machines(("H100-SXM", 8), ("L40S", 8))
    asked = job(form="fp8", concurrency=64.0)
    pairs = Plan(
        tensor_parallel=np.array([4.0, 8.0]), pipeline_parallel=np.array([1.0, 1.0]), data_parallel=np.array([2.0, 1.0])
    )
    flat = served("qwen3-32b", asked, pairs, nodes)
    grid = served("qwen3-32b", asked, plans((4, 1, 2), (8, 1, 1)), nodes)
    for name in FIELDS:
        square = np.broadcast_to(getattr(grid, name), (3, 2, 2))
        expected = np.stack([square[:, 0, 0], square[:, 1, 1]], axis=-1)
        assert np.reshape(getattr(flat, name), (3, 2)) == pytest.approx(expected), name


@pytest.mark.parametrize("target", [{"max_tpot_s": 0.02}, {"max_ttft_s": 0.5}, {"max_tpot_s": 0.03, "max_ttft_s": 1.0}])
def test_largest_concurrency_is_the_inverse(target):
    """At the answer the targets are kept, a tenth above one of them is not."""
    asked, plan, nodes = job(form="fp8"), plans((1, 1, 1), (2, 1, 1)), machines(("H100-SXM", 2))
    shared = question("llama-3.1-8b", asked, plan, nodes)
    found = largest_concurrency_within(**shared, kv_room_bytes=1000 * GB, **target)

    def excess(share):
        speed = serving_speed(
            **{**shared, "job": replace(asked, concurrency=found[1] * share)}, kv_room_bytes=1000 * GB
        )
        late = [np.asarray(speed.tpot_s)[1] / target.get("max_tpot_s", np.inf)]
        late.append(np.asarray(speed.ttft_s)[1] / target.get("max_ttft_s", np.inf))
        return np.max(late, axis=0)

    assert np.all(found[0] >= found[1])
    assert np.all(excess(1.0) <= 1.03)
    assert np.all((excess(1.15) > 1.0) | (found[1] >= 1023))


def test_an_impossible_target_allows_nobody():
    """0 rather than one request that is too slow."""
    shared = question("llama-3.1-70b", job(form="fp8"), Plan(), machines(("H100-SXM", 1)))
    assert np.all(largest_concurrency_within(**shared, kv_room_bytes=ROOM, max_tpot_s=1e-4) == 0)


def test_scheduler_limit_and_room():
    """vLLM starts with 1024 sequences on large cards; a user's own limit counts first; room rounds down."""
    nodes = machines(("H100-SXM", 1))
    shared = question("llama-3.1-8b", job(), Plan(), nodes)
    arguments = {key: shared[key] for key in ("model", "plan", "nodes")}
    assert np.ravel(most_running(**arguments, job=job(), kv_room_bytes=1e15)) == [1024]
    assert np.ravel(most_running(**arguments, job=job(max_sequences=64.0), kv_room_bytes=1e15)) == [64]
    assert np.ravel(most_running(**arguments, job=job(), kv_room_bytes=ROOM)) == [np.floor(0.95 * ROOM / 151_000_000)]


def test_static_batch_is_prompts_then_steps():
    """TensorRT-LLM 0.6.1, Llama-2-7B FP16 on A100, batch 384, 128 in and out: 5586 tokens/s."""
    asked = job("tensorrt-llm", "fp16", prompt_tokens=128.0, output_tokens=128.0, concurrency=384.0)
    found = static_batch_tokens_per_s(**question("llama-2-7b", asked, Plan(), machines(("A100-80GB-SXM", 1))))
    assert typical(found) == pytest.approx(5586, rel=0.25)


def test_open_load_is_a_closed_load_that_finds_the_others():
    """Little's law: at a rate of requests the batch is that of one more request than the rate times the stay."""
    for rate in (0.2, 2.0, 6.0):
        asked = job(requests_per_s=rate, concurrency=None)
        opened = served("llama-3.1-8b", asked, room=40 * GB)
        running = typical(opened.running)
        closed = served("llama-3.1-8b", job(concurrency=running + 1.0), room=40 * GB)
        stay_s = typical(closed.running) * 256 / typical(closed.tokens_per_s)

        assert typical(opened.tpot_s) == pytest.approx(typical(closed.tpot_s), rel=1e-3)
        assert running == pytest.approx(rate * stay_s, rel=1e-3)
        assert typical(opened.tokens_per_s) == pytest.approx(rate * 256, rel=1e-3)


def test_prefill_rate_of_all_replicas_by_hand():
    """Tokens of a prompt over the time it adds to shared passes, from four replicas at once."""
    one = served("llama-3.1-8b", job(), plans((1, 1, 1)), machines(("H100-SXM", 8)))
    four = served("llama-3.1-8b", job(concurrency=4.0), plans((1, 1, 4)), machines(("H100-SXM", 8)))

    assert typical(four.prefill_tokens_per_s) == pytest.approx(4 * typical(one.prefill_tokens_per_s))
    assert typical(four.replicas) == 4.0


def test_exactly_full_is_not_short_of_room():
    """As many requests as there is room for do not wait; one more does."""
    asked = job(concurrency=1e6)
    most = typical(served("llama-3.1-8b", asked, room=10 * GB).running)
    full = served("llama-3.1-8b", job(concurrency=most), room=10 * GB)
    over = served("llama-3.1-8b", job(concurrency=most + 1), room=10 * GB)

    assert typical(full.queue_s) == 0.0
    assert "kv_room" not in set(full.bound.ravel())
    assert typical(over.queue_s) == pytest.approx(256 / typical(over.tokens_per_s))
    assert set(over.bound.ravel()) == {"kv_room"}


ROOMS = [  # requests of 1,152 tokens on average that 10 GB a GPU hold, plan, GPUs
    pytest.param(1, 1, Plan(), id="one GPU"),
    pytest.param(2, 1, Plan(tensor_parallel=2.0), id="two ranks hold half of each"),
    pytest.param(1, 4, Plan(pipeline_parallel=4.0), id="four stages hold a quarter of the layers each"),
]


@pytest.mark.parametrize(("ranks", "stages", "plan"), ROOMS)
def test_room_by_hand(ranks, stages, plan):
    """95 % of the room over whole pages of prompt and half an answer, in 131,072 bytes a token."""
    asked = job(concurrency=1e6, max_sequences=1e6)
    found = most_running(
        **{key: value for key, value in question("llama-3.1-8b", asked, plan).items() if key != "assumptions"},
        kv_room_bytes=10 * GB,
    )
    tokens = 1024 + 128 + 16  # a page beyond what they fill
    each = cache_bytes_per_sequence(
        model=MODELS.get("llama-3.1-8b"), tokens=1152.0, bytes_per_element=2.0,
        policy=asked.engine.window_policy, page_tokens=asked.engine.page_tokens,
    )  # fmt: skip

    assert each <= tokens * 131_072
    assert float(found) == np.floor(0.95 * 10 * GB * stages / (each / ranks))


def test_drafted_tokens_divide_the_step():
    """1.5 accepted tokens beside each: a step gives 2.5 of them, alone without others' prompts."""
    plain, drafted = (served("llama-3.1-8b", job(speculative_tokens=tokens)) for tokens in (0.0, 1.5))
    known = question("llama-3.1-8b", job(speculative_tokens=1.5))
    step = decode_step(
        running=1.0, context=1024 + 128.0, reduce=None,
        known=rates(**{key: known[key] for key in ("model", "job", "nodes", "assumptions")}), **known,
    )  # fmt: skip

    assert typical(drafted.tpot_s) == pytest.approx(typical(step.total) / 2.5)
    assert typical(drafted.tpot_s) < typical(plain.tpot_s)


def test_a_stay_by_hand():
    """Alone: half a step to be admitted, its prompt, the host's work for an arrival, then 255 more tokens."""
    found = served("llama-3.1-8b", job())
    prompt = typical(prompt_s(**question("llama-3.1-8b", job())))
    arrival = ASSUMPTIONS.value("serving_speed_arrival_s")
    token = typical(found.tpot_s)

    assert typical(found.ttft_s) == pytest.approx(0.5 * token + prompt + arrival)
    assert typical(found.tokens_per_s) == pytest.approx(256 / (typical(found.ttft_s) + 255 * token))
