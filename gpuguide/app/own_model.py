"""
The reader's own model: paste or choose its file, or name it on the Hub; the page goes on with what was read.

The browser sends no more than is asked for: the start of a long paste, and files piece by piece, so that of a .gguf
file of many gigabytes only the header travels. The server keeps nothing, and opens no path that a reader types.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from gpuguide.app.location import Browser
from gpuguide.app.own_files import CHUNK, MOST_FILES, MOST_SIZE, More, Upload, model_of_files, model_of_text
from gpuguide.app.wording import error_sentence
from gpuguide.catalog.carried import HUB_ID, LONGEST_NAME, carried, model_of
from gpuguide.catalog.config import MOST_BYTES
from gpuguide.errors import GuideError, InvalidScenario
from gpuguide.show.html import Html, button, tag
from gpuguide.spec.model import MediaModel, Model
from gpuguide.text import Text

logger = logging.getLogger(__name__)

Take = Callable[[Model | MediaModel], None]
Found = Model | MediaModel | Exception

OPEN_QUESTIONS = threading.BoundedSemaphore(3)
"""Questions to the Hub that one kernel may have open, cancelled ones included."""


class OwnModel:
    """
    The disclosure beside the choice of a model.

    Parameters
    ----------
    browser : Browser
        Sends what is typed and chosen, and is asked for more of it.
    take : callable
        Makes a model the page's own; raises a GuideError where the page has no use for it.
    lead, taken : str
        Text keys of what to do here, and of what happened.
    """

    def __init__(self, browser: Browser, take: Take, *, lead: str = "own.lead", taken: str = "own.taken") -> None:
        self._browser, self._take, self._lead, self._taken = browser, take, lead, taken
        self._form, self._answer = widgets.HTML(), widgets.HTML()
        self.widget = widgets.VBox([self._form, self._answer])
        self.widget.add_class("gg-own")
        self._text = Text("en")
        self._ticket = 0  # of the last thing asked for; answers to earlier ones come too late
        self._uploads: list[Upload] = []
        self._wanted: More | None = None
        self._said: Callable[[Text], Html] | None = None

    # ---- words -------------------------------------------------------------------------------------------------------

    def relabel(self, text: Text) -> None:
        """Say everything in another language."""
        self._text = text
        paste = tag("textarea", rows="4", spellcheck="false", autocomplete="off", data_most=MOST_BYTES)
        files = tag(
            "label",
            tag("input", type="file", multiple=True, data_own_files=True),
            tag("span", text("own.choose"), class_="gg-button"),
            class_="gg-own-file",
        )
        hub = tag("input", type="text", placeholder="Qwen/Qwen3-8B", autocomplete="off", spellcheck="false")
        limits = text("own.allowed", letters=MOST_BYTES, files=MOST_FILES)
        self._form.value = tag(
            "details",
            tag("summary", text("own.title")),
            tag("p", text(self._lead)),
            tag("label", text("own.paste"), paste),
            button(text("own.use"), class_="gg-button", data_own="paste"),
            tag("p", files, tag("small", limits), class_="gg-own-line"),
            tag("label", text("own.hub"), hub),
            button(text("own.ask"), class_="gg-button", data_own="hub"),
        )
        self._show()

    def _say(self, words: Callable[[Text], Html] | None) -> None:
        self._said = words
        self._show()

    def _show(self) -> None:
        said = self._said(self._text) if self._said else ""
        self._answer.value = said.encode("utf-8", "replace").decode()  # half a character could not be sent

    def _busy(self, key: str, **values: Any) -> None:
        def words(text: Text) -> Html:
            stop = button(text("own.cancel"), class_="gg-button", data_own="cancel")
            return tag("p", tag("span", text(key, **values)), " ", stop, role="status")

        self._say(words)

    def _refuse(self, error: Exception) -> None:
        def words(text: Text) -> Html:
            said = error_sentence(error, text) if isinstance(error, GuideError) else text("error_ours")
            return tag("p", said, role="alert")

        self._say(words)

    # ---- what the browser sends --------------------------------------------------------------------------------------

    def heard(self, message: Mapping[str, Any]) -> None:
        """Something was pasted, chosen, typed or cancelled; the page keeps its model unless all goes well."""
        what = message.get("what")
        act = {"paste": self._pasted, "files": self._chosen, "bytes": self._arrived, "hub": self._asked}.get(str(what))
        if what == "cancel":
            self._ticket += 1
            self._say(None)
        elif act is not None:
            self._try(lambda: act(message))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except GuideError as error:
            self._refuse(error)
        except Exception as error:
            logger.exception("a model of the reader's own")
            self._refuse(error)

    def _pasted(self, message: Mapping[str, Any]) -> None:
        self._ticket += 1
        text, letters = message.get("text"), message.get("letters")
        if not isinstance(text, str) or not text.strip():
            raise InvalidScenario("model", "", "paste the text of a config.json first")
        self._use(model_of_text(text, letters if isinstance(letters, int) else None))

    def _chosen(self, message: Mapping[str, Any]) -> None:
        self._ticket += 1
        self._uploads = []
        for entry in message.get("files") or ():
            name, size = str(entry.get("name", "")), entry.get("size")
            if not isinstance(size, int) or not 0 <= size <= MOST_SIZE:
                raise InvalidScenario("model", name, "this file cannot be read")
            self._uploads.append(Upload(name[: 2 * LONGEST_NAME] or "?", size))
        self._read()

    def _read(self) -> None:
        """The model of the chosen files, or a request for more of them."""
        found = model_of_files(self._uploads)
        self._wanted = found if isinstance(found, More) else None
        if isinstance(found, More):
            self._busy("own.reading", name=found.upload.name)
            place = next(place for place, upload in enumerate(self._uploads) if upload is found.upload)
            request = {"kind": "own-more", "ticket": self._ticket, "file": place}
            self._browser.send(request | {"start": found.start, "stop": found.stop})
            return
        self._uploads = []
        self._use(found)

    def _arrived(self, message: Mapping[str, Any]) -> None:
        wanted = self._wanted
        if wanted is None or message.get("ticket") != self._ticket:
            return  # cancelled, or another file was chosen since
        buffers: Sequence[Any] = message.get("buffers") or ()
        piece = bytes(buffers[0]) if buffers else b""
        if not 0 < len(piece) <= min(CHUNK, wanted.stop - wanted.start):
            raise InvalidScenario("model", wanted.upload.name, "this file cannot be read")
        wanted.upload.content += piece
        self._read()

    # ---- the Hub: asked in a thread, since it may be slow ------------------------------------------------------------

    def _asked(self, message: Mapping[str, Any]) -> None:
        self._ticket += 1
        identity = str(message.get("id", "")).strip().removeprefix("https://huggingface.co/").rstrip("/")
        if not HUB_ID.fullmatch(identity) or ".." in identity or "--" in identity:
            raise InvalidScenario("model", identity, "give a Hub id such as Qwen/Qwen3-8B")
        if not OPEN_QUESTIONS.acquire(blocking=False):
            raise InvalidScenario("model", identity, "three questions to the Hub are still open; wait for an answer")
        self._busy("own.asking", name=identity)
        ticket = self._ticket
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # outside a kernel: at once
            self._answered(ticket, _from_hub(identity))
            return

        def ask() -> None:
            found = _from_hub(identity)
            loop.call_soon_threadsafe(self._answered, ticket, found)

        threading.Thread(target=ask, daemon=True, name="hub-question").start()

    def _answered(self, ticket: int, found: Found) -> None:
        if ticket != self._ticket:
            return  # cancelled, or something else was given since
        if isinstance(found, Exception):
            self._refuse(found)
        else:
            self._try(lambda: self._use(found))

    # ---- the model ---------------------------------------------------------------------------------------------------

    def _use(self, model: Model | MediaModel) -> None:
        model = model_of(carried(model))  # as every link will show it, or not at all
        self._take(model)

        def words(text: Text) -> Html:
            return tag("p", text(self._taken, name=model.name, params=float(model.params)), role="status")

        self._say(words)


def _from_hub(identity: str) -> Found:
    """The model, or what went wrong."""
    try:
        from gpuguide.catalog.hub import read_hub_model

        return read_hub_model(identity)
    except Exception as error:
        if not isinstance(error, GuideError):
            logger.exception("asking the Hub for %s", identity)
        return error
    finally:
        OPEN_QUESTIONS.release()
