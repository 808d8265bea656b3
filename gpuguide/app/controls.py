"""
One table of controls: which key of the Scenario each sets, how it looks, where it may go, for which workloads it shows.

Words stand in the text files under the control's key: `control.KEY.label`, `control.KEY.help`, names of options under
`option.KEY.VALUE`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuguide.decide.market import KINDS
from gpuguide.decide.storage import SOURCES
from gpuguide.spec.scenario import MEDIA, TRAINING, WORKLOADS

LANGUAGE_MODEL = (*TRAINING, "serve")
ADAPTERS = ("lora", "qlora")
AUTO = ""
"""Value of a control that leaves its key out: the default, or the search, decides."""

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """One control: a row of CONTROLS."""

    key: str  # of the Scenario
    kind: str  # model, log, choice, toggle, check, number, names
    workloads: tuple[str, ...] = WORKLOADS
    low: float = 1.0  # log: ends of the slider; typed values may leave them
    high: float = 1.0
    octave: float = 0.0  # log: slider step in doublings; 0 = fiftieths of a decade
    integer: bool = False
    share: bool = False  # shown as percent
    options: tuple[str, ...] = ()  # choice, toggle; AUTO first where the key may be left out
    table: str = ""  # options are the names of this table of the catalog
    start: Any = None  # shown when the Scenario has no value
    presets: tuple[float, ...] = ()  # one-tap values under a slider
    auto: bool = False  # log: an empty box leaves the key out; `start` is where the slider rests until then


def _log(key: str, low: float, high: float, start: float, presets: tuple[float, ...], **other: Any) -> Control:
    return Control(key=key, kind="log", low=low, high=high, start=start, presets=presets, **other)


def _whole(key: str, low: float, high: float, start: float, presets: tuple[float, ...], **other: Any) -> Control:
    """A slider in doublings, or in quarters of them."""
    return _log(key, low, high, start, presets, integer=True, **({"octave": 1.0} | other))


def _choice(key: str, *options: str, **other: Any) -> Control:
    return Control(key=key, kind="choice", options=options, **other)


K = 1024
QUARTER = 0.25
DEGREES = (AUTO, "1", "2", "4", "8", "16")
SERVE: dict[str, Any] = {"workloads": ("serve",)}
TRAIN: dict[str, Any] = {"workloads": TRAINING}
PICTURE: dict[str, Any] = {"workloads": ("image", "video")}
EITHER: dict[str, Any] = {"workloads": LANGUAGE_MODEL, "integer": True}

ROWS = (
    # what
    Control(key="workload", kind="toggle", options=WORKLOADS, start="serve"),
    Control(key="model", kind="model", start="llama-3.1-8b"),
    _log("params_b", 0.1, 2000, 8.0, (1, 8, 14, 32, 70, 405), workloads=LANGUAGE_MODEL),
    # training
    _log("train_tokens", 1e5, 2e13, 1e7, (1e6, 1e7, 1e8, 1e9, 1e11, 1e12), auto=True, integer=True, **TRAIN),
    _whole(
        "sequence_length",
        128,
        1024 * K,
        4096,
        (1 * K, 4 * K, 8 * K, 32 * K, 128 * K),
        auto=True,
        octave=QUARTER,
        **TRAIN,
    ),
    _whole("micro_batch", 1, 128, 1, (1, 2, 4, 8, 16), auto=True, **TRAIN),
    _whole("global_batch", 1, 16384, 64, (16, 64, 256, 1024), auto=True, **TRAIN),
    _choice("recipe", AUTO, table="recipes", **TRAIN),
    _choice("optimizer", table="optimizers", start="adamw", **TRAIN),
    _whole("lora_rank", 1, 1024, 16, (8, 16, 64, 256), workloads=ADAPTERS),
    _choice("quantization", AUTO, "nf4", "nf4-dq", "int8", "fp8", workloads=("qlora", *MEDIA)),
    _choice("recompute", "auto", "none", "selective", "full", start="auto", **TRAIN),
    _choice("attention", "fused", "eager", start="fused", **TRAIN),
    Control(key="fused_loss", kind="check", start=False, **TRAIN),
    _choice("offload", "none", "auto", "optimizer", "all", "sequential", start="none", workloads=(*TRAINING, *MEDIA)),
    _choice("zero_stage", AUTO, "0", "1", "2", "3", integer=True, **TRAIN),
    _choice("tensor_parallel", *DEGREES, **EITHER),
    _choice("pipeline_parallel", *DEGREES, **EITHER),
    # serving
    _choice("weight_format", AUTO, table="weight_formats", **SERVE),
    _choice("kv_format", "bf16", "fp8", "int8", start="bf16", **SERVE),
    _whole("max_context", 512, 1024 * K, 8 * K, (4 * K, 8 * K, 32 * K, 128 * K), octave=QUARTER, **SERVE),
    _whole("concurrency", 1, 4096, 1, (1, 8, 32, 128, 512), **SERVE),
    _whole("prompt_tokens", 16, 512 * K, 1024, (256, 1 * K, 4 * K, 16 * K), octave=QUARTER, **SERVE),
    _whole("output_tokens", 1, 64 * K, 256, (64, 256, 1 * K, 4 * K), octave=QUARTER, **SERVE),
    _choice("engine", table="engines", start="vllm", **SERVE),
    _choice("memory_utilization", AUTO, "0.8", "0.85", "0.9", "0.95", share=True, **SERVE),
    Control(key="max_ttft_s", kind="number", **SERVE),
    Control(key="max_tpot_s", kind="number", **SERVE),
    _log("hours_per_month", 1, 744, 730.0, (40, 160, 360, 730), **SERVE),
    Control(key="api_usd_per_million_tokens", kind="number", **SERVE),
    _choice("load", "steady", "office", "bursts", start="steady", **SERVE),
    # media
    _whole("width", 256, 4096, 1024, (512, 768, 1024, 1280, 2048), auto=True, octave=QUARTER, **PICTURE),
    _whole("height", 256, 4096, 1024, (512, 720, 1024, 2048), auto=True, octave=QUARTER, **PICTURE),
    _whole("frames", 1, 1024, 81, (25, 49, 81, 121), auto=True, octave=QUARTER, workloads=("video",)),
    _whole("steps", 1, 200, 28, (4, 20, 28, 50), auto=True, octave=QUARTER, **PICTURE),
    _whole("batch", 1, 256, 1, (1, 2, 4, 8), workloads=MEDIA),
    _log("items", 1, 1e7, 1000, (100, 1000, 10_000, 100_000), integer=True, workloads=MEDIA),
    _log("audio_seconds", 1, 14_400, 60.0, (10, 60, 600, 3600), workloads=("audio",)),
    # where
    Control(key="gpu", kind="names", table="gpus"),
    _choice("gpus", AUTO, *(str(2**power) for power in range(13)), integer=True),
    Control(key="providers", kind="names", table="providers"),
    Control(key="countries", kind="names", table="countries"),
    _choice("pricing", "on_demand", "spot", "reserved", "any", start="on_demand"),
    Control(key="offer_kinds", kind="names", options=KINDS, start=("on_demand",)),
    _choice("max_price_age_days", AUTO, "30", "90", "180", "365", integer=True),
    _choice("headroom", "0.0", "0.05", "0.1", "0.2", start=0.05, share=True),
    # run
    _whole("sessions", 1, 1000, 1, (1, 5, 20, 100), octave=QUARTER, **TRAIN),
    Control(key="interruptions_per_hour", kind="number", **TRAIN),
    Control(key="checkpoint_interval_s", kind="number", **TRAIN),
    _choice("data_source", *SOURCES, start="volume", **TRAIN),
    Control(key="data_gb_per_s", kind="number", **TRAIN),
    Control(key="data_bytes_per_token", kind="number", **TRAIN),
    Control(key="storage_gb", kind="number"),
    Control(key="egress_gb", kind="number"),
    Control(key="setup_minutes", kind="number"),
    Control(key="deadline_hours", kind="number"),
    Control(key="budget_usd", kind="number"),
    _choice("preference", "cheapest", "fastest", "balanced", start="cheapest"),
)
FIRST_MODEL = {"image": "flux.1-dev", "video": "wan2.1-t2v-14b", "audio": "whisper-large-v3"}
"""Chosen when a workload is chosen that the model before cannot do."""
CONTROLS: dict[str, Control] = {control.key: control for control in ROWS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What of the chosen model bounds other controls; None = not known."""

    params_b: float | None = None
    max_context: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """A value that had to give way, for the note under the controls."""

    key: str
    value: float
    reason: str  # place in the texts under `bound.`


def settle(values: Mapping[str, Any], changed: str | None, facts: Facts) -> tuple[Values, list[Bound]]:
    """
    Values that can stand together: what was changed last stays, what it bounds gives way.

    Parameters
    ----------
    values : mapping
        Value of every control by key.
    changed : str or None
        The control moved last.
    facts : Facts
        Of the chosen model.

    Returns
    -------
    values, bounds
        A new dict, and what was lowered or raised.
    """
    settled, bounds = dict(values), []
    if changed == "params_b":
        settled["model"] = AUTO
    elif facts.params_b and settled.get("model"):
        settled["params_b"] = float(f"{facts.params_b:.4g}")

    def move(key: str, value: float, reason: str) -> None:
        if settled.get(key) != value:
            settled[key] = value
            bounds.append(Bound(key=key, value=value, reason=reason))

    longest = facts.max_context
    if longest:
        for key in ("sequence_length", "max_context"):
            if settled.get(key) and settled[key] > longest:
                move(key, longest, "model")
    if settled.get("max_context") and settled.get("workload", "serve") == "serve":
        prompt, output = settled.get("prompt_tokens") or 0, settled.get("output_tokens") or 0
        if longest and prompt + output > longest:  # both in proportion
            prompt, output = (max(1, math.floor(part * longest / (prompt + output))) for part in (prompt, output))
            move("prompt_tokens", prompt, "model")
            move("output_tokens", output, "model")
        if prompt + output > settled["max_context"]:
            if changed == "max_context":
                context = settled["max_context"]
                share = max(1, math.floor(output * context / (prompt + output)))
                move("output_tokens", share, "context")
                move("prompt_tokens", max(1, context - share), "context")
            else:
                move("max_context", prompt + output, "exchange")
    micro, batch = settled.get("micro_batch"), settled.get("global_batch")
    if micro and batch and micro > batch:
        move("micro_batch", batch, "batch") if changed == "global_batch" else move("global_batch", micro, "micro")
    return settled, bounds
