"""Vision towers and the projectors that join them to a decoder; all their parameters count as vision."""

from __future__ import annotations

from collections.abc import Sequence

from gpuguide.catalog.families.blocks import mlp, norm
from gpuguide.catalog.families.draft import Draft
from gpuguide.catalog.families.values import Values

PART = "vision"


def _linear(
    d: Draft, name: str, outputs: int, inputs: int, layers: Sequence[int] | None = None, *, bias: bool = False
) -> None:
    d.linear(f"vision.{name}", outputs, inputs, layers, bias=bias, part=PART)


def _other(d: Draft, name: str, *shape: int, layers: Sequence[int] | None = None) -> None:
    d.other(f"vision.{name}", *shape, layers=layers, part=PART)


def _norm(d: Draft, name: str, width: int, layers: Sequence[int] | None = None, *, bias: bool = True) -> None:
    norm(d, f"vision.{name}", width, layers, bias=bias, part=PART)


def _attention(d: Draft, hidden: int, layers: Sequence[int], *, bias: bool, out_bias: bool | None = None) -> None:
    for name in ("q_proj", "k_proj", "v_proj"):
        _linear(d, name, hidden, hidden, layers, bias=bias)
    _linear(d, "out_proj", hidden, hidden, layers, bias=bias if out_bias is None else out_bias)


def _mlp(d: Draft, hidden: int, width: int, layers: Sequence[int], *, gated: bool = False, bias: bool = True) -> None:
    mlp(d, hidden, width, layers, gated=gated, bias=bias, prefix="vision.mlp.", part=PART)


def _patches(v: Values) -> int:
    """Patches of one picture."""
    (height, width), (patch_height, patch_width) = v.square("image_size"), v.square("patch_size")
    return (height // patch_height) * (width // patch_width)


def _patch_pixels(v: Values, channels: str = "num_channels") -> int:
    height, width = v.square("patch_size")
    return v.number(channels) * height * width


def siglip_or_clip(v: Values, d: Draft) -> int:
    """SigLIP, or CLIP with its class token; the width that comes out."""
    clip = v.model_type == "clip_vision_model"
    hidden, layers = v.number("hidden_size"), range(v.layers())
    _other(d, "patch_embedding", hidden, _patch_pixels(v))
    _other(d, "position_embedding", _patches(v) + clip, hidden)
    if clip:
        _other(d, "class_embedding", hidden)
        _norm(d, "pre_layernorm", hidden)
    else:
        _other(d, "patch_embedding.bias", hidden)
    _attention(d, hidden, layers, bias=True)
    _mlp(d, hidden, v.number("intermediate_size"), layers)
    _norm(d, "layer_norm1", hidden, layers)
    _norm(d, "layer_norm2", hidden, layers)
    _norm(d, "post_layernorm", hidden)
    if not clip and v.flag("vision_use_head"):
        # The pooling head: a probe, one attention with fused inputs, a norm and an MLP.
        _other(d, "head.probe", hidden)
        _attention(d, hidden, [0], bias=True)
        _norm(d, "head.layernorm", hidden)
        _mlp(d, hidden, v.number("intermediate_size"), [0])
    return hidden


def pixtral(v: Values, d: Draft) -> int:
    """Pixtral: rotary positions, RMS norms, gated MLP, no biases."""
    hidden, layers = v.number("hidden_size"), range(v.layers())
    _other(d, "patch_conv", hidden, _patch_pixels(v))
    _norm(d, "ln_pre", hidden, bias=False)
    _attention(d, hidden, layers, bias=False)
    _mlp(d, hidden, v.number("intermediate_size"), layers, gated=True, bias=False)
    _norm(d, "attention_norm", hidden, layers, bias=False)
    _norm(d, "ffn_norm", hidden, layers, bias=False)
    return hidden


def any_tower(v: Values, d: Draft) -> int:
    """The tower that a config names where the class takes several."""
    if v.model_type in ("clip_vision_model", "siglip_vision_model"):
        return siglip_or_clip(v, d)
    if v.model_type == "pixtral":
        return pixtral(v, d)
    raise v.unmodelled(f"a vision tower of type '{v.model_type[:40]}'")


def qwen_tower(v: Values, d: Draft, family: str) -> None:
    """Vision towers of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5, whose merger ends at the decoder's width."""
    older, middle = family == "qwen2_vl", family == "qwen2_5_vl"
    hidden, layers = v.number("embed_dim" if older else "hidden_size"), range(v.number("depth", most=10_000))
    frames, _ = v.square("temporal_patch_size")
    merged = hidden * v.number("spatial_merge_size") ** 2
    out = v.number("hidden_size" if older else "out_hidden_size")
    _other(d, "patch_embed", hidden, _patch_pixels(v, "in_channels") * frames)
    _norm(d, "norm1", hidden, layers, bias=not middle)
    _norm(d, "norm2", hidden, layers, bias=not middle)
    _attention(d, hidden, layers, bias=True)
    width = int(hidden * v.real("mlp_ratio")) if older else v.number("intermediate_size")
    _mlp(d, hidden, width, layers, gated=middle)
    _norm(d, "merger.norm", hidden, bias=not middle)
    _linear(d, "merger.fc1", merged, merged, bias=True)
    _linear(d, "merger.fc2", out, merged, bias=True)
    if older or middle:
        return
    _other(d, "patch_embed.bias", hidden)
    _other(d, "pos_embed", v.number("num_position_embeddings"), hidden)
    if family.startswith("qwen3_vl"):
        deep = v.numbers("deepstack_visual_indexes") or []
        for place in range(len(deep)):
            _norm(d, f"deepstack_{place}.norm", merged)
            _linear(d, f"deepstack_{place}.fc1", merged, merged, bias=True)
            _linear(d, f"deepstack_{place}.fc2", out, merged, bias=True)


def gemma_projector(v: Values, d: Draft, width: int, hidden: int) -> None:
    """Gemma 3: a matrix and a norm."""
    _other(d, "mm_input_projection", width, hidden)
    _norm(d, "mm_soft_emb_norm", width, bias=False)


def llava_projector(v: Values, d: Draft, width: int, hidden: int) -> None:
    """LLaVA: two matrices; several selected tower layers are laid side by side."""
    selected = v.given.get("vision_feature_layer")
    sides = len(selected) if isinstance(selected, list) and 0 < len(selected) <= 1000 else 1
    bias = v.flag("multimodal_projector_bias")
    _linear(d, "projector.linear_1", hidden, width * sides, bias=bias)
    _linear(d, "projector.linear_2", hidden, hidden, bias=bias)
    if v.model_type == "llava_next":
        d.other("image_newline", hidden)


def mistral_projector(v: Values, d: Draft, width: int, hidden: int) -> None:
    """Mistral Small 3.1 and later: patches merged, then two matrices."""
    selected = v.given.get("vision_feature_layer")
    sides = len(selected) if isinstance(selected, list) and 0 < len(selected) <= 1000 else 1
    bias = v.flag("multimodal_projector_bias")
    _norm(d, "projector.norm", width, bias=False)
    _linear(d, "projector.merging_layer", width, width * v.number("spatial_merge_size") ** 2)
    _linear(d, "projector.linear_1", hidden, width * sides, bias=bias)
    _linear(d, "projector.linear_2", hidden, hidden, bias=bias)


def llama4_tower(v: Values, d: Draft, hidden: int) -> None:
    """Llama 4: pixel shuffle before a two-matrix adapter, then one projection."""
    width, layers = v.number("hidden_size"), range(v.layers())
    _other(d, "class_embedding", width)
    _other(d, "position_embedding", _patches(v) + 1, width)
    _linear(d, "patch_embedding", width, _patch_pixels(v))
    for name in ("layernorm_pre", "layernorm_post"):
        _norm(d, name, width)
    _attention(d, width, layers, bias=True)
    middle = v.number("intermediate_size")
    _mlp(d, width, middle, layers)
    _norm(d, "input_layernorm", width, layers)
    _norm(d, "post_attention_layernorm", width, layers)
    entering, leaving = v.number("projector_input_dim"), v.number("projector_output_dim")
    _linear(d, "adapter.fc1", entering, middle)
    _linear(d, "adapter.fc2", leaving, leaving)
    _linear(d, "projector.linear_1", hidden, v.number("vision_output_dim"))


def mllama_tower(v: Values, d: Draft, hidden: int) -> None:
    """Llama 3.2 Vision: tiles with gated positions, local then global layers, and one projection."""
    width, layers, final = (
        v.number("hidden_size"),
        range(v.layers()),
        range(v.number("num_global_layers", least=0, most=10_000)),
    )
    tiles, patches = v.number("max_num_tiles"), _patches(v) + 1
    ratios = v.given.get("supported_aspect_ratios")
    kinds = 1 + (len(ratios) if isinstance(ratios, list) else 8)
    _other(d, "class_embedding", width)
    _other(d, "patch_embedding", width, _patch_pixels(v))
    _other(d, "positional.gate", 1)
    _other(d, "positional.embedding", patches, width)
    _other(d, "positional.tile_embedding", kinds, tiles * patches * width)
    for name in ("pre_tile", "post_tile"):
        _other(d, f"{name}.gate", 1)
        _other(d, f"{name}.embedding", kinds, tiles * width)
    for name in ("layernorm_pre", "layernorm_post"):
        _norm(d, name, width)
    for group in (layers, final):
        _attention(d, width, group, bias=False)
        _mlp(d, width, v.number("intermediate_size"), group)
        _norm(d, "input_layernorm", width, group)
        _norm(d, "post_attention_layernorm", width, group)
    _other(d, "gates", 2, layers=final)
    _linear(d, "projector", hidden, v.number("vision_output_dim"), bias=True)


def internvl_tower(v: Values, top: Values, d: Draft, hidden: int) -> None:
    """InternVL: layer scales, optional query and key norms, a projector of two matrices behind pixel shuffle."""
    width, layers, bias = v.number("hidden_size"), range(v.layers()), v.flag("attention_bias")
    shift = v.text("norm_type") == "layer_norm"
    _other(d, "cls_token", width)
    if v.flag("use_mask_token"):
        _other(d, "mask_token", width)
    if v.flag("use_absolute_position_embeddings"):
        _other(d, "position_embeddings", _patches(v) + 1, width)
    _other(d, "patch_embeddings", width, _patch_pixels(v))
    _other(d, "patch_embeddings.bias", width)
    _other(d, "lambda", 2, width, layers=layers)
    _attention(d, width, layers, bias=bias, out_bias=True)
    if v.flag("use_qk_norm"):
        _other(d, "qk_norm", 2, width, layers=layers)
    _mlp(d, width, v.number("intermediate_size"), layers)
    _norm(d, "layernorm_before", width, layers, bias=shift)
    _norm(d, "layernorm_after", width, layers, bias=shift)
    if not v.flag("use_mean_pooling"):
        _norm(d, "layernorm", width)
    entering = width * int(1 / top.real("downsample_ratio")) ** 2
    _norm(d, "projector.layer_norm", entering)
    _linear(d, "projector.linear_1", hidden, entering, bias=True)
    _linear(d, "projector.linear_2", hidden, hidden, bias=True)


def kimi_tower(v: Values, top: Values, d: Draft, hidden: int) -> None:
    """Kimi K2.5: a learned grid of positions, a merging projector."""
    width, layers = v.number("hidden_size"), range(v.layers())
    merge_height, merge_width = v.square("merge_kernel_size")
    _other(d, "patch_embed", width, 3 * v.square("patch_size")[0] * v.square("patch_size")[1])
    _other(d, "patch_embed.bias", width)
    _other(d, "positions", v.number("pos_emb_height"), v.number("pos_emb_width"), width)
    _attention(d, width, layers, bias=True)
    _mlp(d, width, v.number("intermediate_size"), layers)
    _norm(d, "norm1", width, layers)
    _norm(d, "norm2", width, layers)
    _norm(d, "final_layernorm", width)
    merged = width * merge_height * merge_width
    _norm(d, "projector.pre_norm", top.optional("projection_hidden_size") or width)
    _linear(d, "projector.in_proj", merged, merged, bias=True)
    _linear(d, "projector.out_proj", hidden, merged, bias=True)


def gemma4_tower(v: Values, d: Draft, hidden: int) -> None:
    """Gemma 4: a table of positions by row and by column, query and key norms, four RMS norms a layer."""
    width, heads, head_dim, layers = (
        v.number("hidden_size"),
        v.number("num_attention_heads"),
        v.number("head_dim"),
        range(v.layers()),
    )
    kv_heads, bias = v.optional("num_key_value_heads") or heads, v.flag("attention_bias")
    _other(d, "position_embedding_table", 2, v.number("position_embedding_size"), width)
    _linear(d, "patch_embedder", width, 3 * v.square("patch_size")[0] * v.square("patch_size")[1])
    for name, outputs in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
        _linear(d, name, outputs * head_dim, width, layers, bias=bias)
    _linear(d, "o_proj", width, heads * head_dim, layers, bias=bias)
    _other(d, "qk_norm", 2, head_dim, layers=layers)
    _mlp(d, width, v.number("intermediate_size"), layers, gated=True, bias=False)
    for place in range(4):
        _norm(d, f"norm_{place}", width, layers, bias=False)
    _linear(d, "embed_vision", hidden, width)
