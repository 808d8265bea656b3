"""
Many readers at once: how long a page takes to come up, and a slider to be answered, on the server's side alone.

usage: python benchmarks/users.py [--users 1 5 20 50] [--steps 8] [--think 5 1] [--apart 0.5] [--page memory]

Each reader is a websocket client that speaks the widget protocol as the page does, without drawing: it fetches the
page, takes the state of all widgets, says that it is there, and then moves one slider again and again. A step ends when
the page says that it has drawn (the charts, the table and the verdict of that step have been sent before).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from measured import app_command, cpu_s, environment, family, free_port, memory_mb, save, serving, summary
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

PATIENCE_S = 180.0
LARGEST = 50_000_000


@dataclass
class Reader:
    """One visitor of a page."""

    url: str
    page: str
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    kernel: str = ""
    socket: WebSocketClientConnection | None = None
    browser: str = ""  # id of the widget that stands for the browser
    slider: str = ""  # id of the slider that is moved
    ends: tuple[float, float] = (0.0, 1.0)
    ticks: int = 0
    states: dict[str, Any] = field(default_factory=dict)
    closed: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def arrive(self) -> float:
        """Open the page; seconds until its widgets are there and it has been drawn once."""
        started = time.perf_counter()
        answer = await AsyncHTTPClient().fetch(f"{self.url}/{self.page}", request_timeout=PATIENCE_S)
        found = re.search(r'"kernelId": ?"([^"]+)"', answer.body.decode())
        if found is None:
            raise RuntimeError("the page names no kernel")
        self.kernel = found[1]
        address = f"{self.url.replace('http', 'ws', 1)}/api/kernels/{self.kernel}/channels?session_id={self.session}"
        self.socket = await websocket_connect(
            HTTPRequest(address), on_message_callback=self._hear, max_message_size=LARGEST, compression_options={}
        )
        control = uuid.uuid4().hex
        await self._send("comm_open", {"comm_id": control, "target_name": "jupyter.widget.control", "data": {}})
        await self._send("comm_msg", {"comm_id": control, "data": {"method": "request_states"}})
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
        request = HTTPRequest(
            f"{self.url}/voila/api/shutdown/{self.kernel}", method="POST", body="", headers={"Origin": self.url}
        )
        await AsyncHTTPClient().fetch(request, raise_error=False)

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
        await self.socket.write_message(json.dumps(message))

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
        if isinstance(raw, bytes):  # a message with buffers: number of parts, their places, then the parts
            count = int.from_bytes(raw[:4], "big")
            places = [int.from_bytes(raw[4 + 4 * part : 8 + 4 * part], "big") for part in range(count)]
            raw = raw[places[0] : places[1] if count > 1 else None].decode()
        message = json.loads(raw)
        data = message["content"].get("data", {}) if message["header"]["msg_type"] == "comm_msg" else {}
        self.states = self.states or data.get("states", {})
        if message["content"].get("comm_id") == self.browser and "tick" in data.get("state", {}):
            self.ticks = max(self.ticks, data["state"]["tick"])


async def visit(reader: Reader, wait_s: float, steps: int, think_s: float, gate: asyncio.Barrier) -> dict[str, Any]:
    """One reader's times, or what went wrong."""
    await asyncio.sleep(wait_s)
    try:
        arrived = await asyncio.wait_for(reader.arrive(), PATIENCE_S)
        wrong = ""
    except (OSError, RuntimeError, TimeoutError, IndexError, KeyError) as error:
        arrived, wrong = PATIENCE_S, f"{type(error).__name__}: {error}"
    await gate.wait()  # everybody is there before anybody moves
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


async def together(url: str, pid: int, asked: argparse.Namespace, users: int, think_s: float) -> dict[str, Any]:
    """That many readers on a server."""
    readers = [Reader(url, asked.page) for _ in range(users)]
    gate = asyncio.Barrier(users + 1)
    tasks = [
        asyncio.create_task(visit(one, asked.apart * place, asked.steps, think_s, gate))
        for place, one in enumerate(readers)
    ]
    idle_mb, before = memory_mb(family(pid)), time.perf_counter()
    await gate.wait()
    everybody = time.perf_counter() - before
    used, started = cpu_s(family(pid)), time.perf_counter()
    held = memory_mb(family(pid))
    results = await asyncio.gather(*tasks)
    spent, passed = cpu_s(family(pid)) - used, time.perf_counter() - started
    for one in readers:
        await one.leave()
    steps = [second for result in results for second in result["steps"]]
    return {
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
    asked = parser.parse_args()
    AsyncHTTPClient.configure(None, max_clients=200)
    started, found = environment(), []
    for think_s in asked.think:
        for users in asked.users:
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            with serving(app_command(port), f"{url}/gpuguide/static/page.css") as pid:
                found.append(asyncio.run(together(url, pid, asked, users, think_s)))
            print(json.dumps(found[-1]), flush=True)
            save("users", found, "python benchmarks/users.py " + " ".join(sys.argv[1:]), started)


if __name__ == "__main__":
    main()
