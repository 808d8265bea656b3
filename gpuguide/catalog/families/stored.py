"""Bytes of a checkpoint as published, from `quantization_config`: the narrow matrices, and what their scales take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, prod
from typing import Any

from gpuguide.catalog.families.draft import Draft, Tensor

WIDTHS = {
    "float32": ("fp32", 4), "float": ("fp32", 4), "bfloat16": ("bf16", 2), "float16": ("fp16", 2), "half": ("fp16", 2),
    "float8_e4m3fn": ("fp8", 1), "float64": ("fp64", 8),
}  # fmt: skip
"""Names of torch types: ours, and bytes of an element."""
MOST_PATTERNS = 20_000
MOST_GLOBS = 100

Matrix = Callable[[int, int], float]
"""Bytes of one stored matrix with so many outputs and inputs."""


def stored(d: Draft, dtype: str | None, quantization: Mapping[str, Any] | None) -> tuple[str, float | None]:
    """
    Name of the stored format and bytes of the whole checkpoint.

    Parameters
    ----------
    d : Draft
        The tensors.
    dtype : str or None
        `torch_dtype` or `dtype` of the config; None = not stated.
    quantization : mapping or None
        `quantization_config` of the config.

    Returns
    -------
    str, float or None
        None where the config does not decide the bytes: no dtype, or a method whose layout is not known here.
    """
    name, width = WIDTHS.get((dtype or "").removeprefix("torch."), ("bf16", 2))
    if not quantization:
        return name, float(d.params() * width) if dtype else None
    format_name, matrix, only_experts = _format(quantization)
    skip = _skipper(_ignored(quantization))
    if matrix is None or skip is None:
        return format_name, None
    total = 0.0
    for tensor in d.tensors:
        narrow = tensor.linear and (tensor.expert or not only_experts)
        kept = skip(tensor) if narrow else tensor.copies
        total += kept * prod(tensor.shape) * width
        if narrow:
            *count, outputs, inputs = tensor.shape
            total += (tensor.copies - kept) * prod(count) * matrix(outputs, inputs)
    return format_name, float(total)


def _format(q: Mapping[str, Any]) -> tuple[str, Matrix | None, bool]:
    """Name, bytes of a matrix, and whether only experts are narrow."""
    method = str(q.get("quant_method", "")).lower()
    if method == "mxfp4":
        return "mxfp4", _grouped(4, 32, 1.0), True
    if method in ("fp8", "fbgemm_fp8", "finegrained_fp8"):
        block = q.get("weight_block_size")
        if isinstance(block, Sequence) and len(block) == 2 and all(_whole(side) for side in block):
            return "fp8", _blocked(block[0], block[1]), False
        return "fp8-tensor", _per_output(8, 4.0) if method == "fbgemm_fp8" else _per_tensor(8, 4.0), False
    if method in ("gptq", "awq"):
        bits, group = q.get("bits", q.get("w_bit")), q.get("group_size", q.get("q_group_size"))
        if not _whole(bits, 16) or not (_whole(group) or group == -1):
            return method, None, False
        named = {4: "", 3: "-3bit", 8: "-int8"}.get(bits, f"-{bits}bit")
        named += {128: "", -1: "-channel"}.get(group, f"-g{group}") if bits == 4 else ""
        return method + named, _grouped(bits, group, 2.0, zeros=True, order=method == "gptq"), False
    if method == "bitsandbytes" or "load_in_4bit" in q or "load_in_8bit" in q:
        if q.get("load_in_8bit"):
            return "bnb-int8", _per_output(8, 4.0), False
        nested = bool(q.get("bnb_4bit_use_double_quant"))
        return str(q.get("bnb_4bit_quant_type", "fp4"))[:8] + ("-dq" if nested else ""), _nf4(nested), False
    if method == "compressed-tensors":
        return _compressed(q)
    if method == "modelopt":
        algorithm = str(q.get("quant_algo", "")).upper()
        if algorithm == "NVFP4":
            return "nvfp4", _grouped(4, 16, 1.0, tensor_bytes=8), False
        if algorithm == "FP8":
            return "fp8-tensor", _per_tensor(8, 8.0), False
    return method[:40] or "quantised", None, False


def _compressed(q: Mapping[str, Any]) -> tuple[str, Matrix | None, bool]:
    """One group of the compressed-tensors format; several are not told apart here."""
    groups = q.get("config_groups")
    group = next(iter(groups.values()), None) if isinstance(groups, Mapping) and len(groups) == 1 else None
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping) or not _whole(weights.get("num_bits"), 16):
        return "compressed-tensors", None, False
    bits, kind, size = weights["num_bits"], weights.get("type", "int"), weights.get("group_size")
    strategy = weights.get("strategy")
    activations = isinstance(group, Mapping) and bool(group.get("input_activations"))
    if (kind, bits) == ("float", 4):
        return "nvfp4", _grouped(4, int(size) if _whole(size) and size else 16, 1.0, tensor_bytes=8), False
    name = "fp8-tensor" if kind == "float" else "w4a16" if bits == 4 else "int8" if activations else f"int{bits}-weight"
    if strategy == "group" and _whole(size) and size:
        return name, _grouped(bits, int(size), 2.0, zeros=not weights.get("symmetric", True)), False
    if strategy == "channel":
        return name, _per_output(bits, 2.0), False
    if strategy == "tensor":
        return name, _per_tensor(bits, 2.0), False
    block = weights.get("block_structure")
    if strategy == "block" and isinstance(block, list) and len(block) == 2 and all(_whole(side) for side in block):
        return "fp8", _blocked(block[0], block[1]), False
    return name, None, False


def _blocked(high: int, wide: int) -> Matrix:
    """One byte a weight and one fp32 scale a block."""
    return lambda outputs, inputs: outputs * inputs + 4 * ceil(outputs / high) * ceil(inputs / wide)


def _per_output(bits: int, scale_bytes: float) -> Matrix:
    """One scale for each output."""
    return lambda outputs, inputs: outputs * inputs * bits / 8 + scale_bytes * outputs


def _per_tensor(bits: int, scale_bytes: float) -> Matrix:
    """Scales for the whole matrix."""
    return lambda outputs, inputs: outputs * inputs * bits / 8 + scale_bytes


def _grouped(
    bits: int, group: int, scale_bytes: float, *, zeros: bool = False, order: bool = False, tensor_bytes: float = 0.0
) -> Matrix:
    """Weights of so many bits with one scale, and perhaps a zero point, for each group of inputs of an output."""

    def matrix(outputs: int, inputs: int) -> float:
        groups = 1 if group == -1 else ceil(inputs / group)
        per_group = scale_bytes + (bits / 8 if zeros else 0.0)
        return outputs * inputs * bits / 8 + outputs * groups * per_group + (4 * inputs if order else 0) + tensor_bytes

    return matrix


def _nf4(nested: bool) -> Matrix:
    """bitsandbytes 4 bit: an fp32 scale per 64 weights; doubly quantised a byte, and an fp32 per 256 of those."""

    def matrix(outputs: int, inputs: int) -> float:
        blocks = ceil(outputs * inputs / 64)
        return ceil(outputs * inputs / 2) + (blocks + 4 * ceil(blocks / 256) if nested else 4 * blocks)

    return matrix


def _whole(value: Any, most: int = 1_000_000) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


# -- what is left wide ------------------------------------------------------------------------------------------------


def _ignored(q: Mapping[str, Any]) -> list[str] | None:
    """Patterns of modules that stay wide; None when they cannot be read."""
    for key in ("modules_to_not_convert", "ignore", "ignored_layers", "llm_int8_skip_modules", "exclude_modules"):
        value = q.get(key)
        if value:
            if not isinstance(value, list) or len(value) > MOST_PATTERNS:
                return None
            return [item for item in value if isinstance(item, str)]
    return []


def _skipper(patterns: list[str] | None) -> Callable[[Tensor], int] | None:
    """How many of a tensor's copies stay wide; None when a pattern is of a kind not understood here."""
    if patterns is None:
        return None
    plain: set[str] = set()
    globs: list[list[str]] = []
    for pattern in patterns:
        text = pattern
        if text.startswith("re:"):
            text = text[3:].strip("^$").replace("\\.", "\0").replace(".*", "*").replace("\0", ".")
            if re.search(r"[\[\](){}|+?\\]", text):
                return None
        text = _bare(text.removesuffix(".weight"))
        if "*" in text:
            globs.append(text.split("*"))
        elif text:
            plain.add(text)
    if len(globs) > MOST_GLOBS:
        return None
    numbered = any(any(piece.isdigit() for piece in text.split(".")) for text in plain) or any(
        re.search(r"\d", piece) for glob in globs for piece in glob
    )

    def skip(tensor: Tensor) -> int:
        if not plain and not globs:
            return 0
        layers: Iterable[int] = tensor.layers if tensor.layers is not None else [0]
        if not numbered:
            return tensor.copies if _matches(_bare(tensor.name.replace("{}", "0")), plain, globs) else 0
        return sum(_matches(_bare(tensor.name.replace("{}", str(layer))), plain, globs) for layer in layers)

    return skip


def _bare(name: str) -> str:
    """A module's path without the wrappers that differ between classes and checkpoints."""
    for wrapper in ("model.", "language_model.", "model."):
        name = name.removeprefix(wrapper)
    for vision in ("visual", "vision_tower", "vision_model", "multi_modal_projector", "mm_projector"):
        if name == vision or name.startswith((f"{vision}.", f"{vision}*")):
            return "vision" + name[len(vision) :]
    return name


def _matches(name: str, plain: set[str], globs: list[list[str]]) -> bool:
    """A module matches by itself, by any module around it, by the end of its path, or by a pattern with stars."""
    pieces = name.split(".")
    ahead = {".".join(pieces[: end + 1]) for end in range(len(pieces))}
    behind = {".".join(pieces[start:]) for start in range(len(pieces))}
    if not plain.isdisjoint(ahead | behind | set(pieces)):
        return True
    return any(_glob(path, glob) for glob in globs for path in ahead)


def _glob(name: str, parts: list[str]) -> bool:
    """Stars match anything; without backtracking, so that no pattern is slow."""
    if not name.startswith(parts[0]) or not name.endswith(parts[-1]):
        return False
    place = len(parts[0])
    for part in parts[1:-1]:
        found = name.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return place <= len(name) - len(parts[-1])
