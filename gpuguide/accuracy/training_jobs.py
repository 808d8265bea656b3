"""
What a measured training run was, read from the words of its row: method, precision, optimizer, kernels.

Sources spell these in many ways; what no column says is the field's default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.spec.hardware import Floats
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.plan import Plan
from gpuguide.spec.precision import Optimizer, WeightFormat

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

Row = Mapping[str, Any]

NO = ("", "no", "none", "0", "0.0", "false", "off", "-")
"""How a table says that something was not used."""
QUANTISED_INPUTS_DROPPED = "2024-07"
"""Month of bitsandbytes 0.43.2, from which 4-bit layers no longer keep their inputs."""
LIGHTNING_SHARDED_LOADING = "2024"
"""Year from which Lightning loads a checkpoint shard by shard; before, every GPU held the whole model first."""
METHODS = (
    (r"adapter.?v2|llama.?pro|prefix|prompt|lora_llm", None), (r"qlora|qadapter", "qlora"),
    (r"lora|dora|adapter|boft|bone|pissa", "lora"), (r"pre.?train", "pretrain"), (r"full|sft|fft", "full"),
)  # fmt: skip
"""Words in a method's name; None = not modelled. What trains about as little as LoRA beside a frozen base is LoRA."""
TARGETS = {
    "q": "q|q_proj|query|wq", "k": "k|k_proj|key|wk", "v": "v|v_proj|value|wv",
    "o": "o|o_proj|wo|attn.c_proj|c_proj|proj|dense|linear_proj",
    "qkv": "c_attn|query_key_value|w_pack|qkv|qkv_proj|wqkv|linear_qkv",
    "gate": "gate|gate_proj|w1", "up": "up|up_proj|w2|fc1|c_fc", "down": "down|down_proj|w3|fc2",
}  # fmt: skip
OPTIMIZERS = (
    (r"q.?galore|apollo.*int8|int8 weights|badam|lisa", None), (r"galore.*8.?bit", "galore-8bit"),
    (r"galore", "galore"), (r"apollo", "apollo"), (r"muon", "muon"),
    (r"paged.*8.?bit", "paged-adamw-8bit"), (r"paged", "paged-adamw-32bit"),
    (r"8.?bit", "adamw-8bit"), (r"adafactor", "adafactor"), (r"lion", "lion"), (r"sgd.*momentum", "sgd-momentum"),
    (r"sgd", "sgd"), (r"adam", "adamw"),
)  # fmt: skip
"""Words in an optimizer's name; None = not modelled."""


class Skip(Exception):
    """Why a row is not scored."""


def text(row: Row, column: str) -> str:
    """A cell as lower-case words, empty when blank."""
    value = row.get(column)
    return "" if value is None or value is pd.NA or value != value else str(value).strip().lower()


def number(row: Row, column: str, default: float = float("nan")) -> float:
    """A cell as a number, the default when blank or not a number."""
    try:
        value = float(row.get(column, default))
    except (TypeError, ValueError):
        return default
    return default if np.isnan(value) else value


def job_of(row: Row, catalog: Catalog, plan: Plan, sequence: Floats | float) -> TrainingJob:
    """Method, precision, optimizer and kernels, from the words of the row."""
    method = _method(row)
    megatron, words = is_megatron(row), sharding(row)
    precision, loss = text(row, "precision"), text(row, "fused_ce")
    kernels = text(row, "flash_attention") or text(row, "attention")
    unsloth = "unsloth" in kernels or "unsloth" in text(row, "activation_checkpointing")
    fused_loss = not megatron and (unsloth or loss not in NO)
    plain = 2.0 if "true" in precision or "mixed" in precision else 4.0
    adapters = text(row, "target_modules") or text(row, "lora_targets")
    compiled = text(row, "compile") not in NO
    fused_norms = megatron or unsloth or "liger" in loss or compiled
    eager = kernels in ("no", "eager")
    micro = float(np.asarray(plan.micro_batch))
    quantised = method == "qlora" or (method == "lora" and text(row, "quant") not in NO)
    offloads = text(row, "activation_checkpointing") + text(row, "offload")
    month = text(row, "source_date")[:7]
    return TrainingJob(
        method=method,
        train_tokens=1.0,
        sequence_length=sequence,
        global_batch=_global_batch(row, plan),
        recipe=catalog.recipes[_recipe(row, method)],
        optimizer=_optimizer(row, catalog),
        lora_rank=number(row, "lora_rank", 8.0) if method in ("lora", "qlora") else 0.0,
        lora_targets=() if "adapter" in text(row, "method") else _targets(adapters),
        adapter_bytes=plain,
        quantization=_quantization(row, catalog) if quantised else None,
        upcast_unquantised=quantised and bool(re.search("upcast|fp32", precision + text(row, "notes"))),
        attention="eager" if eager else "fused",
        fused_loss=fused_loss,
        fused_norms=fused_norms,
        inplace_loss=megatron,
        masked_attention="sdpa" in kernels and "pad" in text(row, "seq_len_kind") and micro > 1,
        foreach_optimizer=not megatron and float(np.asarray(plan.zero_stage)) == 0,
        trainable_embeddings="wte" in adapters or "embed" in adapters,
        fused_adapters=unsloth and method in ("lora", "qlora"),
        offload_activations="offload" in text(row, "activation_checkpointing") or "activation" in offloads,
        keeps_quantised_inputs="" < month < QUANTISED_INPUTS_DROPPED,
        # `bf16-true` is Lightning's word.
        unsharded_start="fsdp" in words and "true" in precision and "" < month < LIGHTNING_SHARDED_LOADING,
        step_group_params=float("inf") if "fsdp" in words else 1e9,
    )


def _method(row: Row) -> str:
    words = text(row, "method")
    method = next((known for pattern, known in METHODS if re.search(pattern, words)), None)
    if method is None:
        raise Skip(f"not modelled: method {words}")
    return method


def is_megatron(row: Row) -> bool:
    """Whether the run used Megatron's kernels and buffers."""
    return "megatron" in text(row, "optimizer") + sharding(row)


def sharding(row: Row) -> str:
    """What the row says of how the run was spread over GPUs."""
    return f"{text(row, 'zero_stage')} {text(row, 'dp_strategy')}".strip()


def _recipe(row: Row, method: str) -> str:
    precision = text(row, "precision")
    if is_megatron(row):
        return "fp8" if "fp8" in precision else "megatron-bf16"
    if "mixed" in precision or "amp" in precision:
        return "fp16-mixed" if "fp16" in precision else "amp-fp32-master"
    if precision in ("fp32", "float32", "32-true", "32", "tf32"):
        return "fp32"
    if "fp8" in precision and method in ("full", "pretrain"):
        return "fp8"
    if method in ("full", "pretrain") and ("master" in precision or "zero" in sharding(row)):
        return "zero-bf16"
    if method in ("full", "pretrain") and ("fp16" in precision):
        return "fp16-mixed"
    return "pure-bf16"


def _optimizer(row: Row, catalog: Catalog) -> Optimizer:
    name = text(row, "optimizer") or "adamw"
    if "tuners/lisa" in text(row, "notes"):
        name = "lisa"
    for pattern, known in OPTIMIZERS:
        if re.search(pattern, name):
            if known is None:
                break
            optimizer = catalog.optimizers[known]
            if rank := re.search(r"rank[ =]?(\d+)", name):
                optimizer = replace(optimizer, low_rank=int(rank.group(1)))
            in_backward = re.search(r"in[ _-]?(backward|bwd)|layer-?wise update", name + text(row, "notes"))
            return replace(optimizer, fused_backward=True) if in_backward else optimizer
    raise Skip(f"not modelled: optimizer {name[:40]}")


def _quantization(row: Row, catalog: Catalog) -> WeightFormat:
    name = text(row, "quant")
    if "gptq" in name:
        wanted = "gptq"
    elif "dq" in name or ("double" in name and "no double" not in name):
        wanted = "nf4-dq"
    elif "awq" in name:
        wanted = "awq"
    elif re.search(r"8.?bit|int8", name):
        wanted = "bnb-int8"
    elif re.search(r"[23].?bit", name):
        raise Skip(f"not modelled: {name} base")
    else:
        wanted = "nf4"
    return catalog.weight_formats[wanted]


def _targets(words: str) -> tuple[str, ...]:
    """Adapted layers from any spelling; `all` when nothing is said."""
    if not words or "all-linear" in words or words.strip() in ("all", "all_linear"):
        return ("all",)
    found: list[str] = []
    parts = [part.strip() for part in re.split(r"[,+\s]+", words.split("(")[0]) if part.strip()]
    for name, spellings in TARGETS.items():
        if any(part in spellings.split("|") for part in parts):
            found += ["q", "k", "v"] if name == "qkv" else [name]
    return tuple(found) or ("all",)


def _global_batch(row: Row, plan: Plan) -> float:
    """Sequences per step; several micro-batches where nothing is said, since recipes accumulate."""
    micro = float(np.asarray(plan.micro_batch)) * float(np.asarray(plan.data_parallel))
    words = text(row, "global_batch")
    micro_batches = re.search(r"micro_num (\d+)", words)
    if micro_batches:
        return micro * float(micro_batches.group(1))
    stated = re.match(r"\d+(\.\d+)?$", words)
    return max(micro, float(words)) if stated else micro * 8
