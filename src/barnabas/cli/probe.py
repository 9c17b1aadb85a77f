"""Finds out what answers at an address, before a client library retries for half a minute and blames the broker.

A Kafka listener answers an ApiVersions request of the first version whatever its security protocol demands later; it
closes the connection on a Metadata request if SASL must come first. Only the standard library is used here, and
one round trip when all is well.
"""

from __future__ import annotations

import queue
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Final

PATIENCE_SECONDS: Final = 0.6
"""How long a Kafka broker may take before other protocols are tried."""
OTHER_SECONDS: Final = 1.4
"""How long other servers have for their answer, and a busy broker for a late one."""
LOOK_SECONDS: Final = 0.02
SILENCE_SECONDS: Final = 8.0
"""How long a listener that accepts connections may say nothing: a broker may be busy recovering its log."""
CLIENT_ID: Final = b"barnabas-probe"


class NotKafka(Exception):
    """Something other than Kafka answers, or the listener demands TLS or SASL; the message says what."""


def _request(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


QUESTION: Final = _request(18, 0, 1, b"") + _request(3, 1, 2, struct.pack(">i", 0))
"""ApiVersions, and Metadata of no topic."""


def require_kafka(connected: socket.socket, where: str, protocol: str) -> str | None:
    """Find out what speaks on a fresh connection. Raises NotKafka within two seconds when it is no Kafka broker.

    protocol: the client's security.protocol. Returns None when all is well, else a note for the user: no answer has
    come yet, and the caller may go on and wait.
    """
    address = connected.getpeername()[:2]
    wants_tls, wants_sasl = protocol.upper().endswith("SSL"), protocol.upper().startswith("SASL")
    if wants_tls:
        if not speaks_tls(address, 2 * PATIENCE_SECONDS):
            raise NotKafka(
                f"{where} does not speak TLS; leave out security.protocol={protocol}, or name another port"
            )
        return None
    connected.settimeout(PATIENCE_SECONDS)
    try:
        connected.sendall(QUESTION)
    except OSError:
        pass  # what it sent before it closed the connection can still be read
    if not has_spoken(connected, PATIENCE_SECONDS):
        require_nothing_else(address, where, busy=connected)
        if not has_spoken(connected):
            return f"{where} accepts connections and has said nothing yet; waiting for it"
    try:
        head = receive(connected, 8)
    except OSError:
        head = b""
    if len(head) == 8 and head[4:] == struct.pack(">i", 1):
        if not wants_sasl and closes_after(connected, struct.unpack(">i", head[:4])[0] - 4):
            raise NotKafka(
                f"{where} wants SASL; name a mechanism and credentials: -X security.protocol=SASL_PLAINTEXT "
                "-X sasl.mechanism=... -X sasl.username=... -X sasl.password=..."
            )
        return None
    if head[:2] == b"\x15\x03":
        raise NotKafka(wants_tls_text(where))
    require_nothing_else(address, where, head)
    if head:
        raise NotKafka(f"{where} is not a Kafka broker: it answers {head!r}")
    return None  # it closed the connection, as very old brokers do; the client library's error says more


def closes_after(connected: socket.socket, size_bytes: int) -> bool:
    """Whether the connection ends after the first answer, which has this many bytes left."""
    try:
        receive(connected, size_bytes)
        return not connected.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def require_nothing_else(
    address: tuple[str, int], where: str, head: bytes = b"", busy: socket.socket | None = None
) -> None:
    """Raises NotKafka when HTTP or TLS is spoken here.

    busy: a connection on which Kafka's answer may come after all, as soon as its broker has got the time for it.
    """
    others: dict[str, Callable[[tuple[str, int], float], bool]] = {"http": speaks_http, "tls": speaks_tls}
    found = "http" if head.startswith((b"HTTP", b"<!DOC", b"<html")) else first_of(others, address, busy)
    if found == "http":
        raise NotKafka(
            f"{where} speaks HTTP, not Kafka; brokers listen on port 9092 unless configured otherwise"
        )
    if found == "tls":
        raise NotKafka(wants_tls_text(where))


def first_of(
    others: dict[str, Callable[[tuple[str, int], float], bool]],
    address: tuple[str, int],
    busy: socket.socket | None,
) -> str | None:
    """The name of the first of the protocols `others` that is spoken there; None if there is none, or `busy` can be
    read.
    """
    verdicts: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()

    def ask(name: str, speaks: Callable[[tuple[str, int], float], bool]) -> None:
        verdicts.put((name, speaks(address, OTHER_SECONDS)))

    for item in others.items():
        threading.Thread(target=ask, args=item, daemon=True).start()
    waiting, deadline = len(others), time.monotonic() + OTHER_SECONDS
    while (waiting or busy is not None) and time.monotonic() < deadline:
        if busy is not None and has_spoken(busy):
            return None
        try:
            name, is_spoken = verdicts.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            continue
        if is_spoken:
            return name
        waiting -= 1
    return None


def has_spoken(connected: socket.socket, seconds: float = 0) -> bool:
    """Whether the peer has sent unread bytes or closed the connection; waits for that, with a time limit."""
    return bool(select.select([connected], [], [], seconds)[0])


def wants_tls_text(where: str) -> str:
    """The message for a listener with TLS."""
    return f"{where} wants TLS; add -X security.protocol=SSL (and -X ssl.ca.location=FILE for a certificate of your own)"


def speaks_http(address: tuple[str, int], seconds: float) -> bool:
    """Whether a web server answers there."""
    try:
        with socket.create_connection(address, seconds) as connected:
            connected.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return receive(connected, 5) == b"HTTP/"
    except OSError:
        return False


def speaks_tls(address: tuple[str, int], seconds: float) -> bool:
    """Whether a TLS server answers there, whatever its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, seconds) as connected,
            context.wrap_socket(connected, server_hostname=address[0]),
        ):
            return True
    except ssl.SSLError as error:
        # An alert comes from a TLS server too: it refuses our versions, or wants a name or a certificate.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def receive(connected: socket.socket, size_bytes: int) -> bytes:
    """So many bytes, fewer when the peer closes. Raises TimeoutError, OSError."""
    data, deadline = b"", time.monotonic() + (connected.gettimeout() or PATIENCE_SECONDS)
    while len(data) < size_bytes:
        if time.monotonic() > deadline:
            raise TimeoutError
        part = connected.recv(size_bytes - len(data))
        if not part:
            break
        data += part
    return data
