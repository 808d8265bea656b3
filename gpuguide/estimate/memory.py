"""Small memory formulas that training and serving share: the KV cache, and what LoRA adapters count."""

from __future__ import annotations

from gpuguide.spec.model import Model
from gpuguide.units import Number


def kv_cache_bytes(
    *, cached_tokens: Number, layers: Number, kv_heads: Number, head_dim: Number, bytes_per_element: Number
) -> Number:
    """
    Memory that cached keys and values take, before it is split over GPUs.

    Parameters
    ----------
    cached_tokens : number or array, shape (plans, 1)
        Tokens held at once, summed over the running requests. [tokens]
    layers, kv_heads, head_dim : number
        Architecture of the model; kv_heads < attention heads under grouped-query attention. [-]
    bytes_per_element : number
        Width of one cached value: 2 for BF16, 1 for FP8. [bytes]

    Returns
    -------
    number or array, the inputs' common shape
        [bytes]

    Notes
    -----
    Two tensors, K and V, per layer. Source: `docs/formulas.md`, "KV cache".

    Examples
    --------
    >>> from gpuguide.units import GIB
    >>> kv_cache_bytes(cached_tokens=8192, layers=32, kv_heads=8, head_dim=128, bytes_per_element=2) / GIB
    1.0
    """
    return 2.0 * layers * kv_heads * head_dim * bytes_per_element * cached_tokens


LORA_TARGETS = ("q", "k", "v", "o", "gate", "up", "down")
"""Linear layers of a block that LoRA may adapt; a model without gated MLP has no `gate`."""


def linear_shapes(*, model: Model, ffn: Number) -> dict[str, tuple[Number, Number]]:
    """
    Inputs and outputs of every linear layer of a block, by its name in LORA_TARGETS.

    Parameters
    ----------
    model : Model
        Architecture.
    ffn : number
        Width of the MLP, or of one expert. [-]

    Returns
    -------
    dict
        (inputs, outputs) by name. [-]

    Notes
    -----
    Under latent attention `q` and `k` stand for the two projections out of the latents (queries; keys and values
    together), where frameworks put adapters. Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1.
    """
    attention = {
        "q": (model.hidden, model.heads * model.head_dim),
        "k": (model.hidden, model.kv_heads * model.head_dim),
        "v": (model.hidden, model.kv_heads * model.head_dim),
        "o": (model.heads * model.head_dim, model.hidden),
    }
    if model.attention == "mla":
        query_dim, value_dim = model.qk_nope_head_dim + model.qk_rope_head_dim, model.v_head_dim
        attention = {
            "q": (model.q_lora_rank or model.hidden, model.heads * query_dim),
            "k": (model.kv_lora_rank, model.heads * (model.qk_nope_head_dim + value_dim)),
            "v": (model.hidden, model.kv_lora_rank + model.qk_rope_head_dim),
            "o": (model.heads * value_dim, model.hidden),
        }
    mlp = {"up": (model.hidden, ffn), "down": (ffn, model.hidden)}
    if model.gated_mlp:
        mlp["gate"] = (model.hidden, ffn)
    return attention | mlp


def is_adapted(target: str, lora_targets: tuple[str, ...]) -> bool:
    """Whether a linear layer carries an adapter."""
    return "all" in lora_targets or target in lora_targets


def adapter_params(
    *, model: Model, lora_rank: Number, lora_targets: tuple[str, ...], used_per_token: bool = False
) -> Number:
    """
    Trainable parameters of LoRA adapters.

    Parameters
    ----------
    model : Model
        Architecture.
    lora_rank : number
        Rank of the two factors. [-]
    lora_targets : tuple of str
        Adapted linear layers, of LORA_TARGETS or 'all'.
    used_per_token : bool
        Count only the adapters of the experts that a token passes, for the work it takes.

    Returns
    -------
    number
        [-]

    Notes
    -----
    Rank times inputs plus outputs, per adapted layer; every routed expert has adapters of its own.
    Source: Hu et al. 2021 (arXiv 2106.09685), section 4.
    """
    dense_layers = model.layers - model.moe_layers
    shared_ffn = model.shared_experts * model.moe_ffn
    experts = model.experts_per_token if used_per_token else model.experts
    total: Number = 0.0
    for target in LORA_TARGETS:
        shapes = linear_shapes(model=model, ffn=model.ffn)
        if target not in shapes or not is_adapted(target, lora_targets):
            continue
        inputs, outputs = shapes[target]
        if target in ("q", "k", "v", "o"):
            total = total + lora_rank * (inputs + outputs) * (model.layers - model.layers_recurrent)
            continue
        total = total + lora_rank * (inputs + outputs) * dense_layers
        expert = lora_rank * (model.hidden + model.moe_ffn) * experts
        shared = lora_rank * (model.hidden + shared_ffn) * (1.0 if model.shared_experts else 0.0)
        total = total + (expert + shared) * model.moe_layers
    return total
