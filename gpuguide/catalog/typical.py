"""A model from a parameter count alone, and architecture keys of a scenario on top of any model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpuguide.errors import InvalidScenario, NotModelled
from gpuguide.spec.model import MediaModel, Model
from gpuguide.spec.scenario import Scenario
from gpuguide.units import BILLION

SHAPES = np.array(
    [  # parameters [1e9], layers, hidden size: published dense decoders of 2024 and 2025 with grouped-query attention
        (0.135, 30, 576),  # SmolLM2 135M
        (0.49, 24, 896),  # Qwen2.5 0.5B
        (1.24, 16, 2048),  # Llama 3.2 1B
        (3.21, 28, 3072),  # Llama 3.2 3B
        (8.03, 32, 4096),  # Llama 3.1 8B
        (14.8, 40, 5120),  # Qwen3 14B
        (32.8, 64, 5120),  # Qwen3 32B
        (70.6, 80, 8192),  # Llama 3.1 70B
        (122.6, 88, 12288),  # Mistral Large 2
        (405.9, 126, 16384),  # Llama 3.1 405B
    ]
)
"""Sizes between are interpolated on logarithms, sizes beyond follow the nearest two."""
TIED_BELOW = 4.0 * BILLION  # Llama 3.2 3B and Qwen3 4B tie their embeddings, Llama 3.1 8B and Qwen3 8B do not
TYPICAL_CONTEXT = 131_072.0

KEYS = {
    "num_hidden_layers": "layers", "hidden_size": "hidden", "intermediate_size": "ffn", "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads", "head_dim": "head_dim", "vocab_size": "vocab",
    "tie_word_embeddings": "tied_embeddings", "num_local_experts": "experts",
    "num_experts_per_tok": "experts_per_token", "moe_intermediate_size": "moe_ffn", "sliding_window": "kv_window",
    "max_position_embeddings": "max_context",
}  # fmt: skip
"""Architecture keys of a scenario, and the field of `Model` that each sets."""


def with_architecture_keys(
    scenario: Scenario, read: Callable[[str], Model | MediaModel], default: str
) -> Model | MediaModel:
    """
    The model that a scenario means: by name or file, by parameter count, by its dimensions, or the default.

    Parameters
    ----------
    scenario : Scenario
        Its `model` or `params_b`, and architecture keys, which go on top of either or stand alone.
    read : callable
        Reads a name, path or Hub id.
    default : str
        Name of the model when the scenario says nothing of one.
    """
    given = {KEYS[key]: getattr(scenario, key) for key in KEYS if getattr(scenario, key) is not None}
    if scenario.model is not None:
        found = read(scenario.model)
        return _changed(found, given) if given else found
    if scenario.params_b is not None:
        return typical(scenario.params_b * BILLION, **given)
    if {"layers", "hidden"} <= set(given):
        return typical(None, **given)
    return _changed(read(default), given) if given else read(default)


def typical(params: float | None, **given: Any) -> Model:
    """
    A decoder of the usual proportions, marked as derived.

    Parameters
    ----------
    params : float or None
        Parameters wanted; None = whatever the given dimensions make. [-]
    given : number
        Fields of `Model` that are known: layers, hidden, ffn, heads, kv_heads, head_dim, vocab, tied_embeddings,
        experts, experts_per_token, moe_ffn, kv_window, max_context.

    Notes
    -----
    Layers and width follow `SHAPES`; the MLP takes what remains, so that the count is met. With routed experts the
    shape is that of the dense model of the geometric mean of all and active parameters.
    """
    experts = float(given.get("experts", 0.0))
    top_k = float(given.get("experts_per_token", min(experts, 8.0 if experts >= 32 else 2.0)))
    if experts and top_k > experts:
        raise InvalidScenario("num_experts_per_tok", top_k, f"the model has {experts:g} experts")
    size = params or _size_of(given["layers"], given["hidden"])
    guide = size * (top_k / experts) ** 0.5 if experts else size
    layers = float(given.get("layers", max(1, round(_between(guide, 1)))))
    heads_width = float(given.get("head_dim", 64.0 if guide < 2 * BILLION else 128.0))
    hidden = float(given.get("hidden", _rounded(_between(guide, 2), heads_width)))
    heads = float(given.get("heads", max(1.0, round(hidden / heads_width))))
    head_dim = float(given.get("head_dim", max(1.0, hidden // heads)))
    kv_heads = float(given.get("kv_heads", _divisor(heads, min(8.0, heads / 3))))
    if heads % kv_heads:
        raise InvalidScenario("num_key_value_heads", kv_heads, f"it must divide the {heads:g} attention heads")
    vocab = float(given.get("vocab", 32_768.0 if size < 0.2 * BILLION else 128_256.0))
    tied = bool(given.get("tied_embeddings", size < TIED_BELOW))
    window = given.get("kv_window")
    model = Model(
        name=f"{size / BILLION:.3g}B typical",
        kind="moe" if experts else "dense",
        source="typical proportions of published decoders" if params else "the dimensions given",
        derived=True,
        params=0.0,
        params_active=0.0,
        params_embedding=vocab * hidden,
        params_lm_head=0.0 if tied else vocab * hidden,
        layers=layers,
        hidden=hidden,
        ffn=1.0,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        tied_embeddings=tied,
        max_context=float(given.get("max_context", TYPICAL_CONTEXT)),
        attention="mha" if kv_heads == heads else "mqa" if kv_heads == 1 else "gqa",
        kv_window=None if window is None else float(window),
        layers_full=0.0 if window else layers,
        layers_windowed=layers if window else 0.0,
        kv_elements_full=0.0 if window else 2 * kv_heads * head_dim * layers,
        kv_elements_windowed=2 * kv_heads * head_dim * layers if window else 0.0,
        experts=experts,
        experts_per_token=top_k,
        moe_layers=layers if experts else 0.0,
    )
    width = given.get("moe_ffn", given.get("ffn")) if experts else given.get("ffn")
    if width is None:
        # What is left of the count, over the three matrices of each MLP; 3.5 times the width where nothing was asked.
        left = (params or 0.0) - _counted(replace(model, ffn=0.0, moe_ffn=0.0))
        width = left / (3 * hidden * layers * max(experts, 1.0)) if params else 3.5 * hidden / max(top_k, 1.0)
        width = max(1.0, round(width / 64) * 64.0) if width > 64 else max(1.0, float(round(width)))
    wide = float(width)
    model = replace(model, ffn=float(given.get("ffn", wide)), moe_ffn=wide if experts else 0.0)
    total = params or _counted(model)
    routed = min(3 * hidden * wide * layers * experts, total)
    active = total - routed + routed * top_k / experts if experts else total
    label = f"{total / BILLION:.3g}B"
    return replace(
        model, name=label, params=float(total), params_active=float(active), params_routed_experts=float(routed)
    )  # fmt: skip


def _changed(found: Model | MediaModel, given: dict[str, Any]) -> Model:
    """A model with some dimensions replaced; its count changes by what those dimensions are worth."""
    if isinstance(found, MediaModel):
        key = next(key for key, name in KEYS.items() if name in given)
        raise InvalidScenario(key, given[next(iter(given))], f"{found.name} is not a language model")
    values: dict[str, Any] = {
        name: value if name == "tied_embeddings" else float(value) for name, value in given.items()
    }
    structural = set(values) - {"kv_window", "max_context", "vocab", "tied_embeddings"}
    if structural and (found.kind in ("hybrid", "ssm", "encoder-decoder") or found.attention == "mla"):
        key = next(key for key, name in KEYS.items() if name in structural)
        raise NotModelled(
            f"{key} on top of {found.name}", "its layers are not all alike: give its config.json, changed"
        )
    if "experts" in values and not found.is_moe:
        raise InvalidScenario(
            "num_local_experts", values["experts"], f"{found.name} has no experts: give params_b with it"
        )
    if "ffn" in values and found.ffn == found.moe_ffn and found.moe_layers == found.layers:
        values.setdefault("moe_ffn", values["ffn"])  # Mixtral's experts are as wide as its `intermediate_size`
    window = values.pop("kv_window", None)
    changed = replace(found, **values, derived=True, source=f"{found.source}; with {_listed(given)} changed")
    if changed.heads % changed.kv_heads:
        raise InvalidScenario(
            "num_key_value_heads", int(changed.kv_heads), f"it must divide the {changed.heads:g} attention heads"
        )
    if changed.experts_per_token > changed.experts:
        raise InvalidScenario(
            "num_experts_per_tok", changed.experts_per_token, f"the model has {changed.experts:g} experts"
        )
    scale = float(changed.layers / found.layers)
    caching_before, local_before = float(found.layers_full + found.layers_windowed), float(found.layers_windowed)
    share = local_before / max(caching_before, 1.0)
    caching = round(caching_before * scale)
    local = float(caching if window else round(caching * share))
    moe_layers = float(round(float(found.moe_layers) * scale))
    per_layer = 2 * changed.kv_heads * changed.head_dim
    embedding = changed.vocab * changed.hidden if structural or "vocab" in values else found.params_embedding
    head = 0.0 if changed.tied_embeddings else changed.vocab * changed.hidden
    changed = replace(
        changed,
        moe_layers=moe_layers,
        params_embedding=embedding,
        params_lm_head=head,
        kv_window=float(window) if window else found.kv_window,
        layers_full=caching - local,
        layers_windowed=local,
        kv_elements_full=per_layer * (caching - local) if found.attention != "mla" else found.kv_elements_full,
        kv_elements_windowed=per_layer * local if found.attention != "mla" else found.kv_elements_windowed,
        attention=found.attention,
        native_bytes=None if set(values) - {"max_context"} else found.native_bytes,
    )
    if not set(values) - {"max_context", "experts_per_token"}:
        total, routed = found.params, found.params_routed_experts
    else:
        total = found.params + _counted(changed) - _counted(found)
        routed = _routed(changed) if changed.is_moe else 0.0
    active = total - routed + (routed * changed.experts_per_token / changed.experts if changed.is_moe else 0.0)
    return replace(changed, params=total, params_active=active, params_routed_experts=routed)


def _listed(given: dict[str, Any]) -> str:
    return ", ".join(key for key, name in KEYS.items() if name in given)


def _routed(model: Model) -> float:
    return float((3 if model.gated_mlp else 2) * model.hidden * model.moe_ffn * model.moe_layers * model.experts)


def _counted(model: Model) -> float:
    """Parameters of a plain decoder of these dimensions: what a change of one of them adds or takes."""
    matrices = 3 if model.gated_mlp else 2
    attention = 2 * model.hidden * model.head_dim * (model.heads + model.kv_heads)
    dense = matrices * model.hidden * model.ffn * (model.layers - model.moe_layers)
    router = model.hidden * model.experts * model.moe_layers
    shared = matrices * model.hidden * model.moe_ffn * model.shared_experts * model.moe_layers
    blocks = model.layers * (attention + 2 * model.hidden) + dense + router + shared + _routed(model)
    head = 0.0 if model.tied_embeddings else model.vocab * model.hidden
    return float(blocks + model.hidden + model.vocab * model.hidden + head)


def _between(params: float, column: int) -> float:
    """Layers (1) or hidden size (2) of a dense decoder of so many parameters."""
    sizes, values = np.log(SHAPES[:, 0] * BILLION), np.log(SHAPES[:, column])
    place = np.log(params)
    if sizes[0] <= place <= sizes[-1]:
        return float(np.exp(np.interp(place, sizes, values)))
    # Beyond the known sizes both grow as they did over all of them.
    slope = (values[-1] - values[0]) / (sizes[-1] - sizes[0])
    edge = 0 if place < sizes[0] else -1
    return float(np.exp(values[edge] + slope * (place - sizes[edge])))


def _size_of(layers: float, hidden: float) -> float:
    """Rough count from depth and width alone: twelve matrices of the width a layer."""
    return 12.0 * layers * hidden**2


def _rounded(width: float, head_dim: float) -> float:
    """A width of whole heads; of eight heads at a time where the model is large enough to be split over GPUs."""
    step = head_dim * 8 if width >= 12 * head_dim else head_dim
    return max(1, round(width / step)) * step


def _divisor(heads: float, wanted: float) -> float:
    """The largest divisor of the heads that is at most the wanted number of KV heads."""
    return next(float(count) for count in range(max(1, int(min(wanted, heads))), 0, -1) if heads % count == 0)
