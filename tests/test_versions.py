"""pyproject.toml, environment.yml and requirements.lock name the same packages in versions that fit each other."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gpuguide

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
LOCKED = [Requirement(line.rstrip(" \\")) for line in LOCK.splitlines() if re.match(r"[A-Za-z0-9]", line)]
FOR_USERS = [
    Requirement(text)
    for group in (PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values())
    for text in group
]
FOR_TESTS = [Requirement(text) for group in PROJECT["dependency-groups"].values() for text in group]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("wanted", [pytest.param(wanted, id=str(wanted)) for wanted in [*FOR_USERS, *FOR_TESTS]])
def test_lock_holds_a_version_that_fits(wanted: Requirement, python: str) -> None:
    """After a change of pyproject.toml: make lock."""
    environment = {"python_version": python, "python_full_version": f"{python}.9"}
    versions = [
        next(iter(locked.specifier)).version
        for locked in LOCKED
        if canonicalize_name(locked.name) == canonicalize_name(wanted.name)
        and (locked.marker is None or locked.marker.evaluate(environment))
    ]

    assert len(versions) == 1, versions
    assert wanted.specifier.contains(versions[0])


def test_lock_has_hashes_and_no_addresses() -> None:
    """Whoever installs takes packages from where they are used to, and gets the same bytes."""
    assert LOCK.count("--hash=sha256:") > len(LOCKED)
    assert all(len(locked.specifier) == 1 and str(locked.specifier).startswith("==") for locked in LOCKED)
    assert not re.search(r"://|--index|--extra-index|--find-links|file:|@ ", LOCK)


def test_conda_environment_has_the_same_bounds() -> None:
    """Conda users and Binder get what the extras name."""
    lines = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    pip = next(line["pip"] for line in lines if isinstance(line, dict))
    conda = [Requirement(line) for line in lines if isinstance(line, str)]
    ours = [*conda, *(Requirement(line) for line in pip if not line.startswith("--"))]
    bounds = {
        canonicalize_name(wanted.name): str(wanted.specifier) for wanted in ours if wanted.name not in ("pip", "python")
    }

    assert "--editable ." in pip
    assert bounds == {canonicalize_name(wanted.name): str(wanted.specifier) for wanted in FOR_USERS}


def test_python_bounds_agree() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    classifiers = [c.rsplit(" ", 1)[1] for c in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]

    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert classifiers == list(PYTHONS)
    assert next(line for line in environment if str(line).startswith("python")) == "python>=3.11,<3.14"


def test_changelog_and_package_agree_on_the_version() -> None:
    """A release that forgets one of the three cannot be told apart from the one before."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert gpuguide.__version__ == PROJECT["project"]["version"]
    assert re.search(rf"^## (Unreleased|{re.escape(PROJECT['project']['version'])}\b)", changelog, re.MULTILINE)


def test_wheel_carries_the_tables(tmp_path: Path) -> None:
    """An installed gpuguide without its data folder could answer nothing."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    shipped = [*(ROOT / "data").rglob("*.*"), *(ROOT / "notebooks").glob("*.ipynb")]

    for path in shipped:
        folder, _, rest = path.relative_to(ROOT).as_posix().partition("/")
        assert f"gpuguide/_{folder}/{rest}" in names
    assert not [name for name in names if name.startswith(("data/", "notebooks/", "tests/"))]
