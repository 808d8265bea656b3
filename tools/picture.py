"""
Take the picture of the memory page that the README shows: docs/images/memory.png.

usage: python tools/picture.py
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "memory.png"
PAGE = "memory?workload=qlora&model=llama-3.1-70b&language=en"
SIZE = {"width": 1280, "height": 1120}


def free_port() -> int:
    """A port that nobody uses just now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> int:
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", "gpuguide", "app", "--port", str(port)], cwd=ROOT)
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30).close()
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5)
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = chromium.new_page(viewport=SIZE, color_scheme="light")
            page.goto(f"http://127.0.0.1:{port}/{PAGE}")
            page.wait_for_selector(".js-plotly-plot .main-svg", timeout=120_000)
            page.wait_for_timeout(3_000)
            PICTURE.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=PICTURE)
            chromium.close()
    finally:
        server.terminate()
        server.wait(30)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
