"""Imports point down, a plain import is light, and only two modules know a network."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuguide
from gpuguide.catalog.live import LIVE
from gpuguide.catalog.package import data_folder
from gpuguide.spec.scenario import WORKLOADS

PACKAGE = Path(gpuguide.__file__).parent
NETWORK = {
    "aiohttp",
    "gpuhunt",
    "http",
    "httpx",
    "huggingface_hub",
    "requests",
    "socket",
    "urllib",
    "urllib3",
    "websockets",
}
MAY_USE_NETWORK = {"catalog/hub.py", "catalog/refresh.py"}
MAY_USE_SOCKETS_OF_THIS_MACHINE = {"app/nursery.py", "app/serve.py"}
"""The page server asks its nursery for kernels through a Unix socket; nothing leaves the machine."""


FORMS = ([], ["--csv"], ["--json"], ["--all"])


def test_arrows_go_down() -> None:
    """The contracts of pyproject.toml; an arrow that turns shows a missing type."""
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout[-3000:]


def test_a_plain_import_is_light() -> None:
    """Each of these takes longer than all that is ours, at every start of a kernel and of the command line."""
    heavy = [
        "IPython",
        "dask",
        "gpuhunt",
        "huggingface_hub",
        "ipywidgets",
        "pandas",
        "papermill",
        "plotly",
        "torch",
        "transformers",
        "voila",
    ]
    code = f"import sys; from gpuguide import *; print([name for name in {heavy} if name in sys.modules])"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"


def test_the_function_is_never_hidden_by_the_subpackage() -> None:
    """`decide` is both; a plain import imports neither, so that help is there at once."""
    code = "import sys, gpuguide; print(any(name in sys.modules for name in ('numpy', 'pydantic', 'typer')))"
    code += "; import gpuguide.decide.rank; from gpuguide import decide; print(callable(decide), *dir(gpuguide))"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert printed[:2] == ["False", "True"]
    assert set(gpuguide.__all__) <= set(printed)


@pytest.mark.parametrize(
    "words",
    [
        *(["memory", "--set", f"workload={workload}", *form] for workload in WORKLOADS for form in ([], ["--json"])),
        *(["decide", "--set", f"workload={workload}", *form] for workload in WORKLOADS for form in FORMS),
        *(["offers", *form] for form in ([], ["--json"], ["--csv"])),
        ["model", "llama-3.1-8b"],
        *(["limits", "--set", "workload=qlora", *form] for form in ([], ["--json"], ["--csv"])),
        ["export", "--set", "workload=lora", "--to", "skypilot"],
        ["export", "--set", "workload=serve", "--to", "dstack"],
    ],
    ids=" ".join,
)
def test_an_answer_needs_no_pandas(words: list[str], tmp_path: Path) -> None:
    """Importing it takes longer than a whole answer; what asks for no DataFrame must not wait for one."""
    offers = (data_folder() / "offers.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / LIVE).write_text("".join(offers[:100]), encoding="utf-8")  # as `refresh` leaves them
    code = "import sys; sys.modules['pandas'] = None; from gpuguide.cli import main; main()"

    result = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | {"GPUGUIDE_CACHE": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_only_refresh_and_hub_know_a_network() -> None:
    """A page or a decision that waits for a server is slow at best."""
    users = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            # Taking an address apart is not using a network.
            if any(name.split(".")[0] in NETWORK and name != "urllib.parse" for name in names):
                users.add(path.relative_to(PACKAGE).as_posix())

    assert users <= MAY_USE_NETWORK | MAY_USE_SOCKETS_OF_THIS_MACHINE
