"""State-space models and hybrids with attention, from the class structure of each family in transformers 5.24."""

from __future__ import annotations

from math import ceil

from gpuguide.catalog.families.blocks import (
    LAYER,
    Shape,
    attention,
    delta_net,
    experts,
    latent_attention,
    mlp,
    norm,
    of_type,
    read_shape,
    selective_scan,
    structured_scan,
)  # fmt: skip
from gpuguide.catalog.families.draft import Draft
from gpuguide.catalog.families.sparse import qwen_experts, rest, sparse_layers
from gpuguide.catalog.families.values import MOST_LAYERS, Values


def _embed(v: Values, d: Draft, hidden: int, norms: int) -> None:
    for place in range(norms):
        norm(d, f"{LAYER}norm_{place}", hidden, range(d.layers))
    norm(d, "model.norm", hidden)
    # Nemotron-H and Kimi Linear never tie, whatever their config says.
    tied = v.flag("tie_word_embeddings") and v.model_type not in ("nemotron_h", "kimi_linear")
    d.embedding(v.number("vocab_size"), hidden, tied=tied)


def _rank(v: Values, key: str, hidden: int) -> int:
    return ceil(hidden / 16) if v.given.get(key, "auto") in ("auto", None) else v.number(key)


def mamba(v: Values, d: Draft) -> None:
    """Mamba and Falcon Mamba: state-space layers only."""
    d.kind, d.layers, d.hidden, d.gated = "ssm", v.layers(), v.number("hidden_size"), False
    inner = int(v.real("expand") * d.hidden)
    selective_scan(
        d, range(d.layers), hidden=d.hidden, inner=inner, state=v.number("state_size"),
        rank=_rank(v, "time_step_rank", d.hidden), kernel=v.number("conv_kernel"), conv_bias=v.flag("use_conv_bias"),
        bias=v.flag("use_bias"), inner_norms=False, prefix="backbone.layers.{}.mixer.",
    )  # fmt: skip
    _embed(v, d, d.hidden, 1)


def mamba2(v: Values, d: Draft) -> None:
    """Mamba-2."""
    d.kind, d.layers, d.hidden, d.gated = "ssm", v.layers(), v.number("hidden_size"), False
    structured_scan(
        d, range(d.layers), hidden=d.hidden, heads=v.number("num_heads"), head_dim=v.number("head_dim"),
        groups=v.number("n_groups"), state=v.number("state_size"), kernel=v.number("conv_kernel"),
        conv_bias=v.flag("use_conv_bias"), bias=v.flag("use_bias"), gated_norm=True,
        inner=int(v.real("expand") * d.hidden), prefix="backbone.layers.{}.mixer.",
    )  # fmt: skip
    _embed(v, d, d.hidden, 1)


def jamba(v: Values, d: Draft) -> None:
    """Jamba: attention every so many layers, Mamba elsewhere, experts every so many layers."""
    s = read_shape(v, d, head_dim=False)
    every = range(s.layers)
    attending = _periodic(v, "attn", s.layers)
    scanning = rest(s.layers, attending)
    attention(d, s, attending)
    selective_scan(
        d, scanning, hidden=s.hidden, inner=v.number("mamba_expand") * s.hidden, state=v.number("mamba_d_state"),
        rank=_rank(v, "mamba_dt_rank", s.hidden), kernel=v.number("mamba_d_conv"), conv_bias=v.flag("mamba_conv_bias"),
        bias=v.flag("mamba_proj_bias"), inner_norms=True, prefix=LAYER + "mamba.",
    )  # fmt: skip
    count = v.number("num_experts")
    sparse = _periodic(v, "expert", s.layers) if count > 1 else []
    d.ffn = v.number("intermediate_size")
    prefix = LAYER + "feed_forward."
    mlp(d, s.hidden, d.ffn, [layer for layer in every if layer not in set(sparse)], prefix=prefix)
    if sparse:
        top_k = v.number("num_experts_per_tok")
        experts(d, s.hidden, d.ffn, sparse, count=count, top_k=top_k, prefix=prefix, router="router")
    d.kind = "hybrid"
    _embed(v, d, s.hidden, 2)


def _periodic(v: Values, what: str, layers: int) -> list[int]:
    period, offset = v.number(f"{what}_layer_period"), v.number(f"{what}_layer_offset", least=0)
    return [layer for layer in range(layers) if layer % period == offset]


def _scan_of(v: Values, d: Draft, layers: list[int], hidden: int, *, inner: int, gated_norm: bool) -> None:
    """Mamba-2 layers of Bamba, Falcon-H1 and Granite 4, whose keys start with `mamba_`."""
    heads = v.number("mamba_n_heads")
    auto = v.given.get("mamba_d_head", "auto") in ("auto", None)
    head_dim = inner // heads if auto else v.number("mamba_d_head")
    if heads * head_dim != inner:
        raise v.wrong("mamba_n_heads", heads, f"heads times their width must be {inner}")
    structured_scan(
        d, layers, hidden=hidden, heads=heads, head_dim=head_dim, groups=v.number("mamba_n_groups"),
        state=v.number("mamba_d_state"), kernel=v.number("mamba_d_conv"), conv_bias=v.flag("mamba_conv_bias"),
        bias=v.flag("mamba_proj_bias"), gated_norm=gated_norm, prefix=LAYER + "mamba.",
        out_bias=v.flag("projectors_bias") if v.model_type == "falcon_h1" else None,
    )  # fmt: skip


def falcon_h1(v: Values, d: Draft) -> None:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    s = read_shape(v, d)
    every = list(range(s.layers))
    attention(d, s, every, bias=v.flag("attention_bias"))
    inner = v.optional("mamba_d_ssm") or v.number("mamba_expand") * s.hidden
    _scan_of(v, d, every, s.hidden, inner=inner, gated_norm=v.flag("mamba_rms_norm"))
    d.ffn = v.number("intermediate_size")
    mlp(d, s.hidden, d.ffn, every, bias=v.flag("mlp_bias"))
    d.kind = "hybrid"
    _embed(v, d, s.hidden, 2)


def bamba(v: Values, d: Draft) -> None:
    """Bamba: Mamba-2 layers with attention in the named ones."""
    s = read_shape(v, d)
    attending = sorted(set(v.numbers("attn_layer_indices") or ()) & set(range(s.layers)))
    attention(d, s, attending, bias=v.flag("attention_bias"))
    _scan_of(v, d, rest(s.layers, attending), s.hidden, inner=v.number("mamba_expand") * s.hidden, gated_norm=True)
    d.ffn = v.number("intermediate_size")
    mlp(d, s.hidden, d.ffn, range(s.layers), bias=v.flag("mlp_bias"))
    d.kind = "hybrid"
    _embed(v, d, s.hidden, 2)


def granite_hybrid(v: Values, d: Draft) -> None:
    """Granite 4: Mamba-2 or attention by layer, experts beside a shared MLP."""
    s = read_shape(v, d)
    every = range(s.layers)
    kinds = v.words("layer_types", s.layers) or ["linear_attention"] * s.layers
    attending, scanning = of_type(kinds, "attention", "full_attention"), of_type(kinds, "mamba", "linear_attention")
    if len(attending) + len(scanning) != s.layers:
        raise v.wrong("layer_types", "a list", "Granite 4 has attention and mamba layers")
    attention(d, s, attending, bias=v.flag("attention_bias"))
    _scan_of(v, d, scanning, s.hidden, inner=v.number("mamba_expand") * s.hidden, gated_norm=True)
    shared, count = v.number("shared_intermediate_size"), v.optional("num_local_experts", least=0) or 0
    mlp(d, s.hidden, shared, every, prefix=LAYER + "shared_mlp.")
    d.ffn = shared
    if count:
        top_k, width = v.number("num_experts_per_tok"), v.number("intermediate_size")
        prefix = LAYER + "block_sparse_moe."
        experts(d, s.hidden, width, every, count=count, top_k=top_k, prefix=prefix, router="router")
        d.shared_experts = 1
    d.kind = "hybrid"
    _embed(v, d, s.hidden, 2)


def nemotron_h(v: Values, d: Draft) -> None:
    """Nemotron-H and Nemotron 3: each layer is one thing: Mamba-2, attention, an MLP, or experts."""
    names = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe", "mamba": "linear_attention"}
    pattern, kinds = v.text("hybrid_override_pattern"), v.words("layers_block_type")
    if kinds is None:
        if pattern is None:
            raise v.missing("hybrid_override_pattern (or layers_block_type)")
        kinds = list(pattern)
    kinds = [names.get(kind, "full_attention" if kind == "attention" else kind) for kind in kinds]
    if not 0 < len(kinds) <= MOST_LAYERS or not set(kinds) <= set(names.values()):
        raise v.wrong("hybrid_override_pattern", pattern or "a list", "it must be of M, *, - and E")
    hidden, heads = v.number("hidden_size"), v.number("num_attention_heads")
    kv_heads, head_dim = v.optional("num_key_value_heads") or heads, v.number("head_dim")
    s = Shape(layers=len(kinds), hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    d.layers, d.hidden, d.heads, d.kv_heads, d.head_dim = s.layers, hidden, heads, kv_heads, head_dim
    d.max_context, d.gated, prefix = v.optional("max_position_embeddings"), False, LAYER + "mixer."
    attention(d, s, of_type(kinds, "full_attention"), prefix=prefix)
    scanning = of_type(kinds, "linear_attention")
    if scanning:
        structured_scan(
            d, scanning, hidden=hidden, heads=v.number("mamba_num_heads"), head_dim=v.number("mamba_head_dim"),
            groups=v.number("mamba_n_groups" if v.has("mamba_n_groups") else "n_groups"),
            state=v.number("ssm_state_size"),
            kernel=v.number("mamba_d_conv" if v.has("mamba_d_conv") else "conv_kernel"),
            conv_bias=v.flag("mamba_conv_bias" if v.has("mamba_conv_bias") else "use_conv_bias"),
            bias=v.flag("use_bias"), gated_norm=True, prefix=prefix,
        )  # fmt: skip
    d.ffn = v.number("intermediate_size")
    mlp(d, hidden, d.ffn, of_type(kinds, "mlp"), gated=False, bias=v.flag("mlp_bias"), prefix=prefix)
    routing = of_type(kinds, "moe")
    if routing:
        _nemotron_experts(v, d, hidden, routing, prefix)
    d.kind = "hybrid"
    _embed(v, d, hidden, 1)


def _nemotron_experts(v: Values, d: Draft, hidden: int, layers: list[int], prefix: str) -> None:
    count, top_k, width = (
        v.number("n_routed_experts"),
        v.number("num_experts_per_tok"),
        v.number("moe_intermediate_size"),
    )
    latent = v.optional("moe_latent_size")
    bias = v.flag("mlp_bias")
    if latent is not None:
        # Experts work in a narrower space, entered and left by one matrix each; the router still reads the full one.
        d.linear(f"{prefix}fc1_latent_proj", latent, hidden, layers, bias=bias)
        d.linear(f"{prefix}fc2_latent_proj", hidden, latent, layers, bias=bias)
    experts(
        d, latent or hidden, width, layers, count=count, top_k=top_k, gated=False, prefix=prefix, router_width=hidden
    )
    d.shared_experts = 1
    shared = v.number("moe_shared_expert_intermediate_size")
    mlp(d, hidden, shared, layers, gated=False, bias=bias, prefix=f"{prefix}shared_experts.")


def qwen_next(v: Values, d: Draft) -> None:
    """Qwen3-Next and Qwen3.5: gated delta nets, full attention with an output gate every fourth layer."""
    s, kind = read_shape(v, d), v.model_type
    kinds = v.words("layer_types", s.layers)
    if kinds is None:
        period = v.number("full_attention_interval") if v.has("full_attention_interval") else 4
        kinds = ["linear_attention" if (layer + 1) % period else "full_attention" for layer in range(s.layers)]
    attending, linear = of_type(kinds, "full_attention"), of_type(kinds, "linear_attention")
    if len(attending) + len(linear) != s.layers:
        raise v.wrong("layer_types", "a list", "the class has full_attention and linear_attention layers")
    attention(d, s, attending, bias=v.flag("attention_bias"), qk_norm="head", query_gate=True)
    if linear:
        delta_net(v, d, s.hidden, linear)
    if kind == "qwen3_5_text":
        d.ffn = v.number("intermediate_size")
        mlp(d, s.hidden, d.ffn, range(s.layers))
    else:
        count = v.number("num_experts", least=0)
        sparse = sparse_layers(v, s.layers, count) if kind == "qwen3_next" else list(range(s.layers))
        qwen_experts(v, d, s.hidden, sparse, shared=True)
    d.kind = "hybrid"
    _embed(v, d, s.hidden, 2)


def minimax(v: Values, d: Draft) -> None:
    """MiniMax-01: lightning attention with a key x value matrix per head, softmax attention in the named layers."""
    s = read_shape(v, d)
    kinds = v.words("layer_types", s.layers) or [
        "linear_attention" if layer % 2 else "full_attention" for layer in range(s.layers)
    ]
    attending, linear = of_type(kinds, "full_attention"), of_type(kinds, "linear_attention")
    if len(attending) + len(linear) != s.layers:
        raise v.wrong("layer_types", "a list", "MiniMax has full_attention and linear_attention layers")
    width, prefix = s.heads * s.head_dim, LAYER + "self_attn."
    attention(d, s, attending)
    d.other(f"{prefix}norm", width, layers=linear)
    d.linear(f"{prefix}qkv_proj", 3 * width, s.hidden, linear)
    d.linear(f"{prefix}out_proj", s.hidden, width, linear)
    d.linear(f"{prefix}output_gate", width, s.hidden, linear)
    d.keeps(linear, s.heads * s.head_dim * s.head_dim)
    d.ffn = v.number("intermediate_size")
    count, top_k = v.number("num_local_experts"), v.number("num_experts_per_tok")
    experts(d, s.hidden, d.ffn, range(s.layers), count=count, top_k=top_k)
    d.kind = "hybrid"
    _embed(v, d, s.hidden, 2)


def kimi_linear(v: Values, d: Draft) -> None:
    """Kimi Linear: delta attention with a decay per channel, latent attention in some layers, DeepSeek's experts."""
    layers, hidden = v.layers(), v.number("hidden_size")
    d.layers, d.max_context = layers, v.optional("max_position_embeddings")
    kinds, nested = v.words("layer_types", layers), v.given.get("linear_attn_config")
    linear_config = (
        Values(nested, "", path="linear_attn_config.", defaulted=v.defaulted) if isinstance(nested, dict) else None
    )
    if kinds is None:
        full = linear_config.numbers("full_attn_layers") if linear_config else None
        places = {layer - 1 for layer in full} if full is not None else set(range(4, layers, 4))
        kinds = ["full_attention" if layer in places else "linear_attention" for layer in range(layers)]
    attending, linear = of_type(kinds, "full_attention"), of_type(kinds, "linear_attention")
    latent_attention(v, d, attending)
    names = {
        "linear_head_dim": "head_dim",
        "linear_num_heads": "num_heads",
        "linear_conv_kernel_dim": "short_conv_kernel_size",
    }
    width, heads, kernel = (
        linear_config.number(short) if linear_config and linear_config.has(short) else v.number(long)
        for long, short in names.items()
    )
    inner, prefix = heads * width, LAYER + "self_attn."
    for name in ("q_proj", "k_proj", "v_proj"):
        d.linear(prefix + name, inner, hidden, linear)
    d.other(prefix + "conv1d", 3 * inner, kernel, layers=linear)
    d.other(prefix + "forget_gate.dt_bias", inner, layers=linear)
    d.other(prefix + "forget_gate.A_log", heads, layers=linear)
    for name in ("forget_gate.f", "g"):
        d.linear(f"{prefix}{name}_a_proj", width, hidden, linear)
        d.linear(f"{prefix}{name}_b_proj", inner, width, linear)
    d.linear(prefix + "b_proj", heads, hidden, linear)
    d.other(prefix + "o_norm", width, layers=linear)
    d.linear(prefix + "o_proj", hidden, inner, linear)
    d.keeps(linear, inner * width + 3 * inner * kernel)
    mlp_types = v.words("mlp_layer_types", layers)
    first = v.number("first_k_dense_replace", least=0) if v.has("first_k_dense_replace") else 1
    sparse = of_type(mlp_types, "sparse") if mlp_types is not None else list(range(min(first, layers), layers))
    d.ffn = v.number("intermediate_size")
    mlp(d, hidden, d.ffn, rest(layers, sparse))
    if sparse:
        moe_width, count = v.number("moe_intermediate_size"), v.number("num_local_experts")
        experts(d, hidden, moe_width, sparse, count=count, top_k=v.number("num_experts_per_tok"))
        d.shared_experts = v.number("n_shared_experts", least=0)
        if d.shared_experts:
            mlp(d, hidden, moe_width * d.shared_experts, sparse, prefix=LAYER + "mlp.shared_experts.")
    d.kind = "hybrid"
    _embed(v, d, hidden, 2)
