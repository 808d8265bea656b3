"""
Share of branches that tests take, in the packages that hold numbers.

usage: python tools/branches.py [--least SHARE] [PYTEST ARGUMENT ...]

Prints a line per package and every line from which a branch is not taken; the exit status is 1 where a package stays
below the least share.
"""

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("spec", "estimate", "decide", "catalog")
TESTS = (
    "accuracy", "catalog", "decide", "estimate", "robustness", "spec", "test_cli.py", "test_links.py", "test_sweep.py",
)  # fmt: skip


def measure(report: Path, more: list[str]) -> int:
    """Run the tests that do not need a browser or a kernel; programs that they start are measured too."""
    sources = [f"gpuguide/{name}" for name in PACKAGES]
    command = [
        sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup",
        "-m", "not browser and not notebook and not slow",
        *(f"--cov={source}" for source in sources), "--cov-report=", f"--cov-report=json:{report}",
        *(f"tests/{name}" for name in TESTS), *sources, *more,
    ]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    words = ArgumentParser(description=__doc__)
    words.add_argument("--least", type=float, default=0.95)
    asked, more = words.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        failed = measure(report, more)
        files = json.loads(report.read_text(encoding="utf-8"))["files"]

    taken: dict[str, int] = defaultdict(int)
    every: dict[str, int] = defaultdict(int)
    for name, found in sorted(files.items()):
        package = name.split("/")[1]
        taken[package] += found["summary"]["covered_branches"]
        every[package] += found["summary"]["num_branches"]
        if missed := sorted({start for start, _ in found["missing_branches"]}):
            print(f"{name}: {', '.join(map(str, missed))}")
    print()
    for package in PACKAGES:
        print(
            f"{package:<10} {taken[package]:>5} of {every[package]:>5} branches {taken[package] / every[package]:7.1%}"
        )
    return int(bool(failed) or any(taken[name] < asked.least * every[name] for name in PACKAGES))


if __name__ == "__main__":
    sys.exit(main())
