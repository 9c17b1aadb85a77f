"""When Java is killed, whatever waits for an answer from it has to fail at once.

The end of a process normally closes its sockets. Java, however, starts programs through a process named `jspawnhelper`,
which inherits all sockets and waits for Java to tell it what to run. If Java is killed in that moment, the helper waits for
ever (JDK-8307990: before Java 21 it holds both ends of the pipe that it reads from) and keeps the sockets open: every call
to Java that has begun would never end, and new connections would be accepted and never answered. Spark runs programs several
times in each micro-batch, so this does happen.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Final

MARK: Final = "BARNABAS_JAVA"
"""An environment variable of a Java process and of all that it starts, by which what it leaves behind is connection."""
HELPER: Final = "jspawnhelper"
PAUSES_SECONDS: Final = (0.0, 0.1, 0.4)
"""A helper that is being started when Java ends has its name a moment later."""


@contextlib.contextmanager
def marked() -> Iterator[str]:
    """While it is open, processes that start have a new mark in their environment."""
    mark = uuid.uuid4().hex
    os.environ[MARK] = mark
    try:
        yield mark
    finally:
        del os.environ[MARK]


def watch(
    process: Popen[bytes], port: int, mark: str, ended: Callable[[], Collection[int]] = lambda: ()
) -> None:
    """Waits for the end of a Java process, in a thread of its own; then kills its helpers, and cuts this process's
    connections to its port. ended: called first; gives the ports of this process to which Java has connections."""

    def wait() -> None:
        process.wait()
        own = ended()
        for pause_s in PAUSES_SECONDS:
            time.sleep(pause_s)
            kill_helpers(mark)
            cut_connections(port, own)

    threading.Thread(target=wait, name="java-end", daemon=True).start()


def kill_helpers(mark: str) -> None:
    """Kills the helpers of the Java process with this mark. Where there is no /proc, it has no effect."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text().strip() != HELPER:
                continue
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def cut_connections(port: int, own: Collection[int] = ()) -> None:
    """Ends this process's connections to a local port, and those to its own ports: whoever reads from one gets its end."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError), _own(os.dup(int(name))) as descriptor:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                if connection.family != socket.AF_INET:
                    continue
                if connection.getpeername() == ("127.0.0.1", port) or connection.getsockname()[1] in own:
                    connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _own(file: int) -> Iterator[int]:
    try:
        yield file
    finally:
        os.close(file)
