"""Prefill against published first-token latencies and llama-bench, and what must hold between length and time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.estimate.prefill import attention_flops
from gpuguide.estimate.serving import prompt_s
from gpuguide.spec.plan import Plan
from tests.estimate.serving_cases import MODELS, job, machines, plans, question, typical


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
