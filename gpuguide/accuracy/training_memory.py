"""How far training-memory estimates are from published peaks: three tables, all in bytes per GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.accuracy.inputs import note
from gpuguide.accuracy.table import SCORED, Scorer
from gpuguide.accuracy.training_jobs import Skip, number, text
from gpuguide.accuracy.training_rows import Asked, ask
from gpuguide.errors import GuideError
from gpuguide.estimate.results import MemoryBreakdown
from gpuguide.estimate.training_memory import process_bytes, training_memory
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Floats
from gpuguide.units import GB, HIGH, LOW, MIB, TYPICAL

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

FITS, TIGHT, NO = "fits", "tight", "no"
CALIBRATED: Mapping[str, tuple[float, float]] = {
    "training_memory_allocator_states": (0.0, 0.15),
    "training_memory_allocator_fused": (0.0, 0.4),
    "training_memory_allocator_eager": (0.0, 0.6),
    "training_memory_capped_length": (0.2, 1.0),
    "training_memory_capped_mean": (0.05, 0.8),
}
"""Constants fitted to the tables scored here, with bounds that physics allows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Estimate of one row by what tools print. [bytes, shape (3,)]"""

    breakdown: MemoryBreakdown
    allocated: Floats
    reserved: Floats  # allocated and the allocator's reserve
    process: Floats  # what nvidia-smi shows


def answer_of(asked: Asked, assumptions: Assumptions) -> Answer:
    """The memory estimate of one row."""
    note(model=asked.model, job=asked.job, plan=asked.plan, nodes=asked.nodes)
    memory = training_memory(
        model=asked.model, job=asked.job, plan=asked.plan, nodes=asked.nodes, assumptions=assumptions
    )
    allocated = bands(memory.total) - bands(memory.reserved)
    return Answer(
        breakdown=memory,
        allocated=allocated,
        reserved=bands(memory.total) - bands(process_bytes(plan=asked.plan, assumptions=assumptions)),
        process=bands(memory.total),
    )


def bands(value: Any) -> Floats:
    """Least, typical and most of one estimate, shape (3,)."""
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (3, 1, 1))[:, 0, 0].copy()


def _frame(
    frame: pd.DataFrame, catalog: Catalog, score: Callable[[Mapping[str, Any], Catalog], list[dict[str, Any]]]
) -> pd.DataFrame:
    """Scored rows in the columns of SCORED; whatever keeps a row from being asked becomes its reason."""
    scored: list[dict[str, Any]] = []
    for record in frame.to_dict("records"):
        row = {str(key): value for key, value in record.items()}
        common = {
            "row_id": row.get("row_id"),
            "source_id": row.get("source_id", row.get("source", "")),
            "label": _label(row),
        }
        try:
            answers = score(row, catalog)
        except Skip as reason:
            answers = [{"skip": str(reason)}]
        except GuideError as error:
            answers = [{"skip": f"not modelled: {error}"}]
        scored += [common | answer for answer in answers]
    table = pd.DataFrame(scored, columns=list(SCORED))
    words = ("skip", "expected", "verdict")
    return table.assign(**{name: table[name].astype(object).where(table[name].notna(), "") for name in words})


def _label(row: Mapping[str, Any]) -> str:
    words = (row.get("model", row.get("model_shape_of", "")), row.get("method", ""), row.get("gpu", ""))
    return ", ".join(str(word) for word in words if word == word and word)


def _measured(measured: float, estimate: Floats) -> dict[str, Any]:
    return {"measured": measured, "low": estimate[LOW], "typical": estimate[TYPICAL], "high": estimate[HIGH]}


def _verdict(process: Floats, usable_bytes: float) -> str:
    if process[TYPICAL] > usable_bytes:
        return NO
    return TIGHT if process[HIGH] > usable_bytes else FITS


# ---- torch_memory ----------------------------------------------------------------------------------------------------


def score_torch_memory(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """
    Allocated peaks traced over the transformers implementation.

    These runs pass a padding mask to fused attention, keep adapters in the width of the base and step with PyTorch's
    `foreach` AdamW; they make one optimizer step per batch.
    """
    return _frame(frame, catalog, _score_traced)


def _score_traced(row: Mapping[str, Any], catalog: Catalog) -> list[dict[str, Any]]:
    adapted = text(row, "method") in ("lora", "qlora")
    params = number(row, "params") - (number(row, "trainable_params", 0.0) if adapted else 0.0)
    # The recipe is named as in our table.
    named = {
        **row,
        "params": params,
        "precision": "",
        "flash_attention": row.get("attention"),
        "fused_ce": row.get("fused_ce"),
    }
    asked = ask(named, catalog)
    recipe = catalog.recipes.get(text(row, "recipe"))
    if recipe is None:
        raise Skip(f"not modelled: recipe {text(row, 'recipe')}")
    fused = asked.job.attention == "fused"
    job = replace(
        asked.job,
        recipe=recipe,
        adapter_bytes=recipe.activation_bytes,
        foreach_optimizer=True,
        masked_attention=fused,
        global_batch=float(np.asarray(asked.plan.micro_batch)),
    )
    answer = answer_of(replace(asked, job=job), catalog.assumptions)
    return [_measured(number(row, "peak_bytes"), answer.allocated)]


# ---- training_memory -------------------------------------------------------------------------------------------------


def score_training_memory(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Published peaks, out-of-memory reports, and longest contexts that fit a card."""
    return _frame(frame, catalog, _score_published)


def _score_published(row: Mapping[str, Any], catalog: Catalog) -> list[dict[str, Any]]:
    # Your own runs may come without a word on how good they are.
    told = {"outcome": "ok", "evidence": "measured", "grade": ""} | dict(row)
    outcome, evidence, grade = (text(told, name) for name in ("outcome", "evidence", "grade"))
    if grade == "c":
        raise Skip("not scoreable: grade C")
    if outcome == "ok" and not evidence.startswith("measured"):
        raise Skip(f"not scoreable: {evidence or 'no evidence'}")
    if outcome not in ("ok", "oom", "max_fit"):
        raise Skip(f"not scoreable: outcome {outcome or 'not given'}")
    if outcome == "max_fit" and number(row, "seq_len") != number(row, "seq_len"):
        raise Skip("not scoreable: longest context not given")
    if outcome == "ok" and all(np.isnan(number(row, name)) for name in ("seq_len", "micro_batch")):
        raise Skip("not scoreable: neither length nor batch stated")
    asked = ask(row, catalog)
    answer = answer_of(asked, catalog.assumptions)
    if outcome == "ok":
        return [_measured(number(row, "peak_memory_gb") * GB, as_printed(answer, text(row, "memory_metric")))]
    if asked.usable_bytes is None:
        raise Skip("not scoreable: card not stated")
    verdict = _verdict(answer.process, asked.usable_bytes)
    if outcome == "oom":
        return [{"expected": NO, "verdict": verdict}]
    doubled = replace(asked, job=replace(asked.job, sequence_length=2 * np.asarray(asked.job.sequence_length)))
    at_twice = _verdict(answer_of(doubled, catalog.assumptions).process, asked.usable_bytes)
    # One finding of two halves: fits as long as stated, no longer at twice that.
    consistent = verdict != NO and at_twice != FITS
    return [{"expected": FITS, "verdict": verdict if consistent else NO}]


def as_printed(answer: Answer, metric: str) -> Floats:
    """The estimate of what a tool printed: tensors alone, with the allocator's reserve, or the whole process."""
    if re.search("allocated|active|tracemalloc", metric):
        return answer.allocated
    if "reserved" in metric:
        return answer.reserved
    return answer.process


# ---- training_memory_components --------------------------------------------------------------------------------------

COMPONENTS = (
    "weights", "lora", "optimizer", "gradient", "activation", "peak_allocated", "peak_reserved", "process",
)  # fmt: skip
"""The context alone is one figure of one driver and GPU, the same in every row; it is scored within `process`."""


def score_components(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Measured parts of peaks, one scored row per part; `row_id` carries the part's name."""
    return _frame(frame, catalog, _score_parts)


def _score_parts(row: Mapping[str, Any], catalog: Catalog) -> list[dict[str, Any]]:
    asked = ask({**row, "flash_attention": row.get("attention")}, catalog)
    answer = answer_of(asked, catalog.assumptions)
    part = answer.breakdown
    trained = bands(part.gradients)
    estimates = {
        "weights": bands(part.weights) - trained,
        "lora": trained,
        "optimizer": bands(part.optimizer),
        "gradient": trained,
        "activation": bands(part.activations) + bands(part.logits) + bands(part.buffers),
        "peak_allocated": answer.allocated,
        "peak_reserved": answer.reserved,
        "process": answer.process,
    }
    stored = ("weights_nf4_packed_mib", "weights_quant_scales_mib", "weights_unquantised_mib")
    measured = {name: number(row, f"{name}_mib") for name in COMPONENTS}
    measured["weights"] = sum(number(row, name, 0.0) for name in stored)
    return [
        _measured(measured[name] * MIB, estimates[name]) | {"row_id": f"{row.get('row_id')}:{name}"}
        for name in COMPONENTS
        if measured[name] == measured[name]
    ]


SCORERS: dict[str, Scorer] = {
    "torch_memory": score_torch_memory,
    "training_memory": score_training_memory,
    "training_memory_components": score_components,
}
