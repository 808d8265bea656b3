"""What a decision shows beside its ranking: rejected offers, the best of each GPU, memory by parts, plain JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gpuguide import InvalidScenario, NotModelled, Scenario, decide, load_catalog
from gpuguide.decide.ladder import ladder
from gpuguide.decide.pipeline import estimate, memory_of
from gpuguide.estimate.results import PARTS


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


@pytest.fixture(scope="module")
def asked(catalog):
    """QLoRA of a 70B model: some cards hold it, some do not."""
    return decide(catalog.resolve(Scenario(workload="qlora", model="llama-3.1-70b", sequence_length=4096)))


@pytest.fixture(scope="module")
def hopeless(catalog):
    """Seven replicas: no machine is rented with a multiple of 7 GPUs."""
    return decide(catalog.resolve(Scenario(workload="full", model="llama-3.1-8b", data_parallel=7)))


def test_rejected_offers_come_nearest_first(asked):
    """A list of misfits that starts with the most hopeless would not help anyone choose."""
    rejected = asked.rejected
    lacking = rejected.loc[rejected["fit"] == "no", "missing_bytes"]

    assert len(rejected) == min(len(asked.others), 500)
    assert lacking.is_monotonic_increasing
    assert set(rejected["dropped_by"]) <= {name for name, _ in asked.funnel}
    assert set(asked.ranking["dropped_by"]) == {""}


def test_by_gpu_holds_the_best_offer_of_each(asked):
    """A GPU that is missing, shown twice, or shown with an offer that is not its best."""
    table, ranking = asked.by_gpu, asked.ranking
    best = ranking.drop_duplicates("gpu").set_index("gpu")["cost_total_typical_usd"]

    assert table["gpu"].is_unique
    assert set(ranking["gpu"]) <= set(table["gpu"])
    np.testing.assert_array_equal(table.set_index("gpu").loc[best.index, "cost_total_typical_usd"], best)


def test_memory_by_parts_is_that_of_the_first_row(asked):
    """The chart and the table beside it would show different machines."""
    first = asked.top(1).iloc[0]

    for part in PARTS:
        assert getattr(asked.memory, part)[1] == first[f"memory_{part}_bytes"]
    assert np.sort(asked.memory.total)[1] == pytest.approx(first["memory_total_typical_bytes"])


def test_rejected_rows_follow_the_ranked_ones(asked):
    """As JSON and as a table: the same rows in the same order."""
    rows = asked.as_json(top=2, include_rejected=True)["ranking"]
    table = asked.table(top=2, include_rejected=True)

    assert len(rows) == len(table) == 2 + len(asked.others)
    assert [row["fit"] for row in rows] == table["fit"].tolist()
    assert "dropped_by" not in rows[0]
    assert all(row["dropped_by"] for row in rows[2:])
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


@pytest.mark.parametrize("top", [-1, 1.5, "3"])
def test_a_number_of_rows_is_whole(asked, top):
    """A negative number would silently drop the last rows."""
    with pytest.raises(InvalidScenario, match="whole number of rows"):
        asked.table(top=top)


def test_no_legal_plan_is_an_answer(hopeless):
    """A sentence, not a crash, and nothing to show."""
    assert hopeless.verdict["key"] == "verdict_no_plan"
    assert hopeless.best is None
    assert hopeless.memory is None
    assert hopeless.top(5).empty
    assert hopeless.as_json()["ranking"] == []
    assert memory_of(hopeless.question)["memory_bytes"] is None
    assert (ladder(hopeless).chosen, ladder(hopeless).reason) == (None, "none")


def test_memory_of_the_best_offer(asked):
    """What `gpuguide memory` prints is the first row of the ranking."""
    said, first = memory_of(asked.question), asked.top(1).iloc[0]

    assert (said["gpu"], said["gpus"], said["fit"]) == (first["gpu"], first["gpus"], first["fit"])
    total = said["memory_bytes"]["total"]
    assert total == {band: first[f"memory_total_{band}_bytes"] for band in ("low", "typical", "high")}
    assert sum(said["memory_bytes"][part] for part in PARTS) == pytest.approx(total["typical"])


@pytest.mark.parametrize(
    ("key", "column"), [("deadline_hours", "hours_typical"), ("budget_usd", "cost_total_typical_usd")]
)
def test_a_limit_drops_exactly_what_breaks_it(catalog, asked, key, column):
    """An offer beyond the deadline in the list, or one within it missing."""
    limit = float(asked.ranking[column].median())
    limited = decide(catalog.resolve(asked.scenario.model_copy(update={key: limit})))

    assert len(limited.best_first) == (asked.ranking[column] <= limit).sum()
    assert (limited.ranking[column] <= limit).all()


def test_a_limit_that_nothing_meets_is_named(catalog, asked):
    """The reader must learn that memory was not what failed."""
    limited = decide(catalog.resolve(asked.scenario.model_copy(update={"budget_usd": 0.01})))

    assert limited.best is None
    assert limited.verdict["key"] == "verdict_no_offer"
    assert limited.verdict["dropped_by"] == "budget"


def test_a_model_made_for_something_else_is_refused(catalog, asked):
    """A language model that paints pictures would be priced by the wrong formula."""
    painter = catalog.resolve(Scenario(workload="image", model="flux.1-dev"))
    for question in (replace(painter, model=asked.question.model), replace(asked.question, model=painter.model)):
        with pytest.raises(NotModelled, match="made for"):
            estimate(question)
