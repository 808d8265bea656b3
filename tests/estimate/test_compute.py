"""Work of training and rates of multiplication against published figures."""

import numpy as np
import pytest

from gpuguide.estimate.compute import (
    adapters_of,
    attention_flops_per_token,
    block_params,
    matmul_flops_per_s,
    training_flops_per_token,
)
from gpuguide.units import TFLOP
from tests.estimate.training_cases import job, machines, model, tables


def test_work_of_llama_3_70b():
    """449.2 GFLOP per token at 8192 tokens; attention counted twice would give 492. Source: Megatron Bridge."""
    flops = training_flops_per_token(model=model("llama-3-70b"), job=job(sequence_length=8192.0)).total

    assert flops == pytest.approx(449.2e9, rel=0.01)


def test_lora_leaves_base_weight_gradients_out():
    """Four FLOP per parameter, not six: 278 GFLOP per token without attention. Source: Megatron Bridge, LoRA rows."""
    flops = training_flops_per_token(
        model=model("llama-3-70b"), job=job(method="lora", lora_rank=16.0, lora_targets=("all",))
    )

    assert flops.block + flops.head == pytest.approx(278e9, rel=0.01)


def test_adapters_of_llama_2_7b():
    """Adapters on grouped keys as wide as queries, or on one end only, would show. Source: LitGPT fine-tuning table."""
    count = adapters_of(model("llama-2-7b"), job(method="lora", lora_rank=8.0, lora_targets=("q", "v")))

    assert count == 4_194_304


ACTIVE = [
    pytest.param("deepseek-v3", 37e9, 0.06, id="DeepSeek-V3, 37 B active, model card"),
    pytest.param("qwen3-30b-a3b", 3.3e9, 0.12, id="Qwen3-30B-A3B, 3.3 B active, model card"),
    pytest.param("mixtral-8x7b", 12.9e9, 0.03, id="Mixtral 8x7B, 12.9 B active, model card"),
]


@pytest.mark.parametrize(("name", "expected", "tolerance"), ACTIVE)
def test_only_used_experts_work(name, expected, tolerance):
    """All experts counted would be 2 to 20 times this."""
    chosen = model(name)

    assert block_params(chosen) + 2 * chosen.params_embedding == pytest.approx(expected, rel=tolerance)


def test_a_window_bounds_attention():
    """A sliding window of 4096 at 128 Ki tokens sees 4096 at most, a 16th of the mean of half the sequence."""
    windowed = model("mistral-7b")
    assert windowed.kv_window == 4096
    long, short = (attention_flops_per_token(model=windowed, sequence_length=s) for s in (131_072.0, 4096.0))

    assert long < 2 * short


RATES = [  # [TFLOP/s], GPU, precision
    pytest.param(794.5, "H100-SXM", "bf16", id="H100 bf16, MAMF of ml-engineering"),
    pytest.param(1402.6, "H100-SXM", "fp8", id="H100 fp8, MAMF of ml-engineering"),
    pytest.param(3432.0, "B200", "fp8", id="B200 fp8, MAMF of ml-engineering"),
    pytest.param(271.2, "A100-80GB-SXM", "bf16", id="A100 bf16, MAMF of ml-engineering"),
    pytest.param(271.2, "A100-80GB-SXM", "fp8", id="A100 has no fp8 and falls back to bf16"),
    pytest.param(45.5, "T4", "bf16", id="T4 has no bf16 and falls back to fp16"),
]


@pytest.mark.parametrize(("expected", "gpu", "precision"), RATES)
def test_rates_are_what_was_measured(expected, gpu, precision):
    """A sparse or accumulate-16 data-sheet figure is twice as high."""
    rate = matmul_flops_per_s(nodes=machines((gpu, 1, 1)), precision=precision, fp8_share=0.92)[0]

    assert rate / TFLOP == pytest.approx(expected, rel=0.10)


def test_wider_is_never_faster():
    """8 bit slower than 16, or 32 faster than 16, on any GPU of the table would be a slip in its rates."""
    nodes = machines(*((name, 1, 1) for name in tables()["gpus"]))
    rates = [matmul_flops_per_s(nodes=nodes, precision=p, fp8_share=0.9, fp4_share=0.6) for p in ("bf16", "fp8", "fp4")]

    assert np.all(np.isfinite(rates))
    assert np.all(rates[1] >= rates[0] * 0.999)
    assert np.all(rates[2] >= rates[1] * 0.8)


def test_wide_formats_by_hand():
    """FP32 at 90 % of its peak; TF32 reaches the share of its peak that 16 bit reaches, half the rate on A100."""
    nodes = machines(("A100-80GB-SXM", 1, 1))
    bf16, tf32, fp32 = (float(matmul_flops_per_s(nodes=nodes, precision=name)[0]) for name in ("bf16", "tf32", "fp32"))

    assert fp32 == pytest.approx(0.9 * 19.5e12)
    assert tf32 == pytest.approx(bf16 * 156 / 312)
