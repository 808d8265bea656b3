"""Pages without a browser: what a moved control, a link, a click and a mistake do."""

import asyncio
import json
import math

import pytest

import gpuguide.app as app
from gpuguide import Scenario, decide, load_catalog
from gpuguide.app.declaration import PAGES
from gpuguide.app.page import SLOW_AFTER_S
from gpuguide.app.pages import DECLARATIONS


def page_of(name, **given):
    return getattr(app, f"{name}_page")(**given)


def click(page, **values):
    """What the browser sends when something marked with values is clicked."""
    page.browser._heard(None, {"kind": "set", "values": values}, [])


def shown(page, card):
    view = page._views[card]
    return view.figure if hasattr(view, "figure") else view.value


@pytest.fixture(scope="module")
def memory():
    return page_of("memory")


@pytest.mark.parametrize("name", DECLARATIONS)
def test_every_page_opens_in_both_languages(name):
    """A page that fails to open, or that shows a key in place of a text."""
    page = page_of(name, language="tr")
    assert page._error.value == ""
    assert page.decision is not None
    turkish = page.said
    click(page, language="en")
    assert page._error.value == ""
    assert page.said != turkish
    assert page.browser.language == "en"


@pytest.mark.parametrize("name", DECLARATIONS)
def test_every_preset_gives_an_answer(name):
    """An example that shows an error is worse than none."""
    page = page_of(name)
    for values in DECLARATIONS[name].presets.values():
        click(page, **values)
        assert page._error.value == "", values
        assert page.scenario is not None


def test_a_moved_slider_changes_verdict_chart_and_table(memory):
    """The picture would belong to another question."""
    before = (memory._verdict.value, json.dumps(shown(memory, "memory")), shown(memory, "ranking"))
    memory.panel.fields["params_b"]._slider.value = 70.0
    after = (memory._verdict.value, json.dumps(shown(memory, "memory")), shown(memory, "ranking"))
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert memory.scenario.model is None
    assert memory.scenario.params_b == pytest.approx(70, rel=0.03)
    click(memory, model="llama-3.1-8b")


def test_the_page_shows_what_decide_says(memory):
    """Page and command line would differ."""
    expected = decide(load_catalog().resolve(Scenario.from_mapping(memory.scenario.model_dump(exclude_unset=True))))
    assert (
        memory.decision.ranking.iloc[0]["cost_total_typical_usd"] == expected.ranking.iloc[0]["cost_total_typical_usd"]
    )


def test_one_change_is_one_answer(memory, monkeypatch):
    """A control that sets another would be answered twice, with a wrong picture in between."""
    drawn = []
    monkeypatch.setattr(memory, "_draw", lambda draw=memory._draw: drawn.append(memory.scenario) or draw())
    memory.panel.fields["model"]._list.value = "qwen3-0.6b"
    assert len(drawn) == 1
    assert memory.panel.fields["params_b"].value == pytest.approx(0.6, rel=0.4)


def test_an_equal_scenario_is_not_answered_again(memory, monkeypatch):
    """Work that nobody sees."""
    drawn = []
    monkeypatch.setattr(memory, "_draw", lambda: drawn.append(1))
    memory.panel.emit()
    assert not drawn


def made(page):
    """Decisions and first pictures so far."""
    return page.decide.cache_info().misses + page._first_picture.cache_info().misses


def in_a_kernel(page, *moves):
    """Do some things one after the other, each when the page has come to rest, and count what each made at once."""
    asked = []

    async def live():
        page.browser.search = "?"
        for move in moves:
            await asyncio.sleep(SLOW_AFTER_S + 1.0)
            known = made(page)
            move()
            asked.append(made(page) - known)
        await asyncio.sleep(SLOW_AFTER_S + 1.0)

    asyncio.run(live())
    return asked


def test_the_next_step_of_a_slider_is_decided_and_drawn_before_it_is_made():
    """Every press of a key would wait for the market to be ranked."""
    page = page_of("memory", model=None, params_b=8.0)
    slider = page.panel.fields["params_b"]._slider

    def step():
        slider.value = slider.base ** (math.log10(slider.value) + slider.step)
        sizes.append(page.scenario.params_b)

    sizes = []
    first, second = in_a_kernel(page, step, step)
    assert first == 2
    assert second == 0
    assert sizes[0] < sizes[1]
    assert page.decision.scenario.params_b == page.scenario.params_b


@pytest.mark.parametrize("side", [1, -1])
def test_the_first_step_of_a_slider_is_made_when_a_hand_is_at_it(side):
    """The first press of a key would be the slow one."""
    page = page_of("memory", model=None, params_b=8.0)
    slider, mark = page.panel.fields["params_b"]._slider, page.panel.fields["params_b"].mark

    def reach():
        page.browser._heard(None, {"kind": "near", "mark": mark}, [])

    def step():
        slider.value = slider.base ** (math.log10(slider.value) + side * slider.step)
        sizes.append(page.scenario.params_b)

    sizes = []
    reached, *stepped = in_a_kernel(page, reach, step, step)
    assert reached == 0  # a move that comes at once would have to wait for it
    assert stepped == [0, 0]
    assert side * (sizes[1] - sizes[0]) > 0


@pytest.mark.parametrize("mark", [None, "gg-c-model", "gg-c-nothing", ["gg-c-params_b"], {}])
def test_a_hand_at_what_is_no_slider_prepares_nothing(mark):
    """Messages come from outside."""
    page = page_of("memory", model=None, params_b=8.0)
    known = made(page)
    page.browser._heard(None, {"kind": "near", "mark": mark}, [])
    assert made(page) == known
    assert not page._error.value


@pytest.mark.parametrize("money", [{}, {"currency": "EUR", "currency_per_usd": 0.9}])
def test_a_picture_of_many_decisions_takes_the_one_that_is_known(money):
    """One more ranking of the market at every step."""
    page = page_of("memory", **money)
    assert page._neighbour({}) is page.decision
    assert page._neighbour({"concurrency": 99}) is not page.decision


def test_a_newer_change_ends_the_drawing_of_an_older_one():
    """A moving slider would wait for pictures that nobody gets to see."""
    page, drawn = page_of("train"), []
    page._views["ranking"].observe(lambda change: drawn.append(page.scenario.params_b), "value")
    field = page.panel.fields["params_b"]

    def drag():
        for size in (20.0, 30.0, 40.0):
            field._slider.value = size
            assert not drawn

    in_a_kernel(page, drag)
    assert drawn == [page.scenario.params_b]
    assert page.scenario.params_b == pytest.approx(40.0, rel=0.03)


def test_exact_values_can_be_typed(memory):
    """Sliders round; a box does not."""
    memory.panel.fields["max_context"]._box.value = "5k"
    assert memory.scenario.max_context == 5000


@pytest.mark.parametrize("typed", ["abc", "-5", "9" * 10_000, "12 apples"])
def test_nonsense_in_a_box_is_said_and_nothing_else_changes(memory, typed):
    """The last good picture stays, and the box shows the value that holds."""
    before = (memory.scenario, memory._verdict.value, memory.panel.fields["max_context"].said())
    memory.panel.fields["max_context"]._box.value = typed
    assert memory._error.value.startswith("<p>")
    assert "Traceback" not in memory._error.value
    assert len(memory._error.value) < 500
    assert (memory.scenario, memory._verdict.value) == before[:2]
    assert memory.panel.fields["max_context"]._box.value == before[2]
    click(memory, concurrency=memory.panel.values["concurrency"] + 1)
    assert memory._error.value == ""


def test_a_fault_of_ours_is_worded(memory, monkeypatch, caplog):
    """An exception in a callback is invisible otherwise."""
    monkeypatch.setattr(memory, "decide", lambda scenario: 1 / 0)
    before = memory._verdict.value
    click(memory, concurrency=777)
    assert "ZeroDivisionError" in caplog.text
    assert memory._error.value == f"<p>{memory.text('error_ours')}</p>"
    assert memory._verdict.value == before


def test_a_link_is_read_and_written_back():
    """The same link in a fresh browser must show the same numbers."""
    page = page_of("memory")
    page.browser.search = "?model=llama-3.1-70b&weight_format=fp8&max_context=32768&concurrency=16&language=tr"
    other = page_of("memory")
    other.browser.search = f"?{page.browser.query}"
    assert page.said == other.said
    assert page.text.language == "tr"
    assert page.scenario.model == "llama-3.1-70b"


def test_the_browser_s_language_is_taken_unless_one_was_chosen():
    """A Turkish reader should not have to look for the switch."""
    page, chosen = page_of("memory"), page_of("memory", language="en")
    for each in (page, chosen):
        each.browser.tongue = "tr-TR"
        each.browser.search = ""
    assert (page.text.language, chosen.text.language) == ("tr", "en")


@pytest.mark.parametrize(
    "search",
    [
        "?nope=1", "?model=no-such-model", "?max_context=-1", "?params_b=nan", "?params_b=1e99", "?workload=dance",
        "?gpu=%3Cscript%3Ealert(1)%3C/script%3E", "?model=" + "a" * 7000, "?language=xx", "?currency=EUR",
    ],
)  # fmt: skip
def test_hostile_links_get_a_sentence(search):
    """A page must open, say what is wrong, and show nothing that came in as markup."""
    page = page_of("memory")
    page.browser.search = search
    assert page._error.value.startswith("<p>")
    assert "<script>" not in page._error.value
    assert len(page._error.value) < 600
    assert page.decision is not None


def test_keys_without_a_control_are_carried_and_can_be_removed():
    """A link may know more than the page; what it set must be seen."""
    page = page_of("index")
    page.browser.search = "?tensor_parallel=2"
    assert page.scenario.tensor_parallel == 2
    assert "tensor_parallel" in page.panel._notes.value
    click(page, tensor_parallel=None)
    assert page.scenario.tensor_parallel is None
    assert page.panel._notes.value == ""


def test_reset_goes_back_to_the_start():
    """A reader who is lost must find back."""
    page = page_of("memory")
    first = page.said
    click(page, model="llama-3.1-70b", concurrency=64, tensor_parallel=4)
    assert page.said != first
    page.browser._heard(None, {"kind": "download", "what": "reset"}, [])
    assert page.said == first


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_downloads_hold_the_ranking(memory, monkeypatch, kind):
    """A file that is empty, or of another question."""
    sent = []
    monkeypatch.setattr(memory.browser, "download", lambda *file: sent.append(file))
    memory.browser._heard(None, {"kind": "download", "what": kind}, [])
    ((name, _, content),) = sent
    assert name.endswith(kind)
    assert len(content) > 10_000


def test_remedies_apply_on_click():
    """'What would help' must help when it is taken at its word."""
    page = page_of("memory", workload="serve", model="llama-3.1-70b", max_context=8192, concurrency=8)
    best = page.decision.remedies[0]
    click(page, **{key: list(value) if isinstance(value, tuple) else value for key, value in best.change.items()})
    assert page.decision.best["cost_total_typical_usd"] == pytest.approx(best.cost_usd, rel=1e-6)


def test_onward_links_keep_the_numbers():
    """The next page would show another answer to the same question."""
    start = page_of("index", workload="qlora", model="llama-3.1-70b")
    link = shown(start, "onward").split('href="finetune?')[1].split('"')[0].replace("&amp;", "&")
    there = page_of("finetune")
    there.browser.search = f"?{link}"
    assert there.said == start.said


def test_kinds_and_countries_narrow_the_market():
    """A filter that the funnel does not count, or that is lost on the way to the next page."""
    page = page_of("memory")
    free = dict(page.decision.funnel)
    click(page, countries=["DE"])
    german = dict(page.decision.funnel)
    assert german["region"] < german["provider"] == free["provider"]
    click(page, offer_kinds=["on_demand", "marketplace"])
    assert dict(page.decision.funnel)["kind"] > german["kind"]
    assert {"countries=DE", "offer_kinds=on_demand,marketplace"} <= set(page.browser.query.split("&"))


def test_no_kind_ticked_means_all():
    """The boxes would be empty while only one kind is asked for; or the link would say another thing than the page."""
    page = page_of("memory")
    click(page, offer_kinds=[])
    funnel = dict(page.decision.funnel)
    assert funnel["kind"] == funnel["region"]
    assert page.panel.fields["offer_kinds"]._boxes.value.count("checked") == 4
    other = page_of("memory")
    other.browser.search = f"?{page.browser.query}"
    assert dict(other.decision.funnel) == funnel


def test_providers_and_countries_go_by_their_names():
    """Keys of a table where a reader expects a name."""
    page = page_of("memory", language="tr")
    assert "Google Cloud" in page.panel.fields["providers"]._boxes.value
    assert "Almanya" in page.panel.fields["countries"]._boxes.value
    assert 'value="gcp"' in page.panel.fields["providers"]._boxes.value


@pytest.mark.parametrize("key", ["gpu", "providers", "countries", "offer_kinds", "engine", "optimizer"])
def test_one_wrong_name_in_a_link_leaves_the_rest(key):
    """A link with one misspelt name would lose all its other settings."""
    page = page_of("memory")
    page.browser.search = f"?{key}=no-such-name&concurrency=32"
    assert "no-such-name" in page._error.value
    assert page.scenario.concurrency == 32


@pytest.mark.parametrize("name", ["index", *PAGES])
def test_a_cell_can_be_run_again(name):
    """`from gpuguide.app import compare_page` would give a module the second time."""
    getattr(app, f"{name}_page")()
    assert callable(getattr(app, f"{name}_page"))
