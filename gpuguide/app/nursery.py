"""
Kernels that start at once: one process imports everything and reads the tables, each visitor gets a fork of it.

A fresh kernel spends seconds on imports; a fork of a warm one starts in a fraction of that and shares its memory. Where
the system cannot fork (Windows), kernels start the ordinary way.

Three processes take part: the nursery (``python -m gpuguide.app.nursery SOCKET``), which forks; a small stand-in that
the server starts as 'the kernel' (``python nursery.py SOCKET --stand-in ARGUMENTS``) and whose end means the kernel's
end; and the fork itself, which ends when its stand-in or the nursery does, so that a server that was killed leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Any

LONGEST_MESSAGE = 4_000_000
LENGTH = struct.Struct("!I")


def can_fork() -> bool:
    """Whether this system can fork a process with threads at rest."""
    return hasattr(os, "fork") and hasattr(socket, "AF_UNIX") and sys.platform != "darwin"


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    connection.sendall(LENGTH.pack(len(body)) + body)


def _receive(connection: socket.socket) -> dict[str, Any] | None:
    head = _exactly(connection, LENGTH.size)
    if head is None or LENGTH.unpack(head)[0] > LONGEST_MESSAGE:
        return None
    body = _exactly(connection, LENGTH.unpack(head)[0])
    return None if body is None else json.loads(body)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = b""
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return parts


# ---- the stand-in: light, standard library only ----------------------------------------------------------------------


def stand_in(address: str, arguments: list[str]) -> int:
    """Ask for a fork and wait for its end; a signal to this process reaches the fork."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    _send(connection, {"arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd())})
    reply = _receive(connection)
    if reply is None:
        return 1
    signal.signal(signal.SIGINT, lambda *_: _kill(reply["pid"], signal.SIGINT))

    def end(number: int, _: Any) -> None:
        _kill(reply["pid"], number)
        sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    _receive(connection)  # nothing comes: the connection closes when the fork is gone
    return 0


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


# ---- the nursery -----------------------------------------------------------------------------------------------------


def serve(address: str) -> None:
    """Warm up, then fork for everyone who asks, until the standard input closes."""
    _warm()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    Path(address).chmod(0o600)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the forks
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("ready", flush=True)  # noqa: T201 - the server waits for this line
    lifeline, held = os.pipe()  # closed with this process, which ends with the server
    watch = _watcher(listener, held)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        asked = _receive(connection)
        if asked is None:
            connection.close()
            continue
        pid = os.fork()
        if pid == 0:
            listener.close()
            os.close(watch)
            os.close(held)
            _grow_up(connection, lifeline, asked)
        connection.close()


def _watcher(listener: socket.socket, held: int) -> int:
    """End with the server: its end of our standard input closes. A child process watches, so that we hold no thread."""
    own = os.getpid()
    ours, theirs = os.pipe()
    if os.fork() == 0:
        listener.close()
        os.close(theirs)
        os.close(held)
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        _kill(own, signal.SIGTERM)
        os._exit(0)
    os.close(ours)
    return theirs


def _warm() -> None:
    """Import what a kernel and a page need, read the tables, answer once: nothing that starts a thread."""
    import gc
    import warnings

    warnings.simplefilter("ignore")
    import itables  # noqa: F401

    from gpuguide.app import warm_up

    warm_up()
    # What is here stays: a fork neither looks through it for garbage, which takes some 60 ms, nor copies its pages.
    gc.collect()
    gc.freeze()


def _grow_up(connection: socket.socket, lifeline: int, asked: dict[str, Any]) -> None:
    """Become the kernel that was asked for; never returns."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    _send(connection, {"pid": os.getpid()})

    def until_alone() -> None:
        with contextlib.suppress(OSError):
            select.select([connection.fileno(), lifeline], [], [])
        os._exit(0)

    threading.Thread(target=until_alone, daemon=True).start()
    # The stand-in is its parent in name; the kernel would look for a parent process that it does not have.
    os.environ.pop("JPY_PARENT_PID", None)
    sys.argv = ["ipykernel_launcher", *asked["arguments"]]
    code = 1
    try:
        import ipywidgets
        from ipykernel.kernelapp import IPKernelApp

        app = IPKernelApp.instance(log_level="ERROR")
        app.initialize(asked["arguments"])  # type: ignore[no-untyped-call]
        # Imported before there was a kernel, ipywidgets has not told it that all states may be asked for at once.
        ipywidgets.load_ipython_extension(app.shell)
        app.start()  # type: ignore[no-untyped-call]
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    if "--stand-in" in sys.argv:
        sys.exit(stand_in(sys.argv[1], sys.argv[3:]))
    serve(sys.argv[1])
