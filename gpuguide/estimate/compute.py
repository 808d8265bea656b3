"""
Floating-point work of training and how fast a GPU really multiplies matrices.

One multiplication and one addition are 2 FLOP. A weight matrix works once forward and twice backward (towards the
input and towards the weight); a frozen one once backward. Causal attention is counted once: the masked half is not
work. Rates are what large multiplications were measured to reach, not data sheets, whose figures no kernel sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuguide.estimate.memory import adapter_params
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.units import Number

TRAINED, FROZEN = 3.0, 2.0
"""Passes of a weight matrix: forward, towards the input and, where it is trained, towards the weight. [-]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenFlops:
    """Work for one token, forward and backward, without recompute. [FLOP/token]"""

    block: Number  # weight matrices of the blocks
    head: Number  # output head
    adapters: Number  # LoRA matrices
    attention: Number  # scores and values, causal
    block_forward: Number  # the forward part alone, which recompute repeats
    attention_forward: Number

    @property
    def total(self) -> Number:
        """All of it: what model FLOPs utilisation counts. [FLOP/token]"""
        return self.block + self.head + self.adapters + self.attention


def training_flops_per_token(*, model: Model, job: TrainingJob) -> TokenFlops:
    """
    Work of training on one token.

    Parameters
    ----------
    model : Model
        Architecture; of routed experts only those a token uses work.
    job : TrainingJob
        Method, sequence length and adapters. LoRA computes no gradient of base weights.

    Returns
    -------
    TokenFlops
        [FLOP/token]

    Notes
    -----
    6 x parameters + 6 x layers x hidden x sequence for full training of a dense decoder, 4 x parameters under LoRA;
    the input embedding is looked up, not multiplied. Llama 3 70B at 8192 tokens: 449.2 GFLOP/token, LoRA at 4096 tokens
    278 GFLOP/token without attention. Source: `docs/formulas.md`, "Training FLOPs"; Megatron Bridge.
    """
    adapters = job.method in ("lora", "qlora")
    passes = FROZEN if adapters else TRAINED
    block = 2.0 * block_params(model)
    head = 2.0 * model.vocab * model.hidden
    attention = attention_flops_per_token(model=model, sequence_length=job.sequence_length)
    return TokenFlops(
        block=passes * block,
        head=passes * head,
        adapters=TRAINED * 2.0 * adapters_of(model, job, used_per_token=True),
        attention=TRAINED * attention,
        block_forward=block,
        attention_forward=attention,
    )


def block_params(model: Model) -> Number:
    """Parameters inside blocks that work on one token: routed experts scaled by the share a token uses. [-]"""
    head = 0.0 if model.tied_embeddings else model.params_lm_head
    return model.params_active - model.params_embedding - head - model.params_vision


def attention_flops_per_token(*, model: Model, sequence_length: Number) -> Number:
    """
    Forward work of attention scores and values for one token, mean over a causal sequence. [FLOP/token]

    Notes
    -----
    A token sees half of the sequence on average, or the window less its ramp. Recurrent layers read and update their
    state: 4 FLOP an element. Source: `docs/formulas.md`, "Training FLOPs".
    """
    latent = model.attention == "mla"
    key_dim = model.qk_nope_head_dim + model.qk_rope_head_dim if latent else model.head_dim
    value_dim = model.v_head_dim if latent else model.head_dim
    per_token_seen = 2.0 * model.heads * (key_dim + value_dim)
    windowed = model.layers_windowed
    full = model.layers_full if np.any(model.layers_full + windowed + model.layers_recurrent) else model.layers
    window = np.minimum(sequence_length, model.kv_window if model.kv_window is not None else np.inf)
    seen_windowed = window * (1.0 - window / (2.0 * np.asarray(sequence_length)))
    seen = full * np.asarray(sequence_length) / 2.0 + windowed * seen_windowed
    return per_token_seen * seen + 4.0 * model.recurrent_elements


def adapters_of(model: Model, job: TrainingJob, *, used_per_token: bool = False) -> Number:
    """Parameters of a job's adapters, 0 where it has none. [-]"""
    if job.method not in ("lora", "qlora"):
        return 0.0
    return adapter_params(
        model=model, lora_rank=job.lora_rank, lora_targets=job.lora_targets, used_per_token=used_per_token
    )


REACHED_SHARE = {
    "Volta": 0.76, "Turing": 0.70, "Ampere": 0.86, "Ada": 0.75, "Hopper": 0.80, "Blackwell": 0.78,
    "Blackwell Ultra": 0.78, "CDNA2": 0.79, "CDNA3": 0.56, "CDNA4": 0.62, "RDNA3": 0.92,
    "Gaudi": 0.74, "TPU": 0.85, "Xe2": 0.60,
}  # fmt: skip
"""
Share of the dense 16-bit peak that large multiplications reach where the card itself was not measured: that of measured
cards of the same architecture. Source: stas00/ml-engineering compute/accelerator (MAMF), mag-/gpu_benchmark. [-]
"""
OTHER_SHARE = 0.75
FP32_SHARE = 0.90
"""Plain CUDA-core multiplications run close to their peak: they are not limited by power or memory. [-]"""


def matmul_flops_per_s(*, nodes: Nodes, precision: str, fp8_share: Number = 1.0, fp4_share: Number = 1.0) -> Floats:
    """
    Rate that large matrix multiplications reach on each machine shape's GPU.

    Parameters
    ----------
    nodes : Nodes
        Machine shapes.
    precision : str
        fp32, tf32, fp16, bf16, fp8 or fp4.
    fp8_share, fp4_share : number
        Part of the step from 16 bit to 8 or 4 bit that is realised, of the ratio of the two peaks. [-]

    Returns
    -------
    array, shape (node,) or with the shares' axes in front
        [FLOP/s]; a 16-bit format the GPU lacks runs in the other one, a narrower one it lacks at the next wider rate.

    Notes
    -----
    Source: `docs/formulas.md`, "Matrix multiplication rates".
    """
    peak = peak_16bit_flops(nodes)
    reached = nodes.measured_bf16_flops
    unmeasured = np.isnan(reached)
    if np.any(unmeasured):
        names = nodes.architecture[unmeasured].tolist()
        share = {name: REACHED_SHARE.get(name, OTHER_SHARE) for name in set(names)}
        reached = reached.copy()
        reached[unmeasured] = peak[unmeasured] * np.fromiter(map(share.__getitem__, names), np.float64, len(names))
    if precision in ("fp32", "tf32"):
        plain = nodes.flops["fp32"] * FP32_SHARE
        return plain if precision == "fp32" else np.fmax(nodes.flops["tf32"] / peak * reached, plain)
    if precision in ("fp8", "fp4"):
        gain8 = np.where(np.isnan(nodes.flops["fp8"]), 1.0, nodes.flops["fp8"] / peak)
        eight = reached * (1.0 + (gain8 - 1.0) * fp8_share)
        if precision == "fp8":
            return eight
        gain4 = np.where(np.isnan(nodes.flops["fp4"]), gain8, nodes.flops["fp4"] / peak)
        return np.where(gain4 > gain8, reached * (1.0 + (gain4 - 1.0) * fp4_share), eight)
    return reached


def peak_16bit_flops(nodes: Nodes) -> Floats:
    """Dense peak in bf16, or in fp16 where the GPU has no bf16; the denominator of MFU. [FLOP/s]"""
    return np.where(np.isnan(nodes.flops["bf16"]), nodes.flops["fp16"], nodes.flops["bf16"])


def memory_bytes_per_s(nodes: Nodes, share: float) -> Floats:
    """Bandwidth that streaming kernels reach: measured where known, else a share of the vendor's figure. [bytes/s]"""
    usual = nodes.memory_bandwidth_bytes_per_s * share
    return np.where(np.isnan(nodes.measured_bandwidth_bytes_per_s), usual, nodes.measured_bandwidth_bytes_per_s)
