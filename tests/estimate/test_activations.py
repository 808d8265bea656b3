"""What autograd keeps of a layer, against published counts."""

import pytest

from gpuguide.estimate.activations import layer_bytes, logits_bytes
from tests.estimate import training_cases as cases


def kept(model, **changes):
    """Kept bytes of one layer per token."""
    return layer_bytes(model=model, job=cases.job(**changes), expert_imbalance=1.0)


def test_fused_layer_of_a_plain_model():
    """Korthikanti et al. 2022: 34 bytes per token and hidden unit, two of them masks; scores 5 a head and key."""
    gpt = cases.model("gpt2-xl")
    layer = kept(gpt, fused_norms=True, attention="eager", dropout=True)
    log_sums = 4 * gpt.heads

    assert layer.linear - log_sums == 32 * gpt.hidden
    assert layer.scores == 5 * gpt.heads


def test_eager_layer_of_a_gated_model():
    """Traces of Llama 2 7B in bf16: FP32 input and two copies of each norm, four tensors of attention and MLP each."""
    llama = cases.model("llama-2-7b")
    layer = kept(llama, recipe="pure-bf16")

    assert layer.norms == 2 * (4 + 2 + 2) * llama.hidden
    assert layer.attention == 2 * 4 * llama.hidden + 4 * llama.heads
    assert layer.mlp == 2 * 4 * llama.ffn


def test_grouped_query_attention_keeps_fewer_keys():
    """Keys and values counted for every attention head."""
    llama = cases.model("llama-3.1-8b")
    layer = kept(llama, recipe="pure-bf16")

    assert layer.attention == 2 * (2 * 4096 + 2 * 1024) + 4 * 32


def test_frozen_layers_keep_no_inputs():
    """LoRA on two projections that keeps the input of every linear layer."""
    llama = cases.model("llama-2-7b")
    lora = {"recipe": "pure-bf16", "method": "lora", "lora_rank": 8.0, "adapter_bytes": 2.0}
    some, every = kept(llama, lora_targets=("q", "v"), **lora), kept(llama, lora_targets=("all",), **lora)

    assert some.mlp == 2 * 3 * llama.ffn
    assert every.mlp == 2 * 4 * llama.ffn
    assert some.norms == 2 * 4 * llama.hidden + 2 * llama.hidden


def test_autocast_casts_inputs_one_by_one():
    """Under autocast every linear layer casts its input for itself: five copies a layer instead of two."""
    llama = cases.model("llama-2-7b")
    layer = kept(llama, recipe="amp-fp32-master")

    assert layer.norms == (2 * (4 + 4) + 5 * 2) * llama.hidden
    assert layer.entry == 4 * llama.hidden


def test_experts_keep_what_tokens_pass():
    """A mixture that keeps all experts' activations, or those of one."""
    moe = cases.model("qwen3-30b-a3b")
    layer = kept(moe, fused_norms=True)

    per_expert = 3 * 2 * moe.moe_ffn + 2 * 2 * moe.hidden
    assert layer.mlp == pytest.approx(moe.experts_per_token * per_expert + 8 * moe.experts)


LOSSES = [  # bytes a logit at the start of the backward pass
    pytest.param(14, {"recipe": "pure-bf16"}, id="unfused in bf16, fitcheck sweep 02"),
    pytest.param(16, {"recipe": "fp32"}, id="unfused in FP32, fitcheck sweep 01"),
    pytest.param(8, {"inplace_loss": True}, id="softmax in place"),
]


@pytest.mark.parametrize(("expected", "changes"), LOSSES)
def test_bytes_a_logit(expected, changes):
    """A copy of the logits forgotten: gigabytes at a vocabulary of 150,000."""
    model = cases.model("qwen2.5-7b")
    backward, forward, held = logits_bytes(model=model, job=cases.job(**changes))

    assert backward == expected * model.vocab
    assert held <= forward <= backward


def test_fused_loss_has_no_logits():
    """A chunked loss that still grows with the vocabulary."""
    model = cases.model("qwen2.5-7b")

    assert max(logits_bytes(model=model, job=cases.job(fused_loss=True))) <= 10 * model.hidden
