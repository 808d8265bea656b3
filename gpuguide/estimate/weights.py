"""Weights of a served model: by part in any stored format, and on the fullest GPU under every kind of parallelism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.spec.precision import WeightFormat
from gpuguide.units import Number

UNQUANTISED_BYTES = 2.0
"""What a format leaves alone is served in 16 bit. [bytes]"""
FEW_DENSE_LAYERS = 4
"""Up to here the layers without experts are taken to lead (DeepSeek 1 or 3, GLM 1); more are interleaved. [layers]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredWeights:
    """A checkpoint by the parts that are split differently; sums to `total`. [bytes]"""

    embedding: Number  # input embedding, which a tied head shares
    head: Number  # output head of its own; 0 when tied
    blocks: Number  # everything inside the layers but routed experts
    experts: Number  # routed experts
    vision: Number

    @property
    def total(self) -> Number:
        """Sum of the parts. [bytes]"""
        return self.embedding + self.head + self.blocks + self.experts + self.vision


def stored_weights(*, model: Model, weight_format: WeightFormat, with_mtp: bool = False) -> StoredWeights:
    """
    Memory of a model's weights in a stored format, before they are split over GPUs.

    Parameters
    ----------
    model : Model
        Parameter counts.
    weight_format : WeightFormat
        Bits of linear weights, embedding and head; what stays in 16 bit.
    with_mtp : bool
        Count the multi-token-prediction layers, which engines load only to draft tokens.

    Notes
    -----
    Linear weights inside blocks take the format's average bits. Embedding and head have their own where the format says
    so; formats that quantise routed experts alone leave the rest in 16 bit (GGUF: at the head's bits). The vision tower
    stays in 16 bit. Kernels of packed experts pad their rows: gpt-oss loads 6.7 % more than it stores.
    Source: `docs/formulas.md`, "Stored weights".
    """
    linear = weight_format.bytes_per_weight
    plain = UNQUANTISED_BYTES if weight_format.keeps_embeddings_16bit else linear
    embedding = plain if weight_format.embedding_bits is None else weight_format.embedding_bits / 8
    head = plain if weight_format.head_bits is None else weight_format.head_bits / 8
    if model.tied_embeddings:
        # One tensor serves as both: it is kept as well as the better of the two has to be.
        embedding, head = max(embedding, head), 0.0
    shared = linear
    if weight_format.experts_only:
        shared = UNQUANTISED_BYTES if weight_format.head_bits is None else weight_format.head_bits / 8
    dense = model.params_linear - model.params_routed_experts
    blocks = dense * shared
    if weight_format.recurrent_bits is not None:
        blocks = blocks + recurrent_params(model=model) * (weight_format.recurrent_bits / 8 - shared)
    if with_mtp:
        blocks = blocks + model.params_mtp * shared
    multiple = weight_format.expert_multiple
    padded = np.ceil(np.maximum(model.hidden, 1.0) / multiple) * multiple / np.maximum(model.hidden, 1.0)
    vision = model.params_vision * max(UNQUANTISED_BYTES, linear)
    return StoredWeights(
        embedding=model.params_embedding * embedding,
        head=model.params_lm_head * head,
        blocks=blocks,
        experts=model.params_routed_experts * linear * padded,
        vision=vision,
    )


def recurrent_params(*, model: Model) -> Number:
    """
    Parameters of the recurrent mixers (Mamba, gated delta) of a hybrid model. [-]

    Notes
    -----
    What is left of the blocks without MLP and experts, shared evenly by the layers that mix tokens.
    """
    matrices = 3.0 if model.gated_mlp else 2.0
    mlp_layers = model.layers - model.moe_layers
    shared = model.moe_layers * model.shared_experts * model.moe_ffn
    mlp = matrices * model.hidden * (mlp_layers * model.ffn + shared)
    mixers = np.maximum(model.params_linear - model.params_routed_experts - mlp, 0.0)
    mixing = np.maximum(model.layers_full + model.layers_windowed + model.layers_recurrent, 1.0)
    share: Number = mixers * model.layers_recurrent / mixing
    return share


def replicated_bytes(*, model: Model, weight_format: WeightFormat, tensor_parallel: Number) -> Number:
    """
    What every tensor rank holds beyond its share of the blocks, all layers. [bytes]

    Parameters
    ----------
    tensor_parallel : number or array
        Ranks that split a layer. [-]

    Notes
    -----
    Each rank keeps at least one KV head; the down-projections of latent attention and the routers are not split.
    Engines also keep a 16-bit copy of the latent up-projections, absorbed into query and output, which is split.
    Source: `docs/formulas.md`, "Weights per rank"; DeepSeek-R1 in 4 bits on 16 ranks, vLLM pull request 14447.
    """
    width = UNQUANTISED_BYTES if weight_format.experts_only else weight_format.bytes_per_weight
    rest = 1.0 - 1.0 / tensor_parallel
    router = model.hidden * model.experts * model.moe_layers * UNQUANTISED_BYTES * rest
    attending = model.layers_full + model.layers_windowed
    if model.attention == "mla":
        down = (
            model.hidden * (model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim) * attending * width * rest
        )
        up = model.kv_lora_rank * model.heads * (model.qk_nope_head_dim + model.v_head_dim) * attending
        absorbed = 0.0 if weight_format.family == "gguf" else up * UNQUANTISED_BYTES / tensor_parallel
        return router + down + absorbed
    heads = np.maximum(model.kv_heads / tensor_parallel, 1.0) - model.kv_heads / tensor_parallel
    has_cache = np.asarray(model.kv_heads) > 0
    return router + np.where(has_cache, 2.0 * model.hidden * model.head_dim * heads * attending * width, 0.0)


def weight_bytes_per_gpu(
    *,
    model: Model,
    weight_format: WeightFormat,
    plan: Plan,
    text_only: bool = False,
    with_mtp: bool = False,
    attention_data_parallel: bool = False,
    stage: str = "fullest",
) -> Number:
    """
    Weights on one GPU.

    Parameters
    ----------
    plan : Plan
        Degrees, scalars or arrays.
    text_only : bool
        The vision tower is not loaded.
    attention_data_parallel : bool
        Tensor ranks split the experts alone; all else is on each of them.
    stage : str
        'fullest' pipeline stage, or the 'first', which a log shows.

    Returns
    -------
    number or array, the shape of the plan's fields
        [bytes]

    Notes
    -----
    Embedding and head are split by vocabulary. Routed experts are split over tensor and expert ranks alike, whole
    experts where expert parallel is on. Stages have whole layers, the odd ones in the middle; the first also has the
    embedding and the vision tower, the last the head (a tied one is there twice).
    Source: `docs/formulas.md`, "Weights per rank"; vLLM `get_pp_indices`.
    """
    stored = stored_weights(model=model, weight_format=weight_format, with_mtp=with_mtp)
    tensor = 1.0 if attention_data_parallel else plan.tensor_parallel
    ranks = np.maximum(plan.tensor_parallel, plan.expert_parallel)
    whole = np.ceil(model.experts / ranks) / np.maximum(model.experts, 1.0)
    experts = stored.experts * np.where(plan.expert_parallel > 1, whole, 1.0 / ranks)
    extra = replicated_bytes(
        model=model, weight_format=weight_format, tensor_parallel=np.asarray(tensor, dtype=np.float64)
    )
    layer = (stored.blocks / tensor + extra) / model.layers
    moe_layer = experts / np.maximum(model.moe_layers, 1.0)
    embedding, head = stored.embedding / tensor, stored.head / tensor
    vision = 0.0 if text_only else stored.vision / tensor
    single = embedding + head + vision + layer * model.layers + experts

    stages = plan.pipeline_parallel
    few = np.floor(model.layers / stages)
    odd = model.layers - few * stages
    first_layers = few + (odd == stages - 1)
    leading_dense = model.layers - model.moe_layers
    is_leading = leading_dense <= FEW_DENSE_LAYERS
    share = model.moe_layers / model.layers
    moe_first = np.where(is_leading, np.maximum(first_layers - leading_dense, 0.0), first_layers * share)
    first = embedding + vision + layer * first_layers + moe_layer * moe_first
    if stage == "first":
        return np.where(stages > 1, first, single)
    middle_layers = few + (odd > 0)
    moe_middle = np.where(is_leading, np.minimum(middle_layers, model.moe_layers), middle_layers * share)
    middle = np.where(stages > 2, layer * middle_layers + moe_layer * moe_middle, 0.0)
    moe_last = np.where(is_leading, np.minimum(few, model.moe_layers), few * share)
    last_head = embedding if model.tied_embeddings else head
    last = last_head + layer * few + moe_layer * moe_last
    return np.where(stages > 1, np.maximum(np.maximum(first, middle), last), single)
