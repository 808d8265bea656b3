"""The command line as scripts use it: plain JSON, tables, one sentence and the right exit status."""

import io
import json
import subprocess
import sys

import pandas as pd
import pytest

from gpuguide import cli

LORA = ["--set", "workload=lora", "--set", "model=llama-3.1-8b", "--set", "sequence_length=4096"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Call with words of a command; gives exit status, standard output and standard error."""

    def call(*words, stdin=""):
        monkeypatch.setattr(sys, "argv", ["gpuguide", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return call


def test_decide_gives_documented_json(run):
    """Scripts read these names."""
    status, out, _ = run("decide", *LORA, "--top", "5", "--json")
    answer = json.loads(out)
    assert status == 0
    assert set(answer) >= {"scenario", "model", "funnel", "ranking", "remedies", "verdict", "warnings"}
    assert len(answer["ranking"]) == 5
    first = answer["ranking"][0]
    assert set(first) >= {
        "provider", "region", "instance_type", "gpu", "gpus", "nodes", "pricing", "as_of", "age_days", "fit", "plan",
        "memory_bytes", "usable_bytes", "speed", "hours", "cost_usd", "usd_per_million_tokens", "pareto",
    }  # fmt: skip
    assert set(first["memory_bytes"]) >= {"weights", "activations", "total", "total_low", "total_high"}
    assert set(first["cost_usd"]["total"]) == {"low", "typical", "high"}
    assert set(first["speed"]["tokens_per_s"]) == {"low", "typical", "high"}
    parts = sum(value for name, value in first["cost_usd"].items() if name != "total")
    assert parts == pytest.approx(first["cost_usd"]["total"]["typical"], abs=0.005)


def test_json_lines_in_json_lines_out(run):
    lines = '{"workload": "lora", "model": "llama-3.1-8b"}\n{"workload": "serve", "model": "llama-3.1-8b"}\n'
    status, out, _ = run("decide", "-", "--json", "--top", "1", stdin=lines)
    answers = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [answer["scenario"]["workload"] for answer in answers] == ["lora", "serve"]


SERVED = ["--set", "workload=serve", "--set", "model=llama-3.1-8b", "--set", "concurrency=16"]


@pytest.mark.parametrize(
    ("what", "named", "words"),
    [
        ("load", {"concurrency", "tokens_per_s_typical", "tokens_per_s_per_gpu_typical", "tpot_s_high"}, "First token"),
        ("formats", {"weight_format", "fit", "reason", "usd_per_million_tokens", "need_bytes"}, "GGUF Q4_K_M"),
    ],
)
def test_a_row_of_answers_as_load_or_format_changes(run, what, named, words):
    """Scripts read these names; people read the words of the page."""
    status, out, _ = run("decide", *SERVED, "--across", what, "--json")
    assert status == 0
    assert all(named <= set(row) for row in json.loads(out))
    status, out, _ = run("decide", *SERVED, "--across", what, "--csv")
    assert named <= set(pd.read_csv(io.StringIO(out)))
    status, out, _ = run("decide", *SERVED, "--across", what)
    assert words in out
    status, _, said = run("decide", *SERVED, "--across", "nothing")
    assert (status, said.count("\n")) == (2, 1)


def test_csv_is_a_table(run):
    status, out, _ = run("decide", *LORA, "--top", "3", "--csv")
    table = pd.read_csv(io.StringIO(out))
    assert status == 0
    assert len(table) == 3
    assert (table["cost_total_typical_usd"] > 0).all()


def test_all_appends_what_does_not_fit(run):
    words = [
        "--set",
        "workload=serve",
        "--set",
        "model=llama-3.1-70b",
        "--set",
        "weight_format=bf16",
        "--set",
        "gpus=1",
    ]
    _, out, _ = run("decide", *words, "--all", "--json", "--top", "1")
    rows = json.loads(out)["ranking"]
    missing = [row for row in rows if row["fit"] == "no"]
    assert missing
    assert all(row["missing_bytes"] > 0 and row["dropped_by"] for row in missing)


def test_nothing_fits_is_an_answer(run):
    status, out, _ = run("decide", "--set", "model=deepseek-v3", "--set", "gpu=T4", "--set", "gpus=1", "--json")
    assert status == 0
    assert json.loads(out)["ranking"] == []


@pytest.mark.parametrize("language", ["en", "tr"])
def test_tables_are_printed_in_both_languages(run, language):
    status, out, _ = run("decide", *LORA, "--set", f"language={language}", "--top", "2")
    assert status == 0
    assert ("Provider" in out) == (language == "en")
    assert ("Sağlayıcı" in out) == (language == "tr")


def test_offers_show_price_date_and_source(run):
    """Every row of the market says what it costs per machine and per GPU, when that was true, and who says so."""
    status, out, _ = run("offers", "--gpu", "h100-sxm", "--json")
    rows = json.loads(out)
    assert status == 0
    assert rows
    for row in rows:
        assert row["gpu"] == "H100-SXM"
        assert row["usd_per_gpu_hour"] == pytest.approx(row["usd_per_hour"] / row["gpus_per_node"])
        assert row["as_of"]
        assert row["source"]


def test_memory_and_model(run):
    status, out, _ = run(
        "memory", "--set", "workload=full", "--set", "model=llama-3.1-8b", "--set", "gpu=H100-SXM", "--json"
    )
    assert status == 0
    assert json.loads(out)["memory_bytes"]["weights"] > 0
    status, out, _ = run("model", "meta-llama/Llama-3.1-8B", "--json")
    assert status == 0
    assert json.loads(out)["params_total"] == 8030261248


WRONG = [
    pytest.param(["decide", "--set", "model=llama-3.1-9b"], "did you mean", id="unknown model"),
    pytest.param(["decide", "--set", "sequence_lenght=1"], "did you mean sequence_length", id="unknown key"),
    pytest.param(
        ["decide", "--set", "workload=lora", "--set", "sequence_length=10000000"],
        "131072",
        id="beyond the model's context",
    ),
    pytest.param(["decide", "--set", "workload=lora", "--set", "sequence_length=0"], "sequence_length = 0", id="zero"),
    pytest.param(
        ["decide", "--set", "workload=lora", "--set", "sequence_length=-5"], "sequence_length = -5", id="negative"
    ),
    pytest.param(
        ["decide", "--set", "workload=lora", "--set", "lora_rank=5000"], "lora_rank = 5000", id="rank beyond the layer"
    ),
    pytest.param(
        ["decide", "--set", "tensor_parallel=64", "--set", "gpus=64"], "32 attention heads", id="more ranks than heads"
    ),
    pytest.param(["decide", "--set", "gpu=H100-SMX"], "did you mean", id="unknown GPU"),
    pytest.param(
        ["decide", "--set", "workload=full", "--set", "optimizer=adamm"], "did you mean", id="unknown optimizer"
    ),
    pytest.param(["decide", "absent.toml"], "no such file", id="missing file"),
    pytest.param(["decide", "--set", "currency=EUR"], "currency", id="currency without a rate"),
    pytest.param(["offers", "--provider", "amazonn"], "provider", id="unknown provider"),
    pytest.param(["accuracy", "--table", "nothing"], "table", id="unknown table"),
    pytest.param(["accuracy", "--measurements", "/nonexistent"], "no such folder", id="missing folder"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_wrong_input_is_one_sentence(run, words, said):
    """Exit 2, one line on standard error that names value and remedy, nothing on standard output, no traceback."""
    status, out, err = run(*words)
    assert status == 2
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_pipe_that_closes_early_is_no_error():
    """`gpuguide offers | head -1` must not end in a traceback."""
    shell = f"{sys.executable} -m gpuguide offers --csv | head -1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("provider,")
    assert done.stderr == ""
