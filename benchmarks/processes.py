"""
What a command costs from nothing: start, imports, reading the tables, answering, printing.

usage: python benchmarks/processes.py [--rounds 15]

Commands take turns, so that what else the machine does falls on all of them. Bytecode is compiled first, as installers
do it.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from measured import ROOT, environment, save, summary

GPUGUIDE = [sys.executable, "-m", "gpuguide"]
NEEDED, OWN = "import numpy; from pydantic import BaseModel", "from gpuguide import decide, load_catalog"
COMMANDS: dict[str, list[str]] = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import pandas": [sys.executable, "-c", "import pandas"],
    NEEDED: [sys.executable, "-c", NEEDED],
    OWN: [sys.executable, "-c", OWN],
    "gpuguide --help": [*GPUGUIDE, "--help"],
    "gpuguide decide --set workload=lora": [*GPUGUIDE, "decide", "--set", "workload=lora"],
    "gpuguide decide --set workload=lora --csv": [*GPUGUIDE, "decide", "--set", "workload=lora", "--csv"],
    "gpuguide decide --set workload=serve --json": [*GPUGUIDE, "decide", "--set", "workload=serve", "--json"],
    "gpuguide memory --set workload=full": [*GPUGUIDE, "memory", "--set", "workload=full"],
    "gpuguide model llama-3.1-8b": [*GPUGUIDE, "model", "llama-3.1-8b"],
    "gpuguide offers --csv": [*GPUGUIDE, "offers", "--csv"],
}  # fmt: skip


def run(command: list[str]) -> tuple[float, float]:
    """Seconds that pass, and of processor time."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"COLUMNS": "120"})
    passed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return passed, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    compileall.compile_dir(Path(ROOT) / "gpuguide", quiet=1)
    started = environment()
    passed: dict[str, list[float]] = {name: [] for name in COMMANDS}
    used: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(asked.rounds):
        for name, command in COMMANDS.items():
            wall, cpu = run(command)
            passed[name].append(wall)
            used[name].append(cpu)
    figures = [{"command": name, "wall_s": summary(passed[name]), "cpu_s": summary(used[name])} for name in COMMANDS]
    for row in figures:
        print(
            f"{row['command']:<55} {row['wall_s']['min']:6.2f} {row['wall_s']['p50']:6.2f} {row['cpu_s']['min']:6.2f}"
        )
    save("processes", figures, "python benchmarks/processes.py " + " ".join(sys.argv[1:]), started)


if __name__ == "__main__":
    main()
