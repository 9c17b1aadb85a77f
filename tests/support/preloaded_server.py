"""The process that `preloaded` lets fork: it has imported what nearly all commands import, and what a broker does.

It has one thread, which a process must have that forks and goes on in Python, and it ends with its standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

import barnabas
from barnabas.cli.commands import BY_NAME
from barnabas.cli.main import main as barnabas_main

PROGRAM: Final = Path(barnabas.__file__).with_name("__main__.py")
REQUEST_BYTES_MAX: Final = 1 << 20
MODULES: Final = {
    "broker": ("barnabas.broker.server", "barnabas.local.start", "barnabas.services.with_broker"),
    "command": (
        *(
            "asyncio.runners",
            "confluent_kafka.admin",
            "barnabas.kafka_tools.main",
            "barnabas.kafka_tools.topics.topics",
        ),
        *(BY_NAME[name].module for name in ("config", "consume", "group", "produce", "topic")),
    ),
}
"""What is imported for a process of each kind. A command that does not need a broker's modules ends later with them."""


class Server:
    """Forks for each connection; sends the process's id through it, and later the exit code."""

    def __init__(self, place: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(place)
        self._listener.listen(64)
        self._running: dict[int, socket.socket] = {}
        self._woken, self._waking = socket.socketpair()
        self._waking.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)

    def serve(self) -> dict[str, Any] | None:
        """In a process that was forked: what it is to run. In this one: None, when standard input has ended."""
        with selectors.DefaultSelector() as selector:
            for file in (self._listener, self._woken, sys.stdin):
                selector.register(file, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if sys.stdin in ready:
                    return None
                if self._woken in ready:
                    self._woken.recv(4096)
                    self._tell_exit_codes()
                if self._listener in ready and (request := self._fork(self._listener.accept()[0])):
                    return request

    def _fork(self, connection: socket.socket) -> dict[str, Any] | None:
        data, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
        while len(data) < 4 + int.from_bytes(data[:4], "big"):
            data += connection.recv(REQUEST_BYTES_MAX)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
            os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
            request: dict[str, Any] = json.loads(data[4:])
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        self._running[pid] = connection
        connection.sendall(b"%d\n" % pid)
        return None

    def _tell_exit_codes(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._running.pop(pid) as connection, contextlib.suppress(OSError):
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def show_as(command: list[str]) -> None:
    """Make `ps`, and commands that look for brokers, see this command line: it is written over that of `main`, whose last
    argument leaves room for it."""
    found = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(found[45]), int(found[46])
    text = "".join(f"{word}\0" for word in command).encode()
    ctypes.memmove(start, text[: end - start - 1].ljust(end - start, b"\0"), end - start)


def main(kind: str, place: str, _room: str) -> None:
    for module in MODULES[kind]:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = Server(place)
    gc.freeze()
    print("ready", flush=True)
    request = server.serve()
    if request is not None:
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        show_as(request["command"])
        sys.path[0] = request["folder"]
        # What it starts by `multiprocessing` imports the main module by this name, unless it ends like that of a package.
        sys.modules["__main__"].__spec__ = importlib.util.find_spec("barnabas.__main__")
        sys.argv = [str(PROGRAM), *request["command"][3:]]
        barnabas_main()


if __name__ == "__main__":
    main(*sys.argv[1:])
