"""
A model of one's own as a word that a link can carry: ``own:`` and its numbers, packed.

Links, pins and saved scenarios then reopen with the same numbers anywhere, and no server keeps anybody's file.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any, TypeVar

from gpuguide.errors import InvalidScenario
from gpuguide.spec.model import Component, MediaModel, Model

PREFIX = "own:"
LONGEST_CODE = 4_000  # Scenario.model takes no more [characters]
MOST_UNPACKED = 20_000  # a model unpacks to about 1,000 [bytes]
LONGEST_NAME, LONGEST_TEXT = 80, 400
MOST = 1e17  # of any count: sums and products stay far from overflow
MOST_LAYERS, MOST_WIDTH, MOST_COMPONENTS = 10_000, 1e8, 20
LONGEST_CONTEXT = 1e9
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
KINDS = ("dense", "moe", "hybrid", "ssm", "vlm", "encoder-decoder", "diffusion", "audio")
ATTENTION = ("mha", "gqa", "mqa", "mla", "none")
TASKS = ("image", "video", "audio", "asr", "tts", "music")

Part = TypeVar("Part", Model, MediaModel, Component)


def is_carried(name: str | None) -> bool:
    """Whether the `model` of a scenario is the model itself rather than the name of one."""
    return bool(name) and str(name).startswith(PREFIX)


def carried(model: Model | MediaModel) -> str:
    """
    The model as a word that `model_of` reads back, number by number.

    Examples
    --------
    >>> from gpuguide.catalog.config import parse_config
    >>> model = parse_config({"model_type": "gpt2", "n_layer": 12, "n_embd": 768}, name="mine")
    >>> model_of(carried(model)) == model
    True
    """
    packed = zlib.compress(json.dumps(_plain(model), separators=(",", ":")).encode(), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def model_of(code: str) -> Model | MediaModel:
    """
    The model that a word carries.

    Raises
    ------
    InvalidScenario
        If the word is cut off, or says what no model can be; one sentence.
    """
    if len(code) > LONGEST_CODE:
        raise _damaged(code)
    return _unpacked(code)


@lru_cache(maxsize=64)
def _unpacked(code: str) -> Model | MediaModel:
    try:
        word = code.removeprefix(PREFIX)
        packed = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(packed, MOST_UNPACKED)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("cut off, or too long")
        values = json.loads(content)
        model: Model | MediaModel = _filled(MediaModel, values) if "task" in values else _filled(Model, values)
        _sensible(model)
    except (ValueError, TypeError, RecursionError, KeyError, AttributeError, binascii.Error, zlib.error):
        raise _damaged(code) from None
    return model


def _damaged(code: str) -> InvalidScenario:
    what = "the model in this link is cut off or damaged; load its file again"
    return InvalidScenario("model", code[:12] + "...", what)


# ---- out -------------------------------------------------------------------------------------------------------------


def _plain(part: Any) -> dict[str, Any]:
    """Fields that differ from their default, whole numbers without a point."""
    said = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if value == field.default:
            continue
        if isinstance(value, tuple):
            value = [_plain(item) for item in value]
        elif isinstance(value, str):
            printable = "".join(sign for sign in value if sign.isprintable())
            value = printable[: LONGEST_NAME if field.name == "name" else LONGEST_TEXT]
        elif not isinstance(value, bool | None):
            value = int(value) if float(value).is_integer() else float(value)
        said[field.name] = value
    return said


# ---- in: every value is checked, since anybody can write a link ------------------------------------------------------


def _filled(kind: type[Part], values: Any) -> Part:
    """A dataclass from plain values, each of its field's type and in bounds."""
    given = {}
    for field in fields(kind):
        if field.name in values:
            given[field.name] = _checked(str(field.type), values[field.name])
        elif field.default is MISSING:
            raise ValueError(f"{field.name} is missing")
    if set(values) - set(given):
        raise ValueError("there are keys that no model has")
    return kind(**given)


def _checked(kind: str, value: Any) -> Any:
    if kind.startswith("tuple"):
        if not isinstance(value, list) or len(value) > MOST_COMPONENTS:
            raise ValueError("not a list of components")
        return tuple(_filled(Component, item) for item in value)
    if kind == "bool":
        if not isinstance(value, bool):
            raise ValueError("not true or false")
        return value
    if kind.startswith("str"):
        if not isinstance(value, str) or len(value) > LONGEST_TEXT or not value.isprintable():
            raise ValueError("not a short text")
        return value
    if value is None and kind.endswith("None"):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise ValueError("not a number that counts something")  # nan too
    return float(value)


def _sensible(model: Model | MediaModel) -> None:
    """What the formulas take for granted."""
    right = model.kind in KINDS and 0 < len(model.name.strip()) <= LONGEST_NAME and model.params >= 1
    right &= not model.hub_id or bool(HUB_ID.fullmatch(model.hub_id))  # goes into commands
    if isinstance(model, MediaModel):
        right &= model.task in TASKS and bool(model.components)
        right &= all(part.params >= 1 for part in model.components)
        right &= (model.denoiser_layers or 0) <= MOST_LAYERS and (model.denoiser_hidden or 0) <= MOST_WIDTH
        optional = (model.spatial_down, model.patch, model.native_width, model.native_height, model.default_steps)
        right &= all(value is None or value >= 1 for value in optional)
    else:
        heads = float(model.heads)
        right &= 1 <= float(model.layers) <= MOST_LAYERS and all(
            1 <= float(width) <= MOST_WIDTH for width in (model.hidden, model.vocab)
        )
        right &= all(float(width) <= MOST_WIDTH for width in (model.ffn, heads, model.kv_heads, model.head_dim))
        right &= 1 <= float(model.params_active) <= float(model.params)
        right &= float(model.params_embedding + model.params_routed_experts + model.params_vision) <= model.params
        right &= model.attention in ATTENTION and (model.attention == "none") == (heads == 0)
        right &= heads == 0 or min(float(model.kv_heads), float(model.head_dim)) >= 1
        right &= float(model.layers_full + model.layers_windowed + model.layers_recurrent) <= 2 * model.layers
        right &= not model.layers_windowed or (model.kv_window or 0) >= 1
        right &= not model.is_moe or 1 <= float(model.experts_per_token) <= float(model.experts)
        right &= model.max_context is None or 1 <= model.max_context <= LONGEST_CONTEXT
        right &= model.native_bytes is None or model.native_bytes >= 1
    if not right or not math.isfinite(float(model.params)):
        raise ValueError("no model can be this")
