"""A Scenario becomes a Question here: names are looked up, defaults filled, machine shapes collected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from gpuguide.errors import InvalidScenario, UnknownName, nearest
from gpuguide.spec.job import ServingJob, TrainingJob
from gpuguide.spec.model import MediaModel, Model
from gpuguide.spec.scenario import Scenario
from gpuguide.units import MILLION

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

Row = TypeVar("Row")

DEFAULT_MODEL = "llama-3.1-8b"
DEFAULT_MODELS = {"image": "flux.1-dev", "video": "wan2.1-t2v-14b", "audio": "whisper-large-v3"}
DEFAULT_SEQUENCE = 4096
DEFAULT_CONTEXT = 8192
PRETRAIN_TOKENS_PER_PARAMETER = 20.0
"""Compute-optimal share; source: Hoffmann et al. 2022 (arXiv 2203.15556)."""
FINETUNE_TOKENS = 10 * MILLION
"""About 10,000 examples of 1,000 tokens; a choice of ours, shown as an input."""
PRETRAIN_BATCH_TOKENS = 4 * MILLION
"""Tokens per step of large pre-training runs (Llama 3: 4 to 16 million)."""
FINETUNE_BATCH = 64
RECIPES = {"pretrain": "megatron-bf16", "full": "amp-fp32-master", "lora": "pure-bf16", "qlora": "pure-bf16"}
QUANTIZATION = "nf4-dq"
LORA_TARGETS = ("q", "k", "v", "o", "gate", "up", "down", "all")
KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp32": 4.0}


def row_named(kind: str, name: str, rows: Mapping[str, Row]) -> Row:
    """
    The row of a table by its name or another spelling; case does not count.

    Raises
    ------
    UnknownName
        If there is none; carries the nearest names.
    """
    if name in rows:
        return rows[name]
    folded = name.casefold()
    for known, row in rows.items():
        others = str(getattr(row, "aliases", "")).casefold().split("|")
        if folded == known.casefold() or (folded and folded in others):
            return row
    raise UnknownName(kind, name, nearest(name, rows), len(rows))


def training(scenario: Scenario, model: Model, catalog: Catalog) -> tuple[Scenario, TrainingJob]:
    """The scenario with training defaults filled, and its job."""
    sequence = scenario.sequence_length or int(min(DEFAULT_SEQUENCE, model.max_context or DEFAULT_SEQUENCE))
    _within_context("sequence_length", sequence, model)
    pretrain = scenario.workload == "pretrain"
    tokens = scenario.train_tokens or (
        PRETRAIN_TOKENS_PER_PARAMETER * float(model.params_active) if pretrain else FINETUNE_TOKENS
    )
    micro = scenario.micro_batch or 1
    default_batch = max(1, round(PRETRAIN_BATCH_TOKENS / sequence)) if pretrain else FINETUNE_BATCH
    batch = scenario.global_batch or max(default_batch, micro * (scenario.data_parallel or 1))
    if batch < micro:
        raise InvalidScenario("global_batch", batch, f"a step holds at least the {micro} sequences of one micro-batch")
    recipe = scenario.recipe or RECIPES[scenario.workload]
    quantization = (scenario.quantization or QUANTIZATION) if scenario.workload == "qlora" else None
    for target in scenario.lora_targets:
        if target not in LORA_TARGETS:
            raise InvalidScenario("lora_targets", target, f"choose from {', '.join(LORA_TARGETS)}")
    smallest = min(float(model.hidden), float(model.head_dim) * float(model.kv_heads))
    if scenario.workload in ("lora", "qlora") and scenario.lora_rank > smallest:
        raise InvalidScenario("lora_rank", scenario.lora_rank, f"the smallest adapted layer is {smallest:.0f} wide")
    filled = scenario.model_copy(
        update={
            "sequence_length": sequence, "train_tokens": float(tokens), "global_batch": batch,
            "recipe": recipe, "quantization": quantization,
        }
    )  # fmt: skip
    job = TrainingJob(
        method=scenario.workload,
        train_tokens=float(tokens),
        sequence_length=float(sequence),
        global_batch=float(batch),
        recipe=row_named("recipe", recipe, catalog.recipes),
        optimizer=row_named("optimizer", scenario.optimizer, catalog.optimizers),
        lora_rank=float(scenario.lora_rank) if scenario.workload in ("lora", "qlora") else 0.0,
        lora_targets=scenario.lora_targets if scenario.workload in ("lora", "qlora") else (),
        quantization=row_named("weight format", quantization, catalog.weight_formats) if quantization else None,
        upcast_unquantised=scenario.workload == "qlora",
        attention=scenario.attention,
        fused_loss=scenario.fused_loss,
        # Megatron-style stacks bring fused norms and attention kernels tuned for the card.
        fused_norms=recipe in ("megatron-bf16", "fp8"),
    )
    return filled, job


def serving(scenario: Scenario, model: Model, catalog: Catalog) -> tuple[Scenario, ServingJob]:
    """The scenario with serving defaults filled, and its job."""
    asked = scenario.prompt_tokens + scenario.output_tokens
    longest = int(model.max_context) if model.max_context else None
    if longest and asked > longest:
        raise InvalidScenario(
            "prompt_tokens + output_tokens",
            asked,
            f"{model.name} reads at most {longest} tokens (max_position_embeddings)",
        )
    context = scenario.max_context or min(max(DEFAULT_CONTEXT, asked), longest or max(DEFAULT_CONTEXT, asked))
    _within_context("max_context", context, model)
    if context < asked:
        raise InvalidScenario("max_context", context, f"prompt_tokens and output_tokens together need {asked}")
    weights = scenario.weight_format or _native_format(model, catalog)
    cache = scenario.kv_format or "bf16"
    if cache.casefold() not in KV_BYTES:
        raise UnknownName("KV cache format", cache, nearest(cache, KV_BYTES) or list(KV_BYTES), len(KV_BYTES))
    if scenario.concurrency and scenario.requests_per_s:
        raise InvalidScenario("requests_per_s", scenario.requests_per_s, "give either concurrency or requests_per_s")
    engine = row_named("engine", scenario.engine, catalog.engines)
    filled = scenario.model_copy(
        update={
            "max_context": context, "weight_format": weights, "kv_format": cache,
            "concurrency": None if scenario.requests_per_s else scenario.concurrency or 1,
        }
    )  # fmt: skip
    job = ServingJob(
        weight_format=row_named("weight format", weights, catalog.weight_formats),
        kv_bytes_per_element=KV_BYTES[cache.casefold()],
        prompt_tokens=float(scenario.prompt_tokens),
        output_tokens=float(scenario.output_tokens),
        max_context=float(context),
        concurrency=float(scenario.concurrency or 1),
        requests_per_s=scenario.requests_per_s,
        max_ttft_s=scenario.max_ttft_s,
        max_tpot_s=scenario.max_tpot_s,
        engine=engine,
        memory_utilization=scenario.memory_utilization,
        hours_per_month=scenario.hours_per_month,
        load=scenario.load,
    )
    return filled, job


def _native_format(model: Model, catalog: Catalog) -> str:
    """The format a model is published in, or BF16 where its table has none of that name."""
    return (
        model.native_dtype if model.native_dtype in catalog.weight_formats and model.native_dtype != "fp32" else "bf16"
    )


def _within_context(key: str, tokens: int, model: Model) -> None:
    if model.max_context and tokens > model.max_context:
        raise InvalidScenario(
            key, tokens, f"{model.name} reads at most {model.max_context:.0f} tokens (max_position_embeddings)"
        )


def language_model(found: Model | MediaModel, scenario: Scenario) -> Model:
    """The model, if it can do what the workload asks."""
    if isinstance(found, MediaModel):
        raise InvalidScenario(
            "model", found.name, f"it makes {found.task}; workload={scenario.workload} needs a language model"
        )
    return found


def media_model(found: Model | MediaModel, scenario: Scenario) -> MediaModel:
    """The pipeline, if it makes what the workload asks."""
    if isinstance(found, Model):
        raise InvalidScenario(
            "model", found.name, f"it is a language model; workload={scenario.workload} needs a media pipeline"
        )
    return found
