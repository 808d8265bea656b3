"""
Serving speed against `decode_throughput.csv`: decode, prefill, online latency and offline throughput.

Each kind of row is scored on its own quantity, in the table's unit. Rows of one model, format, engine and machine are
estimated together, as plans of one call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.accuracy.inputs import note
from gpuguide.accuracy.serving_rows import number
from gpuguide.accuracy.serving_runs import MANY, Run, runs_of
from gpuguide.accuracy.table import SCORED, Scorer
from gpuguide.errors import GuideError
from gpuguide.estimate import serving, serving_memory
from gpuguide.estimate.results import ServingSpeed
from gpuguide.estimate.serving_rates import compute_flops
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.units import Number, in_order

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

FILE = "decode_throughput"
BEST_SHARE = 0.7
"""Best share of the dense peak that a serving run can keep up, prefill and decode together; large products alone reach
0.73 to 0.87 in 16 bit and 0.70 to 0.78 in 8 bit (`docs/formulas.md`, "Matrix multiplication"). [-]"""
CALIBRATED: Mapping[str, tuple[float, float]] = {
    "serving_speed_bandwidth_hbm": (0.7, 0.92),
    "serving_speed_bandwidth_gddr": (0.75, 0.97),
    "serving_speed_dequantised": (0.4, 1.0),
    "serving_speed_cache": (0.4, 1.0),
    "serving_speed_native_cache": (0.1, 1.0),
    "serving_speed_native_bytes_per_clock": (3.0, 16.0),
    "serving_speed_layer_s": (20e-6, 100e-6),
    "serving_speed_eager_layer_s": (200e-6, 1500e-6),
    "serving_speed_moe_layer_s": (0.0, 150e-6),
    "serving_speed_step_s": (0.0, 5e-3),
    "serving_speed_matmul_16bit": (0.5, 1.0),
    "serving_speed_matmul_8bit": (0.3, 1.0),
    "serving_speed_matmul_4bit": (0.15, 0.8),
    "serving_speed_native_matmul": (0.2, 0.9),
    "serving_speed_native_flops_per_joule": (0.2e12, 2e12),
}
"""Constants fitted to the tables scored here, with bounds that physics allows."""


# ---- from runs to estimates -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """Runs of one group as one call: a plan for each run."""

    model: Model
    job: ServingJob
    plan: Plan
    nodes: Nodes
    catalog: Catalog

    @property
    def room(self) -> Number:
        """Room for the cache on each GPU, (band, plan, node). [bytes]"""
        return serving_memory.kv_room_bytes(
            model=self.model, job=self.job, plan=self.plan, nodes=self.nodes, assumptions=self.catalog.assumptions
        )

    def speed(self) -> ServingSpeed:
        """The estimate at the runs' load."""
        return serving.serving_speed(
            model=self.model, job=self.job, plan=self.plan, nodes=self.nodes, assumptions=self.catalog.assumptions,
            kv_room_bytes=self.room,
        )  # fmt: skip


def asked(runs: list[Run], catalog: Catalog) -> Asked:
    """Runs of one group as columns of one call."""
    first = runs[0]

    def column(name: str) -> Floats:
        return np.array([[getattr(run, name)] for run in runs], dtype=np.float64)

    job = ServingJob(
        weight_format=first.weight_format, kv_bytes_per_element=first.kv_bytes, prompt_tokens=column("prompt"),
        output_tokens=column("output"), max_context=column("prompt") + column("output"),
        concurrency=column("concurrency"),
        requests_per_s=first.rate, engine=first.engine, attention_data_parallel=first.attention_data_parallel,
    )  # fmt: skip
    plan = Plan(
        tensor_parallel=column("tensor"), pipeline_parallel=column("stages"), expert_parallel=column("experts"),
        data_parallel=column("replicas"),
    )  # fmt: skip
    nodes = catalog.nodes(first.gpu, first.per_node, first.machines)
    note(model=first.model, job=job, plan=plan, nodes=nodes)
    return Asked(first.model, job, plan, nodes, catalog)


def _decode_rate(question: Asked) -> Floats:
    """Tokens per second of one request. [1/s]"""
    speed = question.speed()
    return 1.0 / np.asarray(speed.tpot_s)


def _time_per_token(question: Asked) -> Floats:
    """[ms]"""
    return np.asarray(question.speed().tpot_s) * 1e3


def _first_token(question: Asked) -> Floats:
    """[ms]"""
    return np.asarray(question.speed().ttft_s) * 1e3


def _throughput(question: Asked) -> Floats:
    """[tokens/s]"""
    return np.asarray(question.speed().tokens_per_s)


def _prefill_rate(question: Asked) -> Floats:
    """[tokens/s]"""
    seconds = serving.prompt_s(
        model=question.model, job=question.job, plan=question.plan, nodes=question.nodes,
        assumptions=question.catalog.assumptions,
    )  # fmt: skip
    return np.asarray(question.job.prompt_tokens / seconds)


def _static_rate(question: Asked) -> Floats:
    """Of a batch that starts and ends together. [tokens/s]"""
    return np.asarray(
        serving.static_batch_tokens_per_s(
            model=question.model,
            job=question.job,
            plan=question.plan,
            nodes=question.nodes,
            assumptions=question.catalog.assumptions,
        )
    )


def _column(name: str) -> Callable[[Mapping[Any, Any]], float]:
    def measured(row: Mapping[Any, Any]) -> float:
        return _or_nan(number(row, name))

    return measured


def _prefill_measured(row: Mapping[Any, Any]) -> float:
    """Rate of prefill, or from the time to the first token of a prompt. [tokens/s]"""
    first, prompt = number(row, "ttft_ms"), number(row, "input_len")
    return _or_nan(number(row, "prefill_tok_s") or (prompt / first * 1e3 if first and prompt else None))


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a kind of row is scored on."""

    kind: str
    measured: Callable[[Mapping[Any, Any]], float]
    estimate: Callable[[Asked], Floats]
    moe: bool | None = None  # only such models
    most_load: float | None = None  # only rows with at most so many requests


_TOKENS_PER_S, _TPOT_MS, _TTFT_MS = _column("output_tok_s_total"), _column("tpot_ms"), _column("ttft_ms")

QUANTITIES = {
    "decode_bs1": Quantity("decode_bs1", _TOKENS_PER_S, _decode_rate),
    "decode_batch_static": Quantity("decode_batch_static", _TOKENS_PER_S, _static_rate),
    "prefill": Quantity("prefill", _prefill_measured, _prefill_rate),
    "serving_online": Quantity("serving_online", _TPOT_MS, _time_per_token),
    "serving_online_dense": Quantity("serving_online", _TPOT_MS, _time_per_token, moe=False),
    "serving_online_moe": Quantity("serving_online", _TPOT_MS, _time_per_token, moe=True),
    "serving_online_ttft": Quantity("serving_online", _TTFT_MS, _first_token, moe=False, most_load=8.0),
    "serving_online_moe_ttft": Quantity("serving_online", _TTFT_MS, _first_token, moe=True, most_load=8.0),
    "serving_offline_max": Quantity("serving_offline_max", _TOKENS_PER_S, _throughput),
    "e2e_bs1": Quantity("e2e_bs1", _TOKENS_PER_S, _static_rate),
}
"""Table names after the file's; `_moe`: mixtures of experts apart; `_ttft`: first tokens, up to eight requests."""


def score(frame: pd.DataFrame, catalog: Catalog, quantity: Quantity) -> pd.DataFrame:
    """
    Estimates beside measurements for one kind of row.

    Parameters
    ----------
    frame : DataFrame
        The whole file; rows of other kinds are left out.
    catalog : Catalog
        Models, GPUs, formats, engines and assumptions.
    quantity : Quantity
        What is compared.

    Returns
    -------
    DataFrame
        Columns of `accuracy.table.SCORED`.
    """
    records = [row for row in frame.to_dict("records") if _belongs(row, quantity)]
    runs, skipped = runs_of(records, catalog)
    measured = np.array([quantity.measured(row) for row in records], dtype=np.float64)
    bands = np.full((3, len(records)), np.nan)
    if quantity.kind == "serving_online":
        skipped |= _above_peak(records, runs, catalog)
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        if np.isnan(measured[run.place]):
            skipped[run.place] = "not scoreable: not measured in this row"
        if run.place not in skipped:
            groups.setdefault(run.group, []).append(run)
    for members in groups.values():
        places = [run.place for run in members]
        try:
            found = quantity.estimate(asked(members, catalog))
        except GuideError as reason:
            skipped |= dict.fromkeys(places, f"not scoreable: {reason}")
            continue
        bands[:, places] = in_order(np.asarray(found)[:, :, 0])
    low, typical, high = bands
    return pd.DataFrame(
        {
            "row_id": [row["row_id"] for row in records],
            "source_id": [row["source_id"] for row in records],
            "measured": measured,
            "low": low,
            "typical": typical,
            "high": high,
            "skip": [skipped.get(place, "") for place in range(len(records))],
            "expected": "",
            "verdict": "",
            "label": [_label(row) for row in records],
        },
        columns=list(SCORED),
    )


def _belongs(row: Mapping[Any, Any], quantity: Quantity) -> bool:
    if row.get("kind") != quantity.kind:
        return False
    if quantity.moe is not None:
        total, active = number(row, "params_b"), number(row, "active_params_b")
        mixed = bool(total and active and active < 0.95 * total)
        if mixed != quantity.moe:
            return False
    load = re.search(r"\d+(?:\.\d+)?", str(row.get("batch_or_concurrency")))
    return quantity.most_load is None or (load is not None and float(load.group()) <= quantity.most_load)


def _label(row: Mapping[Any, Any]) -> str:
    gpus = number(row, "n_gpus") or 1
    return f"{row['model']} {row['weight_format']} on {gpus:.0f} x {row['gpu']}, {row['engine']}"


def _above_peak(records: list[dict[Any, Any]], runs: list[Run], catalog: Catalog) -> dict[int, str]:
    """
    Rows that would need more arithmetic than matrix units deliver, had every prompt been computed: prompts were reused.

    The rate of requests follows from the row's own latencies; the limit is the peak times the best share of it.
    """
    found = {}
    for run in runs:
        first, each = number(records[run.place], "ttft_ms"), number(records[run.place], "tpot_ms")
        if first is None or each is None or run.concurrency >= MANY or run.rate is not None:
            continue
        stay_s = (first + each * (run.output - 1.0)) / 1e3
        flops = 2.0 * float(run.model.params_active - run.model.params_embedding) * (run.prompt + run.output)
        nodes = catalog.nodes(run.gpu, run.per_node, run.machines)
        peak, _ = compute_flops(nodes=nodes, precision=run.weight_format.compute_precision)
        if run.concurrency / stay_s * flops > BEST_SHARE * float(peak[0]) * run.tensor * run.stages:
            found[run.place] = "not scoreable: prompts were reused, the rate is above what matrix units deliver"
    return found


def _scorer(quantity: Quantity) -> Scorer:
    def scorer(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
        return score(frame, catalog, quantity)

    return scorer


SCORERS: dict[str, Scorer] = {f"{FILE}:{name}": _scorer(quantity) for name, quantity in QUANTITIES.items()}
