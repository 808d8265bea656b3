"""The market page: every offer, once, at its price; and what filters, links and downloads do to it."""

import io
import json
import zlib

import numpy as np
import pandas as pd
import pytest

from gpuguide import load_catalog
from gpuguide.app import market_page
from gpuguide.app.market import START, UNDERSTOOD
from gpuguide.spec.scenario import Scenario
from gpuguide.text import Text


def click(page, **values):
    page.browser._heard(None, {"kind": "set", "values": values}, [])


def table_of(page, card="offers"):
    """What the browser unpacks."""
    return json.loads(zlib.decompress(page._views[card].packed))


def words_of(table, place):
    column = table["columns"][place]
    return [column["words"][code] for code in column["codes"]]


@pytest.fixture
def page():
    return market_page(language="en")


def test_every_offer_of_the_market_is_there(page):
    """A provider, a GPU or a way to pay that nobody can find."""
    market = load_catalog().market
    for column in ("provider", "gpu", "pricing", "kind", "region"):
        assert set(page.rows[column]) == set(market[column])
    priced = market[np.isfinite(market["usd_per_hour"])]
    assert page.rows["usd_per_hour"].min() == pytest.approx(priced["usd_per_hour"].min())
    assert page._error.value == ""


def test_a_price_per_gpu_is_one_row_and_a_price_per_machine_stays(page):
    """The same list price would stand four times, or one machine would swallow another."""
    market = load_catalog().market
    machines = market[market["price_basis"] == "instance"]
    assert (page.rows["price_basis"] == "instance").sum() == len(machines)
    rows = page.rows[page.rows["price_basis"] == "per_gpu"]
    assert len(rows) < (market["price_basis"] == "per_gpu").sum()
    assert (rows["most_gpus"] >= rows["gpus_per_node"]).all()
    assert rows["usd_per_gpu_hour"].to_numpy() == pytest.approx(
        (rows["usd_per_hour"] / rows["gpus_per_node"]).to_numpy(), abs=1e-6
    )


def test_cells_are_the_rows_in_words(page):
    """A price in the row of another offer."""
    table, text = table_of(page), Text("en")
    heads = [column["title"] for column in table["columns"]]
    assert words_of(table, heads.index("Hour")) == [text.money(usd) for usd in page.rows["usd_per_hour"]]
    assert words_of(table, heads.index("GPU-hour")) == [text.money(usd) for usd in page.rows["usd_per_gpu_hour"]]
    memory = page.rows["gpu_memory_gb"] * page.rows["gpus_per_node"]
    per_gb = page.rows["usd_per_hour"] / memory
    assert page.rows["usd_per_gb_hour"].to_numpy() == pytest.approx(per_gb.to_numpy(), rel=1e-5, nan_ok=True)


def test_sorting_goes_by_numbers(page):
    """$10 before $9, or 'not known' for free."""
    for column in table_of(page)["columns"]:
        if column["number"]:
            assert len(column["order"]) == len(column["words"])
            assert all(order is None or order >= 0 for order in column["order"])


@pytest.mark.parametrize(
    ("values", "column", "kept"),
    [
        ({"gpu": ["H100-SXM"]}, "gpu", {"H100-SXM"}),
        ({"providers": ["aws"]}, "provider", {"aws"}),
        ({"pricing": "spot"}, "pricing", {"spot"}),
        ({"offer_kinds": ["community"]}, "kind", {"community"}),
        ({"gpus": 8}, "gpus_per_node", {8}),
    ],
)
def test_a_filter_keeps_what_it_names(page, values, column, kept):
    """Rows of another provider, or an empty table."""
    click(page, **values)
    assert set(page.rows[column]) == kept
    other = market_page()
    other.browser.search = f"?{page.browser.query}"
    assert len(other.rows) == len(page.rows)
    assert other.browser.query == page.browser.query


def test_no_kind_ticked_means_every_kind(page):
    """The default of a decision, clouds alone, would hide half the market."""
    click(page, offer_kinds=[])
    assert len(page.rows) == len(market_page().rows)


def test_the_settings_of_other_pages_come_along_and_go_on(page):
    """The model would be lost on the way over the market, or would narrow it."""
    page.browser.search = "?model=llama-3.1-70b&headroom=0.1&gpu=H100-SXM"
    assert set(page.rows["gpu"]) == {"H100-SXM"}
    assert "model=llama-3.1-70b" in page.browser.query
    assert "pricing" not in page.browser.query
    assert page._error.value == ""


@pytest.mark.parametrize("search", ["?gpu=<b>", "?pricing=free", "?nope=1", "?providers=" + "x" * 3000])
def test_hostile_links(search):
    """A page must open whatever its address says."""
    page = market_page()
    page.browser.search = search
    assert "<b>" not in page._error.value
    assert len(page.rows) > 100


def test_an_empty_market_is_said(page):
    """A blank box instead of a sentence."""
    click(page, gpu=["MI350X"], providers=["aws"])
    assert page.rows.empty
    assert Text("en")("market.nothing") in page._sentence.value
    assert table_of(page)["columns"][0]["codes"] == []


def test_the_table_speaks_the_language_of_the_page(page):
    """English buttons under a Turkish table."""
    click(page, language="tr")
    table = table_of(page)
    assert table["words"]["search"] == "Ara:"
    assert table["words"]["thousands"] == "."
    assert "Sağlayıcı" in [column["title"] for column in table["columns"]]


def test_downloads_hold_the_rows_and_their_sources(page, monkeypatch):
    """A table without dates and sources is a rumour."""
    files = {}
    monkeypatch.setattr(page.browser, "download", lambda name, kind, content: files.update({name: content}))
    click(page, gpu=["H100-SXM"])
    for kind in ("csv", "xlsx"):
        page.browser._heard(None, {"kind": "download", "what": kind}, [])
    csv = pd.read_csv(io.BytesIO(files["gpuguide-market.csv"]))
    book = pd.read_excel(io.BytesIO(files["gpuguide-market.xlsx"]))
    for table in (csv, book):
        assert len(table) == len(page.rows)
        assert {"source", "as_of", "usd_per_gpu_hour", "usd_per_gb_hour", "currency"} <= set(table.columns)


def test_a_page_is_a_small_message(page):
    """More than the browser of a phone wants to wait for."""
    assert sum(len(page._views[card].packed) for card in ("offers", "scarce")) < 80_000


def test_cells_cannot_inject_markup():
    """Names come from tables that anybody may edit."""
    from gpuguide.show.market import coded

    assert coded("market.gpu", ["<script>"], str).words == ["&lt;script&gt;"]


def test_start_is_a_scenario():
    """Keys of the page that a link could not carry."""
    assert Scenario.from_mapping(START).pricing == "any"
    assert set(UNDERSTOOD) <= set(Scenario.model_fields)
