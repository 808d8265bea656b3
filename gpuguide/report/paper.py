"""PDF of an HTML report, printed by a browser that is on the machine already."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from gpuguide.errors import DataError

BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge", "microsoft-edge",
    "brave-browser",
)  # fmt: skip
OTHER_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)
PAPER_WIDTH = 718
"""A4 at 96 dots an inch without its margins; charts are drawn for it. [px]"""
LONGEST_S = 120
"""A browser that has not printed by then hangs. [s]"""


def browser() -> Path | None:
    """A Chromium, Chrome or Edge of this machine: the one CHROMIUM names, else one on the path."""
    if named := os.environ.get("CHROMIUM"):
        return Path(named)
    for name in BROWSERS:
        if found := shutil.which(name):
            return Path(found)
    return next((Path(place) for place in OTHER_PLACES if Path(place).is_file()), None)


def print_pdf(html: Path, pdf: Path) -> None:
    """
    Print an HTML file to A4.

    Raises
    ------
    DataError
        If there is no browser, or it could not print.
    """
    found = browser()
    if found is None:
        raise DataError(
            pdf.name, None, None, "a PDF needs Chromium, Chrome or Edge on this machine; write .html and print that"
        )
    with tempfile.TemporaryDirectory(prefix="gpuguide-print-") as profile:
        sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [
            str(found), "--headless=new", *sandbox, "--disable-gpu", "--disable-extensions", "--no-first-run",
            f"--user-data-dir={profile}", f"--window-size={PAPER_WIDTH},1000", "--no-pdf-header-footer",
            "--run-all-compositor-stages-before-draw", "--virtual-time-budget=20000", f"--print-to-pdf={pdf}",
            f"{html.resolve().as_uri()}#paper",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(pdf.name, None, None, f"{found.name} could not print it ({error})") from None
    if not pdf.is_file() or not pdf.stat().st_size:
        said = " ".join(done.stderr.split())[-200:]
        raise DataError(pdf.name, None, None, f"{found.name} could not print it ({said})")
