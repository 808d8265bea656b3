"""Rows of the throughput table as model, job, plan and machines: what a row says, and what it leaves out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.errors import GuideError
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

PRECISIONS = {"mxfp8": "fp8", "fp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
METHODS = {"pretrain": "pretrain", "sft_full": "full", "full": "full", "sft": "full", "lora": "lora", "qlora": "qlora"}
BRIDGE = re.compile(r"(?:(\d)-way )?(?:\w+ )?nvlink bridge|nvlink bridge", re.IGNORECASE)
LINKS = re.compile(r"(?:(\d+) x )?(\d+) ?Gb(?:ps|it/s)? (RoCE|InfiniBand|EFA|Ethernet)")
DEFAULT_ACCUMULATION = 4
DEFAULT_RANK = 16
ATTENTION_WORK = 1.1
"""Work per token over that of the weights alone, at the 4 to 8 thousand tokens such models are measured with. [-]"""
SPARSITY, EXPERTS_PER_TOKEN, WIDTH_PER_LAYER, TYPICAL_VOCAB = 10.0, 8.0, 80.0, 131_072.0


@dataclass(frozen=True, slots=True)
class Run:
    """One published run in our terms."""

    model: Model
    job: TrainingJob
    plan: Plan
    nodes: Nodes


class Unusable(Exception):
    """A row that cannot be scored, and why."""


def run_of(row: Mapping[Any, Any], catalog: Catalog) -> Run:
    """
    A row of `training_throughput` as model, job, plan and machines.

    Raises
    ------
    Unusable
        If the row does not say enough.
    """
    model = _model(row, catalog)
    gpus, per_node = gpus_of(row, catalog)
    tensor, pipeline, context = (number(row, name, 1.0) for name in ("tp", "pp", "cp"))
    if missing(row, "tp") or missing(row, "pp"):
        raise Unusable("parallel plan not stated")
    data = gpus / (tensor * pipeline * context)
    micro = number(row, "micro_batch", 1.0)
    batch = number(row, "global_batch", data * micro * number(row, "grad_accum", DEFAULT_ACCUMULATION))
    plan = Plan(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        expert_parallel=number(row, "ep", 1.0),
        data_parallel=data,
        micro_batch=min(micro, batch / data) if batch >= data else micro,
        zero_stage=_stage(row),
        recompute=_recompute(row),
        virtual_pipeline=number(row, "vp", 1.0),
        shard_in_node=1.0 if "hybrid" in text(row, "dp_strategy") else 0.0,
    )
    name, gbps = _fabric(row)
    nodes = catalog.nodes(text(row, "gpu"), per_node, max(int(gpus // per_node), 1), name, gbps, bridged(row))
    return Run(model, _job(row, batch, catalog), plan, nodes)


def is_moe(row: Mapping[Any, Any], catalog: Catalog) -> bool:
    if not missing(row, "active_params_b") and number(row, "active_params_b") < number(row, "params_b", np.inf):
        return True
    if not missing(row, "layers"):
        return False
    if not missing(row, "ep") and number(row, "ep") > 1:
        return True
    found = _catalogued(row, catalog)
    return found is not None and found.is_moe


def _catalogued(row: Mapping[Any, Any], catalog: Catalog) -> Model | None:
    try:
        found = catalog.model(text(row, "model"))
    except GuideError:
        return None
    return found if isinstance(found, Model) else None


def _model(row: Mapping[Any, Any], catalog: Catalog) -> Model:
    """From the row's own columns where it is dense; expert models by name, or by their printed work per token."""
    if not is_moe(row, catalog):
        if not missing(row, "layers") and not missing(row, "hidden"):
            return _dense_model(row)
        found = _catalogued(row, catalog)
        if found is None:
            raise Unusable("architecture neither in the row nor in the catalog")
        return found
    found = _catalogued(row, catalog)
    return found if found is not None else _expert_model(row)


def _expert_model(row: Mapping[Any, Any]) -> Model:
    """
    An expert model that the catalog lacks, from its active parameters.

    They are in the row, or follow from the work per token that the source printed as FLOP/s over tokens/s, which says
    nothing of the speed. What then remains unknown is as in models of its kind: a tenth of the parameters active, eight
    experts a token, layers an eightieth of the width.
    """
    active = number(row, "active_params_b") * 1e9
    if active != active and not missing(row, "tflops_per_gpu") and not missing(row, "tokens_per_s_per_gpu"):
        work = number(row, "tflops_per_gpu") * 1e12 / number(row, "tokens_per_s_per_gpu")
        active = work / 6.0 / ATTENTION_WORK
    if active != active:
        raise Unusable("architecture neither in the row nor in the catalog")
    params = number(row, "params_b", active * SPARSITY / 1e9) * 1e9
    hidden = number(row, "hidden", 128.0 * round((active * WIDTH_PER_LAYER / 12.0) ** (1 / 3) / 128.0))
    layers = number(row, "layers", round(hidden / WIDTH_PER_LAYER))
    vocab = number(row, "vocab", TYPICAL_VOCAB)
    head_dim = number(row, "head_dim", 128.0)
    heads = number(row, "heads", hidden / head_dim)
    kv_heads = number(row, "kv_heads", 8.0)
    always = layers * 2.0 * hidden * head_dim * (heads + kv_heads) + 2.0 * vocab * hidden
    routed_active = max(active - always, 0.2 * active)
    routed = max(params - (active - routed_active), routed_active)
    width = routed_active / (3.0 * hidden * layers * EXPERTS_PER_TOKEN)
    return Model(
        name=text(row, "model"), kind="moe", source="row", derived=True, params=params, params_active=active,
        params_embedding=vocab * hidden, params_lm_head=vocab * hidden, params_routed_experts=routed, layers=layers,
        hidden=hidden, ffn=width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, vocab=vocab, tied_embeddings=False,
        layers_full=layers, experts=EXPERTS_PER_TOKEN * routed / routed_active, experts_per_token=EXPERTS_PER_TOKEN,
        moe_ffn=width, moe_layers=layers,
    )  # fmt: skip


def _dense_model(row: Mapping[Any, Any]) -> Model:
    layers, hidden, vocab = (number(row, name) for name in ("layers", "hidden", "vocab"))
    heads = number(row, "heads", hidden / 128)
    kv_heads, head_dim = number(row, "kv_heads", heads), number(row, "head_dim", hidden / heads)
    ffn = number(row, "ffn_hidden", 4 * hidden)
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    table = vocab * hidden
    stated = number(row, "params_b", np.nan) * 1e9
    # The parameter count tells whether the MLP is gated and whether head and embedding are one.
    choices = {
        (gated, tied): layers * (attention + (3 if gated else 2) * hidden * ffn) + table * (1 if tied else 2)
        for gated in (False, True)
        for tied in (False, True)
    }
    gated, tied = min(choices, key=lambda key: abs(choices[key] - stated)) if stated == stated else (True, False)
    params = choices[gated, tied]
    return Model(
        name=text(row, "model"), kind="dense", source="row", params=params, params_active=params,
        params_embedding=table, params_lm_head=table, layers=layers, hidden=hidden, ffn=ffn, heads=heads,
        kv_heads=kv_heads, head_dim=head_dim, vocab=vocab, tied_embeddings=tied, gated_mlp=gated, layers_full=layers,
    )  # fmt: skip


def _job(row: Mapping[Any, Any], batch: float, catalog: Catalog) -> TrainingJob:
    precision = text(row, "precision")
    compute = PRECISIONS.get(precision, precision)
    sharded = _stage(row) >= 2
    name = "fp8" if compute in ("fp8", "fp4") else "amp-fp32-master" if sharded else "megatron-bf16"
    method = METHODS.get(text(row, "task"))
    if method is None:
        raise Unusable("not a language model")
    if compute == "fp32":
        name = "fp32"
    recipe = catalog.recipes[name]
    if recipe.compute_precision != compute:
        recipe = replace(recipe, compute_precision=compute)
    # 8- and 4-bit training runs in libraries that bring fused kernels; compiled models fuse their own.
    tuned = text(row, "compile") == "yes" or "cudnn" in text(row, "flash_attention")
    fused = compute in ("fp8", "fp4") or tuned
    return TrainingJob(
        method=method,
        train_tokens=batch * number(row, "seq_len"),
        sequence_length=number(row, "seq_len"),
        global_batch=batch,
        recipe=recipe,
        optimizer=catalog.optimizers["adamw"],
        lora_rank=number(row, "lora_rank", DEFAULT_RANK) if method in ("lora", "qlora") else 0.0,
        lora_targets=("all",) if method in ("lora", "qlora") else (),
        quantization=catalog.weight_formats["nf4-dq"] if method == "qlora" else None,
        # The position bias of ALiBi came with flash kernels that computed the masked half too.
        skips_masked="ALiBi" not in text(row, "notes"),
        attention="eager" if text(row, "flash_attention") == "no" else "fused",
        fused_loss=fused,
        fused_norms=fused,
    )


def gpus_of(row: Mapping[Any, Any], catalog: Catalog) -> tuple[float, int]:
    """GPUs of the run and of one machine."""
    if text(row, "gpu") not in catalog.gpus:
        raise Unusable("GPU or variant not in the catalog")
    if missing(row, "gpus"):
        raise Unusable("number of GPUs not stated")
    gpus = number(row, "gpus")
    nodes = number(row, "nodes", np.nan)
    rack = "NVL72" in catalog.gpus[text(row, "gpu")].link
    per_node = gpus / nodes if nodes == nodes and nodes > 0 else min(gpus, 4.0 if rack else 8.0)
    return gpus, max(round(per_node), 1)


def _stage(row: Mapping[Any, Any]) -> float:
    """ZeRO stage that a strategy's name means; a sharded optimizer where nothing is said."""
    name = text(row, "dp_strategy")
    if "grad_op" in name or "zero2" in name or "zero-2" in name:
        return 2.0
    if "fsdp" in name or "zero3" in name or "zero-3" in name:
        return 3.0
    if name == "ddp" or name.startswith("none"):
        return 0.0
    return 1.0


def _recompute(row: Mapping[Any, Any]) -> float:
    name = text(row, "activation_checkpointing")
    return 2.0 if name.startswith(("full", "yes", "block")) else 1.0 if name.startswith("selective") else 0.0


def bridged(row: Mapping[Any, Any]) -> int | None:
    """Cards that one NVLink bridge joins where the row says that there are bridges. [-]"""
    for column in ("interconnect", "notes"):
        found = BRIDGE.search(text(row, column))
        if found is not None:
            return int(found.group(1) or 2)
    return None


def _fabric(row: Mapping[Any, Any]) -> tuple[str | None, float | None]:
    """Network between machines where the row states it."""
    found = LINKS.search(text(row, "notes") or text(row, "note"))
    if found is None:
        return None, None
    return found.group(3), float(found.group(1) or 1) * float(found.group(2))


def missing(row: Mapping[Any, Any], name: str) -> bool:
    value = row.get(name)
    return value is None or value == "" or value is pd.NA or (isinstance(value, float) and value != value)


def number(row: Mapping[Any, Any], name: str, default: float = np.nan) -> float:
    return default if missing(row, name) else float(row[name])


def text(row: Mapping[Any, Any], name: str) -> str:
    return "" if missing(row, name) else str(row[name])
