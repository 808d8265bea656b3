"""
What a row of a serving table means: its words as a model, a format, an engine in the right version and a card.

Rows come from logs and issue threads, so spelling is free and settings may stand in a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuguide.errors import GuideError
from gpuguide.spec.engine import Engine
from gpuguide.spec.hardware import Nodes
from gpuguide.spec.model import Model
from gpuguide.spec.precision import WeightFormat
from gpuguide.units import BILLION, GIB

if TYPE_CHECKING:
    from gpuguide.catalog.catalog import Catalog

Row = Mapping[str, Any]

SIZE_TOLERANCE = 0.12
"""A name's size against a model's parameters: '7B' stands for 6.7 to 7.6 billion. [-]"""
TYPICAL_DEPTH_SHARE = 12.5
"""Parameters of a gated decoder layer over the square of its width; 12.0 (Llama 2) to 13.0 (Qwen 2.5). [-]"""
STAND_IN_GPU = "H100-SXM"
"""Whose other figures stand beside a memory size that a row gives without a card; memory estimates use none of them."""
PACKING = re.compile(
    r"[-_. ](?:gptq|awq|gguf|bnb|nvfp4|mxfp4|nf4|fp8|int[48]|w\d+a\d+|[48]-?bit|quantized|dynamic|static|marlin|exl[23]"
    r"|qat|i?q\d\w*|bf16|fp16|f16)\b.*$",
    re.IGNORECASE,
)
"""What a checkpoint's name says of its packing, to the end of the name."""
ENGINE_WORDS = {
    "gpt-fast": "gpt-fast",
    "vllm": "vllm",
    "sglang": "sglang",
    "trt": "tensorrt-llm",
    "tensorrt": "tensorrt-llm",
    "llama": "llama.cpp",
    "lm studio": "llama.cpp",
    "ollama": "llama.cpp",
    "gguf": "llama.cpp",
    "autoawq": "transformers-2023",
    "transformers": "transformers",
    "exllama": "transformers",
}
"""Words by which rows name an engine, and the preset or the family meant."""
KV_BYTES = {
    r"fp8|float8|e4m3|e5m2|int8": 1.0,
    r"fp32|float32": 4.0,
    r"q8": 1.0625,
    r"q5": 0.6875,
    r"q4|fp4|int4": 0.5625,
}
"""Width of a cached value by what the name of its type holds; else 16-bit. [bytes]"""


class NotScoreable(Exception):
    """A row that cannot be estimated; says why."""


def number(row: Row, *columns: str) -> float | None:
    """The first of the columns that holds a number."""
    for column in columns:
        try:
            value = float(row.get(column))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if np.isfinite(value):
            return value
    return None


def text(row: Row, column: str) -> str:
    """A cell as text; empty where there is none."""
    value = row.get(column)
    return value.strip() if isinstance(value, str) else ""


def setting(row: Row, name: str) -> float | None:
    """A server setting that a note spells out, such as 'max_num_seqs 8' or '--max-num-seqs=8'."""
    spelled = name.replace("_", "[-_ ]")
    found = re.search(rf"{spelled}[ =:]+(\d+)", _notes(row), re.IGNORECASE)
    return float(found.group(1)) if found else None


def flag(row: Row, name: str) -> bool:
    """Whether a note names a switch, such as 'enforce eager'."""
    spelled = rf"(?<!without )(?<!without --){name.replace('_', '[-_ ]')}"
    return any(re.search(spelled, clause, re.IGNORECASE) for clause in _notes(row).split(";"))


def kv_bytes_of(row: Row) -> float:
    """Width of a cached value. [bytes]"""
    named = (text(row, "kv_dtype") or text(row, "kv_precision")).casefold()
    return next((width for pattern, width in KV_BYTES.items() if re.search(pattern, named)), 2.0)


def _notes(row: Row) -> str:
    return "; ".join(text(row, column) for column in ("notes", "other_settings", "parallel_note") if text(row, column))


# ---- engine ---------------------------------------------------------------------------------------------------------


def engine_of(row: Row, engines: Mapping[str, Engine]) -> Engine:
    """The preset of the engine and version a row names; its date decides where it names no version."""
    words = text(row, "engine").casefold()
    named = next((target for word, target in ENGINE_WORDS.items() if word in words), None)
    if named is None:
        raise NotScoreable(f"engine '{text(row, 'engine')}' is not in the catalog")
    if named in engines and engines[named].family != named:
        return engines[named]
    presets = sorted((e for e in engines.values() if e.family == named and e.name != "gpt-fast"), key=_since)
    presets = [e for e in presets if not (named == "transformers" and "autoawq" in words)] or presets
    version = text(row, "engine_version") or " ".join(re.findall(r"v?\d+\.\d+[\d.]*", words))
    digits = re.search(r"\d+(?:\.\d+)+", version)
    if re.fullmatch(r"v0", version.strip(), re.IGNORECASE):
        return presets[0]
    if digits and named != "llama.cpp":
        return [e for e in presets if _since(e) <= _version(digits.group())][-1]
    if re.fullmatch(r"v1", version.strip(), re.IGNORECASE):
        return next((e for e in presets if e.since), presets[-1])
    if named == "vllm" and number(row, "activation_peak_gib", "gpu_blocks") is not None:
        # Only the V0 worker printed these unasked, and it served until it was removed in 0.11.
        presets = [e for e in presets if not e.since] or presets
    date = (re.search(r"\d{4}-\d{2}(?:-\d{2})?", text(row, "source_date")) or [""])[0]
    known = [e for e in presets if not e.released or not date or e.released <= date]
    return known[-1]


def _since(engine: Engine) -> tuple[int, ...]:
    return _version(engine.since)


def _version(words: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", words))


# ---- weight format --------------------------------------------------------------------------------------------------


def format_of(row: Row, formats: Mapping[str, WeightFormat], model: Model) -> WeightFormat:
    """The stored format a row names, by its own column, its precision or the checkpoint's name."""
    spelled = _spellings(formats)
    for column in ("weight_format", "weight_precision", "model"):
        found = _find_format(text(row, column), spelled, formats)
        if found is not None:
            return (
                formats["mxfp4-all"] if found.experts_only and not model.is_moe and found.family == "float" else found
            )
    return formats[model.native_dtype] if model.native_dtype in formats else formats["bf16"]


def _spellings(formats: Mapping[str, WeightFormat]) -> dict[str, WeightFormat]:
    """Formats by every known spelling, the longest first."""
    known = {_plain(alias): form for form in formats.values() for alias in form.aliases.split("|") if alias}
    known |= {_plain(name): form for name, form in formats.items()}
    return dict(sorted(known.items(), key=lambda item: -len(item[0])))


def _find_format(
    words: str, spelled: Mapping[str, WeightFormat], formats: Mapping[str, WeightFormat]
) -> WeightFormat | None:
    plain = _plain(words)
    if not plain:
        return None
    if plain in spelled:
        return spelled[plain]
    bits = re.search(r"(\d+(?:\.\d+)?) ?bpw", plain)
    quantised = [form for form in formats.values() if form.family == "exl2"]
    padded = f" {plain} "
    # What comes first is meant ('4-bit linear layers, 16-bit embeddings'); of two that begin there, the longer.
    places = [(padded.find(f" {alias} "), -len(alias), form.name) for alias, form in spelled.items()]
    named = min((place for place in places if place[0] >= 0), default=None)
    if named is not None:
        return formats[named[2]]
    if bits:
        return min(quantised, key=lambda form: abs(form.bits_per_weight - float(bits.group(1))))
    return None


def _plain(words: str) -> str:
    """Case, hyphens and brackets do not tell formats apart."""
    return re.sub(r"[\s\-_/,+()]+", " ", words.casefold()).strip()


# ---- model ----------------------------------------------------------------------------------------------------------


def model_of(row: Row, catalog: Catalog) -> Model:
    """
    The model a row names.

    In this order: by name; by the name without its packing; a catalog model of the same family and size, or of the same
    layers, heads and size; else one derived from the row's own columns.

    Raises
    ------
    NotScoreable
        If the row does not even give a size.
    """
    name = text(row, "model")
    for spelling in dict.fromkeys((name, PACKING.sub("", name), re.sub(r" *\(.*\)", "", PACKING.sub("", name)))):
        try:
            found = catalog.model(spelling)
        except GuideError:
            continue
        if isinstance(found, Model):
            return found
    size = (number(row, "params_b") or size_in_name(name) or 0.0) * BILLION
    if not size:
        raise NotScoreable(f"model '{name}' is not in the catalog, and its size is not given")
    shape = _shape(row)
    near = _nearest(name, size, shape, catalog)
    if near is not None:
        return near
    active = re.search(r"a(\d+(?:\.\d+)?)b\b", name, re.IGNORECASE)
    active_b = number(row, "active_params_b") or (float(active.group(1)) if active else None)
    if active_b and active_b * BILLION < 0.8 * size:
        return _scaled_mixture(name, size, active_b * BILLION, catalog)
    return _derived(name, size, shape, catalog)


def size_in_name(name: str) -> float | None:
    """Billions of parameters that a name states: 'Qwen3-30B-A3B' is 30, 'Mixtral-8x7B' 46.7."""
    mixture = re.search(r"(\d+)x(\d+(?:\.\d+)?)b\b", name, re.IGNORECASE)
    if mixture:
        # Experts share attention and embeddings: 46.7 of 8 x 7, 140.6 of 8 x 22.
        return float(mixture.group(1)) * float(mixture.group(2)) * 0.82
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z])", name.replace("_", "-"), re.IGNORECASE)
    return float(found.group(1)) if found else None


def _shape(row: Row) -> dict[str, float]:
    """Layers by kind, KV heads and head width, as far as the columns say: '60 (50 SWA window 1024, 10 full)'."""
    words = str(row.get("n_layers") or "")
    shape: dict[str, float] = {}
    for key, pattern in {
        "layers": r"^\s*(\d+)",
        "windowed": r"(\d+) (?:SWA|sliding|windowed|local)",
        "window": r"window (\d+)",
        "full": r"(\d+) (?:full|global)",
        "recurrent": r"(\d+) (?:gated|linear|mamba|recurrent|ssm|kda)",
    }.items():
        found = re.search(pattern, words, re.IGNORECASE)
        if found:
            shape[key] = float(found.group(1))
    for key, column in {"kv_heads": "n_kv_heads", "head_dim": "head_dim"}.items():
        value = number(row, column)
        if value:
            shape[key] = value
    return shape


def _nearest(name: str, size: float, shape: Mapping[str, float], catalog: Catalog) -> Model | None:
    """A catalog model that must have the same architecture: same size, and the same family or the same shape."""
    family = _family(name)
    candidates = []
    for model in _language_models(catalog):
        off = abs(float(model.params) / size - 1)
        if off > SIZE_TOLERANCE:
            continue
        facts = {"layers": model.layers, "kv_heads": model.kv_heads, "head_dim": model.head_dim}
        facts |= {"full": model.layers_full, "recurrent": model.layers_recurrent, "windowed": model.layers_windowed}
        agrees = all(float(facts[key]) == value for key, value in shape.items() if key in facts)
        same_family = _family(model.name) == family
        if agrees and (same_family or len(shape) >= 3):
            candidates.append((not same_family, bool(model.params_vision) != ("vl" in name.casefold()), off, model))
    return min(candidates, key=lambda item: item[:3])[3] if candidates else None


def _derived(name: str, size: float, shape: Mapping[str, float], catalog: Catalog) -> Model:
    """A decoder of the given size with the row's shape; vocabulary and tying as the nearest of its family."""
    relatives = [m for m in _language_models(catalog) if _family(m.name) == _family(name)]
    relative = min(relatives or _language_models(catalog), key=lambda m: abs(np.log(float(m.params) / size)))
    layers = shape.get("layers", float(relative.layers))
    vocab, copies = float(relative.vocab), 1.0 if relative.tied_embeddings else 2.0
    # Width from: layers x 12.5 x width^2 + copies x vocabulary x width = size.
    a, b = layers * TYPICAL_DEPTH_SHARE, copies * vocab
    hidden = float(np.round((-b + np.sqrt(b * b + 4 * a * size)) / (2 * a) / 128) * 128) or 128.0
    kv_heads, head_dim = shape.get("kv_heads", 8.0), shape.get("head_dim", 128.0)
    windowed, recurrent = shape.get("windowed", 0.0), shape.get("recurrent", 0.0)
    full = shape.get("full", layers - windowed - recurrent)
    embedding = vocab * hidden
    return replace(
        relative,
        name=name, hub_id="", kind="dense", derived=True, source="size and columns of the row",
        params=size, params_active=size, params_embedding=embedding, params_lm_head=0.0 if copies == 1 else embedding,
        params_routed_experts=0.0, params_vision=0.0, params_mtp=0.0,
        layers=layers, hidden=hidden, ffn=3.0 * hidden, heads=max(hidden / head_dim, kv_heads), kv_heads=kv_heads,
        head_dim=head_dim, max_context=None, attention="gqa", kv_lora_rank=0.0, q_lora_rank=0.0, qk_rope_head_dim=0.0,
        kv_window=shape.get("window") if windowed else None, layers_full=full, layers_windowed=windowed,
        layers_recurrent=recurrent, kv_elements_full=2 * full * kv_heads * head_dim,
        kv_elements_windowed=2 * windowed * kv_heads * head_dim, recurrent_elements=recurrent * hidden * 128.0,
        experts=0.0, experts_per_token=0.0, shared_experts=0.0, moe_ffn=0.0, moe_layers=0.0, native_dtype="bf16",
        native_bytes=None,
    )  # fmt: skip


def _scaled_mixture(name: str, size: float, active: float, catalog: Catalog) -> Model:
    """The mixture of experts most like the one named, with as many experts as its size asks for."""
    relatives = [model for model in _language_models(catalog) if model.is_moe and not model.params_vision]
    like = min(
        relatives,
        key=lambda m: abs(np.log(float(m.params) / size)) + abs(np.log(float(m.params_active) / active)),
    )
    experts = max(float(like.params_routed_experts) + size - float(like.params), 0.5 * size)
    return replace(
        like, name=name, hub_id="", derived=True, source=f"size of the row, shape of {like.name}", params=size,
        params_active=active, params_routed_experts=experts, native_bytes=None,
    )  # fmt: skip


def _language_models(catalog: Catalog) -> list[Model]:
    found = (catalog.model(name) for name in catalog.models.names())
    return [model for model in found if isinstance(model, Model)]


def _family(name: str) -> str:
    """Leading letters of a name: 'Qwen3.8-27B' and 'Qwen2-72B' are one family."""
    return (re.match(r"[a-z]+", name.casefold().rpartition("/")[2]) or [""])[0]


# ---- machine --------------------------------------------------------------------------------------------------------


def nodes_of(row: Row, catalog: Catalog, gpus: float, *, any_card: bool = False) -> Nodes:
    """
    The machine a row ran on, with the card's memory as the row states it; any card where only weights are asked.

    Raises
    ------
    NotScoreable
        If the card is not in the catalog and its memory is not stated.
    """
    name = text(row, "gpu")
    stated = number(row, "gpu_total_gib", "gpu_mem_gib")
    known = name if name in catalog.gpus else named_card(name, catalog.gpus)
    if stated is None and known is None:
        written = re.search(r"(\d+(?:\.\d+)?) ?(?:GiB|GB)", name)
        if not written and not any_card:
            raise NotScoreable("GPU is not in the catalog")
        stated = float(written.group(1)) if written else None
    nodes = catalog.nodes(known or STAND_IN_GPU, int(min(gpus, 8)), max(1, int(np.ceil(gpus / 8))))
    if stated is not None:
        nodes = replace(nodes, memory_bytes=np.array([stated * GIB]))
    return nodes if known else replace(nodes, gpu=np.array([name], dtype=object))


def named_card(name: str, gpus: Iterable[str]) -> str | None:
    """
    The card that a text such as 'NVIDIA A100 80GB' or 'RTX 3090 Ti' means.

    Notes
    -----
    The longest chip named (the first word of a card's name that has a digit), then most of the card's other words.
    """
    folded = name.casefold()
    best: tuple[int, int, int, str] | None = None
    for card in gpus:
        parts = card.casefold().split("-")
        chip = next((part for part in parts if re.search(r"\d", part)), parts[0])
        spaced = r"[\s\-_]*".join(re.findall(r"[a-z]+|\d+", chip))
        if re.search(rf"(?<![a-z0-9]){spaced}(?![a-z0-9])", folded):
            found = (len(chip), sum(part in folded for part in parts), -len(parts), card)
            best = found if best is None or found[:3] > best[:3] else best
    return best[3] if best else None
