"""Bytes per element: weight formats, training recipes and optimizers, as rows of the tables of the same names."""

from __future__ import annotations

from dataclasses import dataclass

COMPUTE_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
"""Arithmetic a GPU's matrix units may support, as named in `gpus.csv`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightFormat:
    """
    How the linear weights of a model are stored, and what stays in 16 bit (`data/weight_formats.csv`).

    `bits_per_weight` is the average over the quantised linear weights, block scales and zero points included.
    """

    name: str
    bits_per_weight: float
    compute_precision: str  # precision of the matrix multiplication: weight-only formats compute in 16 bit
    keeps_embeddings_16bit: bool  # input embedding and head are left in 16 bit
    experts_only: bool = False  # only routed expert weights are quantised (MXFP4 of gpt-oss)
    family: str = "float"  # float, weight-only, gguf, exl2
    embedding_bits: float | None = None  # of the input embedding where it is quantised too; None = as the flag says
    head_bits: float | None = None  # of the output head, and of an embedding tied to it
    recurrent_bits: float | None = None  # of recurrent mixers where they are kept wider; None = as other weights
    expert_multiple: float = 1.0  # kernels pad rows of expert weights to a multiple of this [weights]
    aliases: str = ""  # other spellings, separated by |

    @property
    def bytes_per_weight(self) -> float:
        """Average width of a quantised weight. [bytes]"""
        return self.bits_per_weight / 8


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionRecipe:
    """What a training run keeps in which precision (`data/recipes.csv`); widths in bytes per parameter."""

    name: str
    compute_precision: str  # of the matrix multiplications
    weight_bytes: float  # the copy that forward and backward read
    master_bytes: float  # additional full-precision copy that the optimizer updates
    gradient_bytes: float
    state_bytes: float  # width of one optimizer state value
    activation_bytes: float  # width of one stored activation value
    autocast: bool = False  # weights are fp32 and cast on the fly (torch.autocast)


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """States per trainable parameter (`data/optimizers.csv`)."""

    name: str
    states: float  # values of the recipe's state width per parameter: 2 for AdamW, 1 for momentum
    state_bytes: float | None = None  # fixed width per value (1 for 8-bit states); None = the recipe's width
    factored: bool = False  # second moment kept as row and column means (Adafactor)
    low_rank: int | None = None  # rank of projected gradients (GaLore, APOLLO)
    paged: bool = False  # states may be evicted to host memory
    fused_backward: bool = False  # step runs inside backward: one layer's gradients at a time
    embedding_states: float | None = None  # states of embedding and head where they differ (Muon); None = the same
