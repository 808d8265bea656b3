"""
Build wheel and sdist, install each into an empty environment, and ask both a question from another folder.

usage: python tools/check_install.py [--keep FOLDER]        without it in a folder that is removed again

Exit status 0: both answered; 1: one did not; 3: packages could not be had, so nothing can be said.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = shutil.which("uv") or (str(path) if (path := Path(sys.executable).with_name("uv")).is_file() else None)
QUESTION = ["decide", "--set", "workload=lora", "--set", "model=llama-3.1-8b", "--top", "1", "--json"]


def run(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command and what it said; nothing of this checkout is on its path."""
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)


def build(folder: Path) -> list[Path]:
    """Wheel, and sdist from which pip will build one itself."""
    for kind in ("wheel", "sdist"):
        built = run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=ROOT)
        if built.returncode:
            raise SystemExit(f"cannot build the {kind}: {built.stderr.strip()[-500:]}")
    return [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]


def install(package: Path, place: Path) -> tuple[Path, str]:
    """A new environment with the package and what it needs; its interpreter, and the error if there was one."""
    if UV:
        made = run(UV, "venv", "--quiet", "--python", sys.executable, place)
    else:
        made = run(sys.executable, "-m", "venv", place)
    python = place / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if made.returncode:
        return python, made.stderr
    installer = (
        [UV, "pip", "install", "--quiet", "--python", python] if UV else [python, "-m", "pip", "install", "--quiet"]
    )
    done = run(*installer, package)
    return python, done.stderr if done.returncode else ""


def answer(python: Path, elsewhere: Path) -> str:
    """What is wrong with the installed package's answer; empty when nothing is."""
    command = python.with_name("gpuguide")
    done = run(command, *QUESTION, cwd=elsewhere)
    if done.returncode:
        return done.stderr.strip()[-500:]
    best = json.loads(done.stdout)["ranking"][0]
    if not best["cost_usd"]["total"]["typical"] > 0:
        return "the best offer costs nothing"
    where = run(python, "-c", "import gpuguide; print(gpuguide.__file__)", cwd=elsewhere).stdout.strip()
    if Path(where).is_relative_to(ROOT / "gpuguide"):
        return f"{where} was used, not the installed package"
    typed = Path(where).with_name("py.typed")
    return "" if typed.is_file() else "py.typed is missing: type checkers would not see the types"


def check(folder: Path) -> int:
    """Both packages in the folder."""
    status = 0
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    for package in build(folder):
        python, problem = install(package, folder / f"venv-{package.suffix[1:]}")
        if problem:
            print(f"{package.name}: cannot be installed here: {problem.strip()[-500:]}")
            return 3 if any(word in problem for word in ("connect", "resolve", "network", "fetch", "Temporary")) else 1
        problem = answer(python, elsewhere)
        print(f"{package.name}: {problem or 'installs, and answers from another folder'}")
        status |= bool(problem)
    return status


def main(words: list[str]) -> int:
    if words[:1] == ["--keep"] and len(words) == 2:
        folder = Path(words[1]).resolve()
        folder.mkdir(parents=True)
        return check(folder)
    with tempfile.TemporaryDirectory() as name:
        return check(Path(name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
