"""The answer that comes along with a page, before the front end that makes it live."""

import pytest

pytestmark = pytest.mark.browser

FRONT_END = "**/voila/static/*.js"
FIRST_CHART = "() => document.querySelector('#gg-skeleton .gg-chart [data-drawn]')"
TOPS = """() => {
  const boxes = document.querySelectorAll('.gg-head, .gg-intro, .gg-top, .gg-side, .gg-tile, .gg-card');
  return Object.fromEntries([...boxes].map((box) => [box, box.getBoundingClientRect().top])
    .filter(([box, top]) => box.checkVisibility() && top < 700)
    .map(([box, top]) => [box.className.match(/gg-(card-\\w+|head|intro|top|side|tile)/)[1], top]));
}"""


@pytest.fixture
def without_front_end(chromium, server):
    """Opens pages in a browser that never gets Voila's front end."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.route(FRONT_END, lambda route: route.abort())

    def open_(path):
        page = context.new_page()
        page.goto(server.url + path, wait_until="commit")
        return page

    yield open_
    context.close()


@pytest.mark.parametrize("name", ["memory", "train", "accuracy", "index"])
def test_the_answer_and_its_chart_need_no_front_end(without_front_end, visit, name):
    """Seconds of a blank page; or another answer than the one that stays."""
    first = without_front_end(f"/{name}?language=en")
    first.wait_for_function(FIRST_CHART, timeout=60_000)
    live = visit.open(f"/{name}?language=en", width=1280)
    for part in (".gg-live", ".gg-intro h1", ".gg-main h2"):
        said = [box.inner_text() for box in first.locator(f"#gg-skeleton {part}").all()]
        assert said
        assert said == [box.inner_text() for box in live.locator(part).all()]
    live.evaluate("scrollTo(0, 0)")
    places, now = first.evaluate(TOPS), live.evaluate(TOPS)
    assert set(places) == set(now)
    assert all(abs(now[part] - top) <= 4 for part, top in places.items()), "the page jumps when it comes to life"


def test_a_link_shows_its_own_state_first(without_front_end):
    """A manager who follows an engineer's link would first see another model."""
    page = without_front_end("/memory?workload=lora&model=qwen2.5-7b&language=tr")
    page.wait_for_function(FIRST_CHART, timeout=60_000)
    assert page.locator("#gg-skeleton .gg-verdict").count() == 1
    assert "qwen2.5-7b" in page.locator("#gg-skeleton .gg-architecture").inner_text()
    assert page.evaluate("document.documentElement.lang") == "tr"
    assert page.locator("#gg-skeleton [aria-pressed=true]").inner_text() == "Türkçe"
    onward = page.locator("#gg-skeleton nav a").nth(4).get_attribute("href")
    assert "model=qwen2.5-7b" in onward, "the next page would be about another model"
    assert "language=tr" in onward


def test_what_cannot_answer_yet_says_so(without_front_end):
    """Buttons that do nothing, and controls that are not there."""
    page = without_front_end("/memory")
    page.wait_for_function(FIRST_CHART, timeout=60_000)
    assert page.locator("#gg-skeleton button:enabled").count() == page.locator("#gg-skeleton .gg-tool:enabled").count()
    assert page.locator("#gg-skeleton .gg-side [role=status]").inner_text().strip()
    links = page.locator("#gg-skeleton nav a")
    assert links.count() > 5
    assert all("language=" in link.get_attribute("href") for link in links.all())


def test_it_is_gone_when_the_page_is_alive(visit):
    """Two answers on one page, of which one never changes."""
    page = visit.open("/serve", width=1280)
    assert page.locator("#gg-skeleton, .gg-still, template[data-look]").count() == 0
    assert page.locator("h1").count() == 1
