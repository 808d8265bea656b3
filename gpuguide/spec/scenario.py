"""
Everything a user can set, as one frozen Scenario; with its names resolved, a Question.

The JSON schema of `Scenario` (``Scenario.model_json_schema()``) documents every knob with unit, range and default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gpuguide.errors import InvalidScenario, UnknownName, must_be, nearest, short

if TYPE_CHECKING:
    import pandas as pd

    from gpuguide.columns import Columns
    from gpuguide.spec.assumptions import Assumptions
    from gpuguide.spec.hardware import Nodes
    from gpuguide.spec.job import MediaJob, ServingJob, TrainingJob
    from gpuguide.spec.model import MediaModel, Model

TRAINING = ("pretrain", "full", "lora", "qlora")
MEDIA = ("image", "video", "audio")
WORKLOADS = (*TRAINING, "serve", *MEDIA)

MOST_PARAMS_B = 20_000.0  # 20 trillion parameters: ten times the largest model announced
MOST_TOKENS = 1e15
MOST_CONTEXT = 100_000_000
MOST_GPUS = 200_000


def _listed(value: Any) -> Any:
    """A comma-separated text means a list, as typed on the command line or in a link."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
MOST = 1e15  # of any other quantity: beyond all sense, and far from where sums of products overflow
Positive = Annotated[float, Field(ge=1e-9, le=MOST, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=MOST_GPUS)]
Tokens = Annotated[int, Field(ge=1, le=MOST_CONTEXT)]


class Scenario(BaseModel):
    """One question, flat and JSON-plain. Keys left out take the documented default or are chosen by the search."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, defer_build=True)

    # what
    workload: Literal["pretrain", "full", "lora", "qlora", "serve", "image", "video", "audio"] = Field(
        "serve", description="What to do with the model."
    )
    model: str | None = Field(
        None,
        max_length=4000,
        description="Catalog name, path to a config.json, model folder or .gguf file, Hub id, or own: and what a link "
        "carries.",
    )
    params_b: Annotated[float, Field(gt=0.001, le=MOST_PARAMS_B)] | None = Field(
        None, description="Parameters alone, in billions: a typical architecture of that size is derived. [1e9]"
    )
    num_hidden_layers: Annotated[int, Field(ge=1, le=10_000)] | None = Field(None, description="Layers. [-]")
    hidden_size: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(None, description="Width. [-]")
    intermediate_size: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(None, description="MLP width. [-]")
    num_attention_heads: Annotated[int, Field(ge=1, le=10_000)] | None = Field(None, description="Attention heads. [-]")
    num_key_value_heads: Annotated[int, Field(ge=1, le=10_000)] | None = Field(None, description="KV heads. [-]")
    head_dim: Annotated[int, Field(ge=1, le=10_000)] | None = Field(None, description="Width of a head. [-]")
    vocab_size: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(None, description="Vocabulary. [-]")
    tie_word_embeddings: bool | None = Field(None, description="Input embedding and head are one tensor.")
    num_local_experts: Annotated[int, Field(ge=1, le=100_000)] | None = Field(None, description="Routed experts. [-]")
    num_experts_per_tok: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Experts a token uses. [-]"
    )
    moe_intermediate_size: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Expert width. [-]"
    )
    sliding_window: Tokens | None = Field(None, description="Window of every layer's attention. [tokens]")
    max_position_embeddings: Tokens | None = Field(None, description="Longest context the model allows. [tokens]")

    # training
    train_tokens: Annotated[float, Field(ge=1, le=MOST_TOKENS)] | None = Field(
        None, description="Tokens to train on; default 20 per parameter to pre-train, 10 million to fine-tune. [tokens]"
    )
    sequence_length: Tokens | None = Field(
        None, description="Longest training sequence; default 4096 or the model's maximum. [tokens]"
    )
    global_batch: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None,
        description="Sequences per optimizer step; default 4 million tokens to pre-train, 64 sequences to fine-tune.",
    )
    micro_batch: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Sequences per GPU and pass; searched."
    )
    recipe: str | None = Field(
        None, description="Precision recipe: megatron-bf16 to pre-train, amp-fp32-master for full, pure-bf16 for LoRA."
    )
    optimizer: str = Field("adamw", description="Optimizer.")
    lora_rank: Annotated[int, Field(ge=1, le=65_536)] = Field(16, description="Rank of LoRA adapters. [-]")
    lora_targets: Names = Field(("all",), description="Linear layers with adapters: q, k, v, o, gate, up, down or all.")
    quantization: str | None = Field(None, description="Format of the frozen base under QLoRA; default nf4-dq.")
    recompute: Literal["auto", "none", "selective", "full"] = Field("auto", description="Activation checkpointing.")
    attention: Literal["fused", "eager"] = Field("fused", description="Attention kernel.")
    fused_loss: bool = Field(False, description="Chunked or fused cross entropy: full logits are never stored.")
    offload: Literal["auto", "none", "optimizer", "all", "sequential"] = Field(
        "none",
        description="What moves to host memory: optimizer states, or weights too; of a media pipeline all but one "
        "component, or all but one module (sequential, never chosen by auto).",
    )

    # plan
    tensor_parallel: Count | None = Field(None, description="Tensor parallel degree; searched when left out.")
    pipeline_parallel: Count | None = Field(None, description="Pipeline stages; searched when left out.")
    context_parallel: Count | None = Field(None, description="Context parallel degree; searched when left out.")
    expert_parallel: Count | None = Field(None, description="Expert parallel degree; searched when left out.")
    data_parallel: Count | None = Field(
        None, description="Data parallel degree; what remains of the GPUs when left out."
    )
    zero_stage: Annotated[int, Field(ge=0, le=3)] | None = Field(None, description="ZeRO stage (3 = FSDP); searched.")

    # serving
    weight_format: str | None = Field(None, description="Stored format of the weights; default the model's own.")
    kv_format: str | None = Field(None, description="Format of the KV cache: bf16, fp16, fp8, int8; default bf16.")
    prompt_tokens: Tokens = Field(1024, description="Typical prompt. [tokens]")
    output_tokens: Tokens = Field(256, description="Typical answer. [tokens]")
    max_context: Tokens | None = Field(
        None,
        description="Longest sequence to hold; default 8192, the prompt and answer, or the model's maximum. [tokens]",
    )
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Requests at once; default 1."
    )
    requests_per_s: Positive | None = Field(None, description="Arrival rate, given instead of concurrency. [1/s]")
    max_ttft_s: Positive | None = Field(None, description="Longest time to first token. [s]")
    max_tpot_s: Positive | None = Field(None, description="Longest time per output token. [s]")
    engine: str = Field("vllm", description="Serving engine: vllm, sglang, tensorrt-llm, llama.cpp, transformers.")
    memory_utilization: Annotated[float, Field(gt=0.05, le=1.0)] | None = Field(
        None, description="Share of the card an engine may take; default the engine's own."
    )
    hours_per_month: Annotated[float, Field(ge=0.01, le=744)] = Field(730.0, description="Hours rented a month. [h]")
    api_usd_per_million_tokens: Positive | None = Field(
        None,
        description="Price of a service one would pay by the token instead, for the break-even. [USD / 1e6 tokens]",
    )
    load: Literal["steady", "office", "bursts"] = Field("steady", description="Load pattern over the rented hours.")

    # media
    width: Annotated[int, Field(ge=16, le=32_768)] | None = Field(
        None, description="Picture width; default the model's own. [px]"
    )
    height: Annotated[int, Field(ge=16, le=32_768)] | None = Field(
        None, description="Picture height; default the model's own. [px]"
    )
    frames: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Video frames; default the model's own."
    )
    steps: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="Denoising steps; default the model's own."
    )
    batch: Annotated[int, Field(ge=1, le=100_000)] = Field(1, description="Items generated together.")
    items: Annotated[float, Field(ge=0.001, le=1e12)] = Field(
        1000, description="Items to make: images, clips or recordings."
    )
    audio_seconds: Annotated[float, Field(ge=0.01, le=1e6)] = Field(60.0, description="Length of one recording. [s]")

    # where
    gpu: Names = Field((), description="Accelerators allowed; all when empty.")
    gpus: Count | None = Field(None, description="GPUs over all nodes; searched when left out.")
    nodes: Count | None = Field(None, description="Machines; searched when left out.")
    providers: Names = Field((), description="Providers allowed; all when empty.")
    regions: Names = Field((), description="Regions allowed, any part of the provider's name; all when empty.")
    countries: Names = Field(
        (),
        description="Countries allowed by their two letters, or EU; all when empty. Offers that name no place stay in.",
    )
    pricing: Literal["on_demand", "spot", "reserved", "any"] = Field("on_demand", description="How to pay.")
    offer_kinds: Names = Field(
        ("on_demand",), description="Kinds of offer: on_demand, marketplace, community, serverless."
    )
    max_price_age_days: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        None, description="Oldest price allowed. [days]"
    )

    # run
    sessions: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1, description="Separate sessions the run is split into."
    )
    checkpoint_interval_s: Annotated[float, Field(ge=0.001, le=1e9)] | None = Field(
        None, description="Time between checkpoints; optimal when left out. [s]"
    )
    interruptions_per_hour: Annotated[float, Field(ge=0, le=60)] | None = Field(
        None, description="Spot interruptions per node; default from the assumptions. [1/h]"
    )
    data_source: Literal["volume", "nvme", "bucket"] = Field(
        "volume",
        description="What training reads from: network volume, local drives (data copied there first), object storage.",
    )
    data_gb_per_s: Positive | None = Field(
        None, description="Rate at which one machine reads its data; default from the assumptions. [GB/s]"
    )
    data_bytes_per_token: Positive | None = Field(
        None, description="Stored size of what is read for a token; default token ids of two to four bytes. [bytes]"
    )
    storage_gb: NotNegative | None = Field(
        None, description="Persistent volume; default weights, data and checkpoints. [GB]"
    )
    egress_gb: NotNegative | None = Field(None, description="Data taken out; default the final weights. [GB]")
    setup_minutes: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        None, description="Boot, image and download before work; estimated. [min]"
    )
    headroom: Annotated[float, Field(ge=0, le=0.9)] = Field(0.05, description="Share of memory to leave free.")
    deadline_hours: Positive | None = Field(None, description="Latest finish. [h]")
    budget_usd: Positive | None = Field(None, description="Most to spend. [USD]")
    preference: Literal["cheapest", "fastest", "balanced"] = Field("cheapest", description="What to rank by.")
    language: Literal["en", "tr"] = Field("en", description="Language of the answer.")
    currency: Annotated[str, Field(min_length=3, max_length=3)] = Field("USD", description="Currency shown.")
    currency_per_usd: Positive | None = Field(None, description="Exchange rate to show money in; required unless USD.")

    def __init__(self, **values: Any) -> None:
        for key in values:
            if key not in type(self).model_fields:
                known = type(self).model_fields
                raise UnknownName("scenario key", key[:60], nearest(key[:60], known), len(known))
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0]) if first["loc"] else "scenario"
            said, facts = _allowed(first["msg"]), first.get("ctx", {})
            raise InvalidScenario(key, first["input"], said, reason=first["type"], facts=facts) from None

    @classmethod
    def from_mapping(cls, values: Mapping[Any, Any]) -> Scenario:
        """
        A scenario from plain values, with errors as one sentence.

        Raises
        ------
        UnknownName
            If a key is none of the scenario's; carries the nearest.
        InvalidScenario
            If a value is outside what its key allows.
        """
        must_be("scenario", values, Mapping, "a scenario is a table of keys and values")
        return cls(**{short(key, 100): value for key, value in values.items()})

    @property
    def is_training(self) -> bool:
        """Whether the workload trains a language model."""
        return self.workload in TRAINING

    @property
    def is_media(self) -> bool:
        """Whether the workload generates or transcribes media."""
        return self.workload in MEDIA


def _allowed(message: str) -> str:
    """Pydantic's finding as the end of a sentence."""
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    return text[:1].lower() + text[1:]


@dataclass(frozen=True, kw_only=True)
class Question:
    """
    A scenario with its names resolved: all that `decide` needs, so that it opens no file.

    `shapes` are the distinct machines of the market, which has one row per thing to rent: its column `shape` is the
    place of its machine in `shapes`, `gpus` and `nodes` its size, `usd_per_hour` the price of all nodes together.
    """

    scenario: Scenario  # defaults filled
    model: Model | MediaModel
    job: TrainingJob | ServingJob | MediaJob
    shapes: Nodes
    market: Columns
    assumptions: Assumptions
    again: Callable[[Scenario], Question] = field(repr=False)  # resolves a changed scenario against the same tables

    @cached_property
    def offers(self) -> pd.DataFrame:
        """The market as a DataFrame."""
        return self.market.frame()
