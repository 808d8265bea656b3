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


def test_plain_mlp_reads_one_input():
    """GPT-2: one joint projection into attention, one into the MLP, each cast for itself under autocast."""
    gpt = cases.model("gpt2-xl")
    for recipe, width in (("pure-bf16", 2), ("amp-fp32-master", 2)):
        layer = kept(gpt, recipe=recipe)
        stream = 4 if recipe == "amp-fp32-master" else width
        assert layer.norms == 2 * stream * gpt.hidden + 2 * width * gpt.hidden
        assert layer.mlp == 2 * width * gpt.ffn


def test_recurrent_layers_by_hand():
    """Of a hybrid's layers those with a recurrence keep twelve values a hidden unit and no scores."""
    hybrid = cases.model("qwen3.5-27b")
    share = hybrid.layers_recurrent / hybrid.layers
    layer = kept(hybrid, attention="eager", fused_norms=True)
    heads, kv_heads, width = hybrid.heads, hybrid.heads, hybrid.head_dim
    attention = 2 * (heads * 2 * width + kv_heads * 2 * width) + 4 * heads

    assert 0 < share < 1
    assert layer.attention == pytest.approx((1 - share) * attention + share * 2 * 12 * hybrid.hidden)
    assert layer.scores == pytest.approx((1 - share) * heads * 2)


def test_latent_attention_by_hand():
    """DeepSeek-V3: keys of 128 + 64 and values of 128 for all 128 heads, and both latents twice."""
    layer = kept(cases.model("deepseek-v3"), fused_norms=True)

    assert layer.attention == 2 * (2 * 128 * (192 + 128) + 2 * (1536 + 512)) + 4 * 128


def test_shared_and_dense_experts_by_hand():
    """DeepSeek-V3: eight routed and one shared expert of 2,048 in 58 of 61 layers, an MLP of 18,432 in three."""
    layer = layer_bytes(model=cases.model("deepseek-v3"), job=cases.job(fused_norms=True), expert_imbalance=1.5)
    expert = 8 * 1.5 * (3 * 2 * 2048 + 2 * 2 * 7168) + 3 * 2 * 2048 + 2 * 4 * 256
    dense = 3 * 2 * 18_432

    assert layer.mlp == pytest.approx(58 / 61 * expert + 3 / 61 * dense)
    assert layer.mlp_largest == max(expert, dense)
    assert layer.mlp_backward == pytest.approx(2 * 2 * max(18_432, 2048 * (8 * 1.5 + 1)) + 2 * 7168)


SCORES = [  # bytes kept and live a head and key, recipe, changes
    pytest.param(6, 8, "pure-bf16", {"attention": "eager"}, id="FP32 softmax and its 16-bit copy"),
    pytest.param(4, 12, "fp32", {"attention": "eager"}, id="FP32 throughout"),
    pytest.param(2, 4, "pure-bf16", {"attention": "eager", "fused_norms": True}, id="fused softmax"),
    pytest.param(0, 0, "pure-bf16", {}, id="fused attention"),
]


@pytest.mark.parametrize(("stored", "live", "recipe", "changes"), SCORES)
def test_scores_by_hand(stored, live, recipe, changes):
    """The quadratic part, which decides at long sequences."""
    layer = kept(cases.model("llama-2-7b"), recipe=recipe, **changes)

    assert layer.scores == stored * 32
    assert layer.scores_backward == live * 32


def test_padding_mask_by_hand():
    """One mask row a token in the width of activations, and keys repeated for all heads."""
    llama = cases.model("llama-3.1-8b")
    layer = kept(llama, recipe="pure-bf16", masked_attention=True)

    assert layer.scores == 2
    assert layer.attention == 2 * 4 * 4096 + 4 * 32


def test_adapters_by_hand():
    """Rank 8 on two projections: inner values, and inputs raised to FP32 where adapters are FP32."""
    llama = cases.model("llama-2-7b")
    lora = {"recipe": "pure-bf16", "method": "lora", "lora_rank": 8.0, "lora_targets": ("q", "down")}

    assert kept(llama, adapter_bytes=2.0, **lora).adapters == 2 * 8 * 2
    assert kept(llama, adapter_bytes=4.0, **lora).adapters == 2 * 8 * 4 + 2 * (4096 + 11_008)
    assert kept(llama, adapter_bytes=4.0, fused_adapters=True, **lora).adapters == 2 * 8 * 4
    output = kept(llama, adapter_bytes=4.0, **(lora | {"lora_targets": ("o",)}))
    assert output.adapters == 8 * 4 + 2 * 4096


def test_quantised_inputs_by_hand():
    """bitsandbytes before 0.43.2 kept the input of every 4-bit layer, adapted or not."""
    llama = cases.model("llama-2-7b")
    base = {"recipe": "pure-bf16", "method": "qlora", "lora_rank": 8.0, "adapter_bytes": 2.0, "quantization": "nf4"}
    more = {}
    for targets in (("q", "v"), ("gate", "down"), ("o",)):
        old, new = (
            kept(llama, lora_targets=targets, keeps_quantised_inputs=flag, **base).adapters for flag in (True, False)
        )
        more[targets] = (old - new) / 2
    assert more == {("q", "v"): 4096 + 11_008, ("gate", "down"): 4096, ("o",): 4096 + 11_008 + 4096}


def test_norms_while_they_are_differentiated():
    """Five FP32 tensors and a gradient in an eager norm, two tensors in a fused one; a frozen norm may go."""
    llama = cases.model("llama-2-7b")

    assert kept(llama, recipe="pure-bf16").norm_backward == (5 * 4 + 2) * 4096
    assert kept(llama, recipe="pure-bf16", fused_norms=True).norm_backward == (2 + 2) * 4096
    lora = kept(llama, recipe="pure-bf16", method="lora", lora_rank=8.0, lora_targets=("q",))
    assert (lora.norm_final, lora.norm_frozen) == (4 * 4096, 4 * 4096)
    full = kept(llama, recipe="pure-bf16")
    assert (full.norm_final, full.norm_frozen) == ((4 + 2) * 4096 + 2 * 4096, 0.0)


MOMENTS = [  # bytes a word of the vocabulary at backward, forward, after the loss
    pytest.param((14, 10, 2), {"recipe": "pure-bf16"}, id="unfused"),
    pytest.param((16, 12, 4), {"recipe": "fp32"}, id="FP32"),
    pytest.param((8, 6, 0), {"inplace_loss": True}, id="in place"),
]


@pytest.mark.parametrize(("moments", "changes"), MOMENTS)
def test_logits_by_hand(moments, changes):
    """What is alive at the turn is not what was alive before it."""
    model = cases.model("qwen2.5-7b")
    assert logits_bytes(model=model, job=cases.job(**changes)) == tuple(size * model.vocab for size in moments)
    fused = logits_bytes(model=model, job=cases.job(fused_loss=True))
    assert fused == ((2 + 4 + 2) * model.hidden, (2 + 4) * model.hidden, 0.0)
