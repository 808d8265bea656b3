"""Dense decoders, from the class structure of each family in transformers 5.24."""

from __future__ import annotations

from gpuguide.catalog.families.blocks import (
    LAYER,
    Shape,
    attention,
    experts,
    mlp,
    norm,
    of_type,
    pattern_length,
    read_shape,
    windows,
)
from gpuguide.catalog.families.draft import Draft
from gpuguide.catalog.families.values import Values


def llama(v: Values, d: Draft) -> None:
    """Llama and the classes that differ from it in a flag or two: RMS norms, gated MLP, biases by flag."""
    s = read_shape(v, d)
    kind = v.model_type
    qk_norm = "head" if kind in WITH_HEAD_NORMS else ""
    qk_norm = "full" if kind in ("olmo2", "olmo3") else qk_norm
    bias, out_bias = v.flag("attention_bias"), v.flag("attention_bias")
    if kind in ("qwen2", "qwen2_vl_text", "qwen2_5_vl_text"):
        bias, out_bias = True, False
    elif kind in ("glm", "glm4"):
        out_bias = False
    elif kind == "seed_oss":
        out_bias = v.flag("attention_out_bias")
    elif kind == "ernie4_5":
        bias = out_bias = v.flag("use_bias")
    elif kind in ("mistral", "ministral", "ministral3", "phi3"):
        bias = out_bias = False
    d.gated = kind not in ("arcee", "apertus")
    mlp_bias = v.flag("use_bias") if kind == "ernie4_5" else kind in WITH_MLP_BIAS and v.flag("mlp_bias")
    every = range(s.layers)
    attention(d, s, every, bias=bias, out_bias=out_bias, qk_norm=qk_norm, windowed=windows(v, d, layer_types(v, s)))
    d.ffn = v.number("intermediate_size")
    mlp(d, s.hidden, d.ffn, every, gated=d.gated, bias=mlp_bias)
    if kind == "apertus":
        d.other(LAYER + "mlp.act_fn", 2, layers=every)
    if kind != "olmo":
        for place in range(4 if kind in ("gemma2", "gemma3_text", "glm4") else 2):
            norm(d, f"{LAYER}norm_{place}", s.hidden, every)
        norm(d, "model.norm", s.hidden)
    d.embedding(v.number("vocab_size"), s.hidden, tied=v.flag("tie_word_embeddings"))


WITH_HEAD_NORMS = ("qwen3", "gemma3_text", "hunyuan_v1_dense", "apertus", "exaone4", "qwen3_vl_text")
WITH_MLP_BIAS = ("llama", "smollm3", "granite", "seed_oss", "arcee", "internlm3")


def layer_types(v: Values, s: Shape) -> list[str] | None:
    """Types of attention by layer as the class fills them in; None = all alike, windowed if there is a window."""
    kind = v.model_type
    if kind in NEVER_WINDOWED:
        return ["full_attention"] * s.layers
    given = v.words("layer_types", s.layers)
    if given is not None:
        return given
    if kind in ("mistral", "ministral", "ministral3", "phi3", "starcoder2"):
        return None
    if kind in ("qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text"):
        first = (
            v.number("max_window_layers", least=0)
            if v.flag("use_sliding_window") and v.optional("sliding_window")
            else s.layers
        )
        return ["sliding_attention" if layer >= first else "full_attention" for layer in range(s.layers)]
    if kind == "smollm3":
        if not v.flag("use_sliding_window") or v.optional("sliding_window") is None:
            return ["full_attention"] * s.layers
        interval = v.number("no_rope_layer_interval")
        rotary = v.numbers("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(s.layers)]
        if len(rotary) != s.layers:
            raise v.wrong("no_rope_layers", f"a list of {len(rotary)}", f"the model has {s.layers} layers")
        return ["full_attention" if has else "sliding_attention" for has in rotary]
    every = {"gemma2": 2, "vaultgemma": 2, "gemma3_text": 6, "olmo3": 4, "cohere2": 4, "exaone4": 4}[kind]
    if kind in ("gemma3_text", "cohere2", "exaone4") and v.has("sliding_window_pattern"):
        every = pattern_length(v)
    if kind == "exaone4" and v.optional("sliding_window") is None:
        return ["full_attention"] * s.layers
    return ["sliding_attention" if (layer + 1) % every else "full_attention" for layer in range(s.layers)]


NEVER_WINDOWED = (
    "llama", "gemma", "granite", "seed_oss", "ernie4_5", "hunyuan_v1_dense", "arcee", "apertus", "olmo", "olmo2", "glm",
    "glm4", "internlm3", "qwen3_vl_text",
)  # fmt: skip


def cohere(v: Values, d: Draft) -> None:
    """Command R: one LayerNorm without shift feeds attention and MLP side by side."""
    s = read_shape(v, d, head_dim=v.model_type == "cohere")
    every, bias = range(s.layers), v.flag("attention_bias")
    local = windows(v, d, layer_types(v, s)) if v.model_type == "cohere2" else []
    attention(d, s, every, bias=bias, windowed=local, qk_norm="full" if v.flag("use_qk_norm") else "")
    d.ffn = v.number("intermediate_size")
    mlp(d, s.hidden, d.ffn, every)
    norm(d, LAYER + "input_layernorm", s.hidden, every)
    norm(d, "model.norm", s.hidden)
    d.embedding(v.number("vocab_size"), s.hidden, tied=v.flag("tie_word_embeddings"))


def layer_norm_decoder(v: Values, d: Draft) -> None:
    """Phi, Nemotron, StarCoder2, StableLM, Persimmon: LayerNorms with shift, otherwise much like Llama."""
    kind = v.model_type
    s = read_shape(v, d, head_dim=kind in ("nemotron", "starcoder2"))
    every = range(s.layers)
    d.gated, d.ffn = kind == "stablelm", v.number("intermediate_size")
    bias = {
        "phi": True, "persimmon": True, "nemotron": v.flag("attention_bias"), "starcoder2": v.flag("use_bias"),
        "stablelm": v.flag("use_qkv_bias"),
    }[kind]  # fmt: skip
    mlp_bias = {"phi": True, "persimmon": True, "nemotron": v.flag("mlp_bias"), "starcoder2": v.flag("use_bias")}.get(
        kind, False
    )
    local = windows(v, d, None) if kind == "starcoder2" else []
    attention(d, s, every, bias=bias, out_bias=False if kind == "stablelm" else bias, windowed=local)
    if v.flag("qk_layernorm"):
        # One norm each for queries and keys; StableLM has one per head instead, without shift.
        per_head = (s.heads, s.kv_heads) if kind == "stablelm" else (1, 1)
        norm(d, LAYER + "self_attn.q_layernorm", per_head[0] * s.head_dim, every, bias=kind != "stablelm")
        norm(d, LAYER + "self_attn.k_layernorm", per_head[1] * s.head_dim, every, bias=kind != "stablelm")
    mlp(d, s.hidden, d.ffn, every, gated=d.gated, bias=mlp_bias)
    single = kind == "phi" or (kind == "stablelm" and v.flag("use_parallel_residual"))
    for place in range(1 if single else 2):
        norm(d, f"{LAYER}norm_{place}", s.hidden, every, bias=True)
    norm(d, "model.norm", s.hidden, bias=True)
    tied = v.flag("tie_word_embeddings")
    d.embedding(v.number("vocab_size"), s.hidden, tied=tied, head_bias=kind == "phi")


def gpt(v: Values, d: Draft) -> None:
    """GPT-2, GPT-J, GPT-Neo, CodeGen, StarCoder 1: two-matrix MLPs with bias, learned or rotary positions."""
    kind = v.model_type
    s = read_shape(v, d, head_dim=False)
    every, learned = range(s.layers), kind in ("gpt2", "gpt_neo", "gpt_bigcode")
    if kind != "gpt_bigcode" and s.kv_heads != s.heads:
        s = Shape(layers=s.layers, hidden=s.hidden, heads=s.heads, kv_heads=s.heads, head_dim=s.head_dim)
    if kind == "gpt_bigcode":
        kv_heads = 1 if v.flag("multi_query") else s.heads
        s = Shape(layers=s.layers, hidden=s.hidden, heads=s.heads, kv_heads=kv_heads, head_dim=s.head_dim)
    if v.flag("add_cross_attention"):
        raise v.unmodelled("cross-attention in a GPT-2 decoder")
    d.kv_heads, d.gated = s.kv_heads, False
    d.ffn = v.optional("intermediate_size" if kind == "gpt_neo" else "n_inner") or 4 * s.hidden
    bias = kind in ("gpt2", "gpt_bigcode")
    attention(d, s, every, bias=bias, out_bias=bias or kind == "gpt_neo")
    mlp(d, s.hidden, d.ffn, every, gated=False, bias=True)
    for place in range(2 if learned else 1):
        norm(d, f"{LAYER}ln_{place}", s.hidden, every, bias=True)
    norm(d, "ln_f", s.hidden, bias=True)
    if learned:
        d.other("wpe", v.number("max_position_embeddings"), s.hidden)
    head_bias = kind in ("gptj", "codegen")
    d.embedding(v.number("vocab_size"), s.hidden, tied=v.flag("tie_word_embeddings"), head_bias=head_bias)


def gpt_neox(v: Values, d: Draft) -> None:
    """GPT-NeoX and Pythia: fused query, key and value; MLP always with bias."""
    s = read_shape(v, d, head_dim=False)
    s = Shape(layers=s.layers, hidden=s.hidden, heads=s.heads, kv_heads=s.heads, head_dim=s.head_dim)
    every = range(s.layers)
    d.kv_heads, d.gated, d.ffn = s.heads, False, v.number("intermediate_size")
    attention(d, s, every, bias=v.flag("attention_bias"))
    mlp(d, s.hidden, d.ffn, every, gated=False, bias=True)
    for place in range(2):
        norm(d, f"{LAYER}norm_{place}", s.hidden, every, bias=True)
    norm(d, "final_layer_norm", s.hidden, bias=True)
    d.embedding(v.number("vocab_size"), s.hidden, tied=v.flag("tie_word_embeddings"), name="embed_out")


def bloom(v: Values, d: Draft) -> None:
    """BLOOM: ALiBi positions, a norm behind the embedding, MLP of four times the width."""
    s = read_shape(v, d, head_dim=False)
    s = Shape(layers=s.layers, hidden=s.hidden, heads=s.heads, kv_heads=s.heads, head_dim=s.head_dim)
    every = range(s.layers)
    d.kv_heads, d.gated, d.ffn = s.heads, False, 4 * s.hidden
    attention(d, s, every, bias=True)
    mlp(d, s.hidden, d.ffn, every, gated=False, bias=True)
    for place in range(2):
        norm(d, f"{LAYER}norm_{place}", s.hidden, every, bias=True)
    norm(d, "word_embeddings_layernorm", s.hidden, bias=True)
    norm(d, "ln_f", s.hidden, bias=True)
    d.embedding(v.number("vocab_size"), s.hidden, tied=v.flag("tie_word_embeddings"))


def mpt(v: Values, d: Draft) -> None:
    """MPT: ALiBi positions, no biases, MLP of four times the width."""
    s = read_shape(v, d, head_dim=False)
    s = Shape(layers=s.layers, hidden=s.hidden, heads=s.heads, kv_heads=s.heads, head_dim=s.head_dim)
    every = range(s.layers)
    d.kv_heads, d.gated, d.ffn, d.max_context = s.heads, False, 4 * s.hidden, v.optional("max_seq_len")
    if (v.given.get("attn_config") or {}) and v.part("attn_config", "mpt_attention").text(
        "attn_type"
    ) == "multiquery_attention":
        raise v.unmodelled("multi-query attention in MPT")
    attention(d, s, every)
    mlp(d, s.hidden, d.ffn, every, gated=False)
    for place in range(2):
        norm(d, f"{LAYER}norm_{place}", s.hidden, every)
    norm(d, "norm_f", s.hidden)
    d.embedding(v.number("vocab_size"), s.hidden, tied=v.flag("tie_word_embeddings"))


def falcon(v: Values, d: Draft) -> None:
    """Falcon 7B (one KV head), 40B and 180B (new architecture: grouped heads, two norms side by side)."""
    layers, hidden, heads = v.layers(), v.number("hidden_size"), v.number("num_attention_heads")
    grouped, single = v.flag("new_decoder_architecture"), v.flag("multi_query")
    kv_heads = (v.optional("num_kv_heads") or heads) if grouped else 1 if single else heads
    if hidden < heads:
        raise v.wrong("hidden_size", hidden, f"it must be at least the {heads} attention heads")
    s = Shape(layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=hidden // heads)
    every, bias = range(layers), v.flag("bias")
    d.layers, d.hidden, d.heads, d.kv_heads, d.head_dim = layers, hidden, heads, kv_heads, s.head_dim
    d.gated, d.ffn, d.max_context = (
        False,
        v.optional("ffn_hidden_size") or 4 * hidden,
        v.optional("max_position_embeddings"),
    )
    attention(d, s, every, bias=bias)
    mlp(d, hidden, d.ffn, every, gated=False, bias=bias)
    parallel = v.flag("parallel_attn")
    norms = (v.optional("num_ln_in_parallel_attn", most=2) or 2) if grouped else (1 if parallel else 2)
    if grouped and norms == 1 and not parallel:
        norms = 2
    for place in range(norms):
        norm(d, f"{LAYER}norm_{place}", hidden, every, bias=True)
    norm(d, "ln_f", hidden, bias=True)
    d.embedding(v.number("vocab_size"), hidden, tied=v.flag("tie_word_embeddings"))


def opt(v: Values, d: Draft) -> None:
    """OPT: learned positions with two extra rows; the 350M size embeds in a narrower space and projects."""
    s = read_shape(v, d, head_dim=False)
    s = Shape(layers=s.layers, hidden=s.hidden, heads=s.heads, kv_heads=s.heads, head_dim=s.head_dim)
    every, bias, affine = range(s.layers), v.flag("enable_bias"), v.flag("layer_norm_elementwise_affine")
    d.kv_heads, d.gated, d.ffn = s.heads, False, v.number("ffn_dim")
    width = v.optional("word_embed_proj_dim") or s.hidden
    attention(d, s, every, bias=bias)
    mlp(d, s.hidden, d.ffn, every, gated=False, bias=bias)
    if affine:
        for place in range(2):
            norm(d, f"{LAYER}norm_{place}", s.hidden, every, bias=True)
        if v.flag("do_layer_norm_before") and not v.flag("_remove_final_layer_norm"):
            norm(d, "final_layer_norm", s.hidden, bias=True)
    d.other("embed_positions", v.number("max_position_embeddings") + 2, s.hidden)
    if width != s.hidden:
        d.linear("project_in", s.hidden, width, None)
        d.linear("project_out", width, s.hidden, None)
    d.embedding(v.number("vocab_size"), width, tied=v.flag("tie_word_embeddings"))


def lfm2(v: Values, d: Draft) -> None:
    """LFM2: short convolutions, with attention in some layers."""
    s = read_shape(v, d)
    every = range(s.layers)
    kinds = v.words("layer_types", s.layers)
    if kinds is None and v.model_type == "lfm2_moe":
        raise v.missing("layer_types")
    if kinds is None:
        full = v.numbers("full_attn_idxs")
        kinds = ["full_attention" if full is None or layer in full else "conv" for layer in every]
    attending, convolving = of_type(kinds, "full_attention"), of_type(kinds, "conv")
    if len(attending) + len(convolving) != s.layers:
        raise v.wrong("layer_types", "a list", "LFM2 has full_attention and conv layers")
    attention(d, s, attending, qk_norm="head")
    kernel, bias = v.number("conv_L_cache"), v.flag("conv_bias")
    d.other(LAYER + "conv.conv", s.hidden, kernel, layers=convolving)
    if bias:
        d.other(LAYER + "conv.conv.bias", s.hidden, layers=convolving)
    d.linear(LAYER + "conv.in_proj", 3 * s.hidden, s.hidden, convolving, bias=bias)
    d.linear(LAYER + "conv.out_proj", s.hidden, s.hidden, convolving, bias=bias)
    d.keeps(convolving, s.hidden * kernel)
    d.kind = "hybrid" if convolving else "dense"
    if v.model_type == "lfm2_moe":
        first = min(v.number("num_dense_layers", least=0), s.layers)
        d.ffn = v.number("intermediate_size")
        mlp(d, s.hidden, d.ffn, range(first))
        kind, count, top_k = d.kind, v.number("num_experts"), v.number("num_experts_per_tok")
        experts(d, s.hidden, v.number("moe_intermediate_size"), range(first, s.layers), count=count, top_k=top_k)
        d.kind = kind
    else:
        d.ffn = _lfm2_width(v)
        mlp(d, s.hidden, d.ffn, every)
    for place in range(2):
        norm(d, f"{LAYER}norm_{place}", s.hidden, every)
    norm(d, "model.embedding_norm", s.hidden)
    tied = v.flag("tie_embedding") if v.has("tie_embedding") else v.flag("tie_word_embeddings")
    d.embedding(v.number("vocab_size"), s.hidden, tied=tied)


def _lfm2_width(v: Values) -> int:
    """MLP width of LFM2: two thirds of the stated one, scaled and rounded up, unless that is switched off."""
    width = v.number("block_ff_dim") if v.has("block_ff_dim") else v.number("intermediate_size")
    if not v.flag("block_auto_adjust_ff_dim"):
        return width
    multiple = v.number("block_multiple_of")
    width = int(v.real("block_ffn_dim_multiplier") * int(2 * width / 3))
    return multiple * ((width + multiple - 1) // multiple)
