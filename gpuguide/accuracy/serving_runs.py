"""Rows of `decode_throughput.csv` as runs: model, format, engine, machine, layout and load of each."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuguide.accuracy import serving_rows
from gpuguide.accuracy.serving_rows import NotScoreable, number, text
from gpuguide.spec.engine import Engine
from gpuguide.spec.model import Model
from gpuguide.spec.precision import WeightFormat

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

MANY = 1e6
"""Requests of a run that queues all of them at once."""
MOST_PER_NODE = 8
"""GPUs of one machine where a row does not say: as many as it uses, up to this."""
LARGEST_TENSOR = 16
"""Tensor-parallel degrees above this are workers counted together, whose layout the row does not give."""
PART_OF_A_CARD = re.compile(r"\bMIG\b|\dGCD|\dg\.\d+gb", re.IGNORECASE)
FUSED = ("autoawq",)
"""Engines on top of transformers that replace its layers by fused ones."""


@dataclass(frozen=True, slots=True)
class Run:
    """One row with its names resolved."""

    place: int
    model: Model
    engine: Engine
    weight_format: WeightFormat
    kv_bytes: float
    gpu: str
    per_node: int
    machines: int
    tensor: float
    stages: float
    experts: float
    replicas: float
    attention_data_parallel: bool
    prompt: float
    output: float
    concurrency: float
    rate: float | None

    @property
    def group(self) -> Hashable:
        """What rows of one call have in common."""
        return (
            self.model.name, self.engine.name, self.engine.graphs, self.weight_format.name, self.kv_bytes, self.gpu,
            self.per_node, self.machines, self.attention_data_parallel, self.rate,
        )  # fmt: skip


def runs_of(rows: list[dict[Any, Any]], catalog: Catalog) -> tuple[list[Run], dict[int, str]]:
    """Rows as runs, and for those that cannot be scored the reason by place."""
    runs, skipped = [], {}
    known: dict[Hashable, Any] = {}
    for place, row in enumerate(rows):
        try:
            runs.append(_run(place, row, catalog, known))
        except NotScoreable as reason:
            skipped[place] = f"not scoreable: {reason}"
    return runs, skipped


def _run(place: int, row: Mapping[Any, Any], catalog: Catalog, known: dict[Hashable, Any]) -> Run:
    if text(row, "score_on") == "none" or text(row, "evidence").startswith("suspect"):
        raise NotScoreable("marked so in the table")
    gpu = _card(row, catalog, known)
    model: Model = _once(
        known, ("model", row.get("model"), row.get("params_b"), row.get("active_params_b")),
        lambda: serving_rows.model_of(row, catalog),
    )  # fmt: skip
    engine: Engine = _once(
        known, ("engine", row.get("engine"), row.get("engine_version"), row.get("source_date")),
        lambda: _engine(row, catalog),
    )  # fmt: skip
    weight_format: WeightFormat = _once(
        known, ("format", row.get("weight_format"), row.get("weight_precision"), row.get("model")),
        lambda: _format(row, model, catalog),
    )  # fmt: skip
    tensor, stages, attention, experts = _layout(row)
    used = int(tensor * stages)
    gpus = max(int(number(row, "n_gpus") or used), used)
    replicas = max(gpus // used, 1) if attention == 1 and not text(row, "parallel_note") else 1
    per_node = min(used, MOST_PER_NODE)
    concurrency, rate = _load(row)
    return Run(
        place=place, model=model, engine=engine, weight_format=weight_format,
        kv_bytes=_kv_bytes(row, engine, weight_format), gpu=gpu, per_node=per_node, machines=-(-used // per_node),
        tensor=tensor, stages=stages, experts=experts, replicas=float(replicas), attention_data_parallel=attention > 1,
        prompt=max(number(row, "input_len") or 1.0, 1.0), output=max(number(row, "output_len") or 1.0, 1.0),
        concurrency=concurrency, rate=rate,
    )  # fmt: skip


def _once(known: dict[Hashable, Any], key: Hashable, make: Any) -> Any:
    """The value of a key, made at its first use; a refusal is kept as well."""
    if key not in known:
        try:
            known[key] = make()
        except NotScoreable as reason:
            known[key] = reason
    if isinstance(known[key], NotScoreable):
        raise known[key]
    return known[key]


def _card(row: Mapping[Any, Any], catalog: Catalog, known: dict[Hashable, Any]) -> str:
    name = text(row, "gpu")
    if name in catalog.gpus:
        return name
    found: str | None = _once(known, ("card", name), lambda: serving_rows.named_card(name, catalog.gpus))
    if found is None or PART_OF_A_CARD.search(name):
        raise NotScoreable("GPU is not in the catalog")
    return found


def _engine(row: Mapping[Any, Any], catalog: Catalog) -> Engine:
    engine = serving_rows.engine_of(row, catalog.engines)
    fused = any(word in text(row, "engine").casefold() for word in FUSED)
    return replace(engine, graphs=True) if fused else engine


def _format(row: Mapping[Any, Any], model: Model, catalog: Catalog) -> WeightFormat:
    """As written; a 4-bit float of a model that is published in one is the published one."""
    found = serving_rows.format_of(row, catalog.weight_formats, model)
    published = catalog.weight_formats.get(model.native_dtype)
    is_published = published is not None and published.compute_precision == found.compute_precision == "fp4"
    return published if published is not None and is_published else found


def _kv_bytes(row: Mapping[Any, Any], engine: Engine, weight_format: WeightFormat) -> float:
    """As the row says; where it does not, 8 bit in TensorRT-LLM beside narrow weights, else 16 bit. [bytes]"""
    if text(row, "kv_precision"):
        return serving_rows.kv_bytes_of(row)
    return 1.0 if engine.family == "tensorrt-llm" and weight_format.compute_precision in ("fp8", "fp4") else 2.0


def _load(row: Mapping[Any, Any]) -> tuple[float, float | None]:
    """Requests at once, or their rate; without a number all requests are queued at once."""
    words = str(row.get("batch_or_concurrency") or "")
    found = re.search(r"\d+(?:\.\d+)?", words)
    if not found:
        return MANY, None
    if re.search(r"qps|rps|req", words, re.IGNORECASE):
        return 1.0, float(found.group())
    return max(float(found.group()), 1.0), None


def _layout(row: Mapping[Any, Any]) -> tuple[float, float, float, float]:
    """
    Ranks that share a model's layers, pipeline stages, attention replicas among the ranks, expert-parallel ranks.

    Notes
    -----
    Where the note gives all three degrees and counts experts both by `moe_tp` and by `moe_ep`, each GPU was counted
    twice: such rows repeat the latencies of the layout with that many GPUs to the last digit.
    """
    note = dict(re.findall(r"(\w+)=(\d+)", text(row, "parallel_note")))
    stages = number(row, "pp") or 1.0
    tensor = number(row, "tp") or max((number(row, "n_gpus") or 1.0) / stages, 1.0)
    attention = max(float(note.get("attention_dp", 1)), 1.0)
    split, experts = float(note.get("moe_tp", 1)), max(float(note.get("moe_ep", 1)), 1.0)
    if "attention_dp" in note and experts > 1:
        if split == experts and tensor * attention in (experts * experts, experts):
            tensor, attention = (1.0, experts) if attention > 1 else (experts, 1.0)
        elif tensor == attention and experts == tensor * attention:
            tensor, experts = 1.0, attention
    if tensor > LARGEST_TENSOR:
        raise NotScoreable("several workers counted as one tensor-parallel group")
    return tensor * attention, stages, attention, experts
