"""Scores of the serving-memory estimates on published logs: the figures the accuracy page shows must hold."""

import numpy as np
import pandas as pd
import pytest

from gpuguide.accuracy.serving_memory import SCORERS
from gpuguide.accuracy.serving_rows import named_card
from gpuguide.accuracy.table import SCORED, summarise
from gpuguide.catalog.package import data_folder

FOLDER = data_folder() / "measurements"


@pytest.fixture(scope="module")
def scored(catalog):
    """Every quantity, scored."""
    files = {file: pd.read_csv(FOLDER / f"{file}.csv") for file in ("inference_memory", "decode_throughput")}
    return {name: scorer(files[name.split(":")[0]], catalog) for name, scorer in SCORERS.items()}


def test_loaded_weights(scored):
    """16-bit and FP8 within 2 % at the median, 4-bit within 6 %; hardly a row left out."""
    frame = scored["inference_memory:weights"]
    score = summarise(frame)
    error = (frame["typical"] / frame["measured"] - 1).abs()
    packed = frame["label"].str.contains("awq|gptq|fp4", regex=True)

    assert error[~packed].median() <= 0.02
    assert error[packed].median() <= 0.06
    assert sum(score.skipped.values()) <= 0.1 * score.rows
    assert score.within_band >= 0.8
    assert score.median_band_ratio <= 2


def test_cache_of_one_token(scored):
    """Exact where a log's own figures allow it."""
    frame = scored["inference_memory:kv_bytes_per_token"]

    assert len(frame) >= 3
    assert (frame["typical"] / frame["measured"] - 1).abs().max() <= 0.002


def test_cache_room(scored):
    """Within the larger of 2 GiB and 10 % for 85 % of rows, bands that hold 80 %."""
    frame = scored["inference_memory:kv_room"]
    kept = frame[frame["measured"].notna() & (frame["skip"] == "")]
    near = (kept["typical"] - kept["measured"]).abs() <= np.maximum(2.0, 0.1 * kept["measured"].abs())
    score = summarise(frame)

    assert near.mean() >= 0.85
    assert score.within_band >= 0.8
    assert score.median_band_ratio <= 2
    assert sum(score.skipped.values()) <= 0.1 * score.rows


def test_peaks_of_frameworks_without_pages(scored):
    """Transformers and AutoAWQ, from prompt to last token."""
    score = summarise(scored["inference_memory:peak"])

    assert score.median_abs_error <= 0.1
    assert score.within_band >= 0.8
    assert score.median_band_ratio <= 2


@pytest.mark.parametrize("name", ["inference_memory:kv_room", "decode_throughput:oom"])
def test_nothing_that_refused_is_said_to_fit(scored, name):
    """A false 'fits' costs a renter a machine."""
    frame = scored[name]
    refused = frame[(frame["expected"] == "no") & (frame["skip"] == "")]

    assert len(refused) >= 5
    assert not (refused["verdict"] == "fits").any()


def test_what_runs_is_seldom_refused(scored):
    """An estimate that always refuses would pass the test above."""
    frame = scored["inference_memory:kv_room"]
    ran = frame[(frame["expected"] == "fits") & (frame["skip"] == "")]

    assert (ran["verdict"] == "no").mean() <= 0.2


def test_no_source_carries_the_score_alone(scored):
    """Leave one source out: the cache room of the others stays within one and a half times the target."""
    frame = scored["inference_memory:kv_room"]
    kept = frame[frame["measured"].notna() & (frame["skip"] == "")]
    near = (kept["typical"] - kept["measured"]).abs() <= np.maximum(3.0, 0.15 * kept["measured"].abs())

    for source in kept["source_id"].unique():
        assert near[kept["source_id"] != source].mean() >= 0.75


def test_unknown_rows_are_left_out_with_a_reason(catalog):
    """A row of another model, card or engine must not stop the table."""
    rows = pd.DataFrame(
        [
            {"row_id": "a", "model": "Mystery", "engine": "vLLM", "gpu": "H100-SXM", "weights_gib_per_gpu": 1.0},
            {"row_id": "b", "model": "Mystery-9B", "engine": "mystery", "gpu": "H100-SXM", "weights_gib_per_gpu": 1.0},
            {"row_id": "c", "model": "Mystery-9B", "engine": "SGLang", "gpu": "mystery", "weights_gib_per_gpu": 16.8},
            {"row_id": "d", "model": "org/Llama-3.1-8B-Instruct-AWQ", "engine": "TRT-LLM", "weights_gib_per_gpu": 5.4},
            {"row_id": "e", "model": "Llama-3.1-8B", "engine": "vLLM", "weights_gib_per_gpu": np.nan},
        ]
    )
    frame = SCORERS["inference_memory:weights"](rows, catalog).set_index("row_id")

    assert tuple(frame.reset_index()[list(SCORED)].columns) == SCORED
    assert list(frame.index) == ["a", "b", "c", "d"]
    assert "not in the catalog" in frame.loc["a", "skip"]
    assert frame.loc["b", "typical"] == pytest.approx(16.8, rel=0.02)
    assert frame.loc["c", "typical"] == pytest.approx(16.8, rel=0.02)
    assert frame.loc["d", "typical"] == pytest.approx(5.35, rel=0.03)
    rooms = rows.drop(columns="weights_gib_per_gpu").assign(kv_available_gib_per_gpu=10.0)
    skipped = SCORERS["inference_memory:kv_room"](rooms, catalog).set_index("row_id")["skip"]
    assert "mystery" in skipped["b"]
    assert "GPU" in skipped["c"]


CARDS = {
    "NVIDIA A100 80GB": "A100-80GB-PCIe",
    "A100-SXM4-40GB": "A100-40GB-SXM",
    "NVIDIA A10": "A10",
    "a10g": "A10G",
    "NVIDIA L40S": "L40S",
    "NVIDIA L4": "L4",
    "Tesla T4": "T4",
    "NVIDIA H100 80GB HBM3": "H100-PCIe",
    "H200": "H200-SXM",
    "NVIDIA GeForce RTX 4090": "RTX4090",
    "RTX 3090 Ti": "RTX3090Ti",
    "RTX A6000": "RTX-A6000",
    "AMD Instinct MI300X": "MI300X",
    "NVIDIA B200": "B200",
    "GTX 1080": None,
    "RTX4060-8GB": "RTX4060",
    "NVIDIA RTX 4090 48GB": "RTX4090-48GB-MOD",
}


@pytest.mark.parametrize(("written", "card"), CARDS.items())
def test_cards_are_found_in_any_spelling(catalog, written, card):
    """An A100 taken for an A10 would shrink the room to a quarter."""
    found = named_card(written, catalog.gpus)

    assert found == card
