"""Scores of serving speed on published runs: the figures the accuracy page shows must hold."""

import numpy as np
import pandas as pd
import pytest

from gpuguide.accuracy.serving_runs import runs_of
from gpuguide.accuracy.serving_speed import CALIBRATED, SCORERS
from gpuguide.accuracy.table import SCORED, summarise
from gpuguide.catalog.package import data_folder

FILE = "decode_throughput"


@pytest.fixture(scope="module")
def table():
    return pd.read_csv(data_folder() / "measurements" / f"{FILE}.csv")


@pytest.fixture(scope="module")
def scored(table, catalog):
    """Every quantity, scored."""
    return {name.removeprefix(f"{FILE}:"): scorer(table, catalog) for name, scorer in SCORERS.items()}


def errors(frame):
    kept = frame[(frame["skip"] == "") & frame["typical"].notna()]
    return np.abs(kept["typical"] / kept["measured"] - 1)


def within(frame, factor):
    kept = frame[(frame["skip"] == "") & frame["typical"].notna()]
    return float(np.mean(np.abs(np.log(kept["typical"] / kept["measured"])) <= np.log(factor)))


@pytest.mark.parametrize(
    ("name", "median", "p90"),
    [
        ("decode_bs1", 0.12, 0.30),
        ("prefill", 0.20, 0.60),
        ("serving_online", 0.20, 0.60),
        ("serving_online_dense", 0.15, 0.60),
        ("serving_online_moe", 0.25, 0.60),
        ("serving_online_ttft", 0.20, 0.75),
        ("serving_offline_max", 0.15, 0.40),
        ("decode_batch_static", 0.20, 1.40),
    ],
)
def test_errors(scored, name, median, p90):
    """Median and ninth decile of the relative error, on all rows of the kind."""
    score = summarise(scored[name])
    assert score.median_abs_error <= median
    assert score.p90_abs_error <= p90


@pytest.mark.parametrize("name", ["decode_bs1", "prefill", "serving_online", "serving_offline_max"])
def test_bands(scored, name):
    """Bands hold four of five measurements and are hardly wider than a factor of two."""
    score = summarise(scored[name])
    assert score.within_band >= 0.8
    assert score.median_band_ratio <= 2.0


def test_offline_throughput_within_one_and_a_half(scored):
    """Room, batch, prompts and links together: nine of ten rows."""
    assert within(scored["serving_offline_max"], 1.5) >= 0.9


def test_few_rows_are_left_out(scored, table):
    """At most one in ten of the rows that can be scored, each with its reason."""
    for name in ("decode_bs1", "serving_online", "serving_offline_max"):
        frame = scored[name]
        left_out = (frame["skip"] != "") & ~frame["skip"].str.contains("marked so in the table")
        assert left_out.mean() <= 0.11, name
    assert all(frame["skip"].str.match(r"^$|not scoreable: ").all() for frame in scored.values())


def test_every_engine_and_source(scored):
    """No engine or source is bought with the error of another: each within one and a half times the target."""
    for name, target in {"decode_bs1": 0.12, "prefill": 0.20, "serving_online": 0.20}.items():
        frame = scored[name].assign(engine=scored[name]["label"].str.rpartition(", ")[2])
        for (engine, source), rows in frame[frame["skip"] == ""].groupby(["engine", "source_id"]):
            if len(rows) >= 15 and (engine, source) not in KNOWN_WEAK:
                assert errors(rows).median() <= 1.5 * target, (name, engine, source)


KNOWN_WEAK = {("SGLang", "qwen3_speed_benchmark")}
"""16-bit layers are read at a third of the bandwidth of H20, on which the same engine reads experts and cache fast."""


def test_frames_have_the_columns_of_a_score(scored):
    """The accuracy page reads these."""
    for frame in scored.values():
        assert list(frame.columns) == list(SCORED)
        kept = frame[frame["skip"] == ""]
        assert (kept["low"] <= kept["typical"]).all()
        assert (kept["typical"] <= kept["high"]).all()


def test_few_constants_are_fitted(catalog):
    """Fifteen at most, inside what physics allows, and named as fitted in the table."""
    rows = catalog.assumptions.rows
    named = {name for name, row in rows.items() if name.startswith("serving_speed_") and row.calibrated}
    assert named == set(CALIBRATED)
    assert len(named) <= 15
    for name, (least, most) in CALIBRATED.items():
        assert least <= rows[name].low <= rows[name].typical <= rows[name].high <= most, name


def row(**changes):
    values = {
        "row_id": "x", "source_id": "s", "kind": "serving_online", "score_on": "tpot_ms", "evidence": "measured",
        "model": "Llama-3.1-8B", "params_b": 8.03, "active_params_b": 8.03, "weight_precision": "fp8",
        "weight_format": "fp8", "engine": "vLLM", "gpu": "H100-SXM", "n_gpus": 1, "tp": 1, "pp": 1,
        "batch_or_concurrency": "8", "input_len": 1024.0, "output_len": 256.0, "tpot_ms": 8.0, "ttft_ms": 50.0,
    }  # fmt: skip
    return {**values, **changes}


@pytest.mark.parametrize(
    ("changes", "tensor", "attention", "machines"),
    [
        pytest.param({"tp": 8, "n_gpus": 8}, 8, False, 1, id="plain tensor parallel"),
        pytest.param(
            {"tp": 64, "n_gpus": 64, "parallel_note": "attention_dp=1 moe_tp=8 moe_ep=8"},
            8,
            False,
            1,
            id="counted twice",
        ),
        pytest.param(
            {"tp": 1, "n_gpus": 16, "parallel_note": "attention_dp=16 moe_tp=4 moe_ep=4"}, 4, True, 1, id="and with DP"
        ),
        pytest.param(
            {"tp": 1, "n_gpus": 8, "parallel_note": "attention_dp=8 moe_tp=1 moe_ep=8"}, 8, True, 1, id="DP, EP"
        ),
        pytest.param({"tp": 16, "n_gpus": 16}, 16, False, 2, id="two machines"),
        pytest.param({"tp": float("nan"), "n_gpus": 4}, 4, False, 1, id="no degree given"),
    ],
)
def test_layout_of_a_row(catalog, changes, tensor, attention, machines):
    """Degrees that count a GPU twice would ask for eight times the machines that ran."""
    (run,), _ = runs_of([row(**changes)], catalog)
    assert (run.tensor, run.attention_data_parallel, run.machines) == (tensor, attention, machines)


@pytest.mark.parametrize(
    ("words", "concurrency", "rate"),
    [("8", 8.0, None), ("QPS=2", 1.0, 2.0), ("QPS=INF", 1e6, None), ("max", 1e6, None)],
)
def test_load_of_a_row(catalog, words, concurrency, rate):
    """A rate taken for a number of requests would be off by the stay."""
    (run,), _ = runs_of([row(batch_or_concurrency=words)], catalog)
    assert (run.concurrency, run.rate) == (concurrency, rate)


def test_unseen_names_are_scored(catalog):
    """Measurements of tomorrow name models, cards and engines that no table has."""
    frame = pd.DataFrame(
        [
            row(model="Qwen9-33B-Chat", params_b=33.0, active_params_b=33.0),
            row(model="Owl-300B-A20B", params_b=300.0, active_params_b=20.0, n_gpus=8, tp=8),
            row(gpu="NVIDIA H100 80GB HBM3", engine="vLLM", engine_version="0.20.1"),
            row(gpu="Abacus-1"),
        ]
    )
    found = SCORERS[f"{FILE}:serving_online"](frame, catalog)
    assert list(found["skip"] == "") == [True, True, True, False]
    assert found["typical"][:3].between(1, 100).all()
