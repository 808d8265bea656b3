"""Other machines: full and read-only disks, no network, no home, other locales, time zones and terminals."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuguide.catalog import live

GPUGUIDE = [sys.executable, "-m", "gpuguide"]
pytestmark = pytest.mark.slow


def start(
    *words: str, environment: dict[str, str] | None = None, before: Callable[[], None] | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    """A process of its own, with changed surroundings; nothing of it may be a traceback."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    changed = {name: value for name, value in (known | (environment or {})).items() if value is not None}
    options = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "errors": "replace",
        "timeout": 120,
    } | options
    done = subprocess.run([*GPUGUIDE, *words], env=changed, preexec_fn=before, check=False, **options)
    assert "Traceback" not in (done.stdout or "") + (done.stderr or "")
    assert done.returncode in (0, 2), done
    if done.returncode == 2:
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done


# ---- where the answer goes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["offers", "--json"], ["decide", "--top", "3"], ["decide", "--csv"], ["--help"]], ids=str
)
def test_a_full_disk(words: list[str]) -> None:
    """What cannot be written is said in one sentence."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = start(*words, stdout=full)

    assert done.returncode == 2
    assert "space" in done.stderr


def test_a_closed_output() -> None:
    """Started by a daemon without standard output."""
    start("offers", "--csv", before=lambda: os.close(1), stdout=None)


@pytest.mark.parametrize("place", ["/proc/x.{}", "/dev/full/x.{}", "/sys/x.{}", "/nonexistent\x01/../../proc/x.{}"])
def test_places_that_take_no_files(place: str, tmp_path: Path) -> None:
    """A report or a sweep into a folder where nobody may write, root included."""
    grid = tmp_path / "grid.toml"
    grid.write_text('model = "llama-3.1-8b"\n[grid]\nconcurrency = [1, 2]\n', encoding="utf-8")

    for words in (["report", "-o", place.format("html")], ["sweep", str(grid), "-o", place.format("csv")]):
        assert start(*words).returncode == 2


# ---- network, home, folders ------------------------------------------------------------------------------------------

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
NOWHERE = dict.fromkeys(PROXIES, "http://127.0.0.1:9") | {"no_proxy": "", "NO_PROXY": ""}


def test_without_a_network(tmp_path: Path) -> None:
    """Everything but live prices and the Hub works; those two say what is missing, soon."""
    surroundings = NOWHERE | {"HF_HOME": str(tmp_path / "hf"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    assert json.loads(start("decide", "--top", "1", "--json", environment=surroundings).stdout)["ranking"]
    done = start("model", "nobody-here/nothing-there", environment=surroundings)
    assert done.returncode == 2
    assert "Hub" in done.stderr


@pytest.mark.parametrize(
    "surroundings",
    [
        {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/proc/nothing"},
        {"HOME": None, "XDG_CACHE_HOME": None, "USER": None},
        {"XDG_CACHE_HOME": "/dev/null"},
        {"TMPDIR": "/nonexistent"},
    ],
    ids=str,
)
def test_without_a_home(surroundings: dict[str, str]) -> None:
    """Containers and services often have no home folder, or one that cannot be written."""
    assert start("decide", "--top", "1", environment=surroundings).returncode == 0
    assert start("offers", "--gpu", "T4", "--csv", environment=surroundings).stdout.startswith("provider,")


def test_a_user_that_the_system_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run as any number: no home folder can be named then."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)

    assert live.cache_folder({}).name == "gpuguide"


def test_a_broken_price_cache(tmp_path: Path) -> None:
    """Live prices of an interrupted or foreign program are left aside; the shipped ones are there."""
    folder = tmp_path / "gpuguide"
    folder.mkdir()
    whole = start("offers", "--csv", environment={"XDG_CACHE_HOME": str(tmp_path / "empty")}).stdout
    for content in (b"a,b\n1,2\n", bytes(range(256))):
        for name in (live.LIVE, live.META):
            (folder / name).write_bytes(content)
        assert start("offers", "--csv", environment={"XDG_CACHE_HOME": str(tmp_path)}).stdout == whole


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """The working directory was removed under the shell."""
    gone = tmp_path / "gone"
    gone.mkdir()

    start("decide", "--top", "1", before=lambda: (os.chdir(gone), shutil.rmtree(gone)))


# ---- language of the machine -----------------------------------------------------------------------------------------

LOCALES = ["C", "tr_TR.UTF-8", "tr_TR.ISO-8859-9", "de_DE.UTF-8", "nonsense"]


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of locales, compiled where the system has their sources: Turkish has its own i and I."""
    folder = tmp_path_factory.mktemp("locales")
    for name in LOCALES:
        language, _, signs = name.partition(".")
        if shutil.which("localedef") and signs and language != "C":
            command = ["localedef", "-i", language, "-f", signs, str(folder / name)]
            subprocess.run(command, capture_output=True, check=False)
    return folder


ASKED = ["decide", "--set", "gpu=h100-sxm,GAUDI2,rtx4090", "--set", "model=MISTRAL-7B", "--top", "2", "--json"]
"""Names in other case, with the letter that Turkish lowers in its own way."""


@pytest.fixture(scope="module")
def usual() -> list[dict[str, object]]:
    """The ranking on a machine like any other."""
    ranking: list[dict[str, object]] = json.loads(start(*ASKED, environment={"LC_ALL": "C.UTF-8", "TZ": "UTC"}).stdout)[
        "ranking"
    ]
    return ranking


@pytest.mark.parametrize("name", LOCALES)
def test_locales(name: str, locales: Path, usual: list[dict[str, object]]) -> None:
    """The same numbers in every locale: decimal points in JSON, names found whatever their case."""
    surroundings = {"LC_ALL": name, "LANG": name, "LOCPATH": str(locales), "TZ": "UTC"}

    assert json.loads(start(*ASKED, environment=surroundings).stdout)["ranking"] == usual
    assert start("decide", "--set", "language=tr", "--top", "1", environment=surroundings).stdout


@pytest.mark.parametrize("encoding", ["ascii", "cp1254", "utf-16"])
def test_terminals_that_cannot_show_every_sign(encoding: str) -> None:
    """Turkish letters, no-break spaces and arrows on an old terminal; JSON stays JSON."""
    surroundings = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    words = ["decide", "--set", "language=tr", "--top", "1"]

    assert start(*words, environment=surroundings, encoding=encoding).returncode == 0
    done = start(*words, "--json", environment=surroundings, encoding=encoding)
    assert json.loads(done.stdout)["scenario"]["language"] == "tr"


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12", "nonsense/zone", ""])
def test_time_zones(zone: str, usual: list[dict[str, object]]) -> None:
    """Ages are whole days and differ by at most one from zone to zone."""
    there = json.loads(start(*ASKED, environment={"TZ": zone}).stdout)["ranking"]

    assert all(abs(row["age_days"] - other["age_days"]) <= 1 for row, other in zip(usual, there, strict=True))
    assert [row["cost_usd"] for row in usual] == [row["cost_usd"] for row in there]


# ---- the shell -------------------------------------------------------------------------------------------------------


def test_options_of_the_interpreter() -> None:
    """Optimised, isolated, and with every warning an error: the same answer."""
    answers = set()
    for options in ([], ["-OO"], ["-I"], ["-bb", "-X", "dev", "-W", "error"]):
        words = [sys.executable, *options, "-m", "gpuguide", "offers", "--gpu", "T4", "--csv"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        answers.add(done.stdout)

    assert len(answers) == 1


def test_little_memory() -> None:
    """An address space of 700 MB is enough for the command line."""
    done = start("decide", "--top", "1", before=lambda: resource.setrlimit(resource.RLIMIT_AS, (700_000_000,) * 2),
                 environment={"OPENBLAS_NUM_THREADS": "1"})  # fmt: skip

    assert done.returncode == 0


def test_an_interrupt_is_not_a_traceback() -> None:
    """Ctrl-C while it works."""
    import signal
    import time

    process = subprocess.Popen([*GPUGUIDE, "accuracy"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3.0)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert process.returncode in (0, 130)
    assert "Traceback" not in said
