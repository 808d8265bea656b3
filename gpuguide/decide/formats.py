"""
The same model in every common weight format: the best offer of each, or why there is none.

Every format is a decision of its own, everything else as the scenario has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pandas as pd

from gpuguide.decide.decision import Decision
from gpuguide.errors import NotModelled
from gpuguide.estimate.weights import stored_weights
from gpuguide.spec.job import ServingJob
from gpuguide.spec.model import Model
from gpuguide.spec.scenario import Question
from gpuguide.units import BANDS

Ask = Callable[[Mapping[str, Any]], Decision]

GROUPED = {
    "awq": {128: "awq", 64: "awq-g64", 32: "awq-g32"},
    "gptq": {128: "gptq", 64: "gptq-g64", 32: "gptq-g32"},
}
"""
Weights along a row that share a scale, and the format's name with groups of that size; the largest that fits is taken.

Rows must be whole groups, so that gpt-oss (2,880 wide) needs groups of 64. Source: AutoAWQ `WQLinear.__init__`
("in_features % group_size == 0"), vLLM `gptq_marlin.py` ("not aligned with the quantized weight shape").
"""
GGUF = ("Q8_0", "Q4_K_M")
GGUF_ENGINE = "llama.cpp"
"""The engine that GGUF files are made for; vLLM's documentation calls its own support "highly experimental"."""
GGUF_ALSO = ("bf16", "fp16")
"""Other formats that a GGUF file may hold, and llama.cpp so load."""
COPIED = (
    "provider", "gpu", "gpus", "nodes", "usable_bytes", "missing_bytes", "usd_per_million_tokens",
    *(
        f"{name}_{band}{unit}"
        for name, unit in (("memory_total", "_bytes"), ("tokens_per_s", ""), ("tpot_s", ""), ("cost_total", "_usd"))
        for band in BANDS
    ),
)  # fmt: skip
"""Columns taken from the ranking as they are."""
ABOUT = (
    "weight_format", "bits_per_weight", "engine", "weights_bytes", "asked", "fit", "reason", "lacks_bytes",
    "dropped_by",
)  # fmt: skip


def formats(decision: Decision, ask: Ask) -> pd.DataFrame:
    """
    The scenario in each weight format.

    Parameters
    ----------
    decision : Decision
        Of a serving job.
    ask : callable
        Decides the scenario with some keys changed.

    Returns
    -------
    DataFrame
        One row per format, widest first: `weight_format`, `bits_per_weight`, `engine`, `weights_bytes` (one whole
        replica), `asked` (the scenario's own format), `fit` on the GPUs that the scenario allows; where it is `no`,
        `lacks_bytes` (what one of them lacks) or `dropped_by` (the step that left no offer); `reason` why the format
        cannot be served at all (`engine`, `groups`, `nothing`; else empty); of the best offer `COPIED`, costs by the
        month, and `need_bytes` (all GPUs of one replica). Where the GPUs that the scenario names do not hold the model,
        the best offer is that of the whole market.

    Raises
    ------
    NotModelled
        For workloads other than serving.
    """
    question, scenario = decision.question, decision.scenario
    model, job = question.model, question.job
    if not isinstance(model, Model) or not isinstance(job, ServingJob):
        raise NotModelled(f"weight formats of {scenario.workload}", "ask for workload=serve")
    own = job.weight_format.name
    rows = [_row(decision, ask, {}) | {"asked": True}]
    for name, whole in _common(model):
        if name == own:
            continue
        change: dict[str, Any] = {"weight_format": name}
        loads_gguf = job.engine.family == GGUF_ENGINE
        if name in GGUF and not loads_gguf:
            change["engine"] = GGUF_ENGINE
        reason = "engine" if loads_gguf and name not in (*GGUF, *GGUF_ALSO) else "" if whole else "groups"
        if reason:
            never = _about(question.again(scenario.model_copy(update=change)))
            rows.append(never | {"fit": "no", "reason": reason, "asked": False})
        else:
            rows.append(_row(ask(change), ask, change) | {"asked": False})
    table = pd.DataFrame(rows, columns=[*ABOUT, *COPIED, "need_bytes"])
    return table.sort_values("bits_per_weight", ascending=False, kind="stable", ignore_index=True)


def _common(model: Model) -> Iterator[tuple[str, bool]]:
    """Common formats, and whether the model's rows can be stored so."""
    yield from ((name, True) for name in ("bf16", "fp8", "int8", *GGUF))
    widths = (model.hidden, model.heads * model.head_dim, model.ffn, model.moe_ffn)
    for name, sizes in GROUPED.items():
        found = [named for size, named in sizes.items() if model.derived or not any(width % size for width in widths)]
        yield (found[0], True) if found else (name, False)
    # The published mixture-of-experts form packs experts alone; a dense model has none.
    yield from ((name, True) for name in ("nf4", "mxfp4" if model.is_moe else "mxfp4-all", "nvfp4"))


def _row(after: Decision, ask: Ask, change: Mapping[str, Any]) -> dict[str, Any]:
    """The best offer of one format."""
    about = _about(after.question)
    if after.best is not None:
        return (
            about
            | {"fit": after.best["fit"], "lacks_bytes": float("nan"), "dropped_by": "", "reason": ""}
            | _copied(after)
        )
    nearest = after.top(1)  # of the GPUs that the scenario allows
    about |= {"fit": "no", "lacks_bytes": float("nan"), "dropped_by": ""}
    if not nearest.empty:
        lacks = float(nearest.iloc[0]["missing_bytes"])
        about |= {"lacks_bytes": lacks} if lacks > 0 else {"dropped_by": nearest.iloc[0]["dropped_by"]}
    if after.scenario.gpu:
        after = ask({**change, "gpu": ()})
    return about | {"reason": "nothing" if after.best is None else ""} | _copied(after)


def _about(question: Question) -> dict[str, Any]:
    model, job = cast("Model", question.model), cast("ServingJob", question.job)
    return {
        "weight_format": job.weight_format.name,
        "bits_per_weight": job.weight_format.bits_per_weight,
        "engine": job.engine.name,
        "weights_bytes": float(stored_weights(model=model, weight_format=job.weight_format).total),
    }


def _copied(decision: Decision) -> dict[str, Any]:
    """Of the best offer, or of the one nearest to fitting."""
    top = decision.top(1)
    if top.empty:
        return {}
    row = top.iloc[0]
    split = row["gpus"] / row["plan"]["data_parallel"]
    return {name: row[name] for name in COPIED} | {"need_bytes": row["memory_total_typical_bytes"] * split}
