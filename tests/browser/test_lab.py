"""Pages, figures and tables as citizens of JupyterLab: they answer there, follow its theme, and leave it as it was."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import TimeoutError

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("lab")]

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TOKEN = "not-a-secret"
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
DRAWN = "() => [...document.querySelectorAll('.gg-chart > div:not(.gg-tools)')].some((one) => one.dataset.drawn)"
# What a stylesheet of ours could spoil: colours, fonts and sizes of Lab's own parts.
LOOK = """() => ['body', '#jp-top-panel', '.jp-NotebookPanel-toolbar', '.jp-InputArea-editor',
  '.jp-RenderedHTMLCommon h1', '.jp-DirListing-item', '.jp-FilterBox input', '.lm-MenuBar-item']
  .flatMap((part) => [...document.querySelectorAll(part)].slice(0, 1)).map((part) => {
    const style = getComputedStyle(part);
    return [part.tagName, style.color, style.backgroundColor, style.fontFamily, style.fontSize, style.lineHeight,
      style.padding, style.margin, style.display, style.colorScheme];
  })"""
ALONE = """from gpuguide import Scenario, decide, load_catalog
from gpuguide.app import show_figure, show_table
from gpuguide.show import figures, tables
from gpuguide.text import Text

catalog, text = load_catalog(), Text("tr")
decision = decide(catalog.resolve(Scenario(workload="lora", model="llama-3.1-8b")))
show_figure(figures.cost_of_offers(decision, text))"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """JupyterLab on this machine, with a token, settings of its own and a notebook of ours and of somebody else."""
    home = tmp_path_factory.mktemp("lab")
    room = home / "room"
    room.mkdir()
    (room / "serve.ipynb").write_bytes((NOTEBOOKS / "serve.ipynb").read_bytes())
    cells = [nbformat.v4.new_markdown_cell("# Ours"), nbformat.v4.new_code_cell(ALONE)]
    cells.append(nbformat.v4.new_code_cell("show_table(tables.ranking_table(decision, text))"))
    python = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=python), room / "theirs.ipynb")
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": "JupyterLab Light"}))
    (settings / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false"}))
    folders = {
        "JUPYTER_CONFIG_DIR": home / "config", "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTER_DATA_DIR": home / "data", "IPYTHONDIR": home / "ipython",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings", "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
    }  # fmt: skip
    environment = os.environ | {name: str(folder) for name, folder in folders.items()}
    trusting = [sys.executable, "-m", "jupyter", "trust", str(room / "theirs.ipynb")]
    subprocess.run(trusting, env=environment, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root",
        f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={room}", "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    process = subprocess.Popen(
        words, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/api/status?token={TOKEN}", timeout=5):
                break
            assert process.poll() is None, "JupyterLab ended"
            assert time.monotonic() < deadline, "JupyterLab did not start"
            time.sleep(0.2)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def reader(chromium):
    context = chromium.new_context(locale="en-US", viewport={"width": 1280, "height": 900})
    yield context
    context.close()


def opened(context, lab, name):
    """A notebook in Lab, and what the browser complains about from here on."""
    page = context.new_page()
    workspace = name.partition(".")[0]  # of its own: what another test has open must not be there
    page.goto(f"{lab}/lab/workspaces/{workspace}/tree/{name}?token={TOKEN}", wait_until="commit")
    page.locator(".jp-Notebook .jp-Cell").last.wait_for(timeout=60_000)
    page.get_by_text("| Idle").wait_for(timeout=60_000)  # of the kernel: before, cells are run in vain
    complaints = []
    page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return page, complaints


STARTED = "() => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].some((one) => one.innerText !== '[ ]:')"


def run_all(page):
    """Through the menu; what is asked before the kernel is connected, Lab forgets."""
    for _ in range(6):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        with contextlib.suppress(TimeoutError):
            return page.wait_for_function(STARTED, timeout=10_000)
    pytest.fail("no cell was run")


def test_a_page_in_jupyterlab(lab, reader):
    """The first thing a user of notebooks tries; untrusted, as a notebook from elsewhere is."""
    page, complaints = opened(reader, lab, "serve.ipynb")
    before = page.evaluate(LOOK)
    run_all(page)
    verdict = page.locator(".gg-verdict")
    verdict.wait_for(timeout=60_000)
    page.wait_for_function(DRAWN, timeout=60_000)
    assert page.evaluate(LOOK) == before, "Lab looks different"
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.locator(".gg-top").scroll_into_view_if_needed()
    page.screenshot(path=SHOTS / "lab-light.png")
    said = verdict.inner_text()
    slider = page.locator(".gg-c-concurrency [role=slider]")
    slider.focus()
    slider.press("PageUp")
    page.wait_for_function(f"document.querySelector('.gg-verdict').innerText !== {json.dumps(said)}", timeout=30_000)
    outputs = page.locator(".gg-room").first
    assert outputs.evaluate("(room) => room.scrollWidth <= room.clientWidth + 1"), "wider than the notebook"
    # Links lead to the notebooks of the other pages, and leave this one open.
    assert page.locator(".gg nav").is_hidden()
    light = page.evaluate("getComputedStyle(document.querySelector('.gg-card')).backgroundColor")
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    dark = page.evaluate("getComputedStyle(document.querySelector('.gg-card')).backgroundColor")
    assert light != dark
    ink = "getComputedStyle(document.querySelector('.gg-chart .xtick text')).fill"
    page.wait_for_function(f"{ink} === 'rgb(231, 237, 245)'")
    page.screenshot(path=SHOTS / "lab-dark.png")
    assert not complaints


def test_a_figure_and_a_table_alone_in_somebody_s_notebook(lab, reader):
    """Without a page around them, charts would be grey and tables bare; trusted, as one's own notebooks are."""
    page, complaints = opened(reader, lab, "theirs.ipynb")
    before = page.evaluate(LOOK)
    run_all(page)
    page.locator(".gg-alone tbody tr").first.wait_for(timeout=60_000)
    page.wait_for_function(DRAWN, timeout=60_000)
    assert page.evaluate(LOOK) == before, "Lab looks different"
    assert "Talep üzerine" in page.locator(".gg-alone").inner_text()
    bar = "getComputedStyle(document.querySelector('.gg-chart .bars path')).fill"
    assert page.evaluate(bar) == "rgb(53, 117, 182)"
    assert page.evaluate("getComputedStyle(document.querySelector('.gg-alone th.n')).textAlign") == "right"
    page.locator(".gg-chart").scroll_into_view_if_needed()
    page.screenshot(path=SHOTS / "lab-alone.png")
    assert not complaints
