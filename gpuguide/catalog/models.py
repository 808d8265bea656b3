"""The catalog of models: `data/models.json`, read once, looked up by any spelling that can only mean one model."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

from gpuguide.catalog.architecture import to_model
from gpuguide.errors import DataError, UnknownName, nearest
from gpuguide.spec.model import MediaModel, Model

FILE = "models.json"
VENDORS = ("meta", "nvidia")
"""Leading words of a checkpoint's name that repeat its owner."""
VARIANTS = ("hf", "instruct", "base", "chat", "it", "pt", "bf16", "diffusers", "preview")
"""Words for another training or packing of the same architecture."""
NOISE = re.compile(r"\d{4}|\d+k")
"""Release month (2407) or context length (4k) within a name."""
FIRST_VERSION = re.compile(r"v0\.\d")

Key = tuple[str, ...]


class Models:
    """
    Models of the catalog by name.

    Parameters
    ----------
    folder : Path
        Folder with `models.json`.

    Notes
    -----
    Loading parses the file and its names only; a `Model` is built when it is asked for, and then kept.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / FILE
        try:
            entries: list[dict[str, Any]] = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(FILE, None, None, f"cannot be read ({error})") from None
        self._entries: dict[str, dict[str, Any]] = dict(zip(_short_names(entries), entries, strict=True))
        self._built: dict[str, Model | MediaModel] = {}

    @cached_property
    def _aliases(self) -> dict[Key, str]:
        aliases: dict[Key, str] = {}
        spelled = {name: _spellings(name, entry["id"]) for name, entry in self._entries.items()}
        # The most exact spelling of any model goes before a shortened spelling of another.
        for level in range(4):
            for name, spellings in spelled.items():
                aliases.setdefault(spellings[level], name)
        for family, name in _families(self._entries).items():
            aliases.setdefault(family, name)
        return aliases

    @property
    def ids(self) -> list[str]:
        """Owner and name of every checkpoint, in the file's order."""
        return [entry["id"] for entry in self._entries.values()]

    def names(self) -> list[str]:
        """Short names, in the file's order."""
        return list(self._entries)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> Model | MediaModel:
        """
        The model of the given name: short name or checkpoint id, whatever the case, the owner and the separators.

        Raises
        ------
        UnknownName
            If no model, or more than one, can be meant; carries the nearest names.
        """
        found = self.find(name)
        if found is None:
            shown = name if len(name) <= 80 else name[:77] + "..."
            raise UnknownName("model", shown, nearest(shown.rpartition("/")[2], self._entries), len(self._entries))
        if found not in self._built:
            self._built[found] = to_model(self._entries[found], found)
        return self._built[found]

    def entry(self, name: str) -> dict[str, Any]:
        """The object of the file behind a model, with its licence, note and the rest that no formula uses."""
        return self._entries[self.get(name).name]

    def find(self, name: str) -> str | None:
        """Short name of the one model that the given name can mean, or None."""
        if name in self._entries:
            return name
        if len(name) > 200:
            return None
        plain = name.strip().rpartition("/")[2]
        for words in (_words(plain), _without(_words(plain), VARIANTS), _without(_words(plain), VARIANTS, noise=True)):
            key = _key(words)
            if key in self._aliases:
                return self._aliases[key]
        key = _key(_without(_words(plain), VARIANTS))
        if len(key) < 2:
            return None
        # 'llama-4-scout' for llama-4-scout-17b-16e: a beginning that only one model has, and that cuts no size in two.
        starts = {
            found
            for alias, found in self._aliases.items()
            if alias[: len(key)] == key
            and not (key[-1].isdigit() and alias[len(key) : len(key) + 1] in (("b",), ("m",)))
        }
        return starts.pop() if len(starts) == 1 else None


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[-_\s]+", name.casefold()) if word]


def _without(words: list[str], drop: tuple[str, ...], *, noise: bool = False) -> list[str]:
    kept = words[1:] if len(words) > 1 and words[0] in VENDORS else words
    kept = [word for word in kept if word not in drop and not (noise and NOISE.fullmatch(word))]
    return kept or words


def _key(words: list[str]) -> Key:
    """Runs of letters and of digits: 'Llama-3.1-8B' and 'llama_3_1 8b' are one, 'qwen2.5-7b' and 'qwen2-57b' two."""
    return tuple(re.findall(r"\d+|[^\W\d_]+", "-".join(words)))


def _short_names(entries: list[dict[str, Any]]) -> list[str]:
    """The shortest of each model's spellings that no other model has."""
    spelled = []
    for entry in entries:
        words = _words(entry["name"])
        plain = _without(words, VARIANTS, noise=True)
        unversioned = [word for word in plain if not FIRST_VERSION.fullmatch(word)]
        spelled.append(["-".join(unversioned), "-".join(plain), "-".join(words)])
    shortest = [name[0] for name in spelled]
    longer = [name[1] for name in spelled]
    return [
        name[0] if shortest.count(name[0]) == 1 else name[1] if longer.count(name[1]) == 1 else name[2]
        for name in spelled
    ]


def _spellings(name: str, identity: str) -> list[Key]:
    """Ways to write one model, the most exact first."""
    words = _words(identity.rpartition("/")[2])
    plain = _without(words, VARIANTS, noise=True)
    return [
        _key(words),
        _key(_words(name)),
        _key(_without(words, VARIANTS)),
        _key([word for word in plain if not FIRST_VERSION.fullmatch(word) and word != "t2v"]),
    ]


def _families(entries: dict[str, dict[str, Any]]) -> dict[Key, str]:
    """Families that are one size of model, by name: 'SDXL', 'Kimi K2'."""
    members: dict[Key, list[str]] = {}
    for name, entry in entries.items():
        members.setdefault(_key(_words(entry["family"])), []).append(name)
    return {key: names[0] for key, names in members.items() if len({entries[n]["params_total"] for n in names}) == 1}
