"""A model of the Hugging Face Hub: its config, and the bytes its index states; small files only, nothing run."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gpuguide.catalog.checkpoint import CONFIG, INDEX, MOST_INDEX, with_index
from gpuguide.catalog.config import MOST_BYTES, load_json, parse_config
from gpuguide.errors import DataError, InvalidScenario, NotModelled, UnknownName
from gpuguide.spec.model import MediaModel, Model

ANSWER_WITHIN_S = 20.0  # whole question, all files [s]
CONNECT_WITHIN_S = 5.0  # first answer of the Hub to one request [s]

Result = TypeVar("Result")


def read_hub_model(identity: str, *, within_s: float = ANSWER_WITHIN_S) -> Model | MediaModel:
    """
    The model `owner/name` of the Hub.

    Parameters
    ----------
    identity : str
        Hub id.
    within_s : float
        Longest wait for everything. [s]

    Raises
    ------
    NotModelled
        If the `hub` extra is not installed.
    UnknownName
        If the Hub has no such model, or none that this user may see.
    InvalidScenario
        If the Hub cannot be reached, refuses, is too slow, or its file is not a config; one sentence that says which.

    Notes
    -----
    Asks for `config.json` and, where there is one, the index of the weights. No code of the repository is fetched or
    run. The library's cache is used, so a second question needs no network; `HF_ENDPOINT`, `HF_TOKEN` and
    `HF_HUB_OFFLINE` are its own settings.
    """
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise NotModelled(
            f"asking the Hub for {identity}", "install it with pip install 'gpuguide[hub]', or give a config.json"
        ) from None
    config = _within(within_s, identity, lambda: _fetched(identity, CONFIG, MOST_BYTES))
    if config is None:
        raise InvalidScenario("model", identity, f"the Hub has this repository, but no {CONFIG} in it")
    model = parse_config(
        load_json(config, f"{identity}/{CONFIG}"), name=identity.partition("/")[2], source=f"Hub: {identity}"
    )
    model = replace(model, hub_id=identity)
    if isinstance(model, MediaModel):
        return model
    with contextlib.suppress(InvalidScenario, UnknownName, DataError):
        # Without an index (one weight file) or without an answer the config's own count of bytes stands.
        index = _within(within_s / 2, identity, lambda: _fetched(identity, INDEX, MOST_INDEX))
        return with_index(model, index) if index else model
    return model


def _within(seconds: float, identity: str, work: Callable[[], Result]) -> Result:
    """The result of some work, or a sentence when it takes too long: a slow server must not hold the caller."""
    done: list[Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # handed to the caller's thread below
            failed.append(error)

    worker = threading.Thread(target=run, daemon=True, name="hub")
    worker.start()
    worker.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise InvalidScenario(
            "model", identity, f"the Hub did not answer within {seconds:g} s; try again, or give a config.json"
        )
    return done[0]


def _fetched(identity: str, name: str, most_bytes: int) -> bytes | None:
    """A small file of a repository, from the cache where the Hub says it is current; None where there is none."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    cached = try_to_load_from_cache(identity, name)
    try:
        if not HF_HUB_OFFLINE:
            size = get_hf_file_metadata(hf_hub_url(identity, name), timeout=CONNECT_WITHIN_S).size
            if size is not None and size > most_bytes:
                raise InvalidScenario(
                    "model", identity, f"its {name} has {size:,} bytes; at most {most_bytes:,} are read"
                )
        path = Path(hf_hub_download(identity, name, etag_timeout=CONNECT_WITHIN_S))
        if path.stat().st_size > most_bytes:
            raise InvalidScenario("model", identity, f"its {name} is longer than {most_bytes:,} bytes")
        return path.read_bytes()
    except GatedRepoError:
        raise InvalidScenario(
            "model",
            identity,
            "it is gated: accept its licence on the Hub and log in with `hf auth login`, or give a config.json",
        ) from None
    except RepositoryNotFoundError as error:
        if getattr(error.response, "status_code", 404) == 401:
            what = "the Hub shows it to nobody without a token: check the name, or log in with `hf auth login`"
            raise InvalidScenario("model", identity, what) from None
        raise UnknownName("model on the Hub", identity) from None
    except LocalEntryNotFoundError:
        if isinstance(cached, str):
            return Path(cached).read_bytes()
        raise InvalidScenario("model", identity, _unreachable(bool(HF_HUB_OFFLINE))) from None
    except EntryNotFoundError:
        return None
    except OfflineModeIsEnabled:
        raise InvalidScenario("model", identity, _unreachable(True)) from None
    except HfHubHTTPError as error:
        if isinstance(cached, str):
            return Path(cached).read_bytes()
        raise InvalidScenario("model", identity, _status(getattr(error.response, "status_code", None))) from None
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        if isinstance(cached, str):
            return Path(cached).read_bytes()
        raise InvalidScenario("model", identity, _unreachable(False)) from None
    except Exception as error:
        # Errors of whichever HTTP library is installed: connection refused, timed out, cut off within the body.
        if isinstance(error, InvalidScenario | UnknownName):
            raise
        if isinstance(cached, str):
            return Path(cached).read_bytes()
        raise InvalidScenario("model", identity, _broken(error)) from None


def _unreachable(offline: bool) -> str:
    if offline:
        return "the Hub is switched off (HF_HUB_OFFLINE) and this model is not in its cache; give a config.json"
    return "the Hub cannot be reached and this model is not in its cache; give a config.json"


def _status(status: int | None) -> str:
    if status == 429:
        return "the Hub says that too many requests came from here; wait a minute, or log in with `hf auth login`"
    if status in (401, 403):
        return "the Hub refuses to show it: log in with `hf auth login` and accept its licence there"
    if status is not None and status >= 500:
        return f"the Hub has a fault of its own (status {status}); try again later, or give a config.json"
    return f"the Hub refused (status {status}); check the name" if status else "the Hub's answer makes no sense"


def _broken(error: Exception) -> str:
    name = type(error).__name__.lower()
    if "timeout" in name:
        return f"the Hub did not answer within {CONNECT_WITHIN_S:g} s; try again, or give a config.json"
    if "connect" in name:
        return _unreachable(False)
    return "the Hub's answer was cut off or makes no sense; try again, or give a config.json"
