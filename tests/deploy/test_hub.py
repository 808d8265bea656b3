"""
A real JupyterHub with `deploy/jupyterhub_config.py`: people sign in, work in a browser, are limited and cleared away.

`make hub` installs what it needs in an environment of its own and runs it; `make test` leaves it out.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.hub

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "a password for this test alone"
CONFIG = f"""
import os, sys
c = get_config()
load_subconfig({str(ROOT / "deploy" / "jupyterhub_config.py")!r})
c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = {PASSWORD!r}
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.Spawner.notebook_dir = os.path.join(os.getcwd(), "notebooks")  # who runs tests could write to the shipped ones
c.ConfigurableHTTPProxy.command = [os.path.join(os.path.dirname(sys.executable), "configurable-http-proxy")]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:" + os.environ["HUB_PROXY_PORT"]
c.Spawner.args.append("--allow-root")  # no accounts of the system are needed
c.JupyterHub.hub_port = int(os.environ["HUB_PORT"])
"""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Its address; two people at once, forgotten after half a minute."""
    assert importlib.util.find_spec("jupyterhub"), "make hub installs it"
    folder = tmp_path_factory.mktemp("hub")
    (folder / "config.py").write_text(CONFIG)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    address = f"http://127.0.0.1:{free_port()}"
    settings = {"HUB_ADDRESS": address, "HUB_MOST_SERVERS": "2", "HUB_IDLE_MINUTES": "0.5"}
    settings |= {"HUB_PROXY_PORT": str(free_port()), "HUB_PORT": str(free_port())}
    log = (folder / "hub.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterhub", "--config", "config.py"],
        cwd=folder, env=os.environ | settings, start_new_session=True,
        stdout=log, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/hub/health", timeout=5):
                break
            assert process.poll() is None, (folder / "hub.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the hub did not start"
            time.sleep(0.3)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        log.close()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])


def signed_in(browser, hub, name, password=PASSWORD):
    """A browser of one person, after the form of the hub."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.goto(f"{hub}/hub/login")
    page.fill("#username_input", name)
    page.fill("#password_input", password)
    page.click("#login_submit")
    return page


def run_all(page):
    """Every cell of the open notebook."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()


def test_a_wrong_password_stays_outside(hub, browser):
    page = signed_in(browser, hub, "mallory", "guess")
    page.get_by_text("Invalid username or password").wait_for()
    page.goto(f"{hub}/user/ada/lab")
    assert "/hub/login" in page.url
    page.context.close()


def test_a_person_works_and_others_stay_out_and_idle_servers_end(hub, browser):
    """One walk: sign in, run a page in JupyterLab, be refused at another's and beyond the limit, be cleared away."""
    ada = signed_in(browser, hub, "ada")
    ada.wait_for_url("**/user/ada/lab/tree/index.ipynb*", timeout=120_000)
    ada.get_by_role("menuitem", name="Run", exact=True).wait_for(timeout=120_000)
    ada.locator(".jp-Notebook .jp-Cell").last.wait_for(timeout=60_000)
    ada.get_by_text("| Idle").wait_for(timeout=60_000)  # of the kernel: before, cells are run in vain
    run_all(ada)
    verdict = ada.locator(".gg-top").first
    verdict.wait_for(timeout=120_000)
    assert "Rent" in verdict.inner_text(timeout=60_000)

    bob = signed_in(browser, hub, "bob")
    bob.wait_for_url("**/user/bob/lab/**", timeout=120_000)
    assert bob.goto(f"{hub}/user/ada/lab").status in (403, 404)

    eve = signed_in(browser, hub, "eve")
    eve.wait_for_load_state()
    assert "limit exceeded" in eve.locator("body").inner_text().lower()

    for page in (ada, bob, eve):
        page.context.close()
    deadline = time.monotonic() + 180
    while running(hub) and time.monotonic() < deadline:
        time.sleep(2)
    assert not running(hub), "forgotten servers take memory until somebody ends them by hand"
    with urllib.request.urlopen(f"{hub}/hub/health", timeout=10) as reply:
        assert reply.status == 200


def running(hub: str) -> list[str]:
    """People whose server answers; for the others the hub does."""
    found = []
    for name in ("ada", "bob"):
        address = f"{hub}/user/{name}/api"
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(address, timeout=10) as reply:
            if reply.headers.get_content_type() == "application/json":
                found.append(name)
    return found
