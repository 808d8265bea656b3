"""Bytes of a model folder come from headers alone; broken, lying or escaping files are a sentence."""

import json
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuguide.catalog import checkpoint
from gpuguide.catalog.checkpoint import parse_header, read_folder, read_header, with_index
from gpuguide.errors import DataError, GuideError, InvalidScenario

CONFIG = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 10, "dtype": "bfloat16",
}  # fmt: skip


def safetensors(tensors: dict[str, tuple[str, list[int], int]], *, cut: int = 0) -> bytes:
    """A weight file whose data is zeros: name -> dtype, shape, bytes."""
    header, place = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(place - cut)


TENSORS = {
    "model.embed_tokens.weight": ("BF16", [10, 8], 160),
    "model.layers.0.q": ("F8_E4M3", [8, 8], 64),
    "s": ("F32", [1], 4),
}


@pytest.fixture
def folder(tmp_path) -> Path:
    home = tmp_path / "tiny"
    home.mkdir()
    (home / "config.json").write_text(json.dumps(CONFIG))
    return home


def test_bytes_are_those_of_the_tensors(folder):
    """Padding, metadata or a wrong width would enter the size of the download."""
    (folder / "model.safetensors").write_bytes(safetensors(TENSORS))
    model = read_folder(folder)
    assert model.native_bytes == 160 + 64 + 4
    assert model.name == "tiny"


def test_every_part_of_an_index_is_read_once(folder):
    """A part named by many tensors would be counted many times."""
    (folder / "a.safetensors").write_bytes(safetensors(TENSORS))
    (folder / "b.safetensors").write_bytes(safetensors({"x": ("F16", [4], 8)}))
    (folder / "unused.safetensors").write_bytes(safetensors({"y": ("F16", [4], 8)}))
    placed = {"weight_map": {"one": "a.safetensors", "two": "a.safetensors", "x": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(placed))
    assert read_folder(folder).native_bytes == 228 + 8


def test_folder_without_weights_is_its_config(folder):
    """A folder with only a config would be refused."""
    assert read_folder(folder).native_bytes == 2 * read_folder(folder).params


def test_folder_without_config_is_a_sentence(tmp_path):
    """The reader would not learn what the folder lacks."""
    with pytest.raises(InvalidScenario, match=r"no config\.json"):
        read_folder(tmp_path)


def lying(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(16)


BROKEN = {
    "empty": b"",
    "seven bytes": b"1234567",
    "header of 2 GB": struct.pack("<Q", 2**31) + b"{" * 100,
    "header of 2^63": struct.pack("<Q", 2**63) + b"{}",
    "header cut off": struct.pack("<Q", 1000) + b"{}",
    "header not JSON": struct.pack("<Q", 4) + b"\xff\xff{{",
    "header a list": lying([1, 2]),
    "header nested": struct.pack("<Q", 900_000) + b"[" * 900_000,
    "data cut off": safetensors(TENSORS, cut=10),
    "tensor a number": lying({"a": 3}),
    "unknown dtype": lying({"a": {"dtype": "F7", "shape": [1], "data_offsets": [0, 1]}}),
    "negative offset": lying({"a": {"dtype": "U8", "shape": [1], "data_offsets": [-1, 1]}}),
    "offsets turned": lying({"a": {"dtype": "U8", "shape": [1], "data_offsets": [8, 4]}}),
    "offset beyond": lying({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 2**62]}}),
    "shape of 2^200": lying({"a": {"dtype": "U8", "shape": [2**50] * 4, "data_offsets": [0, 8]}}),
    "shape of text": lying({"a": {"dtype": "U8", "shape": ["8"], "data_offsets": [0, 8]}}),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_broken_file_is_a_sentence(content, folder):
    """A damaged download would end in a traceback, or a claim of its header would be believed and memory asked for."""
    (folder / "model.safetensors").write_bytes(content)
    began = time.perf_counter()
    with pytest.raises(DataError):
        read_folder(folder)
    assert time.perf_counter() - began < 2.0  # a tenth of a second alone; the machine may be busy
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            read_folder(folder)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith("model.safetensors")


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/secret.safetensors", "sub/a.safetensors", "gone.safetensors"]
)
def test_index_may_not_leave_the_folder(name, folder, tmp_path):
    """A downloaded index would make the program read files anywhere."""
    (tmp_path / "secret.safetensors").write_bytes(safetensors(TENSORS))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(InvalidScenario, match="folder"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_link_out_of_the_folder_is_refused(name, folder, tmp_path):
    """An unpacked archive could show what it links to."""
    outside = tmp_path / "outside"
    outside.write_bytes(json.dumps(CONFIG).encode() if name == "config.json" else safetensors(TENSORS))
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside)
    with pytest.raises(InvalidScenario, match="link"):
        read_folder(folder)


def test_links_of_a_hub_cache_are_followed(tmp_path):
    """The Hub's own cache, where a snapshot links to blobs, would be refused."""
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "123"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "c0ffee").write_text(json.dumps(CONFIG))
    (blobs / "beef").write_bytes(safetensors(TENSORS))
    (snapshot / "config.json").symlink_to(blobs / "c0ffee")
    (snapshot / "model.safetensors").symlink_to(blobs / "beef")
    assert read_folder(snapshot).native_bytes == 228


@given(
    start=st.integers(0, 2**64 - 1) | st.integers(0, 400),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=4)), max_size=5),
    keep=st.integers(0, 600),
)
@settings(max_examples=300)
def test_any_bytes_give_tensors_or_a_sentence(tmp_path_factory, start, edits, keep):
    """Some damage would end in a traceback."""
    content = bytearray(safetensors(TENSORS))
    if start % 3 == 0:
        content[:8] = struct.pack("<Q", start)
    for place, change in edits:
        place %= len(content)
        content[place : place + len(change)] = change
    path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    path.write_bytes(bytes(content[: max(keep, start % 700)]))
    try:
        tensors = read_header(path)
    except GuideError as error:
        assert len(str(error)) < 400  # noqa: PT017
        return
    assert all(tensor.bytes >= 0 for tensor in tensors)


def test_sub_byte_types_fill_their_bytes():
    """Four-bit tensors would be refused as damaged."""
    header = {"a": {"dtype": "F4", "shape": [3, 8], "data_offsets": [0, 12]}}
    assert parse_header(header, "x", data_bytes=12)[0].bytes == 12


@pytest.mark.parametrize(
    ("limit", "words"), [("MOST_TENSORS", "tensors"), ("MOST_FILES", "weight files"), ("MOST_INDEX", "longer")]
)
def test_more_than_any_model_has_is_a_sentence(limit, words, folder, monkeypatch):
    """A folder that claims a million files would hold up the page."""
    (folder / "a.safetensors").write_bytes(safetensors(TENSORS))
    if limit == "MOST_INDEX":
        index = {"weight_map": dict.fromkeys(TENSORS, "a.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_folder(folder).native_bytes == 228
    monkeypatch.setattr(checkpoint, limit, 0)

    with pytest.raises(DataError, match=words):
        read_folder(folder)


def test_all_files_together_have_a_limit(folder, monkeypatch):
    """Each within the limit, and more than it together."""
    (folder / "a.safetensors").write_bytes(safetensors(TENSORS))
    (folder / "b.safetensors").write_bytes(safetensors({"other": ("F32", [1], 4)}))
    monkeypatch.setattr(checkpoint, "MOST_TENSORS", 3)

    with pytest.raises(DataError, match="more than 3 tensors"):
        read_folder(folder)


def test_an_index_that_names_no_file_is_a_sentence(folder):
    """Zero bytes would be called the size of the model."""
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')

    with pytest.raises(DataError, match=r"names no .safetensors file"):
        read_folder(folder)


@pytest.mark.parametrize(("index", "expected"), [(b'{"metadata": {"total_size": 123}}', 123.0), (b"{}", None)])
def test_bytes_of_an_index_where_it_states_them(index, expected, folder):
    """The config's own count stands where the index says nothing."""
    plain = read_folder(folder)
    found = with_index(plain, index)

    assert found.native_bytes == (plain.native_bytes if expected is None else expected)
