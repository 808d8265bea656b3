"""Every page at both widths, in both languages, light and dark: whole, readable, without a complaint."""

import re
from pathlib import Path

import pytest

from gpuguide.app.declaration import PAGES
from gpuguide.text import texts

pytestmark = [pytest.mark.browser, pytest.mark.slow]

AXE = Path(__file__).parent / "axe" / "axe.min.js"
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"


def untranslated(words: str) -> list[str]:
    """Keys of texts, or of their groups, that stand where a text should."""
    groups = {key.partition(".")[0] for key in texts("en") if "." in key}
    return [word for word in re.findall(r"\b[a-z]+\.[a-z_]+(?:\.[a-z_]+)?\b", words) if word.split(".")[0] in groups]


@pytest.mark.parametrize("language", ["en", "tr"])
@pytest.mark.parametrize("name", ["index", *PAGES])
def test_page(visit, name, language):
    """What a demanding stranger would see at first sight."""
    page = visit.open(f"/{name}?language={language}", width=1280)
    page.add_script_tag(path=AXE)
    SHOTS.mkdir(parents=True, exist_ok=True)
    findings = {}
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(400)
            page.screenshot(path=SHOTS / f"{name}-{language}-{width}-{scheme}.png", full_page=True)
            state = f"{width} {scheme}"
            if page.evaluate("document.documentElement.scrollWidth") > width:
                findings[state, "scrolls sideways"] = page.evaluate("document.documentElement.scrollWidth")
            findings |= {(state, what): found for what, found in visit.flaws(page).items()}
            if (width, scheme) not in ((1280, "light"), (390, "dark")):
                continue
            run = "axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] })"
            for violation in page.evaluate(f"async () => (await {run}).violations"):
                if violation["impact"] in ("serious", "critical"):
                    findings[state, violation["id"]] = [node["html"][:160] for node in violation["nodes"][:3]]
    assert not untranslated(page.inner_text("body"))
    assert page.evaluate("document.documentElement.lang") == language
    assert not findings
    assert not visit.complaints
