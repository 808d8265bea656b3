"""What a reader does: drags, types, clicks, reloads, shares, loses the connection, leaves."""

import json
import os
import re
import signal
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from playwright.sync_api import expect

from gpuguide import Scenario, decide, load_catalog
from gpuguide.app.location import read_query
from gpuguide.show.words import spoken

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BARS = "() => document.querySelector('.gg-card-memory .gg-chart > .js-plotly-plot').data.map((trace) => trace.x)"
LONGEST = """[...document.querySelectorAll('.gg-card-memory .xtick')].map((name) => name.textContent)
  .sort((one, other) => other.length - one.length)[0]"""
PLACE = """(({ x, width, height }) => [x, width, height].map(Math.round))(
  document.querySelector('.gg-card-memory .nsewdrag').getBoundingClientRect())"""


def verdict_of(page):
    return page.locator(".gg-verdict").inner_text().partition("\u00a0")[0] and " ".join(
        page.locator(".gg-verdict").inner_text().split()
    )


def test_the_landing_page_says_its_question_without_scripts(server):
    """`curl` and search engines see the same question as readers."""
    html = urllib.request.urlopen(server.url, timeout=60).read().decode()
    assert "Which cloud GPU should you rent?" in html
    assert "Hangi bulut GPU" in html


def test_a_slider_moved_by_keyboard_changes_chart_verdict_and_table(visit):
    """The promise of the suite: move, and see."""
    page = visit.open("/memory", width=1280)
    before = (verdict_of(page), page.evaluate(BARS), page.locator(".gg-card-ranking tbody").inner_text())
    slider = page.get_by_role("slider", name="Parameters")
    slider.focus()
    for _ in range(3):
        visit.after(page, lambda: slider.press("PageUp"))
    page.wait_for_timeout(500)
    after = (verdict_of(page), page.evaluate(BARS), page.locator(".gg-card-ranking tbody").inner_text())
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert "params_b=" in page.url
    assert not visit.complaints


def test_a_hand_at_a_slider_is_told_to_the_kernel_once(visit):
    """Its first step would wait for the market to be ranked; a message for every pixel would keep the kernel busy."""
    told = []

    def listen(payload):
        words = payload if isinstance(payload, str) else payload.decode("utf-8", "ignore")
        told.extend(re.findall(r'"kind": ?"near", ?"mark": ?"([^"]+)"', words))

    visit.context.on("page", lambda page: page.on("websocket", lambda socket: socket.on("framesent", listen)))
    page = visit.open("/memory", width=1280)
    slider = page.locator(".gg-c-concurrency .noUi-target")
    slider.hover()
    slider.locator(".noUi-handle").hover()
    page.mouse.move(1, 1)
    page.locator(".gg-c-max_context .noUi-handle").focus()
    page.wait_for_timeout(500)
    assert told == ["gg-c-concurrency", "gg-c-max_context"]
    slider.locator(".noUi-handle").hover()
    page.mouse.down()
    page.locator(".gg-c-max_context .noUi-target").hover()  # a drag that strays over another slider
    page.mouse.up()
    page.wait_for_timeout(500)
    assert told[2:] == ["gg-c-concurrency"]
    assert not visit.complaints


def test_a_picture_stays_in_place_while_names_change(visit):
    """One GPU more or less in the longest name, and all bars jumped; plotly.js drew everything twice."""
    page = visit.open("/memory", width=1280)
    slider = page.get_by_role("slider", name="Parameters")
    slider.focus()
    names, places = [page.evaluate(LONGEST)], [page.evaluate(PLACE)]
    for _ in range(7):
        visit.after(page, lambda: slider.press("ArrowLeft"))
        page.wait_for_timeout(300)
        names.append(page.evaluate(LONGEST))
        places.append(page.evaluate(PLACE))
    assert len(set(names)) > 1, names
    assert all(place == places[0] for place in places), places


def test_charts_stay_where_they_are_while_warnings_come_and_go(visit):
    """A line less above, and the chart that one looks at jumped up and down with every step."""
    page = visit.open("/memory", width=1280)
    slider = page.get_by_role("slider", name="Requests at once")
    slider.focus()
    warned, tops = [], []
    for key in ["ArrowRight"] * 6 + ["ArrowLeft"] * 6:
        visit.after(page, lambda key=key: slider.press(key))
        warned.append(page.locator(".gg-top .gg-warnings li").count())
        tops.append(page.evaluate("document.querySelector('.gg-card-memory').getBoundingClientRect().y + scrollY"))
    assert min(warned[warned.index(max(warned)) :]) < max(warned), warned
    assert tops == sorted(tops), tops


def test_the_page_and_decide_agree(visit):
    """A page with numbers of its own."""
    page = visit.open(
        "/serve?model=llama-3.1-70b&weight_format=fp8&max_context=32768&concurrency=16&language=en", width=1280
    )
    given = read_query(urllib.parse.urlsplit(page.url).query) | {"workload": "serve"}
    expected = spoken(decide(load_catalog().resolve(Scenario.from_mapping(given))))["verdict"]
    assert " ".join(expected.split()) in verdict_of(page)


def test_a_link_shows_the_same_in_a_fresh_browser_and_after_a_reload(visit, chromium):
    """State that lives anywhere but in the address is lost."""
    page = visit.open("/finetune?model=llama-3.1-70b&workload=lora", width=1280)
    visit.after(page, lambda: page.get_by_role("button", name="8k", exact=True).click())
    said = verdict_of(page)
    page.reload(wait_until="commit")
    visit.settled(page)
    assert verdict_of(page) == said
    fresh = chromium.new_context(locale="en-US").new_page()
    fresh.goto(page.url, wait_until="commit")
    visit.settled(fresh)
    assert verdict_of(fresh) == said
    fresh.context.close()


def test_two_tabs_do_not_disturb_each_other(visit):
    """One reader's slider would move another's picture."""
    first, second = visit.open("/memory"), visit.open("/memory")
    before = verdict_of(second)
    visit.after(first, lambda: first.get_by_role("button", name="QLoRA of 70B").click())
    assert verdict_of(first) != before
    assert verdict_of(second) == before


def test_language_changes_in_place(visit):
    """A reader of Turkish finds no English sentence, and keeps the settings."""
    page = visit.open("/memory?concurrency=32", width=1280)
    visit.after(page, lambda: page.get_by_role("button", name="Türkçe").click())
    assert page.locator("h1").inner_text() == "Sığar mı?"
    assert page.get_by_role("slider", name="Aynı anda istek").count() == 1
    assert "concurrency=32" in page.url
    assert "language=tr" in page.url
    assert page.title().startswith("Sığar mı?")


def test_dark_charts(visit):
    """Dark letters on a dark card."""
    page = visit.open("/memory", width=1280)
    colour = "() => getComputedStyle(document.querySelector('.gg-card-cost .xtick text')).fill"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"({colour})() !== {json.dumps(light)}")


def test_a_stranger_s_walk(visit):
    """From the first page to a priced answer for 'QLoRA a 70B on the cheapest card this week': at most five actions."""
    page = visit.open("/", width=1280)
    visit.after(page, lambda: page.get_by_role("button", name="QLoRA", exact=True).click())
    visit.after(page, lambda: page.locator(".gg-c-model select").select_option(label="llama-3.1-70b"))
    box = page.locator(".gg-c-deadline_hours input")
    box.fill("168")
    visit.after(page, lambda: box.press("Enter"))
    said = verdict_of(page)
    assert re.search(r"Rent \d+× .* costs \$", said), said
    page.locator(".gg-onward a").first.click()
    page.wait_for_url("**/finetune?*")
    visit.settled(page)
    assert verdict_of(page) == said
    assert not visit.complaints


def test_nonsense_is_said_in_the_page(visit):
    """An exception in a callback shows nothing by itself."""
    page = visit.open("/memory", width=1280)
    before = verdict_of(page)
    box = page.locator(".gg-c-max_context input")
    box.fill("<img src=x onerror=alert(1)>")
    box.press("Enter")
    error = page.get_by_role("alert").filter(has_text="not possible")
    error.wait_for()
    assert verdict_of(page) == before
    assert box.input_value() == "8,192"
    box.fill("16k")
    visit.after(page, lambda: box.press("Enter"))
    assert error.count() == 0


def test_downloads(visit):
    """A button that does nothing."""
    page = visit.open("/memory", width=1280)
    for name, ending in (("Save table as CSV", "csv"), ("Save table as XLSX", "xlsx")):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        assert waiting.value.suggested_filename == f"gpuguide-memory.{ending}"
    page.locator(".gg-card-cost").hover()
    for ending in ("png", "svg"):
        with page.expect_download() as waiting:
            page.locator(".gg-card-cost").get_by_role("button", name=f"({ending.upper()})").click()
        assert waiting.value.suggested_filename == f"gpuguide-memory-cost.{ending}"


def test_keyboard_order_and_help(visit):
    """Someone without a mouse: past the navigation in one step, help opens and closes, focus is seen."""
    page = visit.open("/memory", width=1280)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "gg-skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "gg-question"
    help_text = page.locator(".gg-c-max_context .gg-help")
    help_text.locator("summary").focus()
    page.keyboard.press("Enter")
    assert help_text.locator("p").is_visible()
    page.keyboard.press("Escape")
    assert not help_text.locator("p").is_visible()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_killed_kernel_is_noticed_and_the_page_comes_back(visit, server):
    """A dead page looks alive and answers nothing."""
    page = visit.open("/memory?concurrency=64", width=1280)
    said = verdict_of(page)
    for kernel in server.kernels():
        os.kill(kernel, signal.SIGKILL)
    page.evaluate("window.dispatchEvent(new Event('gg-check'))")
    page.get_by_role("alert").filter(has_text="connection").wait_for(timeout=30_000)
    page.wait_for_function("!document.querySelector('.gg-lost')", timeout=60_000)
    visit.settled(page)
    assert verdict_of(page) == said


def test_a_closed_tab_ends_its_kernel(visit, server):
    """Kernels of closed tabs would fill the memory."""
    before = set(server.kernels())
    page = visit.open("/memory")
    assert set(server.kernels()) - before
    page.close(run_before_unload=True)
    deadline = time.monotonic() + 20
    while set(server.kernels()) - before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not set(server.kernels()) - before


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://evil.example"}, {"Referer": "http://evil.example/"}])
def test_another_site_cannot_end_kernels(server, headers):
    """The check against forged requests stays on."""
    request = urllib.request.Request(f"{server.url}/voila/api/shutdown/0-0", data=b"", headers=headers, method="POST")
    with pytest.raises(urllib.error.HTTPError, match=r"403|404"):
        urllib.request.urlopen(request, timeout=30)


NOT_SERVED = [
    "/nope", "/voila/render/../pyproject.toml", "/voila/files/index.ipynb", "/voila/tree", "/api/kernels",
    "/voila/render/x.ipynb",
]  # fmt: skip


@pytest.mark.parametrize("path", NOT_SERVED)
def test_nothing_else_is_served(server, path):
    """Files of the machine, or a list of kernels."""
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(server.url + path, timeout=30)
    assert error.value.code in (403, 404)
    assert "Traceback" not in error.value.read().decode()


def test_static_files_are_packed_and_kept(server):
    """plotly.js over a phone line, again at every visit."""
    request = urllib.request.Request(f"{server.url}/gpuguide/static/plotly.min.js", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert reply.headers["Content-Encoding"] == "gzip"
        assert "immutable" in reply.headers["Cache-Control"]
        assert len(reply.read()) < 1_700_000


def test_pinned_scenarios_stand_side_by_side(visit):
    """Pinned on one page, compared on another, and kept when a column is taken away."""
    page = visit.open("/memory?concurrency=32", width=1280)
    page.get_by_role("button", name="Pin to compare").click()
    visit.after(page, lambda: page.get_by_role("button", name="QLoRA of 70B").click())
    page.get_by_role("button", name="Pin to compare").click()
    page.get_by_role("link", name="Compare", exact=True).click()
    page.wait_for_url("**/compare?*")
    visit.settled(page)
    heads = page.locator(".gg-compare thead th a")
    assert heads.count() == 2
    assert "QLoRA" in heads.nth(1).inner_text()
    visit.after(page, lambda: page.get_by_role("button", name="Remove").first.click())
    assert heads.count() == 1
    assert not visit.complaints


def test_a_clicked_point_shows_its_source(visit):
    """Accuracy without a way to check it."""
    page = visit.open("/accuracy?table=training_memory", width=1280)
    visit.after(page, lambda: page.locator(".gg-card-worst tbody button").first.click())
    assert "row=" in page.url
    assert page.locator(".gg-inputs dt").count() > 5


def test_the_market_is_searched_sorted_and_filtered(visit):
    """A table of two thousand rows that nobody can find anything in."""
    page = visit.open("/market?language=en", width=1280)
    offers = page.locator(".gg-card-offers")
    offers.locator("tbody tr").first.wait_for()
    offers.get_by_role("searchbox").fill("H100-SXM aws")
    rows = offers.locator("tbody tr")
    expect(offers.get_by_role("status")).to_contain_text("out of")
    found = [row for row in rows.all_inner_texts() if "H100-SXM" in row and "AWS" in row]
    assert len(found) == rows.count() > 1
    offers.get_by_role("button", name="GPU-hour: ").press("Enter")
    expect(offers.locator("th", has_text="GPU-hour")).to_have_attribute("aria-sort", "descending")
    offers.get_by_role("button", name="Filter: Kind").click()
    page.locator(".dtcc-dropdown").get_by_role("button", name="Spot", exact=True).click()
    expect(rows.filter(has_text="On demand")).to_have_count(0)
    assert {"Spot" in row for row in rows.all_inner_texts()} == {True}
    page.keyboard.press("Escape")
    assert page.locator(".dtcc-dropdown").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
    assert not visit.complaints


def test_an_offer_that_is_missing_can_be_looked_up(visit):
    """A renter misses a card and nobody says why."""
    page = visit.open("/serve?model=llama-3.1-70b&language=tr", width=390)
    missing = page.locator(".gg-card-dropped")
    missing.scroll_into_view_if_needed()
    missing.get_by_role("searchbox").fill("RTX4090")
    row = missing.locator("tbody tr").first
    assert "RTX4090" in row.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert not visit.complaints
