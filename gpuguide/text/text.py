"""
Words in the reader's language, with numbers, money, memory, durations and dates in the reader's form.

A text may ask for a form after a colon: ``"{gpu} costs {cost:money}"``. The forms are the methods of `Text` that FORMS
names.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import string
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

from babel import Locale
from babel.dates import format_date
from babel.numbers import format_compact_decimal, format_currency, format_decimal, format_percent, parse_pattern

from gpuguide.errors import InvalidScenario, UnknownName, nearest
from gpuguide.units import DAY, GIB, HOUR, KIB, MIB, MINUTE, TIB

LANGUAGES = {"en": "English", "tr": "Türkçe"}
LOCALES = {"en": "en_US", "tr": "tr_TR"}
SEPARATORS = {"en": ".,", "tr": ",."}
"""Decimal and thousands sign, as Plotly's `separators` takes them."""

PLAIN = re.compile(r'([\w-]+) = "([^"\\]*)"', re.ASCII)
"""A line with a key and one text, as nearly all are: reading them as TOML takes ten times as long."""
NO_BREAK = "\u00a0"


@lru_cache
def texts(language: str) -> dict[str, str | dict[str, str]]:
    """All texts of one language by dotted key; a text with plural forms is a dict by CLDR plural category."""
    if language not in LANGUAGES:
        raise UnknownName("language", language, nearest(language, LANGUAGES), len(LANGUAGES))
    flat: dict[str, str | dict[str, str]] = {}
    section, rest = "", []
    for line in (resources.files("gpuguide.text") / f"{language}.toml").read_text("utf-8").splitlines():
        plain = PLAIN.fullmatch(line)
        if plain:
            flat[section + plain[1]] = plain[2]
        elif line:
            section = f"{line[1:-1]}." if line[0] == "[" else section
            rest.append(line)
    _flatten("", tomllib.loads("\n".join(rest)), flat)
    return flat


def _flatten(prefix: str, table: Mapping[str, Any], into: dict[str, str | dict[str, str]]) -> None:
    for key, value in table.items():
        if isinstance(value, Mapping) and "other" not in value:
            _flatten(f"{prefix}{key}.", value, into)
        else:
            into[prefix + key] = value if isinstance(value, str) else dict(value)


class Text:
    """
    Looks texts up and fills them in.

    Parameters
    ----------
    language : str
        One of LANGUAGES.
    currency, currency_per_usd : str, float
        Money is given in USD and shown in this currency at this rate.

    Examples
    --------
    >>> Text("tr").percent(0.25)
    '%25'
    """

    def __init__(self, language: str = "en", currency: str = "USD", currency_per_usd: float | None = None) -> None:
        self.language = language
        self.currency = currency
        self.currency_per_usd = 1.0 if currency == "USD" else currency_per_usd
        if self.currency_per_usd is None:
            raise InvalidScenario("currency", currency, "an exchange rate, currency_per_usd, must be given with it")
        self.locale = Locale.parse(LOCALES.get(language, "en_US"))
        self.texts = texts(language)

    def __call__(self, key: str, /, **values: Any) -> str:
        """
        The text of a key with its values filled in.

        A text with plural forms is chosen by the value called `count`.
        """
        try:
            text = self.texts[key]
        except KeyError:
            raise UnknownName("text", key, nearest(key, self.texts), len(self.texts)) from None
        if isinstance(text, dict):
            count = values.get("count", 1)
            text = text.get(self.locale.plural_form(count), text["other"])
        return _filled(self, text, values) if "{" in text else text

    def has(self, key: str) -> bool:
        """Whether the language has a text of this key."""
        return key in self.texts

    def name(self, group: str, value: object) -> str:
        """The shown name of a value of some group, or the value itself where it is a proper name."""
        text = self.texts.get(f"{group}.{value}")
        return text if isinstance(text, str) else str(value)

    def form(self, name: str, value: Any) -> str:
        """A value in the form of the given name."""
        return FORMS[name](self, value)

    # ---- forms -------------------------------------------------------------------------------------------------------

    def number(self, value: float | None, digits: int = 3) -> str:
        """A number to so many significant digits, whole digits never dropped."""
        if unknown(value):
            return self("not_known")
        number = float(value)  # type: ignore[arg-type]
        places = max(0, digits - 1 - _magnitude(number))
        return _decimal(round(number, places), f"#,##0.{'#' * min(places, 6)}" if places else "#,##0", self.locale)

    def count(self, value: float | None) -> str:
        """A whole number."""
        if unknown(value):
            return self("not_known")
        return _decimal(float(round(float(value))), "#,##0", self.locale)  # type: ignore[arg-type]

    def compact(self, value: float | None) -> str:
        """A large number in few signs: 32,768 as it is, 7 billion as 7B."""
        if unknown(value):
            return self("not_known")
        number = float(value)  # type: ignore[arg-type]
        if abs(number) < 1e6:
            return self.number(number)
        return str(format_compact_decimal(number, locale=self.locale, fraction_digits=0 if _round(number) else 2))

    def exact(self, value: float | None) -> str:
        """A number as it can be typed back: no digit lost."""
        if unknown(value):
            return ""
        number = float(value)  # type: ignore[arg-type]
        if abs(number) >= 1e6:
            for digits in range(4):
                short = str(format_compact_decimal(number, locale=self.locale, fraction_digits=digits))
                if self.parse_number(short) == number:
                    return short
        return _decimal(float(f"{number:.12g}"), "#,##0.############", self.locale)

    def percent(self, value: float | None) -> str:
        """A share as percent."""
        if unknown(value):
            return self("not_known")
        share = float(value)  # type: ignore[arg-type]
        places = 0 if abs(share) >= 0.0995 or math.isclose(100 * share, round(100 * share), abs_tol=1e-9) else 1
        # The pattern of the language (%25 in Turkish, 25% in English), with our digits.
        pattern = self.locale.percent_formats[None].pattern.replace("#,##0", "#,##0.#" if places else "#,##0")
        return str(format_percent(share, _pattern(pattern), locale=self.locale))

    def money(self, usd: float | None) -> str:
        """An amount in the reader's currency: cents below 100, more digits below 1."""
        if unknown(usd):
            return self("not_known")
        amount = float(usd) * float(self.currency_per_usd or 1.0)  # type: ignore[arg-type]
        size = abs(amount)
        places = 0 if size >= 100 else 2 if size >= 0.995 or size == 0 else min(6, 1 - _magnitude(amount))
        return _money(round(amount, places), self.currency, self.locale, max(places, 0))

    def exact_money(self, amount: float, places: int) -> str:
        """An amount that is in the shown currency already, with so many decimals, so that a column adds up."""
        return _money(amount, self.currency, self.locale, places)

    def memory(self, value: float | None) -> str:
        """Bytes as GiB (MiB when small, TiB when large)."""
        if unknown(value):
            return self("not_known")
        size = abs(float(value))  # type: ignore[arg-type]
        unit, name = next(
            ((unit, name) for limit, unit, name in MEMORY_UNITS if size >= limit), (KIB, "KiB")
        )  # fmt: skip
        return f"{self.number(float(value) / unit)}{NO_BREAK}{name}"  # type: ignore[arg-type]

    def gib(self, value: float | None) -> str:
        """Bytes as a bare number of GiB, for columns that name the unit."""
        return self.number(None if unknown(value) else float(value) / GIB)  # type: ignore[arg-type]

    def duration(self, seconds: float | None) -> str:
        """A time in the unit people would use for it."""
        if unknown(seconds):
            return self("not_known")
        time = float(seconds)  # type: ignore[arg-type]
        if math.isinf(time):
            return self("never")
        for limit, unit, key in DURATION_UNITS:
            if abs(time) < limit:
                amount = time / unit
                return self(f"unit.{key}", count=_shown(amount), number=self.number(amount, 2))
        raise AssertionError("unreachable")  # the last unit has no limit

    def hours(self, hours: float | None) -> str:
        """A duration given in hours."""
        return self.duration(None if unknown(hours) else float(hours) * HOUR)  # type: ignore[arg-type]

    def date(self, value: dt.date | str | None) -> str:
        """A day."""
        if value is None or value == "" or value != value:
            return self("not_known")
        day = dt.date.fromisoformat(str(value)[:10]) if not isinstance(value, dt.date) else value
        return str(format_date(day, format="medium", locale=self.locale))

    def band(self, form: str, low: float, high: float) -> str:
        """A range in some form; one value where both ends look the same."""
        first, last = (FORMS[form](self, end) for end in (low, high))
        if first == last:
            return first
        return self("band", low=_without_common_unit(first, last), high=last)

    def listed(self, parts: Sequence[str]) -> str:
        """Several things joined by commas and 'and'."""
        if len(parts) < 2:
            return "".join(parts)
        return self("and", first=", ".join(parts[:-1]), last=parts[-1])

    # ---- the way back ------------------------------------------------------------------------------------------------

    def parse_number(self, typed: str) -> float:
        """
        The number a reader typed: '32k', '7,5 mr', '1e12', '8 192' in either language's form.

        Raises
        ------
        ValueError
            If it cannot be read as one number.
        """
        cleaned = typed.strip().replace(NO_BREAK, "").replace("\u202f", "").replace(" ", "").replace("_", "")
        if not cleaned or len(cleaned) > 40:
            raise ValueError("not a number")
        folded = cleaned.casefold()
        factor = 1.0
        for suffix, size in SUFFIXES:
            if folded.endswith(suffix):
                folded, factor = folded[: -len(suffix)], size
                break
        number = float(_plain(folded, SEPARATORS[self.language][0]))
        if not math.isfinite(number):
            raise ValueError("not a number")
        # 1.1k must not come back as 1100.0000000000002.
        return float(f"{number * factor:.12g}")


FORMS: dict[str, Callable[[Text, Any], str]] = {
    "number": Text.number,
    "count": Text.count,
    "compact": Text.compact,
    "percent": Text.percent,
    "money": Text.money,
    "memory": Text.memory,
    "gib": Text.gib,
    "duration": Text.duration,
    "hours": Text.hours,
    "date": Text.date,
}

MEMORY_UNITS = ((9_999 * GIB, TIB, "TiB"), (0.1 * GIB, GIB, "GiB"), (0.1 * MIB, MIB, "MiB"), (0.0, KIB, "KiB"))
DURATION_UNITS = (
    (1.0, 1e-3, "millisecond"),
    (90.0, 1.0, "second"),
    (90 * MINUTE, MINUTE, "minute"),
    (72 * HOUR, HOUR, "hour"),
    (1000 * DAY, DAY, "day"),
    (math.inf, 365.25 * DAY, "year"),
)
SUFFIXES = (
    ("thousand", 1e3), ("million", 1e6), ("billion", 1e9), ("trillion", 1e12),
    ("milyon", 1e6), ("milyar", 1e9), ("trilyon", 1e12), ("bin", 1e3),
    ("mn", 1e6), ("mr", 1e9), ("tn", 1e12), ("k", 1e3), ("m", 1e6), ("b", 1e9), ("g", 1e9), ("t", 1e12),
)  # fmt: skip


@lru_cache(maxsize=4_000)
def _pieces(text: str) -> tuple[tuple[str, str | None, str], ...]:
    """A text taken apart once: words, the name of the value that follows, and its form."""
    return tuple((words, name, form or "") for words, name, form, _ in string.Formatter().parse(text))


def _filled(text: Text, template: str, values: Mapping[str, Any]) -> str:
    said = []
    for words, name, form in _pieces(template):
        said.append(words)
        if name is not None:
            said.append(FORMS[form](text, values[name]) if form else str(values[name]))
    return "".join(said)


def unknown(value: object) -> bool:
    """Whether a value stands for 'not known': None or not a number."""
    return value is None or value != value


def _magnitude(number: float) -> int:
    return math.floor(math.log10(abs(number))) if number else 0


def _round(number: float) -> bool:
    """Whether a number needs no decimals once its thousands are written as a word."""
    lead = abs(number) / 1000 ** (_magnitude(number) // 3)
    return math.isclose(lead, round(lead), rel_tol=1e-9)


def _shown(amount: float) -> float:
    """The amount as it will be read, so that 'one hour' is chosen for what shows as 1."""
    return round(amount, 1) if abs(amount) < 10 else float(round(amount))


def _without_common_unit(first: str, last: str) -> str:
    """'9 GiB' of '9 GiB' and '12 GiB' becomes '9'."""
    head, gap, unit = first.rpartition(NO_BREAK)
    return head if gap and last.endswith(gap + unit) else first


def _plain(text: str, decimal: str) -> str:
    """A typed number as Python writes it: thousands signs dropped, the decimal sign a point."""
    comma, point = text.count(","), text.count(".")
    if comma and point:  # both: the last one is the decimal sign
        decimal = max(",.", key=text.rfind)
    elif comma + point == 1:
        sign = "," if comma else "."
        digits = len(text) - text.index(sign) - 1
        grouped = digits == 3 and text.lstrip("-").index(sign) in (1, 2, 3) and not text.lstrip("-").startswith("0")
        decimal = decimal if grouped else sign  # '8,192' is read as the language has it; '7,5' can only be 7.5
    thousands = "." if decimal == "," else ","
    return text.replace(thousands, "").replace(decimal, ".")


_pattern = lru_cache(parse_pattern)
"""A number pattern taken apart once: that takes longer than to write a number by it."""


@lru_cache(maxsize=20_000)
def _decimal(number: float, pattern: str, locale: Locale) -> str:
    with decimal.localcontext(prec=MOST_DIGITS):
        return str(format_decimal(number, format=_pattern(pattern), locale=locale))


@lru_cache(maxsize=20_000)
def _money(amount: float, currency: str, locale: Locale, places: int) -> str:
    pattern = (
        locale.currency_formats["standard"]
        .pattern.split(";")[0]
        .replace("#,##0.00", f"#,##0.{'0' * places}".rstrip("."))
    )
    with decimal.localcontext(prec=MOST_DIGITS):
        return str(format_currency(amount, currency, _pattern(pattern), locale=locale, currency_digits=False))


MOST_DIGITS = 340
"""Digits of the largest float with six places; the usual 28 end in an error beyond 1e22."""
