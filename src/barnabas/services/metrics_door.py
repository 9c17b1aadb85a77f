"""The metrics that every broker serves on its own machine: `barnabas start` listens on port 9644, and what answers is only
loaded when somebody asks for the first time, so that a broker of which nobody asks anything pays nothing.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from typing import TYPE_CHECKING, Final

from barnabas.security.openness import is_loopback

if TYPE_CHECKING:
    from barnabas.http.server import ServerThread
    from barnabas.observe.metric import Measure

log = logging.getLogger("barnabas.http")

BACKLOG: Final = 100


class MetricsDoor:
    """Listens for the first one who asks for metrics, and then serves them."""

    def __init__(self, address: str, measure: Measure) -> None:
        """address: HOST:PORT of this machine; port 0 chooses a free port."""
        self._address = address
        self._measure = measure
        self._listening: socket.socket | None = None
        self._serving: ServerThread | None = None
        self._woken, self._wakes = socket.socketpair()
        self._thread = threading.Thread(target=self._wait, name="metrics door", daemon=True)

    def start(self) -> None:
        """Listen. A port that is taken is no reason for a broker not to start."""
        host, _, port = self._address.rpartition(":")
        try:
            self._listening = socket.create_server(
                (host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=BACKLOG
            )
        except OSError as error:
            log.info(
                "metrics are not served: choose another address with --metrics HOST:PORT, or --metrics off",
                extra={"address": self._address, "reason": error.strerror},
            )
            return
        port = self._listening.getsockname()[1]
        log.info("metrics are served", extra={"url": f"http://{host}:{port}/metrics"})
        self._thread.start()

    def stop(self) -> bool:
        """Stop serving; False if the process must not wait for the server's threads."""
        self._wakes.close()
        if self._thread.is_alive():
            self._thread.join()
        self._woken.close()
        if self._serving is not None:
            return self._serving.stop()
        if self._listening is not None:
            self._listening.close()
        return True

    def _wait(self) -> None:
        assert self._listening is not None
        ready, _, _ = select.select([self._listening, self._woken], [], [])
        if self._woken in ready:
            return
        try:
            from barnabas.http.server import HttpOptions, ServerThread
            from barnabas.services.metrics_page import make_server

            server = make_server(self._measure, HttpOptions(self._address))
            server.listen_on(self._listening)
            serving = ServerThread([server])
            serving.start()
            self._serving = serving
        except Exception as error:
            log.warning("metrics cannot be served", extra={"reason": str(error)})
            self._listening.close()


def is_of_this_machine(address: str) -> bool:
    """Whether only programs of this machine reach the address. Raises ValueError if it is none."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(
            f"--metrics {address!r} is not HOST:PORT or off, for example --metrics 127.0.0.1:9644"
        )
    return is_loopback(host)
