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

    @property
    def optional(self) -> bool:
        """Whether the key may be left out."""
        return AUTO in self.options or self.kind in ("number", "names")


def _tokens(
    key: str, low: float, high: float, start: float, presets: tuple[float, ...], workloads: tuple[str, ...]
) -> Control:
    octave = 0.0 if key == "train_tokens" else 0.25
    return Control(
        key=key, kind="log", low=low, high=high, octave=octave, integer=True, start=start, presets=presets, workloads=workloads
    )  # fmt: skip


K = 1024

CONTROLS: dict[str, Control] = {
    control.key: control
    for control in (
        # what
        Control(key="workload", kind="toggle", options=WORKLOADS, start="serve"),
        Control(key="model", kind="model", start="llama-3.1-8b"),
        Control(key="params_b", kind="log", low=0.1, high=2000, start=8.0, presets=(1, 8, 14, 32, 70, 405), workloads=LANGUAGE_MODEL),
        # training
        _tokens("train_tokens", 1e5, 2e13, 1e7, (1e6, 1e7, 1e8, 1e9, 1e11, 1e12), TRAINING),
        _tokens("sequence_length", 128, 1024 * K, 4096, (1 * K, 4 * K, 8 * K, 32 * K, 128 * K), TRAINING),
        Control(key="micro_batch", kind="log", octave=1.0, low=1, high=128, integer=True, start=1, presets=(1, 2, 4, 8, 16), workloads=TRAINING),
        Control(key="global_batch", kind="log", octave=1.0, low=1, high=16384, integer=True, start=64, presets=(16, 64, 256, 1024), workloads=TRAINING),
        Control(key="recipe", kind="choice", table="recipes", options=(AUTO,), workloads=TRAINING),
        Control(key="optimizer", kind="choice", table="optimizers", start="adamw", workloads=("pretrain", "full", *ADAPTERS)),
        Control(key="lora_rank", kind="log", octave=1.0, low=1, high=1024, integer=True, start=16, presets=(8, 16, 64, 256), workloads=ADAPTERS),
        Control(key="quantization", kind="choice", options=(AUTO, "nf4", "nf4-dq", "int8"), workloads=("qlora",)),
        Control(key="recompute", kind="choice", options=("auto", "none", "selective", "full"), start="auto", workloads=TRAINING),
        Control(key="attention", kind="choice", options=("fused", "eager"), start="fused", workloads=TRAINING),
        Control(key="fused_loss", kind="check", start=False, workloads=TRAINING),
        Control(key="offload", kind="choice", options=("none", "auto", "optimizer", "all"), start="none", workloads=TRAINING),
        Control(key="zero_stage", kind="choice", options=(AUTO, "0", "1", "2", "3"), integer=True, workloads=TRAINING),
        Control(key="tensor_parallel", kind="choice", options=(AUTO, "1", "2", "4", "8", "16"), integer=True, workloads=LANGUAGE_MODEL),
        Control(key="pipeline_parallel", kind="choice", options=(AUTO, "1", "2", "4", "8", "16"), integer=True, workloads=LANGUAGE_MODEL),
        # serving
        Control(key="weight_format", kind="choice", table="weight_formats", options=(AUTO,), workloads=("serve",)),
        Control(key="kv_format", kind="choice", options=("bf16", "fp8", "int8"), start="bf16", workloads=("serve",)),
        _tokens("max_context", 512, 1024 * K, 8 * K, (4 * K, 8 * K, 32 * K, 128 * K), ("serve",)),
        Control(key="concurrency", kind="log", octave=1.0, low=1, high=4096, integer=True, start=1, presets=(1, 8, 32, 128, 512), workloads=("serve",)),
        _tokens("prompt_tokens", 16, 512 * K, 1024, (256, 1 * K, 4 * K, 16 * K), ("serve",)),
        _tokens("output_tokens", 1, 64 * K, 256, (64, 256, 1 * K, 4 * K), ("serve",)),
        Control(key="engine", kind="choice", table="engines", start="vllm", workloads=("serve",)),
        Control(key="memory_utilization", kind="log", low=0.5, high=1.0, share=True, start=0.9, workloads=("serve",)),
        Control(key="max_ttft_s", kind="number", workloads=("serve",)),
        Control(key="max_tpot_s", kind="number", workloads=("serve",)),
        Control(key="hours_per_month", kind="log", low=1, high=744, start=730.0, presets=(40, 160, 360, 730), workloads=("serve",)),
        Control(key="load", kind="choice", options=("steady", "office", "bursts"), start="steady", workloads=("serve",)),
        # media
        Control(key="width", kind="log", octave=0.25, low=256, high=4096, integer=True, start=1024, presets=(512, 768, 1024, 1280, 2048), workloads=("image", "video")),
        Control(key="height", kind="log", octave=0.25, low=256, high=4096, integer=True, start=1024, presets=(512, 720, 1024, 2048), workloads=("image", "video")),
        Control(key="frames", kind="log", low=1, high=1024, integer=True, start=81, presets=(25, 49, 81, 121), workloads=("video",)),
        Control(key="steps", kind="log", low=1, high=200, integer=True, start=28, presets=(4, 20, 28, 50), workloads=("image", "video")),
        Control(key="batch", kind="log", octave=1.0, low=1, high=256, integer=True, start=1, presets=(1, 2, 4, 8), workloads=MEDIA),
        Control(key="items", kind="log", low=1, high=1e7, integer=True, start=1000, presets=(100, 1000, 10_000, 100_000), workloads=MEDIA),
        Control(key="audio_seconds", kind="log", low=1, high=14_400, start=60.0, presets=(10, 60, 600, 3600), workloads=("audio",)),
        # where
        Control(key="gpu", kind="names", table="gpus"),
        Control(key="gpus", kind="choice", options=(AUTO, *(str(2**power) for power in range(13))), integer=True),
        Control(key="providers", kind="names", table="providers"),
        Control(key="pricing", kind="choice", options=("on_demand", "spot", "reserved", "any"), start="on_demand"),
        Control(key="max_price_age_days", kind="choice", options=(AUTO, "30", "90", "180", "365"), integer=True),
        Control(key="headroom", kind="choice", options=("0.0", "0.05", "0.1", "0.2"), start=0.05, share=True),
        # run
        Control(key="sessions", kind="log", low=1, high=1000, integer=True, start=1, presets=(1, 5, 20, 100), workloads=TRAINING),
        Control(key="interruptions_per_hour", kind="number", workloads=TRAINING),
        Control(key="checkpoint_interval_s", kind="number", workloads=TRAINING),
        Control(key="storage_gb", kind="number"),
        Control(key="egress_gb", kind="number"),
        Control(key="setup_minutes", kind="number"),
        Control(key="deadline_hours", kind="number"),
        Control(key="budget_usd", kind="number"),
        Control(key="preference", kind="choice", options=("cheapest", "fastest", "balanced"), start="cheapest"),
    )
}  # fmt: skip


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
