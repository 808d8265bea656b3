"""
Rows of training-memory measurements as the question they answer: model, job, plan and machine.

Everything is read from a row's own columns, in whatever words its source used; what no column says is the field's
default. A row that cannot be asked gives a `Skip` with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.catalog import shapes
from gpuguide.errors import UnknownName
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE, Plan
from gpuguide.spec.precision import Optimizer
from gpuguide.units import BILLION, GIB

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

Row = Mapping[str, Any]

DEFAULT_SEQUENCE = 2048.0
DEFAULT_VOCAB = 32_000.0
DEFAULT_GPU = "A100-80GB-SXM"
QUANTISED_INPUTS_DROPPED = "2024-07"
"""Month of bitsandbytes 0.43.2, from which 4-bit layers no longer keep their inputs."""
USABLE_SHARE = 0.985
"""Of a card named only by its size: what is left of 24 to 80 GiB after the driver; mean of `gpus.csv`."""
METHODS = {
    "lora": "lora", "qlora": "qlora", "full": "full", "pretrain": "pretrain", "dora": "lora", "adapter": "lora",
    "qadapter": "qlora", "adalora": "lora", "boft": "lora", "bone": "lora", "pissa": "lora", "olora": "lora",
}  # fmt: skip
"""Methods that freeze the base and train something about as small as LoRA count as LoRA."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One row as a question."""

    model: Model
    job: TrainingJob
    plan: Plan
    nodes: Nodes
    usable_bytes: float | None


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


# ---- model -----------------------------------------------------------------------------------------------------------


def model_of(row: Row, catalog: Catalog) -> Model:
    """
    The row's architecture; whether MLP is gated and embeddings tied is what explains the parameter count best.

    A model with experts is looked up by name, since its rows do not give their number.
    """
    layers, hidden, heads = (number(row, name) for name in ("layers", "hidden", "heads"))
    params = number(row, "params", number(row, "params_b") * BILLION)
    if np.isnan(layers) or np.isnan(hidden):
        known = _by_name(row, catalog)
        if known is None:
            raise Skip("architecture not stated")
        return known
    heads = heads if heads == heads else hidden / 128
    kv_heads, head_dim = number(row, "kv_heads", heads), number(row, "head_dim", hidden / heads)
    ffn, vocab = number(row, "ffn_hidden", 4 * hidden), number(row, "vocab", DEFAULT_VOCAB)
    embedding = vocab * hidden
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    tied_said = text(row, "tied_embeddings")
    options = []
    for gated in (True, False):
        for tied in (False, True):
            if tied_said and tied != (tied_said in ("1", "1.0", "yes", "true")):
                continue
            blocks = layers * (attention + (3 if gated else 2) * hidden * ffn)
            options.append((abs(blocks + embedding * (1 if tied else 2) - params), gated, tied, blocks))
    _, gated, tied, blocks = min(options) if params == params else options[0]
    counted = blocks + embedding * (1 if tied else 2)
    if params == params and abs(counted / params - 1) > 0.2:
        known = _by_name(row, catalog)
        if known is None or abs(float(known.params) / params - 1) > 0.1:
            raise Skip("not scoreable: stated shape and parameter count disagree")
        return known
    total = params if params == params else counted
    return Model(
        name=str(row.get("model", "model")), kind="dense", source="row", params=total, params_active=total,
        params_embedding=embedding, params_lm_head=embedding, layers=layers, hidden=hidden, ffn=ffn, heads=heads,
        kv_heads=kv_heads, head_dim=head_dim, vocab=vocab, tied_embeddings=tied, gated_mlp=gated,
    )  # fmt: skip


def _by_name(row: Row, catalog: Catalog) -> Model | None:
    try:
        known = catalog.model(str(row.get("model", "")))
    except UnknownName:
        return None
    return known if isinstance(known, Model) else None


# ---- job -------------------------------------------------------------------------------------------------------------


def job_of(row: Row, catalog: Catalog, plan: Plan, sequence: Floats | float) -> TrainingJob:
    """Method, precision, optimizer and kernels, from the words of the row."""
    method = METHODS.get(text(row, "method").replace("lora+emb", "lora"))
    if method is None:
        raise Skip(f"not modelled: method {text(row, 'method')}")
    megatron, words = is_megatron(row), text(row, "zero_stage")
    precision, loss = text(row, "precision"), text(row, "fused_ce")
    kernels = text(row, "flash_attention") or text(row, "attention")
    unsloth = "unsloth" in kernels or "unsloth" in text(row, "activation_checkpointing")
    fused_loss = not megatron and (unsloth or loss not in ("", "no", "0", "false"))
    plain = 2.0 if "true" in precision or "mixed" in precision else 4.0
    adapters = text(row, "target_modules") or text(row, "lora_targets")
    compiled = text(row, "compile") not in ("", "no")
    fused_norms = megatron or unsloth or "liger" in loss or compiled
    eager = kernels in ("no", "eager")
    micro = float(np.asarray(plan.micro_batch))
    quantization = _quantization(row, catalog) if method == "qlora" else None
    return TrainingJob(
        method=method,
        train_tokens=1.0,
        sequence_length=sequence,
        global_batch=_global_batch(row, plan),
        recipe=catalog.recipes[_recipe(row, method)],
        optimizer=_optimizer(row, catalog),
        lora_rank=number(row, "lora_rank", 8.0) if method in ("lora", "qlora") else 0.0,
        lora_targets=_targets(adapters) if "adapter" not in text(row, "method") else (),
        adapter_bytes=plain,
        quantization=quantization,
        upcast_unquantised=method == "qlora" and ("fp32 adapters" in precision or "fp32" in text(row, "notes")),
        attention="eager" if eager else "fused",
        fused_loss=fused_loss,
        fused_norms=fused_norms,
        inplace_loss=megatron,
        masked_attention="sdpa" in kernels and "pad" in text(row, "seq_len_kind") and micro > 1,
        sequence_parallel="none" not in text(row, "activation_checkpointing") or not megatron,
        foreach_optimizer=not megatron and float(np.asarray(plan.zero_stage)) == 0,
        trainable_embeddings="wte" in adapters or "embed" in adapters,
        fused_adapters=unsloth and method in ("lora", "qlora"),
        offload_activations="offload" in text(row, "activation_checkpointing"),
        keeps_quantised_inputs="" < text(row, "source_date")[:7] < QUANTISED_INPUTS_DROPPED,
        # Lightning before 2024 loaded the whole model on every GPU.
        unsharded_start="fsdp" in words and "true" in precision and method in ("lora", "qlora"),
        step_group_params=float("inf") if "fsdp" in words else 1e9,
    )


def is_megatron(row: Row) -> bool:
    """Whether the run used Megatron's kernels and buffers."""
    return "megatron" in text(row, "optimizer") + text(row, "zero_stage")


def _recipe(row: Row, method: str) -> str:
    precision = text(row, "precision")
    if is_megatron(row):
        return "fp8" if "fp8" in precision else "megatron-bf16"
    if "mixed" in precision:
        return "fp16-mixed" if "fp16" in precision else "amp-fp32-master"
    if precision in ("fp32", "float32", "32-true"):
        return "fp32"
    if method in ("full", "pretrain") and ("master" in precision or "zero" in text(row, "zero_stage")):
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
            rank = re.search(r"rank (\d+)", name)
            return replace(optimizer, low_rank=int(rank.group(1))) if rank else optimizer
    raise Skip(f"not modelled: optimizer {name[:40]}")


def _quantization(row: Row, catalog: Catalog) -> Any:
    name = text(row, "quant")
    if "gptq" in name:
        wanted = "gptq"
    elif "dq" in name or ("double" in name and "no double" not in name):
        wanted = "nf4-dq"
    elif "8bit" in name or "int8" in name:
        wanted = "bnb-int8"
    elif "2bit" in name or "3bit" in name:
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


# ---- plan and machine ------------------------------------------------------------------------------------------------


def plan_of(row: Row) -> Plan:
    """Parallel degrees, sharding, recompute and offload from the words of the row."""
    words, offload = text(row, "zero_stage"), text(row, "offload")
    if "device_map" in words:
        raise Skip("not modelled: layers spread by device_map, one GPU at a time")
    if "sequence parallel" in words:
        raise Skip("not scoreable: sequence-parallel degree not stated")
    gpus = number(row, "gpus", 1.0)
    degrees = {name: _degree(words, name) for name in ("tp", "pp", "cp", "ep")}
    if is_megatron(row) and gpus > 1 and not any(degrees.values()):
        raise Skip("not scoreable: parallel degrees not stated")
    tensor, pipeline, context, experts = (degrees[name] or 1.0 for name in ("tp", "pp", "cp", "ep"))
    interleave = re.search(r"interleave (\d+)", words)
    stage = 0.0
    if "zero3" in words or "fsdp" in words:
        stage = 3.0
    elif "zero2" in words or "zero-2" in words:
        stage = 2.0
    elif "zero1" in words or is_megatron(row):
        stage = 1.0
    recompute = text(row, "activation_checkpointing")
    level = "selective" if "selective" in recompute else "none" if recompute in ("", "none", "no") else "full"
    host = "none"
    if offload not in ("", "no", "none"):
        host = "optimizer" if "optimizer" in offload and "param" not in offload else "all"
    return Plan(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        expert_parallel=experts,
        data_parallel=max(1.0, gpus / (tensor * pipeline * context)),
        micro_batch=number(row, "micro_batch", 1.0),
        zero_stage=stage,
        recompute=float(RECOMPUTE.index(level)),
        offload=float(OFFLOAD.index(host)),
        virtual_pipeline=float(interleave.group(1)) if interleave else 1.0,
    )


def _degree(words: str, name: str) -> float | None:
    found = re.search(rf"\b{name}(\d+)", words)
    return float(found.group(1)) if found else None


def usable_bytes_of(row: Row, catalog: Catalog) -> float | None:
    """Memory of the row's GPU: by name, or by a size in its name; None where it is not said."""
    name = str(row.get("gpu") or "")
    for known, gpu in catalog.gpus.items():
        if name.casefold() == known.casefold():
            return gpu.memory_bytes
    size = re.search(r"(\d+)\s*\+?\s*G", name)
    return float(size.group(1)) * GIB * USABLE_SHARE if size else None


def nodes_of_row(row: Row, catalog: Catalog) -> Nodes:
    """Machines with as many GPUs as the row, at most eight in one; which GPU makes no difference to memory."""
    gpus = max(1, round(number(row, "gpus", 1.0)))
    per_node = min(gpus, 8)
    name = next((known for known in catalog.gpus if known.casefold() == text(row, "gpu")), DEFAULT_GPU)
    return shapes.nodes_of([shapes.Shape(name, per_node, -(-gpus // per_node), None, None)], catalog.gpus)


def sequence_of(row: Row, catalog: Catalog) -> Floats | float:
    """Longest sequence: as stated, or a share of it where the stated one only caps padded samples."""
    stated = number(row, "seq_len", DEFAULT_SEQUENCE)
    if "cap" not in text(row, "seq_len_kind").split("(")[0]:
        return stated
    longest, mean = (catalog.assumptions[f"training_memory_capped_{name}"] for name in ("length", "mean"))
    micro = number(row, "micro_batch", 1.0)
    shares: Floats = (longest + (micro - 1) * mean) / micro
    return stated * shares


def ask(row: Row, catalog: Catalog) -> Asked:
    """
    The question a row answers.

    Raises
    ------
    Skip
        If it cannot be asked.
    """
    plan = plan_of(row)
    usable = usable_bytes_of(row, catalog)
    model = model_of(row, catalog)
    return Asked(
        model=model,
        job=job_of(row, catalog, plan, sequence_of(row, catalog)),
        plan=plan,
        nodes=nodes_of_row(row, catalog),
        usable_bytes=usable,
    )
