"""What the server lets a browser do, and how it serves many people."""

import asyncio
import json
import re
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tornado.websocket import websocket_connect

from gpuguide.app.declaration import PAGES as NAMES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = ("index", *NAMES)


def run(talk):
    """What a conversation ends with, in a thread of its own: the browser's driver keeps a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(talk())).result()


def opened(url: str) -> str:
    """The kernel of a page that was asked for."""
    with urllib.request.urlopen(url, timeout=60) as reply:
        return re.search(r'"kernelId": ?"([^"]+)"', reply.read().decode()).group(1)


def test_code_sent_over_the_websocket_is_not_run(server, tmp_path):
    """A stranger on a published page could run anything on the machine."""
    kernel, trace = opened(f"{server.url}/memory"), tmp_path / "run"

    async def send() -> list[str]:
        address = server.url.replace("http", "ws", 1)
        socket = await websocket_connect(f"{address}/api/kernels/{kernel}/channels?session_id={uuid.uuid4().hex}")
        code = {"code": f"open({str(trace)!r}, 'w')", "silent": False, "store_history": False, "allow_stdin": False}
        for kind, content in (("execute_request", code), ("complete_request", {"code": "x", "cursor_pos": 1})):
            await socket.write_message(message(kind, content))
        await socket.write_message(message("kernel_info_request", {}))
        heard = []
        while "kernel_info_reply" not in heard:
            reply = await asyncio.wait_for(socket.read_message(), 90)
            heard.append(json.loads(reply)["header"]["msg_type"])
        await closed(socket)
        return heard

    heard = run(send)
    assert not {"execute_reply", "complete_reply"} & set(heard)
    assert not trace.exists()


def test_the_older_protocol_does_not_stop_the_server(server):
    """One message with attached bytes to one browser, and nobody else would be answered any more."""
    kernel, control = opened(f"{server.url}/serve"), uuid.uuid4().hex

    async def ask() -> None:
        address = server.url.replace("http", "ws", 1)
        socket = await websocket_connect(
            f"{address}/api/kernels/{kernel}/channels?session_id={uuid.uuid4().hex}", max_message_size=2**26
        )
        there = {"comm_id": control, "target_name": "jupyter.widget.control", "data": {}}
        await socket.write_message(message("comm_open", there, {"version": "1.0.0"}))
        await socket.write_message(message("comm_msg", {"comm_id": control, "data": {"method": "request_states"}}))
        while not isinstance(await asyncio.wait_for(socket.read_message(), 90), bytes):
            pass
        await closed(socket)

    run(ask)
    with urllib.request.urlopen(f"{server.url}/gpuguide/static/page.css", timeout=10) as reply:
        assert reply.status == 200


LOOK_AT_SOCKETS = """
import socket, sys
from gpuguide.app import serve

class Watched(serve.SocketHandler):
    async def open(self, kernel_id):
        await super().open(kernel_id)
        wire = self.ws_connection.stream.socket
        print("at once:", wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), flush=True)

serve.SocketHandler = Watched
serve.run(port=int(sys.argv[1]))
"""


def test_a_small_message_is_sent_at_once(another_server):
    """TCP holds it back until the one before was confirmed: one step in thirty came 40 ms late."""
    with another_server(script=LOOK_AT_SOCKETS) as server:
        kernel, address = opened(f"{server.url}/memory"), server.url.replace("http", "ws", 1)

        async def connect() -> None:
            await closed(await websocket_connect(f"{address}/api/kernels/{kernel}/channels?session_id=1"))

        run(connect)
        said = next(line for line in server.process.stdout if line.startswith("at once"))
    assert said.split() == ["at", "once:", "1"]


def test_a_killed_server_leaves_nothing_behind(another_server):
    """Kernels of a server that crashed would hold their memory until the machine is started anew."""
    with another_server() as server:
        opened(f"{server.url}/memory")
        started = family(server.process.pid)
        assert len(started) > 3
        server.process.kill()
        server.process.wait(10)
        deadline = time.monotonic() + 30
        while any(map(alive, started)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not [pid for pid in started if alive(pid)]


def family(pid: int) -> list[int]:
    """A process and all that came of it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family(int(child)))]


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def handed_out(server) -> bool:
    """Whether a page comes with a kernel that ran before it was asked for."""
    before = [Path(f"/proc/{kernel}/cmdline").read_text() for kernel in server.kernels()]
    kernel = opened(f"{server.url}/memory")
    return any(kernel in words for words in before)


async def closed(socket) -> None:
    """Until the server has said good-bye too: what is left open is complained about in another test."""
    socket.close()
    while await socket.read_message() is not None:
        pass


def message(kind: str, content: dict, metadata: dict | None = None) -> str:
    """A message of the Jupyter protocol, as a browser sends it."""
    header = {
        "msg_id": uuid.uuid4().hex, "msg_type": kind, "session": uuid.uuid4().hex, "username": "reader",
        "version": "5.3", "date": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    parts = {"header": header, "parent_header": {}, "metadata": metadata or {}, "content": content, "channel": "shell"}
    return json.dumps(parts | {"buffers": []})


def test_pages_are_ready_before_they_are_asked_for(chromium, another_server):
    """Waiting for a kernel, although many people were announced; or a page made in store that opens files."""
    with another_server("--many") as server:
        deadline = time.monotonic() + 90
        while len(server.kernels()) < len(PAGES) and time.monotonic() < deadline:
            time.sleep(0.3)
        assert len(server.kernels()) == len(PAGES), "one kernel of each page, and none of the report's notebook"
        while not handed_out(server):
            assert time.monotonic() < deadline, "pages in store are not given to those who ask"
            time.sleep(3)
        page = chromium.new_page()
        page.goto(f"{server.url}/serve?model=/etc/passwd&language=tr", wait_until="commit")
        page.wait_for_function("document.documentElement.classList.contains('gg-ready')", timeout=90_000)
        assert "/etc/passwd" in page.locator(".gg-error").inner_text()
        page.close()
