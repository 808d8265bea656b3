"""A Hugging Face `config.json` as a model: every parameter and cached value counted as its class would make them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuguide.catalog.families import DECODERS, FAMILIES, SAME_AS
from gpuguide.catalog.families.draft import Draft
from gpuguide.catalog.families.stored import stored
from gpuguide.catalog.families.values import Values, class_facts
from gpuguide.errors import DataError, InvalidScenario, NotModelled
from gpuguide.spec.model import Component, MediaModel, Model

MOST_BYTES = 2_000_000  # of a config: the largest known are under one megabyte
MOST_PARTS = 20_000  # lists and objects in it: the largest known have some hundreds
ESSENTIAL = ("num_hidden_layers", "hidden_size")
"""What a config must say itself: with neither, a class default would pass for an answer about this file."""
INSTEAD = {"num_hidden_layers": ("hybrid_override_pattern", "layers_block_type", "decoder_layers")}
"""Keys from which a class takes the number of layers otherwise."""
LLAMA_LIKE = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
    "tie_word_embeddings", "hidden_act", "rms_norm_eps",
)  # fmt: skip
"""Keys that make an unknown class readable as a Llama-like decoder."""
NOT_LLAMA = re.compile(
    r"expert|moe|lora_rank|mamba|ssm|state|conv|linear_attn|layers_block|layer_types|text_config|vision|audio|encoder|"
    r"decoder_layers|per_layer|shared|norm_type|parallel|alibi|qk_|altup|engram|hyper|loop|index_|mtp|"
    r"^(?!attention_bias|mlp_bias).*bias"
)
"""Key names that show a structure which a Llama-like decoder does not have."""


def read_config(path: Path) -> dict[str, Any]:
    """
    The object in a config file.

    Raises
    ------
    DataError
        If the file is too large, is not JSON, or is not an object.
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise DataError(path.name, None, None, f"is {size:,} bytes long; a config has at most {MOST_BYTES:,}")
        with path.open("rb") as file:
            return load_json(file.read(MOST_BYTES + 1), path.name)
    except OSError as error:
        raise DataError(path.name, None, None, f"cannot be read ({error.strerror or error})") from None


def load_json(content: bytes, name: str, *, most_parts: int = MOST_PARTS) -> dict[str, Any]:
    """The JSON object in some bytes, of at most so many lists and objects; what is not one is refused in a sentence."""
    parts = content.count(b"[") + content.count(b"{")
    if parts > most_parts:
        # Each would take twenty times its bytes of memory.
        raise DataError(name, None, None, f"has {parts:,} lists and objects; at most {most_parts:,} are read")
    try:
        value = json.loads(content)
    except RecursionError:
        raise DataError(name, None, None, "is nested too deeply for a config") from None
    except json.JSONDecodeError as error:
        raise DataError(name, None, None, f"is not JSON (line {error.lineno}, column {error.colno})") from None
    except ValueError:
        raise DataError(name, None, None, "is not JSON (not text, or a number too long)") from None
    if not isinstance(value, dict):
        raise DataError(name, None, None, "is not a JSON object with the keys of a model")
    return value


def parse_config(config: Mapping[str, Any], *, name: str = "", source: str = "config.json") -> Model | MediaModel:
    """
    The model that a config describes.

    Parameters
    ----------
    config : mapping
        As read from JSON.
    name : str
        To show; by default what the config says of itself.
    source : str
        Where it was found.

    Raises
    ------
    NotModelled
        If the model class is not known here and its keys do not settle its structure.
    InvalidScenario
        If a key that decides the answer is missing or impossible.

    Notes
    -----
    Counts follow the classes of transformers 5.24, with which they were compared on some hundred shapes a family.
    A key that the config leaves out takes its class default, which `source` then names.
    """
    shown = str(name or config.get("_name_or_path") or "model")[:200]
    model_type = _model_type(config)
    known = model_type in FAMILIES
    defaulted: list[str] = []
    values = Values(config, model_type if known else "llama", defaulted=defaulted)
    _require(values, model_type)
    draft = Draft()
    (FAMILIES[model_type] if known else DECODERS["llama"])(values, draft)
    native_dtype, native_bytes = stored(draft, _dtype(config), _quantization(config))
    note = f"{source}: {model_type}, counted as its class does"
    if not known:
        note = (
            f"{source}: {model_type}, an unknown class, read as a Llama-like decoder because every key of one is there"
        )
    if defaulted:
        listed = ", ".join(defaulted[:6]) + (f" and {len(defaulted) - 6} more" if len(defaulted) > 6 else "")
        note += f"; class defaults for {listed}"
    model = draft.model(
        name=shown, source=note, native_dtype=native_dtype, native_bytes=native_bytes, derived=not known
    )
    return _as_media(model, draft) if model_type == "whisper" else model


def _model_type(config: Mapping[str, Any]) -> str:
    """The class that the config names, or can only mean."""
    if "_class_name" in config:
        raise NotModelled("a diffusers config", "give an image or video model by its name in the catalog")
    said = config.get("model_type")
    architectures = config.get("architectures")
    written = architectures[0] if isinstance(architectures, list) and architectures else ""
    if isinstance(said, str) and said:
        model_type = SAME_AS.get(said, said)
    elif isinstance(written, str) and written:
        stem = re.sub(r"(For[A-Z]\w*|LMHeadModel|Model)$", "", written)
        folded = {family.replace("_", ""): family for family in FAMILIES}
        model_type = folded.get(stem.casefold(), stem or "?")
    else:
        raise InvalidScenario("model", "this config", "it lacks model_type, which says what class of model it is")
    if model_type in FAMILIES:
        return model_type
    why = _unlike_llama(config, str(written))
    if why:
        known = f"it is none of the {len(FAMILIES)} known classes, and cannot be read as a Llama-like decoder"
        raise NotModelled(f"model_type '{model_type[:60]}'", f"{known} because it {why}")
    return model_type


def _unlike_llama(config: Mapping[str, Any], written: str) -> str:
    """Why an unknown class may not be read as a Llama-like decoder; empty where every key says that it is one."""
    lacking = [key for key in LLAMA_LIKE if key not in config]
    if lacking:
        return f"lacks {', '.join(lacking[:3])}"
    set_keys = [str(key) for key in config if config[key] not in (None, False, [], {})]
    strange = [key[:40] for key in set_keys if NOT_LLAMA.search(key)]
    if strange:
        return f"has {', '.join(strange[:3])}"
    return "" if written.endswith("ForCausalLM") else "is no causal decoder"


def _require(values: Values, model_type: str) -> None:
    """A top-level decoder must state its size itself."""
    if class_facts().get(model_type, {}).get("parts"):
        return
    for key in ESSENTIAL:
        if not values.has(key) and not any(values.has(name) for name in INSTEAD.get(key, ())):
            raise values.missing(key)


def _dtype(config: Mapping[str, Any]) -> str | None:
    for part in (config, config.get("text_config"), config.get("llm_config")):
        if isinstance(part, Mapping):
            for key in ("dtype", "torch_dtype"):
                if isinstance(part.get(key), str):
                    return str(part[key])
    return None


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for part in (config, config.get("text_config")):
        found = part.get("quantization_config") if isinstance(part, Mapping) else None
        if isinstance(found, Mapping) and found:
            return found
    return None


def _as_media(model: Model, draft: Draft) -> MediaModel:
    """Whisper, as the pipelines of audio know it."""
    return MediaModel(
        name=model.name,
        kind="audio",
        task="asr",
        source=model.source,
        params=float(model.params),
        components=(Component(role="whole model", params=float(model.params), cls="WhisperForConditionalGeneration"),),
        denoiser_type="autoregressive",
        denoiser_layers=float(draft.layers),
        denoiser_hidden=float(draft.hidden),
        kv_elements=float(draft.cache_full),
        native_dtype=model.native_dtype,
    )
