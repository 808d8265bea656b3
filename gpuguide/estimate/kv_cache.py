"""
What a sequence keeps in the cache, by kind of layer: full, windowed, latent, recurrent and cross attention.

Formulas take numbers; `cache_bytes_per_sequence` puts them together for a model as an engine keeps it.
"""

from __future__ import annotations

import numpy as np

from gpuguide.errors import NotModelled
from gpuguide.spec.model import Model
from gpuguide.units import Number

POLICIES = ("window", "window+chunk", "full")


def latent_cache_bytes(
    *, cached_tokens: Number, layers: Number, kv_lora_rank: Number, qk_rope_head_dim: Number, bytes_per_element: Number
) -> Number:
    """
    Cache of latent attention (MLA): one compressed vector and one rotary key per token and layer, on every tensor rank.

    Parameters
    ----------
    cached_tokens : number or array
        [tokens]
    layers, kv_lora_rank, qk_rope_head_dim : number
        Architecture. [-]
    bytes_per_element : number
        [bytes]

    Returns
    -------
    number or array
        [bytes]

    Notes
    -----
    Source: DeepSeek-V2 (arXiv 2405.04434), table 1.

    Examples
    --------
    >>> latent_cache_bytes(cached_tokens=1, layers=61, kv_lora_rank=512, qk_rope_head_dim=64, bytes_per_element=2)
    70272
    """
    return cached_tokens * layers * (kv_lora_rank + qk_rope_head_dim) * bytes_per_element


def expanded_latent_cache_bytes(
    *,
    cached_tokens: Number,
    layers: Number,
    heads: Number,
    key_dim: Number,
    value_dim: Number,
    bytes_per_element: Number,
) -> Number:
    """
    Cache of latent attention in engines that expand it to all heads (llama.cpp before its latent cache). [bytes]

    Notes
    -----
    Keys of every head carry the rotary part: `key_dim` is 128 + 64 in DeepSeek-V3. Source: gguf-parser-go issue 8.
    """
    return cached_tokens * layers * heads * (key_dim + value_dim) * bytes_per_element


def cross_attention_cache_bytes(
    *, source_tokens: Number, layers: Number, kv_heads: Number, head_dim: Number, bytes_per_element: Number
) -> Number:
    """
    Cache of layers that attend to an image or an encoder's output: as long as the source. [bytes]

    Notes
    -----
    Llama 3.2 Vision: 8 layers hold 1601 tokens a tile, up to 4 tiles. Source: `docs/formulas.md`, "KV cache".
    """
    return 2.0 * source_tokens * layers * kv_heads * head_dim * bytes_per_element


def kept_tokens(
    *, tokens: Number, window: Number | None, policy: str, chunk_tokens: Number = 0.0, page_tokens: Number = 1.0
) -> Number:
    """
    Tokens of one sequence that a windowed layer holds, in whole pages.

    Parameters
    ----------
    tokens : number or array
        Length of the sequence. [tokens]
    window : number or None
        Sliding window or attention chunk; None = the layer sees everything. [tokens]
    policy : str
        What the engine keeps: 'window', 'window+chunk' (while a prefill pass runs) or 'full'.
    chunk_tokens : number
        Tokens of one prefill pass. [tokens]
    page_tokens : number
        Cache page. [tokens]

    Raises
    ------
    NotModelled
        If the policy is none of these.
    """
    if policy not in POLICIES:
        raise NotModelled(f"the window policy '{policy}'", f"use one of {', '.join(POLICIES)}")
    whole: Number = np.ceil(np.asarray(tokens) / page_tokens) * page_tokens
    if window is None or policy == "full":
        return whole
    held = window + (chunk_tokens if policy == "window+chunk" else 0.0)
    # A window need not begin at a page, so that one page more is in use.
    pages = np.ceil(np.asarray(held) / page_tokens) + (1.0 if np.any(np.asarray(page_tokens) > 1) else 0.0)
    return np.minimum(whole, pages * page_tokens)


def rank_share(*, model: Model, tensor_parallel: Number) -> Number:
    """
    Part of a sequence's cache that one tensor rank holds. [-]

    Notes
    -----
    Heads are split as far as there are any, uneven ones rounded up; a latent cache is whole on every rank.
    """
    if model.attention == "mla":
        return np.ones_like(np.asarray(tensor_parallel, dtype=np.float64))
    heads = np.maximum(model.kv_heads, 1.0)
    return np.ceil(heads / tensor_parallel) / heads


def cache_bytes_per_sequence(
    *,
    model: Model,
    tokens: Number,
    bytes_per_element: Number,
    state_bytes_per_element: Number = 2.0,
    policy: str = "window",
    chunk_tokens: Number = 0.0,
    page_tokens: Number = 1.0,
) -> Number:
    """
    Cache of one sequence, all layers, before it is split over GPUs.

    Parameters
    ----------
    model : Model
        Cached elements per token of full and windowed layers, and the state of recurrent ones.
    tokens : number or array
        Length of the sequence. [tokens]
    bytes_per_element : number
        Width of a cached value, apart from the weights' width. [bytes]
    state_bytes_per_element : number or array
        Width of a recurrent state: engines keep most in fp32. [bytes]
    policy, chunk_tokens, page_tokens :
        As in `kept_tokens`.

    Returns
    -------
    number or array
        [bytes]

    Notes
    -----
    Source: `docs/formulas.md`, "KV cache".
    """
    full = kept_tokens(tokens=tokens, window=None, policy=policy, page_tokens=page_tokens)
    windowed = kept_tokens(
        tokens=tokens, window=model.kv_window, policy=policy, chunk_tokens=chunk_tokens, page_tokens=page_tokens
    )
    cached = (model.kv_elements_full * full + model.kv_elements_windowed * windowed) * bytes_per_element
    return cached + model.recurrent_elements * state_bytes_per_element


def cache_bounds(*, model: Model, tokens: Number, bytes_per_element: Number) -> tuple[Number, Number]:
    """
    Least and most that engines reserve for one sequence: windows kept as windows, or full-length pages for all. [bytes]

    Notes
    -----
    gpt-oss-20b, 32 sequences of 8192 tokens in BF16: 6.09 and 12.00 GiB. Source: hf-mem pull request 70.
    """
    least = cache_bytes_per_sequence(model=model, tokens=tokens, bytes_per_element=bytes_per_element, policy="window")
    most = cache_bytes_per_sequence(model=model, tokens=tokens, bytes_per_element=bytes_per_element, policy="full")
    return least, most


def tokens_that_fit(
    *,
    model: Model,
    room_bytes: Number,
    bytes_per_element: Number,
    state_bytes_per_element: Number = 2.0,
    policy: str = "window",
    chunk_tokens: Number = 0.0,
    page_tokens: Number = 1.0,
) -> Number:
    """
    Longest sequence whose cache fits the room: the inverse of `cache_bytes_per_sequence`.

    Parameters
    ----------
    room_bytes : number or array
        Memory for one sequence's cache, all ranks together as in `cache_bytes_per_sequence`. [bytes]

    Returns
    -------
    number or array
        Whole pages; inf where a sequence may grow for ever, 0 where not even a page fits. [tokens]
    """
    full, windowed = model.kv_elements_full * bytes_per_element, model.kv_elements_windowed * bytes_per_element
    room = np.asarray(room_bytes - model.recurrent_elements * state_bytes_per_element, dtype=np.float64)
    held: Number = np.inf
    if model.kv_window is not None:
        held = kept_tokens(
            tokens=np.inf, window=model.kv_window, policy=policy, chunk_tokens=chunk_tokens, page_tokens=page_tokens
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        short = room / np.asarray(full + windowed)
        window_bytes = np.where(np.isinf(held), 0.0, windowed * np.where(np.isinf(held), 0.0, held))
        long = np.where(np.asarray(full) > 0, (room - window_bytes) / np.asarray(full), np.inf)
    tokens = np.where(short < held * (1 - 1e-12), short, long)
    pages = np.floor(np.nan_to_num(tokens, nan=np.inf, posinf=np.inf) / page_tokens * (1 + 1e-12))
    return np.maximum(pages * page_tokens, 0.0)
