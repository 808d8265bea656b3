"""What strangers do to a page: hostile text through every door, back and forth, large letters, no motion."""

import json
import shutil
import urllib.parse
from pathlib import Path

import pytest

from gpuguide import Scenario, decide
from gpuguide.catalog.catalog import Catalog
from gpuguide.show import figures, tables, verdict
from gpuguide.show.names import text_with_names

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DATA = Path(__file__).parents[2] / "data"
HOSTILE = "<img src=x onerror=window.hacked=1>\"><script>window.hacked=1</script>'</style><svg onload=window.hacked=1>"
ACCURACY = ("table", "find", "row", "of_gpu", "of_model", "of_method", "of_engine")
DOORS = {  # page, and the keys of its address
    "memory": list(Scenario.model_fields),
    "market": list(Scenario.model_fields),
    "compare": ["a", "b", "c", "d"],
    "accuracy": list(ACCURACY),
}
HURT = "() => [window.hacked ?? 0, document.querySelectorAll('img[src=x], svg[onload]').length]"


@pytest.mark.parametrize("name", DOORS)
def test_hostile_addresses_execute_nothing_and_get_one_sentence(visit, name):
    """A link is written by anyone."""
    page = visit.open(f"/{name}?" + urllib.parse.urlencode(dict.fromkeys(DOORS[name], HOSTILE)), width=1280)
    page.wait_for_timeout(300)
    assert page.evaluate(HURT) == [0, 0]
    said = [alert for alert in page.get_by_role("alert").all_inner_texts() if alert.strip()]
    assert len(said) == 1
    assert len(said[0]) < 400
    assert "\n" not in said[0].strip()


@pytest.mark.parametrize("key", ["model", "providers", "engine"])
def test_a_hostile_value_is_repeated_as_text(visit, key):
    """The sentence that refuses a value shows it: as letters."""
    page = visit.open("/memory?" + urllib.parse.urlencode({key: HOSTILE, "concurrency": 32}), width=1280)
    page.wait_for_timeout(200)
    assert page.evaluate(HURT) == [0, 0]
    assert page.locator(".gg-verdict").count() == 1
    assert "concurrency=32" in page.url


def test_hostile_pins_execute_nothing(visit):
    """What this browser keeps may have been written by another page of the same address."""
    page = visit.open("/memory", width=1280)
    pins = [f"workload=serve&model={urllib.parse.quote(HOSTILE)}", HOSTILE, "workload=serve&model=llama-3.1-8b"]
    page.evaluate("(pins) => localStorage.setItem('gg-pins', pins)", json.dumps(pins))
    page.get_by_role("link", name="Compare", exact=True).click()
    page.wait_for_url("**/compare?*")
    visit.settled(page)
    assert page.evaluate(HURT) == [0, 0]
    assert page.locator(".gg-compare thead th a").count() == 1
    page.evaluate("localStorage.setItem('gg-pins', '{broken')")
    page.goto(f"{visit.url}/memory", wait_until="commit")
    visit.settled(page)
    page.get_by_role("button", name="Pin to compare").click()
    assert page.evaluate("JSON.parse(localStorage.getItem('gg-pins')).length") == 1


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """A catalog whose cheapest offer is of a provider with a hostile name, as a price feed could bring it."""
    folder = tmp_path_factory.mktemp("poisoned") / "data"
    shutil.copytree(DATA, folder, ignore=shutil.ignore_patterns("measurements", "hf_configs"))
    for name, column in (("offers.csv", 2), ("providers.csv", None)):
        path = folder / name
        text = path.read_text("utf-8")
        quoted = '"' + HOSTILE.replace('"', '""') + '"'
        path.write_text(text.replace("\nrunpod,", f"\n{quoted},"), "utf-8")
        assert column is None or quoted in path.read_text("utf-8")
    for name in ("egress_tiers.csv", "reserved.csv", "grid_regions.csv", "fabrics.csv"):
        path = folder / name
        path.write_text("\n".join(row for row in path.read_text("utf-8").split("\n") if not row.startswith("runpod,")))
    return Catalog(folder)


def test_a_hostile_provider_is_shown_as_text(visit, poisoned):
    """Prices come from elsewhere, and with them names."""
    scenario = Scenario(workload="serve", model="llama-3.1-8b", providers=(HOSTILE,), offer_kinds=())
    decision = decide(poisoned.resolve(scenario.model_copy(update={"providers": ()})))
    ours = decision.ranking["provider"] == HOSTILE
    assert ours.any()
    decision.__dict__["ranking"] = decision.ranking[ours].reset_index(drop=True)
    text = text_with_names("en", "USD", None)
    html = tables.ranking_table(decision, text) + verdict.verdict_box(decision, text)
    page = visit.open("/memory", width=1280)
    page.evaluate("(html) => { document.querySelector('.gg-intro').innerHTML = html; }", str(html))
    figure = figures.cost_bars(decision.ranking.head(5), text, title="USD", count=5)
    draw = "([data, layout]) => Plotly.newPlot(document.querySelector('.gg-end'), data, layout)"
    page.evaluate(draw, [figure["data"], figure["layout"]])
    page.wait_for_timeout(500)
    assert page.evaluate(HURT) == [0, 0]
    assert "onerror" in page.locator(".gg-intro table").inner_text()


def test_back_forward_and_reload_keep_the_state(visit):
    """The buttons that everyone knows."""
    page = visit.open("/memory", width=1280)
    visit.after(page, lambda: page.get_by_role("button", name="QLoRA of 70B").click())
    said, address = page.locator(".gg-verdict").inner_text(), page.url
    page.get_by_role("link", name="Accuracy", exact=True).click()
    page.wait_for_url("**/accuracy?*")
    visit.settled(page)
    page.go_back(wait_until="commit")
    page.wait_for_url("**/memory?*")
    visit.settled(page)
    assert page.locator(".gg-verdict").inner_text() == said
    page.go_forward(wait_until="commit")
    page.wait_for_url("**/accuracy?*")
    page.go_back(wait_until="commit")
    page.wait_for_url("**/memory?*")
    page.reload(wait_until="commit")
    visit.settled(page)
    assert (page.locator(".gg-verdict").inner_text(), page.url) == (said, address)
    assert not visit.complaints


@pytest.mark.parametrize("name", ["memory", "market", "accuracy"])
def test_twice_the_size_of_letters(chromium, visit, name):
    """A browser at 200 % has half the pixels: nothing overlaps, is cut off, or makes the page scroll sideways."""
    context = chromium.new_context(
        locale="tr-TR", viewport={"width": 640, "height": 450}, device_scale_factor=2, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(f"{visit.url}/{name}", wait_until="commit")
    page.wait_for_function("document.documentElement.classList.contains('gg-ready')", timeout=90_000)
    page.wait_for_timeout(800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 640
    assert not visit.flaws(page)
    # Who asked for less motion gets none.
    names = "[...document.querySelectorAll('.gg *')].map((one) => getComputedStyle(one).animationName)"
    assert set(page.evaluate(names)) == {"none"}
    bars = "[...document.querySelectorAll('.gg-bar i')].map((bar) => getComputedStyle(bar).transitionDuration)"
    assert set(page.evaluate(bars)) <= {"0s"}
    context.close()
