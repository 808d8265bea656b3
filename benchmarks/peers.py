"""
The same questions to other estimators, each in an environment of its own: from nothing, and again in one process.

usage: python benchmarks/peers.py [--rounds 5] [--only NAME ...] [--cache FOLDER] [--no-install]

Environments are kept in FOLDER (~/.cache/gpuguide-benchmarks unless given, about 2.5 GB for all). A peer that does not
install or does not answer is left out with a sentence. Models are described by a stand-in for the Hub on this machine,
so that no figure holds a download; where a peer has the Hub's address in its code, its copy here is pointed at it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub_stand_in import hub
from measured import ROOT, environment, save, summary

CACHE = Path.home() / ".cache" / "gpuguide-benchmarks"
PORT = 28_765
PATIENCE_S = 180.0
SERVE = "Llama 3.1 8B in BF16, 8,192 tokens, one request, one H100"
TUNE = "Llama 2 7B, all weights trained, 2,048 tokens, micro-batch 1, one H100"
MODEL, SMALLER = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-2-7b-hf"
TRAIN_CALL = (
    "from llm_analysis.analysis import train; train(model_name='NousResearch_Llama-2-7b-hf', gpu_name='h100-sxm-80gb',"
    " dtype_name='w16a16e16', seq_len=2048, total_num_tokens=10_000_000, total_num_gpus=8, dp_size=8, ds_zero=3,"
    " batch_size_per_gpu=1, activation_recomputation=1, flops_efficiency=0.4, output_dir=None)"
)


def given(workload: str, model: str, *more: str) -> tuple[str, ...]:
    """A scenario as arguments of our own commands."""
    return tuple(word for value in (f"workload={workload}", f"model={model}", *more) for word in ("--set", value))


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One estimator, how to ask it, and what its answer holds."""

    name: str
    packages: tuple[str, ...]
    asked: dict[str, tuple[str, ...]]  # question to command line, program first; ('python', code) for a library
    answers: str
    points_at_hub: tuple[str, ...] = ()  # packages whose copy of the Hub's address is changed


PEERS = (
    Peer(
        name="hf-mem",
        packages=("hf-mem==0.5.6",),
        points_at_hub=("hf_mem",),
        answers="weights and KV cache",
        asked={SERVE: ("hf-mem", "--experimental", "--json-output", "--model-id", MODEL, "--max-model-len", "8192")},
    ),
    Peer(
        name="fitcheck-llm",
        packages=("fitcheck-llm==0.3.1",),
        answers="memory on one GPU",
        asked={
            SERVE: ("fitcheck", "infer", "--json", "--precision", "bf16", "--gpu", "H100", MODEL, "--seq-len", "8192"),
            TUNE: (
                "fitcheck",
                "--json",
                "--gpu",
                "H100",
                "--precision",
                "bf16",
                SMALLER,
                "--no-lora",
                "--grad-checkpoint",
            ),
        },
    ),
    Peer(
        name="ridgepoint",
        packages=("ridgepoint==0.1.2",),
        points_at_hub=("ridgepoint",),
        answers="memory and speed on one GPU",
        asked={SERVE: ("ridgepoint", "fit", "--json", MODEL, "--gpu", "h100-80gb", "--ctx", "8192", "--dtype", "bf16")},
    ),
    Peer(
        name="chimeraforge",
        packages=("chimeraforge==0.76.0",),
        points_at_hub=("chimeraforge",),
        answers="formats and engines on one GPU, monthly cost",
        asked={
            SERVE: (
                "chimeraforge",
                "plan",
                "--hardware",
                "H100 80GB",
                "--model",
                MODEL,
                "--context-length",
                "8192",
                "--avg-tokens",
                "512",
                "--request-rate",
                "0.1",
                "--budget",
                "100000",
                "--latency-slo",
                "60000",
                "--json",
            ),
        },
    ),
    Peer(
        name="aiconfigurator",
        packages=("aiconfigurator==0.12.0",),
        answers="latency and throughput on one GPU",
        asked={
            SERVE: (
                "aiconfigurator",
                "cli",
                "estimate",
                "--model-path",
                "meta-llama/Meta-Llama-3.1-8B",
                "--system",
                "h100_sxm",
                "--backend",
                "vllm",
                "--batch-size",
                "1",
                "--isl",
                "7680",
                "--osl",
                "512",
                "--tp-size",
                "1",
            ),
        },
    ),
    Peer(
        name="llm-analysis",
        packages=("llm-analysis==0.2.2",),
        answers="memory and time on given GPUs (8, ZeRO-3)",
        asked={TUNE: ("python", TRAIN_CALL)},
    ),
    Peer(
        name="accelerate estimate-memory",
        packages=("torch==2.13.0", "accelerate==1.15.0", "transformers", "huggingface_hub"),
        answers="weights, Adam as 4 x weights",
        asked={SERVE: ("accelerate", "estimate-memory", "--library_name", "transformers", MODEL)},
    ),
)
OWN = (
    Peer(
        name="gpuguide memory",
        packages=(),
        answers="memory by part with its band, best plan, on one GPU",
        asked={
            SERVE: (
                "gpuguide",
                "memory",
                "--json",
                *given("serve", "llama-3.1-8b", "max_context=8192", "gpu=H100-SXM", "gpus=1"),
            ),
            TUNE: (
                "gpuguide",
                "memory",
                "--json",
                *given("full", "llama-2-7b", "sequence_length=2048", "gpu=H100-SXM", "gpus=1"),
            ),
        },
    ),
    Peer(
        name="gpuguide decide",
        packages=(),
        answers="memory, speed and total cost of every offer of the market, ranked, and what would help",
        asked={
            SERVE: ("gpuguide", "decide", "--json", "--top", "10", *given("serve", "llama-3.1-8b", "max_context=8192")),
            TUNE: ("gpuguide", "decide", "--json", "--top", "10", *given("full", "llama-2-7b", "sequence_length=2048")),
        },
    ),
)

WARM = """
import contextlib, importlib.metadata, io, json, os, sys, time
name, rounds, argv = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
if argv[0] == "python":
    code = compile(argv[1], "call", "exec")
    call = lambda: exec(code, {})
else:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name=argv[0])
    call = entry.load()
times, status = [], 0
for _ in range(rounds):
    sys.argv = list(argv)
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = call() or 0
        except SystemExit as left:
            status = left.code or 0
    times.append(time.perf_counter() - started)
os.write(1, ("\\n" + json.dumps({"times": times, "status": str(status)[:80]})).encode())
os._exit(0)
"""


def installed(peer: Peer, cache: Path, install: bool) -> tuple[Path | None, str]:
    """Folder of a peer's programs, or the reason why there is none."""
    folder = cache / peer.name.replace(" ", "-")
    if not (folder / "ready").exists():
        if not install:
            return None, "is not installed"
        venv.create(folder, with_pip=True, clear=True)
        command = [
            str(folder / "bin/python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",  # compiled below, once what is changed has been changed
            "--disable-pip-version-check",
            *peer.packages,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return None, "did not install: " + (done.stderr.strip().splitlines() or ["no reason given"])[-1][:160]
        for package in peer.points_at_hub:
            for file in folder.glob(f"lib/python*/site-packages/{package}/**/*.py"):
                text = file.read_text("utf-8")
                if "https://huggingface.co" in text:
                    file.write_text(text.replace("https://huggingface.co", f"http://127.0.0.1:{PORT}"), "utf-8")
        subprocess.run([str(folder / "bin/python"), "-m", "compileall", "-q", str(folder / "lib")], check=False)
        (folder / "ready").touch()
    return folder / "bin", ""


def cold(programs: Path, asked: Sequence[str], rounds: int, surroundings: dict[str, str]) -> tuple[list[float], str]:
    """Seconds of each run as a command, and why there are none."""
    command = (
        [str(programs / "python"), "-c", asked[1]] if asked[0] == "python" else [str(programs / asked[0]), *asked[1:]]
    )
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        try:
            done = subprocess.run(
                command,
                cwd=ROOT / ".benchmarks",
                env=surroundings,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return [], f"did not run: {type(error).__name__}"
        if done.returncode not in (0, 1) or not (done.stdout.strip() or asked[0] == "python"):
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
            return [], f"did not answer: {said[-1][:160]}"
        times.append(time.perf_counter() - started)
    return times, ""


def warm(programs: Path, asked: Sequence[str], rounds: int, surroundings: dict[str, str]) -> dict[str, Any]:
    """Seconds of each run inside one process, imports in the first."""
    command = [str(programs / "python"), "-c", WARM, asked[0], str(rounds), *asked]
    done = subprocess.run(
        command,
        cwd=ROOT / ".benchmarks",
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S * 2,
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {"times": [], "status": (done.stderr.strip().splitlines() or ["no answer"])[-1][:160]}
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], help="names of peers")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--no-install", action="store_true")
    asked = parser.parse_args()
    asked.cache.mkdir(parents=True, exist_ok=True)
    (ROOT / ".benchmarks").mkdir(exist_ok=True)
    started, figures = environment(), []
    with hub(PORT) as address:
        surroundings = os.environ | {
            "HF_ENDPOINT": address,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "DO_NOT_TRACK": "1",
            "NO_COLOR": "1",
            "HF_HOME": str(asked.cache / "hub"),
            "PYTHONWARNINGS": "ignore",
        }
        for peer in (*OWN, *PEERS):
            if asked.only and peer.name not in asked.only:
                continue
            programs, wrong = (
                (Path(sys.executable).parent, "") if peer in OWN else installed(peer, asked.cache, not asked.no_install)
            )
            for question, command in peer.asked.items():
                row: dict[str, Any] = {
                    "peer": peer.name,
                    "version": (peer.packages or ("this checkout",))[-1].partition("==")[2] or "-",
                }
                if peer.name.startswith("accelerate"):
                    row["version"] = "1.15.0"
                row |= {"question": question, "answers": peer.answers, "wrong": wrong}
                if programs is not None:
                    times, row["wrong"] = cold(programs, command, asked.rounds, surroundings)
                    if times:
                        again = warm(programs, command, 2 * asked.rounds + 1, surroundings)
                        row |= {"cold_s": summary(times), "status": again["status"]}
                        row["first_s"] = again["times"][0] if again["times"] else None
                        row["warm_s"] = summary(again["times"][1:]) if len(again["times"]) > 1 else None
                figures.append(row)
                print(json.dumps(row), flush=True)
    save("peers", figures, "python benchmarks/peers.py " + " ".join(sys.argv[1:]), started)


if __name__ == "__main__":
    main()
