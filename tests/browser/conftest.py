"""A real server and a real browser, started once for all tests of pages."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
READY = "document.documentElement.classList.contains('gg-ready')"
DRAWN = "[...document.querySelectorAll('.gg-chart > div:not(.gg-tools)')].every((picture) => picture.dataset.drawn)"
HARMLESS = ("@jupyterlab/docmanager", "Unsatisfied version", "No satisfying version")
"""Voila's front end was built against an older JupyterLab, and its module loader says so."""

# Text that is cut off: its box is smaller than its words, and nothing lets the reader scroll to them.
CLIPPED = """() => [...document.querySelectorAll(
    '.gg h1, .gg h2, .gg p, .gg dt, .gg dd, .gg button, .gg li, .gg label, .gg a, .gg th')]
  .filter((box) => box.checkVisibility() && !box.closest('.gg-names') && getComputedStyle(box).overflow !== 'visible'
    && (box.scrollWidth > box.clientWidth + 2 || box.scrollHeight > box.clientHeight + 2))
  .map((box) => box.outerHTML.slice(0, 120))"""
# Boxes of one column that lie over each other.
OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll('.gg-card, .gg-tile, .gg-field > *')]
    .filter((box) => box.checkVisibility());
  const places = boxes.map((box) => box.getBoundingClientRect());
  const found = [];
  for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
    if (boxes[i].contains(boxes[j]) || boxes[j].contains(boxes[i])) continue;
    const width = Math.min(places[i].right, places[j].right) - Math.max(places[i].left, places[j].left);
    const height = Math.min(places[i].bottom, places[j].bottom) - Math.max(places[i].top, places[j].top);
    if (width > 2 && height > 2 && !boxes[i].closest('.gg-side') === !boxes[j].closest('.gg-side'))
      found.push(boxes[i].className + ' / ' + boxes[j].className);
  }
  return found;
}"""
TICKS_OVERLAP = """() => [...document.querySelectorAll('.gg-chart .xaxislayer-above')].flatMap((axis) => {
  const places = [...axis.querySelectorAll('text')]
    .filter((tick) => !tick.getAttribute('transform')?.includes('rotate(-'))
    .map((tick) => tick.getBoundingClientRect()).sort((a, b) => a.left - b.left);
  return places.slice(1).filter((place, index) => place.left < places[index].right - 1)
    .map((place) => Math.round(place.left));
})"""


class Server:
    """The suite as `gpuguide app` serves it."""

    def __init__(self, url: str, process: subprocess.Popen) -> None:
        self.url, self.process = url, process

    def kernels(self) -> list[int]:
        """Processes that stand for kernels."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and (b"--stand-in" in words or b"ipykernel_launcher" in words):
                    found.append(int(folder.name))
        return found


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """For a few people, as it is when nothing else is said."""
    with served() as server:
        yield server


@pytest.fixture
def another_server():
    """Starts one with options of its own, until the block ends."""
    return served


@contextlib.contextmanager
def served(*options: str, script: str | None = None) -> Iterator[Server]:
    """A server of our own until the block ends; a script may look into it, and says what it saw on standard output."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, *(("-c", script) if script else ("-m", "gpuguide.app.serve")), str(port), *options],
        start_new_session=True,
        stdout=subprocess.PIPE if script else subprocess.DEVNULL,
        text=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/gpuguide/static/page.css", timeout=5):
                break
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.2)
        yield Server(url, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()


class Visit:
    """A reader with a browser: opens pages, and remembers what the browser complained about."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.complaints: list[str] = []

    def open(self, path: str, **viewport: int) -> Page:
        """A page, once it shows its answer and its charts."""
        page = self.context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        if viewport:
            page.set_viewport_size({"width": viewport["width"], "height": viewport.get("height", 900)})
        page.goto(self.url + path, wait_until="commit")
        self.settled(page)
        return page

    def settled(self, page: Page) -> None:
        """Wait for the answer and the charts."""
        page.wait_for_function(READY, timeout=90_000)
        page.wait_for_function(DRAWN, timeout=60_000)

    def after(self, page: Page, action) -> None:
        """Do something and wait for the answer to it."""
        before = page.evaluate("Number(document.documentElement.dataset.ggTick)")
        action()
        page.wait_for_function(f"Number(document.documentElement.dataset.ggTick) > {before}", timeout=30_000)

    def flaws(self, page: Page) -> dict[str, list[str]]:
        """What is cut off, or lies over something else."""
        scripts = {"clipped": CLIPPED, "overlap": OVERLAPS, "ticks": TICKS_OVERLAP}
        return {what: found for what, script in scripts.items() if (found := page.evaluate(script))}

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(harmless in message.text for harmless in HARMLESS):
            self.complaints.append(f"{message.type}: {message.text}")


@pytest.fixture
def visit(server: Server, chromium: Browser) -> Iterator[Visit]:
    context = chromium.new_context(locale="en-US", accept_downloads=True)
    yield Visit(context, server.url)
    context.close()
