"""Scoring a folder: the names of tables, broken rows, absent tables."""

import pandas as pd
import pytest

from gpuguide import DataError, UnknownName, load_catalog
from gpuguide.accuracy.report import read_measurements, score_folder
from gpuguide.accuracy.scorers import all_scorers
from gpuguide.accuracy.table import SCORED, summarise

NAMES = {
    "torch_memory", "training_memory", "training_memory_components", "training_throughput:dense",
    "training_throughput:moe", "mlperf_training", "inference_memory:weights", "inference_memory:kv_bytes_per_token",
    "inference_memory:kv_room", "decode_throughput:decode_bs1", "decode_throughput:prefill",
    "decode_throughput:serving_online", "decode_throughput:serving_offline_max", "diffusion_inference:memory",
    "diffusion_inference:speed", "audio_inference:memory", "audio_inference:speed", "diffusion_training",
}  # fmt: skip


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def test_documented_tables_are_there():
    """Scripts ask for these names."""
    assert set(all_scorers()) >= NAMES


@pytest.mark.parametrize("file", sorted({name.partition(":")[0] for name in NAMES}))
def test_broken_rows_are_skipped_with_a_reason(catalog, tmp_path, file):
    """One unreadable cell in somebody's table must not cost the other rows their score."""
    frame = read_measurements(catalog.folder / "measurements" / f"{file}.csv").head(12).astype(object)
    for place, value in enumerate(("weird", -1, 0, 1e30, None, "7B")):
        for column in frame.columns[place + 1 :: 7]:
            frame.loc[place, column] = value
    frame.to_csv(tmp_path / f"{file}.csv", index=False)
    for name, scored in score_folder(catalog, tmp_path).scored.items():
        assert set(scored.columns) >= set(SCORED), name
        figures = summarise(scored)
        assert figures.rows == len(scored)
        assert figures.scored + sum(figures.skipped.values()) <= figures.rows


def test_folder_without_our_tables(catalog, tmp_path):
    with pytest.raises(DataError, match="none of the tables"):
        score_folder(catalog, tmp_path)
    with pytest.raises(UnknownName):
        score_folder(catalog, only="weather")


def test_summary_of_known_figures():
    """Errors of 10 % and 30 %, one of two in the band, one verdict right and one wrong."""
    scored = pd.DataFrame(
        {
            "row_id": list("abcd"), "source_id": "s", "measured": [10.0, 10.0, None, None],
            "low": [9.0, 11.0, None, None], "typical": [11.0, 13.0, None, None], "high": [12.0, 15.0, None, None],
            "skip": "",
            "expected": [None, None, "no", "no"], "verdict": [None, None, "tight", "fits"], "label": "",
        }
    )  # fmt: skip
    figures = summarise(scored)
    assert figures.scored == 2
    assert figures.median_abs_error == pytest.approx(0.2)
    assert figures.within_band == 0.5
    assert figures.outcomes == {"right": 1, "wrong": 1}
