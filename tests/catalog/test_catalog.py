"""The catalog as a whole."""

from datetime import date

from gpuguide import load_catalog
from gpuguide.catalog import catalog as module


def test_the_age_of_prices_is_counted_from_the_day_of_the_question(monkeypatch):
    """A server that runs for weeks would call old prices fresh."""

    class Tomorrow(date):
        @classmethod
        def today(cls):
            return cls.fromordinal(date.today().toordinal() + 1)

    now = load_catalog()
    assert load_catalog() is now, "read anew for every question"
    monkeypatch.setattr(module, "date", Tomorrow)
    later = load_catalog()
    assert (later.market["age_days"] - now.market["age_days"]).dropna().eq(1).all()
