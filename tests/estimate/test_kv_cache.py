"""Cache by layer kind against published figures, and the inverse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.catalog.models import Models
from gpuguide.catalog.package import data_folder
from gpuguide.errors import NotModelled
from gpuguide.estimate.kv_cache import (
    cache_bounds,
    cache_bytes_per_sequence,
    cross_attention_cache_bytes,
    expanded_latent_cache_bytes,
    kept_tokens,
    latent_cache_bytes,
    rank_share,
    tokens_that_fit,
)
from gpuguide.units import GIB

MODELS = Models(data_folder())
NAMES = ["llama-3.1-8b", "llama-2-7b", "gpt-oss-20b", "gemma-3-27b", "mistral-7b-v0.1", "deepseek-v3", "qwen3.5-27b"]

PER_TOKEN = [  # bytes of one token at 16 bit, short of any window
    pytest.param(131_072, "llama-3.1-8b", id="Llama 3.1 8B: vLLM issue 10517 log"),
    pytest.param(524_288, "llama-2-7b", id="Llama 2 7B: vllm-fit issue 14, not 4194304"),
    pytest.param(327_680, "llama-2-70b", id="Llama 2 70B by KV heads, not query heads: LLM-Viewer issue 12"),
    pytest.param(73_728, "gpt-oss-120b", id="gpt-oss-120b, both kinds of layer: hf-mem issue 60, not 36864"),
    pytest.param(70_272, "deepseek-v3", id="DeepSeek-V3 latent and rotary: hf-config oracle"),
    pytest.param(8_192, "falcon-7b", id="Falcon 7B, one KV head: not 71"),
    pytest.param(114_688, "qwen3-0.6b", id="Qwen3 0.6B, head_dim 128 and not hidden / heads"),
    pytest.param(163_840, "mistral-small-24b", id="Mistral Small 24B: llm-d-planner log, 163822"),
]


@pytest.mark.parametrize(("expected", "name"), PER_TOKEN)
def test_bytes_of_one_token(expected, name):
    """Query heads for KV heads, a forgotten kind of layer or a derived head width would show here."""
    assert cache_bytes_per_sequence(model=MODELS.get(name), tokens=1, bytes_per_element=2) == expected


SEQUENCES = [  # GiB of one sequence at 16 bit, windows kept
    pytest.param(10.41, "gemma-3-27b", 131_072, id="Gemma 3 27B at 128k: unsloth PR 4757, not 81.38"),
    pytest.param(10.72, "deepseek-v3", 163_840, id="DeepSeek-V3.1 at 160k: unsloth PR 4757, not 2.08"),
    pytest.param(0.536, "deepseek-v3", 8_192, id="DeepSeek-V3 at 8k: not 6.67 or 13.3"),
    pytest.param(4.29, "deepseek-v3", 65_536, id="DeepSeek-V3 at 64k, latent: gguf-parser-go issue 8"),
    pytest.param(0.50, "mistral-7b-v0.1", 32_768, id="Mistral 7B v0.1, window in every layer: not 4.0"),
    pytest.param(2.625, "llama-4-scout", 32_768, id="Llama 4 Scout, chunked attention: hf_configs/expected.csv"),
    pytest.param(0.25, "falcon-7b", 32_768, id="Falcon 7B: not 17.75"),
]


@pytest.mark.parametrize(("expected", "name", "tokens"), SEQUENCES)
def test_cache_of_a_long_sequence(expected, name, tokens):
    """Windows ignored, or latent attention taken for heads, would be wrong several times over."""
    actual = cache_bytes_per_sequence(model=MODELS.get(name), tokens=tokens, bytes_per_element=2) / GIB

    assert actual == pytest.approx(expected, rel=0.01)


def test_both_bounds_where_engines_differ():
    """gpt-oss-20b, 32 sequences of 8192: 6.09 GiB with windows kept, 12.00 with full pages. Source: hf-mem PR 70."""
    least, most = cache_bounds(model=MODELS.get("gpt-oss-20b"), tokens=8192, bytes_per_element=2)

    assert 32 * least / GIB == pytest.approx(6.09, abs=0.01)
    assert 32 * most / GIB == pytest.approx(12.00, abs=0.01)


def test_engine_version_decides_on_latent_attention():
    """llama.cpp once expanded DeepSeek-V3 to all heads: 305 GiB at 64k. Source: gguf-parser-go issue 8."""
    expanded = expanded_latent_cache_bytes(
        cached_tokens=65_536, layers=61, heads=128, key_dim=192, value_dim=128, bytes_per_element=2
    )
    latent = latent_cache_bytes(
        cached_tokens=65_536, layers=61, kv_lora_rank=512, qk_rope_head_dim=64, bytes_per_element=2
    )

    assert expanded / GIB == pytest.approx(305, abs=0.5)
    assert latent / GIB == pytest.approx(4.29, abs=0.01)


def test_cross_attention_holds_the_image():
    """Llama 3.2 11B Vision: 8 layers x 1601 tokens x 4 tiles, whatever is generated."""
    actual = cross_attention_cache_bytes(
        source_tokens=4 * 1601, layers=8, kv_heads=8, head_dim=128, bytes_per_element=2
    )

    assert actual == 2 * 8 * 8 * 128 * 2 * 6404


def test_ranks_share_heads_but_not_latents():
    """A latent cache split over tensor ranks would allow 8 times the requests."""
    assert rank_share(model=MODELS.get("llama-3.1-8b"), tensor_parallel=4.0) == 1 / 4
    assert rank_share(model=MODELS.get("llama-3.1-8b"), tensor_parallel=16.0) == 1 / 8
    assert rank_share(model=MODELS.get("phi-4"), tensor_parallel=4.0) == 3 / 10
    np.testing.assert_array_equal(
        rank_share(model=MODELS.get("deepseek-v3"), tensor_parallel=np.array([1.0, 8.0])), [1, 1]
    )


def test_state_of_a_hybrid_does_not_grow():
    """A per-token rate taken from the first token would count the state at every token."""
    model = MODELS.get("qwen3-next-80b-a3b")
    short, long = (cache_bytes_per_sequence(model=model, tokens=t, bytes_per_element=2) for t in (1, 32_769))

    assert (long - short) / 32_768 == 24_576


def test_pages_and_windows_are_whole():
    """Half a page cannot be given to a sequence."""
    assert kept_tokens(tokens=1, window=None, policy="window", page_tokens=16) == 16
    assert kept_tokens(tokens=100_000, window=1024, policy="window") == 1024
    assert kept_tokens(tokens=100_000, window=1024, policy="window", page_tokens=16) == 1040
    assert kept_tokens(tokens=100_000, window=1024, policy="window+chunk", chunk_tokens=2048) == 3072
    assert kept_tokens(tokens=100_000, window=1024, policy="full") == 100_000
    with pytest.raises(NotModelled, match="policy"):
        kept_tokens(tokens=1, window=1024, policy="half")


@given(
    name=st.sampled_from(NAMES),
    tokens=st.integers(1, 200_000),
    more=st.integers(0, 50_000),
    policy=st.sampled_from(["window", "window+chunk", "full"]),
    page=st.sampled_from([1.0, 16.0, 256.0]),
)
def test_more_tokens_never_need_less_and_the_inverse_gives_them_back(name, tokens, more, policy, page):
    """A kink at the window, or an inverse that overshoots the room, would show here."""
    model = MODELS.get(name)
    how = {"bytes_per_element": 2.0, "policy": policy, "chunk_tokens": 2048.0, "page_tokens": page}
    need = cache_bytes_per_sequence(model=model, tokens=tokens, **how)
    fits = tokens_that_fit(model=model, room_bytes=need, **how)

    assert need <= cache_bytes_per_sequence(model=model, tokens=tokens + more, **how)
    assert fits >= tokens
    if np.isfinite(fits):
        assert cache_bytes_per_sequence(model=model, tokens=float(fits), **how) <= need * (1 + 1e-9)


def test_array_equals_one_by_one():
    """A branch that works for scalars only would show here."""
    model, tokens = MODELS.get("gemma-3-27b"), np.array([1.0, 1024.0, 1025.0, 131_072.0])
    together = cache_bytes_per_sequence(model=model, tokens=tokens, bytes_per_element=2)
    back = tokens_that_fit(model=model, room_bytes=together, bytes_per_element=2)

    np.testing.assert_array_equal(
        together, [cache_bytes_per_sequence(model=model, tokens=t, bytes_per_element=2) for t in tokens]
    )
    np.testing.assert_array_equal(back, tokens)


KEPT = [  # tokens kept of 1,000, arguments
    pytest.param(1000, {"window": None}, id="no window"),
    pytest.param(128, {"window": 128}, id="a window"),
    pytest.param(1000, {"window": 128, "policy": "full"}, id="an engine that keeps all"),
    pytest.param(128 + 512, {"window": 128, "policy": "window+chunk", "chunk_tokens": 512.0}, id="a chunk beside it"),
    pytest.param(1008, {"window": None, "page_tokens": 16.0}, id="whole pages"),
    pytest.param(144, {"window": 128, "page_tokens": 16.0}, id="a window lies across one page more"),
    pytest.param(130, {"window": 128, "page_tokens": 2.0}, id="pages of two"),
]


@pytest.mark.parametrize(("expected", "asked"), KEPT)
def test_kept_tokens_by_hand(expected, asked):
    """A window that slides across its pages touches one more than it fills."""
    assert kept_tokens(**({"tokens": 1000.0, "policy": "window"} | asked)) == expected
