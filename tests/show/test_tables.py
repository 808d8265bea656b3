"""Tables, sentences and lists: escaped, complete, and the figures of the decision."""

from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest

from gpuguide.columns import words
from gpuguide.show import remedies, tables, verdict
from gpuguide.show.html import Html, join, tag
from gpuguide.text import Text

DRAWN = [
    tables.ranking_table, tables.memory_table, tables.funnel, tables.plan_list, verdict.verdict_box, verdict.tiles,
    remedies.remedy_list,
]  # fmt: skip
CASES = ("serve", "qlora", "pretrain", "nothing")


class Checker(HTMLParser):
    """Reads HTML and keeps its text; complains about what is not closed."""

    def __init__(self):
        super().__init__()
        self.open, self.words = [], []

    def handle_starttag(self, name, attributes):
        if name not in ("input", "br"):
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.words.append(data)


def words_of(html):
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    return " ".join(checker.words)


@pytest.mark.parametrize("language", ["en", "tr"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("draw", DRAWN)
def test_everything_is_whole_html_with_words(draw, case, language, decision_of):
    """A tag left open would swallow the rest of the page; 'nan' would be shown for what is not known."""
    words = words_of(draw(decision_of(case), Text(language)))
    assert words.strip()
    assert "nan" not in words.split()


def test_names_from_tables_are_escaped(decision_of):
    """A price list could write into the page."""
    decision = decision_of("serve")
    count = len(decision.question.market)
    hostile = decision.question.market.but(
        provider=words(["<script>alert(1)</script>"] * count), source=words(['"><img src=x>'] * count)
    )
    written = replace(
        decision, rows=replace(decision.rows, question=replace(decision.question, market=hostile), _made={})
    )
    shown = tables.ranking_table(written, Text("en"))
    assert "alert(1)" in shown
    assert "<script>" not in shown
    assert "<img" not in shown


def test_the_sentence_names_the_best_offer(decision_of):
    """The verdict and the first row of the table must be the same answer."""
    decision = decision_of("qlora")
    said, best = verdict.verdict(decision, Text("en")), decision.ranking.iloc[0]
    assert best["provider"] in said
    assert best["gpu"] in said
    assert Text("en").money(best["usd_per_hour"]) in said


def test_nothing_fits_is_an_answer(decision_of):
    """The reader must hear what is missing."""
    decision = decision_of("nothing")
    assert decision.ranking.empty
    assert Text("en").memory(float(decision.verdict["missing_bytes"])) in verdict.verdict(decision, Text("en"))


def test_a_spreadsheet_gets_plain_numbers(decision_of, tmp_path):
    """A file that cannot be calculated with is a picture."""
    ranking = decision_of("serve").ranking
    (tmp_path / "offers.csv").write_bytes(tables.as_csv(ranking))
    read = pd.read_csv(tmp_path / "offers.csv")
    assert len(read) == len(ranking)
    assert read["cost_total_typical_usd"].sum() == pytest.approx(ranking["cost_total_typical_usd"].sum())


def test_html_escapes_unless_it_is_html():
    """Texts of the reader would become markup."""
    assert (
        tag("b", "<i>", Html("<i></i>"), class_="n", hidden=True, title='"')
        == '<b class="n" hidden title="&quot;">&lt;i&gt;<i></i></b>'
    )
    assert join(["a", None, [Html("<hr>")]]) == "a<hr>"
