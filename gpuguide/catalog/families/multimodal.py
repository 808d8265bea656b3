"""Vision-language models: a decoder of another family, a vision tower, and what joins them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuguide.catalog.families import vision
from gpuguide.catalog.families.blocks import LAYER, Shape, attention, mlp, norm, read_shape
from gpuguide.catalog.families.draft import Draft
from gpuguide.catalog.families.values import Values

Parser = Callable[[Values, Draft], None]
TEXT_TYPES = {
    "qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
    "gemma3": "gemma3_text", "llama4": "llama4_text", "gemma4": "gemma4_text",
}  # fmt: skip


def multimodal(decoders: dict[str, Parser]) -> Parser:
    """The parser of every vision-language class, given the parsers of decoders."""

    def parse(v: Values, d: Draft) -> None:
        kind = v.model_type
        text = v.part("text_config", TEXT_TYPES.get(kind), flat=kind in ("qwen2_vl", "qwen2_5_vl"))
        if text.model_type == "kimi_k2":
            text = Values(text.given, "deepseek_v3", path=text.path, defaulted=text.defaulted)
        if text.model_type not in decoders:
            raise v.unmodelled(f"a decoder of type '{text.model_type[:40]}' inside {kind}")
        decoders[text.model_type](text, d)
        _tie(v, text, d)
        _towers(v, d)
        d.kind = "vlm" if d.kind == "dense" else d.kind

    return parse


def _tie(v: Values, text: Values, d: Draft) -> None:
    """The whole model says whether the head is tied; some classes ask the decoder's config as well."""
    tied = v.flag("tie_word_embeddings")
    if v.model_type == "llama4" or (v.model_type in ("qwen2_vl", "qwen2_5_vl", "llava") and not tied):
        tied = text.flag("tie_word_embeddings")
    if tied == d.tied:
        return
    if tied:
        d.tensors = [tensor for tensor in d.tensors if tensor.part != "head"]
    else:
        first = next(tensor for tensor in d.tensors if tensor.name == "model.embed_tokens")
        d.tensors.append(replace(first, name="lm_head", part="head"))
    d.tied = tied


def _towers(v: Values, d: Draft) -> None:
    kind, hidden = v.model_type, d.hidden
    if kind == "gemma4":
        if v.given.get("audio_config") is not None:
            raise v.unmodelled("the audio tower of Gemma 4")
        if v.given.get("vision_config") is not None:
            vision.gemma4_tower(v.part("vision_config"), d, hidden)
        return
    tower = v.part("vision_config")
    if kind.startswith("qwen"):
        vision.qwen_tower(tower, d, kind)
    elif kind == "gemma3":
        vision.gemma_projector(v, d, vision.any_tower(tower, d), hidden)
    elif kind == "paligemma":
        width = vision.any_tower(tower, d)
        out = v.number("projection_dim")
        d.linear("vision.projector", out, width, None, bias=True, part="vision")
    elif kind in ("llava", "llava_next"):
        vision.llava_projector(v, d, vision.any_tower(tower, d), hidden)
    elif kind == "mistral3":
        vision.mistral_projector(v, d, vision.any_tower(tower, d), hidden)
    elif kind == "llama4":
        vision.llama4_tower(tower, d, hidden)
    elif kind == "internvl":
        vision.internvl_tower(tower, v, d, hidden)
    elif kind == "kimi_k25":
        vision.kimi_tower(tower, v, d, hidden)


def mllama(v: Values, d: Draft) -> None:
    """Llama 3.2 Vision: some layers attend to the picture only and cache no text."""
    text = v.part("text_config")
    s = read_shape(text, d)
    s = Shape(layers=s.layers, hidden=s.hidden, heads=s.heads, kv_heads=s.kv_heads, head_dim=s.hidden // s.heads)
    d.head_dim, every = s.head_dim, range(s.layers)
    given = text.numbers("cross_attention_layers")
    crossing = sorted(set([3, 8, 13, 18, 23, 28, 33, 38] if given is None else given) & set(every))
    reading = [layer for layer in every if layer not in set(crossing)]
    attention(d, s, reading)
    grown = d.layers_full, d.cache_full
    attention(d, s, crossing, qk_norm="head", prefix=LAYER + "cross_attn.")
    d.layers_full, d.cache_full = grown
    d.other(LAYER + "cross_attn.gates", 2, layers=crossing)
    d.ffn = text.number("intermediate_size")
    mlp(d, s.hidden, d.ffn, every)
    for place in range(2):
        norm(d, f"{LAYER}norm_{place}", s.hidden, every)
    norm(d, "model.norm", s.hidden)
    vocab = text.number("vocab_size")
    d.other("model.embed_tokens", vocab + 8, s.hidden, part="embedding")  # eight rows for the image token and spares
    d.other("lm_head", vocab, s.hidden, part="head")
    d.vocab, d.kind = vocab, "vlm"
    vision.mllama_tower(v.part("vision_config"), d, s.hidden)
