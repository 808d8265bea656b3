"""Gemma 3n and Gemma 4 decoders: embeddings per layer, cache shared between layers, widths that differ by layer."""

from __future__ import annotations

from gpuguide.catalog.families.blocks import LAYER, attention, experts, mlp, norm, of_type, read_shape, windows
from gpuguide.catalog.families.draft import Draft
from gpuguide.catalog.families.values import Values


def _kinds(v: Values, layers: int, period: int) -> list[str]:
    given = v.words("layer_types", layers)
    return given or ["sliding_attention" if (layer + 1) % period else "full_attention" for layer in range(layers)]


def _sharing(v: Values, kinds: list[str]) -> int:
    """First layer that reads the cache of an earlier one."""
    shared = v.number("num_kv_shared_layers", least=0)
    first = len(kinds) - shared
    if first < 0 or (shared and first and set(kinds[:first]) != set(kinds)):
        raise v.wrong(
            "num_kv_shared_layers", shared, "each type of layer must come before the layers that share its cache"
        )
    return first


def _per_layer_inputs(v: Values, d: Draft, hidden: int) -> None:
    """A second, narrow embedding whose rows are as wide as all layers together."""
    width, every = v.number("hidden_size_per_layer_input", least=0), range(d.layers)
    if not width:
        return
    d.other("model.embed_tokens_per_layer", v.number("vocab_size_per_layer_input"), width * d.layers, part="embedding")
    d.linear("model.per_layer_model_projection", width * d.layers, hidden, None)
    d.other("model.per_layer_projection_norm", width)
    d.linear(LAYER + "per_layer_input_gate", width, hidden, every)
    d.linear(LAYER + "per_layer_projection", hidden, width, every)
    norm(d, LAYER + "post_per_layer_input_norm", hidden, every)


def gemma3n(v: Values, d: Draft) -> None:
    """Gemma 3n text: alternating updates (AltUp) of several residual streams, low-rank side branch (LAuReL)."""
    s = read_shape(v, d)
    every = range(s.layers)
    kinds = _kinds(v, s.layers, 5)
    first = _sharing(v, kinds)
    local, bias, prefix = windows(v, d, kinds), v.flag("attention_bias"), LAYER + "self_attn."
    own, reading = range(first), range(first, s.layers)
    attention(d, s, own, bias=bias, qk_norm="head", windowed=local)
    d.linear(f"{prefix}q_proj", s.heads * s.head_dim, s.hidden, reading, bias=bias)
    d.linear(f"{prefix}o_proj", s.hidden, s.heads * s.head_dim, reading, bias=bias)
    d.other(f"{prefix}q_norm", s.head_dim, layers=reading)
    widths = v.given.get("intermediate_size")
    if isinstance(widths, list):
        values = v.numbers("intermediate_size") or []
        if len(values) != s.layers or 0 in values:
            raise v.wrong("intermediate_size", f"a list of {len(values)}", f"the model has {s.layers} layers")
    else:
        values = [v.number("intermediate_size")] * s.layers
    d.ffn = max(values)
    for width in sorted(set(values)):
        mlp(d, s.hidden, width, [layer for layer in every if values[layer] == width])
    streams, rank = v.number("altup_num_inputs"), v.number("laurel_rank")
    for place in range(4):
        norm(d, f"{LAYER}norm_{place}", s.hidden, every)
    d.other(LAYER + "altup.correct_output_scale", s.hidden, layers=every)
    d.linear(LAYER + "altup.correction_coefs", streams, streams, every)
    d.linear(LAYER + "altup.prediction_coefs", streams * streams, streams, every)
    d.linear(LAYER + "altup.modality_router", streams, s.hidden, every)
    norm(d, LAYER + "altup.router_norm", s.hidden, every)
    d.linear(LAYER + "laurel.linear_left", rank, s.hidden, every)
    d.linear(LAYER + "laurel.linear_right", s.hidden, rank, every)
    norm(d, LAYER + "laurel.post_laurel_norm", s.hidden, every)
    for name in ("altup_projections", "altup_unembed_projections"):
        d.linear(f"model.{name}.{{}}", s.hidden, s.hidden, range(streams - 1))
    _per_layer_inputs(v, d, s.hidden)
    norm(d, "model.norm", s.hidden)
    d.embedding(v.number("vocab_size"), s.hidden, tied=v.flag("tie_word_embeddings"))


def gemma4(v: Values, d: Draft) -> None:
    """Gemma 4 text: global layers have wider heads, may reuse keys as values; some sizes add experts beside the MLP."""
    s = read_shape(v, d)
    every = range(s.layers)
    kinds = list(_kinds(v, s.layers, 6))
    kinds[-1] = "full_attention"  # as the class does
    if v.given.get("per_layer_config"):
        raise v.unmodelled("per_layer_config in Gemma 4")
    first, local = _sharing(v, kinds), set(windows(v, d, kinds))
    same, bias = v.flag("attention_k_eq_v"), v.flag("attention_bias")
    global_width = v.number("global_head_dim") if v.has("global_head_dim") else 512
    global_heads = (v.optional("num_global_key_value_heads") if same else None) or s.kv_heads
    for wide in (False, True):
        layers = of_type(kinds, "full_attention" if wide else "sliding_attention")
        width, kv_heads = (global_width, global_heads) if wide else (s.head_dim, s.kv_heads)
        own, prefix = [layer for layer in layers if layer < first], LAYER + "self_attn."
        d.linear(f"{prefix}q_proj", s.heads * width, s.hidden, layers, bias=bias)
        d.linear(f"{prefix}o_proj", s.hidden, s.heads * width, layers, bias=bias)
        d.other(f"{prefix}q_norm", width, layers=layers)
        d.other(f"{prefix}k_norm", width, layers=own)
        d.linear(f"{prefix}k_proj", kv_heads * width, s.hidden, own, bias=bias)
        if not (same and wide):
            d.linear(f"{prefix}v_proj", kv_heads * width, s.hidden, own, bias=bias)
        d.cached(own, 2 * kv_heads * width, windowed=sorted(local))
    double = v.flag("use_double_wide_mlp")
    d.ffn = v.number("intermediate_size")
    mlp(d, s.hidden, d.ffn, [layer for layer in every if layer < first or not double])
    mlp(d, s.hidden, 2 * d.ffn, [layer for layer in every if layer >= first and double])
    norms = 4
    if v.flag("enable_moe_block"):
        count, top_k, width = v.number("num_experts"), v.number("top_k_experts"), v.number("moe_intermediate_size")
        experts(d, s.hidden, width, every, count=count, top_k=top_k, prefix=LAYER, router="router.proj")
        d.other(LAYER + "router.scale", s.hidden, layers=every)
        d.other(LAYER + "router.per_expert_scale", count, layers=every)
        norms = 7
    for place in range(norms):
        norm(d, f"{LAYER}norm_{place}", s.hidden, every)
    _per_layer_inputs(v, d, s.hidden)
    norm(d, "model.norm", s.hidden)
    d.embedding(v.number("vocab_size"), s.hidden, tied=v.flag("tie_word_embeddings"))
