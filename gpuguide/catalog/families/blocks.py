"""Parts that many model classes share: attention, MLP, experts, state-space layers; each adds its tensors and cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuguide.catalog.families.draft import Draft
from gpuguide.catalog.families.values import Values

Layers = Sequence[int]
LAYER = "model.layers.{}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Widths that nearly every decoder has."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int


def read_shape(v: Values, d: Draft, *, head_dim: bool = True) -> Shape:
    """
    Common widths; without KV heads every head has its own, without a head width the hidden size is divided.

    `head_dim=False` is for classes that divide whatever the config says.
    """
    layers, hidden, heads = v.layers(), v.number("hidden_size"), v.number("num_attention_heads")
    kv_heads = v.optional("num_key_value_heads") or heads
    if heads % kv_heads:
        raise v.wrong("num_key_value_heads", kv_heads, f"it must divide the {heads} attention heads")
    width = v.optional("head_dim") if head_dim else None
    if width is None and hidden < heads:
        raise v.wrong("hidden_size", hidden, f"it must be at least the {heads} attention heads")
    shape = Shape(layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=width or hidden // heads)
    d.layers, d.hidden, d.heads, d.kv_heads, d.head_dim = layers, hidden, heads, kv_heads, shape.head_dim
    d.max_context = v.optional("max_position_embeddings")
    return shape


def norm(
    d: Draft, name: str, width: int, layers: Layers | None = None, *, bias: bool = False, part: str = "text"
) -> None:
    """A normalisation: a scale, and with `bias` (LayerNorm) a shift."""
    d.other(name, width, layers=layers, part=part)
    if bias:
        d.other(f"{name}.bias", width, layers=layers, part=part)


def attention(
    d: Draft, s: Shape, layers: Layers, *, bias: bool = False, out_bias: bool | None = None, qk_norm: str = "",
    windowed: Layers = (), prefix: str = LAYER + "self_attn.", query_gate: bool = False,
) -> None:  # fmt: skip
    """
    Grouped-query attention and its cache.

    Parameters
    ----------
    bias, out_bias : bool
        Of the query, key and value projections; of the output (the same when left out).
    qk_norm : str
        'head': one norm of the head width each for queries and keys; 'full': over all heads; '' none.
    windowed : layers
        Those whose cache stops at the window.
    query_gate : bool
        The query projection also makes an output gate of the same width.
    """
    query, key = s.heads * s.head_dim, s.kv_heads * s.head_dim
    d.linear(f"{prefix}q_proj", query * (2 if query_gate else 1), s.hidden, layers, bias=bias)
    d.linear(f"{prefix}k_proj", key, s.hidden, layers, bias=bias)
    d.linear(f"{prefix}v_proj", key, s.hidden, layers, bias=bias)
    d.linear(f"{prefix}o_proj", s.hidden, query, layers, bias=bias if out_bias is None else out_bias)
    if qk_norm:
        d.other(f"{prefix}q_norm", s.head_dim if qk_norm == "head" else query, layers=layers)
        d.other(f"{prefix}k_norm", s.head_dim if qk_norm == "head" else key, layers=layers)
    d.cached(layers, 2 * key, windowed=windowed)


def latent_attention(v: Values, d: Draft, layers: Layers) -> None:
    """Multi-head latent attention (MLA): one compressed key-value vector and one rotary key are cached a token."""
    hidden, heads = v.number("hidden_size"), v.number("num_attention_heads")
    nope, rope, value = v.number("qk_nope_head_dim"), v.number("qk_rope_head_dim"), v.number("v_head_dim")
    compressed, query_rank, bias = v.number("kv_lora_rank"), v.optional("q_lora_rank"), v.flag("attention_bias")
    prefix = LAYER + "self_attn."
    if query_rank is None:
        d.linear(f"{prefix}q_proj", heads * (nope + rope), hidden, layers)
    else:
        d.linear(f"{prefix}q_a_proj", query_rank, hidden, layers, bias=bias)
        d.other(f"{prefix}q_a_layernorm", query_rank, layers=layers)
        d.linear(f"{prefix}q_b_proj", heads * (nope + rope), query_rank, layers)
    d.linear(f"{prefix}kv_a_proj_with_mqa", compressed + rope, hidden, layers, bias=bias)
    d.other(f"{prefix}kv_a_layernorm", compressed, layers=layers)
    d.linear(f"{prefix}kv_b_proj", heads * (nope + value), compressed, layers)
    d.linear(f"{prefix}o_proj", hidden, heads * value, layers, bias=bias)
    d.cached(layers, compressed + rope)
    d.attention, d.hidden, d.heads = "mla", hidden, heads
    d.kv_heads, d.head_dim = v.optional("num_key_value_heads") or heads, nope + rope
    d.q_lora_rank, d.kv_lora_rank = query_rank or 0, compressed
    d.qk_nope_head_dim, d.qk_rope_head_dim, d.v_head_dim = nope, rope, value


def mlp(
    d: Draft, hidden: int, width: int, layers: Layers, *, gated: bool = True, bias: bool = False,
    prefix: str = LAYER + "mlp.", part: str = "text",
) -> None:  # fmt: skip
    """Two matrices, or three where the first is gated."""
    if gated:
        d.linear(f"{prefix}gate_proj", width, hidden, layers, bias=bias, part=part)
    d.linear(f"{prefix}up_proj", width, hidden, layers, bias=bias, part=part)
    d.linear(f"{prefix}down_proj", hidden, width, layers, bias=bias, part=part)


def experts(
    d: Draft, hidden: int, width: int, layers: Layers, *, count: int, top_k: int, gated: bool = True,
    bias: bool = False, prefix: str = LAYER + "mlp.", router: str = "gate", router_bias: bool = False,
    router_width: int | None = None,
) -> None:  # fmt: skip
    """Routed experts and their router, which reads the hidden width unless another is given."""
    if top_k > count:
        top_k = count
    d.kind, d.experts, d.top_k, d.moe_ffn, d.moe_layers = "moe", count, top_k, width, len(layers)
    d.other(f"{prefix}{router}", count, router_width or hidden, layers=layers)
    if router_bias:
        d.other(f"{prefix}{router}.bias", count, layers=layers)
    if gated:
        d.expert(f"{prefix}experts.gate_proj", width, hidden, layers, bias=bias)
    d.expert(f"{prefix}experts.up_proj", width, hidden, layers, bias=bias)
    d.expert(f"{prefix}experts.down_proj", hidden, width, layers, bias=bias)


def selective_scan(
    d: Draft, layers: Layers, *, hidden: int, inner: int, state: int, rank: int, kernel: int, conv_bias: bool,
    bias: bool, inner_norms: bool, prefix: str,
) -> None:  # fmt: skip
    """Mamba layer: a state per channel, and the last inputs of its convolution."""
    d.other(f"{prefix}A_log", inner, state, layers=layers)
    d.other(f"{prefix}D", inner, layers=layers)
    d.other(f"{prefix}conv1d", inner, kernel, layers=layers)
    if conv_bias:
        d.other(f"{prefix}conv1d.bias", inner, layers=layers)
    d.linear(f"{prefix}in_proj", 2 * inner, hidden, layers, bias=bias)
    d.linear(f"{prefix}x_proj", rank + 2 * state, inner, layers)
    d.linear(f"{prefix}dt_proj", inner, rank, layers, bias=True)
    d.linear(f"{prefix}out_proj", hidden, inner, layers, bias=bias)
    if inner_norms:
        d.other(f"{prefix}dt_layernorm", rank, layers=layers)
        d.other(f"{prefix}b_layernorm", state, layers=layers)
        d.other(f"{prefix}c_layernorm", state, layers=layers)
    d.keeps(layers, inner * state + inner * kernel)


def structured_scan(
    d: Draft, layers: Layers, *, hidden: int, heads: int, head_dim: int, groups: int, state: int, kernel: int,
    conv_bias: bool, bias: bool, gated_norm: bool, prefix: str, inner: int | None = None, out_bias: bool | None = None,
) -> None:  # fmt: skip
    """Mamba-2 layer: a state per head; queries and keys (B, C) shared within a group."""
    width = heads * head_dim if inner is None else inner
    convolved = width + 2 * groups * state
    for name in ("dt_bias", "A_log", "D"):
        d.other(f"{prefix}{name}", heads, layers=layers)
    d.other(f"{prefix}conv1d", convolved, kernel, layers=layers)
    if conv_bias:
        d.other(f"{prefix}conv1d.bias", convolved, layers=layers)
    d.linear(f"{prefix}in_proj", width + convolved + heads, hidden, layers, bias=bias)
    d.linear(f"{prefix}out_proj", hidden, width, layers, bias=bias if out_bias is None else out_bias)
    if gated_norm:
        d.other(f"{prefix}norm", width, layers=layers)
    d.keeps(layers, heads * head_dim * state + convolved * kernel)


def delta_net(v: Values, d: Draft, hidden: int, layers: Layers) -> None:
    """Gated delta net: a key x value matrix per head."""
    key_heads, value_heads = v.number("linear_num_key_heads"), v.number("linear_num_value_heads")
    key_dim, value_dim, kernel = (
        v.number("linear_key_head_dim"),
        v.number("linear_value_head_dim"),
        v.number("linear_conv_kernel_dim"),
    )
    keys, values, prefix = key_heads * key_dim, value_heads * value_dim, LAYER + "linear_attn."
    d.other(f"{prefix}dt_bias", value_heads, layers=layers)
    d.other(f"{prefix}A_log", value_heads, layers=layers)
    d.other(f"{prefix}conv1d", 2 * keys + values, kernel, layers=layers)
    d.linear(f"{prefix}in_proj_qkvz", 2 * keys + 2 * values, hidden, layers)
    d.linear(f"{prefix}in_proj_ba", 2 * value_heads, hidden, layers)
    d.other(f"{prefix}norm", value_dim, layers=layers)
    d.linear(f"{prefix}out_proj", hidden, values, layers)
    d.keeps(layers, value_heads * key_dim * value_dim + (2 * keys + values) * kernel)


def of_type(kinds: Sequence[str], *wanted: str) -> list[int]:
    """Places in a list of layer types that have one of the wanted types."""
    return [place for place, kind in enumerate(kinds) if kind in wanted]


def windows(v: Values, d: Draft, kinds: Sequence[str] | None, *, key: str = "sliding_window") -> list[int]:
    """
    Layers whose cache stops at the window, which is read here.

    Parameters
    ----------
    kinds : sequence of str or None
        Layer types; None = every layer, where there is a window at all.
    """
    known = (
        "sliding_attention",
        "chunked_attention",
        "full_attention",
        "attention",
        "linear_attention",
        "mamba",
        "conv",
    )
    local = list(range(d.layers)) if kinds is None else of_type(kinds, "sliding_attention", "chunked_attention")
    for kind in kinds or ():
        if kind not in known:
            raise v.unmodelled(f"a layer of type '{kind[:40]}' in {v.model_type}")
    if not local:
        return []
    window = v.optional(key)
    if window is None:
        if kinds is None:
            return []
        raise v.missing(key)
    d.window = window
    return local


def pattern_length(v: Values) -> int:
    """Layers after which the pattern of local and global ones repeats; EXAONE may write it as letters, LLLG."""
    pattern = v.given.get("sliding_window_pattern")
    if isinstance(pattern, str) and 1 < len(pattern) <= 100 and pattern == "L" * (len(pattern) - 1) + "G":
        return len(pattern)
    return v.number("sliding_window_pattern")
