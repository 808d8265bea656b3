"""GGUF headers give exact bytes and structure; files that are cut, lie or are hostile give a sentence."""

import struct
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuguide.catalog.gguf import TYPES, read_gguf
from gpuguide.errors import DataError, GuideError, InvalidScenario, NotModelled

F32, F16, Q4_0, Q4_K, Q6_K = 0, 1, 2, 12, 14


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(item: object) -> bytes:
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if item and isinstance(item[0], str):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(text, item))
    return struct.pack("<IIQ", 9, 5, len(item)) + struct.pack(f"<{len(item)}i", *item)


def gguf(
    metadata: dict, tensors: list[tuple[str, list[int], int]], *, cut: int = 0, counts: tuple[int, int] | None = None
) -> bytes:
    """A file of zeros: name, shape (inputs first) and type of every tensor."""
    listed, place = b"", 0
    for name, shape, kind in tensors:
        listed += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        listed += struct.pack("<IQ", kind, place)
        count = 1
        for side in shape:
            count *= side
        _, block, size = TYPES[kind]
        place += -(-(count // block * size) // 32) * 32
    tensor_count, key_count = counts or (len(tensors), len(metadata))
    head = b"GGUF" + struct.pack("<IQQ", 3, tensor_count, key_count)
    head += b"".join(text(key) + value(item) for key, item in metadata.items()) + listed
    head += bytes(-len(head) % 32)
    return head + bytes(max(place - cut, 0))


HIDDEN, VOCAB, LAYERS = 256, 512, 3
LLAMA = {
    "general.architecture": "llama", "general.name": "Tiny", "general.file_type": 15, "llama.block_count": LAYERS,
    "llama.embedding_length": HIDDEN, "llama.feed_forward_length": 512, "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2, "llama.context_length": 4096, "tokenizer.ggml.tokens": ["a", "bc"] * 50,
    "llama.rope.freq_base": 1e4,
}  # fmt: skip
TENSORS = [
    ("token_embd.weight", [HIDDEN, VOCAB], Q6_K),
    ("output_norm.weight", [HIDDEN], F32),
    ("rope_freqs.weight", [32], F32),
]
for layer in range(LAYERS):
    TENSORS += [
        (f"blk.{layer}.attn_q.weight", [HIDDEN, 256], Q4_K), (f"blk.{layer}.attn_k.weight", [HIDDEN, 128], Q4_K),
        (f"blk.{layer}.attn_v.weight", [HIDDEN, 128], Q6_K), (f"blk.{layer}.attn_output.weight", [256, HIDDEN], Q4_K),
        (f"blk.{layer}.ffn_gate.weight", [HIDDEN, 512], Q4_K), (f"blk.{layer}.ffn_up.weight", [HIDDEN, 512], Q4_K),
        (f"blk.{layer}.ffn_down.weight", [512, HIDDEN], Q6_K), (f"blk.{layer}.attn_norm.weight", [HIDDEN], F32),
        (f"blk.{layer}.ffn_norm.weight", [HIDDEN], F32),
    ]  # fmt: skip


def written(tmp_path, content: bytes, name: str = "tiny.gguf"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def test_llama(tmp_path):
    """Block scales, the tied head, or rotary factors would be counted wrongly."""
    model = read_gguf(written(tmp_path, gguf(LLAMA, TENSORS)))
    block = 256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 512 + 2 * 256
    assert model.params == VOCAB * HIDDEN + HIDDEN + LAYERS * block
    narrow = (256 * 256 * 2 + 256 * 128 + 2 * 256 * 512) * 144 / 256
    wide = (256 * 128 + 256 * 512) * 210 / 256
    assert model.native_bytes == VOCAB * HIDDEN * 210 / 256 + 4 * (HIDDEN + 32) + LAYERS * (narrow + wide + 4 * 512)
    assert model.native_dtype == "Q4_K_M"
    assert model.tied_embeddings
    assert model.kv_elements_full == LAYERS * 2 * 2 * 64
    assert (model.kv_heads, model.head_dim, model.max_context, model.name) == (2, 64, 4096, "Tiny")


def test_experts_latent_attention_and_windows(tmp_path):
    """All experts would count as active, a compressed cache would be counted by heads, windows would be missed."""
    expert = [("blk.0.ffn_gate_exps.weight", [256, 32, 8], Q4_0), ("blk.0.attn_kv_a_mqa.weight", [256, 72], F16)]
    keys = {
        "general.architecture": "deepseek2", "deepseek2.block_count": 1, "deepseek2.embedding_length": 256,
        "deepseek2.attention.head_count": 4, "deepseek2.attention.head_count_kv": 1, "deepseek2.expert_count": 8,
        "deepseek2.expert_used_count": 2, "deepseek2.attention.kv_lora_rank": 64, "deepseek2.rope.dimension_count": 8,
    }  # fmt: skip
    model = read_gguf(written(tmp_path, gguf(keys, [("token_embd.weight", [256, 10], F16), *expert])))
    assert model.kv_elements_full == 72
    assert model.params_active == model.params - 256 * 32 * 8 * 6 / 8
    assert model.attention == "mla"
    gemma = {key.replace("llama.", "gemma3."): item for key, item in LLAMA.items()} | {"general.architecture": "gemma3"}
    gemma |= {"gemma3.attention.sliding_window": 512, "gemma3.attention.sliding_window_pattern": 3}
    local = read_gguf(written(tmp_path, gguf(gemma, TENSORS)))
    assert (local.layers_full, local.layers_windowed, local.kv_window) == (1, 2, 512)


def test_split_files_are_read_together(tmp_path):
    """One part would pass for the whole model."""
    first = written(tmp_path, gguf(LLAMA | {"split.count": 2}, TENSORS[:10]), "m-00001-of-00002.gguf")
    with pytest.raises(DataError, match="missing"):
        read_gguf(first)
    written(tmp_path, gguf({"split.count": 2}, TENSORS[10:]), "m-00002-of-00002.gguf")
    assert read_gguf(first).params == read_gguf(written(tmp_path, gguf(LLAMA, TENSORS))).params


def test_vision_file_is_refused(tmp_path):
    """A projector would be read as a language model."""
    with pytest.raises(NotModelled, match="clip"):
        read_gguf(written(tmp_path, gguf({"general.architecture": "clip"}, TENSORS[:1])))


@pytest.mark.parametrize("key", ["block_count", "embedding_length"])
def test_missing_key_is_named(key, tmp_path):
    """A default would pass for an answer about this file."""
    with pytest.raises(InvalidScenario, match=key):
        read_gguf(written(tmp_path, gguf({k: v for k, v in LLAMA.items() if k != f"llama.{key}"}, TENSORS)))


HEAD = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)  # no tensor, one key
GOOD = gguf(LLAMA, TENSORS)
BROKEN = {
    "empty": b"",
    "another file": b"PK\x03\x04" + bytes(100),
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "2^63 tensors": gguf({}, [], counts=(2**63, 0)),
    "2^63 keys": gguf({}, [], counts=(0, 2**63)),
    "cut in the header": GOOD[:200],
    "cut in the middle": GOOD[: len(GOOD) // 2],
    "cut at the end": GOOD[:-40_000],
    "string of 2^63": HEAD + struct.pack("<Q", 2**63),
    "list of 2^62": HEAD + text("a") + struct.pack("<IIQ", 9, 8, 2**62),
    "list of lists": HEAD + text("a") + struct.pack("<IIQ", 9, 9, 2),
    "10 MB of junk": b"GGUF" + struct.pack("<I", 3) + b"\x07" * 10_000_000,
    "a million empty strings": HEAD + text("a") + struct.pack("<IIQ", 9, 8, 1_499_999) + bytes(8_000_000),
    "unknown type": gguf(LLAMA, [("t", [256], F16)]).replace(struct.pack("<IQ", F16, 0), struct.pack("<IQ", 99, 0)),
}  # fmt: skip


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_broken_file_is_a_sentence(content, tmp_path):
    """A claim of the file would be believed and memory asked for, or the reader would see a traceback."""
    path = written(tmp_path, content)
    began = time.perf_counter()
    with pytest.raises(GuideError) as caught:
        read_gguf(path)
    assert time.perf_counter() - began < 2.0  # a third of a second alone; the machine may be busy
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["10 MB of junk", "2^63 tensors", "list of 2^62"])
def test_broken_file_takes_little_memory(name, tmp_path):
    """A small machine would be brought down by one file."""
    path = written(tmp_path, BROKEN[name])
    tracemalloc.start()
    try:
        with pytest.raises(GuideError):
            read_gguf(path)
        assert tracemalloc.get_traced_memory()[1] < 120e6
    finally:
        tracemalloc.stop()


def check_damaged(path, edits: list[tuple[int, bytes]], keep: int) -> None:
    content = bytearray(GOOD[:6000] + bytes(len(GOOD) - 6000))
    for place, change in edits:
        content[place : place + len(change)] = change
    path.write_bytes(bytes(content[: keep or None]))
    try:
        model = read_gguf(path)
    except GuideError as error:
        assert len(str(error)) < 400  # noqa: PT017
        return
    assert model.params >= 0


EDITS = st.lists(st.tuples(st.integers(4, 3500), st.binary(min_size=1, max_size=9)), max_size=4)


@given(edits=EDITS, keep=st.just(0) | st.integers(0, 5000))
@settings(max_examples=250)
def test_any_damage_gives_a_model_or_a_sentence(tmp_path_factory, edits, keep):
    """Some damage would end in a traceback."""
    check_damaged(tmp_path_factory.getbasetemp() / "fuzzed.gguf", edits, keep)


@pytest.mark.slow
@given(edits=EDITS, keep=st.just(0) | st.integers(0, 5000))
@settings(max_examples=10_000)
def test_any_damage_gives_a_model_or_a_sentence_at_length(tmp_path_factory, edits, keep):
    """As above, for longer."""
    check_damaged(tmp_path_factory.getbasetemp() / "fuzzed.gguf", edits, keep)


def test_types_are_those_of_the_gguf_package():
    """A block size would be off, and every file of that type with it."""
    constants = pytest.importorskip("gguf.constants")
    known = {int(kind): (kind.name, *sizes) for kind, sizes in constants.GGML_QUANT_SIZES.items()}
    assert {number: entry for number, entry in TYPES.items() if number in known} == {
        number: entry for number, entry in known.items() if number in TYPES
    }


def test_file_of_the_gguf_package_is_read(tmp_path):
    """The layout written here for tests would be a misunderstanding of the format."""
    package, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    path = tmp_path / "theirs.gguf"
    writer = package.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_token_list(["x", "y"])
    writer.add_tensor("token_embd.weight", numpy.zeros((10, 64), dtype=numpy.float16))
    writer.add_tensor("blk.0.attn_k.weight", numpy.zeros((32, 64), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = read_gguf(path)
    assert (model.params, model.native_bytes) == (10 * 64 + 32 * 64, 2 * 640 + 4 * 2048)
    assert (model.kv_elements_full, model.vocab) == (2 * 2 * 16, 10)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path):
    """A traceback for a misspelt path."""
    with pytest.raises(InvalidScenario, match="there is no such file"):
        read_gguf(tmp_path / "absent.gguf")


@pytest.mark.parametrize("name", ["m-00002-of-00002.gguf", "m.gguf", "m-00001-of-00003.gguf"])
def test_a_part_that_is_not_the_first_is_named(name, tmp_path):
    """The second half of a model would pass for all of it."""
    with pytest.raises(DataError, match="give the first"):
        read_gguf(written(tmp_path, gguf(LLAMA | {"split.count": 2}, TENSORS[:10]), name))


LAYERS_SAID = [
    pytest.param({"llama.attention.head_count_kv": [2] * (LAYERS - 1)}, "for its 3 layers", id="too few layers"),
    pytest.param({"llama.attention.head_count_kv": [2, -1, 2]}, "whole numbers", id="a number below zero"),
    pytest.param({"llama.block_count": "three"}, "block_count", id="words for a number"),
    pytest.param({"llama.block_count": True}, "block_count", id="true for a number"),
]


@pytest.mark.parametrize(("change", "words"), LAYERS_SAID)
def test_metadata_that_cannot_be_is_named(change, words, tmp_path):
    """A cache of the wrong number of layers."""
    with pytest.raises(InvalidScenario, match=words):
        read_gguf(written(tmp_path, gguf(LLAMA | change, TENSORS)))


def test_heads_by_layer_are_counted_layer_by_layer(tmp_path):
    """Files of pruned models give a list: 2, 1 and 4 KV heads of 64 elements, keys and values."""
    found = read_gguf(written(tmp_path, gguf(LLAMA | {"llama.attention.head_count_kv": [2, 1, 4]}, TENSORS)))
    same = read_gguf(written(tmp_path, gguf(LLAMA, TENSORS)))

    assert found.kv_elements_full / same.kv_elements_full == pytest.approx(7 / 6)


WINDOWS = [  # layers whose cache stops at the window, metadata
    pytest.param(0, {}, id="no window"),
    pytest.param(2, {"llama.attention.sliding_window_pattern": [1, 0, 1]}, id="a list by layer"),
    pytest.param(2, {"llama.attention.sliding_window_pattern": 3}, id="every third layer sees everything"),
    pytest.param(0, {"llama.attention.sliding_window_pattern": 1}, id="a pattern of one"),
]


@pytest.mark.parametrize(("windowed", "change"), WINDOWS)
def test_windows_of_a_file(windowed, change, tmp_path):
    """A window ignored, or taken for all layers."""
    window = {"llama.attention.sliding_window": 512} if change else {}
    found = read_gguf(written(tmp_path, gguf(LLAMA | window | change, TENSORS)))

    assert found.layers_windowed == windowed
    assert found.layers_full == LAYERS - windowed
