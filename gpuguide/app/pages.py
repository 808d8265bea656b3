"""What each page asks and shows: declarations only; `page` brings them to life."""

from __future__ import annotations

from collections.abc import Mapping

from gpuguide.app.cards import (
    ARCHITECTURE,
    BILL,
    BILL_TABLE,
    CONTEXT,
    COST,
    CURVE,
    CURVE_TABLE,
    DROPPED,
    ENERGY,
    FORMAT_TABLE,
    FORMATS,
    FORMS,
    FRONT,
    FUNNEL,
    HELP,
    INTERVAL,
    LADDER,
    LIMITS,
    LOAD,
    MEDIASTEP,
    MEMORY,
    ORDER,
    PARTS,
    PHASE_TABLE,
    PHASES,
    PLAN,
    RANKING,
    ROOF,
    SESSIONS,
    SIZES,
    STEP,
    VARIANTS,
)
from gpuguide.app.declaration import Answer, Card, Declaration
from gpuguide.app.location import write_query
from gpuguide.app.presets import PRESETS
from gpuguide.show.html import Html, tag

WHERE = ("pricing", "preference", "headroom")
MARKET = (
    "gpu", "gpus", "offer_kinds", "countries", "providers", "max_price_age_days", "deadline_hours", "budget_usd",
)  # fmt: skip
MODEL = ("model", "params_b")
TRAINING_MORE = (
    "recipe",
    "optimizer",
    "lora_rank",
    "quantization",
    "recompute",
    "attention",
    "fused_loss",
    "offload",
    "zero_stage",
)


PAGE_FOR = {"serve": "serve", "qlora": "finetune", "lora": "finetune", "full": "finetune", "pretrain": "train"}


def _onward(answer: Answer) -> Html:
    """Where to go on with these settings: what the next page would start with is said too, so that numbers stay."""
    text, page = answer.text, PAGE_FOR.get(str(answer.given["workload"]), "media")

    def query(name: str) -> str:
        taken = {key: getattr(answer.decision.scenario, key) for key in DECLARATIONS[name].start if key != "pricing"}
        kept = {key: value for key, value in taken.items() if value is not None and key not in ("model", "params_b")}
        return write_query(kept | dict(answer.given) | {"language": text.language})

    names = dict.fromkeys((page, "memory", *(("spot",) if page in ("finetune", "train") else ())))
    links = [
        tag("li", tag("a", text(f"index.go_{name}"), class_="gg-button", href=f"{name}?{query(name)}"))
        for name in names
    ]
    return tag("ul", links, class_="gg-onward")


INDEX_PAGE = Declaration(
    name="index",
    workloads=("serve", "qlora", "lora", "full", "pretrain"),
    groups={"what": ("workload",), "which": MODEL, "limits": ("deadline_hours", "budget_usd", "pricing", "preference")},
    cards=(
        Card(key="onward", draw=_onward, chart=False),
        ORDER,
        COST,
        FUNNEL,
        ARCHITECTURE,
    ),
    start={"workload": "serve", "model": "llama-3.1-8b"},
    presets=PRESETS["index"],
)

MEMORY_PAGE = Declaration(
    name="memory",
    workloads=("serve", "qlora", "lora", "full", "pretrain"),
    groups={
        "job": ("workload", *MODEL),
        "size": (
            "weight_format",
            "kv_format",
            "max_context",
            "concurrency",
            "recipe",
            "sequence_length",
            "micro_batch",
        ),
        "where": WHERE,
        "training+": (
            "optimizer",
            "lora_rank",
            "quantization",
            "recompute",
            "attention",
            "fused_loss",
            "offload",
            "zero_stage",
            "global_batch",
            "train_tokens",
        ),
        "serving+": ("prompt_tokens", "output_tokens", "engine", "memory_utilization", "hours_per_month"),
        "market+": MARKET,
    },
    cards=(MEMORY, COST, PARTS, VARIANTS, LIMITS, FUNNEL, HELP, PLAN, ARCHITECTURE, RANKING, DROPPED),
    start={"workload": "serve", "model": "llama-3.1-8b", "max_context": 8192, "concurrency": 8, "micro_batch": 1},
    presets=PRESETS["memory"],
)

TRAIN_PAGE = Declaration(
    name="train",
    workloads=("pretrain", "full"),
    groups={
        "job": ("workload", *MODEL, "train_tokens", "sequence_length", "global_batch"),
        "where": (*WHERE, "gpus"),
        "training+": (
            "recipe",
            "optimizer",
            "micro_batch",
            "recompute",
            "attention",
            "fused_loss",
            "offload",
            "zero_stage",
            "tensor_parallel",
            "pipeline_parallel",
        ),
        "run+": (
            "sessions",
            "interruptions_per_hour",
            "checkpoint_interval_s",
            "data_source",
            "data_gb_per_s",
            "data_bytes_per_token",
            "storage_gb",
            "egress_gb",
            "setup_minutes",
        ),
        "market+": tuple(key for key in MARKET if key != "gpus"),
    },
    cards=(
        FRONT,
        COST,
        MEMORY,
        BILL,
        BILL_TABLE,
        STEP,
        ROOF,
        LADDER,
        PARTS,
        FUNNEL,
        HELP,
        PLAN,
        ENERGY,
        ARCHITECTURE,
        RANKING,
        DROPPED,
    ),
    start={"workload": "pretrain", "params_b": 7.0, "train_tokens": 1.4e11},
    presets=PRESETS["train"],
)

FINETUNE_PAGE = Declaration(
    name="finetune",
    workloads=("qlora", "lora", "full"),
    groups={
        "job": ("workload", *MODEL, "train_tokens", "sequence_length", "lora_rank"),
        "where": WHERE,
        "training+": (
            "recipe",
            "optimizer",
            "quantization",
            "micro_batch",
            "global_batch",
            "recompute",
            "attention",
            "fused_loss",
            "offload",
            "zero_stage",
        ),
        "run+": (
            "sessions",
            "interruptions_per_hour",
            "checkpoint_interval_s",
            "data_source",
            "data_gb_per_s",
            "data_bytes_per_token",
            "storage_gb",
            "egress_gb",
            "setup_minutes",
        ),
        "market+": MARKET,
    },
    cards=(
        VARIANTS,
        COST,
        MEMORY,
        BILL,
        BILL_TABLE,
        PARTS,
        LIMITS,
        FUNNEL,
        HELP,
        PLAN,
        LADDER,
        ARCHITECTURE,
        RANKING,
        DROPPED,
    ),
    start={"workload": "qlora", "model": "llama-3.1-8b"},
    presets=PRESETS["finetune"],
)

SERVE_PAGE = Declaration(
    name="serve",
    workloads=("serve",),
    groups={
        "job": (*MODEL, "weight_format", "kv_format"),
        "load": ("max_context", "concurrency", "prompt_tokens", "output_tokens"),
        "where": (*WHERE, "hours_per_month", "load", "api_usd_per_million_tokens"),
        "serving+": (
            "engine",
            "memory_utilization",
            "max_ttft_s",
            "max_tpot_s",
            "tensor_parallel",
            "pipeline_parallel",
        ),
        "market+": tuple(key for key in MARKET if key != "deadline_hours"),
    },
    cards=(
        MEMORY,
        COST,
        BILL,
        CURVE,
        CURVE_TABLE,
        FORMATS,
        FORMAT_TABLE,
        CONTEXT,
        LOAD,
        FRONT,
        ROOF,
        PARTS,
        BILL_TABLE,
        LIMITS,
        FUNNEL,
        HELP,
        PLAN,
        LADDER,
        ARCHITECTURE,
        RANKING,
        DROPPED,
    ),
    start={"workload": "serve", "model": "llama-3.1-8b", "max_context": 8192, "concurrency": 16},
    presets=PRESETS["serve"],
)

SCALE_PAGE = Declaration(
    name="scale",
    workloads=("pretrain", "full", "serve"),
    groups={
        "job": ("workload", *MODEL, "train_tokens", "sequence_length", "global_batch", "max_context", "concurrency"),
        "where": WHERE,
        "plan+": ("tensor_parallel", "pipeline_parallel", "zero_stage", "micro_batch", "recompute", "recipe"),
        "market+": tuple(key for key in MARKET if key != "gpus"),
    },
    cards=(
        SIZES,
        STEP,
        LADDER,
        MEMORY,
        ROOF,
        PLAN,
        FUNNEL,
        HELP,
        ARCHITECTURE,
        RANKING,
        DROPPED,
    ),
    start={"workload": "pretrain", "params_b": 7.0, "train_tokens": 1.4e11},
    presets=PRESETS["scale"],
)

SPOT_PAGE = Declaration(
    name="spot",
    workloads=("qlora", "lora", "full", "pretrain"),
    groups={
        "job": ("workload", *MODEL, "train_tokens", "sequence_length"),
        "run": ("interruptions_per_hour", "checkpoint_interval_s", "sessions", "deadline_hours"),
        "where": ("preference", "headroom"),
        "run+": ("data_source", "data_gb_per_s", "data_bytes_per_token", "storage_gb", "egress_gb", "setup_minutes"),
        "market+": ("gpu", "gpus", "offer_kinds", "countries", "providers", "max_price_age_days", "budget_usd"),
    },
    cards=(
        FORMS,
        BILL,
        BILL_TABLE,
        COST,
        INTERVAL,
        SESSIONS,
        ENERGY,
        FUNNEL,
        HELP,
        ARCHITECTURE,
        RANKING,
        DROPPED,
    ),
    start={"workload": "full", "model": "llama-3.1-8b", "train_tokens": 1e8, "pricing": "spot"},
    presets=PRESETS["spot"],
)

MEDIA_PAGE = Declaration(
    name="media",
    workloads=("image", "video", "audio"),
    groups={
        "media": ("workload", "model", "items", "width", "height", "frames", "steps", "audio_seconds", "batch"),
        "size": ("quantization", "offload"),
        "where": WHERE,
        "run+": ("sessions", "storage_gb", "egress_gb", "setup_minutes"),
        "market+": MARKET,
    },
    cards=(
        MEMORY,
        COST,
        FRONT,
        PHASES,
        PHASE_TABLE,
        BILL,
        BILL_TABLE,
        MEDIASTEP,
        PARTS,
        FUNNEL,
        HELP,
        ENERGY,
        ARCHITECTURE,
        RANKING,
        DROPPED,
    ),
    start={"workload": "image", "model": "flux.1-dev"},
    presets=PRESETS["media"],
)

DECLARATIONS: Mapping[str, Declaration] = {
    page.name: page
    for page in (INDEX_PAGE, MEMORY_PAGE, TRAIN_PAGE, FINETUNE_PAGE, SERVE_PAGE, MEDIA_PAGE, SCALE_PAGE, SPOT_PAGE)
}
