"""What tests share: how hypothesis draws, and where the browser is."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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
