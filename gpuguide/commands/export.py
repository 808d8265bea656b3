"""`gpuguide export`: the chosen offer as a file of the tool that will run it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuguide.commands.own import Assumed, catalog_with


def export(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="TOML, YAML or JSON file, a link, or -.")
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TOOL",
            help="skypilot, dstack, vllm, sglang, torchtune, axolotl, llama-factory, deepspeed or megatron.",
        ),
    ] = "skypilot",
    out: Annotated[Path | None, typer.Option("--output", "-o", help="FILE; standard output if left out.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key; repeat for more.")
    ] = None,
    assumptions: Assumed = None,
) -> None:
    """
    Write what starts the job on the best offer: a task, a command line or a launcher's settings.

    Example: `gpuguide export --set workload=serve --set model=llama-3.1-70b --to vllm`
    """
    from gpuguide.catalog.scenarios import read_scenarios
    from gpuguide.decide.pipeline import decide
    from gpuguide.errors import DataError
    from gpuguide.files import write_text
    from gpuguide.handoff import chosen, hand_off

    asked = read_scenarios(scenario, set_ or ())
    if len(asked) > 1:
        raise DataError(str(scenario), None, None, f"holds {len(asked)} scenarios; export takes one at a time")
    catalog = catalog_with(assumptions)
    text = hand_off(chosen(decide(catalog.resolve(asked[0])), asked[0]), to)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(f"{out}: for {to}")
