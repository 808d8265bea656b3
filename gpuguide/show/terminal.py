"""Decisions, memory, markets and scores as tables on a terminal; the same words and numbers as on the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, JustifyMethod
from rich.table import Table

from gpuguide.units import HOUR

if TYPE_CHECKING:
    from gpuguide.columns import Columns
    from gpuguide.decide.decision import Decision
    from gpuguide.show.told import Told
    from gpuguide.text import Text


OFFER_COLUMNS: dict[str, JustifyMethod] = {
    "provider": "left", "instance_type": "left", "region": "left", "gpu": "left", "gpus_per_node": "right",
    "pricing": "left", "kind": "left", "usd_per_hour": "right", "usd_per_gpu_hour": "right", "as_of": "left",
    "source": "left",
}  # fmt: skip
PIPE_WIDTH = 300
"""Columns of a line where nobody's terminal sets a limit: nothing is wrapped when another program reads it."""


def _console() -> Console:
    console = Console(emoji=False)
    return console if console.is_terminal else Console(width=PIPE_WIDTH, emoji=False)


def print_decision(decision: Decision, *, top: int, include_rejected: bool) -> None:
    """Verdict, funnel, ranked offers and warnings."""
    from gpuguide.show.names import text_with_names
    from gpuguide.show.verdict import verdict, warning

    scenario = decision.scenario
    text = text_with_names(scenario.language, scenario.currency, scenario.currency_per_usd)
    console = _console()
    console.print(verdict(decision, text), style="bold", highlight=False)
    steps = " -> ".join(f"{text.name('funnel', step)} {text.count(remaining)}" for step, remaining in decision.funnel)
    console.print(steps, style="dim", highlight=False)
    rows = decision.rows.columns(decision.best_first[:top]).records()
    if include_rejected:
        rows += decision.rows.columns(decision.others[:top]).records()
    if rows:
        console.print(_offers_table(rows, text, serving=scenario.workload == "serve"))
    for key, values in decision.warnings:
        console.print(f"! {warning(key, values, text)}", highlight=False)


def _offers_table(rows: Sequence[Mapping[str, Any]], text: Text, *, serving: bool) -> Table:
    from gpuguide.show.verdict import machine

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("#", justify="right")
    for key in ("terminal.provider", "terminal.machine", "terminal.fit"):
        table.add_column(text(key), overflow="fold")
    speed = ["terminal.tokens_per_s", "terminal.per_token", "terminal.per_million"] if serving else ["terminal.time"]
    if not serving:
        speed.insert(0, "terminal.items_per_s" if "items_per_s_typical" in rows[0] else "terminal.tokens_per_s")
    whole = "terminal.month" if serving else "terminal.whole_job"
    for key in ("terminal.per_hour", *speed, whole, "terminal.range", "terminal.price_of"):
        table.add_column(text(key), justify="right")
    for place, row in enumerate(rows, start=1):
        name = text.name("option.providers", row["provider"])
        provider = name if row["region"] == "*" else f"{name} {row['region']}"
        needed, usable = text.memory(row["memory_total_typical_bytes"]), text.memory(row["usable_bytes"])
        fit = f"{text.name('fit', row['fit'])}, {needed} / {usable}"
        cells = [str(place), provider, machine(row), fit, text.money(row["usd_per_hour"])]
        cells.append(text.number(row.get("tokens_per_s_typical", row.get("items_per_s_typical"))))
        if serving:
            cells += [text.duration(row["tpot_s_typical"]), text.money(row["usd_per_million_tokens"])]
        else:
            cells.append(text.duration(row["hours_typical"] * HOUR))
        cells.append(text.money(row["cost_total_typical_usd"]))
        cells.append(text.band("money", row["cost_total_low_usd"], row["cost_total_high_usd"]))
        table.add_row(*map(str, cells), str(row["as_of"]))
    return table


def print_memory(found: Mapping[str, Any], *, language: str) -> None:
    """Parts of the memory of one GPU."""
    from gpuguide.text import Text

    text, console = Text(language), _console()
    if not found["memory_bytes"]:
        console.print(text("verdict.no_plan"), highlight=False)
        return
    console.print(
        f"{found['model']}: {found['gpus']}x {found['gpu']}, {text.name('fit', found['fit'])}",
        style="bold",
        highlight=False,
    )
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(text("terminal.part"))
    table.add_column(text("terminal.each_gpu"), justify="right")
    for part, value in found["memory_bytes"].items():
        if part != "total" and value:
            table.add_row(text.name("part", part), text.memory(value))
    total = found["memory_bytes"]["total"]
    table.add_section()
    table.add_row(
        text.name("part", "total"),
        f"{text.memory(total['low'])} .. {text.memory(total['typical'])} .. {text.memory(total['high'])}",
    )
    table.add_row(text("terminal.usable"), text.memory(found["usable_bytes"]))
    console.print(table)
    plan = {name: value for name, value in found["plan"].items() if value not in (0, 1, "none", False)}
    console.print(", ".join(f"{name} {value}" for name, value in plan.items()), style="dim", highlight=False)
    if found.get("phases"):
        from gpuguide.show.media import phase_columns

        print_told(phase_columns(found["phases"], text), text)


def print_limits(limits: Columns, *, language: str) -> None:
    """Longest context, largest batch and largest model of each GPU."""
    from gpuguide.text import Text

    text = Text(language)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for key in (
        "terminal.machine",
        "terminal.usable",
        "terminal.max_context",
        "terminal.max_batch",
        "terminal.max_model",
    ):
        table.add_column(text(key), justify="left" if key == "terminal.machine" else "right")
    for row in limits.records():
        cells = (text.memory(row["usable_bytes"]), text.count(row["max_context_tokens"]), text.count(row["max_batch"]))
        table.add_row(f"{row['gpus']}× {row['gpu']}", *cells, text.compact(row["max_params"]))
    _console().print(table)


def print_told(told: Sequence[Told], text: Text) -> None:
    """A table that a page shows too."""
    from gpuguide.show.told import lines_of

    heads, rows = lines_of(told, text)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for head, column in zip(heads, told, strict=True):
        table.add_column(head, justify="right" if column.number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def print_facts(known: Mapping[str, Any]) -> None:
    """What we know of a model, one line a fact."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in known.items():
        shown = f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
        table.add_row(name, shown)
    _console().print(table)


def print_offers(offers: Columns) -> None:
    """The market, one line an offer: price per hour and per GPU, its day and its source."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, justify in OFFER_COLUMNS.items():
        table.add_column(name, justify=justify, no_wrap=name != "source", overflow="fold")
    for row in offers.records():
        table.add_row(*(f"{row[name]:g}" if isinstance(row[name], float) else str(row[name]) for name in OFFER_COLUMNS))
    _console().print(table)


def print_scores(scores: Any) -> None:
    """Errors of every table of measurements."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("table")
    for name in ("rows", "scored", "median error", "p90", "bias", "in band", "high/low", "right/wrong"):
        table.add_column(name, justify="right")
    for name, score in scores.by_table().items():
        outcome = f"{score.outcomes['right']}/{score.outcomes['wrong']}" if score.outcomes else ""
        shares = (score.median_abs_error, score.p90_abs_error, score.bias, score.within_band)
        ratio = "" if score.median_band_ratio is None else f"{score.median_band_ratio:.2f}"
        cells = ("" if share is None else f"{share:.1%}" for share in shares)
        table.add_row(name, str(score.rows), str(score.scored), *cells, ratio, outcome)
    _console().print(table)


def print_refresh(report: Any) -> None:
    """What became of each provider's prices."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("provider", "status", "rows", "as of", "problem"):
        table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
    for one in report.providers:
        table.add_row(one.provider, one.status, str(one.rows), one.as_of, one.problem)
    _console().print(table)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on standard error; call with how many are done, of how many, and which was the last."""
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def step(done: int, total: int, last: str) -> None:
            progress.update(task, completed=done, total=total, description=f"{what}: {last}")

        yield step
