"""Words and numbers in the reader's form, and whether both languages say the same things."""

import re
import string
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.app.controls import CONTROLS
from gpuguide.errors import UnknownName
from gpuguide.spec.scenario import Scenario
from gpuguide.text import LANGUAGES, Text, texts
from gpuguide.text.text import FORMS
from gpuguide.units import GIB, HOUR

PACKAGE = Path(__file__).parents[2] / "gpuguide"
NB = "\u00a0"


def forms_of(text):
    """All forms of a text: one, or one for each plural category."""
    return [text] if isinstance(text, str) else list(text.values())


def placeholders(text):
    return {
        (name, form)
        for part in forms_of(text)
        for _, name, form, _ in string.Formatter().parse(part)
        if name is not None
    }


def test_languages_have_the_same_keys():
    """A reader of one language would meet a missing text, or a text nobody says."""
    assert set(texts("en")) == set(texts("tr"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_files_are_read_as_toml_has_them(language):
    """Most lines are read without the TOML parser; one that it alone understands would come out wrong."""

    def flat(prefix, table):
        for key, value in table.items():
            if isinstance(value, dict) and "other" not in value:
                yield from flat(f"{prefix}{key}.", value)
            else:
                yield prefix + key, value

    assert texts(language) == dict(flat("", tomllib.loads((PACKAGE / "text" / f"{language}.toml").read_text("utf-8"))))


@pytest.mark.parametrize("key", sorted(texts("en")))
def test_both_languages_name_the_same_values(key):
    """A figure would be missing from the sentence in one language."""
    assert placeholders(texts("en")[key]) == placeholders(texts("tr")[key])


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_empty_and_every_form_exists(language):
    """An empty label, or a placeholder that asks for a form nobody wrote."""
    for key, text in texts(language).items():
        assert all(part.strip() for part in forms_of(text)), key
        assert {form for _, form in placeholders(text)} <= {"", *FORMS}, key


def test_no_text_is_left_over():
    """A text that nothing says is a promise without a page."""
    sources = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    literal = set(re.findall(r"[\"']([a-z0-9_]+(?:\.[A-Za-z0-9_ -]+)*)[\"']", sources))
    prefixes = set(re.findall(r"f[\"']([a-z_.]+[._])\{", sources))
    prefixes |= {f"{group}." for group in re.findall(r"\.name\(\"([a-z_.]+)\"", sources)}
    prefixes |= {f"{group}." for group in re.findall(r"stacked\(text, \"([a-z]+)\"", sources)}
    prefixes |= {"option.", "unit.", "kind."}
    left = [key for key in texts("en") if key not in literal and not key.startswith(tuple(prefixes))]
    assert not left, left


def test_every_control_has_a_name_and_help():
    """A control without words cannot be used."""
    for key in CONTROLS:
        assert {f"control.{key}.label", f"control.{key}.help"} <= set(texts("en"))


def test_every_key_of_a_scenario_that_has_a_name_is_a_key():
    """A renamed key would keep its old words."""
    named = {key.split(".")[1] for key in texts("en") if key.startswith("control.")}
    assert named <= set(Scenario.model_fields)


# What CLDR says of both languages (babel), and units as the trade writes them.
FORMS_SHOWN = [
    ("en", "number", 1234.5, "1,234"),
    ("tr", "number", 1234.5, "1.234"),
    ("en", "number", 0.4567, "0.457"),
    ("tr", "number", 7.61, "7,61"),
    ("en", "percent", 0.25, "25%"),
    ("tr", "percent", 0.25, "%25"),
    ("en", "percent", 0.05, "5%"),
    ("en", "percent", 0.033, "3.3%"),
    ("tr", "percent", 0.033, "%3,3"),
    ("en", "money", 1234.4, "$1,234"),
    ("tr", "money", 9.5, "$9,50"),
    ("en", "money", 0.0251, "$0.025"),
    ("en", "money", 0, "$0.00"),
    ("en", "memory", 12.5 * GIB, f"12.5{NB}GiB"),
    ("tr", "memory", 12.5 * GIB, f"12,5{NB}GiB"),
    ("en", "memory", 0.01 * GIB, f"10.2{NB}MiB"),
    ("en", "duration", 0.028, "28 ms"),
    ("tr", "duration", 45, "45 sn"),
    ("en", "duration", 5.3 * HOUR, "5.3 h"),
    ("en", "duration", 24 * 30 * HOUR, "30 days"),
    ("tr", "duration", 24 * 30 * HOUR, "30 gün"),
    ("en", "duration", float("inf"), "never"),
    ("en", "duration", float("nan"), "not known"),
    ("tr", "money", None, "bilinmiyor"),
    ("en", "date", "2026-08-22", "Aug 22, 2026"),
    ("tr", "date", "2026-08-22", "22 Ağu 2026"),
    ("en", "compact", 1.4e11, "140B"),
    ("tr", "compact", 1.4e11, f"140{NB}Mr"),
]


@pytest.mark.parametrize(("language", "form", "value", "expected"), FORMS_SHOWN)
def test_forms(language, form, value, expected):
    """A reader would take a thousand for one, or a figure would carry false precision."""
    assert Text(language).form(form, value) == expected


def test_money_in_another_currency():
    """A rate that is applied twice, or not at all."""
    assert Text("tr", "TRY", 40.0).money(10) == "₺400"


def test_one_day_and_two_days():
    """'1 days' would show."""
    assert Text("en")("unit.day", count=1, number="1") == "1 day"
    assert Text("en")("unit.day", count=2.5, number="2.5") == "2.5 days"


TYPED = [
    ("en", "32k", 32_000),
    ("en", "8,192", 8192),
    ("tr", "8.192", 8192),
    ("en", "7.5", 7.5),
    ("tr", "7,5", 7.5),
    ("tr", "7.5", 7.5),
    ("en", "1.5B", 1.5e9),
    ("tr", "1,5 mr", 1.5e9),
    ("tr", "10 milyon", 1e7),
    ("en", "1e12", 1e12),
    ("en", " 1 000 ", 1000),
    ("en", "1,234,567.5", 1_234_567.5),
    ("tr", "1.234.567,5", 1_234_567.5),
]


@pytest.mark.parametrize(("language", "typed", "expected"), TYPED)
def test_typed_numbers(language, typed, expected):
    """What people type in a box means what they meant."""
    assert Text(language).parse_number(typed) == expected


@pytest.mark.parametrize("typed", ["", "abc", "1e999", "nan", "12 apples", "9" * 1000, "--1"])
def test_what_is_no_number_is_refused(typed):
    """A hostile paste must not become a number."""
    with pytest.raises(ValueError, match=r"number|float"):
        Text("en").parse_number(typed)


@given(
    st.sampled_from(list(LANGUAGES)), st.integers(1, 10**15) | st.floats(0.001, 1e6).map(lambda x: float(f"{x:.6g}"))
)
def test_what_is_shown_can_be_typed_back(language, value):
    """A box would change its value when nobody touched it."""
    text = Text(language)
    assert text.parse_number(text.exact(value)) == pytest.approx(value, rel=1e-11)


def test_an_unknown_key_names_its_neighbours():
    """A typo in the code would show as an empty place."""
    with pytest.raises(UnknownName, match="not_known"):
        Text("en")("not_knwn")


def test_an_unknown_language_is_refused():
    """Falling back in silence would hide a broken link."""
    with pytest.raises(UnknownName):
        Text("xx")
