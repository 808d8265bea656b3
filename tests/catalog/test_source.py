"""One entry takes names, paths and Hub ids, each in its turn, and says in a sentence what it cannot take."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuguide.catalog.models import Models
from gpuguide.catalog.source import facts, read_model
from gpuguide.errors import GuideError, InvalidScenario, UnknownName

DATA = Path(__file__).parents[2] / "data"
LLAMA = DATA / "hf_configs" / "llama-3.1-8b.json"
COLUMNS = (DATA / "hf_configs" / "expected.csv").read_text().splitlines()[0].split(",")
MODELS = Models(DATA)


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch):
    """No test of this file may reach the Hub."""

    def refuse(identity: str) -> None:
        raise InvalidScenario("model", identity, "asked of the Hub")

    monkeypatch.setattr("gpuguide.catalog.hub.read_hub_model", refuse)


@pytest.fixture
def folder(tmp_path) -> Path:
    home = tmp_path / "my-llama"
    home.mkdir()
    shutil.copy(LLAMA, home / "config.json")
    return home


def test_same_model_by_every_way(folder):
    """A model would have one size by its name and another by its file."""
    by_name = read_model("llama-3.1-8b", MODELS)
    for source in (str(LLAMA), str(folder), str(folder / "config.json")):
        assert read_model(source, MODELS).params == by_name.params == 8_030_261_248
    assert read_model(str(folder), MODELS).name == read_model(str(folder / "config.json"), MODELS).name == "my-llama"


def test_catalog_goes_before_the_hub():
    """A known model would wait for the network."""
    assert read_model("meta-llama/Llama-3.1-8B", MODELS).params == 8_030_261_248
    with pytest.raises(InvalidScenario, match="asked of the Hub"):
        read_model("someone/entirely-new-model", MODELS)


def test_catalog_goes_before_a_folder_of_that_name(tmp_path, monkeypatch):
    """What a name means would depend on where the program is started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert read_model("gpt2", MODELS).params == 124_439_808
    with pytest.raises(InvalidScenario, match=r"no config\.json"):
        read_model("./gpt2", MODELS)


REFUSED = [
    pytest.param("", "give a catalog name", id="empty"),
    pytest.param("a\x00b", "give a catalog name", id="control character"),
    pytest.param("a" * 5000, "give a catalog name", id="too long"),
    pytest.param("./absent", "no such file", id="absent path"),
    pytest.param("absent.json", "no such file", id="absent file"),
    pytest.param("absent.gguf", "no such file", id="absent gguf"),
    pytest.param("/dev/zero", "neither a file nor a folder", id="device"),
    pytest.param("llama-3.1-8", "did you mean llama-3.1-8b", id="near a name"),
    pytest.param("owner/na..me", "no model named", id="no Hub id"),
    pytest.param("https://huggingface.co/a/b", "no model named", id="address"),
]


@pytest.mark.parametrize(("source", "expected"), REFUSED)
def test_refusal_says_why(source, expected):
    """The reader would not learn what was wrong with what they wrote."""
    with pytest.raises(GuideError, match=expected):
        read_model(source, MODELS)


@pytest.mark.parametrize("source", ["../outside/config.json", "/etc/hosts", "link.json", "linked"])
def test_paths_may_not_leave_the_base_folder(source, tmp_path):
    """A page open to others would show files of its machine."""
    base, outside = tmp_path / "base", tmp_path / "outside"
    base.mkdir()
    outside.mkdir()
    shutil.copy(LLAMA, outside / "config.json")
    (base / "link.json").symlink_to(outside / "config.json")
    (base / "linked").symlink_to(outside)
    with pytest.raises(GuideError, match="out of the folder"):
        read_model(source, MODELS, base=base)
    shutil.copy(LLAMA, base / "mine.json")
    assert read_model("mine.json", MODELS, base=base).name == "mine"


def test_pipe_is_refused(tmp_path):
    """A named pipe would hold the program for ever."""
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(InvalidScenario, match="neither a file nor a folder"):
        read_model(str(tmp_path / "config.json"), MODELS)


def test_facts_have_the_columns_of_the_expected_table():
    """A script that reads one column by its name would find it missing."""
    known = facts(read_model("gemma-3-27b", MODELS))
    wanted = [name for name in COLUMNS if name not in ("file", "note", "as_of")]
    assert [name for name in wanted if name not in known] == []
    assert known["kv_bytes_seq32768_bf16"] == 3_120_562_176
    assert known["kv_bytes_seq32768_bf16_no_window_saving"] == 16_642_998_272


@pytest.mark.parametrize("name", MODELS.names())
def test_facts_are_plain_values(name):
    """The command line could not print them as JSON."""
    json.dumps(facts(read_model(name, MODELS)), allow_nan=False)


def test_whisper_config_is_an_audio_model(tmp_path):
    """A transcription model would be taken for a chat model; the count is that of the catalog."""
    config = {
        "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "vocab_size": 51866,
        "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120,
        "num_mel_bins": 128,
    }  # fmt: skip
    path = tmp_path / "whisper.json"
    path.write_text(json.dumps(config))
    found, known = read_model(str(path), MODELS), MODELS.get("whisper-large-v3")
    assert (found.params, found.task, found.kv_elements) == (known.params, known.task, known.kv_elements)


@given(st.text(max_size=60))
def test_any_text_gives_a_model_or_a_sentence(source):
    """Some text in the model field would end in a traceback."""
    try:
        read_model(source, MODELS)
    except (UnknownName, InvalidScenario) as error:
        assert len(str(error)) < 400  # noqa: PT017
    except GuideError:
        pass
