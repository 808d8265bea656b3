"""The first look of a page: what stands there before its controls are alive."""

import json
import re
from html import unescape

import pytest

from gpuguide.app import compare_page, market_page, memory_page
from gpuguide.app.first import MARK, VARIABLE, asked_for, first_look
from gpuguide.text import LANGUAGES, Text


def look_of(page, query=""):
    return first_look(page.root, page.text, query=query)


@pytest.fixture(scope="module")
def page():
    return memory_page()


@pytest.fixture
def shown(monkeypatch):
    """Shows a page as a served notebook does, and gives what is displayed before the widgets."""

    def show(page, **environment):
        for name, value in (
            {VARIABLE: "1", "SERVER_SOFTWARE": "voila/0", "VOILA_PREHEAT": "False"} | environment
        ).items():
            monkeypatch.setenv(name, value)
        given = []
        monkeypatch.setattr("IPython.display.display", lambda *what, **how: given.append((what, how)))
        page._ipython_display_()
        *before, (root, _) = given
        assert root == (page.root,)
        return before

    return show


def test_it_says_what_the_page_says(page):
    """An answer that changes when the controls arrive."""
    look = look_of(page)
    for widget in (page._header, page._intro, page._verdict, page._tiles, page._footer):
        assert widget.value in look
    assert page.panel.text("starting_controls") in look


def test_charts_are_what_the_page_draws(page):
    """A first picture of something else, or one that ends the script that holds it."""
    found = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', look_of(page))]
    drawn = [view for view in page._views.values() if getattr(view, "figure", {}).get("data")]
    assert [state["figure"] for state in found] == [json.loads(json.dumps(view.figure)) for view in drawn]
    page._views["memory"].figure = page._views["memory"].figure | {"label": "</script><b>"}
    assert "</script><b>" not in look_of(page)


def test_controls_keep_their_room(page):
    """Inputs that nobody answers, or a page that jumps when they come."""
    look = look_of(page)
    assert not re.search(r"<(input|select|textarea)\b", look)
    height = int(re.search(r'gg-blank gg-side gg-card" style="height:(\d+)px', look).group(1))
    assert 600 < height < 3000


def test_it_is_marked_with_what_it_answers():
    """The look of another question, or in another language."""
    look = look_of(memory_page(language="tr"), query="a=1&b=<2>")
    assert unescape(re.search(r'data-query="([^"]*)"', look).group(1)) == "a=1&b=<2>"
    assert 'data-look="tr"' in look


def test_a_served_page_knows_the_address_before_it_is_shown(shown):
    """A link that first shows another model, or another language."""
    page = memory_page()
    [(_, how), *more] = [(what, how) for what, how in shown(
        page, QUERY_STRING="model=qwen2.5-7b&concurrency=32", HTTP_ACCEPT_LANGUAGE="tr-TR,tr;q=0.9,en;q=0.8"
    )]  # fmt: skip
    assert not more
    assert how["metadata"] == {MARK: True}
    assert (page.scenario.model, page.scenario.concurrency, page.text.language) == ("qwen2.5-7b", 32, "tr")
    assert page.browser.search is None, "the browser itself still says where it is"


def test_a_link_that_cannot_be_is_refused_in_the_first_look_too(shown):
    """Nonsense that stops the page, or is passed over in silence."""
    page = memory_page()
    [(what, _)] = shown(page, QUERY_STRING="model=/etc/passwd&headroom=7")
    assert "/etc/passwd" not in (page.scenario.model or "")
    assert page._error.value
    assert page._error.value in what[0]["text/html"]


def test_the_browser_that_comes_then_finds_it_as_it_is(shown):
    """What was said would be taken back for a moment and said again."""
    page = memory_page(language="tr")
    words = page.text
    shown(page, QUERY_STRING="headroom=7&concurrency=32&language=tr", HTTP_ACCEPT_LANGUAGE="tr")
    assert page.text is words, "said again in the language that it speaks already"
    error, seen = page._error.value, []
    assert error
    page._error.observe(lambda change: seen.append(change["new"]), "value")
    page.browser.tongue = "tr-TR"
    page.browser.search = "?headroom=7&concurrency=32&language=tr"
    assert not seen
    page.browser.search = "?concurrency=16"
    assert page.scenario.concurrency == 16


@pytest.mark.parametrize("made", [memory_page, compare_page, market_page])
def test_made_before_anybody_asks_it_speaks_every_language(shown, made):
    """A reader whose language was not expected would wait longer than others."""
    page = made(language="tr") if made is memory_page else made()
    own = page.text.language
    [(what, _)] = shown(page, VOILA_PREHEAT="True")
    assert sorted(re.findall(r'data-look="(\w+)"', what[0]["text/html"])) == sorted(LANGUAGES)
    assert page.text.language == own
    for language in LANGUAGES:
        assert Text(language)(f"page.{page.name}.title") in what[0]["text/html"]


def test_elsewhere_there_is_none(monkeypatch):
    """JupyterLab, reports and other servers would show it beside the page, and leave it there."""
    monkeypatch.delenv(VARIABLE, raising=False)
    given = []
    monkeypatch.setattr("IPython.display.display", lambda *what, **how: given.append(what))
    page = memory_page()
    page._ipython_display_()
    assert given == [(page.root,)]


def test_what_is_asked_for(monkeypatch):
    """Pages in store are asked for by nobody yet."""
    monkeypatch.delenv("VOILA_PREHEAT", raising=False)
    assert asked_for() is None
    monkeypatch.setenv("VOILA_PREHEAT", "False")
    monkeypatch.setenv("QUERY_STRING", "a=b")
    monkeypatch.setenv("HTTP_ACCEPT_LANGUAGE", "tr")
    assert asked_for() == ("a=b", "tr")
