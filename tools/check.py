"""
Run the project's checks one after the other and say what each took.

usage: python tools/check.py [STEP ...]        without names: all of them

All steps run even when one fails, so that one run shows everything that is wrong; the exit status is 1 if any failed.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTEST = [sys.executable, "-m", "pytest", "-q"]
OPT_IN = "not hub and not image"  # they install an environment of their own: make hub, make image

# nbval: cells of one notebook must stay on one worker (loadfile).
STEPS: dict[str, list[str]] = {
    "ruff": [str(BIN / "ruff"), "check", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "mypy": [str(BIN / "mypy")],
    "imports": [str(BIN / "lint-imports")],
    "tests": [*PYTEST, "-n", "2", "--dist", "loadgroup", "-m", f"not browser and not notebook and {OPT_IN}"],
    "notebooks": [*PYTEST, "-n", "2", "--dist", "loadfile", "--nbval-lax", "--nbval-current-env", "notebooks"],
    "parameters": [*PYTEST, "-n", "2", "-m", "notebook", "tests"],
    "browser": [*PYTEST, "-m", "browser", "tests"],
}


def run(name: str) -> tuple[int, float]:
    """Exit status and seconds of one step; its output goes straight to the terminal."""
    print(f"\n==> {name}: {' '.join(Path(word).name if '/' in word else word for word in STEPS[name])}", flush=True)
    # Frozen virtual environments and pyenv shims: the steps find their kernels and tools beside this interpreter.
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    started = time.perf_counter()
    status = subprocess.run(STEPS[name], cwd=ROOT, env=environment, check=False).returncode
    return status, time.perf_counter() - started


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        print(f"no step named {unknown[0]!r}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 2
    results = {name: run(name) for name in names or STEPS}
    print()
    for name, (status, seconds) in results.items():
        print(f"{'ok' if status == 0 else 'FAILED':>6}  {name:<12} {seconds:7.1f} s")
    return int(any(status for status, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
