"""What a reader pastes or uploads, as a model: a config.json, an index beside it, or the start of a .gguf file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from gpuguide.catalog.carried import LONGEST_NAME
from gpuguide.catalog.checkpoint import MOST_INDEX, with_index
from gpuguide.catalog.config import MOST_BYTES, load_json, parse_config
from gpuguide.catalog.gguf import MOST_HEADER, GgufTensor, LongerHeader, model_of_header, parse_header
from gpuguide.errors import DataError
from gpuguide.spec.model import MediaModel, Model

PASTED = "config.json"
MOST_FILES = 32  # of one choice; published .gguf models have up to some twenty parts
MOST_SIZE = 2**50  # that a browser may claim for a file [bytes]
CHUNK = 2_000_000  # asked of the browser at a time: a fifth of what Jupyter's web socket takes [bytes]


@dataclass(slots=True)
class Upload:
    """A file in the reader's browser, and its first bytes as far as they are here."""

    name: str
    size: int
    content: bytes = b""

    @property
    def whole(self) -> bool:
        """Whether nothing is left in the browser."""
        return len(self.content) >= self.size

    @property
    def is_gguf(self) -> bool:
        """By its first bytes."""
        return self.content[:4] == b"GGUF"

    @property
    def is_index(self) -> bool:
        """By its name, or by what it starts with."""
        return self.name.endswith(".safetensors.index.json") or b'"weight_map"' in self.content[:2_000]


@dataclass(frozen=True, slots=True)
class More:
    """A file of which more bytes are needed: from here on, at most so many."""

    upload: Upload = field(repr=False)
    start: int
    stop: int


def model_of_text(text: str, letters: int | None = None) -> Model | MediaModel:
    """
    The model that a pasted config describes.

    Parameters
    ----------
    text : str
        As much of the paste as the browser sent.
    letters : int, optional
        Length of the whole paste.

    Raises
    ------
    GuideError
        If it is not the config of a known kind of model; one sentence.
    """
    content = text.encode("utf-8", "replace")
    return _config(Upload(PASTED, max(len(content), letters or 0), content))


def model_of_files(uploads: Sequence[Upload]) -> Model | MediaModel | More:
    """
    The model that the chosen files describe together, or what is still needed of one of them.

    Parameters
    ----------
    uploads : sequence of Upload
        A config.json, with the index of its weights if there is one; or a .gguf file, or all parts of one.

    Raises
    ------
    GuideError
        If they describe none; one sentence.
    """
    if not 0 < len(uploads) <= MOST_FILES:
        raise DataError(f"{len(uploads)} files", None, None, f"choose at most {MOST_FILES} files of one model")
    for upload in uploads:
        if not upload.content and upload.size:
            return More(upload, 0, min(CHUNK, upload.size))
    if any(upload.is_gguf for upload in uploads):
        return _gguf(sorted(uploads, key=lambda upload: upload.name))
    configs = [upload for upload in uploads if not upload.is_index]
    indexes = [upload for upload in uploads if upload.is_index]
    if len(configs) > 1 or len(indexes) > 1:
        raise DataError(uploads[1].name, None, None, "choose one config.json, and the index of its weights if you like")
    for upload, most in [(config, MOST_BYTES) for config in configs] + [(index, MOST_INDEX) for index in indexes]:
        _must_be_json(upload)
        if upload.size <= most and not upload.whole:
            start = len(upload.content)
            return More(upload, start, min(start + CHUNK, upload.size))
    if not configs:
        what = "an index of weights does not say the architecture: choose it together with its config.json"
        raise DataError(indexes[0].name, None, None, what)
    model = _config(configs[0])
    return with_index(model, indexes[0].content) if indexes and isinstance(model, Model) else model


def _must_be_json(upload: Upload) -> None:
    """Refuse a wrong file after its first bytes."""
    name = upload.name.casefold()
    if upload.content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" or name.endswith(".json"):
        return
    if name.endswith(".gguf"):
        raise DataError(upload.name, None, None, "does not start like a GGUF file")
    what = "choose a config.json, the index of its weights, or a .gguf file"
    if name.endswith(".safetensors"):
        what = "a weight file does not say its architecture: choose the config.json beside it"
    raise DataError(upload.name, None, None, what)


def _config(upload: Upload) -> Model | MediaModel:
    if upload.size > MOST_BYTES:
        problem = f"is {upload.size:,} bytes long; a config has at most {MOST_BYTES:,}"
        raise DataError(upload.name, None, None, problem)
    config = load_json(upload.content.removeprefix(b"\xef\xbb\xbf"), upload.name)
    return parse_config(config, name=name_of(config, upload.name), source=upload.name)


def _gguf(uploads: Sequence[Upload]) -> Model | More:
    first = uploads[0]
    metadata: dict[str, Any] = {}
    tensors: list[GgufTensor] = []
    for upload in uploads:
        try:
            found, listed = parse_header(upload.content, upload.name, upload.size)
        except LongerHeader:
            start = len(upload.content)
            if start >= MOST_HEADER:
                raise
            return More(upload, start, min(start + CHUNK, MOST_HEADER, upload.size))
        metadata = metadata or found
        tensors += listed
    count = metadata.get("split.count", 1)
    if isinstance(count, int) and max(count, 1) != len(uploads):
        raise DataError(first.name, None, None, f"is one of {max(count, 1)} parts: choose all of them together")
    model = model_of_header(metadata, tensors, first.name)
    return replace(model, name=_clean(model.name) or _stem(first.name))


# ---- names -----------------------------------------------------------------------------------------------------------


def name_of(config: Mapping[str, Any], file: str) -> str:
    """
    What to call a model: what the config calls itself, else its file's name, else its class.

    Examples
    --------
    >>> name_of({"_name_or_path": "meta-llama/Llama-3.1-8B"}, "config.json"), name_of({}, "my-model.json")
    ('Llama-3.1-8B', 'my-model')
    """
    said = config.get("_name_or_path")
    own = _clean(_last(said)) if isinstance(said, str) else ""
    stem = _stem(file)
    kind = config.get("model_type")
    return own or ("" if stem == "config" else stem) or _clean(kind if isinstance(kind, str) else "") or "model"


def _last(path: str) -> str:
    """The last part of a path or Hub id; where a model lay on somebody's disk is nobody's business."""
    if set(path) & set('<>"|?*'):
        return path  # no path
    return path.strip().rstrip("/\\").replace("\\", "/").rpartition("/")[2]


def _stem(file: str) -> str:
    name = PurePosixPath(PureWindowsPath(file).name).name
    return _clean(name.rsplit(".", 1)[0] if "." in name else name)


def _clean(name: str) -> str:
    """As it may stand in a heading: printable, and not too long."""
    kept = "".join(sign for sign in " ".join(name.split()) if sign.isprintable())
    return kept[:LONGEST_NAME].strip()
