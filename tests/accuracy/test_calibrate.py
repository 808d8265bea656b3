"""Calibration finds what was put in, holds back where runs say little, and refuses too few."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpuguide import DataError, Scenario, UnknownName, decide, load_catalog
from gpuguide.accuracy import calibrate as module
from gpuguide.accuracy.calibrate import LEAST_RUNS, calibrate, cross_validate, toml_of
from gpuguide.accuracy.report import score_folder
from gpuguide.catalog.own import read_assumptions, replaced, with_assumptions

DOCS = Path(__file__).resolve().parents[2] / "docs" / "measurements.md"
SOURCE = "mosaic_llmfoundry_h100_large"


def runs(folder, *, times=1.0, rows=None):
    """Published runs as if they were one's own, all faster or slower by a factor."""
    table = pd.read_csv(load_catalog().folder / "measurements" / "training_throughput.csv", low_memory=False)
    own = table[table["source_id"] == SOURCE].head(rows or 1000).copy()
    own["tokens_per_s_per_gpu"] *= times
    own.to_csv(folder / "training_throughput.csv", index=False)
    return folder


def estimates(folder, catalog):
    frame = score_folder(catalog, folder, only="training_throughput:dense").rows()
    return frame["typical"] / frame["measured"]


@pytest.mark.parametrize("times", [0.8, 0.9])
def test_a_slower_stack_is_learnt(times, tmp_path):
    """Runs that are all slower by a share must make the estimates slower by nearly that share."""
    catalog, folder = load_catalog(), runs(tmp_path, times=times)
    found = calibrate(catalog, folder)
    fitted = replaced(catalog, found.bands(catalog.assumptions.rows))

    before, after = estimates(folder, catalog).median(), estimates(folder, fitted).median()
    assert found.helps
    assert found.error_left_out < found.error_before
    assert abs(np.log(after)) < 0.35 * abs(np.log(before))
    assert found.error_after == pytest.approx(np.median(np.abs(estimates(folder, fitted) - 1)), rel=1e-6)


def test_few_runs_move_less_than_many(tmp_path):
    """Without shrinkage eight runs would be believed like eighteen."""
    catalog = load_catalog()
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few = calibrate(catalog, runs(tmp_path / "few", times=0.8, rows=LEAST_RUNS))
    many = calibrate(catalog, runs(tmp_path / "many", times=0.8))

    def moved(found, name="compute_matmul_share"):
        (one,) = (constant for constant in found.constants if constant.name == name)
        return abs(np.log(one.fitted / one.shipped))

    assert 0 < moved(few) < moved(many)


def test_what_runs_do_not_bear_on_stays(tmp_path):
    """Dense runs say nothing of experts."""
    found = calibrate(load_catalog(), runs(tmp_path, times=0.8))

    for constant in found.constants:
        if "expert" in constant.name or constant.name == "compute_fp4_share":
            assert not constant.moved
            assert constant.fitted == constant.shipped
    assert not [name for name in found.bands(load_catalog().assumptions.rows) if "expert" in name]


def test_too_few_runs_say_how_many_are_needed(tmp_path):
    """`singular matrix` helps nobody."""
    with pytest.raises(DataError, match="has 3 usable runs and 8 are needed to fit anything: 5 more"):
        calibrate(load_catalog(), runs(tmp_path, rows=3))


def test_a_folder_without_measurements_is_refused(tmp_path):
    """An empty folder, or none."""
    with pytest.raises(DataError, match="0 usable runs"):
        calibrate(load_catalog(), tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        calibrate(load_catalog(), tmp_path / "none")


def test_the_file_is_used_and_says_where_it_is_from(tmp_path):
    """Fit, write, read, answer: another price than with the shipped constants."""
    catalog = load_catalog()
    found = calibrate(catalog, runs(tmp_path, times=0.8))
    file = tmp_path / "mine.toml"
    file.write_text(toml_of(found, catalog.assumptions.rows, folder="my-runs"), "utf-8")
    own = with_assumptions(catalog, file)
    scenario = Scenario(workload="full", model="llama-3.1-8b", train_tokens=1e9, gpu=("H100-SXM",), gpus=8)

    shipped, mine = (decide(known.resolve(scenario)).best["hours_typical"] for known in (catalog, own))
    assert f"{found.runs} runs in my-runs" in file.read_text("utf-8")
    assert mine > 1.1 * shipped
    assert catalog.assumptions["compute_matmul_share"][1] != own.assumptions["compute_matmul_share"][1]


BAD = [
    pytest.param("compute_matmul_shar = 0.7", UnknownName, "did you mean compute_matmul_share", id="unknown name"),
    pytest.param("[compute_matmul_share]\nmid = 1", DataError, "low, typical and high", id="unknown end"),
    pytest.param("[compute_matmul_share]\nlow = 0.9\ntypical = 0.8\nhigh = 1", DataError, "low <= typical", id="order"),
    pytest.param('compute_matmul_share = "fast"', DataError, "not a number", id="word"),
    pytest.param("compute_matmul_share = nan", DataError, "not a number", id="nan"),
    pytest.param("compute_matmul_share = ", DataError, "not valid TOML", id="broken"),
]


@pytest.mark.parametrize(("text", "error", "words"), BAD)
def test_a_wrong_file_of_assumptions_is_one_sentence(text, error, words, tmp_path):
    """It is written by hand as often as by the fit."""
    file = tmp_path / "mine.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(error, match=words):
        read_assumptions(file, load_catalog().assumptions)


def test_a_single_number_keeps_the_band_in_proportion(tmp_path):
    """Else a typical value could leave its own band."""
    file = tmp_path / "mine.toml"
    file.write_text("compute_matmul_share = 0.41", "utf-8")
    known = load_catalog().assumptions
    low, typical, high = read_assumptions(file, known)["compute_matmul_share"]
    row = known.rows["compute_matmul_share"]

    assert typical == 0.41
    assert (low / typical, high / typical) == pytest.approx((row.low / row.typical, row.high / row.typical))


def test_sources_are_left_out_one_at_a_time():
    """The error on sources that the fit has not seen is what a reader may expect; it is no miracle."""
    catalog = load_catalog()
    found = cross_validate(catalog, catalog.folder / "measurements", "training_throughput:dense")["tables"]

    (row,) = found.values()
    assert row["sources"] > 5
    assert row["median_abs_error"] < row["median_abs_error_left_out"] + 0.02
    assert row["median_abs_error_left_out"] < 0.15


def test_every_calibrated_constant_has_measurements_it_shows_in():
    """A constant without a family would never be fitted, and nobody would see."""
    for name, row in load_catalog().assumptions.rows.items():
        if row.calibrated:
            assert module._files_of(name), name


def test_examples_of_the_documentation_can_be_scored(tmp_path):
    """A column that the text forgets makes the first try of every reader fail."""
    text = DOCS.read_text("utf-8")
    names = re.findall(r"^## .*`(\w+\.csv)`", text, re.MULTILINE)
    tables = re.findall(r"```csv\n(.*?)```", text, re.DOTALL)
    for name, table in zip(names, tables, strict=True):
        (tmp_path / name).write_text(table, "utf-8")
    rows = score_folder(load_catalog(), tmp_path).rows()

    assert len(names) == 4
    assert set(rows["skip"].fillna("")) == {""}, rows[rows["skip"] != ""][["table", "skip"]]
    assert (rows["typical"] > 0).all()


def test_pages_answer_with_the_file_the_environment_names(tmp_path, monkeypatch):
    """`gpuguide app --assumptions`: kernels of the pages inherit the variable."""
    from gpuguide.catalog import catalog as module_of_catalog
    from gpuguide.catalog.catalog import OWN_ASSUMPTIONS

    file = tmp_path / "mine.toml"
    file.write_text("compute_matmul_share = 0.41", "utf-8")
    monkeypatch.setenv(OWN_ASSUMPTIONS, str(file))
    module_of_catalog._loaded.cache_clear()
    try:
        assert load_catalog().assumptions.value("compute_matmul_share") == 0.41
    finally:
        module_of_catalog._loaded.cache_clear()
