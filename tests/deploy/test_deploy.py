"""What stands in deploy/ names files, addresses and limits that exist, since no test can start a cluster."""

import ast
import importlib.util
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from traitlets.config import Config

from gpuguide.app import serve

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MB_PER_READER = 110
"""A little more than `benchmarks/RESULTS.md` says. [MB]"""

specification = importlib.util.spec_from_file_location("image_tool", ROOT / "tools" / "image.py")
image_tool = importlib.util.module_from_spec(specification)
specification.loader.exec_module(image_tool)


def lines(word: str) -> list[str]:
    """Arguments of one kind of instruction of the container recipe."""
    recipe = image_tool.instructions((DEPLOY / "Containerfile").read_text("utf-8"))
    return [line.rest for line in recipe if line.word == word]


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [one for one in documents("kubernetes.yaml") if one["kind"] == kind]
    return found


def container() -> dict[str, Any]:
    (only,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    return only


def command() -> ast.Call:
    """The call of `run` with which the container starts."""
    (words,) = (ast.literal_eval(line) for line in lines("CMD"))
    assert words[:2] == ["python", "-c"]
    call = ast.parse(words[2]).body[-1]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    return call.value


def test_the_recipe_copies_what_exists():
    """A renamed folder would break the build, and so would one that is kept away from it."""
    rules = image_tool.ignore_rules()
    for line in lines("COPY"):
        if not line.startswith("--from"):
            for name in line.split()[:-1]:
                assert (ROOT / name).exists(), name
                assert not image_tool.left_out(name, rules), name


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".venv/bin/python", True),
        (".git/config", True),
        ("tests/deploy/test_deploy.py", True),
        ("gpuguide/app/__pycache__/serve.cpython-312.pyc", True),
        ("notebooks/.ipynb_checkpoints/index-checkpoint.ipynb", True),
        ("notebooks/index.ipynb", False),
        ("gpuguide/app/serve.py", False),
    ],
)
def test_the_build_is_sent_what_it_copies_and_no_more(path, expected):
    """Environments would be gigabytes; caches and checkpoints of a checkout would end up in the package."""
    assert image_tool.left_out(path, image_tool.ignore_rules()) == expected


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("HEALTHCHECK CMD true", "HEALTHCHECK"),
        ("RUN --mount=type=cache,target=/root true", "RUN in the form --mount"),
        ("COPY --chown=1000 data data", "COPY in the form --chown"),
        ("CMD gpuguide app", "CMD in the form gpuguide"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(line, named):
    """Left out in silence, an instruction would be taken for tried."""
    with pytest.raises(SystemExit, match=f"cannot carry out {named}"):
        image_tool.instructions(f"FROM python:3.12-slim\n{line}\n")


def test_the_recipe_installs_extras_that_exist_from_the_lock():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (install,) = [line for line in lines("RUN") if "pip install" in line and "gpuguide" in line]
    extras = re.search(r"'\.\[([\w,]+)\]'", install)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert install.count("constraint requirements.lock") == 2
    versions = {re.search(r"python:3\.(\d+)", line)[1] for line in lines("FROM")}
    assert len(versions) == 1
    assert int(versions.pop()) >= int(project["requires-python"].removeprefix(">=3."))


def test_the_container_starts_the_server():
    call = command()
    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    inspect.signature(serve.run).bind(**given)
    assert [str(given["port"])] == lines("EXPOSE")
    assert container()["ports"][0]["containerPort"] == given["port"]


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_ask_for_a_file_that_is_served(probe):
    """An address that is gone would keep every copy out of service."""
    path = container()[probe]["httpGet"]["path"]
    assert path.startswith("/gpuguide/static/")
    assert serve._file(path.rpartition("/")[2])[0]


def test_a_full_copy_stays_within_its_memory():
    limit = container()["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    assert int(limit.removesuffix("Gi")) * 1074 > serve.MOST_KERNELS * MB_PER_READER + 500


def test_a_reader_stays_on_one_copy():
    """His kernel lives there; on another copy the page would find none."""
    notes = of_kind("Ingress")["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/affinity"] == "cookie"
    (rule,) = of_kind("Ingress")["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == of_kind("Service")["metadata"]["name"]
    assert of_kind("Service")["spec"]["selector"] == of_kind("Deployment")["spec"]["selector"]["matchLabels"]


def test_a_silent_reader_is_not_cut_off():
    """The server first asks after one interval; a limit no longer than that closes every connection."""
    assert serve.PONG_MS >= 2 * serve.PING_MS


def test_the_hub_serves_our_notebooks(monkeypatch):
    settings = Config()
    monkeypatch.setenv("HUB_MOST_SERVERS", "7")
    source = (DEPLOY / "jupyterhub_config.py").read_text("utf-8")
    exec(compile(source, "jupyterhub_config.py", "exec"), {"get_config": lambda: settings})
    assert settings.JupyterHub.active_server_limit == 7
    assert (Path(settings.Spawner.notebook_dir) / Path(settings.Spawner.default_url).name).is_file()
    assert all(word.startswith("--") for word in settings.Spawner.args)


def leaves(values: dict[str, Any], stop: set[str], above: str = "") -> dict[str, Any]:
    """Values by their dotted key; where the chart takes anything below, as one."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{above}{name}"
        found |= leaves(value, stop, f"{key}.") if isinstance(value, dict) and key not in stop else {key: value}
    return found


def test_the_chart_takes_our_values():
    """The chart refuses an unknown key or a value of another type before it installs anything."""
    chart = yaml.safe_load((Path(__file__).parent / "chart_keys.yaml").read_text("utf-8"))["keys"]
    (values,) = documents("hub-values.yaml")
    ours = leaves(values, set(chart))
    assert ours.keys() == chart.keys()
    for key, value in ours.items():
        jsonschema.validate(value, chart[key])


def test_values_of_the_chart_name_the_notebooks_of_the_container():
    (values,) = documents("hub-values.yaml")
    folder = values["hub"]["config"]["KubeSpawner"]["notebook_dir"]
    version = re.search(r"python:(3\.\d+)", lines("FROM")[0])
    assert version is not None
    assert folder == f"/opt/gpuguide/lib/python{version[1]}/site-packages/gpuguide/_notebooks"
    assert (ROOT / "notebooks" / Path(values["singleuser"]["defaultUrl"]).name).is_file()
