"""Installed from a wheel or an sdist, gpuguide answers from any folder."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_wheel_and_sdist_install_and_answer() -> None:
    """A file that the build leaves out, a path that only exists in a checkout, a dependency that is not named."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_install.py"], capture_output=True, text=True, check=False
    )
    if done.returncode == 3:
        pytest.skip(f"no packages to be had here: {done.stdout[-300:]}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("answers from another folder") == 2


def conda_of(path: str) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    return found


def test_binder_gets_the_same_packages() -> None:
    """Binder looks into .binder alone; its paths are relative to that folder."""
    ours, binder = conda_of("environment.yml"), conda_of(".binder/environment.yml")
    *rest, pip = ours["dependencies"]
    pip = {"pip": [line.replace("--editable .", "--editable ..") for line in pip["pip"]]}

    assert binder == ours | {"dependencies": [*rest, pip]}


@pytest.mark.slow
def test_binder_opens_the_index(tmp_path: Path) -> None:
    """The start script hands on what Binder gives it, and the server's first page is the index under Voila."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jupyter = [Path(sys.executable).with_name("jupyter-server"), "--no-browser", f"--port={port}", "--allow-root"]
    options = ["--IdentityProvider.token=", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={ROOT}"]
    home = {"HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    server = subprocess.Popen(
        [ROOT / ".binder" / "start", *jupyter, *options],
        cwd=ROOT, env=os.environ | home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(120):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
                    page = answer.read().decode()
                    break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5)
    finally:
        server.terminate()
        server.wait(20)

    assert answer.url.endswith("/voila/render/notebooks/index.ipynb")
    assert "Which cloud GPU should you rent?" in page
