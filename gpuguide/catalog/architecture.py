"""One object of `data/models.json` as a `Model` or a `MediaModel`: names mapped, counts made floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuguide.spec.model import Component, MediaModel, Model

MEDIA_KINDS = ("diffusion", "audio")
TASKS = {"speech-to-text": "asr", "text-to-speech": "tts", "text-to-music": "music"}
"""Tasks of the catalog whose name in `MediaModel.task` is another; the rest keep theirs."""
WORK = (
    "flops_per_token", "attention_flops_per_pair", "traffic_bytes_per_token", "live_bytes_per_token",
    "saved_bytes_per_token", "saved_bytes_per_token_frozen", "head_dim", "kernels",
)  # fmt: skip
"""Figures of one pass of a denoiser that a catalog object may leave out."""


def to_model(entry: Mapping[str, Any], name: str) -> Model | MediaModel:
    """
    The model that one catalog object describes.

    Parameters
    ----------
    entry : mapping
        One object of `data/models.json`; counts in parameters and elements, lengths in tokens.
    name : str
        Short name to show and to look it up by.
    """
    if entry["kind"] in MEDIA_KINDS:
        return _media(entry, name)
    return _language(entry, name)


def _language(entry: Mapping[str, Any], name: str) -> Model:
    attention = entry["attention"]
    experts = entry.get("moe") or {}
    dense_first = _number(experts.get("first_dense_layers"))
    layers = _number(entry["layers"])
    moe_layers = (layers - dense_first) / _number(experts.get("every_n_layers"), 1.0) if experts else 0.0
    if experts and attention.get("pattern"):
        # A hybrid whose pattern names its expert layers (E) has neither every layer nor every n-th.
        written = str(attention["pattern"]).split(" (")[0]
        if set(written) <= set("M-*E"):
            moe_layers = float(written.count("E"))
    return Model(
        name=name,
        hub_id=entry["id"],
        kind=entry["kind"],
        source=entry["source"],
        as_of=entry["as_of"],
        params=_number(entry["params_total"]),
        params_active=_number(entry["params_active"]),
        params_embedding=_number(entry["params_input_embedding"]),
        params_lm_head=_number(entry["params_lm_head"]),
        params_routed_experts=_number(entry["params_routed_experts"]),
        params_vision=_number(entry["params_vision"]),
        params_mtp=_number((entry.get("mtp") or {}).get("params_own")),
        layers=layers,
        hidden=_number(entry["hidden"]),
        ffn=_number(entry["ffn"]),
        heads=_number(entry["heads"]),
        kv_heads=_number(entry["kv_heads"]),
        head_dim=_number(entry["head_dim"]),
        vocab=_number(entry["vocab"]),
        tied_embeddings=bool(entry["tie_embeddings"]),
        gated_mlp=bool(entry["gated_mlp"]),
        max_context=_optional(entry["max_context"]),
        attention=attention["type"],
        q_lora_rank=_number(attention.get("q_lora_rank")),
        kv_lora_rank=_number(attention.get("kv_lora_rank")),
        qk_nope_head_dim=_number(attention.get("qk_nope_head_dim")),
        qk_rope_head_dim=_number(attention.get("qk_rope_head_dim")),
        v_head_dim=_number(attention.get("v_head_dim")),
        kv_window=_optional(entry["kv_window"]),
        layers_full=_number(attention["layers_full_cache"]),
        layers_windowed=_number(attention["layers_windowed_cache"]),
        layers_recurrent=_number(attention["layers_with_recurrent_state"]),
        kv_elements_full=_number(entry["kv_elems_per_token_full_layers"]),
        kv_elements_windowed=_number(entry["kv_elems_per_token_windowed_layers"]),
        recurrent_elements=_number(entry["recurrent_state_elems_per_sequence"]),
        experts=_number(experts.get("experts")),
        experts_per_token=_number(experts.get("top_k")),
        shared_experts=_number(experts.get("shared_experts")),
        moe_ffn=_number(experts.get("moe_ffn")),
        moe_layers=moe_layers,
        native_dtype=entry["native_dtype"],
        native_bytes=_optional(entry["weight_bytes_native"]),
    )


def _media(entry: Mapping[str, Any], name: str) -> MediaModel:
    latent = entry.get("latent") or {}
    height, width = entry.get("native_resolution") or (None, None)
    work = entry.get("work") or {}
    components = tuple(
        _component(part)
        for part in entry.get("components") or [{"role": "whole model", "params": entry["params_total"]}]
    )
    cached_bytes = entry.get("kv_bytes_per_token_bf16")
    is_denoiser = "denoiser_layers" in entry
    return MediaModel(
        name=name,
        hub_id=entry["id"],
        kind=entry["kind"],
        task=TASKS.get(entry["task"], entry["task"]),
        source=entry["source"],
        as_of=entry["as_of"],
        params=_number(entry["params_total"]),
        components=components,
        denoiser_type=entry.get("denoiser_type") or ("autoregressive" if cached_bytes else None),
        denoiser_layers=_optional(entry.get("denoiser_layers") if is_denoiser else entry.get("layers")),
        denoiser_hidden=_optional(entry.get("denoiser_hidden") if is_denoiser else entry.get("hidden")),
        kv_elements=_number(cached_bytes) / 2,
        latent_channels=_optional(latent.get("channels")),
        spatial_down=_optional(latent.get("spatial_down")),
        temporal_down=_optional(latent.get("temporal_down")),
        audio_down=_optional(latent.get("audio_down")),
        patch=_optional(latent.get("patch")),
        native_width=_optional(width),
        native_height=_optional(height),
        native_frames=_optional(entry.get("frames")),
        fps=_optional(entry.get("fps")),
        default_steps=_optional(entry.get("default_steps")),
        passes_per_step=_number(entry.get("passes_per_step"), 1.0),
        native_dtype=entry["native_dtype"],
        **{name: _optional(work.get(name)) for name in WORK},
        flops_fixed=_number(work.get("flops_fixed")),
        joint_text_tokens=_number(work.get("joint_text_tokens")),
        attention_within_frame=bool(work.get("attention_within_frame")),
        passes_one_by_one=bool(work.get("passes_one_by_one")),
    )


def _component(part: Mapping[str, Any]) -> Component:
    decode = part.get("decode") or {}
    return Component(
        role=part["role"],
        params=_number(part["params"]),
        cls=part.get("cls", ""),
        dtype=decode.get("dtype", ""),
        decode_flops_per_pixel=_optional(decode.get("decode_flops_per_pixel")),
        decode_values_per_pixel=_optional(decode.get("decode_values_per_pixel")),
        decode_frames=_optional(decode.get("decode_frames")),
        tiled=bool(decode.get("tiled")),
        tokens_per_s=_optional(part.get("tokens_per_s")),
        decode_traffic_bytes_per_pixel=_number(decode.get("decode_traffic_bytes_per_pixel")),
    )


def _number(value: float | None, default: float = 0.0) -> float:
    return default if value is None else float(value)


def _optional(value: float | None) -> float | None:
    return None if value is None else float(value)
