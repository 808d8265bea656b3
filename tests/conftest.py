"""What tests share: how hypothesis draws, and where the browser is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# A shared machine makes any single example slow now and then; on CI the same examples are drawn each time.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="session")
def chromium_path() -> Path | None:
    """
    Chromium of the system, by the same names as in tools/browser.sh; None where Playwright has its own.

    For `playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])`.
    """
    if named := os.environ.get("CHROMIUM"):
        return Path(named)
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return Path(found)
    return None


@pytest.fixture(scope="session")
def chromium(chromium_path: Path | None) -> Iterator[Browser]:
    """One browser for all tests that need one: a process may run only one of its loops."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
