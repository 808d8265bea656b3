"""
From a moved slider to the repainted chart, and from an address to the first chart, in a real Chromium.

usage: python benchmarks/browser.py [--pages memory serve train] [--steps 40] [--loads 5] [--chromium PATH]

The clock runs in the page: from the key press on the slider's handle to the frame after plotly.js has drawn. Kernel,
server and browser share this machine's cores.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from typing import Any

from measured import app_command, cpu_s, environment, family, free_port, memory_mb, save, serving, summary
from playwright.sync_api import Browser, TimeoutError, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
READY = "document.documentElement.classList.contains('gg-ready')"
DRAWN = "[...document.querySelectorAll('.gg-chart > div:not(.gg-tools)')].some((picture) => picture.dataset.drawn)"
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


def load(browser: Browser, url: str) -> tuple[float, float]:
    """Seconds until the answer and until the first chart, in a browser that was never here."""
    context = browser.new_context()
    page = context.new_page()
    started = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_function(READY, timeout=120_000)
    answered = time.perf_counter() - started
    page.wait_for_function(DRAWN, timeout=120_000)
    drawn = time.perf_counter() - started
    context.close()
    return answered, drawn


def steps(browser: Browser, url: str, count: int) -> tuple[list[float], int]:
    """Milliseconds of each step, and how many were never painted."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(url, wait_until="commit")
    page.wait_for_function(READY, timeout=120_000)
    page.wait_for_function(DRAWN, timeout=120_000)
    page.wait_for_timeout(2000)
    page.evaluate(WATCH)
    for number in range(count):
        before = page.evaluate("window.steps.length")
        page.keyboard.press("ArrowRight" if number // 6 % 2 else "ArrowLeft")
        with contextlib.suppress(TimeoutError):
            page.wait_for_function(f"window.steps.length > {before}", timeout=5_000)
        page.wait_for_timeout(700)  # pictures that wait for a resting hand are drawn meanwhile
    seen: list[float] = page.evaluate("window.steps")
    context.close()
    return seen, count - len(seen)


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
            loads = [load(browser, f"{url}/{name}") for _ in range(asked.loads)]
            before = cpu_s(family(pid))
            taken, lost = steps(browser, f"{url}/{name}", asked.steps)
            used = cpu_s(family(pid)) - before
            row: dict[str, Any] = {
                "page": name,
                "answer_s": summary([answered for answered, _ in loads]),
                "chart_s": summary([drawn for _, drawn in loads]),
                "step_ms": summary(taken) if taken else None,
                "lost": lost,
                "server_cpu_s": used,
                "server_mb": memory_mb(family(pid)),
            }
            figures.append(row)
            print(row, flush=True)
        browser.close()
    save("browser", figures, "python benchmarks/browser.py " + " ".join(sys.argv[1:]), started)


if __name__ == "__main__":
    main()
