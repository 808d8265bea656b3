"""Charts that ask about neighbouring scenarios: the same job at other sizes, loads, or ways to pay."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuguide.errors import GuideError
from gpuguide.show import figures
from gpuguide.show.figures import Figure
from gpuguide.text import Text
from gpuguide.units import GIB, HOUR

if TYPE_CHECKING:
    from gpuguide.decide.decision import Decision

Ask = Callable[[Mapping[str, Any]], "Decision"]

POINTS = 7
PRICING = ("on_demand", "spot", "reserved")


def across_context(ask: Ask, decision: Decision, text: Text) -> Figure:
    """Memory of one GPU against the longest context, on the machine that is best now."""
    best, here = decision.first, float(decision.scenario.max_context or 8192)
    most = decision.question.model.max_context if hasattr(decision.question.model, "max_context") else None
    contexts = _powers(here / 8, min(here * 8, most or here * 8))
    pinned = _pinned(best)
    answers = [_try(ask, {"max_context": int(size), **_within(decision, size), **pinned}) for size in contexts]
    # What does not fit is drawn too: the place where the line crosses is the answer.
    rows = [None if answer is None else answer.nearest for answer in answers]
    need = [math.nan if row is None else row["memory_total_typical_bytes"] / GIB for row in rows]
    series = {text("chart.need"): (contexts, need)}
    if best is not None:
        series[text("chart.usable_line", machine=f"{int(best['gpus'])}× {best['gpu']}")] = (
            contexts,
            [best["usable_bytes"] / GIB] * len(contexts),
        )
    return figures.lines(
        text,
        series,
        x=text("chart.context"),
        said_x=text.compact,
        y=text("chart.gib_per_gpu"),
        label=text("chart.context_label"),
        mark=here,
    )


def across_load(ask: Ask, decision: Decision, text: Text) -> Figure:
    """Price of a million tokens against requests at once: why serving wants to be busy."""
    here = float(decision.scenario.concurrency or 16)
    loads = _powers(max(1.0, here / 16), here * 16)
    answers = [_try(ask, {"concurrency": int(load)}) for load in loads]
    price = [
        math.nan
        if (row := _first(answer)) is None
        else row["usd_per_million_tokens"] * float(text.currency_per_usd or 1)
        for answer in answers
    ]
    return figures.lines(
        text,
        {text("chart.per_million"): (loads, price)},
        x=text("chart.requests_at_once"),
        said_x=text.compact,
        y=text("chart.per_million_axis", currency=text.currency),
        label=text("chart.load_label"),
        mark=here,
        log_y=True,
        money=True,
    )


def across_sizes(ask: Ask, decision: Decision, text: Text) -> Figure:
    """Cost of the whole run against its length, for each number of GPUs: the price of haste."""
    sizes, seconds, cost = [], [], []
    for power in range(12):
        row = _first(_try(ask, {"gpus": 2**power}))
        if row is not None:
            sizes.append(2**power)
            seconds.append(row["hours_typical"] * HOUR)
            cost.append(row["cost_total_typical_usd"] * float(text.currency_per_usd or 1))
    figure = figures.lines(
        text,
        {text("chart.run_cost"): (seconds, cost)},
        x=text("chart.time"),
        y=figures.cost_title(decision, text),
        label=text("chart.sizes_label", count=len(sizes)),
        log_y=True,
        money=True,
    )
    figure["data"][0] |= {
        "mode": "lines+markers+text",
        "text": [text.count(size) for size in sizes],
        "hovertext": [text("chart.gpus", count=size) for size in sizes],
        "textposition": "top center",
    }
    return figure


def across_sessions(ask: Ask, decision: Decision, text: Text) -> Figure:
    """What many short sessions cost: rounding, minimum charges and starting up again."""
    here = float(decision.scenario.sessions)
    counts = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    rows = [_first(_try(ask, {"sessions": int(count)})) for count in counts]
    cost = [
        math.nan if row is None else row["cost_total_typical_usd"] * float(text.currency_per_usd or 1) for row in rows
    ]
    return figures.lines(
        text,
        {text("chart.run_cost"): (counts, cost)},
        x=text("chart.sessions"),
        said_x=text.compact,
        y=figures.cost_title(decision, text),
        label=text("chart.sessions_label"),
        mark=here,
        money=True,
    )


def across_interval(ask: Ask, decision: Decision, text: Text) -> Figure:
    """What checkpoints cost against how often they are taken: too often stops the run, too seldom loses work."""
    row = _first(decision)
    best_s = 1800.0 if row is None or not row["checkpoint_interval_s"] > 0 else float(row["checkpoint_interval_s"])
    seconds = [best_s * 2.0**power for power in range(-4, 5)]
    rows = [
        _first(_try(ask, {"checkpoint_interval_s": round(value, 1), **_pinned(decision.first)})) for value in seconds
    ]
    cost = [
        math.nan if row is None else row["cost_total_typical_usd"] * float(text.currency_per_usd or 1) for row in rows
    ]
    return figures.lines(
        text,
        {text("chart.run_cost"): (seconds, cost)},
        x=text("chart.interval"),
        y=figures.cost_title(decision, text),
        label=text("chart.interval_label"),
        mark=best_s,
        money=True,
    )


def price_forms(ask: Ask, decision: Decision, text: Text) -> Figure:
    """The best offer of each way to pay, side by side, by parts of its cost."""
    import pandas as pd

    rows = []
    for pricing in PRICING:
        row = _first(_try(ask, {"pricing": pricing}))
        if row is not None:
            who = text.name("option.providers", row["provider"])
            rows.append(row | {"provider": f"{text.name('option.pricing', pricing)}: {who}"})
    frame = pd.DataFrame(rows) if rows else decision.top(0)
    return figures.cost_bars(frame, text, title=figures.cost_title(decision, text), count=len(PRICING))


def _powers(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log2(max(low, 1)) - 1e-9), math.floor(math.log2(max(high, 1)) + 1e-9)
    step = max(1, math.ceil((last - first + 1) / POINTS))
    return [2.0**power for power in range(first, last + 1, step)]


def _within(decision: Decision, context: float) -> dict[str, int]:
    """Prompt and answer no longer than the context."""
    scenario = decision.scenario
    asked = scenario.prompt_tokens + scenario.output_tokens
    if asked <= context:
        return {}
    output = max(1, int(scenario.output_tokens * context / asked))
    return {"output_tokens": output, "prompt_tokens": max(1, int(context) - output)}


def _pinned(best: Any) -> dict[str, Any]:
    return {} if best is None else {"gpu": [best["gpu"]], "gpus": int(best["gpus"]), "nodes": int(best["nodes"])}


def _try(ask: Ask, change: Mapping[str, Any]) -> Decision | None:
    try:
        return ask(change)
    except GuideError:
        return None  # beyond what this model or market has


def _first(decision: Decision | None) -> dict[str, Any] | None:
    """The best row as plain values; None where nothing fits."""
    return None if decision is None else decision.first


__all__: Sequence[str] = ["across_context", "across_load", "across_sessions", "across_sizes", "price_forms"]
