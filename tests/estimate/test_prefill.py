"""Prefill against published first-token latencies and llama-bench, and what must hold between length and time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.estimate.network import all_to_all_s
from gpuguide.estimate.prefill import attention_flops, pass_tokens, prompt_time
from gpuguide.estimate.serving import prompt_s
from gpuguide.estimate.serving_links import reduce_of
from gpuguide.estimate.serving_rates import Rates
from gpuguide.spec.plan import Plan
from tests.estimate.serving_cases import ASSUMPTIONS, MODELS, job, machines, plans, question, typical


def seconds(model, asked, gpu, count=1, **degrees):
    return prompt_s(**question(model, asked, Plan(**degrees), machines((gpu, count))))


@pytest.mark.parametrize(
    ("expected_ms", "tolerance", "form", "gpu", "ranks", "model", "tokens"),
    [
        pytest.param(133, 0.25, "fp16", "A100-80GB-SXM", 1, "llama-2-7b", 2048, id="A100, 7B FP16, 2048 tokens"),
        pytest.param(16, 0.25, "fp16", "A100-80GB-SXM", 1, "llama-2-7b", 128, id="A100, 7B FP16, 128: the floor"),
        pytest.param(36, 0.35, "fp8", "H100-SXM", 1, "llama-2-7b", 2048, id="H100, 7B FP8, 2048"),
        pytest.param(73, 0.25, "fp8", "L40S", 1, "llama-2-7b", 2048, id="L40S, 7B FP8, 2048"),
        pytest.param(377, 0.25, "fp16", "A100-80GB-SXM", 4, "llama-2-70b", 2048, id="4 x A100, 70B FP16, 2048"),
        pytest.param(109, 0.35, "fp8", "H100-SXM", 4, "llama-2-70b", 2048, id="4 x H100, 70B FP8, 2048"),
    ],
)
def test_first_token_latency(expected_ms, tolerance, form, gpu, ranks, model, tokens):
    """TensorRT-LLM 0.5 performance page, batch 1: arithmetic alone misses the floor, peak alone is twice too fast."""
    asked = job("tensorrt-llm", form, prompt_tokens=float(tokens))
    assert typical(seconds(model, asked, gpu, ranks, tensor_parallel=float(ranks))) * 1e3 == pytest.approx(
        expected_ms, rel=tolerance
    )


@pytest.mark.parametrize(
    ("tokens_per_s", "gpu", "form", "tokens"),
    [
        pytest.param(9056, "RTX4090", "fp16", 1024, id="RTX 4090, F16, pp1024"),
        pytest.param(6899, "RTX4090", "Q4_K_M", 1024, id="RTX 4090, Q4_K_M, pp1024: packed weights cost a pass"),
        pytest.param(2566, "RTX-A6000", "fp16", 8192, id="RTX A6000, F16, pp8192: unfused attention"),
        pytest.param(10_343, "H100-PCIe", "fp16", 1024, id="H100 PCIe, F16: a fifth of its tensor peak"),
        pytest.param(7504, "A100-80GB-PCIe", "fp16", 1024, id="A100 PCIe, F16, pp1024"),
    ],
)
def test_llama_bench(tokens_per_s, gpu, form, tokens):
    """XiongjieDai/GPU-Benchmarks-on-LLM-Inference: the engine decides more than the card's tensor cores."""
    asked = job("llama.cpp-2024", form, prompt_tokens=float(tokens))
    assert tokens / typical(seconds("llama-3-8b", asked, gpu)) == pytest.approx(tokens_per_s, rel=0.25)


def test_arithmetic_of_causal_attention():
    """Half of all pairs, two products: 2 x tokens^2 x heads x width x layers; the other half would double it."""
    model = MODELS.get("llama-3.1-8b")
    assert attention_flops(model=model, tokens=8192.0) == 2 * 32 * 8192.0**2 * 32 * 128


@given(tokens=st.floats(1, 100_000), more=st.floats(1, 8), model=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b"]))
def test_longer_prompts_take_longer(tokens, more, model):
    """Never faster than in proportion to their arithmetic, never shorter."""
    short = np.asarray(seconds(model, job(prompt_tokens=tokens), "H100-SXM"))
    long = np.asarray(seconds(model, job(prompt_tokens=tokens * more), "H100-SXM"))
    assert np.all(long >= short * (1 - 1e-9))


def test_chunks_fill_a_pipeline():
    """One long prompt over four cards: llama.cpp gains 2.0 to 2.9 at 8192 tokens, nothing at one pass of 512."""
    nodes = machines(("RTX-A6000", 4))
    for tokens, gain in ((8192.0, (2.0, 2.9)), (512.0, (0.9, 1.1))):
        asked = job("llama.cpp-2024", "fp16", prompt_tokens=tokens)
        one, four = np.asarray(prompt_s(**question("llama-3-8b", asked, plans((1, 1, 1), (1, 4, 1)), nodes)))[1, :, 0]
        assert gain[0] <= one / four <= gain[1]


# ---- every part counted by hand --------------------------------------------------------------------------------------

ROUND = Rates(  # 10 GB shared and 40 GB of experts at 1 TB/s, 100 TFLOP/s, 3 ms to launch
    bandwidth=np.float64(1e12), cache_bandwidth=np.float64(5e11), flops=np.float64(1e14), shared_bytes=1e10,
    expert_bytes=4e10, shared_flops=1.5e10, expert_flops=2e9, host_s=3e-3,
)  # fmt: skip
HEAD = 2 * 128_256 * 4096  # FLOP of the output head of Llama 3.1 8B per token
SCORES = 2 * 32 * 128 * 32  # FLOP of causal attention per token squared: heads x width x layers


def prompt_by_hand(tokens, asked=None, plan=None, nodes=None, model="llama-3.1-8b", reduce=None, prompts=1.0):
    asked_for = question(model, asked or job(prefill_chunk_tokens=1024.0), plan, nodes)
    return prompt_time(tokens=tokens, known=ROUND, reduce=reduce, prompts=prompts, **asked_for)


def work_s(tokens, chunks=1, split=1.0, prompts=1.0):
    """Arithmetic beside reading, then attention."""
    linear = prompts * tokens * (1.5e10 - HEAD + 2e9) / split / 1e14
    read = chunks * (1e10 / split + 4e10 / split) / 1e12
    return np.hypot(linear, read) + prompts * SCORES * tokens**2 / split / 1e14


PROMPTS = [  # tokens, chunks of 1,024, prompts together
    pytest.param(100.0, 1, 1.0, id="less than a chunk"),
    pytest.param(1024.0, 1, 1.0, id="one chunk"),
    pytest.param(1025.0, 2, 1.0, id="one token more reads the weights again"),
    pytest.param(8192.0, 8, 1.0, id="eight chunks"),
    pytest.param(1000.0, 4, 4.0, id="four prompts share chunks, not each other's attention"),
]


@pytest.mark.parametrize(("tokens", "chunks", "prompts"), PROMPTS)
def test_a_prompt_by_hand(tokens, chunks, prompts):
    """The head works for one token only; each chunk launches and reads once."""
    found = prompt_by_hand(tokens, prompts=prompts)

    assert float(found.alone_s) == pytest.approx(chunks * 3e-3 + work_s(tokens, chunks, prompts=prompts))
    # Beside decode steps that launch and read anyway, only arithmetic is added.
    linear = prompts * tokens * (1.5e10 - HEAD + 2e9) / 1e14
    assert float(found.shared_s) == pytest.approx(linear + prompts * SCORES * tokens**2 / 1e14)


def test_ranks_by_hand():
    """Two ranks halve the work and reduce twice a layer and chunk; a busy server's pass fills 4,096 tokens."""
    plan, nodes = Plan(tensor_parallel=2.0), machines(("H100-SXM", 8))
    asked = job(prefill_chunk_tokens=8192.0)
    reduce = reduce_of(job=asked, plan=plan, nodes=nodes, assumptions=ASSUMPTIONS)
    found = prompt_by_hand(1000.0, asked, plan, nodes, reduce=reduce)
    links = 2 * 32 * typical(reduce.seconds(1000 * 4096 * 2.0))
    mixed = 2 * 32 * 1000 / 4096 * typical(reduce.seconds(4096 * 4096 * 2.0))

    assert typical(found.alone_s) == pytest.approx(3e-3 + work_s(1000.0, split=2.0) + links)
    linear = 1000 * (1.5e10 - HEAD + 2e9) / 2 / 1e14
    assert typical(found.shared_s) == pytest.approx(linear + SCORES * 1000.0**2 / 2 / 1e14 + mixed)


def test_stages_by_hand():
    """Eight chunks through four stages: 8 + 4 - 1 places of 8 x 4; one chunk passes all stages in turn."""
    plan, nodes = Plan(pipeline_parallel=4.0), machines(("H100-SXM", 8))
    for tokens, chunks in ((8192.0, 8), (1024.0, 1)):
        one, four = prompt_by_hand(tokens, nodes=nodes), prompt_by_hand(tokens, plan=plan, nodes=nodes)
        assert float(four.alone_s) == pytest.approx(float(one.alone_s) * (chunks + 3) / (chunks * 4))
        assert float(four.shared_s) == pytest.approx(float(one.shared_s) / 4)


def test_experts_behind_links_by_hand():
    """Attention data parallel: a prompt's tokens travel to their two experts and back in every layer and chunk."""
    plan, nodes = Plan(tensor_parallel=8.0, expert_parallel=8.0), machines(("H200-SXM", 8))
    asked = job("sglang", attention_data_parallel=True, prefill_chunk_tokens=1024.0)
    found = prompt_by_hand(2048.0, asked, plan, nodes, "mixtral-8x7b")
    swap = all_to_all_s(
        message_bytes=1024 * 4096 * 2.0 * 2, ranks=np.float64(8.0), nodes=nodes, assumptions=ASSUMPTIONS
    )
    linear = 2048 * (1.5e10 - 2 * 32_000 * 4096 + 2e9) / 1e14
    read = 2 * (1e10 + 4e10 / 8) / 1e12
    work = np.hypot(linear, read) + SCORES * 2048.0**2 / 1e14

    assert typical(found.alone_s) == pytest.approx(2 * 3e-3 + work + 2 * 32 * 2 * typical(swap))


def test_llama_cpp_by_hand():
    """Scores are written out in fp32 and moved; packed weights are written out in 16 bit before every pass."""
    asked = job("llama.cpp", "Q4_K_M", prefill_chunk_tokens=512.0)
    found, known = prompt_by_hand(1024.0, asked), MODELS.get("llama-3.1-8b")
    linear, read = 1024 * (1.5e10 - HEAD + 2e9) / 1e14, 2 * 5e10 / 1e12
    scores = 32 * 32 * 1024**2 / 2 * 4 * ASSUMPTIONS.value("serving_speed_native_score_passes") / 1e12
    unpacked = 2 * 2 * (known.params_linear + known.params_lm_head) / 1e12

    assert typical(found.alone_s) == pytest.approx(2 * 3e-3 + np.hypot(linear, read) + scores + unpacked)
    wide = prompt_by_hand(1024.0, job("llama.cpp", "fp16", prefill_chunk_tokens=512.0))
    assert typical(found.alone_s) - typical(wide.alone_s) == pytest.approx(unpacked)


ATTENTION = [  # FLOP over tokens squared of a 4,096-token prompt, model
    pytest.param(2 * 32 * 128 * 32, "llama-3.1-8b", id="Llama 3.1 8B: 32 heads of 128, 32 layers"),
    pytest.param(2 * 128 * (128 + 64 + 128) / 2 * 61, "deepseek-v3", id="DeepSeek-V3: keys of 192, values of 128"),
    pytest.param(2 * 64 * 64 * (12 + 12 * 2 * 128 / 4096), "gpt-oss-20b", id="gpt-oss: 12 of 24 layers see 128 tokens"),
]


@pytest.mark.parametrize(("expected", "name"), ATTENTION)
def test_attention_by_hand(expected, name):
    """Key and value heads, or a window that is not there."""
    assert attention_flops(model=MODELS.get(name), tokens=4096.0) == pytest.approx(expected * 4096**2)


def test_tokens_of_a_pass():
    """An engine's own chunk, the one asked for, or the whole prompt."""
    small, whole = job(), job("llama.cpp")
    assert pass_tokens(job=job(prefill_chunk_tokens=0.0), nodes=machines(("L4", 1))) == 1.0
    assert pass_tokens(job=small, nodes=machines(("L4", 1))) == small.engine.prefill_tokens
    assert pass_tokens(job=small, nodes=machines(("H100-SXM", 1))) == small.engine.prefill_tokens_large
    assert whole.engine.whole_prompt == np.isinf(pass_tokens(job=whole, nodes=machines(("L4", 1))))
