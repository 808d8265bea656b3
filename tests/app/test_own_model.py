"""A model of the reader's own: what is pasted, uploaded and asked of the Hub, and what happens when it is wrong."""

import asyncio
import json
import struct
import threading

import pytest

import gpuguide.app as app
from gpuguide import Scenario, decide, load_catalog
from gpuguide.app import own_model
from gpuguide.app.compare import ComparePage
from gpuguide.app.own_files import CHUNK, More, Upload, model_of_files, name_of
from gpuguide.app.pages import DECLARATIONS
from gpuguide.catalog.carried import carried, is_carried, model_of
from gpuguide.catalog.config import MOST_BYTES, parse_config
from gpuguide.catalog.package import data_folder
from gpuguide.errors import DataError, InvalidScenario

CONFIGS = data_folder() / "hf_configs"
GEMMA = (CONFIGS / "gemma-3-27b.json").read_text()
WHISPER = json.dumps({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]} | {
    "d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8, "num_hidden_layers": 6,
    "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 51865,
    "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448,
})  # fmt: skip
INDEX = json.dumps({"metadata": {"total_size": 12_345_678_000}, "weight_map": {"a": "model-1.safetensors"}}).encode()
SCRIPT = "<script>window.ran = 1</script>"


def packed(item):
    if isinstance(item, str):
        return struct.pack("<IQ", 8, len(item)) + item.encode()
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    words = b"".join(struct.pack("<Q", len(word)) + word.encode() for word in item)
    return struct.pack("<IIQ", 9, 8, len(item)) + words


def gguf(words=10, **more):
    """The header of a .gguf file with a vocabulary of so many words, and the size of the whole file."""
    metadata = {
        "general.architecture": "llama", "general.name": "Tiny", "llama.block_count": 1, "llama.embedding_length": 256,
        "llama.feed_forward_length": 512, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
        "llama.context_length": 4096, "tokenizer.ggml.tokens": ["word"] * words,
    } | more  # fmt: skip
    shapes = {
        "token_embd": [256, 512],
        "blk.0.attn_q": [256, 256],
        "blk.0.attn_k": [256, 128],
        "blk.0.attn_v": [256, 128],
    }
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(metadata))
    header += b"".join(struct.pack("<Q", len(key)) + key.encode() + packed(item) for key, item in metadata.items())
    place = 0
    for name, shape in shapes.items():
        word = f"{name}.weight".encode()
        header += struct.pack("<Q", len(word)) + word + struct.pack("<IQQIQ", 2, *shape, 1, place)
        place += 2 * shape[0] * shape[1]
    header += bytes(-len(header) % 32)
    return header, len(header) + place


class Reader:
    """A browser in front of a page, as page.js behaves: it sends pieces of its files when it is asked."""

    def __init__(self, page, monkeypatch=None):
        self.page, self.files, self.sent = page, [], 0
        page.browser.send = self._asked

    def _asked(self, message, buffers=None):
        assert message["kind"] == "own-more"
        piece = self.files[message["file"]][1][message["start"] : message["stop"]]
        self.sent += len(piece)
        self.say(what="bytes", ticket=message["ticket"], file=message["file"], buffers=[piece])

    def say(self, buffers=(), **message):
        self.page.browser._heard(None, {"kind": "own", **message}, list(buffers))

    def paste(self, text):
        self.say(what="paste", text=text[: MOST_BYTES + 1], letters=len(text))

    def choose(self, *files):
        self.files = [(name, content) for name, content, *_ in files]
        listed = [{"name": name, "size": size[0] if size else len(content)} for name, content, *size in files]
        self.say(what="files", files=listed)

    @property
    def said(self):
        return self.page.own._answer.value

    @property
    def refused(self):
        return 'role="alert"' in self.said


@pytest.fixture
def reader():
    return Reader(app.memory_page())


@pytest.fixture(scope="module", params=["en", "tr"])
def refused(request):
    """A page that lives through all that is wrong."""
    return Reader(app.memory_page(language=request.param))


LANGUAGE_PAGES = [name for name in DECLARATIONS if name != "media"]


@pytest.mark.parametrize("name", LANGUAGE_PAGES)
def test_a_pasted_config_becomes_the_page_s_model(name):
    """The form would stand there without effect, or the picture would stay with the old model."""
    reader = Reader(getattr(app, f"{name}_page")())
    page, before = reader.page, reader.page.said
    reader.paste(GEMMA)
    assert not reader.refused, reader.said
    assert page._error.value == ""
    assert page.said != before
    assert page.decision.question.model.params == parse_config(json.loads(GEMMA)).params
    assert "gemma3" in page._views["architecture"].value
    assert "62: 10 with full attention and 52 with a window of 1,024 tokens" in page._views["architecture"].value
    assert page.panel.fields["model"]._list.label == "gemma3 (your own)"


def test_the_answer_is_that_of_the_same_file_on_the_command_line(reader):
    """Page and command line would differ for one and the same file."""
    reader.paste((CONFIGS / "qwen2.5-7b.json").read_text())
    given = reader.page.scenario.model_dump(exclude_unset=True) | {"model": str(CONFIGS / "qwen2.5-7b.json")}
    expected = decide(load_catalog().resolve(Scenario.from_mapping(given)))
    cost = "cost_total_typical_usd"
    assert reader.page.decision.ranking.iloc[0][cost] == expected.ranking.iloc[0][cost]


def test_the_link_and_the_pin_carry_the_model(reader):
    """A link that shows other numbers elsewhere is worse than none."""
    reader.paste(GEMMA)
    other = app.memory_page()
    other.browser.search = f"?{reader.page.browser.query}"
    assert other.said == reader.page.said
    assert other._views["architecture"].value == reader.page._views["architecture"].value
    assert len(reader.page.browser.query) < 2_000
    comparison = ComparePage(load_catalog(), {})
    comparison.browser.search = (
        f"?a={reader.page.browser.pin}".replace("&", "%26").replace("=", "%3D").replace("?a%3D", "?a=")
    )
    assert comparison.decisions["a"].question.model == reader.page.decision.question.model


def test_reset_and_the_list_lead_back_and_forth(reader):
    """A model once given must not have to be given again."""
    page, first = reader.page, reader.page.said
    reader.paste(GEMMA)
    own = page.said
    page.browser._heard(None, {"kind": "download", "what": "reset"}, [])
    assert page.said == first
    page.panel.fields["model"]._list.value = page.panel._own[0]
    assert page.panel.values["model"] == page.panel._own[0]
    assert page.decision.question.model.name == "gemma3"
    assert own


BAD_PASTES = {
    "nothing": "  ",
    "no JSON": "hello",
    "markup": SCRIPT,
    "half a file": GEMMA[: len(GEMMA) // 2],
    "a list": "[1, 2]",
    "deeply nested": '{"a":' * 15_000,
    "many parts": "{" + "[" * 50_000,
    "far too long": "x" * 20_000_000,
    "an unknown class": '{"model_type": "nope", "hidden_size": 8}',
    "diffusion": '{"_class_name": "FluxTransformer2DModel"}',
    "no layers": '{"model_type": "llama", "hidden_size": 4096}',
    "impossible layers": '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 1e99}',
    "hostile class": json.dumps({"model_type": SCRIPT}),
}


@pytest.mark.parametrize("case", BAD_PASTES)
def test_a_bad_paste_gets_one_sentence_and_the_model_stays(refused, case):
    """The promise: a bad file gives one sentence and keeps the last model."""
    reader, page = refused, refused.page
    before = (page.scenario, page.said, page._views["architecture"].value)
    reader.paste(BAD_PASTES[case])
    assert reader.refused
    assert len(reader.said) < 600
    assert "<script" not in reader.said
    assert "Traceback" not in reader.said
    assert (page.scenario, page.said, page._views["architecture"].value) == before
    assert page._error.value == ""


def test_hostile_names_are_text(reader):
    """A name from a stranger's file would run in the reader's browser."""
    reader.paste(json.dumps(json.loads(GEMMA) | {"_name_or_path": "<img src=x onerror=alert(1)>"}))
    assert not reader.refused
    shown = reader.said + reader.page._views["architecture"].value + reader.page._verdict.value
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown
    assert "<img" not in shown
    name = reader.page.decision.question.model.name
    for figure in (view.figure for view in reader.page._views.values() if hasattr(view, "figure")):
        assert name not in json.dumps(figure)


NAMES = [
    ({"_name_or_path": "meta-llama/Llama-3.1-8B"}, "config.json", "Llama-3.1-8B"),
    ({"_name_or_path": "/home/ada/secret/my-model/"}, "config.json", "my-model"),
    ({"_name_or_path": "C:\\models\\mine"}, "config.json", "mine"),
    ({}, "my-model.json", "my-model"),
    ({"_name_or_path": "<b>x</b>"}, "config.json", "<b>x</b>"),
    ({"_name_or_path": ""}, "config (1).json", "config (1)"),
    ({"model_type": "llama"}, "config.json", "llama"),
    ({"_name_or_path": 7, "model_type": ["x"]}, "config.json", "model"),
    ({"_name_or_path": "x" * 500}, "config.json", "x" * 80),
    ({"_name_or_path": "a\n\u202eb"}, "config.json", "a b"),
]


def test_half_a_character_ends_no_connection(refused):
    """JSON can hold what UTF-8 cannot."""
    refused.paste('{"model_type": "\\ud800"}')
    refused.said.encode()
    half = {"_name_or_path": "\ud800", "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-6}
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    reader = Reader(app.index_page())
    reader.paste(json.dumps(half | shape | {"intermediate_size": 128, "vocab_size": 100}))
    assert not reader.refused, reader.said
    (reader.said + reader.page._views["architecture"].value).encode()


@pytest.mark.parametrize(("config", "file", "expected"), NAMES)
def test_names(config, file, expected):
    """A model without a name, or with a folder of somebody's disk in it."""
    assert name_of(config, file) == expected


def test_a_config_and_its_index_are_read_together(reader):
    """The index alone knows how large the weights really are."""
    config = GEMMA.encode()
    reader.choose(("model.safetensors.index.json", INDEX), ("config.json", config))
    assert not reader.refused, reader.said
    assert reader.page.decision.question.model.native_bytes == 12_345_678_000
    assert reader.sent == len(INDEX) + len(config)


def test_of_a_gguf_file_only_the_header_travels(reader):
    """Tens of gigabytes through a web socket, or a header that ends in the middle of a vocabulary."""
    header, size = gguf(words=400_000)
    assert 2 * CHUNK < len(header) < 3 * CHUNK
    reader.choose(("tiny.gguf", header + bytes(2 * CHUNK), size + 10**10))
    assert not reader.refused, reader.said
    assert reader.page.decision.question.model.name == "Tiny"
    assert reader.sent <= 3 * CHUNK


def test_parts_of_a_gguf_file_belong_together():
    """One part of three would pass for a whole, smaller model."""
    parts = []
    for place in (2, 1):
        header, size = gguf(**{"split.count": 2, "split.no": place - 1})
        parts.append(Upload(f"m-0000{place}-of-00002.gguf", size, header))
    with pytest.raises(DataError, match="is one of 2 parts: choose all of them together"):
        model_of_files(parts[:1])
    assert model_of_files(parts).params == 2 * model_of_files([Upload("one.gguf", *reversed(gguf()))]).params


PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
BAD_FILES = {
    "a picture": [("cat.png", PNG)],
    "a picture as config": [("config.json", PNG)],
    "empty": [("config.json", b"")],
    "weights": [("model.safetensors", struct.pack("<Q", 60) + b'{"a": 1}' + bytes(100))],
    "index alone": [("model.safetensors.index.json", INDEX)],
    "two configs": [("config.json", GEMMA.encode()), ("other.json", GEMMA.encode())],
    "long config": [("config.json", b"{" + b" " * (MOST_BYTES + 10))],
    "tokenizer": [("tokenizer.json", b'{"version": "1.0", "truncation": null}')],
    "no gguf": [("model.gguf", b"not a header" * 100)],
    "cut gguf": [("model.gguf", gguf()[0][:-100])],
    "endless gguf": [("model.gguf", struct.pack("<4sIQQ", b"GGUF", 3, 1, 1) + b"\xff" * 200, 10**12)],
    "too many": [(f"{place}.json", b"{}") for place in range(40)],
    "hostile name": [(f"{SCRIPT}.json", b"nope")],
    "a size that is none": [("config.json", b"{}", -1)],
    "a size beyond sense": [("config.json", b"{}", 10**30)],
    "a browser that sends nothing": [("config.json", b"", 100)],
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_wrong_upload_gets_one_sentence_and_the_model_stays(refused, case):
    """Whatever is dropped on the page, it stays whole."""
    reader, page = refused, refused.page
    reader.sent = 0
    before = (page.scenario, page.said)
    reader.choose(*BAD_FILES[case])
    assert reader.refused
    assert len(reader.said) < 600
    assert "<script" not in reader.said
    assert (page.scenario, page.said) == before
    assert page._error.value == ""
    assert reader.sent < 40_000_000


@pytest.mark.parametrize(
    "message",
    [
        {}, {"what": "paste"}, {"what": "paste", "text": 7}, {"what": "files"}, {"what": "files", "files": [{}]},
        {"what": "files", "files": [7]}, {"what": "bytes"}, {"what": "bytes", "ticket": 0, "file": 99},
        {"what": "hub", "id": "../../etc/passwd"}, {"what": "hub", "id": "x" * 10**6}, {"what": "hub"},
        {"what": "nope"}, {"what": ["cancel"]},
    ],
)  # fmt: skip
def test_forged_messages_change_nothing(refused, message):
    """Whoever opens a web socket can send anything."""
    reader = refused
    before = (reader.page.scenario, reader.page.said)
    reader.say(**message)
    assert (reader.page.scenario, reader.page.said) == before
    assert len(reader.said) < 600
    assert reader.page._error.value == ""


def test_a_paste_names_no_file_of_the_server(reader, monkeypatch):
    """A served page must open no path that a reader typed."""
    monkeypatch.setenv("SERVER_SOFTWARE", "voila/1")
    reader.paste(str(CONFIGS / "gpt2.json"))
    assert reader.refused
    page = app.memory_page()
    page.browser.search = f"?model={CONFIGS / 'gpt2.json'}&concurrency=77"
    assert page._error.value.startswith("<p>")
    assert page.scenario.model == "llama-3.1-8b"
    assert page.scenario.concurrency == 77


@pytest.mark.parametrize(
    "code", ["own:", "own:AAAA", "own:" + "A" * 3_000, "own:<b>", carried(load_catalog().model("phi-4"))[:-9]]
)
def test_a_damaged_link_says_so_and_all_else_counts(code):
    """A link cut off by a messenger."""
    page = app.serve_page()
    page.browser.search = f"?model={code}&concurrency=77"
    assert "load its file again" in page._error.value
    assert "<b>" not in page._error.value
    assert (page.scenario.model, page.scenario.concurrency) == ("llama-3.1-8b", 77)
    page.browser._heard(None, {"kind": "set", "values": {"concurrency": 3}}, [])
    assert page._error.value == ""


def test_pages_take_models_by_path_as_before():
    """`serve_page(model="./config.json")` in a notebook."""
    page = app.serve_page(model=str(CONFIGS / "qwen2.5-7b.json"))
    assert page._error.value == ""
    assert "qwen2.5-7b" in page._views["architecture"].value


# ---- media and comparison --------------------------------------------------------------------------------------------


def test_the_media_page_takes_what_it_can_use():
    """A language model would be asked for pictures; Whisper is speech, whatever was chosen before."""
    reader = Reader(app.media_page())
    reader.paste(GEMMA)
    assert "is a language model" in reader.said
    reader.paste(WHISPER)
    assert not reader.refused, reader.said
    assert reader.page.scenario.workload == "audio"
    assert is_carried(reader.page.scenario.model)
    reader.page.browser._heard(None, {"kind": "set", "values": {"workload": "image"}}, [])
    assert reader.page.scenario.model == "flux.1-dev"
    other = Reader(app.serve_page())
    other.paste(WHISPER)
    assert "makes media" in other.said


def test_a_model_of_one_s_own_stands_beside_others():
    """On the comparison it takes the next free place, and says so when there is none."""
    reader = Reader(ComparePage(load_catalog(), {}))
    reader.paste(GEMMA)
    assert list(reader.page.decisions) == ["a", "b", "c", "d"]
    assert "gemma3" in reader.page._views["compare"].value
    assert "gemma3" in reader.page._views["architecture"].value
    reader.paste(GEMMA)
    assert "take one away first" in reader.said
    assert len(reader.page.browser.query) < 8_000


# ---- the Hub ---------------------------------------------------------------------------------------------------------


def test_the_hub_is_asked_beside_the_page(monkeypatch):
    """Sliders would stand still until a slow server answers."""
    asked, go = [], threading.Event()

    def slow(identity):
        asked.append((identity, threading.current_thread()))
        go.wait(10)
        return parse_config(json.loads(GEMMA), name="from-the-hub")

    monkeypatch.setattr("gpuguide.catalog.hub.read_hub_model", slow)

    async def visit():
        reader = Reader(app.memory_page())
        reader.say(what="hub", id=" https://huggingface.co/google/gemma-3-27b-it/ ")
        assert "Asking the Hub for google/gemma-3-27b-it" in reader.said
        assert "Cancel" in reader.said
        reader.page.browser._heard(None, {"kind": "set", "values": {"concurrency": 5}}, [])
        assert reader.page.scenario.concurrency == 5
        go.set()
        for _ in range(100):
            await asyncio.sleep(0.02)
            if "is read" in reader.said:
                break
        assert reader.page.decision.question.model.name == "from-the-hub"
        assert reader.page.scenario.concurrency == 5

    asyncio.run(visit())
    assert asked[0][0] == "google/gemma-3-27b-it"
    assert asked[0][1] is not threading.main_thread()


def test_a_cancelled_question_changes_nothing(monkeypatch):
    """An answer that comes too late would take the page over."""
    go = threading.Event()
    monkeypatch.setattr(
        "gpuguide.catalog.hub.read_hub_model", lambda identity: go.wait(10) and parse_config(json.loads(GEMMA))
    )

    async def visit():
        reader = Reader(app.memory_page())
        before = reader.page.said
        for _ in range(4):
            reader.say(what="hub", id="a/b")
        assert "three questions" in reader.said
        reader.say(what="cancel")
        assert reader.said == ""
        go.set()
        await asyncio.sleep(0.3)
        assert reader.page.said == before

    asyncio.run(visit())
    for _ in range(3):
        assert own_model.OPEN_QUESTIONS.acquire(timeout=5)
    own_model.OPEN_QUESTIONS.release(3)


def test_what_the_hub_refuses_is_said(reader, monkeypatch):
    """Gated, offline, unknown: each with its own sentence, in the reader's language."""

    def gated(identity):
        gate = "it is gated: accept its licence on the Hub and log in with `hf auth login`, or give a config.json"
        raise InvalidScenario("model", identity, gate)

    monkeypatch.setattr("gpuguide.catalog.hub.read_hub_model", gated)
    reader.say(what="hub", id="meta-llama/Llama-3.1-8B")
    assert "it is gated" in reader.said
    reader.page.browser._heard(None, {"kind": "set", "values": {"language": "tr"}}, [])
    assert "lisans" in reader.said
    monkeypatch.setattr("gpuguide.catalog.hub.read_hub_model", lambda identity: 1 / 0)
    reader.say(what="hub", id="meta-llama/Llama-3.1-8B")
    assert reader.refused


def test_more_is_asked_for_piece_by_piece():
    """A request larger than the web socket takes would end the connection."""
    more = model_of_files([Upload("model.gguf", 10**12)])
    assert isinstance(more, More)
    assert (more.start, more.stop) == (0, CHUNK)
    assert model_of(carried(parse_config(json.loads(GEMMA), name="x"))).name == "x"
