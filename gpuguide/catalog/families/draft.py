"""A model while its config is read: the list of its tensors, its cache, and the numbers a `Model` needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from gpuguide.errors import InvalidScenario
from gpuguide.spec.model import Model

MOST_PARAMS = 10**15  # beyond it float64 would no longer count bytes exactly; a thousand times the largest known


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight, in as many layers as it stands in."""

    name: str  # of its module; '{}' stands for the layer
    shape: tuple[int, ...]  # matrices as (outputs, inputs); experts have their number in front
    layers: Sequence[int] | None  # None = once
    linear: bool  # a matrix of the kind that weight formats quantise
    expert: bool  # routed: used by top_k of experts
    part: str  # text, embedding, head, vision, encoder

    @property
    def copies(self) -> int:
        """How often it stands in the model."""
        return 1 if self.layers is None else len(self.layers)

    @property
    def params(self) -> int:
        """Parameters of all copies."""
        return prod(self.shape) * self.copies


@dataclass(slots=True)
class Draft:
    """Filled in by the parser of a family."""

    kind: str = "dense"
    layers: int = 0
    hidden: int = 0
    ffn: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    vocab: int = 0
    tied: bool = False
    gated: bool = True
    max_context: int | None = None
    attention: str = ""
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    window: int | None = None
    layers_full: int = 0
    layers_windowed: int = 0
    layers_recurrent: int = 0
    cache_full: int = 0
    cache_windowed: int = 0
    recurrent: int = 0
    experts: int = 0
    top_k: int = 0
    shared_experts: int = 0
    moe_ffn: int = 0
    moe_layers: int = 0
    mtp_params: int = 0
    tensors: list[Tensor] = field(default_factory=list)

    # -- tensors ------------------------------------------------------------------------------------------------------

    def linear(
        self,
        name: str,
        outputs: int,
        inputs: int,
        layers: Sequence[int] | None,
        *,
        bias: bool = False,
        part: str = "text",
    ) -> None:
        """A matrix, with its bias if it has one."""
        self.tensors.append(Tensor(name, (outputs, inputs), layers, True, False, part))
        if bias:
            self.other(f"{name}.bias", outputs, layers=layers, part=part)

    def expert(self, name: str, outputs: int, inputs: int, layers: Sequence[int], *, bias: bool = False) -> None:
        """A matrix of every routed expert."""
        self.tensors.append(Tensor(name, (self.experts, outputs, inputs), layers, True, True, "text"))
        if bias:
            self.tensors.append(Tensor(f"{name}_bias", (self.experts, outputs), layers, False, True, "text"))

    def other(self, name: str, *shape: int, layers: Sequence[int] | None = None, part: str = "text") -> None:
        """A norm, a bias, a router or another weight that stays in 16 bit."""
        self.tensors.append(Tensor(name, shape, layers, False, False, part))

    def embedding(self, vocab: int, width: int, *, tied: bool, head_bias: bool = False, name: str = "lm_head") -> None:
        """Input embedding and, unless tied to it, the output head."""
        self.vocab, self.tied = vocab, tied
        self.other("model.embed_tokens", vocab, width, part="embedding")
        if not tied:
            self.other(name, vocab, width, part="head")
        if head_bias:
            self.other(f"{name}.bias", vocab, part="head")

    # -- cache --------------------------------------------------------------------------------------------------------

    def cached(self, layers: Sequence[int], elements: int, *, windowed: Sequence[int] = ()) -> None:
        """Layers that cache so many values a token; those in `windowed` stop at the window."""
        inside = set(windowed)
        local = sum(1 for layer in layers if layer in inside)
        self.layers_windowed += local
        self.layers_full += len(layers) - local
        self.cache_windowed += local * elements
        self.cache_full += (len(layers) - local) * elements

    def keeps(self, layers: Sequence[int], elements: int) -> None:
        """Layers with a state of fixed size."""
        self.layers_recurrent += len(layers)
        self.recurrent += len(layers) * elements

    # -- sums ---------------------------------------------------------------------------------------------------------

    def params(self, part: str | None = None) -> int:
        """Parameters of the model or of one part."""
        return sum(tensor.params for tensor in self.tensors if part in (None, tensor.part))

    def routed_params(self) -> int:
        """Parameters of all routed experts."""
        return sum(tensor.params for tensor in self.tensors if tensor.expert)

    def model(
        self, *, name: str, source: str, native_dtype: str, native_bytes: float | None, derived: bool = False
    ) -> Model:
        """The finished model."""
        total, routed = self.params(), self.routed_params()
        if total > MOST_PARAMS:
            raise InvalidScenario("model", f"{total:.3g} parameters", "no model has more than 10^15: a width is wrong")
        active = total - routed + routed * self.top_k // self.experts if self.experts else total
        attention = self.attention or _attention(self.heads, self.kv_heads)
        return Model(
            name=name,
            kind=self.kind,
            source=source,
            derived=derived,
            params=float(total),
            params_active=float(active),
            params_embedding=float(self.params("embedding")),
            params_lm_head=float(self.params("head")),
            params_routed_experts=float(routed),
            params_vision=float(self.params("vision")),
            params_mtp=float(self.mtp_params),
            layers=float(self.layers),
            hidden=float(self.hidden),
            ffn=float(self.ffn),
            heads=float(self.heads),
            kv_heads=float(self.kv_heads),
            head_dim=float(self.head_dim),
            vocab=float(self.vocab),
            tied_embeddings=self.tied,
            gated_mlp=self.gated,
            max_context=None if self.max_context is None else float(self.max_context),
            attention=attention,
            q_lora_rank=float(self.q_lora_rank),
            kv_lora_rank=float(self.kv_lora_rank),
            qk_nope_head_dim=float(self.qk_nope_head_dim),
            qk_rope_head_dim=float(self.qk_rope_head_dim),
            v_head_dim=float(self.v_head_dim),
            kv_window=float(self.window) if self.window and self.layers_windowed else None,
            layers_full=float(self.layers_full),
            layers_windowed=float(self.layers_windowed),
            layers_recurrent=float(self.layers_recurrent),
            kv_elements_full=float(self.cache_full),
            kv_elements_windowed=float(self.cache_windowed),
            recurrent_elements=float(self.recurrent),
            experts=float(self.experts),
            experts_per_token=float(self.top_k),
            shared_experts=float(self.shared_experts),
            moe_ffn=float(self.moe_ffn),
            moe_layers=float(self.moe_layers),
            native_dtype=native_dtype,
            native_bytes=native_bytes,
        )


def _attention(heads: int, kv_heads: int) -> str:
    if not heads:
        return "none"
    if kv_heads == heads:
        return "mha"
    return "mqa" if kv_heads == 1 else "gqa"
