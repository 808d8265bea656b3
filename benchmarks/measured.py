"""What every script here needs: a server to measure, summaries of times, and a place for the figures."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / ".benchmarks"
"""Figures of each script as JSON; `results.py` makes RESULTS.md of them."""
VERSIONS = ("numpy", "pandas", "pydantic", "ipykernel", "ipywidgets", "anywidget", "plotly", "voila", "tornado")


def environment() -> dict[str, Any]:
    """When, where and with what something was measured."""

    def of(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {name: of(name) for name in VERSIONS},
    }


def save(name: str, figures: Any, command: str, started: dict[str, Any]) -> None:
    """Keep the figures of a script for `results.py`."""
    FIGURES.mkdir(exist_ok=True)
    content = started | {"command": command, "load_after": round(os.getloadavg()[0], 1), "figures": figures}
    (FIGURES / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Least, median, 95th percentile and most of some times. [s]"""
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "min": ordered[0],
        "p50": statistics.median(ordered),
        "p95": ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))],
        "max": ordered[-1],
    }


def free_port() -> int:
    """A port that nobody listens on, above 20000."""
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        if port > 20_000:
            return port


@contextlib.contextmanager
def serving(command: Sequence[str], url: str, patience_s: float = 120.0) -> Iterator[int]:
    """A server of our own until the block ends; gives its process id."""
    with (FIGURES / "server.log").open("w") if FIGURES.is_dir() else contextlib.nullcontext() as log:
        process = subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, stdout=log or subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + patience_s
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10):
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{command[0]} did not start serving {url}")
                time.sleep(0.2)
            yield process.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(5)


def app_command(port: int) -> list[str]:
    """The suite as `gpuguide app` serves it."""
    return [sys.executable, "-m", "gpuguide.app.serve", str(port)]


def family(pid: int) -> list[int]:
    """A process and all that came of it."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, new = [], [pid]
    while new:
        found += new
        new = [child for parent in new for child in parents.get(parent, [])]
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """Processor time that processes have used so far. [s]"""
    ticks = 0.0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(float(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(pids: Sequence[int]) -> float:
    """Memory of processes, what they share counted once (proportional set size). [MB]"""
    kib = 0.0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            kib += float(text.split("Pss:")[1].split()[0])
    return kib * 1024 / 1e6
