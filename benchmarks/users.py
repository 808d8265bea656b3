"""
Many readers at once: how long a page takes to come up, and a slider to be answered, on the server's side alone.

usage: python benchmarks/users.py [--users 1 5 20 50] [--steps 8] [--think 5 1] [--apart 0.5] [--page memory]
                                  [--server ours many voila solara solara-workers]

Each reader is a websocket client that speaks the widget protocol as the page does, without drawing: it fetches the
page, takes the state of all widgets, says that it is there, and then moves one slider again and again. A step ends when
the page says that it has drawn (the charts, the table and the verdict of that step have been sent before).

Other servers show the memory page alone: Voila with its own store of one rendered notebook, and Solara from an
environment of its own (made on first use), with one process or as many as there are cores. All run with the settings of
memory and threads that our kernels have. Before anybody moves, a server may finish what it keeps in store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from measured import ROOT, app_command, cpu_s, environment, family, free_port, memory_mb, save, serving, summary
from peers import CACHE, Peer, installed
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from gpuguide.app.serve import KEEP_MEMORY, ONE_THREAD

PATIENCE_S = 180.0
LARGEST = 50_000_000
NEWER = "v1.kernel.websocket.jupyter.org"
"""The protocol that browsers ask for; Voila by itself gets lost in a message with buffers of the older one."""
CALM_S, CALM = 3.0, 0.1
"""A server is at rest when it kept less than that share of one core busy for so long. [s]"""
NEEDED = (
    "anywidget", "Babel", "ipykernel", "ipywidgets", "itables", "numpy", "pandas", "plotly", "pydantic", "PyYAML",
)  # fmt: skip
SOLARA = "1.64.1"
PEER = Peer(
    name="solara",
    packages=(
        *(f"{name}=={version(name)}" for name in NEEDED), f"solara-ui=={SOLARA}", f"solara-server[starlette]=={SOLARA}",
    ),
    answers="",
    asked={},
)  # fmt: skip


def voila_command(port: int) -> list[str]:
    """Voila as it comes, with its store of rendered notebooks."""
    store = ["--preheat_kernel=True", "--pool_size=1", "--no-browser", f"--port={port}"]
    return [sys.executable, "-m", "voila", "notebooks/memory.ipynb", *store]


def solara_command(port: int, processes: int = 1) -> list[str]:
    """Solara, asking nobody on the network for anything; its own command has one process, whatever it is told."""
    programs, wrong = installed(PEER, CACHE, install=True)
    if programs is None:
        raise SystemExit(f"Solara {wrong}")
    page, words = "benchmarks/solara_page.py:page", ["--host", "127.0.0.1", "--port", str(port)]
    quiet = {"SOLARA_TELEMETRY_MIXPANEL_ENABLE": "False", "SOLARA_ASSETS_PROXY": "False"}
    given = [f"{name}={value}" for name, value in (quiet | {"PYTHONPATH": str(ROOT), "SOLARA_APP": page}).items()]
    command = [str(programs / "solara"), "run", page, "--production", "--no-open", "--no-check-version"]
    if processes > 1:
        command = [str(programs / "uvicorn"), "solara.server.starlette:app", "--workers", str(processes)]
    return ["env", *given, *command, *words]


@dataclass(frozen=True)
class Server:
    """A way to serve the page."""

    said: str
    command: Callable[[int], list[str]]
    ready: str = "gpuguide/static/page.css"  # an address that answers as soon as the server does
    alone: bool = True  # serves the memory page only, at its root
    kernels: str = "api/kernels"
    asked: bool = False  # makes the page when its front end asks for it, in a kernel that the front end names


SERVERS = {
    "ours": Server("ours", app_command, alone=False),
    "many": Server("ours, `--users many`", lambda port: [*app_command(port), "--many"], alone=False),
    "voila": Server(f"Voila {version('voila')}, own pool", voila_command, "voila/templates/lab/static/voila.js"),
    "solara": Server(f"Solara {SOLARA}", solara_command, "readyz", kernels="jupyter/api/kernels", asked=True),
    "solara-workers": Server(
        f"Solara {SOLARA}, {os.cpu_count()} processes",
        lambda port: solara_command(port, os.cpu_count() or 1),
        "readyz",
        kernels="jupyter/api/kernels",
        asked=True,
    ),
}


@dataclass
class Reader:
    """One visitor of a page."""

    url: str
    page: str
    server: Server = SERVERS["ours"]
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    kernel: str = ""
    socket: WebSocketClientConnection | None = None
    browser: str = ""  # id of the widget that stands for the browser
    slider: str = ""  # id of the slider that is moved
    ends: tuple[float, float] = (0.0, 1.0)
    ticks: int = 0
    states: dict[str, Any] = field(default_factory=dict)
    made: bool = False  # what a front end asked for
    closed: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def arrive(self) -> float:
        """Open the page; seconds until its widgets are there and it has been drawn once."""
        started = time.perf_counter()
        address = f"{self.url}/{'' if self.server.alone else self.page}"
        answer = await AsyncHTTPClient().fetch(address, request_timeout=PATIENCE_S)
        found = re.search(r'"kernelId": ?"([^"]+)"', answer.body.decode())
        if found is None:
            raise RuntimeError("the page names no kernel")
        self.kernel = self.session if self.server.asked else found[1]
        address = f"{self.url.replace('http', 'ws', 1)}/{self.server.kernels}/{self.kernel}/channels"
        cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]} if self.server.asked else {}
        self.socket = await websocket_connect(
            HTTPRequest(f"{address}?session_id={self.session}", headers=cookie),
            on_message_callback=self._hear, max_message_size=LARGEST, compression_options={}, subprotocols=[NEWER],
        )  # fmt: skip
        if self.server.asked:
            await self._ask("solara.control", {"method": "run", "args": {"path": "", "appName": "__default__"}})
            await self._until(lambda: self.made)
        await self._ask("jupyter.widget.control", {"method": "request_states"})
        await self._until(lambda: bool(self.states))
        self._find(self.states)
        await self._update(self.browser, {"search": "", "tongue": "en"})
        await self._until(lambda: self.ticks > 0)
        return time.perf_counter() - started

    @property
    def received(self) -> int:
        """Bytes that came over the websocket, packed as browsers ask for."""
        return 0 if self.socket is None else int(self.socket.protocol._wire_bytes_in)

    async def step(self, place: float) -> float:
        """Move the slider to a place in its range; seconds until the page has drawn the answer."""
        before, started = self.ticks, time.perf_counter()
        low, high = self.ends
        await self._update(self.slider, {"value": 2.0 ** round(low + place * (high - low))})
        await self._until(lambda: self.ticks > before)
        return time.perf_counter() - started

    async def leave(self) -> None:
        """End the kernel, as a page does when it is closed."""
        if self.socket is not None:
            self.socket.close()
        place = "_solara/api/close" if self.server.asked else "voila/api/shutdown"
        address = f"{self.url}/{place}/{self.kernel}?session_id={self.session}"
        request = HTTPRequest(address, method="POST", body="", headers={"Origin": self.url})
        with contextlib.suppress(HTTPClientError):
            await AsyncHTTPClient().fetch(request)

    def _find(self, states: dict[str, Any]) -> None:
        """The slider of the context, or else the first on the page, and the browser's widget."""
        sliders = []
        for name, model in states.items():
            state = model["state"]
            if "tick" in state and "search" in state:
                self.browser = name
            elif model["model_name"] == "FloatLogSliderModel" and state.get("base") == 2.0:
                sliders.append((name, state))
        shown = [one for one in sliders if one[1]["min"] == 9.0] or sliders
        self.slider, state = shown[0]
        self.ends = (state["min"], min(state["max"], 17.0))

    async def _ask(self, target: str, data: dict[str, Any]) -> None:
        control = uuid.uuid4().hex
        await self._send("comm_open", {"comm_id": control, "target_name": target, "data": {}})
        await self._send("comm_msg", {"comm_id": control, "data": data})

    async def _update(self, widget: str, state: dict[str, Any]) -> None:
        data = {"method": "update", "state": state, "buffer_paths": []}
        await self._send("comm_msg", {"comm_id": widget, "data": data})

    async def _send(self, kind: str, content: dict[str, Any]) -> None:
        header = {
            "msg_id": uuid.uuid4().hex, "msg_type": kind, "session": self.session, "username": "reader",
            "version": "5.3", "date": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        metadata = {"version": "1.0.0"} if kind == "comm_open" else {}
        message = {
            "header": header, "parent_header": {}, "metadata": metadata, "content": content, "channel": "shell",
            "buffers": [],
        }  # fmt: skip
        if self.socket is None:
            raise RuntimeError("not connected")
        newer = self.socket.selected_subprotocol == NEWER
        await self.socket.write_message(packed(message) if newer else json.dumps(message), binary=newer)

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Wait until messages have brought something."""
        while not reached():
            if self.closed:
                raise RuntimeError("the connection was closed")
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), PATIENCE_S)

    def _hear(self, raw: str | bytes | None) -> None:
        """Take a message when it comes, as a page does: what is left lying keeps also the server's pings unanswered."""
        self.news.set()
        if raw is None:
            self.closed = True
            return
        # Of the older protocol, bytes begin with the high byte of a small number.
        header, content = unpacked(raw) if isinstance(raw, bytes) and raw[0] else unpacked_older(raw)
        data = content.get("data", {}) if header["msg_type"] == "comm_msg" else {}
        self.states = self.states or data.get("states", {})
        self.made = self.made or data.get("method") == "finished"
        if content.get("comm_id") == self.browser and "tick" in data.get("state", {}):
            self.ticks = max(self.ticks, data["state"]["tick"])


def packed(message: dict[str, Any]) -> bytes:
    """A message of the newer protocol: number of places, the places, then the parts, the channel first."""
    names = ("header", "parent_header", "metadata", "content")
    parts = [message["channel"].encode(), *(json.dumps(message[name]).encode() for name in names)]
    places = list(itertools.accumulate(map(len, parts), initial=8 * (len(parts) + 2)))
    return b"".join([*(number.to_bytes(8, "little") for number in (len(places), *places)), *parts])


def unpacked(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and content of a message of the newer protocol."""
    places = [int.from_bytes(raw[8 * number : 8 * number + 8], "little") for number in range(1, 7)]
    return json.loads(raw[places[1] : places[2]]), json.loads(raw[places[4] : places[5]])


def unpacked_older(raw: str | bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Likewise of the older one; with buffers: number of parts, their places, then the parts."""
    if isinstance(raw, bytes):
        count = int.from_bytes(raw[:4], "big")
        places = [int.from_bytes(raw[4 + 4 * part : 8 + 4 * part], "big") for part in range(count)]
        raw = raw[places[0] : places[1] if count > 1 else None].decode()
    message = json.loads(raw)
    return message["header"], message["content"]


async def visit(reader: Reader, wait_s: float, steps: int, think_s: float, gate: asyncio.Barrier) -> dict[str, Any]:
    """One reader's times, or what went wrong."""
    await asyncio.sleep(wait_s)
    try:
        arrived = await asyncio.wait_for(reader.arrive(), PATIENCE_S)
        wrong = ""
    except (OSError, RuntimeError, TimeoutError, IndexError, KeyError, HTTPClientError, WebSocketClosedError) as error:
        arrived, wrong = PATIENCE_S, f"{type(error).__name__}: {error}"
    await gate.wait()  # everybody is there
    await gate.wait()  # and the server at rest before anybody moves
    await asyncio.sleep((hash(reader.session) % 1000) / 1000 * think_s)
    received, taken = reader.received, []
    for number in range(0 if wrong else steps):
        try:
            taken.append(await asyncio.wait_for(reader.step((0.35 * number) % 1.0), 30.0))
        except (OSError, RuntimeError, TimeoutError, WebSocketClosedError) as error:
            wrong = f"{type(error).__name__}: {error}"
            break
        await asyncio.sleep(max(0.0, think_s - taken[-1]))
    return {"arrived": arrived, "steps": taken, "bytes": reader.received - received, "wrong": wrong}


async def rest(pid: int) -> None:
    """Wait until a server has made what it keeps in store."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        used = cpu_s(family(pid))
        await asyncio.sleep(CALM_S)
        if cpu_s(family(pid)) - used < CALM * CALM_S:
            return


async def together(
    url: str, pid: int, asked: argparse.Namespace, server: Server, users: int, think_s: float
) -> dict[str, Any]:
    """That many readers on a server."""
    await rest(pid)
    readers = [Reader(url, asked.page, server) for _ in range(users)]
    gate = asyncio.Barrier(users + 1)
    tasks = [
        asyncio.create_task(visit(one, asked.apart * place, asked.steps, think_s, gate))
        for place, one in enumerate(readers)
    ]
    idle_mb, before = memory_mb(family(pid)), time.perf_counter()
    await gate.wait()
    everybody = time.perf_counter() - before
    await rest(pid)
    await gate.wait()
    used, started = cpu_s(family(pid)), time.perf_counter()
    held = memory_mb(family(pid))
    results = await asyncio.gather(*tasks)
    spent, passed = cpu_s(family(pid)) - used, time.perf_counter() - started
    for one in readers:
        await one.leave()
    steps = [second for result in results for second in result["steps"]]
    return {
        "server": server.said,
        "users": users,
        "think_s": think_s,
        "opened": sum(not result["wrong"] for result in results),
        "wrong": sorted({result["wrong"] for result in results} - {""}),
        "everybody_s": everybody,
        "arrive_s": summary([result["arrived"] for result in results]),
        "step_s": summary(steps) if steps else None,
        "lost": sum(asked.steps - len(result["steps"]) for result in results),
        "server_cpu_s_per_step": spent / max(len(steps), 1),
        "server_cores_busy": spent / passed,
        "kb_per_step": sum(result["bytes"] for result in results) / max(len(steps), 1) / 1e3,
        "mb_per_reader": (held - idle_mb) / users,
        "mb_all": held,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--users", type=int, nargs="+", default=[1, 5, 20, 50])
    parser.add_argument("--steps", type=int, default=8, help="slider steps of each")
    parser.add_argument("--think", type=float, nargs="+", default=[5.0, 1.0], help="seconds from one step to the next")
    parser.add_argument("--apart", type=float, default=0.5, help="seconds from one arrival to the next")
    parser.add_argument("--page", default="memory")
    parser.add_argument("--server", nargs="+", default=["ours"], choices=SERVERS, help="who serves the page")
    asked = parser.parse_args()
    os.environ.update(ONE_THREAD | KEEP_MEMORY)
    AsyncHTTPClient.configure(None, max_clients=200)
    started, found = environment(), []
    for think_s in asked.think:
        for users, server in itertools.product(asked.users, (SERVERS[name] for name in asked.server)):
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            with serving(server.command(port), f"{url}/{server.ready}") as pid:
                found.append(asyncio.run(together(url, pid, asked, server, users, think_s)))
            print(json.dumps(found[-1]), flush=True)
            name = "users" if asked.server == ["ours"] else "servers"
            save(name, found, "python benchmarks/users.py " + " ".join(sys.argv[1:]), started)


if __name__ == "__main__":
    main()
