"""Every page at both widths, in both languages, light and dark: whole, readable, without a complaint."""

import re
from pathlib import Path

import pytest

from gpuguide.app.declaration import PAGES
from gpuguide.text import texts

pytestmark = [pytest.mark.browser, pytest.mark.slow]

AXE = Path(__file__).parent / "axe" / "axe.min.js"
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"

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
            for what, script in (("clipped", CLIPPED), ("overlap", OVERLAPS), ("ticks", TICKS_OVERLAP)):
                if found := page.evaluate(script):
                    findings[state, what] = found
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
