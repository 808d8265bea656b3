"""A model folder: its config, and the exact bytes of its weights from the headers of safetensors files alone."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

from gpuguide.catalog.config import load_json, parse_config, read_config
from gpuguide.errors import DataError, InvalidScenario
from gpuguide.spec.model import MediaModel, Model

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
MOST_HEADER = 4_000_000  # of one file: thirty thousand tensors [bytes]
MOST_INDEX = 16_000_000  # the largest known index names 91,000 tensors in 9 MB [bytes]
WEIGHT_FILE = re.compile(rb'"([^"\\\\]{1,200}\.safetensors)"')
TOTAL_SIZE = re.compile(rb'"total_size"\s*:\s*(\d{1,16})(?:\.0)?\s*[,}]')
MOST_FILES, MOST_TENSORS = 2_000, 200_000
BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
    "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
    "C64": 64,
}  # fmt: skip
"""Element types of the safetensors format, and their widths."""
NAMES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "F8_E4M3": "fp8", "F8_E5M2": "fp8", "F64": "fp64"}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a weight file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


def read_folder(folder: Path) -> Model | MediaModel:
    """
    The model in a folder: structure from `config.json`, stored bytes from the weight files where they are there.

    Raises
    ------
    InvalidScenario, DataError, NotModelled
        If the folder has no usable config, or a weight file is broken or leads out of the folder.
    """
    weights = sorted(folder.glob("*.gguf"))[:2]
    if not (folder / CONFIG).is_file():
        if len(weights) == 1:
            from gpuguide.catalog.gguf import read_gguf

            return read_gguf(inside(folder, weights[0].name))
        what = (
            "several .gguf files: give one of them" if weights else "no config.json, which says the model's structure"
        )
        raise InvalidScenario("model", folder.name or str(folder), f"the folder has {what}")
    model = parse_config(
        read_config(inside(folder, CONFIG)), name=folder.resolve().name, source=f"{folder.name}/{CONFIG}"
    )
    tensors = read_weights(folder)
    if not tensors or isinstance(model, MediaModel):
        return model
    return with_stored(model, tensors)


def with_stored(model: Model, tensors: list[TensorEntry]) -> Model:
    """The model with the bytes its files really have."""
    by_type: Counter[str] = Counter()
    for tensor in tensors:
        by_type[tensor.dtype] += tensor.bytes
    most = by_type.most_common(1)[0][0]
    told = model.native_bytes is not None and model.native_dtype not in ("bf16", "fp16", "fp32")
    name = model.native_dtype if told else NAMES.get(most, most.lower())
    source = f"{model.source}; {len(tensors):,} tensors in its weight files"
    return replace(model, native_dtype=name, native_bytes=float(sum(by_type.values())), source=source)


def with_index(model: Model, index: bytes) -> Model:
    """The model with the bytes that the index of its weight files states, where it states any."""
    stated = TOTAL_SIZE.search(index)
    if not stated or int(stated[1]) == 0:
        return model
    return replace(model, native_bytes=float(int(stated[1])), source=f"{model.source}; bytes from its index")


def inside(folder: Path, name: str) -> Path:
    """
    A file of a folder.

    A link may lead to the folder itself, or to the blobs beside the snapshots of a Hub cache; nowhere else.
    """
    home, path = folder.resolve(), folder / name
    if Path(name).name != name or name in ("", ".", ".."):
        raise InvalidScenario("model", name[:80], "a weight file must be in the model's own folder")
    target = path.resolve()
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    if not (target.is_relative_to(home) or target.is_relative_to(blobs)):
        raise InvalidScenario("model", name[:80], "it is a link that leads out of the model's folder")
    if not target.is_file():
        raise InvalidScenario("model", name[:80], "there is no such file in the model's folder")
    return path


def read_weights(folder: Path) -> list[TensorEntry]:
    """Every tensor of the folder's safetensors files; empty where there is none."""
    tensors: list[TensorEntry] = []
    for name in _files(folder):
        tensors += read_header(inside(folder, name))
        if len(tensors) > MOST_TENSORS:
            raise DataError(name, None, None, f"the model has more than {MOST_TENSORS:,} tensors")
    return tensors


def _files(folder: Path) -> list[str]:
    """Names of the weight files, from the index where there is one."""
    if not (folder / INDEX).is_file():
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    else:
        path = inside(folder, INDEX)
        if path.stat().st_size > MOST_INDEX:
            raise DataError(INDEX, None, None, f"is longer than {MOST_INDEX:,} bytes")
        # Only the names are wanted: as objects, an index of the largest size would take twenty times its bytes.
        names = sorted({name.decode("utf-8", "replace") for name in WEIGHT_FILE.findall(path.read_bytes())})
        if not names:
            raise DataError(INDEX, None, "weight_map", "names no .safetensors file")
    if len(names) > MOST_FILES:
        raise DataError(folder.name, None, None, f"has more than {MOST_FILES:,} weight files")
    return names


def read_header(path: Path) -> list[TensorEntry]:
    """
    Tensors of one safetensors file, from its header; the weights are not read.

    Raises
    ------
    DataError
        If the file is cut off, or its header is too long, is not JSON, or contradicts itself.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            raise DataError(path.name, None, None, "is too short to be a safetensors file")
        (length,) = struct.unpack("<Q", start)
        if length > MOST_HEADER:
            raise DataError(
                path.name, None, None, f"claims a header of {length:,} bytes; at most {MOST_HEADER:,} are read"
            )
        if length > size - 8:
            raise DataError(path.name, None, None, "is cut off within its header")
        header = load_json(file.read(length), path.name, most_parts=MOST_HEADER // 20)
    return parse_header(header, path.name, data_bytes=size - 8 - length)


def parse_header(header: Mapping[str, Any], name: str, *, data_bytes: int) -> list[TensorEntry]:
    """Tensors that a header lists, checked against the bytes that follow it."""
    if len(header) > MOST_TENSORS:
        raise DataError(name, None, None, f"has more than {MOST_TENSORS:,} tensors")
    tensors = []
    for key, entry in header.items():
        if key == "__metadata__":
            continue
        if not isinstance(entry, Mapping):
            raise DataError(name, None, key[:80], "is not described by dtype, shape and data_offsets")
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in BITS:
            raise DataError(name, None, key[:80], f"has the unknown dtype {json.dumps(dtype, default=str)[:40]}")
        if not _whole_numbers(shape) or not _whole_numbers(offsets) or len(offsets) != 2 or len(shape) > 16:
            raise DataError(name, None, key[:80], "has a shape or offsets that are no whole numbers")
        begin, end = offsets
        if not begin <= end <= data_bytes:
            raise DataError(
                name, None, key[:80], f"lies outside the file's {data_bytes:,} bytes of data (is it cut off?)"
            )
        if prod(shape) * BITS[dtype] != (end - begin) * 8:
            raise DataError(name, None, key[:80], f"has a shape that does not fill its {end - begin:,} bytes")
        tensors.append(TensorEntry(key, dtype, tuple(shape), end - begin))
    return tensors


def _whole_numbers(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**63 for item in value
    )
