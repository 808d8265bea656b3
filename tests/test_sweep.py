"""Sweeps: the same answers as one by one, the same bytes whoever computes them, nothing lost, nothing half written."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuguide import DataError, GuideError, InvalidScenario, UnknownName, decide, load_catalog
from gpuguide.sweep import grid_of, heat_map, read_grid, read_rows, sweep
from gpuguide.sweep import run as running
from gpuguide.sweep.grid import MOST_POINTS
from gpuguide.sweep.points import row_of, rows_of

LORA = {"workload": "lora", "model": "llama-3.1-8b", "gpus": 1}
SMALL = {
    "gpu": ["RTX4090", "L40S", "H100-SXM"],
    "sequence_length": [1024, 4096],
    "train_tokens": {"from": 1e6, "to": 1e8, "steps": 6, "scale": "log"},
}


# ---- the same answers as one by one ----------------------------------------------------------------------------------

GRIDS = [
    pytest.param(LORA, SMALL, id="LoRA on given GPUs"),
    pytest.param(
        {"workload": "qlora", "model": "llama-3.1-70b", "deadline_hours": 20, "pricing": "any"},
        {"sequence_length": [512, 2048], "global_batch": [16, 64], "gpu": ["L4", "A100-80GB"]},
        id="QLoRA with a deadline",
    ),
    pytest.param(
        {"workload": "full", "params_b": 7}, {"sequence_length": [512, 8192], "gpus": [1, 8]}, id="full, whole market"
    ),
    pytest.param(
        {"workload": "full", "model": "llama-3.2-1b", "preference": "balanced", "budget_usd": 100},
        {"recipe": ["pure-bf16", "fp8"], "train_tokens": [1e7, 1e9], "micro_batch": [1, 4]},
        id="full, recipes, budget",
    ),
    pytest.param(
        {"workload": "serve", "model": "llama-3.1-8b", "max_tpot_s": 0.04},
        {"weight_format": ["bf16", "awq"], "concurrency": [1, 16, 256], "prompt_tokens": [512, 4096], "gpus": [1, 2]},
        id="serving with a latency",
    ),
    pytest.param(
        {"workload": "serve", "model": "mixtral-8x7b", "preference": "fastest"},
        {"requests_per_s": [0.5, 4.0], "output_tokens": [128, 1024]},
        id="serving arrivals, mixture of experts",
    ),
    pytest.param(
        {"workload": "serve", "model": "llama-3.1-8b"},
        {"max_context": [4096, 8192, 10_000_000], "prompt_tokens": [1024, 8000], "tensor_parallel": [1, 3]},
        id="points that cannot be",
    ),
]


def alone(scenario):
    """The row of one scenario answered by itself, or the sentence that says why there is none."""
    try:
        return row_of(decide(load_catalog().resolve(scenario)))
    except GuideError as error:
        return str(error)


@pytest.mark.parametrize(("fixed", "axes"), GRIDS)
def test_many_at_once_answer_as_one_by_one(fixed, axes):
    """The pass over arrays has its own code; a row of it that differs from `decide` is a wrong row."""
    catalog, grid = load_catalog(), grid_of(fixed, axes)
    rows = rows_of(grid, catalog, 0, len(grid)).to_pylist()

    for number, row in enumerate(rows):
        expected = alone(grid.scenario(number))
        if isinstance(expected, str):
            assert (row["outcome"], row["problem"]) == ("invalid", expected)
            continue
        assert row["outcome"] == expected["outcome"], grid.scenario(number)
        if row["outcome"] in ("fits", "tight"):
            for name, value in expected.items():
                if isinstance(value, float):
                    np.testing.assert_allclose(np.nan if row[name] is None else row[name], value, rtol=1e-9)
                else:
                    assert row[name] == value, name


@settings(max_examples=20)
@given(first=st.integers(0, 35), length=st.integers(1, 36))
def test_rows_do_not_depend_on_where_a_sweep_is_cut(first, length):
    """A resumed sweep would differ from one that ran through."""
    catalog, grid = load_catalog(), grid_of(LORA, SMALL)
    whole = rows_of(grid, catalog, 0, len(grid))
    last = min(first + length, len(grid))

    assert rows_of(grid, catalog, first, last).equals(whole.slice(first, last - first))


# ---- bad grids -------------------------------------------------------------------------------------------------------

BAD = [
    pytest.param({}, {"sequence_lenght": [1]}, UnknownName, "did you mean sequence_length", id="unknown key"),
    pytest.param({"modle": "x"}, {"gpus": [1]}, UnknownName, "did you mean model", id="unknown fixed key"),
    pytest.param({}, {"sequence_length": []}, DataError, "list is empty", id="empty list"),
    pytest.param({}, {"sequence_length": 4096}, DataError, "give a list", id="no list"),
    pytest.param({"gpus": 1}, {"gpus": [1, 2]}, DataError, "both fixed and in the grid", id="twice"),
    pytest.param({}, {"gpus": [0]}, InvalidScenario, "gpus = 0", id="impossible value"),
    pytest.param({}, {"train_tokens": {"from": 1, "to": 2}}, DataError, "either step", id="range without step"),
    pytest.param({}, {"train_tokens": {"from": 2, "to": 1, "steps": 2}}, DataError, "before it starts", id="backwards"),
    pytest.param({}, {"train_tokens": {"from": 1, "to": 2, "stepz": 2}}, DataError, "stepz", id="unknown range key"),
    pytest.param(
        {},
        {"sequence_length": {"from": 1, "to": 1_000_000, "step": 1}, "train_tokens": {"from": 1, "to": 1e6, "step": 1}},
        DataError,
        "more than",
        id="10^12 points",
    ),
]


@pytest.mark.parametrize(("fixed", "axes", "error", "words"), BAD)
def test_a_bad_grid_is_one_sentence_before_any_work(fixed, axes, error, words):
    """Found out after an hour, a misspelt key costs the hour."""
    started = time.perf_counter()
    with pytest.raises(error, match=words) as caught:
        grid_of(fixed, axes)
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - started < 2


def test_a_grid_is_read_from_its_file(tmp_path):
    """The file of the first lines of the documentation."""
    file = tmp_path / "grid.toml"
    file.write_text('workload = "lora"\n[grid]\nlora_rank = { from = 8, to = 64, step = 8 }\ngpu = ["L4"]\n', "utf-8")
    grid = read_grid(file)

    assert len(grid) == 8
    assert list(grid.axes) == ["lora_rank", "gpu"]
    assert len(grid) <= MOST_POINTS


def test_an_unknown_gpu_is_refused_before_any_work(tmp_path):
    """Names are looked up once, not at the first point that has them."""
    grid = grid_of(LORA, {"gpu": ["L4", "H1000"]})
    with pytest.raises(UnknownName, match="H1000"):
        sweep(grid, tmp_path / "rows.parquet")
    assert list(tmp_path.iterdir()) == []


# ---- whole files -----------------------------------------------------------------------------------------------------


def test_the_same_bytes_twice_and_the_same_rows_as_csv(tmp_path):
    """Files of one grid are compared by their bytes."""
    grid = grid_of(LORA, SMALL)
    done = sweep(grid, tmp_path / "one.parquet")
    sweep(grid, tmp_path / "two.parquet")
    sweep(grid, tmp_path / "rows.csv")

    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    table, csv = read_rows(tmp_path / "one.parquet"), read_rows(tmp_path / "rows.csv")
    assert len(table) == len(grid) == done.points == len(csv)
    np.testing.assert_allclose(csv["cost_usd_typical"], table["cost_usd_typical"], rtol=1e-12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.parquet", "rows.csv", "two.parquet"]


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """Hours of a large sweep must survive a closed laptop."""
    grid, out = grid_of(LORA, SMALL), tmp_path / "rows.parquet"
    compute, calls = running.compute, []

    def stops(grid, settings, first, last):
        if len(calls) == 5:
            raise KeyboardInterrupt
        calls.append(first)
        return compute(grid, settings, first, last)

    monkeypatch.setattr(running, "compute", stops)
    with pytest.raises(KeyboardInterrupt):
        sweep(grid, out)
    assert not out.exists()
    monkeypatch.setattr(running, "compute", compute)
    resumed = sweep(grid, out).resumed
    sweep(grid, tmp_path / "straight.parquet")

    assert resumed == 5
    assert out.read_bytes() == (tmp_path / "straight.parquet").read_bytes()


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="limits of file size are of Unix")
def test_a_full_disk_leaves_the_old_file_whole(tmp_path):
    """A disk that runs full in the middle must not take yesterday's result with it."""
    out = tmp_path / "rows.parquet"
    sweep(grid_of(LORA, SMALL), out)
    before = out.read_bytes()
    code = f"""
import resource, signal, sys
from pathlib import Path
from gpuguide.sweep import grid_of, sweep
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
try:
    sweep(grid_of({LORA!r}, {{**{SMALL!r}, "lora_rank": list(range(1, 40))}}), Path({str(out)!r}))
except Exception as error:
    print(type(error).__name__, error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout

    assert said.startswith("DataError")
    assert "cannot be written" in said
    assert out.read_bytes() == before


@pytest.mark.parametrize("name", ["rows.xlsx", "rows"])
def test_other_formats_are_refused(name, tmp_path):
    """A name nobody can open later."""
    with pytest.raises(DataError, match=r"\.parquet, \.csv"):
        sweep(grid_of(LORA, SMALL), tmp_path / name)


def test_an_unwritable_path_is_said_first(tmp_path):
    """Not after the work."""
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(DataError, match="cannot be written"):
        sweep(grid_of(LORA, SMALL), tmp_path / "file" / "rows.parquet")


def test_a_heat_map_shows_every_cell(tmp_path):
    """A cell that is left out looks like one that does not fit."""
    sweep(grid_of(LORA, SMALL), tmp_path / "rows.parquet")
    rows = read_rows(tmp_path / "rows.parquet")
    figure = heat_map(rows, x="train_tokens", y="gpu", language="tr").figure

    (trace,) = figure["data"]
    assert np.isfinite(np.array(trace["z"], dtype=float)).sum() == rows.groupby(["train_tokens", "gpu"]).ngroups
    with pytest.raises(UnknownName):
        heat_map(rows, x="tokens", y="gpu")


# ---- a real scheduler with real workers ------------------------------------------------------------------------------


def start(*words):
    environment = os.environ | {"DASK_DISTRIBUTED__DASHBOARD__LINK": "", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("dask")), *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def cluster():
    """A scheduler and two worker processes on the loopback; yields the address and a way to kill a worker."""
    scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    address = ""
    for line in scheduler.stderr:
        if "tcp://" in line:
            address = "tcp://" + line.split("tcp://")[1].split()[0]
            break
    workers = [
        start("worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", str(number))
        for number in range(2)
    ]
    yield address, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.slow
def test_a_killed_worker_loses_no_rows(cluster, tmp_path):
    """Machines of a cluster are taken away; rows must not go with them, nor be computed into other bytes."""
    from dask.distributed import Client

    address, workers = cluster
    with Client(address) as client:
        client.wait_for_workers(2, timeout=60)
    grid = grid_of(
        {"workload": "serve", "model": "llama-3.1-8b"},
        {"prompt_tokens": [256, 512, 1024, 2048], "concurrency": list(range(1, 17)), "weight_format": ["bf16", "awq"]},
    )
    killed = []

    def told(done, total):
        if done >= total // 4 and not killed:
            workers[0].kill()
            killed.append(done)

    swept = sweep(grid, tmp_path / "cluster.parquet", scheduler=address, told=told)
    sweep(grid, tmp_path / "here.parquet")

    assert killed
    assert killed[0] < swept.points
    assert workers[0].wait() != 0
    assert pq.read_metadata(tmp_path / "cluster.parquet").num_rows == len(grid)
    assert (tmp_path / "cluster.parquet").read_bytes() == (tmp_path / "here.parquet").read_bytes()


@pytest.mark.slow
def test_local_processes_give_the_same_bytes(tmp_path):
    """Two processes of this machine, started by the sweep itself, beside a cluster that has Dask's usual port."""
    grid = grid_of(LORA, SMALL)
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # somebody has it: as well
            other.bind(("", 8787))
            other.listen()
        swept = sweep(grid, tmp_path / "two.parquet", workers=2)
    sweep(grid, tmp_path / "one.parquet")

    assert swept.workers == 2
    assert (tmp_path / "two.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


@pytest.mark.slow
def test_no_scheduler_is_one_sentence(tmp_path, monkeypatch):
    """A wrong address is the commonest mistake with a cluster."""
    monkeypatch.setattr(running, "CONNECT_S", 2)
    with pytest.raises(DataError, match="no Dask scheduler answers"):
        sweep(grid_of(LORA, SMALL), tmp_path / "rows.parquet", scheduler="tcp://127.0.0.1:9")
