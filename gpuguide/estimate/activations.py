"""
What the forward pass leaves in memory for the backward pass, and what the backward pass adds while it runs.

Counted tensor by tensor from what autograd keeps of a decoder layer; all figures are bytes per token of one GPU, since
every kept tensor but the attention scores grows with tokens alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.estimate.memory import is_adapted
from gpuguide.estimate.states import ADAPTED
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.units import Number

FP32 = 4.0
RECURRENT_VALUES = 12.0
"""Kept values of a recurrent mixer per hidden unit: projections in, convolution, gate and output, all two wide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerBytes:
    """One decoder layer, before tensor parallelism. [bytes/token]"""

    norms: Number
    attention: Number  # queries, keys, values, output
    scores: Number  # per token: one row of attention scores a head, or of the padding mask
    mlp: Number  # averaged over dense and expert layers
    mlp_largest: Number  # of the layer that keeps most
    adapters: Number  # inputs raised to the width of adapters, and their inner values
    entry: Number  # the layer's input: all that full recompute keeps
    scores_backward: Number  # beyond `scores` while attention is differentiated
    mlp_backward: Number  # gradients alive while the MLP is differentiated
    norm_backward: Number
    norm_final: Number
    norm_frozen: Number  # of the first norm, not kept where nothing below it trains

    @property
    def linear(self) -> Number:
        """All that grows with tokens alone. [bytes/token]"""
        return self.norms + self.attention + self.mlp + self.adapters


def layer_bytes(*, model: Model, job: TrainingJob, expert_imbalance: Number) -> LayerBytes:
    """
    Bytes that one layer keeps for the backward pass, per token.

    Parameters
    ----------
    model, job : Model, TrainingJob
        Architecture; method, precision and kernels.
    expert_imbalance : number
        Tokens of the fullest expert rank over the mean. [-]

    Returns
    -------
    LayerBytes
        [bytes/token]

    Notes
    -----
    Eager RMSNorm keeps its input in FP32, the normalised value where its weight trains, and its output where a trained
    linear layer reads it; a gated MLP keeps gate, up, activated gate and their product, a fused one drops the third.
    Under autocast the residual stream is FP32 and every linear layer casts its input for itself. Sources: Korthikanti
    et al. 2022 (arXiv 2205.05198), section 4; traces of Hugging Face transformers under fake tensors;
    `docs/formulas.md`, "Activations".
    """
    width = FP32 if job.upcast_unquantised else job.recipe.activation_bytes
    autocast = job.recipe.autocast
    stream = FP32 if autocast else width
    reads = _reads(job)
    attention_reads, mlp_reads = _inputs(model, reads, autocast)
    output = width * model.hidden
    if job.fused_norms or not model.gated_mlp:
        norm = stream * model.hidden
    else:
        norm = FP32 * model.hidden + (0.0 if job.method in ADAPTED else stream * model.hidden)
    attention, score_heads = _attention_bytes(model, job, width)
    dense = _mlp_bytes(model, job, model.ffn, width, reads["down"])
    expert = _expert_bytes(model, job, width, reads["down"], expert_imbalance)
    moe_share = model.moe_layers / model.layers
    scores, scores_backward = _score_bytes(job, width, score_heads)
    adapters = _adapter_bytes(model, job, width) + _quantised_bytes(model, job, width)
    largest_ffn = np.maximum(
        model.ffn * (moe_share < 1.0),
        model.moe_ffn * (model.experts_per_token * expert_imbalance + model.shared_experts),
    )
    # In an eager norm's backward pass five FP32 tensors and the incoming gradient live together.
    norm_backward = (width + stream) * model.hidden if job.fused_norms else (5 * FP32 + width) * model.hidden
    return LayerBytes(
        norms=2 * norm + (attention_reads + mlp_reads) * output,
        attention=attention,
        scores=scores,
        mlp=(1 - moe_share) * dense + moe_share * expert,
        mlp_largest=np.maximum(dense * (moe_share < 1.0), expert * (moe_share > 0.0)),
        adapters=adapters,
        entry=stream * model.hidden,
        scores_backward=scores_backward,
        mlp_backward=width * largest_ffn * _mlp_gradients(model, job) + stream * model.hidden,
        norm_backward=norm_backward,
        norm_final=norm if job.method in ADAPTED else norm + output,
        norm_frozen=norm if job.method in ADAPTED else 0.0,
    )


def _reads(job: TrainingJob) -> dict[str, bool]:
    """Which linear layers need their input again: those whose weights or adapters train."""
    names = ("q", "k", "v", "o", "gate", "up", "down")
    return {name: job.method not in ADAPTED or is_adapted(name, job.lora_targets) for name in names}


def _inputs(model: Model, reads: dict[str, bool], autocast: bool) -> tuple[float, float]:
    """Copies of the two normalised inputs that are kept: one shared, or one cast for each reader under autocast."""
    attention = [reads["q"], reads["k"], reads["v"]]
    mlp = [reads["gate"], reads["up"]] if model.gated_mlp else [reads["up"]]
    if not autocast:
        return float(any(attention)), float(any(mlp))
    # Models with a plain MLP have one joint projection for queries, keys and values.
    return float(sum(attention)) if model.gated_mlp else float(any(attention)), float(sum(mlp))


def _attention_bytes(model: Model, job: TrainingJob, width: float) -> tuple[Number, Number]:
    """Queries, keys, values and output of a layer per token, averaged with recurrent layers; heads that keep scores."""
    heads = model.heads
    query, value = model.head_dim, model.head_dim
    kv_heads: Number = model.kv_heads
    latents: Number = 0.0
    if model.attention == "mla":
        query, value = model.qk_nope_head_dim + model.qk_rope_head_dim, model.v_head_dim
        kv_heads, latents = heads, 2 * (model.q_lora_rank + model.kv_lora_rank)
    if job.masked_attention or job.attention == "eager":
        kv_heads = heads
    values = heads * (query + value) + kv_heads * (query + value) + latents
    attention = width * values + FP32 * heads
    recurrent_share = model.layers_recurrent / model.layers
    recurrent = width * RECURRENT_VALUES * model.hidden
    return (1 - recurrent_share) * attention + recurrent_share * recurrent, (1 - recurrent_share) * heads


def _score_bytes(job: TrainingJob, width: float, heads: Number) -> tuple[Number, Number]:
    """Bytes per token and key of the attention scores that are kept, and that live besides in the backward pass."""
    if job.attention != "eager":
        mask = width if job.masked_attention else 0.0
        return mask, 0.0
    if job.fused_norms:
        # A fused softmax keeps its 16-bit result; with dropout also the mask and what was dropped.
        return (width + ((1 + width) if job.dropout else 0.0)) * heads, 2 * width * heads
    # Softmax runs in FP32 and is kept beside its copy in the compute width; its gradient needs two more.
    kept = FP32 + (width if width < FP32 else 0.0)
    live = 2 * FP32 + (FP32 if width >= FP32 else 0.0)
    return kept * heads, live * heads


def _mlp_bytes(model: Model, job: TrainingJob, ffn: Number, width: float, reads_down: bool) -> Number:
    tensors = 1.0
    if model.gated_mlp:
        tensors = 2.0 if job.fused_norms else 3.0
    if job.fused_adapters:
        return tensors * width * ffn
    return (tensors + float(reads_down)) * width * ffn


def _mlp_gradients(model: Model, job: TrainingJob) -> float:
    """MLP-wide gradients alive at once: of gate and up, or of one inner value; none where a kernel works in place."""
    if job.fused_adapters:
        return 0.0
    return 2.0 if model.gated_mlp else 1.0


def _expert_bytes(model: Model, job: TrainingJob, width: float, reads_down: bool, imbalance: Number) -> Number:
    """An expert layer: every token passes `experts_per_token` experts, gathered before and scattered after."""
    routed = model.experts_per_token * imbalance
    per_expert = _mlp_bytes(model, job, model.moe_ffn, width, reads_down) + 2 * width * model.hidden
    shared = _mlp_bytes(model, job, model.shared_experts * model.moe_ffn, width, reads_down)
    return routed * per_expert + shared + 2 * FP32 * model.experts


def _adapter_bytes(model: Model, job: TrainingJob, width: float) -> Number:
    """Inner values of adapters, and inputs copied where adapters are wider than activations."""
    if job.method not in ADAPTED:
        return 0.0
    adapted = {name for name, read in _reads(job).items() if read and (name != "gate" or model.gated_mlp)}
    inner = job.lora_rank * job.adapter_bytes * len(adapted)
    if job.adapter_bytes <= width or job.fused_adapters:
        return inner
    wide: Number = 0.0
    for name in adapted:
        inputs = {"o": model.heads * model.head_dim, "down": model.ffn}.get(name, model.hidden)
        wide = wide + inputs * width
    return inner + wide


def _quantised_bytes(model: Model, job: TrainingJob, width: float) -> Number:
    """Inputs that a kernel for quantised weights keeps though it has no weight gradient to make."""
    if job.quantization is None or not job.keeps_quantised_inputs:
        return 0.0
    kept = _reads(job)
    missing: Number = 0.0
    if not any(kept[name] for name in ("gate", "up")):
        missing = missing + model.hidden
    if not kept["down"]:
        missing = missing + model.ffn
    if not any(kept[name] for name in ("q", "k", "v")):
        missing = missing + model.hidden
    return width * missing


def logits_bytes(*, model: Model, job: TrainingJob) -> tuple[Number, Number, Number]:
    """
    Bytes per token of logits and loss at three moments of a step.

    Parameters
    ----------
    model, job : Model, TrainingJob
        Vocabulary and width; loss kernel and precision.

    Returns
    -------
    tuple of number
        At the start of the backward pass; at the end of the forward pass; after the loss, while the training loop still
        holds the logits it was given. [bytes/token]

    Notes
    -----
    Unfused: 16-bit logits, FP32 log-softmax, its gradient and that of the loss before it: 2 + 4 + 4 + 4 = 14 bytes a
    logit, or 16 where logits are FP32; both were measured. Softmax in place (Megatron): logits, FP32 softmax turned
    into its gradient, 16-bit gradient: 2 + 4 + 2. Fused or chunked: input gradient and one chunk of rows, about as
    large as a few hidden tensors. Source: `docs/formulas.md`, "Logits and loss".
    """
    width = FP32 if job.upcast_unquantised else job.recipe.activation_bytes
    if job.fused_loss:
        hidden = model.hidden * (width + FP32)
        return hidden + model.hidden * width, hidden, 0.0
    if job.inplace_loss:
        return model.vocab * (2 * width + FP32), model.vocab * (width + FP32), 0.0
    return model.vocab * (width + 3 * FP32), model.vocab * (width + 2 * FP32), model.vocab * width
