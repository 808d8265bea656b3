"""Scores of training speed: the promised accuracy on published runs, and rows that say too little."""

import numpy as np
import pandas as pd
import pytest

from gpuguide.accuracy.table import SCORED, summarise
from gpuguide.accuracy.throughput_rows import Unusable, run_of
from gpuguide.accuracy.training_speed import CALIBRATED, SCORERS
from gpuguide.catalog.catalog import load_catalog

PROMISED = [  # table, median error, 90th percentile, share within the band, high over low
    pytest.param("training_throughput:dense", "training_throughput", 0.08, 0.25, 0.80, 1.6, id="dense"),
    pytest.param("training_throughput:moe", "training_throughput", 0.18, 0.60, 0.80, 2.5, id="experts"),
    pytest.param("mlperf_training", "mlperf_training", 0.20, 0.60, 0.70, 2.0, id="MLPerf"),
]


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def measurements(name, catalog):
    return pd.read_csv(catalog.folder / "measurements" / f"{name}.csv")


@pytest.mark.parametrize(("table", "file", "median", "p90", "within", "ratio"), PROMISED)
def test_promised_accuracy(table, file, median, p90, within, ratio, catalog):
    """A change that worsens the estimates beyond what the accuracy page promises."""
    scored = SCORERS[table](measurements(file, catalog), catalog)
    score = summarise(scored)

    assert tuple(scored.columns) == SCORED
    assert score.median_abs_error <= median
    assert score.p90_abs_error <= p90
    assert score.within_band >= within
    assert score.median_band_ratio <= ratio


def test_llama_in_mlperf(catalog):
    """Median within 10 % over the Llama benchmarks together."""
    table = measurements("mlperf_training", catalog)
    score = summarise(SCORERS["mlperf_training"](table[table["benchmark"].str.startswith("llama")], catalog))

    assert score.median_abs_error <= 0.10


def test_few_rows_are_skipped(catalog):
    """Rows that could be scored but are not: at most a tenth."""
    for name in ("training_throughput:dense", "training_throughput:moe"):
        score = summarise(SCORERS[name](measurements("training_throughput", catalog), catalog))
        beside = ("not a measurement", "not a language model", "GPU or variant not in the catalog")
        missed = sum(count for reason, count in score.skipped.items() if reason not in beside)
        assert missed <= 0.1 * score.rows


def test_order_of_rows_and_names_do_not_matter(catalog):
    """An estimate that depended on row or source ids would be an answer looked up, not computed."""
    table = measurements("training_throughput", catalog)
    shuffled = table.sample(frac=1.0, random_state=1)
    renamed = shuffled.assign(source_id="elsewhere", source_title="", source_url="", source_date="")
    for scorer in (SCORERS["training_throughput:dense"], SCORERS["training_throughput:moe"]):
        before = scorer(table, catalog).set_index("row_id")["typical"]
        after = scorer(renamed, catalog).set_index("row_id")["typical"]
        pd.testing.assert_series_equal(before.sort_index(), after.sort_index())


def test_a_row_without_gpus_says_so(catalog):
    """A default taken for what no column says would be scored as if it were known."""
    row = measurements("training_throughput", catalog).iloc[0].to_dict() | {"gpus": np.nan}

    with pytest.raises(Unusable, match="number of GPUs"):
        run_of(row, catalog)


def test_calibrated_constants_lie_within_their_bounds(catalog):
    """A fit that ran into a bound stopped for the wrong reason."""
    for name, (low, high) in CALIBRATED.items():
        row = catalog.assumptions.rows[name]
        assert row.calibrated
        assert low <= row.typical <= high
    assert len(CALIBRATED) <= 15
