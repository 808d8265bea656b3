"""One entry for every way to name a model: catalog name, config.json, folder, .gguf file, Hub id, or a link's word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuguide.catalog.carried import HUB_ID, is_carried, model_of
from gpuguide.catalog.config import parse_config, read_config
from gpuguide.catalog.models import Models
from gpuguide.errors import InvalidScenario, UnknownName, nearest
from gpuguide.spec.model import MediaModel, Model

MOST_LETTERS = 500
LOOKS_LIKE_PATH = re.compile(r"^(\.{0,2}[/\\]|~|[A-Za-z]:[/\\])|\.(json|gguf|safetensors)$")


def read_model(source: str, models: Models, *, base: Path | None = None) -> Model | MediaModel:
    """
    The model that a source names.

    Parameters
    ----------
    source : str
        A name of the catalog, in any spelling; a path to a `config.json`, a model folder or a `.gguf` file; a Hub id
        `owner/name`, which is asked of the Hub only where the catalog has no such model; or `own:` and a model that a
        link carries.
    models : Models
        The catalog of models.
    base : Path, optional
        Paths are read from this folder and may not leave it; left out, from the working directory and anywhere.

    Raises
    ------
    UnknownName
        If nothing goes by that name; carries the nearest names of the catalog.
    InvalidScenario, DataError, NotModelled
        If a file or an answer of the Hub cannot be used; one sentence that says why.
    """
    name = source.strip()
    if is_carried(name):
        return model_of(name)
    if not name or len(name) > MOST_LETTERS or any(ord(letter) < 32 for letter in name):
        raise InvalidScenario("model", source, "give a catalog name, a path, or a Hub id such as Qwen/Qwen3-8B")
    if not LOOKS_LIKE_PATH.search(name):
        if models.find(name) is not None:
            return models.get(name)
        path = _path(name, base, must_exist=False)
        if path is None:
            if HUB_ID.fullmatch(name) and ".." not in name and "--" not in name:
                from gpuguide.catalog.hub import read_hub_model

                return read_hub_model(name)
            raise UnknownName("model", name[:80], nearest(name.rpartition("/")[2][:80], models.names()), len(models))
    else:
        path = _path(name, base, must_exist=True)
    return _read_path(path) if path is not None else models.get(name)


def _path(name: str, base: Path | None, *, must_exist: bool) -> Path | None:
    """The file or folder of that name, inside the base folder if there is one."""
    try:
        path = Path(name).expanduser() if base is None else base / name
        resolved = path.resolve()
        if base is not None and not resolved.is_relative_to(base.resolve()):
            raise InvalidScenario("model", name, "it leads out of the folder that models are read from")
        if resolved.is_file() or resolved.is_dir():
            return path
        if resolved.exists():
            raise InvalidScenario("model", name, "it is neither a file nor a folder")
    except (OSError, RuntimeError, ValueError):
        if must_exist:
            raise InvalidScenario("model", name, "this path cannot be read") from None
        return None
    if must_exist:
        raise InvalidScenario("model", name, "there is no such file or folder")
    return None


def _read_path(path: Path) -> Model | MediaModel:
    if path.is_dir():
        from gpuguide.catalog.checkpoint import read_folder

        return read_folder(path)
    if path.suffix.casefold() == ".gguf":
        from gpuguide.catalog.gguf import read_gguf

        return read_gguf(path)
    if path.suffix.casefold() == ".safetensors":
        raise InvalidScenario("model", path.name, "one weight file does not say its architecture: give its folder")
    from gpuguide.catalog.checkpoint import inside

    return parse_config(read_config(inside(path.parent, path.name)), name=_named(path), source=path.name)


def _named(path: Path) -> str:
    """What to call a model by its config file: the folder's name where the file has the usual one."""
    return path.resolve().parent.name if path.stem == "config" else path.stem


def facts(model: Model | MediaModel) -> dict[str, Any]:
    """
    What is known of a model as plain values, for `gpuguide model`.

    Returns
    -------
    dict
        Counts in parameters, bytes, tokens and elements as whole numbers; None = not known, or does not apply.

    Notes
    -----
    Cache sizes are of one sequence at two bytes a value. With a window the saving is a lower bound: an engine whose
    pages all have one size reserves windowed layers in full (`..._no_window_saving`).
    """
    if isinstance(model, MediaModel):
        return _media_facts(model)
    full, windowed, window = model.kv_elements_full, model.kv_elements_windowed, model.kv_window

    def cache(tokens: float, *, saved: bool = True) -> int:
        held = min(tokens, window) if window and saved else tokens
        return int(2 * (full * tokens + windowed * held))

    known = model.native_bytes is not None
    return {
        "model_id": model.hub_id or model.name,
        "params_total": int(model.params),
        "params_active": int(model.params_active),
        "params_vision": int(model.params_vision),
        "tied_embeddings": int(model.tied_embeddings),
        "layers": int(model.layers),
        "kv_heads": int(model.kv_heads),
        "head_dim": int(model.head_dim),
        "weight_bytes_bf16": int(2 * model.params),
        "weight_bytes_native": int(model.native_bytes) if model.native_bytes is not None else None,
        "native_dtype": model.native_dtype if known else None,
        "kv_bytes_per_token_bf16_all_layers": int(2 * (full + windowed)),
        "kv_bytes_per_token_bf16_full_layers": int(2 * full),
        "kv_window": int(window) if window else None,
        "kv_bytes_seq4096_bf16": cache(4096.0),
        "kv_bytes_seq32768_bf16": cache(32768.0),
        "kv_bytes_seq32768_bf16_no_window_saving": cache(32768.0, saved=False),
        "recurrent_state_elems_per_sequence": int(model.recurrent_elements),
        "mtp_params_not_counted": int(model.params_mtp) or None,
        "kind": model.kind,
        "derived": model.derived,
        **_architecture(model),
        "source": model.source,
    }


def _architecture(model: Model) -> Mapping[str, Any]:
    """What was read, so that a reader can check it."""
    shape: dict[str, Any] = {
        "hidden_size": int(model.hidden),
        "intermediate_size": int(model.ffn),
        "attention_heads": int(model.heads),
        "attention": model.attention,
        "vocab_size": int(model.vocab),
        "max_context": int(model.max_context) if model.max_context else None,
        "layers_full_cache": int(model.layers_full),
        "layers_windowed_cache": int(model.layers_windowed),
        "layers_recurrent": int(model.layers_recurrent),
    }
    if model.is_moe:
        shape |= {
            "experts": int(model.experts),
            "experts_per_token": int(model.experts_per_token),
            "shared_experts": int(model.shared_experts),
            "moe_intermediate_size": int(model.moe_ffn),
            "moe_layers": int(model.moe_layers),
        }
    return shape


def _media_facts(model: MediaModel) -> dict[str, Any]:
    return {
        "model_id": model.hub_id or model.name,
        "params_total": int(model.params),
        "params_active": int(model.params),
        "layers": int(model.denoiser_layers) if model.denoiser_layers else None,
        "weight_bytes_bf16": int(2 * model.params),
        "native_dtype": model.native_dtype,
        "kv_bytes_per_token_bf16_all_layers": int(2 * model.kv_elements),
        "kind": model.kind,
        "task": model.task,
        "components": {part.role: int(part.params) for part in model.components},
        "denoiser_type": model.denoiser_type,
        "default_steps": int(model.default_steps) if model.default_steps else None,
        "source": model.source,
    }
