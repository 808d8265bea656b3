"""
Serves the suite with Voila: short addresses, own template, kernels that start at once, and limits that keep it up.

Voila as it comes leaves a kernel behind for every closed tab: its request to end it carries no XSRF token. Here such a
request is accepted when the browser says that it comes from this very server (Origin), and the check stays on for all
others.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import tornado.web
from jupyter_core.utils import ensure_async
from jupyter_server.utils import url_path_join
from tornado.ioloop import PeriodicCallback
from voila._version import __version__ as voila_version
from voila.app import Voila
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.tornado.handler import TornadoVoilaHandler
from voila.tornado.kernel_websocket_handler import VoilaKernelWebsocketHandler

from gpuguide import __version__
from gpuguide.app import first, nursery
from gpuguide.app.declaration import PAGES
from gpuguide.app.files import STATIC, plotly_js, style, tables_js
from gpuguide.show.html import Html, tag
from gpuguide.show.theme import css_variables
from gpuguide.text import LANGUAGES, Text

logger = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "localhost", "::1")
IDLE_S = 45 * 60
"""A page that nobody touches keeps its kernel so long. [s]"""
ALONE_S = 120
"""A kernel that no browser is connected to is kept so long, for a connection that was lost for a moment. [s]"""
MOST_KERNELS = 60
PING_MS, PONG_MS = 10_000, 30_000
"""A browser is asked so often whether it is there, and given up when it was silent so long. The first question comes
after one interval: a limit of one interval would cut everybody off. [ms]"""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "33554432"}
"""glibc gives a decision's arrays back to the system after every step and takes them again, which was measured to cost
up to a quarter of its time; so much it keeps instead. [bytes]"""
YEAR_S = 365 * 24 * 3600


def notebooks_folder() -> Path:
    """The notebooks of the checkout, or those shipped in the package."""
    here = Path(__file__).resolve().parents[1]
    for folder in (here / "_notebooks", here.parent / "notebooks"):
        if (folder / "index.ipynb").exists():
            return folder
    raise FileNotFoundError("the notebooks of gpuguide are not installed beside the package")


@lru_cache(maxsize=8)
def _file(name: str) -> tuple[bytes, bytes, str]:
    """A static file, as it is and compressed, with its type."""
    if name == "plotly.min.js":
        content, kind = plotly_js().read_bytes(), "text/javascript"
    elif name == "tables.js":
        content, kind = tables_js().read_bytes(), "text/javascript"
    elif name == "page.css":
        content, kind = style("chart", "page").encode(), "text/css"
    elif name in ("chart.js", "first.js"):
        content, kind = (STATIC / name).read_bytes(), "text/javascript"
    else:
        raise tornado.web.HTTPError(404)
    return content, gzip.compress(content, 6), kind


class StaticHandler(tornado.web.RequestHandler):
    """The style sheet, plotly.js and DataTables, kept by browsers until the version changes."""

    def get(self, name: str) -> None:
        """Answer with the file."""
        content, packed, kind = _file(name)
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.set_header("Cache-Control", f"public, max-age={YEAR_S}, immutable")
        self.set_header("Vary", "Accept-Encoding")
        if "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            content = packed
        self.finish(content)


class PageHandler(TornadoVoilaHandler):  # type: ignore[misc]
    """One of the listed notebooks, under its short name too."""

    def initialize(self, listed: frozenset[str], **settings: Any) -> None:
        """Take the names of the notebooks that may be asked for."""
        super().initialize(**settings)
        self._listed = listed

    async def get(self, path: str | None = None) -> None:
        """Render a page, unless the machine is full."""
        name = (path or "index").removesuffix(".ipynb")
        if name not in self._listed:
            raise tornado.web.HTTPError(404)
        if len(self.kernel_manager) - len(Suite.instance().spare()) >= MOST_KERNELS:
            self.set_status(503)
            self.set_header("Retry-After", "60")
            self.finish(_plain_page("busy"))
            return
        await super().get(f"{name}.ipynb")

    def write_error(self, status_code: int, **_: Any) -> None:
        """A sentence in both languages, never a traceback."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(_plain_page("missing" if status_code == 404 else "broken"))


class ShutdownHandler(VoilaShutdownKernelHandler):  # type: ignore[misc]
    """Ends the kernel of a page that was closed."""

    def check_xsrf_cookie(self) -> None:
        """A request that the browser marks as coming from this server needs no further token."""
        origin = self.request.headers.get("Origin") or self.request.headers.get("Referer") or ""
        if urlsplit(origin).netloc != self.request.host or not origin:
            super().check_xsrf_cookie()


class SocketHandler(VoilaKernelWebsocketHandler):  # type: ignore[misc]
    """
    The messages between a page and its kernel.

    Voila reads what a kernel sends as the newer of the two websocket protocols. To a browser that speaks the older one,
    a message with attached bytes then looks like one of some billion parts, and the server would count them for good.
    """

    async def open(self, kernel_id: str) -> None:
        """Send small messages at once: held back until the last was confirmed, as TCP does, some come 40 ms late."""
        self.set_nodelay(True)
        await super().open(kernel_id)

    def write_message(self, message: bytes | dict[str, Any], binary: bool = False) -> Any:
        """Hand a message on."""
        if isinstance(message, bytes) and self.selected_subprotocol is None:
            return super(VoilaKernelWebsocketHandler, self).write_message(message, binary)
        return super().write_message(message, binary)


class MissingHandler(tornado.web.RequestHandler):
    """Everything else."""

    def prepare(self) -> None:
        """Answer every method alike."""
        self.set_status(404)
        self.finish(_plain_page("missing"))


class Suite(Voila):  # type: ignore[misc]
    """Voila with this suite's pages."""

    name = "voila"
    _alone_since: ClassVar[dict[str, float]] = {}
    _day = date.today()

    def listen(self) -> None:
        """Serve, and look after kernels that were left behind."""
        PeriodicCallback(self.end_abandoned, ALONE_S / 4 * 1e3).start()
        super().listen()

    def spare(self) -> set[str]:
        """Kernels that show a page already and wait for somebody to ask for it."""
        pools = getattr(self.kernel_manager, "_pools", {}).values()
        filled = [task for pool in pools for task in pool if task.done() and not task.exception()]
        return {task.result()["kernel_id"] for task in filled}

    async def end_abandoned(self) -> None:
        """End kernels without a browser: phones that went to sleep, browsers that crashed, readers without scripts."""
        now, manager = time.monotonic(), self.kernel_manager
        spare = self.spare()
        if spare and self._day != date.today():  # pages made yesterday count the age of prices from yesterday
            self._day = date.today()
            for kernel in spare:
                await ensure_async(manager.shutdown_kernel(kernel))
            for name in list(manager.notebook_data):
                manager.fill_if_needed(notebook_name=name)
        for kernel in list(manager.list_kernel_ids()):
            if manager._kernel_connections.get(kernel, 0) > 0 or kernel in spare:
                self._alone_since.pop(kernel, None)
            elif now - self._alone_since.setdefault(kernel, now) > ALONE_S:
                self._alone_since.pop(kernel, None)
                await ensure_async(manager.shutdown_kernel(kernel))

    def init_handlers(self) -> list[Any]:
        """Voila's own handlers, without its file list and file access, and ours."""
        own: list[Any] = []
        for handler in super().init_handlers():
            pattern, kind = handler[0], handler[1]
            if kind.__name__ in (
                "AllowListFileHandler",
                "VoilaContentsHandler",
                "TornadoVoilaTreeHandler",
                "TornadoVoilaHandler",
            ):
                continue
            ours = {VoilaShutdownKernelHandler: ShutdownHandler, VoilaKernelWebsocketHandler: SocketHandler}
            own.append((pattern, ours.get(kind, kind), *handler[2:]))
        listed = frozenset(path.stem for path in Path(self.root_dir).glob("*.ipynb")) & frozenset(("index", *PAGES))
        settings = {
            "listed": listed,
            "template_paths": self.template_paths,
            "config": self.config,
            "voila_configuration": self.voila_configuration,
        }
        names = "|".join(sorted(listed))
        own += [
            (url_path_join(self.server_url, r"/gpuguide/static/(.*)"), StaticHandler),
            (url_path_join(self.server_url, r"/()"), PageHandler, settings),
            (url_path_join(self.server_url, rf"/({names})/?"), PageHandler, settings),
            (url_path_join(self.server_url, r"/voila/render/([^/]*)"), PageHandler, settings),
            (url_path_join(self.server_url, r"/.*"), MissingHandler),
        ]
        return own


def configured(*, port: int, host: str = "127.0.0.1", folder: Path | None = None, many: bool = False) -> Suite:
    """The server, ready to start; with `many`, a page of each kind is made before somebody asks for it."""
    folder = folder or notebooks_folder()
    # Also kernels that are started before a request have to know that they are served.
    os.environ["SERVER_SOFTWARE"] = f"voila/{voila_version}"
    os.environ[first.VARIABLE] = "1"
    os.environ["JUPYTER_PATH"] = os.pathsep.join(
        filter(None, [str(STATIC / "jupyter"), os.environ.get("JUPYTER_PATH", "")])
    )
    app: Suite = Suite.instance()
    app.initialize([])
    # Our notebooks are shown by us: whether somebody trusts their outputs is no question here.
    app.log.addFilter(lambda record: "is not trusted" not in record.getMessage())
    # Tornado takes the same two settings for seconds and finds the longer one odd; jupyter_server sends the pings.
    logging.getLogger("tornado.general").addFilter(lambda record: "websocket_ping" not in record.getMessage())
    loopback = host in LOOPBACK
    app.ip, app.port, app.port_retries, app.open_browser = host, port, 0, False
    app.root_dir = str(folder)
    app.log_level = logging.WARNING
    # Names of this machine only, so that a page elsewhere cannot reach in through a name of its own.
    app.tornado_settings = {
        "allow_remote_access": not loopback,
        "ws_ping_interval": PING_MS,
        "ws_ping_timeout": PONG_MS,
        "websocket_compression_options": {"compression_level": 3},  # a step of a page in a fifth of its bytes
    }
    config = app.voila_configuration
    config.template, config.theme, config.show_tracebacks = "gpuguide", "light", False
    config.allow_template_override = config.allow_theme_override = "NO"
    config.file_allowlist = []
    config.http_header_envs = ["Accept-Language"]  # the first look of a page speaks the reader's language
    config.extension_denylist = ["jupyterlab-plotly", "@jupyter-widgets/jupyterlab-sidecar", "jupyterlab_pygments"]
    config.config.VoilaConfiguration.resources = {"gpuguide": skeleton(app.base_url)}
    manager = app.config.MappingKernelManager
    config.preheat_kernel, config.default_pool_size = many, 1
    app.config.VoilaKernelManager.preheat_denylist = [rf".*/(?!({'|'.join(('index', *PAGES))})\.)[^/]*$"]
    app.config.VoilaExecutor.iopub_timeout = 60  # a busy machine is no reason to leave an output out
    manager.cull_idle_timeout, manager.cull_interval, manager.cull_connected = IDLE_S, 60, True
    app.setup_template_dirs()
    return app


def skeleton(base_url: str) -> dict[str, Any]:
    """Words of every page in every language, for what stands there before the kernel answers."""
    pages: dict[str, dict[str, Any]] = {}
    for name in ("index", *PAGES):
        pages[name] = {}
        for language in LANGUAGES:
            text = Text(language)
            pages[name][language] = {
                "title": text(f"page.{name}.title"),
                "lead": text(f"page.{name}.lead"),
                "starting": text("starting"),
                "nav": text("nav"),
                "pages": {page: text(f"page.{page}.short") for page in ("index", *PAGES)},
            }
    return {"pages": pages, "static": url_path_join(base_url, "gpuguide/static/"), "version": __version__}


def run(*, port: int = 8866, host: str = "127.0.0.1", folder: Path | None = None, many: bool = False) -> None:
    """
    Serve until interrupted.

    Parameters
    ----------
    port, host : int, str
        Where to listen; names of this machine only unless the host says otherwise.
    folder : Path, optional
        Notebooks; the shipped ones when left out.
    many : bool
        Keep one finished page of each kind in store: readers wait less, and more memory is taken.
    """
    scratch = Path(tempfile.mkdtemp(prefix="gpuguide-"))
    grown: subprocess.Popen[str] | None = None
    try:
        app = configured(port=port, host=host, folder=folder, many=many)
        app.connection_dir_root = str(scratch)
        if nursery.can_fork():
            grown = _start_nursery(scratch)
        sys.stdout.write(f"gpuguide is served at http://{host}:{port}  (stop it with Ctrl+C)\n")
        sys.stdout.flush()
        app.start()
    finally:
        if grown is not None:
            grown.terminate()
            grown.wait(10)
        shutil.rmtree(scratch, ignore_errors=True)


def _start_nursery(scratch: Path) -> subprocess.Popen[str] | None:
    """Warm a process to fork kernels from, and name it as the kernel of our notebooks."""
    address = scratch / f"{secrets.token_hex(8)}.sock"
    environment = os.environ | ONE_THREAD | KEEP_MEMORY
    started = subprocess.Popen(
        [sys.executable, "-m", "gpuguide.app.nursery", str(address)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    if started.stdout is None or started.stdout.readline().strip() != "ready":
        logger.warning("kernels cannot be forked here; pages will take longer to start")
        return None
    folder = scratch / "kernels" / "python3"
    folder.mkdir(parents=True)
    script = str(Path(nursery.__file__))
    (folder / "kernel.json").write_text(
        json.dumps(
            {
                "argv": [sys.executable, "-S", "-E", script, str(address), "--stand-in", "-f", "{connection_file}"],
                "display_name": "Python 3",
                "language": "python",
                "metadata": {"debugger": False},
            }
        )
    )
    os.environ["JUPYTER_PATH"] = os.pathsep.join([str(scratch), os.environ["JUPYTER_PATH"]])
    return started


PLAIN = "body{font:17px/1.5 system-ui,sans-serif;max-width:40em;margin:15vh auto;padding:0 20px}"


def _plain_page(key: str) -> str:
    """A sentence in every language, for when there is no page to show it on."""
    words = [tag("p", Text(language)(f"server.{key}"), lang=language) for language in LANGUAGES]
    style = css_variables() + PLAIN + "body{background:var(--gg-bg);color:var(--gg-ink)}a{color:var(--gg-accent)}"
    head = tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'),
        tag("title", "gpuguide"),
        tag("style", Html(style)),
    )
    body = tag("body", tag("h1", "gpuguide"), words, tag("p", tag("a", "gpuguide", href="/")))
    return "<!DOCTYPE html>" + tag("html", head, body, lang="en")


if __name__ == "__main__":
    run(port=int(sys.argv[1]) if len(sys.argv) > 1 else 8866, many="--many" in sys.argv)
