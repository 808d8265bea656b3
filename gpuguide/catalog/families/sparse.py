"""Decoders with routed experts, from the class structure of each family in transformers 5.24."""

from __future__ import annotations

from collections.abc import Sequence

from gpuguide.catalog.families.blocks import (
    LAYER,
    Shape,
    attention,
    experts,
    latent_attention,
    mlp,
    norm,
    of_type,
    pattern_length,
    read_shape,
    windows,
)  # fmt: skip
from gpuguide.catalog.families.draft import Draft
from gpuguide.catalog.families.values import Values


def _finish(v: Values, d: Draft, hidden: int, *, norms: int = 2, shift: bool = False, head_bias: bool = False) -> None:
    for place in range(norms):
        norm(d, f"{LAYER}norm_{place}", hidden, range(d.layers), bias=shift)
    norm(d, "model.norm", hidden, bias=shift)
    d.embedding(v.number("vocab_size"), hidden, tied=v.flag("tie_word_embeddings"), head_bias=head_bias)


def mixtral(v: Values, d: Draft) -> None:
    """Mixtral, OLMoE, Phi-MoE, Granite MoE, MiniMax M2: every layer routes, experts as wide as `intermediate_size`."""
    s, kind = read_shape(v, d), v.model_type
    with_bias = kind in ("phimoe", "olmoe", "granitemoe", "flex_olmo", "hunyuan_v1_moe")
    every, bias = range(s.layers), with_bias and v.flag("attention_bias")
    local = windows(v, d, None) if kind in ("mixtral", "phimoe") else []
    attention(d, s, every, bias=bias, qk_norm=QK_NORMS.get(kind, ""), windowed=local)
    if kind == "olmoe":
        norm(d, LAYER + "self_attn.q_norm", s.hidden, every)
        norm(d, LAYER + "self_attn.k_norm", s.hidden // s.heads * s.kv_heads, every)
    d.ffn = v.number("intermediate_size")
    count = v.number("num_experts" if kind in ("olmoe", "flex_olmo", "hunyuan_v1_moe") else "num_local_experts")
    experts(d, s.hidden, d.ffn, every, count=count, top_k=v.number("num_experts_per_tok"))
    if kind == "hunyuan_v1_moe":
        d.shared_experts = 1
        mlp(d, s.hidden, d.ffn, every, prefix=LAYER + "mlp.shared_mlp.")
    _finish(v, d, s.hidden, shift=kind == "phimoe", head_bias=v.flag("lm_head_bias"))


QK_NORMS = {"minimax_m2": "full", "flex_olmo": "full", "hunyuan_v1_moe": "head"}
"""Query and key norms of the classes above, beside OLMoE's own."""


def sparse_layers(v: Values, layers: int, count: int) -> list[int]:
    """Layers that route in the Qwen families: every so many, less those named dense."""
    step, dense = v.number("decoder_sparse_step"), set(v.numbers("mlp_only_layers") or ())
    return [layer for layer in range(layers) if layer not in dense and count > 0 and (layer + 1) % step == 0]


def rest(layers: int, some: Sequence[int]) -> list[int]:
    """The layers that are not among some."""
    taken = set(some)
    return [layer for layer in range(layers) if layer not in taken]


def qwen_experts(v: Values, d: Draft, hidden: int, sparse: list[int], *, shared: bool) -> None:
    """Experts of the Qwen families, a dense MLP elsewhere, and from Qwen2 and Qwen3-Next on a gated shared expert."""
    dense = rest(d.layers, sparse)
    if dense:
        d.ffn = v.number("intermediate_size")
        mlp(d, hidden, d.ffn, dense)
    if not sparse:
        return
    width = v.number("moe_intermediate_size")
    experts(d, hidden, width, sparse, count=v.number("num_experts"), top_k=v.number("num_experts_per_tok"))
    d.ffn = d.ffn or v.optional("intermediate_size") or width
    if shared:
        d.shared_experts = 1
        mlp(d, hidden, v.number("shared_expert_intermediate_size"), sparse, prefix=LAYER + "mlp.shared_expert.")
        d.other(LAYER + "mlp.shared_expert_gate", 1, hidden, layers=sparse)


def qwen_moe(v: Values, d: Draft) -> None:
    """Qwen2 MoE (biases, shared expert) and Qwen3 MoE (query and key norms, no shared expert)."""
    s = read_shape(v, d)
    older = v.model_type == "qwen2_moe"
    if older:
        sliding = v.flag("use_sliding_window")
        first = v.number("max_window_layers", least=0) if sliding else 0
        kinds = v.words("layer_types", s.layers) or [
            "sliding_attention" if layer % 2 == 0 and layer < first else "full_attention" for layer in range(s.layers)
        ]
        local = windows(v, d, kinds)
        attention(d, s, range(s.layers), bias=v.flag("qkv_bias"), out_bias=False, windowed=local)
    else:
        local = windows(v, d, None) if v.flag("use_sliding_window") else []
        attention(d, s, range(s.layers), bias=v.flag("attention_bias"), qk_norm="head", windowed=local)
    count = v.number("num_experts", least=0)
    qwen_experts(v, d, s.hidden, sparse_layers(v, s.layers, count), shared=older)
    _finish(v, d, s.hidden)


def gpt_oss(v: Values, d: Draft) -> None:
    """gpt-oss: biases everywhere, a sink per head, experts with bias."""
    s = read_shape(v, d)
    kinds = v.words("layer_types", s.layers) or [
        "full_attention" if layer % 2 else "sliding_attention" for layer in range(s.layers)
    ]
    every = range(s.layers)
    attention(d, s, every, bias=v.flag("attention_bias"), windowed=windows(v, d, kinds))
    d.other(LAYER + "self_attn.sinks", s.heads, layers=every)
    d.ffn = v.number("intermediate_size")
    count, top_k = v.number("num_local_experts"), v.number("num_experts_per_tok")
    experts(d, s.hidden, d.ffn, every, count=count, top_k=top_k, bias=True, router="router", router_bias=True)
    _finish(v, d, s.hidden)


def llama4(v: Values, d: Draft) -> None:
    """Llama 4: chunked attention in the rotary layers, one shared expert, dense layers of another width between."""
    s = read_shape(v, d)
    rotary = v.numbers("no_rope_layers")
    if not rotary:
        interval = v.number("no_rope_layer_interval")
        rotary = [int((layer + 1) % interval != 0) for layer in range(s.layers)]
    if len(rotary) != s.layers:
        raise v.wrong("no_rope_layers", f"a list of {len(rotary)}", f"the model has {s.layers} layers")
    chunk = v.optional("attention_chunk_size")
    kinds = v.words("layer_types", s.layers) or [
        "chunked_attention" if has and chunk is not None else "full_attention" for has in rotary
    ]
    attention(
        d, s, range(s.layers), bias=v.flag("attention_bias"), windowed=windows(v, d, kinds, key="attention_chunk_size")
    )
    step = v.number("interleave_moe_layer_step")
    given = v.numbers("moe_layers")
    sparse = list(range(step - 1, s.layers, step)) if given is None else sorted(set(given) & set(range(s.layers)))
    dense, width = rest(s.layers, sparse), v.number("intermediate_size")
    d.ffn = v.number("intermediate_size_mlp") if dense else width
    mlp(d, s.hidden, d.ffn, dense, prefix=LAYER + "feed_forward.")
    if sparse:
        count, top_k = v.number("num_local_experts"), v.number("num_experts_per_tok")
        prefix = LAYER + "feed_forward."
        experts(d, s.hidden, width, sparse, count=count, top_k=top_k, prefix=prefix, router="router")
        mlp(d, s.hidden, width, sparse, prefix=f"{prefix}shared_expert.")
        d.shared_experts = 1
    _finish(v, d, s.hidden)


def deepseek(v: Values, d: Draft) -> None:
    """DeepSeek V2 to V3.2, Kimi K2, GLM-4.7-Flash (latent attention); GLM-4.5, dots.1 (grouped-query attention)."""
    kind = v.model_type
    layers, hidden = v.layers(), v.number("hidden_size")
    d.layers, every = layers, range(layers)
    if kind in ("glm4_moe", "dots1", "exaone_moe"):
        s = read_shape(v, d)
        bias = kind != "exaone_moe" and v.flag("attention_bias")
        local = [] if kind == "glm4_moe" else windows(v, d, _local_types(v, layers))
        has_norm = kind != "glm4_moe" or v.flag("use_qk_norm")
        out_bias = bias if kind == "dots1" else False
        attention(d, s, every, bias=bias, out_bias=out_bias, qk_norm="head" if has_norm else "", windowed=local)
    else:
        latent_attention(v, d, every)
        d.max_context = v.optional("max_position_embeddings")
    if kind in ("deepseek_v32", "glm_moe_dsa"):
        if any(v.has(key) for key in ("indexer_types", "index_topk_pattern", "index_topk_freq")):
            raise v.unmodelled("an indexer that layers share")
        _indexer(v, d, every)
    typed = kind in ("deepseek_v32", "glm_moe_dsa", "glm4_moe_lite", "exaone_moe")
    mlp_types = v.words("mlp_layer_types", layers) if typed else None
    if kind == "minicpm3":
        sparse = []
    elif mlp_types is not None:
        sparse = of_type(mlp_types, "sparse")
    else:
        first = 1 if kind == "glm4_moe_lite" else v.number("first_k_dense_replace", least=0)
        sparse = list(range(min(first, layers), layers))
    d.ffn = v.number("intermediate_size")
    bias = kind == "deepseek_v2" and v.flag("mlp_bias")
    mlp(d, hidden, d.ffn, rest(layers, sparse), bias=bias)
    if sparse:
        names = (
            ("num_experts", "num_shared_experts") if kind == "exaone_moe" else ("n_routed_experts", "n_shared_experts")
        )
        width, count = v.number("moe_intermediate_size"), v.number(names[0])
        experts(d, hidden, width, sparse, count=count, top_k=v.number("num_experts_per_tok"))
        shared = v.optional(names[1], least=0)
        if shared:
            d.shared_experts = shared
            mlp(d, hidden, width * shared, sparse, bias=bias, prefix=LAYER + "mlp.shared_experts.")
    _finish(v, d, hidden)
    if v.has("num_nextn_predict_layers") and sparse:
        # A prediction layer is one more sparse layer, two norms, a joining matrix and the norm before the shared head.
        heads = v.number("num_nextn_predict_layers", least=0)
        last = sum(t.params // t.copies for t in d.tensors if t.layers is not None and layers - 1 in t.layers)
        d.mtp_params = heads * (last + 2 * hidden * hidden + 3 * hidden)


def _local_types(v: Values, layers: int) -> list[str]:
    given = v.words("layer_types", layers)
    if given is not None:
        return given
    if v.model_type == "exaone_moe":
        every = pattern_length(v)
        return ["sliding_attention" if every and (layer + 1) % every else "full_attention" for layer in range(layers)]
    first = v.number("max_window_layers", least=0) if v.optional("sliding_window") is not None else layers
    return ["sliding_attention" if layer >= first else "full_attention" for layer in range(layers)]


def _indexer(v: Values, d: Draft, layers: Sequence[int]) -> None:
    """The small network that picks tokens in DeepSeek sparse attention; it caches one key a token."""
    heads, width, rank, prefix = (
        v.number("index_n_heads"), v.number("index_head_dim"), v.number("q_lora_rank"), LAYER + "self_attn.indexer.",
    )  # fmt: skip
    d.linear(f"{prefix}wq_b", heads * width, rank, layers)
    d.linear(f"{prefix}wk", width, d.hidden, layers)
    norm(d, f"{prefix}k_norm", width, layers, bias=True)
    d.linear(f"{prefix}weights_proj", heads, d.hidden, layers)
    d.cache_full += width * len(layers)


def ernie_moe(v: Values, d: Draft) -> None:
    """ERNIE 4.5 MoE: a score correction per expert is a parameter of the class."""
    s, bias = read_shape(v, d), v.flag("use_bias")
    attention(d, s, range(s.layers), bias=bias)
    start, step = v.number("moe_layer_start_index", least=0), v.number("moe_layer_interval")
    end = v.optional("moe_layer_end_index", least=-1)
    last = s.layers - 1 if end in (None, -1) else end
    sparse = [layer for layer in range(s.layers) if (layer + 1) % step == 0 and start <= layer <= (last or 0)]
    d.ffn = v.number("intermediate_size")
    mlp(d, s.hidden, d.ffn, rest(s.layers, sparse), bias=bias)
    if sparse:
        width, count = v.number("moe_intermediate_size"), v.number("moe_num_experts")
        experts(d, s.hidden, width, sparse, count=count, top_k=v.number("moe_k"))
        d.other(LAYER + "mlp.gate.moe_statics", count, layers=sparse)
        shared = v.optional("moe_num_shared_experts", least=0)
        if shared:
            d.shared_experts = shared
            mlp(d, s.hidden, width * shared, sparse, prefix=LAYER + "mlp.shared_experts.", bias=bias)
    _finish(v, d, s.hidden, head_bias=bias)


def dbrx(v: Values, d: Draft) -> None:
    """DBRX: nested attention and expert configs, LayerNorms without shift."""
    hidden, heads, layers = v.number("hidden_size"), v.number("num_attention_heads"), v.layers()
    attn = (
        v.part("attn_config", "dbrx_attention")
        if v.given.get("attn_config")
        else Values({}, "dbrx_attention", path="attn_config.")
    )
    ffn = v.part("ffn_config", "dbrx_ffn") if v.given.get("ffn_config") else Values({}, "dbrx_ffn", path="ffn_config.")
    if hidden < heads:
        raise v.wrong("d_model", hidden, f"it must be at least the {heads} attention heads")
    s = Shape(layers=layers, hidden=hidden, heads=heads, kv_heads=attn.number("kv_n_heads"), head_dim=hidden // heads)
    d.layers, d.hidden, d.heads, d.kv_heads, d.head_dim = layers, hidden, heads, s.kv_heads, s.head_dim
    d.max_context, every = v.optional("max_seq_len"), range(layers)
    attention(d, s, every)
    d.ffn = ffn.number("ffn_hidden_size")
    experts(
        d,
        hidden,
        d.ffn,
        every,
        count=ffn.number("moe_num_experts"),
        top_k=ffn.number("moe_top_k"),
        prefix=LAYER + "ffn.",
    )
    _finish(v, d, hidden)
