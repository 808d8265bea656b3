"""The Hub, stood in for by a server of this machine: every way it can fail is one sentence, and little is fetched."""

import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")

CONFIG = json.dumps(
    {
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10, "dtype": "bfloat16",
    }
).encode()  # fmt: skip
INDEX = json.dumps({"metadata": {"total_size": 12_345}, "weight_map": {"a": "model.safetensors"}}).encode()
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """What the server does, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    cut: bool = False
    asked: list[str] = field(default_factory=list)
    port: int = 0


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    state = Hub()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, *, body: bool) -> None:
            state.asked.append(f"{self.command} {self.path}")
            time.sleep(state.wait_s)
            content = state.files.get(self.path.rpartition("/")[2])
            status = state.status if state.status != 200 else 200 if content is not None else 404
            content = content if content is not None and status == 200 else b""
            self.send_response(status)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", '"' + hashlib.sha1(content).hexdigest() + '"')
            if status == 404 and "X-Error-Code" not in state.headers:
                self.send_header("X-Error-Code", "EntryNotFound")
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content[: len(content) // 2] if state.cut else content)

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(server: Hub) -> Hub:
    """The server, with nothing but a config to show."""
    fresh = Hub(files={"config.json": CONFIG})
    for name in ("files", "status", "headers", "wait_s", "cut", "asked"):
        setattr(server, name, getattr(fresh, name))
    return server


ASK = """
import json, sys, time
from gpuguide.catalog.hub import read_hub_model
from gpuguide.errors import GuideError
for line in sys.stdin:
    identity, within_s = json.loads(line)
    began = time.perf_counter()
    try:
        model = read_hub_model(identity, within_s=within_s)
        answer = {"params": model.params, "bytes": model.native_bytes, "hub_id": model.hub_id, "source": model.source}
    except GuideError as error:
        answer = {"error": str(error), "type": type(error).__name__}
    print(json.dumps({**answer, "seconds": time.perf_counter() - began}), flush=True)
"""


class Asker:
    """A process that asks the Hub: a process of its own, since the library reads its settings once."""

    def __init__(self, port: int, cache: Path, **environment: str) -> None:
        settings = {
            "HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(cache), "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*", "no_proxy": "*", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }  # fmt: skip
        kept = {
            key: item for key, item in os.environ.items() if not key.startswith("HF_") and "proxy" not in key.lower()
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASK], env={**kept, **settings, **environment}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __call__(self, identity: str, within_s: float = 20.0) -> dict:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([identity, within_s]) + "\n")
        self.process.stdin.flush()
        while not (line := self.process.stdout.readline()).startswith("{"):
            assert line, "the process ended"
        return json.loads(line)

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.process.communicate(timeout=10)  # ends by itself once nothing more is asked
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def ask(server: Hub, cache: Path) -> Iterator[Asker]:
    with Asker(server.port, cache) as asker:
        yield asker


def test_config_and_index_are_asked_for_and_nothing_else(hub, ask):
    """Weights or code of a repository would be fetched."""
    hub.files |= {"model.safetensors.index.json": INDEX, "modeling_tiny.py": b"raise SystemExit"}
    answer = ask("owner/indexed")
    assert answer["bytes"] == 12_345
    assert answer["hub_id"] == "owner/indexed"
    fetched = {line.rpartition("/")[2] for line in hub.asked}
    assert fetched == {"config.json", "model.safetensors.index.json"}


def test_model_without_an_index_has_the_bytes_of_its_config(hub, ask):
    """A model of one weight file would be refused."""
    answer = ask("owner/plain")
    assert answer["bytes"] == 2 * answer["params"]


def test_second_question_needs_no_network(hub, ask, cache):
    """The same model would be fetched at every question, and a train journey would end the work."""
    first = ask("owner/again")
    hub.status = 500
    assert ask("owner/again")["params"] == first["params"]
    with Asker(hub.port, cache, HF_HUB_OFFLINE="1") as offline:
        assert offline("owner/again")["params"] == first["params"]
        assert "HF_HUB_OFFLINE" in offline("owner/never-seen")["error"]


FAILURES = [
    pytest.param({"status": 401, "headers": {"X-Error-Code": "GatedRepo"}}, "gated", id="gated"),
    pytest.param({"status": 401, "headers": {"X-Error-Code": "RepoNotFound"}}, "log in", id="401, no such or private"),
    pytest.param({"status": 401, "headers": {}}, "log in", id="401 alone"),
    pytest.param({"status": 403, "headers": {}}, "log in", id="403"),
    pytest.param(
        {"status": 404, "headers": {"X-Error-Code": "RepoNotFound"}}, "no model on the Hub", id="404, repository"
    ),
    pytest.param({"files": {}}, "no config.json in it", id="404, file"),
    pytest.param({"status": 429}, "too many requests", id="429"),
    pytest.param({"status": 500}, "fault of its own", id="500"),
    pytest.param({"status": 503}, "fault of its own", id="503"),
    pytest.param({"cut": True}, "cut off", id="cut off in the body"),
    pytest.param({"files": {"config.json": b"<html>busy</html>"}}, "not JSON", id="a web page instead"),
    pytest.param({"files": {"config.json": b" " * 3_000_000}}, "3,000,000 bytes", id="a config of 3 MB"),
    pytest.param({"files": {"config.json": b"[" * 15_000}}, "nested", id="deep nesting"),
]


@pytest.mark.parametrize(
    ("place", "behaviour", "expected"),
    [(n, *case.values) for n, case in enumerate(FAILURES)],
    ids=[case.id for case in FAILURES],
)
def test_failure_is_a_sentence(hub, ask, place, behaviour, expected):
    """The reader would see a traceback of the library, or not learn what to do."""
    for name, value in behaviour.items():
        setattr(hub, name, value)
    answer = ask(f"owner/failing-{place}", 15)
    assert expected in answer.get("error", "answered"), answer
    assert "\n" not in answer["error"]
    assert len(answer["error"]) < 300


def test_slow_hub_does_not_hold_the_caller(hub, ask):
    """A page would hang for as long as the server likes."""
    hub.wait_s = 8.0
    answer = ask("owner/slow", 1.5)
    assert "did not answer" in answer["error"]
    assert answer["seconds"] < 6


def test_no_server_is_a_sentence(tmp_path):
    """Without a network the reader would see a traceback."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with Asker(reserved.getsockname()[1], tmp_path) as ask:
            assert "cannot be reached" in ask("owner/tiny")["error"]
