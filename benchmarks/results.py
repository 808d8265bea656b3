"""
Makes benchmarks/RESULTS.md of the figures that the scripts here left in .benchmarks; measures what is named first.

usage: python benchmarks/results.py [functions] [processes] [browser] [users] [servers] [peers]

Without names it only writes.

Every figure in RESULTS.md comes from such a run; nothing in it is typed by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from measured import FIGURES, ROOT, environment
from processes import NEEDED, OWN

HERE = ROOT / "benchmarks"
FUNCTIONS = [
    sys.executable,
    "-m",
    "pytest",
    "benchmarks",
    "-q",
    "--benchmark-enable",
    "--benchmark-timer=time.process_time",
    "--benchmark-max-time=3",
    "--benchmark-columns=min,median,rounds",
    "--benchmark-json=.benchmarks/functions.json",
]
COMMANDS: dict[str, list[str]] = {
    "functions": FUNCTIONS,
    "processes": [sys.executable, "benchmarks/processes.py"],
    "browser": [sys.executable, "benchmarks/browser.py"],
    "users": [sys.executable, "benchmarks/users.py"],
    "servers": [
        *(sys.executable, "benchmarks/users.py", "--users", "1", "5", "20"),
        *("--server", "ours", "many", "voila", "solara", "solara-workers"),
    ],
    "peers": [sys.executable, "benchmarks/peers.py"],
}
TARGETS = {
    "test_warm[lora]": 15,
    "test_warm[qlora]": 15,
    "test_warm[full]": 15,
    "test_warm[serve]": 15,
    "test_load_catalog": 150,
}
"""Medians we want to stay below. [ms]"""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a Markdown table, first column left, the others right."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return [*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def ms(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    if seconds is None:
        return "-"
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def s(seconds: float | None) -> str:
    """Seconds with two digits."""
    return "-" if seconds is None else f"{seconds:.2f}"


def stamp(run: dict[str, Any]) -> str:
    """When and with what a section was measured."""
    commit = f", commit {run['commit']}" if run["commit"] else ""
    return (
        f"Measured {run['measured']}{commit}: `{run['command'].strip()}`, Python {run['python']}, {run['system']}, "
        f"{run['cores']} cores shared with other work (load {run['load']} before, {run['load_after']} after)."
    )


def functions(run: dict[str, Any]) -> list[str]:
    """Functions, by pytest-benchmark."""
    lines = [
        "## Answers and estimates in one process",
        "",
        f"{stamp(run)} Processor time of one core, which other work on the machine disturbs least.",
        "",
    ]
    by_name = {one["name"]: one for one in run["benchmarks"]}
    warm = []
    for name, one in by_name.items():
        if name.startswith("test_warm"):
            more, stats = one["extra_info"], one["stats"]
            target = TARGETS.get(name)
            warm.append(
                (
                    name.removeprefix("test_warm[").rstrip("]"),
                    ms(stats["min"]),
                    ms(stats["median"]),
                    target or "-",
                    f"{more['offers']:,}",
                    more["shapes"],
                    f"{more['plans']:,}",
                    f"{more['ranked']:,}",
                )
            )
    lines += ["The whole market ranked, the question known and the answer not:", ""]
    lines += table(
        ("workload", "least [ms]", "median [ms]", "target [ms]", "offers", "machine shapes", "legal plans", "ranked"),
        warm,
    )
    others = {
        "test_slider": "a slider step: scenario checked and resolved, market ranked, ten rows as a table",
        "test_cold": "first answer of a process: tables read, market joined, ranked",
        "test_load_catalog": "all tables read and checked, market joined (target 150 ms)",
        "test_resolve": "a scenario resolved against tables in memory",
        "test_ranking_as_csv": "the whole ranking as CSV",
        "test_remedies": "what would help: an answer of its own for each remedy",
    }
    rows = []
    for start, said in others.items():
        for name, one in by_name.items():
            if name == start or name.startswith(f"{start}["):
                which = f" ({name.partition('[')[2].rstrip(']')})" if "[" in name else ""
                rows.append((said + which, ms(one["stats"]["min"]), ms(one["stats"]["median"])))
    lines += table(("what", "least [ms]", "median [ms]"), rows)
    rates = []
    for name, one in by_name.items():
        if "pairs" in one["extra_info"] and name.startswith(("test_memory", "test_speed", "test_serving")):
            pairs = one["extra_info"]["pairs"]
            rates.append(
                (
                    name.removeprefix("test_").replace("_", " ").replace("[", ", ").rstrip("]"),
                    f"{pairs:,}",
                    f"{pairs / one['stats']['min'] / 1e6:.2f}",
                    f"{pairs / one['stats']['median'] / 1e6:.2f}",
                )
            )
    lines += [
        "Pairs of plan and machine that one core estimates a second (memory with its band of three, time typical):",
        "",
    ]
    return lines + table(("estimate", "pairs at once", "best [million/s]", "median [million/s]"), sorted(rates))


def processes(run: dict[str, Any]) -> list[str]:
    """Commands from nothing."""
    rows = [
        (
            f"`{one['command']}`",
            s(one["wall_s"]["min"]),
            s(one["wall_s"]["p50"]),
            s(one["cpu_s"]["min"]),
            s(one["cpu_s"]["p50"]),
        )
        for one in run["figures"]
    ]
    least = {one["command"]: one["cpu_s"]["min"] for one in run["figures"]}
    ratio = least[OWN] / least[NEEDED] if OWN in least else float("nan")
    return [
        "## Commands from nothing",
        "",
        stamp(run),
        "",
        *table(("command", "least [s]", "median [s]", "least CPU [s]", "median CPU [s]"), rows),
        f"`{OWN}` takes {ratio:.2f} times what `{NEEDED}` takes, which it cannot do without.",
        "",
    ]


def browser(run: dict[str, Any]) -> list[str]:
    """Chromium."""
    opened, moved = [], []
    for one in run["figures"]:
        said, live = (s(one[name]["p50"]) if name in one else "-" for name in ("said_s", "live_s"))
        memory = f"{one['server_mb']:,.0f}" if "server_mb" in one else "-"
        opened.append((one["page"], said, s(one["drawn_s"]["p50"]), s(one["drawn_s"]["max"]), live, memory))
        step, floor = one.get("step_ms"), one.get("floor_ms")
        if step and floor:
            ends = [f"{times[which]:.0f}" for which in ("p50", "p95") for times in (step, floor)]
            ratios = [f"{step[which] / floor[which]:.2f}" for which in ("p50", "p95")]
            moved.append((one["page"], *ends, *ratios, f"{one['step_kb']['max']:.0f}", step["count"], one["lost"]))
    return [
        "## In a browser",
        "",
        f"{stamp(run)} Kernel, server and Chromium on the same cores; a page is opened by a browser new to it.",
        "",
        "The answer and its charts come along with the page; controls are live when the front end has been loaded too.",
        "",
        *table(
            ("page", "answer [s]", "first chart [s]", "slowest [s]", "controls live [s]", "server and kernels [MB]"),
            opened,
        ),
        "A step is timed in the page, from the key press on a slider to the frame after the first chart was redrawn; "
        "its floor, between the steps, is a message to the kernel and back that asks for nothing, then plotly.js "
        "redrawing the same picture with other numbers.",
        "",
        *table(
            (
                "page", "step p50 [ms]", "floor p50 [ms]", "step p95 [ms]", "floor p95 [ms]", "ratio p50", "ratio p95",
                "most kB a step, unpacked", "steps", "lost",
            ),
            moved,
        ),
    ]  # fmt: skip


CROWD = (
    "readers", "seconds between steps", "served", "page p50 [s]", "slowest [s]", "step p50 [ms]", "step p95 [ms]",
    "steps lost", "CPU a step [ms]", "cores busy", "kB a step", "MB a reader", "MB in all",
)  # fmt: skip


def crowd(one: dict[str, Any]) -> tuple[object, ...]:
    """Cells under `CROWD`."""
    step, arrive = one["step_s"], one["arrive_s"]
    return (
        one["users"],
        f"{one['think_s']:g}",
        one["opened"],
        s(arrive["p50"]),
        s(arrive["max"]),
        ms(step["p50"]) if step else "-",
        ms(step["p95"]) if step else "-",
        one["lost"],
        ms(one["server_cpu_s_per_step"]),
        f"{one['server_cores_busy']:.2f}",
        f"{one['kb_per_step']:.0f}",
        f"{one['mb_per_reader']:.0f}",
        f"{one['mb_all']:,.0f}",
    )


def users(run: dict[str, Any]) -> list[str]:
    """Many readers."""
    return [
        "## Many readers at once",
        "",
        f"{stamp(run)} Websocket clients on the same machine that speak the page's protocol: one arrives every half a "
        "second, all wait until everybody is there, then each moves a slider again and again. CPU is the server's and "
        "its kernels' alone; memory counts shared pages once.",
        "",
        *table(CROWD, map(crowd, run["figures"])),
    ]


def servers(run: dict[str, Any]) -> list[str]:
    """The same readers elsewhere."""
    return [
        "## Servers beside one another",
        "",
        f"{stamp(run)} The same clients as above on the same page, served in turn by each: by Voila with its own store "
        "of one rendered notebook and fresh kernels behind it, by Solara with all readers in one process, or in one "
        "for each core. `--users many` keeps one of each of the suite's pages in store, the others serve this page "
        "alone. Nobody moves before the store is full again.",
        "",
        *table(("server", *CROWD), ((one["server"], *crowd(one)) for one in run["figures"])),
    ]


def peers(run: dict[str, Any]) -> list[str]:
    """Other estimators."""
    lines = [
        "## Beside other estimators",
        "",
        f"{stamp(run)} Each in an environment of its own, asked in turn on the same machine; model files come from a "
        "stand-in on this machine. Warm is the same command again inside one process. They answer different things, as "
        "the last column says.",
        "",
    ]
    for question in dict.fromkeys(one["question"] for one in run["figures"]):
        rows = []
        for one in run["figures"]:
            if one["question"] != question:
                continue
            if one["wrong"]:
                rows.append((one["peer"], one["version"], "-", "-", "-", one["wrong"]))
            else:
                warm = one["warm_s"]
                rows.append(
                    (
                        one["peer"],
                        one["version"],
                        s(one["cold_s"]["min"]),
                        s(one["cold_s"]["p50"]),
                        ms(warm["p50"]) if warm else "-",
                        one["answers"],
                    )
                )
        lines += [f"{question}:", ""]
        lines += table(
            ("estimator", "version", "from nothing, least [s]", "median [s]", "warm, median [ms]", "answers"), rows
        )
    return lines + throughput(run["figures"])


def throughput(figures: list[dict[str, Any]]) -> list[str]:
    """Estimates a second of ours beside the peer that answers its one question soonest once it is warm."""
    warm = {one["peer"]: one["warm_s"]["p50"] for one in figures if one["warm_s"] and "gpuguide" not in one["peer"]}
    ours = read("functions")
    if not warm or ours is None:
        return []
    peer = min(warm, key=warm.__getitem__)
    rate = min(rates(ours["benchmarks"], "median").values())
    return [
        f"The peer that is soonest once warm, {peer}, makes {1 / warm[peer]:,.0f} estimates a second; the slowest of "
        f"our own above makes {rate:,.0f} of memory and speed together, {rate * warm[peer]:,.0f} times as many.",
        "",
    ]


def rates(benchmarks: list[dict[str, Any]], which: str) -> dict[str, float]:
    """Pairs of plan and machine a second, memory and speed of each. [1/s]"""
    named = {one["name"]: one for one in benchmarks}
    both = {name: one for name, one in named.items() if name.startswith(("test_memory_and_speed", "test_serving"))}
    return {name: one["extra_info"]["pairs"] / one["stats"][which] for name, one in both.items()}


SECTIONS = {
    "functions": functions,
    "processes": processes,
    "browser": browser,
    "users": users,
    "servers": servers,
    "peers": peers,
}


def read(name: str) -> dict[str, Any] | None:
    """Figures of one script, if it has run."""
    path = FIGURES / f"{name}.json"
    if not path.is_file():
        return None
    run: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return run


def measure(name: str) -> None:
    """Run one script; what pytest-benchmark leaves out of its file is added to it."""
    FIGURES.mkdir(exist_ok=True)
    started = environment()
    numbers = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(COMMANDS[name], cwd=ROOT, check=True, env=os.environ | numbers)
    if name == "functions":
        run = read(name) or {}
        words = ["python" if word == sys.executable else word for word in COMMANDS[name]]
        run |= started | {"command": " ".join(words), "load_after": round(os.getloadavg()[0], 1)}
        (FIGURES / "functions.json").write_text(json.dumps(run), encoding="utf-8")


def main() -> None:
    unknown = [name for name in sys.argv[1:] if name not in COMMANDS]
    if unknown:
        raise SystemExit(f"no benchmark named {unknown[0]!r}; there are {', '.join(COMMANDS)}")
    for name in sys.argv[1:]:
        measure(name)
    runs = {name: run for name in SECTIONS if (run := read(name)) is not None}
    lines = [
        "# Measured speed",
        "",
        "Written by `python benchmarks/results.py` from its own runs; with the names `functions processes browser "
        "users servers peers` it repeats them. Least values say what the code costs, medians what a busy machine made "
        "of it.",
        "",
    ]
    for name, run in runs.items():
        lines += SECTIONS[name](run)
    versions = next((run["versions"] for run in runs.values() if "versions" in run), {})
    if versions:
        lines += ["Versions: " + ", ".join(f"{name} {number}" for name, number in versions.items()) + "."]
    (HERE / "RESULTS.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
