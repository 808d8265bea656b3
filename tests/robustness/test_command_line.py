"""Every command with words, files and input that no one would mean: an answer, or one sentence and status 2."""

import csv
import json
import os
import struct
from pathlib import Path

import pytest
import typer.main
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuguide import Scenario, cli

COMMANDS = typer.main.get_command(cli.app).commands
WAITING = ("app", "lab", "refresh", "report")
"""Commands that would serve for ever, reach for a network or start a kernel once their words are understood."""
RUNNING = [pytest.param(name, id=name) for name in COMMANDS if name not in WAITING]

WORDS = [
    pytest.param(words, id=" ".join(words)[:50] or "nothing")
    for words in (
        ["--nosuch"],
        ["--top", "abc"],
        ["--top", "0"],
        ["--top", "-1"],
        ["--top", "1e9"],
        ["--top"],
        ["a", "b", "c", "d"],
        ["--set"],
        ["--set", ""],
        ["--set", "="],
        ["--set", "workload"],
        ["--set", "=lora"],
        ["--set", "a=b=c"],
        ["--set", "workload=\x00"],
        ["--set", "model=\ud800"],
        ["--set", "gpu=" + "x" * 5000],
        ["--json", "--csv", "--no"],
        ["nosuch.toml"],
        [""],
        ["."],
        ["/"],
        ["/dev/null"],
        ["/dev/full"],
        ["/proc/self/mem"],
        ["a\x00b"],
        ["\ud800"],
        ["-"],
        ["--", "--set"],
        ["http://[::1"],
        ["?model=x"],
        ["\n"],
        ["a" * 5000],
    )
]


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("name", [*RUNNING, pytest.param("", id="gpuguide"), pytest.param("nosuch", id="nosuch")])
def test_words(run, name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that are not there, values of other types, arguments without sense."""
    monkeypatch.chdir(tmp_path)
    if name == "accuracy" and words in (["--json", "--csv", "--no"],):
        pytest.skip("nothing of its own")
    run(*([name] if name else []), *words).check()


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize(
    "words", [["--nosuch"], ["--port", "0"], ["--port", "x"], ["--port", "99999999"], ["a", "b"], ["--set", "=1"]]
)
def test_words_of_commands_that_wait(run, name: str, words: list[str]) -> None:
    """Refused before anything starts."""
    outcome = run(name, *words)

    outcome.check()
    assert outcome.status == 2


def yaml_bomb() -> str:
    levels = ["&a [1,1,1,1,1,1,1,1,1,1]"] + [
        f"&{new} [{','.join([f'*{old}'] * 10)}]" for old, new in zip("abcdefg", "bcdefgh", strict=True)
    ]
    return f"lora_targets: [{', '.join(levels)}]"


FILES = {
    "empty.toml": b"",
    "empty.json": b"",
    "spaces.yaml": b"   \n\n",
    "binary.toml": bytes(range(256)),
    "binary.json": bytes(range(256)),
    "cut.json": b'{"workload":',
    "null.json": b"null",
    "number.json": b"5",
    "text.json": b'"x"',
    "list.json": b"[]",
    "numbers.json": b"[1, 2]",
    "twice.json": b'{"workload": "lora", "workload": "serve"}',
    "nan.json": b'{"prompt_tokens": NaN}',
    "infinite.json": b'{"prompt_tokens": 1e999}',
    "long.json": b'{"prompt_tokens": ' + b"9" * 5000 + b"}",
    "deep.json": b'{"gpu": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "deep.yaml": b"gpu: " + b"[" * 2000 + b"]" * 2000,
    "deep.toml": b"gpu = " + b"[" * 5000 + b"]" * 5000,
    "mark.json": b'\xef\xbb\xbf{"workload": "serve"}',
    "wide.toml": 'model = "x"'.encode("utf-16"),
    "lines.jsonl": b'{}\n{"workload": 3}\n',
    "cutlines.jsonl": b'{}\n{"workload"\n',
    "loop.yaml": b"gpu: &a [*a]",
    "code.yaml": b"model: !!python/object/apply:os.system ['exit 9']",
    "many.yaml": b"workload: serve\n---\nworkload: lora\n",
    "date.yaml": b"model: 2020-01-01",
    "yes.yaml": b"model: yes",
    "keys.yaml": b"1: 2\n[a]: b\n",
    "tab.yaml": b"\tworkload: serve",
    "bomb.yaml": yaml_bomb().encode(),
    "section.toml": b"[workload]\na = 1\n",
    "percent.toml": b'model = "%s{}{0}<script>"',
    "nul.toml": b'model = "a\\u0000b"',
    "big.toml": b"#" * 10_000_001,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", ["decide", "memory"])
def test_scenario_files(run, command: str, name: str, tmp_path: Path) -> None:
    """Files that are empty, cut, huge, nested, binary, hostile, or in another encoding."""
    path = tmp_path / name
    path.write_bytes(FILES[name])

    run(command, str(path)).check()


@pytest.mark.parametrize("name", [name for name in FILES if name != "big.toml"])
def test_standard_input(run, name: str) -> None:
    """The same through a pipe."""
    run("decide", "-", "--top", "1", stdin=FILES[name].decode("utf-8", errors="surrogateescape")).check()


MODELS = {
    "config.json": [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"model_type": "llama"}',
        b'{"model_type": 5}',
        b'{"num_hidden_layers": 1e99}',
    ],
    "weights.gguf": [
        b"",
        b"GGUF",
        b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63),
        b"GGUF" + b"\xff" * 400,
        b"\x00" * 100,
    ],
    "model.safetensors": [b"", struct.pack("<Q", 2**63), struct.pack("<Q", 8) + b"{}      "],
}


@pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name, all_ in MODELS.items() for place in range(len(all_))]
)
def test_model_files(run, name: str, place: int, tmp_path: Path) -> None:
    """Files named as models that are none; alone, and as the folder they lie in."""
    path = tmp_path / name
    path.write_bytes(MODELS[name][place])

    run("model", str(path)).check()
    run("model", str(tmp_path)).check()
    run("decide", "--set", f"model={path}", "--top", "1").check()


def test_places_that_are_no_files(run, tmp_path: Path) -> None:
    """A folder, a socket's sibling, a link to itself, devices without an end."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    for place in (
        tmp_path,
        tmp_path / "loop",
        tmp_path / "gone",
        "/dev/zero",
        "/dev/null",
        "/proc/self/mem",
        "/etc/shadow",
    ):
        run("decide", str(place), "--top", "1").check()
        run("model", str(place)).check()
        run("accuracy", "--measurements", str(place)).check()


TABLES = [b"", b"a,b\n1,2\n", b"\x00" * 50, b'row_id,"a\n', bytes(range(256)), b"row_id\n" * 3]


@pytest.mark.parametrize("content", TABLES, ids=[repr(content)[:20] for content in TABLES])
@pytest.mark.parametrize("name", ["torch_memory", "training_throughput", "decode_throughput", "inference_memory"])
def test_measurements(run, name: str, content: bytes, tmp_path: Path) -> None:
    """Someone's own folder of runs, broken in every way a table can be."""
    (tmp_path / f"{name}.csv").write_bytes(content)

    run("accuracy", "--measurements", str(tmp_path)).check()
    run("accuracy", "--measurements", str(tmp_path), "--json").check()


def test_no_column_of_measurements_is_trusted(run, catalog_folder: Path, tmp_path: Path) -> None:
    """Each column of the shipped tables overwritten with text, NaN, infinity: scored, skipped or refused."""
    lines = (catalog_folder / "measurements" / "torch_memory.csv").read_text(encoding="utf-8").splitlines()
    header, *rows = csv.reader(lines)
    for place in range(len(header)):
        for text in ("", "x", "nan", "inf", "-1", "1e300"):
            changed = [[*row[:place], text, *row[place + 1 :]] for row in rows[:2]]
            with (tmp_path / "torch_memory.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([header, *changed])
            outcome = run("accuracy", "--measurements", str(tmp_path), "--json")
            outcome.check()
            if outcome.status == 0:
                json.loads(outcome.out, parse_constant=lambda word: pytest.fail(f"{word} in JSON"))


@pytest.fixture(scope="module")
def catalog_folder() -> Path:
    from gpuguide import load_catalog

    return load_catalog().folder


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    key=st.sampled_from(sorted(Scenario.model_fields)),
    value=st.one_of(
        st.text(st.characters(exclude_characters="\x00"), max_size=30),
        st.floats().map(str),
        st.integers().map(str),
        st.just("[1,2]"),
    ),
    command=st.sampled_from(["decide", "memory"]),
)
def test_overrides(run, key: str, value: str, command: str) -> None:
    """Any text as the value of any key."""
    words = ["--top", "1"] if command == "decide" else []

    run(command, "--set", f"{key}={value}", *words).check()


@pytest.mark.parametrize("columns", ["0", "1", "20", "100000", "abc", "-5"])
def test_any_width_of_terminal(run, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables fold; they do not fail."""
    monkeypatch.setenv("COLUMNS", columns)
    for words in (
        ["decide", "--top", "2"],
        ["offers", "--gpu", "T4"],
        ["model", "llama-3.1-8b"],
        ["memory"],
        ["--help"],
    ):
        run(*words).check()


def test_names_that_look_like_programs_come_back_as_text(run) -> None:
    """What a user pasted is shown, not obeyed: no control sign reaches a terminal."""
    for text in ("\x1b[2J\x1b]0;x\x07", "a\rb", "a\nb", "\u202egpj", "<script>alert(1)</script>"):
        outcome = run("decide", "--set", f"gpu={text}")
        outcome.check()
        assert not any(ord(sign) < 32 and sign != "\n" for sign in outcome.err)


def test_a_fifo_without_writer_is_not_a_trap_for_the_model(run, tmp_path: Path) -> None:
    """A named pipe in the place of a model file is refused rather than waited for."""
    os.mkfifo(tmp_path / "pipe.json")

    run("model", str(tmp_path / "pipe.json")).check()
