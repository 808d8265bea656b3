"""
The command line: `gpuguide decide`, `memory`, `model`, `offers`, `refresh`, `accuracy`, `app`, `lab` and more.

Exit status: 0 answered ("nothing fits" is an answer), 2 wrong input (one sentence on standard error), 1 our fault.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from gpuguide.commands import register
from gpuguide.commands.across import across, print_across
from gpuguide.commands.calibration import print_cross_validation
from gpuguide.commands.own import Assumed, catalog_with, use_everywhere
from gpuguide.commands.start import commands_for, start_quickly
from gpuguide.errors import GuideError, short

app = typer.Typer(
    help="Decide which cloud GPU to rent for a model, and what it will really cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    callback=lambda: None,  # keeps a command that is alone under its name
)

ScenarioFile = Annotated[
    str | None,
    typer.Argument(metavar="[SCENARIO]", help="TOML, YAML or JSON file, JSON Lines, or - for standard input."),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key; repeat for more.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]

Crowd = Literal["few", "many"]


UsageError: Any = typer.BadParameter.__base__
"""What the parser raises for words it does not know; Typer gives no name of its own to it."""


def main() -> None:
    """Run the command line and turn every error into one sentence and an exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a sign must not end the answer
    words = sys.argv[1:] or ["--help"]
    start_quickly(words[0])
    try:
        status = commands_for(words[0], app)(args=words, prog_name="gpuguide", standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        _fail(f"{short(error.format_message(), 300).rstrip('.')}; see {_command(error)} --help", 2)
    except GuideError as error:
        _fail(str(error), 2)
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        _drop_output()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        _fail("cancelled", 130)
    except MemoryError:
        _fail("the machine ran out of memory; ask a smaller question", 1)
    except OSError as error:
        _drop_output()
        place = f" ({short(error.filename, 200)})" if error.filename else ""
        _fail(f"a file cannot be read or written: {error.strerror or error}{place}", 2)
    except Exception as error:
        if os.environ.get("GPUGUIDE_DEBUG"):
            raise
        _fail(f"our fault: {type(error).__name__}: {error}; set GPUGUIDE_DEBUG=1 to see where", 1)
    raise SystemExit(status if isinstance(status, int) else 0)


def _command(error: Any) -> str:
    """The command whose help says what is allowed."""
    return error.ctx.command_path if getattr(error, "ctx", None) else "gpuguide"


def _drop_output() -> None:
    """What is still unwritten goes nowhere, so that Python does not try again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(sentence: str, status: int) -> NoReturn:
    typer.echo(f"gpuguide: {' '.join(sentence.split())}", err=True)
    raise SystemExit(status)


@app.command()
def decide(
    scenario: ScenarioFile = None,
    set_: Overrides = None,
    top: Annotated[int, typer.Option(min=1, help="Offers to print.")] = 10,
    all_: Annotated[bool, typer.Option("--all", help="Append what does not fit, with the memory it lacks.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    link: Annotated[bool, typer.Option("--link", help="Print the link to the page that shows it, and stop.")] = False,
    beside: Annotated[
        str | None,
        typer.Option(
            "--across",
            metavar="load|formats",
            help="Instead of offers, when serving: speed as more requests run at once, or the model in each format.",
        ),
    ] = None,
    assumptions: Assumed = None,
) -> None:
    """
    Rank every offer for a scenario, with verdict, funnel and remedies.

    Example: `gpuguide decide --set workload=lora --set model=llama-3.1-8b --top 5`
    """
    from gpuguide.catalog.scenarios import read_scenarios
    from gpuguide.decide.pipeline import decide as answer

    catalog = catalog_with(assumptions)
    asked = read_scenarios(scenario, set_ or ())
    for one in asked:
        question = catalog.resolve(one)
        if link:
            from gpuguide.spec.link import ADDRESS, link_of

            typer.echo(link_of(one, ADDRESS))
            continue
        decision = answer(question)
        if beside is not None:
            table = across(decision, beside)
            if as_json:
                _print_json(table.to_dict("records"), indent=None if len(asked) > 1 else 2)
            elif as_csv:
                _print_csv(table, header=one is asked[0])
            else:
                print_across(table, decision, beside)
        elif as_json:
            from gpuguide.show.words import spoken

            answered = decision.as_json(top=top, include_rejected=all_) | spoken(decision)
            _print_json(answered, indent=None if len(asked) > 1 else 2)
        elif as_csv:
            _print_csv(decision.columns(top=top, include_rejected=all_), header=one is asked[0])
        else:
            from gpuguide.show.terminal import print_decision

            print_decision(decision, top=top, include_rejected=all_)


@app.command()
def memory(
    scenario: ScenarioFile = None, set_: Overrides = None, as_json: AsJson = False, assumptions: Assumed = None
) -> None:
    """
    Break down the memory of one GPU for the best plan on the accelerator asked for.

    Example: `gpuguide memory --set workload=full --set model=llama-3.1-8b --set gpu=H100-SXM --set gpus=8`
    """
    from gpuguide.catalog.scenarios import read_scenarios
    from gpuguide.decide.pipeline import memory_of

    catalog = catalog_with(assumptions)
    asked = read_scenarios(scenario, set_ or ())
    for one in asked:
        found = memory_of(catalog.resolve(one))
        if as_json:
            _print_json(found, indent=None if len(asked) > 1 else 2)
        else:
            from gpuguide.show.terminal import print_memory

            print_memory(found, language=one.language)


@app.command()
def limits(
    scenario: ScenarioFile = None,
    set_: Overrides = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of one machine that hold the model together.")] = 1,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """
    Say what still fits on each GPU: the longest context, the largest batch, the largest model.

    Example: `gpuguide limits --set workload=qlora --set model=llama-3.1-8b`
    """
    from gpuguide.catalog.catalog import load_catalog
    from gpuguide.catalog.scenarios import read_scenarios
    from gpuguide.decide.limits import limit_columns

    (asked, *_) = read_scenarios(scenario, set_ or ())
    table = limit_columns(load_catalog().resolve(asked), gpus=gpus)
    if as_json:
        _print_json(table.records())
    elif as_csv:
        _print_csv(table)
    else:
        from gpuguide.show.terminal import print_limits

        print_limits(table, language=asked.language)


@app.command()
def model(
    source: Annotated[str, typer.Argument(help="Catalog name, config.json, model folder, .gguf file, or Hub id.")],
    as_json: AsJson = False,
) -> None:
    """
    Show what we know of a model: parameters, cache, stored bytes.

    Example: `gpuguide model llama-3.1-8b`
    """
    from gpuguide.catalog.models import Models
    from gpuguide.catalog.package import data_folder
    from gpuguide.catalog.source import facts, read_model

    known = facts(read_model(source, Models(data_folder())))
    if as_json:
        _print_json(known)
    else:
        from gpuguide.show.terminal import print_facts

        print_facts(known)


@app.command()
def offers(
    gpu: Annotated[list[str] | None, typer.Option(help="Accelerator; repeat for more.")] = None,
    min_memory: Annotated[float, typer.Option(min=0, help="Least memory of one GPU. [GB]")] = 0.0,
    provider: Annotated[list[str] | None, typer.Option(help="Provider; repeat for more.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="on_demand, marketplace, community or serverless.")] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """
    List the market: price per hour and per GPU, date and source of every row.

    Example: `gpuguide offers --gpu H100-SXM --csv`
    """
    from gpuguide.catalog.catalog import load_catalog

    table = load_catalog().listed(gpus=gpu or (), min_memory_gb=min_memory, providers=provider or (), kinds=kind or ())
    if as_json:
        _print_json(table.records())
    elif as_csv:
        _print_csv(table)
    else:
        from gpuguide.show.terminal import print_offers

        print_offers(table)


@app.command()
def refresh(
    provider: Annotated[list[str] | None, typer.Option(help="Only these providers; repeat for more.")] = None,
    as_json: AsJson = False,
) -> None:
    """
    Fetch live prices and lay those that pass every check over the shipped ones; needs the extra `refresh`.

    Example: `gpuguide refresh --provider runpod`
    """
    from gpuguide.catalog.refresh import refresh as fetch
    from gpuguide.show.terminal import print_refresh, progress_bar

    with progress_bar("prices") as step:
        report = fetch(providers=provider or (), progress=lambda done: step(done.done, done.total, done.provider))
    if as_json:
        _print_json([{name: getattr(one, name) for name in one.__slots__} for one in report.providers])
    else:
        print_refresh(report)


@app.command()
def accuracy(
    measurements: Annotated[
        Path | None, typer.Option(help="Folder of measurement tables; the shipped one if left out.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="One table alone.")] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Every run instead of the figures of its table.")] = False,
    cross: Annotated[
        bool, typer.Option("--cross-validate", help="Fit anew without one source at a time; takes a minute.")
    ] = False,
    as_json: AsJson = False,
    assumptions: Assumed = None,
) -> None:
    """
    Compare estimates with published measurements, table by table.

    Example: `gpuguide accuracy --table torch_memory`
    """
    from gpuguide.accuracy.report import score_folder

    catalog = catalog_with(assumptions)
    if cross:
        print_cross_validation(catalog, measurements, table, as_json=as_json)
        return
    scores = score_folder(catalog, measurements, only=table)
    if rows:
        frame = scores.rows()
        if as_json:
            _print_json(frame.to_dict("records"))
        else:
            _print_csv(frame)
    elif as_json:
        _print_json(scores.as_json())
    else:
        from gpuguide.show.terminal import print_scores

        print_scores(scores)


register(app)


@app.command("app")
def app_(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 8866,
    open_browser: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
    users: Annotated[Crowd, typer.Option(help="many: pages are made before they are asked for; takes 1 GB.")] = "few",
    assumptions: Assumed = None,
) -> None:
    """
    Serve the pages with Voila on this machine.

    Example: `gpuguide app --port 8866`
    """
    try:
        from gpuguide.app.serve import run
    except ImportError as error:
        _missing_extra("app", error)
    if assumptions is not None:
        use_everywhere(assumptions)
    if open_browser:
        import threading
        import webbrowser

        threading.Timer(2.0, webbrowser.open, (f"http://127.0.0.1:{port}",)).start()
    run(port=port, many=users == "many")


@app.command()
def lab(port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 8888) -> None:
    """
    Open the notebooks in JupyterLab.

    Example: `gpuguide lab`
    """
    try:
        importlib.import_module("jupyterlab")

        from gpuguide.app.serve import notebooks_folder
    except ImportError as error:
        _missing_extra("app", error)
    words = [sys.executable, "-m", "jupyterlab", f"--port={port}", f"--notebook-dir={notebooks_folder()}"]
    os.execv(sys.executable, words)


def _missing_extra(extra: str, error: ImportError) -> NoReturn:
    """Say which extra to install when a part of the suite is not there."""
    if not error.name or error.name.startswith("gpuguide"):
        raise error
    _fail(f'this needs {error.name}, which is not installed; install it with pip install "gpuguide[{extra}]"', 2)


def _print_json(value: Any, indent: int | None = 2) -> None:
    from gpuguide.decide.decision import plain

    escaped = not (sys.stdout.encoding or "utf-8").casefold().startswith("utf")
    typer.echo(json.dumps(plain(value), indent=indent, ensure_ascii=escaped, allow_nan=False, default=str))


def _print_csv(table: Any, header: bool = True) -> None:
    """Columns, or a DataFrame in the same form."""
    from gpuguide.columns import Columns

    if isinstance(table, Columns):
        table.write_csv(sys.stdout, header=header)
    else:
        sys.stdout.write(table.to_csv(index=False, header=header, lineterminator="\n"))
