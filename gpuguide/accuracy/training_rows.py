"""
Rows of training-memory measurements as the question they answer: model, job, plan and machine.

Everything is read from a row's own columns, in whatever words its source used; what no column says is the field's
default. A row that cannot be asked gives a `Skip` with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuguide.accuracy.training_jobs import NO, Row, Skip, is_megatron, job_of, number, sharding, text
from gpuguide.catalog import shapes
from gpuguide.errors import UnknownName
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import TrainingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import OFFLOAD, RECOMPUTE, Plan
from gpuguide.units import BILLION, GIB

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

DEFAULT_SEQUENCE = 2048.0
DEFAULT_VOCAB = 32_000.0
DEFAULT_GPU = "A100-80GB-SXM"
USABLE_SHARE = 0.985
"""Of a card named only by its size: what is left of 24 to 80 GiB after the driver; mean of `gpus.csv`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One row as a question."""

    model: Model
    job: TrainingJob
    plan: Plan
    nodes: Nodes
    usable_bytes: float | None


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


# ---- plan and machine ------------------------------------------------------------------------------------------------


def plan_of(row: Row) -> Plan:
    """Parallel degrees, sharding, recompute and offload from the words of the row."""
    words, offload = sharding(row), text(row, "offload")
    if "device_map" in words:
        raise Skip("not modelled: layers spread by device_map, one GPU at a time")
    if "sequence parallel" in words:
        raise Skip("not scoreable: sequence-parallel degree not stated")
    gpus = number(row, "gpus", 1.0)
    degrees = {name: _degree(words, name) for name in ("tp", "pp", "cp", "ep")}
    degrees["cp"] = degrees["cp"] or _degree(words, "sp")
    if is_megatron(row) and gpus > 1 and not any(degrees.values()):
        raise Skip("not scoreable: parallel degrees not stated")
    tensor, pipeline, context, experts = (degrees[name] or 1.0 for name in ("tp", "pp", "cp", "ep"))
    interleave = re.search(r"interleave (\d+)", words)
    recompute = text(row, "activation_checkpointing")
    level = "selective" if "selective" in recompute else "none" if recompute in NO else "full"
    host = "none"
    if offload not in NO and "activation" not in offload:
        host = "optimizer" if "optimizer" in offload and "param" not in offload else "all"
    return Plan(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        expert_parallel=experts,
        data_parallel=max(1.0, gpus / (tensor * pipeline * context)),
        micro_batch=number(row, "micro_batch", 1.0),
        zero_stage=_stage(words, is_megatron(row)),
        shard_in_node=1.0 if "hybrid" in words else 0.0,
        recompute=float(RECOMPUTE.index(level)),
        offload=float(OFFLOAD.index(host)),
        virtual_pipeline=float(interleave.group(1)) if interleave else 1.0,
    )


def _stage(words: str, megatron: bool) -> float:
    """ZeRO stage from any spelling; Megatron's distributed optimizer counts as stage 1."""
    if re.search(r"fsdp|full.?shard|hybrid.?shard", words):
        return 3.0
    if stated := re.search(r"(?:zero|stage|z)[-_ ]?([0-3])|^([0-3])(?:\.0)?$", words):
        return float(stated.group(1) or stated.group(2))
    return 2.0 if "shard_grad" in words else 1.0 if megatron else 0.0


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
