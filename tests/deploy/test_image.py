"""
The container recipe carried out in an empty root: what it installs, how that starts, and what it lets alone.

`make image` runs it; `make test` leaves it out: it installs everything anew, from the network, as root.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpuguide.text import LANGUAGES, Text

pytestmark = pytest.mark.image

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "image.py"
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
LOCKED = [Requirement(line.rstrip(" \\")) for line in LOCK.splitlines() if re.match(r"[A-Za-z0-9]", line)]
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]

specification = importlib.util.spec_from_file_location("image_tool", TOOL)
image_tool = importlib.util.module_from_spec(specification)
specification.loader.exec_module(image_tool)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What was found when the recipe was carried out and its command started."""
    if why := image_tool.obstacle():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("image")
    mounts = Path("/proc/mounts").read_text()
    done = subprocess.run(
        [sys.executable, str(TOOL), str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert Path("/proc/mounts").read_text() == mounts, "nothing of it stays mounted"
    sys.stdout.write(f"\n{done.stdout.splitlines()[-1]}\n")
    return json.loads((folder / "report.json").read_text())


def test_versions_are_those_of_the_lock(report):
    """A package beside the lock, or in another version, is one that nobody has tested."""
    environment = {"python_full_version": report["python"], "python_version": report["python"].rpartition(".")[0]}
    locked = {
        canonicalize_name(one.name): next(iter(one.specifier)).version
        for one in LOCKED
        if one.marker is None or one.marker.evaluate(environment)
    }
    installed = {canonicalize_name(name): version for name, version in report["packages"].items()}
    del installed["gpuguide"]
    assert len(installed) > 100
    assert installed.items() <= locked.items()


def test_no_tool_of_tests_comes_along(report):
    """Each would be a program more that a stranger could start."""
    names = {canonicalize_name(Requirement(text).name) for group in GROUPS.values() for text in group}
    assert not names & {canonicalize_name(name) for name in report["packages"]}
    assert not [name for name in report["programs"] if name.startswith(("pytest", "py.test", "playwright"))]


def test_pages_answer_in_the_language_of_their_reader(report):
    assert report["style"] == 200
    assert len(report["pages"]) == 2 * len(LANGUAGES)
    for page in report["pages"]:
        name = page["path"].strip("/") or "index"
        assert page["status"] == 200
        assert page["titles"] == [Text(page["language"])(f"page.{name}.title")]


def test_it_runs_as_an_ordinary_user_who_may_write_nowhere_else(report):
    """As Kubernetes has it, and without any network but the loopback."""
    assert report["users"] == [1000]
    assert report["capabilities"] == [0]
    assert report["writable"] == ["/tmp"]
    assert report["interfaces"] == ["lo"]


def test_it_ends_when_it_is_asked_to(report):
    """As the first process of a container it is sent a signal that, unhandled, has no effect."""
    assert report["stop_s"] < 20
    assert report["left"] == 0


def test_the_chart_finds_the_notebooks(report):
    values = yaml.safe_load((ROOT / "deploy" / "hub-values.yaml").read_text("utf-8"))
    folder = values["hub"]["config"]["KubeSpawner"]["notebook_dir"]
    assert re.sub(r"python3\.\d+", "python", report["notebooks"]) == re.sub(r"python3\.\d+", "python", folder)
