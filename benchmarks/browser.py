"""
From a moved slider to the repainted chart, and from an address to the first chart, in a real Chromium.

usage: python benchmarks/browser.py [--pages memory serve train] [--steps 40] [--loads 5] [--chromium PATH]

The clock runs in the page: from the key press on the slider's handle to the frame after plotly.js has drawn. Its floor
is measured between the steps: a message to the kernel and back that asks for nothing, then plotly.js redraws the same
picture with other numbers. The floor of a load is a notebook with one slider and one FigureWidget under Voila as it
comes. Kernel, server and browser share this machine's cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measured import app_command, cpu_s, environment, family, free_port, memory_mb, save, serving, summary
from playwright.sync_api import Browser, TimeoutError, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SAID = "document.querySelector('.gg-verdict')"
READY = "document.documentElement.classList.contains('gg-ready')"
DRAWN = "[...document.querySelectorAll('.gg-chart > div:not(.gg-tools)')].some((picture) => picture.dataset.drawn)"
LISTEN = """
window.received = 0;
const Plain = window.WebSocket;
window.WebSocket = class extends Plain {
  constructor(...words) {
    super(...words);
    this.addEventListener('message', ({ data }) => {
      window.received += data.length ?? data.byteLength;
      const text = typeof data === 'string' ? data : new TextDecoder().decode(data);
      if (/"kind": ?"pong"/.test(text)) window.echoed?.();
    });
  }
};
"""
FLOOR = """
async () => {
  const picture = document.querySelector('.js-plotly-plot'), plain = window.fetch;
  window.fetch = () => new Promise(() => {}); // the heartbeat asks the server too; here only the kernel shall answer
  const key = picture.data[0].orientation === 'h' ? 'x' : 'y';
  const other = picture.data.map((trace) => Array.from(trace[key] ?? [], (value) => value * 1.01));
  const started = performance.now();
  await new Promise((resolve) => { window.echoed = resolve; window.dispatchEvent(new Event('gg-check')); });
  window.echoed = undefined;
  window.fetch = plain;
  await window.Plotly.restyle(picture, { [key]: other });
  return new Promise((resolve) => requestAnimationFrame(() => resolve(performance.now() - started)));
}
"""
WATCH = """
() => {
  window.steps = [];
  const handle = [...document.querySelectorAll('.noUi-handle')].filter((one) => one.offsetParent)[0];
  const picture = document.querySelector('.js-plotly-plot');
  const shown = () => JSON.stringify(picture.data.map(({ x, y }) => [x, y]));
  let started = 0, before = "";
  handle.addEventListener('keydown', () => { before = shown(); started = performance.now(); }, true);
  picture.on('plotly_afterplot', () => {
    if (started && shown() !== before) requestAnimationFrame(() => {
      if (started) { window.steps.push(performance.now() - started); started = 0; }
    });
  });
  handle.focus();
}
"""
"""Only a picture with other data ends a step: charts also repaint for reasons of their own."""


def load(browser: Browser, url: str, **waited_for: str) -> dict[str, float]:
    """Seconds until each of some conditions holds, in a browser that was never here."""
    context = browser.new_context()
    page = context.new_page()
    started = time.perf_counter()
    page.goto(url, wait_until="commit")
    # One question asked in every frame: waiting for one thing after another would blur what came first.
    seen = "".join(
        f"if (!when.{name} && {holds}) when.{name} = performance.now();" for name, holds in waited_for.items()
    )
    missing = f"Object.keys(when).length < {len(waited_for)}"
    page.evaluate(f"window.when = {{}}; (function look() {{ {seen} if ({missing}) requestAnimationFrame(look); }})()")
    page.wait_for_function(f"window.when && !({missing})", timeout=120_000)
    begun = time.perf_counter() - started - page.evaluate("performance.now()") / 1e3
    when = page.evaluate("window.when")
    context.close()
    return {name: begun + passed / 1e3 for name, passed in when.items()}


def loads(browser: Browser, url: str, count: int, pause_s: float = 0.0) -> dict[str, Any]:
    """Summaries of how soon a page says its answer, shows its first chart, and lets its controls be moved. [s]"""
    taken = []
    for _ in range(count):
        taken.append(load(browser, url, said=SAID, drawn=DRAWN, live=READY))
        time.sleep(pause_s)
    return {f"{name}_s": summary([one[name] for one in taken]) for name in ("said", "drawn", "live")}


def steps(browser: Browser, url: str, count: int) -> dict[str, Any]:
    """Milliseconds of each step and of its floor, kB of each, and how many steps were never painted."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(LISTEN)
    page = context.new_page()
    page.goto(url, wait_until="commit")
    page.wait_for_function(READY, timeout=120_000)
    page.wait_for_function(DRAWN, timeout=120_000)
    page.wait_for_timeout(2000)
    page.evaluate(WATCH)
    page.wait_for_timeout(500)  # from reaching a slider to pressing a key
    floors, kilobytes = [], []
    for number in range(count):
        before = page.evaluate("window.received = 0, window.steps.length")
        page.keyboard.press("ArrowRight" if number // 6 % 2 else "ArrowLeft")
        with contextlib.suppress(TimeoutError):
            page.wait_for_function(f"window.steps.length > {before}", timeout=5_000)
        page.wait_for_timeout(900)  # pictures that wait for a resting hand are drawn meanwhile
        kilobytes.append(page.evaluate("window.received") / 1e3)
        floors.append(page.evaluate(FLOOR))
        page.wait_for_timeout(300)  # what the floor drew is painted before the next key is pressed
    seen: list[float] = page.evaluate("window.steps")
    context.close()
    return {
        "step_ms": summary(seen) if seen else None,
        "floor_ms": summary(floors),
        "step_kb": summary(kilobytes),
        "lost": count - len(seen),
    }


BARE = """
import ipywidgets
import plotly.graph_objects as go

figure = go.FigureWidget([go.Bar(x=list(range(10)), y=list(range(10)))])
ipywidgets.VBox([ipywidgets.FloatSlider(), figure])
"""
"""The least that Voila can show of our kind."""
PICTURE = "document.querySelector('.js-plotly-plot .main-svg .bars')"


def bare(browser: Browser, count: int) -> dict[str, Any]:
    """Loads of a notebook with one slider and one FigureWidget, under Voila as it comes."""
    cell = {"cell_type": "code", "id": "all", "metadata": {}, "execution_count": None, "outputs": [], "source": BARE}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": [cell]}
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bare.ipynb"
        path.write_text(json.dumps(book), encoding="utf-8")
        command = [sys.executable, "-m", "voila", str(path), "--no-browser", f"--port={port}"]
        with serving(command, url):
            took = [load(browser, url, drawn=PICTURE)["drawn"] for _ in range(count)]
    return {"page": "one slider, one FigureWidget, Voila as it comes", "drawn_s": summary(took)}


def stored(browser: Browser, pages: list[str], count: int) -> list[dict[str, Any]]:
    """Loads of pages that were made before they are asked for."""
    rows, port = [], free_port()
    url = f"http://127.0.0.1:{port}"
    with serving([*app_command(port), "--many"], f"{url}/gpuguide/static/page.css") as pid:
        time.sleep(20)
        for name in pages:
            taken = loads(browser, f"{url}/{name}", count, pause_s=4)  # meanwhile the store is filled again
            rows.append({"page": f"{name}, --users many", **taken, "server_mb": memory_mb(family(pid))})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pages", nargs="+", default=["memory", "serve", "train"])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, NAMES)), None))
    asked = parser.parse_args()
    started, figures = environment(), []
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with serving(app_command(port), f"{url}/gpuguide/static/page.css") as pid, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=asked.chromium, args=["--no-sandbox", "--disable-gpu"])
        for name in asked.pages:
            taken = loads(browser, f"{url}/{name}", asked.loads)
            before = cpu_s(family(pid))
            row: dict[str, Any] = {
                "page": name,
                **taken,
                **steps(browser, f"{url}/{name}", asked.steps),
                "server_cpu_s": cpu_s(family(pid)) - before,
                "server_mb": memory_mb(family(pid)),
            }
            figures.append(row)
            print(row, flush=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=asked.chromium, args=["--no-sandbox", "--disable-gpu"])
        figures += stored(browser, asked.pages[:1], asked.loads)
        figures.append(bare(browser, asked.loads))
        print(figures[-1], flush=True)
        browser.close()
    save("browser", figures, "python benchmarks/browser.py " + " ".join(sys.argv[1:]), started)


if __name__ == "__main__":
    main()
