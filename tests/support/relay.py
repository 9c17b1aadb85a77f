"""A relay between a client and a server, whose connections a test can cut or hold."""

from __future__ import annotations

import contextlib
import select
import socket
import threading

PIECE = 1 << 16


class Relay:
    """Listens on a free port of this machine and passes bytes on to another port in both directions."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._goes, self._open = threading.Event(), True
        self._goes.set()
        self._refuses = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Resets all connections, and closes new ones at once until `mend`."""
        self._refuses = True
        with self._lock:
            pairs = list(self._pairs)
        for one in (end for pair in pairs for end in pair):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Passes nothing on and closes nothing until `mend`, as a network does that loses every packet."""
        self._goes.clear()

    def mend(self) -> None:
        """Passes everything on again."""
        self._refuses = False
        self._goes.set()

    def close(self) -> None:
        """Ends all connections."""
        self._open = False
        self.cut()
        self._goes.set()
        self._listener.close()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                client.close()
                continue
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(("127.0.0.1", self.behind), 10)
            except OSError:
                return
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            with server, contextlib.suppress(OSError):
                while True:
                    for ready in select.select(pair, [], [])[0]:
                        piece = ready.recv(PIECE)
                        self._goes.wait()
                        if not piece:
                            return
                        (server if ready is client else client).sendall(piece)
            with self._lock:
                self._pairs.discard(pair)
