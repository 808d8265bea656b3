"""Small formulas that training and serving share."""

import numpy as np
import pytest

from gpuguide.estimate.memory import LORA_TARGETS, adapter_params, kv_cache_bytes, linear_shapes
from gpuguide.spec.model import Model


def decoder(**shape: float | bool | str) -> Model:
    """A model given by its shape alone; parameter counts play no part here."""
    values = {"kv_heads": shape["heads"], "head_dim": shape["hidden"] / shape["heads"], "vocab": 32_000.0} | shape
    return Model(
        name="decoder", kind="dense", source="test", params=1e9, params_active=1e9, params_embedding=1e8,
        params_lm_head=1e8, tied_embeddings=False, **values,
    )  # fmt: skip


LLAMA_2_7B = decoder(layers=32, hidden=4096, ffn=11008, heads=32)
LLAMA_2_13B = decoder(layers=40, hidden=5120, ffn=13824, heads=40)
TINYLLAMA = decoder(layers=22, hidden=2048, ffn=5632, heads=32, kv_heads=4)
QWEN_25_1B = decoder(layers=28, hidden=1536, ffn=8960, heads=12, kv_heads=2)
SMOLLM2_135M = decoder(layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3)
PYTHIA_1B = decoder(layers=4, hidden=2048, ffn=8192, heads=16, gated_mlp=False)

CACHES = [  # bytes of one token in 16 bit
    pytest.param(131_072, 32, 8, 128, id="Llama 3.1 8B, litgpt config.py"),
    pytest.param(524_288, 32, 32, 128, id="Llama 2 7B, litgpt config.py"),
    pytest.param(57_344, 28, 4, 128, id="Qwen2.5 7B, config.json"),
]
ADAPTERS = [  # trainable parameters as printed by the run
    pytest.param(4_194_304, LLAMA_2_7B, 8, ("q", "v"), id="Llama 2 7B, LitGPT resource table"),
    pytest.param(6_553_600, LLAMA_2_13B, 8, ("q", "v"), id="Llama 2 13B, LitGPT resource table"),
    pytest.param(9_011_200, TINYLLAMA, 32, ("q", "k", "v", "o"), id="TinyLlama, fitcheck sweep"),
    pytest.param(8_716_288, QWEN_25_1B, 32, ("q", "k", "v", "o"), id="Qwen2.5 1.5B, fitcheck sweep"),
    pytest.param(3_686_400, SMOLLM2_135M, 32, ("q", "k", "v", "o"), id="SmolLM2 135M, fitcheck sweep"),
]


@pytest.mark.parametrize(("expected", "layers", "kv_heads", "head_dim"), CACHES)
def test_kv_cache_of_one_token(expected, layers, kv_heads, head_dim):
    """Attention heads taken for KV heads, or one tensor for two, would show here."""
    actual = kv_cache_bytes(cached_tokens=1, layers=layers, kv_heads=kv_heads, head_dim=head_dim, bytes_per_element=2)

    assert expected == actual


def test_kv_cache_of_an_array_is_that_of_its_elements():
    """A formula that cannot take a column of plans would need a loop."""
    tokens = np.array([[1.0], [4096.0], [1e12]])
    shape = {"layers": 80, "kv_heads": 8, "head_dim": 128, "bytes_per_element": 1}

    assert kv_cache_bytes(cached_tokens=tokens, **shape).tolist() == [
        [kv_cache_bytes(cached_tokens=float(count), **shape)] for (count,) in tokens
    ]


@pytest.mark.parametrize(("expected", "model", "rank", "targets"), ADAPTERS)
def test_adapters_count_what_runs_print(expected, model, rank, targets):
    """An adapter on the wrong side of grouped-query attention, or one factor forgotten, would show here."""
    assert adapter_params(model=model, lora_rank=rank, lora_targets=targets) == expected


def test_all_means_every_linear_layer():
    """`all` that leaves a layer out gives adapters that are too small."""
    named = adapter_params(model=LLAMA_2_7B, lora_rank=8, lora_targets=LORA_TARGETS)

    assert adapter_params(model=LLAMA_2_7B, lora_rank=8, lora_targets=("all",)) == named
    assert "gate" not in linear_shapes(model=PYTHIA_1B, ffn=8192)


def test_every_routed_expert_has_its_adapter():
    """Experts counted once would make adapters of a mixture far too small."""
    shape = {"layers": 2, "hidden": 64, "ffn": 0, "heads": 4}
    experts = decoder(**shape, experts=8.0, moe_ffn=32.0, moe_layers=2.0, experts_per_token=2.0)

    assert adapter_params(model=experts, lora_rank=1, lora_targets=("up",)) == 2 * 8 * (64 + 32)
