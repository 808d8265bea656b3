"""
Serving memory against `inference_memory.csv`: loaded weights, cache per token, cache room, peaks, refusals to start.

Quantities are in GiB per GPU as in the table, bytes for the cache of one token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpuguide.accuracy.inputs import note
from gpuguide.accuracy.serving_rows import (
    NotScoreable,
    Row,
    engine_of,
    flag,
    format_of,
    kv_bytes_of,
    model_of,
    nodes_of,
    number,
    setting,
    text,
)
from gpuguide.accuracy.table import SCORED, Scorer
from gpuguide.errors import GuideError
from gpuguide.estimate import serving_memory as estimate
from gpuguide.estimate.kv_cache import cache_bytes_per_sequence, rank_share
from gpuguide.estimate.weights import weight_bytes_per_gpu
from gpuguide.spec.assumptions import Assumptions
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import GIB, HIGH, TYPICAL, in_order

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

Band = NDArray[np.float64]  # low, typical, high
LOG_ROUNDING = 0.002
"""Logs print GiB with two decimals: a quotient of such figures is known to about this. [-]"""
DEFAULT_CONTEXT = 8192.0
"""Asked for where a row does not say how long a sequence must fit. [tokens]"""
REFUSED = ("refuse", "fail", "oom", "out of memory", "does not", "no kv")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One row as a question to the estimates."""

    model: Model
    job: ServingJob
    plan: Plan
    nodes: Nodes
    assumptions: Assumptions
    row: Row

    @property
    def arguments(self) -> dict[str, Any]:
        """What every memory estimate takes."""
        names = ("model", "job", "plan", "nodes", "assumptions")
        return {name: getattr(self, name) for name in names}

    @property
    def label(self) -> str:
        """Model, format, engine and card in words."""
        return (
            f"{self.model.name} {self.job.weight_format.name}, {self.job.engine.name}, "
            f"{self.plan.tensor_parallel * self.plan.pipeline_parallel:.0f} x {text(self.row, 'gpu')}"
        )


def run_of(row: Row, catalog: Catalog, *, any_card: bool = False, any_engine: bool = False) -> Run:
    """
    The run a row describes; any card or engine will do where the quantity asked does not depend on it.

    Raises
    ------
    NotScoreable
        If its model, engine or card is not known and cannot be derived.
    """
    model = model_of(row, catalog)
    try:
        engine = engine_of(row, catalog.engines)
    except NotScoreable:
        if not any_engine:
            raise
        engine = catalog.engines["vllm"]
    gpus = number(row, "n_gpus") or 1.0
    stages = number(row, "pp") or 1.0
    if engine.family in ("llama.cpp", "transformers") and engine.name != "gpt-fast":
        tensor, stages = 1.0, max(stages, gpus)  # layers are split over cards
    else:
        tensor = number(row, "tp") or gpus / stages
    eager = flag(row, "enforce_eager")
    batch = number(row, "batch", "batch_or_concurrency") or 1.0
    context = number(row, "max_model_len", "context_tokens") or _context_in_words(row)
    context = context or min(model.max_context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    prompt, output = _lengths(row, context)
    chunk = setting(row, "max_num_batched_tokens") or setting(row, "chunked_prefill_size")
    if chunk is None and engine.whole_prompt and engine.prepares_sequences and number(row, "max_model_len") is None:
        chunk = engine.prefill_tokens
    job = ServingJob(
        weight_format=format_of(row, catalog.weight_formats, model),
        kv_bytes_per_element=kv_bytes_of(row),
        prompt_tokens=prompt,
        output_tokens=output,
        max_context=max(context, prompt + output) if number(row, "max_model_len") is None else context,
        concurrency=batch,
        engine=engine,
        memory_utilization=number(row, "gpu_memory_utilization"),
        prefill_chunk_tokens=chunk,
        max_sequences=setting(row, "max_num_seqs"),
        cuda_graphs=not eager,
        text_only=flag(row, "language_model_only"),
    )
    plan = Plan(tensor_parallel=tensor, pipeline_parallel=stages, data_parallel=max(1.0, gpus / (tensor * stages)))
    nodes = nodes_of(row, catalog, gpus, any_card=any_card)
    note(model=model, job=job, plan=plan, nodes=nodes)
    return Run(model=model, job=job, plan=plan, nodes=nodes, assumptions=catalog.assumptions, row=row)


def _context_in_words(row: Row) -> float | None:
    """'max_model_len lowered from 32k': what was asked for."""
    found = re.search(r"max_model_len\D+(\d+)(k?)", text(row, "outcome"))
    return float(found.group(1)) * (1024 if found.group(2) else 1) if found else None


def _lengths(row: Row, context: float) -> tuple[float, float]:
    """Prompt and answer: from columns, from a note such as 'input 64 + output 64', or half of the context each."""
    prompt, output = number(row, "input_len"), number(row, "output_len")
    noted = re.search(r"input (\d+) \+ output (\d+)", text(row, "notes"))
    if noted:
        prompt, output = float(noted.group(1)), float(noted.group(2))
    if prompt is None or output is None:
        return max(context / 2, 1.0), max(context / 2, 0.0)
    return max(prompt, 1.0), output


# ---- quantities -----------------------------------------------------------------------------------------------------


def weights_gib(run: Run) -> Band:
    """Loaded weights of the rank that a log shows: the first pipeline stage. [GiB]"""
    job = run.job
    loaded = weight_bytes_per_gpu(
        model=run.model, weight_format=job.weight_format, plan=run.plan, text_only=job.text_only, stage="first"
    )
    packed = job.weight_format.bits_per_weight < 12
    share = run.assumptions["serving_memory_packed_share" if packed else "serving_memory_weight_share"]
    return _band(np.asarray(loaded) * share / GIB)


def kv_bytes_per_token(run: Run) -> Band:
    """Cache of one token on one GPU, short of any window. [bytes]"""
    one = cache_bytes_per_sequence(
        model=run.model, tokens=1.0, bytes_per_element=run.job.kv_bytes_per_element, state_bytes_per_element=0.0
    )
    on_rank = float(one * rank_share(model=run.model, tensor_parallel=run.plan.tensor_parallel))
    stage = np.ceil(run.model.layers / run.plan.pipeline_parallel) / run.model.layers
    rate: Band = on_rank * stage * np.array([1 - LOG_ROUNDING, 1.0, 1 + LOG_ROUNDING])
    return rate


def kv_room_gib(run: Run) -> Band:
    """Memory left for the cache. [GiB]"""
    room = estimate.kv_room_bytes(**run.arguments)
    return _band(np.asarray(room) / GIB)


def peak_gib(run: Run) -> Band:
    """
    What a framework that reserves nothing allocates at its peak, all GPUs together. [GiB]

    Notes
    -----
    Benchmark scripts print the allocator's own peak, which has neither the context nor libraries. Some reset it after
    the prompt: the low end has no prefill pass.
    """
    arguments = run.arguments
    need = estimate.serving_memory(**arguments)
    prompt_only = replace(run.job, output_tokens=0.0, max_context=run.job.prompt_tokens)
    prompt_cache = estimate.needed_cache_bytes(**{**arguments, "job": prompt_only})
    stages = run.plan.pipeline_parallel
    at_end = (_band(need.weights) + _band(need.kv_cache)) * stages
    at_prompt = (_band(need.weights) + _band(prompt_cache)) * stages + _band(need.activations)
    own = _band(need.buffers) + (_band(need.reserved) if run.job.engine.family == "llama.cpp" else 0.0)
    peak: Band = (np.maximum(at_end, at_prompt * np.array([0.0, 1.0, 1.0])) + own) / GIB
    return peak


def verdict(run: Run) -> str:
    """Whether one sequence at the longest context finds cache: 'fits', 'tight' or 'no'."""
    arguments = run.arguments
    room = np.asarray(estimate.kv_room_bytes(**arguments)).ravel()
    need = np.broadcast_to(np.asarray(estimate.needed_cache_bytes(**arguments)).ravel(), (3,))
    total = np.asarray(estimate.serving_memory(**arguments).total).ravel()
    limit = float(estimate.serving_fits_limit(job=run.job, nodes=run.nodes, assumptions=run.assumptions)[0])
    if room[TYPICAL] < need[TYPICAL] or total[TYPICAL] > limit:
        return "no"
    return "fits" if room[HIGH] >= need[HIGH] and total[HIGH] <= limit else "tight"


def _band(value: Any) -> Band:
    """Low, typical and high, from an array of shape (3, 1, 1) or a scalar."""
    band: Band = in_order(np.broadcast_to(np.asarray(value, dtype=np.float64).ravel(), (3,)))
    return band


# ---- scorers --------------------------------------------------------------------------------------------------------


def _measured(column: str) -> Callable[[Row], float | None]:
    def measured(row: Row) -> float | None:
        asked = text(row, "score_on")
        return number(row, column) if not asked or column in asked.split("|") else None

    return measured


def _measured_per_token(row: Row) -> float | None:
    """Bytes per token where the log's own figures give it."""
    implied = number(row, "kv_bytes_per_token_per_gpu_implied")
    room, tokens = number(row, "kv_available_gib_per_gpu"), number(row, "kv_cache_tokens")
    if implied is None and room and tokens:
        return room * GIB / tokens
    return implied


def _is_plain(run: Run) -> bool:
    """Whether every layer caches every token: else engines print tokens that are no rate."""
    return not (np.any(np.asarray(run.model.layers_windowed) > 0) or np.any(np.asarray(run.model.layers_recurrent) > 0))


def _scorer(
    measured: Callable[[Row], float | None],
    estimated: Callable[[Run], Band],
    *,
    only: Callable[[Run], bool] = lambda run: True,
    outcomes: bool = False,
    any_engine: bool = False,
) -> Scorer:
    def score(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
        records = []
        for record in frame.to_dict("records"):
            row = {str(column): cell for column, cell in record.items()}
            if text(row, "evidence") == "suspect" or text(row, "score_on") == "none":
                continue
            value = measured(row)
            expected = _expected(row) if outcomes else ""
            if value is None and not expected:
                continue
            try:
                run = run_of(row, catalog, any_card=not outcomes, any_engine=any_engine)
                if not only(run):
                    continue
                low, typical, high = estimated(run) if value is not None else (np.nan, np.nan, np.nan)
                said = verdict(run) if expected else ""
                label, skip = run.label, ""
            except (NotScoreable, GuideError) as reason:
                low = typical = high = np.nan
                said, label, skip = "", text(row, "model"), str(reason)
            records.append(
                {
                    "row_id": row.get("row_id"),
                    "source_id": row.get("source_id"),
                    "measured": np.nan if value is None else value,
                    "low": low,
                    "typical": typical,
                    "high": high,
                    "skip": skip,
                    "expected": expected,
                    "verdict": said,
                    "label": label,
                }
            )
        return pd.DataFrame(records, columns=list(SCORED))

    return score


def _expected(row: Row) -> str:
    """'fits' or 'no', where a row says whether the server started."""
    if text(row, "kind") == "oom":
        return "no"
    said = text(row, "outcome").casefold()
    if not said or text(row, "kind") == "peak_total":
        return ""
    return "no" if any(word in said for word in REFUSED) else "fits"


SCORERS: dict[str, Scorer] = {
    "inference_memory:weights": _scorer(_measured("weights_gib_per_gpu"), weights_gib, any_engine=True),
    "inference_memory:kv_bytes_per_token": _scorer(
        _measured_per_token, kv_bytes_per_token, only=_is_plain, any_engine=True
    ),
    "inference_memory:kv_room": _scorer(_measured("kv_available_gib_per_gpu"), kv_room_gib, outcomes=True),
    "inference_memory:peak": _scorer(_measured("peak_total_gib"), peak_gib),
}


def _oom(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    return _scorer(lambda row: None, weights_gib, outcomes=True)(frame[frame["kind"] == "oom"], catalog)


SCORERS["decode_throughput:oom"] = _oom
