"""A `.gguf` file as a model, from its header alone: types and exact bytes of tensors, structure from metadata."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from gpuguide.errors import DataError, InvalidScenario, NotModelled
from gpuguide.spec.model import Model

MOST_HEADER = 32_000_000  # vocabularies of half a million tokens stay below 16 MB [bytes]
MOST_KEYS, MOST_TENSORS, MOST_ITEMS, MOST_PARTS = 5_000, 100_000, 1_500_000, 200
MOST_ELEMENTS = 2**50
VERSIONS = (2, 3)

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
TYPES: Mapping[int, tuple[str, int, int]] = {  # number: name, values in a block, bytes of a block
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip
"""Storage types of ggml."""
FILE_TYPES = {
    0: "fp32", 1: "fp16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "bf16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip
"""Mixtures of types as llama.cpp names them."""
LOCAL_LAYERS = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "cohere2": 4, "exaone4": 4, "llama4": 4}
"""Architectures in which every n-th layer attends to everything and the rest to a window, as llama.cpp runs them."""
NOT_WEIGHTS = re.compile(r"rope_(freqs|factors)")
BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor of the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    bytes: int

    @property
    def params(self) -> int:
        """Its values."""
        return prod(self.shape)


def read_gguf(path: Path) -> Model:
    """
    The model in a `.gguf` file; of a split one, from all parts beside it.

    Raises
    ------
    DataError
        If a header is broken, claims the impossible, or the file is cut off.
    InvalidScenario, NotModelled
        If the metadata lacks what decides the structure, or the file is no language model.
    """
    if not path.resolve().is_file():
        raise InvalidScenario("model", path.name, "there is no such file")
    metadata, tensors = read_header(path)
    count = metadata.get("split.count", 1)
    if isinstance(count, int) and count > 1:
        for part in _parts(path, count):
            tensors += read_header(part)[1]
    return model_of_header(metadata, tensors, path.name)


def _parts(path: Path, count: int) -> list[Path]:
    """The other files of a split model."""
    named = re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if not named or count > MOST_PARTS or int(named[3]) != count or int(named[2]) != 1:
        raise DataError(
            path.name, None, None, f"is one of {count} parts: give the first, named ...-00001-of-{count:05d}.gguf"
        )
    parts = [path.with_name(f"{named[1]}-{place:05d}-of-{count:05d}.gguf") for place in range(2, count + 1)]
    for part in parts:
        if not part.is_file():
            raise DataError(part.name, None, None, "is missing beside the first part")
    return parts


# -- the header -------------------------------------------------------------------------------------------------------


class LongerHeader(DataError):
    """The header does not end within the bytes that were given."""


class _Reader:
    """Takes values off the start of a file; every length is checked before it is believed."""

    def __init__(self, content: bytes, name: str, size: int) -> None:
        self.content, self.name, self.size, self.place, self.items = content, name, size, 0, 0

    def fail(self, problem: str) -> DataError:
        return DataError(self.name, None, None, problem)

    def skip(self, count: int) -> int:
        start = self.place
        if count > len(self.content) - start:
            if self.size > len(self.content):
                raise LongerHeader(self.name, None, None, f"has a header of more than {MOST_HEADER:,} bytes")
            raise self.fail("is cut off within its header")
        self.place += count
        return start

    def scalar(self, code: str) -> Any:
        width = struct.calcsize("<" + code)
        return struct.unpack_from("<" + code, self.content, self.skip(width))[0]

    def text(self) -> str:
        length = self.scalar("Q")
        start = self.skip(length)
        return self.content[start : start + min(length, 200)].decode("utf-8", "replace")

    def _skip_texts(self, count: int) -> None:
        """Passes over a vocabulary: up to a million short strings, so the loop is kept tight."""
        content, place, end = self.content, self.place, len(self.content)
        length_at = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if place + 8 > end:
                break
            place += 8 + length_at(content, place)[0]
        else:
            if place <= end:
                self.place = place
                return
        self.skip(end + 1 - self.place)  # says in which way the header is too short

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind in SCALARS:
            return self.scalar(SCALARS[kind])
        if kind != ARRAY:
            raise self.fail(f"has a metadata value of the unknown type {kind}")
        inner, count = self.scalar("I"), self.scalar("Q")
        self.items += count
        if self.items > MOST_ITEMS:
            raise self.fail(f"claims lists of {self.items:,} values in its metadata; at most {MOST_ITEMS:,} are read")
        if inner == STRING:
            self._skip_texts(count)
            return None
        if inner not in SCALARS:
            raise self.fail(f"has a metadata list of the unknown type {inner}")
        code = SCALARS[inner]
        start = self.skip(count * struct.calcsize("<" + code))
        # Per-layer values are wanted; token scores and types are not.
        return list(struct.unpack_from(f"<{count}{code}", self.content, start)) if count <= 10_000 else None


def read_header(path: Path) -> tuple[dict[str, Any], list[GgufTensor]]:
    """Metadata and tensors of one file; string lists, such as the vocabulary, are passed over."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            content = file.read(min(size, MOST_HEADER))
    except OSError as error:
        raise DataError(path.name, None, None, f"cannot be read ({error.strerror})") from None
    return parse_header(content, path.name, size)


def parse_header(content: bytes, name: str, size: int) -> tuple[dict[str, Any], list[GgufTensor]]:
    """
    The same from the first bytes of a file of the given size.

    Raises
    ------
    LongerHeader
        If the header goes on behind these bytes.
    DataError
        If it is broken, or the file is cut off.
    """
    reader = _Reader(content, name, size)
    if content[:4] != b"GGUF":
        raise reader.fail("does not start like a GGUF file")
    reader.skip(4)
    version = reader.scalar("I")
    if version not in VERSIONS:
        raise reader.fail(f"has GGUF version {version}; versions 2 and 3, little-endian, are read")
    tensor_count, key_count = reader.scalar("Q"), reader.scalar("Q")
    if tensor_count > MOST_TENSORS or key_count > MOST_KEYS:
        raise reader.fail(f"claims {tensor_count:,} tensors and {key_count:,} metadata keys, more than any model has")
    metadata = {}
    for _ in range(key_count):
        key = reader.text()
        metadata[key] = reader.value(reader.scalar("I"))
    listed = [_tensor(reader) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
        raise reader.fail("has an impossible alignment")
    start = -(-reader.place // alignment) * alignment
    for tensor, offset in listed:
        if start + offset + tensor.bytes > size:
            raise reader.fail(
                f"is cut off: '{tensor.name[:60]}' would end at byte {start + offset + tensor.bytes:,} of {size:,}"
            )
    return metadata, [tensor for tensor, _ in listed]


def _tensor(reader: _Reader) -> tuple[GgufTensor, int]:
    name, dimensions = reader.text(), reader.scalar("I")
    if dimensions > 8:
        raise reader.fail(f"has a tensor of {dimensions} dimensions")
    shape = tuple(reader.scalar("Q") for _ in range(dimensions))
    kind, offset = reader.scalar("I"), reader.scalar("Q")
    if kind not in TYPES:
        raise reader.fail(f"has a tensor of the unknown type {kind}")
    type_name, block, block_bytes = TYPES[kind]
    values = prod(shape)
    if values > MOST_ELEMENTS or (shape and shape[0] % block):
        raise reader.fail(f"has a tensor '{name[:60]}' of impossible shape")
    return GgufTensor(name, shape, type_name, values // block * block_bytes), offset


# -- the model --------------------------------------------------------------------------------------------------------


def model_of_header(metadata: Mapping[str, Any], tensors: list[GgufTensor], file: str) -> Model:
    """The model that metadata and tensors of all parts describe."""
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str) or not tensors:
        raise InvalidScenario("model", file, "it lacks general.architecture, or has no tensors")
    if arch in ("clip", "bert", "nomic-bert", "t5encoder", "wavtokenizer-dec", "jina-bert-v2", "modern-bert"):
        raise NotModelled(f"a .gguf file of architecture {arch}", "give the file of the language model")

    def number(key: str, default: int | None = None, *, most: int = 10**9) -> int:
        value = metadata.get(f"{arch}.{key}", default)
        if isinstance(value, list) and value:
            value = max(value)
        if value is None:
            raise InvalidScenario("model", file, f"its metadata lacks {arch}.{key}")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise InvalidScenario(f"{arch}.{key}", value, f"it must be a whole number up to {most:,}")
        return value

    layers = number("block_count", most=10_000)
    predicting = number("nextn_predict_layers", 0, most=100)
    hidden, heads = number("embedding_length"), number("attention.head_count", 0)
    weights = [tensor for tensor in tensors if not NOT_WEIGHTS.search(tensor.name)]
    placed = _by_layer(weights, layers)
    layers -= predicting
    mtp = sum(tensor.params for layer in range(layers, layers + predicting) for tensor in placed.get(layer, ()))
    total = sum(tensor.params for tensor in weights) - mtp
    routed = sum(tensor.params for tensor in weights if "_exps" in tensor.name)
    experts, top_k = number("expert_count", 0), number("expert_used_count", 0)
    embedding = _params(weights, "token_embd.weight")
    head = _params(weights, "output.weight")
    head_dim = number("attention.key_length", hidden // heads if heads else 0)
    value_dim = number("attention.value_length", head_dim)
    latent = number("attention.kv_lora_rank", 0)
    kv_heads = _per_layer(metadata.get(f"{arch}.attention.head_count_kv", heads), layers, file)
    attending = [
        layer
        for layer in range(layers)
        if any(re.match(r"attn_(k|v|qkv|kv)", _short(t.name)) for t in placed.get(layer, ()))
    ]
    recurrent = [
        layer for layer in range(layers) if any(_short(t.name).startswith("ssm_") for t in placed.get(layer, ()))
    ]
    local = _windowed(metadata, arch, attending)
    # A compressed cache holds one vector and one rotary key a layer, whatever the number of heads.
    width = {
        layer: latent + number("rope.dimension_count", 64) if latent else kv_heads[layer] * (head_dim + value_dim)
        for layer in attending
    }
    inner, state = number("ssm.inner_size", 0), number("ssm.state_size", 0)
    convolved = inner + 2 * number("ssm.group_count", 0) * state
    name = FILE_TYPES.get(metadata.get("general.file_type", -1)) or _most_bytes(weights)
    window = number("attention.sliding_window", 0)
    active = total - routed + routed * top_k / experts if experts else total
    vocab = next((tensor.shape[-1] for tensor in weights if tensor.name == "token_embd.weight" and tensor.shape), 0)
    dims = max((kv_heads[layer] for layer in attending), default=0)
    return Model(
        name=str(metadata.get("general.name") or Path(file).stem)[:100],
        kind="hybrid" if recurrent and attending else "ssm" if recurrent else "moe" if experts else "dense",
        source=f"{file}: GGUF header, architecture {arch}, {len(tensors):,} tensors",
        params=float(total),
        params_active=float(active),
        params_embedding=float(embedding),
        params_lm_head=float(head),
        params_routed_experts=float(routed),
        params_mtp=float(mtp),
        layers=float(layers),
        hidden=float(hidden),
        ffn=float(number("feed_forward_length", 0)),
        heads=float(heads),
        kv_heads=float(dims),
        head_dim=float(head_dim),
        vocab=float(vocab),
        tied_embeddings=head == 0,
        gated_mlp=any("ffn_gate" in tensor.name or arch in ("phi3", "glm4") for tensor in weights),
        max_context=float(number("context_length", 0)) or None,
        attention="mla"
        if latent
        else "none"
        if not heads
        else "mha"
        if dims == heads
        else "mqa"
        if dims == 1
        else "gqa",
        q_lora_rank=float(number("attention.q_lora_rank", 0)),
        kv_lora_rank=float(latent),
        kv_window=float(window) if local else None,
        layers_full=float(len(attending) - len(local)),
        layers_windowed=float(len(local)),
        layers_recurrent=float(len(recurrent)),
        kv_elements_full=float(sum(width[layer] for layer in attending if layer not in local)),
        kv_elements_windowed=float(sum(width[layer] for layer in local)),
        recurrent_elements=float(len(recurrent) * (inner * state + convolved * number("ssm.conv_kernel", 0))),
        experts=float(experts),
        experts_per_token=float(top_k),
        shared_experts=float(number("expert_shared_count", 0)),
        moe_ffn=float(number("expert_feed_forward_length", number("feed_forward_length", 0))) if experts else 0.0,
        moe_layers=float(sum(any("_exps" in t.name for t in placed.get(layer, ())) for layer in range(layers))),
        native_dtype=name,
        native_bytes=float(sum(tensor.bytes for tensor in tensors)),
    )


def _by_layer(tensors: list[GgufTensor], layers: int) -> dict[int, list[GgufTensor]]:
    placed: dict[int, list[GgufTensor]] = {}
    for tensor in tensors:
        found = BLOCK.match(tensor.name)
        if found and len(found[1]) < 6 and int(found[1]) < layers:
            placed.setdefault(int(found[1]), []).append(tensor)
    return placed


def _short(name: str) -> str:
    found = BLOCK.match(name)
    return found[2] if found else name


def _params(tensors: list[GgufTensor], name: str) -> int:
    return sum(tensor.params for tensor in tensors if tensor.name == name)


def _per_layer(value: Any, layers: int, file: str) -> list[int]:
    values = value if isinstance(value, list) else [value] * layers
    if len(values) < layers or not all(isinstance(item, int) and 0 <= item <= 10**6 for item in values):
        raise InvalidScenario(
            "attention.head_count_kv", value, f"{file} must give whole numbers for its {layers} layers"
        )
    return values


def _windowed(metadata: Mapping[str, Any], arch: str, attending: list[int]) -> set[int]:
    """Layers whose cache stops at the window, as far as the file or llama.cpp's own table says."""
    if not metadata.get(f"{arch}.attention.sliding_window"):
        return set()
    pattern = metadata.get(f"{arch}.attention.sliding_window_pattern", LOCAL_LAYERS.get(arch))
    if isinstance(pattern, list):
        return {layer for layer in attending if layer < len(pattern) and pattern[layer]}
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 1:
        return {layer for layer in attending if (layer + 1) % pattern}
    return set(attending) if arch == "phi3" else set()


def _most_bytes(tensors: list[GgufTensor]) -> str:
    """The type that takes most of the file."""
    by_type: Counter[str] = Counter()
    for tensor in tensors:
        by_type[tensor.type] += tensor.bytes
    return {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}.get(top := by_type.most_common(1)[0][0], top)
