"""Small memory formulas that training and serving share: the KV cache, stored weights, adapter parameters."""

from __future__ import annotations

from gpuguide.spec.model import Model
from gpuguide.spec.precision import WeightFormat
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


def stored_weight_bytes(*, model: Model, weight_format: WeightFormat, unquantised_bytes: Number = 2.0) -> Number:
    """
    Memory of a model's weights in a stored format, before they are split over GPUs.

    Parameters
    ----------
    model : Model
        Architecture and parameter counts.
    weight_format : WeightFormat
        Average bits of a quantised weight, and what the format leaves in 16 bit.
    unquantised_bytes : number
        Width of what is not quantised: 2, or 4 where a framework raises it to FP32. [bytes]

    Returns
    -------
    number
        [bytes]

    Notes
    -----
    Embedding, head and vision tower stay unquantised where the format says so; under `experts_only` all but the
    routed experts do. Source: `docs/formulas.md`, "Stored weights".
    """
    if weight_format.experts_only:
        quantised: Number = model.params_routed_experts
    elif weight_format.keeps_embeddings_16bit:
        quantised = model.params_linear
    else:
        quantised = model.params
    return quantised * weight_format.bytes_per_weight + (model.params - quantised) * unquantised_bytes
