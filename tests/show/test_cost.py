"""The bill: what is shown adds up to the last digit, in every currency, and names where the money goes."""

import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide import Scenario, decide, load_catalog
from gpuguide.app.pages import DECLARATIONS
from gpuguide.show.cost import bill, bill_table, shared_out, waterfall
from gpuguide.text import Text

TUNE = {"workload": "qlora", "model": "llama-3.1-8b", "train_tokens": 1e7}
JOBS = [
    pytest.param(dict(page.start) | dict(preset) | {"pricing": pricing}, id=f"{page.name}-{name}-{pricing}")
    for page in DECLARATIONS.values()
    if page.name in ("train", "finetune", "serve", "spot", "media")
    for name, preset in page.presets.items()
    for pricing in ("on_demand", "spot", "reserved")
]
TEXTS = (Text("en"), Text("tr", "TRY", 41.7), Text("en", "JPY", 152.0))


def answer(job):
    asked = {key: value for key, value in job.items() if not (key == "params_b" and job.get("model"))}
    return decide(load_catalog().resolve(Scenario.from_mapping(asked)))


def shown(html):
    """Amounts of the table as exact decimals."""
    cells = re.findall(r'<td class="n"><b>(.*?)</b>', html)
    return [Decimal(re.sub(r"[^\d.\-]", "", cell.replace("\u2212", "-"))) for cell in cells]


@pytest.mark.parametrize("job", JOBS)
def test_the_bill_adds_up_as_it_is_shown(job):
    """A reader adds the column up and gets another total."""
    decision = answer(job)
    if decision.best is None:
        assert bill(decision, TEXTS[0]) is None
        return
    for text in TEXTS:
        found = bill(decision, text)
        assert math.isclose(math.fsum(found.parts.values()), found.total, abs_tol=0.1 * 10.0**-found.places)
        rate = float(text.currency_per_usd)
        unit = 10.0**-found.places
        assert abs(found.total - decision.best["cost_total_typical_usd"] * rate) <= 0.51 * unit
    table = bill_table(decision, TEXTS[0])
    *parts, total = shown(table)
    assert sum(parts) == total
    *shares, whole = (float(share) for share in re.findall(r'<td class="n">(-?[\d.]+)%</td>', table))
    assert whole == 100
    assert all(0 <= share <= 100 for share in shares), "of what is paid, not of what would have been"
    assert sum(shares) == pytest.approx(100, abs=0.6 * len(shares))


@pytest.mark.parametrize("job", JOBS[:6])
def test_each_bar_starts_where_the_one_before_ended(job):
    """A waterfall with a gap, or bars over each other."""
    decision = answer(job)
    figure = waterfall(decision, Text("en"))
    (trace,) = figure["data"]
    if decision.best is None:
        assert trace["x"] == []
        return
    ends = [start + size for start, size in zip(trace["base"], trace["x"], strict=True)]
    assert trace["base"][1:-1] == pytest.approx(ends[:-2])
    assert ends[-2] == pytest.approx(ends[-1])
    assert trace["base"][0] == trace["base"][-1] == 0
    assert len(trace["text"]) == len(trace["y"]) == len(set(trace["y"]))


def test_a_discount_is_the_way_from_the_price_on_demand():
    """Spot would look like a price out of nowhere, or the total would be that of on demand."""
    decision = answer(TUNE | {"pricing": "spot", "gpu": ["H100-SXM"], "providers": ["aws"]})
    found = bill(decision, Text("en"))
    assert found.parts["discount"] < 0
    hourly = decision.best["usd_per_hour"]
    assert found.list_usd_per_hour > hourly
    paid = found.parts["compute"] + found.parts["discount"]
    assert paid / found.parts["compute"] == pytest.approx(hourly / found.list_usd_per_hour, rel=0.02)


def test_a_least_charge_is_told_from_rounding():
    """Twenty sessions of a minute at a provider that charges ten would be called rounding."""
    decision = answer(TUNE | {"train_tokens": 1e4, "sessions": 50, "setup_minutes": 0, "providers": ["aws"]})
    row = decision.ranking.iloc[0]
    assert 0 <= row["minimum_charge_usd"] <= row["cost_rounding_usd"] + 1e-12
    assert (decision.ranking["minimum_charge_usd"] > 0).any()


@given(st.lists(st.floats(-1e7, 1e9), min_size=1, max_size=12), st.integers(0, 4))
def test_shares_add_up(amounts, places):
    """A cent too many, or one part that is off by more than the last digit."""
    parts = shared_out(amounts, places)
    unit = 10.0**-places
    assert math.fsum(parts) == pytest.approx(round(math.fsum(amounts) / unit) * unit, abs=1.01 * unit)
    assert all(abs(part - amount) <= unit * 1.001 + 1e-9 for part, amount in zip(parts, amounts, strict=True))
