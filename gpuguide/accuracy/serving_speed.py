"""
Serving speed against `decode_throughput.csv`: decode, prefill, online latency and offline throughput.

Each kind of row is scored on its own quantity, in the table's unit. Rows of one model, format, engine and machine are
estimated together, as plans of one call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpuguide.accuracy.table import SCORED, Scorer
from gpuguide.estimate import decode, serving, serving_memory
from gpuguide.estimate.results import ServingSpeed
from gpuguide.spec.engine import Engine
from gpuguide.spec.hardware import Floats, Nodes
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.plan import Plan
from gpuguide.spec.precision import WeightFormat
from gpuguide.units import Number

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

FILE = "decode_throughput"
MANY = 1e6
"""Requests of a run that queues all of them at once."""
MOST_PER_NODE = 8
"""GPUs of one machine where a row does not say: as many as it uses, up to this."""
BEST_SHARE = 0.7
"""Best share of the dense peak that a serving run can keep up, prefill and decode together; large products alone reach
0.73 to 0.87 in 16 bit and 0.70 to 0.78 in 8 bit (`docs/formulas.md`, "Matrix multiplication"). [-]"""
LARGEST_TENSOR = 16
"""Tensor-parallel degrees above this are workers counted together, whose layout the row does not give."""


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
            self.model.name, self.engine.name, self.weight_format.name, self.kv_bytes, self.gpu, self.per_node, self.machines,
            self.attention_data_parallel, self.rate,
        )  # fmt: skip


class NotScoreable(Exception):
    """A row that cannot be compared, with the reason."""


# ---- from a row to a run --------------------------------------------------------------------------------------------


def runs_of(frame: pd.DataFrame, catalog: Catalog) -> tuple[list[Run], dict[int, str]]:
    """Rows as runs, and for those that cannot be scored the reason by place."""
    runs, skipped = [], {}
    formats: dict[Hashable, Any] = {}
    for place, row in enumerate(frame.to_dict("records")):
        try:
            runs.append(_run(place, row, catalog, formats))
        except NotScoreable as reason:
            skipped[place] = str(reason)
    return runs, skipped


def _run(place: int, row: dict[str, Any], catalog: Catalog, known: dict[Hashable, Any]) -> Run:
    if str(row.get("score_on", "")) == "none" or str(row.get("evidence", "")) == "suspect":
        raise NotScoreable("not scoreable: marked so in the table")
    if row["gpu"] not in catalog.gpus:
        raise NotScoreable("not scoreable: GPU is not in the catalog")
    key = (row["model"], row.get("params_b"), row.get("active_params_b"))
    if key not in known:
        known[key] = _model(*key, catalog)
    model = known[key]
    key = (row.get("weight_format"), row.get("weight_precision"), model.native_dtype, row["engine"])
    if key not in known:
        known[key] = _format(str(key[0]), str(key[1]), model, catalog), _engine(row["engine"], catalog)
    weight_format, engine = known[key]
    layout = _layout(row)
    load = str(row.get("batch_or_concurrency") or "")
    rate = re.fullmatch(r"QPS=(\d+(?:\.\d+)?)", load)
    closed = re.fullmatch(r"\d+(?:\.\d+)?", load)
    prompt, output = _number(row.get("input_len"), 0.0), _number(row.get("output_len"), 1.0)
    gpus = max(int(layout["gpus"]), 1)
    per_node = min(gpus, MOST_PER_NODE)
    return Run(
        place=place, model=model, engine=engine, weight_format=weight_format,
        kv_bytes=_kv_bytes(row, engine, weight_format), gpu=row["gpu"], per_node=per_node,
        machines=-(-gpus // per_node), tensor=layout["tensor"], stages=layout["stages"], experts=layout["experts"],
        replicas=1.0, attention_data_parallel=layout["attention"] > 1, prompt=max(prompt, 1.0), output=max(output, 1.0),
        concurrency=float(load) if closed else MANY, rate=float(rate.group(1)) if rate else None,
    )  # fmt: skip


def _layout(row: dict[str, Any]) -> dict[str, float]:
    """
    Parallel degrees from the columns and the note.

    Notes
    -----
    Where the note gives all three degrees and experts are counted both by `moe_tp` and by `moe_ep`, each GPU was counted
    twice: such rows repeat the figures of the layout with that many GPUs, to the last digit.
    """
    note = dict(re.findall(r"(\w+)=(\d+)", str(row.get("parallel_note") or "")))
    tensor, stages = _number(row.get("tp"), 1.0), _number(row.get("pp"), 1.0)
    attention = max(float(note.get("attention_dp", 1)), 1.0)
    experts_split, experts = float(note.get("moe_tp", 1)), float(note.get("moe_ep", 1))
    if "attention_dp" in note and experts > 1:
        ranks = tensor * attention
        if experts_split == experts and ranks in (experts * experts, experts):
            tensor, attention = (1.0, experts) if attention > 1 else (experts, 1.0)
        elif tensor == attention and experts == tensor * attention:
            tensor, experts = 1.0, attention
    if tensor > LARGEST_TENSOR:
        raise NotScoreable("not scoreable: several workers counted as one tensor-parallel group")
    gpus = tensor * attention * stages
    return {
        "gpus": gpus, "tensor": tensor * attention, "stages": stages, "attention": attention, "experts": max(experts, 1.0)
    }  # fmt: skip


def _model(name: str, params_b: float, active_b: float, catalog: Catalog) -> Model:
    """The catalog's model of that name, or the nearest architecture scaled to the row's parameter counts."""
    try:
        found = catalog.model(name)
        if isinstance(found, Model):
            return found
    except LookupError:
        pass
    except Exception as error:  # UnknownName
        if "no model" not in str(error):
            raise
    if not params_b or np.isnan(params_b):
        raise NotScoreable("not scoreable: model is not in the catalog and its size is not given")
    return scaled_model(
        name, params_b * 1e9, (active_b if active_b and active_b == active_b else params_b) * 1e9, catalog
    )


def scaled_model(name: str, params: float, active: float, catalog: Catalog) -> Model:
    """The architecture of the catalog's nearest model in total and active parameters, with its counts scaled to them."""
    best, distance = None, np.inf
    for known in catalog.models.names():
        candidate = catalog.model(known)
        if not isinstance(candidate, Model) or candidate.kind not in ("dense", "moe"):
            continue
        if candidate.is_moe != (active < 0.95 * params):
            continue
        away = abs(np.log(candidate.params / params)) + abs(np.log(candidate.params_active / active))
        if away < distance:
            best, distance = candidate, away
    if best is None:
        raise NotScoreable("not scoreable: no architecture of that kind in the catalog")
    scale = params / best.params
    routed = best.params_routed_experts * scale
    return replace(
        best, name=f"{name} ({best.name} scaled)", derived=True, params=params, params_active=active,
        params_embedding=best.params_embedding * scale, params_lm_head=best.params_lm_head * scale,
        params_routed_experts=routed, params_vision=0.0,
        experts_per_token=best.experts * (1.0 - (params - active) / routed) if routed else best.experts_per_token,
        native_bytes=None,
    )  # fmt: skip


SPELLINGS = {"fp8/fp8_block": "fp8", "int4_wo": "w4a16"}
"""Formats of the table that no alias of the catalog names."""


def _format(name: str, precision: str, model: Model, catalog: Catalog) -> WeightFormat:
    """The catalog's format of that name or alias; 4-bit floats of a model published so are the published ones."""
    known = {key.casefold(): found for key, found in catalog.weight_formats.items()}
    for found in catalog.weight_formats.values():
        for alias in str(getattr(found, "aliases", "") or "").split("|"):
            known.setdefault(alias.casefold(), found)
    plain = name.casefold().strip()
    if model.native_dtype == "mxfp4" and "fp4" in plain:
        return known["mxfp4"]
    words = plain.split()
    for spelling in (
        plain,
        SPELLINGS.get(plain, ""),
        plain.replace("_", "-"),
        " ".join(words[:2]),
        words[0],
        precision.casefold(),
    ):
        if spelling in known:
            return known[spelling]
    raise NotScoreable("not scoreable: weight format is not in the catalog")


def _engine(name: str, catalog: Catalog) -> Engine:
    """The catalog's engine of that name; others run as compiled steps with what vLLM reserves."""
    plain = name.casefold().replace(" ", "-")
    engines = catalog.engines
    if plain in engines:
        return engines[plain]
    for engine in engines.values():
        if plain in (engine.name.casefold(), engine.family.casefold()):
            return engine
    return replace(next(iter(engines.values())), name=plain, family=plain)


def _kv_bytes(row: dict[str, Any], engine: Engine, weight_format: WeightFormat) -> float:
    """As the row says; where it does not, 8 bit in TensorRT-LLM beside narrow weights, else 16 bit."""
    said = str(row.get("kv_precision") or "").casefold()
    if said in ("fp8", "int8"):
        return 1.0
    if said in ("fp16", "bf16"):
        return 2.0
    return 1.0 if engine.family == "tensorrt-llm" and weight_format.compute_precision in ("fp8", "fp4") else 2.0


def _number(value: object, default: float) -> float:
    return default if value is None or value != value else float(value)  # type: ignore[arg-type]


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
        output_tokens=column("output"), max_context=column("prompt") + column("output"), concurrency=column("concurrency"),
        requests_per_s=first.rate, engine=first.engine, attention_data_parallel=first.attention_data_parallel,
    )  # fmt: skip
    plan = Plan(
        tensor_parallel=column("tensor"), pipeline_parallel=column("stages"), expert_parallel=column("experts"),
        data_parallel=column("replicas"),
    )  # fmt: skip
    nodes = catalog.nodes(first.gpu, first.per_node, first.machines)
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
        )  # fmt: skip
    )


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a kind of row is scored on."""

    kind: str
    measured: str  # column
    estimate: Callable[[Asked], Floats]
    moe: bool | None = None  # only such models
    most_load: float | None = None  # only rows with at most so many requests


QUANTITIES = {
    "decode_bs1": Quantity("decode_bs1", "output_tok_s_total", _decode_rate),
    "decode_batch_static": Quantity("decode_batch_static", "output_tok_s_total", _static_rate),
    "prefill": Quantity("prefill", "prefill_tok_s", _prefill_rate),
    "serving_online": Quantity("serving_online", "tpot_ms", _time_per_token),
    "serving_online_dense": Quantity("serving_online", "tpot_ms", _time_per_token, moe=False),
    "serving_online_moe": Quantity("serving_online", "tpot_ms", _time_per_token, moe=True),
    "serving_online_ttft": Quantity("serving_online", "ttft_ms", _first_token, moe=False, most_load=8.0),
    "serving_online_moe_ttft": Quantity("serving_online", "ttft_ms", _first_token, moe=True, most_load=8.0),
    "serving_offline_max": Quantity("serving_offline_max", "output_tok_s_total", _throughput),
    "e2e_bs1": Quantity("e2e_bs1", "output_tok_s_total", _static_rate),
}


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
        Columns `accuracy.table.SCORED`.
    """
    rows = frame[frame["kind"] == quantity.kind].reset_index(drop=True)
    if quantity.moe is not None:
        mixed = rows["active_params_b"].astype(float) < 0.95 * rows["params_b"].astype(float)
        rows = rows[mixed == quantity.moe].reset_index(drop=True)
    if quantity.most_load is not None:
        load = rows["batch_or_concurrency"].astype(str).str.removeprefix("QPS=")
        rows = rows[pd.to_numeric(load, errors="coerce") <= quantity.most_load].reset_index(drop=True)
    runs, skipped = runs_of(rows, catalog)
    measured = pd.to_numeric(rows[quantity.measured], errors="coerce").to_numpy(float)
    bands = np.full((3, len(rows)), np.nan)
    groups: dict[Hashable, list[Run]] = {}
    if quantity.kind == "serving_online":
        skipped |= _above_peak(rows, runs, catalog)
        runs = [run for run in runs if run.place not in skipped]
    for run in runs:
        if np.isnan(measured[run.place]):
            skipped[run.place] = "not scoreable: not measured in this row"
        else:
            groups.setdefault(run.group, []).append(run)
    for members in groups.values():
        found = quantity.estimate(asked(members, catalog))
        bands[:, [run.place for run in members]] = np.sort(np.asarray(found)[:, :, 0], axis=0)
    low, typical, high = bands
    places = range(len(rows))
    return pd.DataFrame(
        {
            "row_id": rows["row_id"], "source_id": rows["source_id"], "measured": measured, "low": low, "typical": typical,
            "high": high, "skip": [skipped.get(place, "") for place in places], "expected": "", "verdict": "",
            "label": [
                f"{row.model} {row.weight_format} on {row.n_gpus} x {row.gpu}, {row.engine}" for row in rows.itertuples()
            ],
        },
        columns=list(SCORED),
    )  # fmt: skip


def _above_peak(rows: pd.DataFrame, runs: list[Run], catalog: Catalog) -> dict[int, str]:
    """
    Rows that would need more arithmetic than matrix units deliver, had every prompt been computed: prompts were reused.

    The rate of requests follows from the row's own latencies; the limit is the peak times the best measured share.
    """
    found = {}
    for run in runs:
        row = rows.iloc[run.place]
        stay = (row["ttft_ms"] + row["tpot_ms"] * (run.output - 1.0)) / 1e3
        if run.concurrency >= MANY or not stay > 0:
            continue
        flops = 2.0 * float(run.model.params_active - run.model.params_embedding) * (run.prompt + run.output)
        nodes = catalog.nodes(run.gpu, run.per_node, run.machines)
        peak, _ = decode.compute_flops(nodes=nodes, precision=run.weight_format.compute_precision)
        if run.concurrency / stay * flops > BEST_SHARE * float(peak[0]) * run.tensor * run.stages:
            found[run.place] = "not scoreable: prompts were reused, the rate is above what matrix units deliver"
    return found


def _scorer(quantity: Quantity) -> Scorer:
    def scorer(frame: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
        return score(frame, catalog, quantity)

    return scorer


SCORERS: dict[str, Scorer] = {f"{FILE}:{name}": _scorer(quantity) for name, quantity in QUANTITIES.items()}
