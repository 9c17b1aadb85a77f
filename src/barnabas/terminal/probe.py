"""Finds out what answers at an address, before a client library retries for half a minute and blames the broker.

A Kafka listener answers an ApiVersions request of the first version whatever its security protocol demands later; it
closes the connection on a Metadata request if SASL must come first. No library is needed here, and one round
trip when all is well.
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
from enum import Enum
from typing import Final

from barnabas.terminal.output import MANNER

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
    if protocol.upper().endswith("SSL"):
        _require_tls(connected, where, protocol)
        return None
    connected.settimeout(PATIENCE_SECONDS)
    try:
        connected.sendall(QUESTION)
    except OSError:
        pass  # what it sent before it closed the connection can still be read
    if not has_spoken(connected, PATIENCE_SECONDS):
        require_nothing_else(address, where, protocol, busy=connected)
        if not has_spoken(connected):
            return f"{where} accepts connections and has said nothing yet; waiting for it"
    head = _head(connected)
    if _is_kafka(head):
        _require_login(connected, head, where, protocol)
        return None
    if head[:2] == b"\x15\x03":
        raise NotKafka(wants_tls_text(address, where, protocol))
    require_nothing_else(address, where, protocol, head)
    if head:
        raise NotKafka(f"{where} is not a Kafka broker: it answers {head!r}")
    return None  # it closed the connection, as very old brokers do; the client library's error says more


def _require_tls(connected: socket.socket, where: str, protocol: str) -> None:
    """Raises NotKafka where no TLS is spoken, or where the listener behind it wants another login than `protocol` means.

    A slow handshake is no verdict, and whether the certificates are good is left to the client library.
    """
    inside = open_tls(connected, where.rpartition(":")[0], 2 * PATIENCE_SECONDS)
    if inside is NoTls.SPOKEN:
        raise NotKafka(
            f"{where} does not speak TLS; leave out security.protocol={protocol}, or name another port"
        )
    if isinstance(inside, NoTls):
        return
    with inside:
        inside.settimeout(PATIENCE_SECONDS)
        try:
            inside.sendall(QUESTION)
        except OSError:
            return
        head = _head(inside)
        if _is_kafka(head):
            _require_login(inside, head, where, protocol)


def _head(connected: socket.socket) -> bytes:
    """The first bytes of an answer; none if the connection breaks before."""
    try:
        return receive(connected, 8)
    except OSError:
        return b""


def _is_kafka(head: bytes) -> bool:
    """Whether an answer to the first request of QUESTION begins like this."""
    return len(head) == 8 and head[4:] == struct.pack(">i", 1)


def _require_login(connected: socket.socket, head: bytes, where: str, protocol: str) -> None:
    """Raises NotKafka when the listener wants SASL and `protocol` has none, or the other way around.

    head: the beginning of the first answer. A listener with SASL closes the connection on the second request.
    """
    has_sasl = protocol.upper().startswith("SASL")
    closes = closes_after(connected, struct.unpack(">i", head[:4])[0] - 4)
    if closes and not has_sasl:
        fitting = "SASL_SSL" if protocol.upper() == "SSL" else "SASL_PLAINTEXT"
        login = ("sasl.mechanism=...", "sasl.username=...", "sasl.password=...")
        advice = MANNER.properties(f"security.protocol={fitting}", *login)
        raise NotKafka(f"{where} wants SASL; name a mechanism and credentials: {advice}")
    if closes is False and has_sasl:
        fitting = (
            f"say {MANNER.properties('security.protocol=SSL')}"
            if protocol.upper() == "SASL_SSL"
            else "leave it out"
        )
        raise NotKafka(
            f"{where} takes no login, but security.protocol={protocol} asks for one; {fitting}, or name another port"
        )


def closes_after(connected: socket.socket, size_bytes: int) -> bool | None:
    """Whether the connection ends after the first answer, which has this many bytes left; None if that is not seen."""
    try:
        receive(connected, size_bytes)
        return not connected.recv(1)
    except TimeoutError:
        return None
    except OSError:
        return True


def require_nothing_else(
    address: tuple[str, int],
    where: str,
    protocol: str,
    head: bytes = b"",
    busy: socket.socket | None = None,
) -> None:
    """Raises NotKafka when HTTP or TLS is spoken here.

    busy: a connection on which Kafka's answer may come after all, as soon as its broker has got the time for it.
    """
    others: dict[str, Callable[[tuple[str, int], float], bool]] = {"http": speaks_http, "tls": speaks_tls}
    protocol_there = (
        "http" if head.startswith((b"HTTP", b"<!DOC", b"<html")) else first_of(others, address, busy)
    )
    if protocol_there == "http":
        raise NotKafka(
            f"{where} speaks HTTP, not Kafka; brokers listen on port 9092 unless configured otherwise"
        )
    if protocol_there == "tls":
        raise NotKafka(wants_tls_text(address, where, protocol))


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


def wants_tls_text(address: tuple[str, int], where: str, protocol: str) -> str:
    """The message for a listener with TLS, to a user who named `protocol`. Looks behind TLS whether a login is wanted."""
    has_login = wants_login(address, where)
    if has_login is None:
        has_login = protocol.upper().startswith("SASL")
    own = "ssl.truststore.location=FILE for a certificate of your own"
    if not has_login:
        return f"{where} wants TLS; add {MANNER.properties('security.protocol=SSL')} (and {own})"
    login = ("security.protocol=SASL_SSL", "sasl.mechanism=...", "sasl.username=...", "sasl.password=...")
    return f"{where} wants TLS and a login; add {MANNER.properties(*login)} (and {own})"


def wants_login(address: tuple[str, int], where: str) -> bool | None:
    """Whether a listener with TLS wants SASL; None if that is not seen."""
    try:
        connected = socket.create_connection(address, OTHER_SECONDS)
    except OSError:
        return None
    inside = open_tls(connected, where.rpartition(":")[0], OTHER_SECONDS)
    if isinstance(inside, NoTls):
        return None
    with inside:
        inside.settimeout(OTHER_SECONDS)
        try:
            inside.sendall(QUESTION)
        except OSError:
            return None
        head = _head(inside)
        return closes_after(inside, struct.unpack(">i", head[:4])[0] - 4) if _is_kafka(head) else None


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
    try:
        connected = socket.create_connection(address, seconds)
    except OSError:
        return False
    inside = open_tls(connected, address[0], seconds)
    if isinstance(inside, ssl.SSLSocket):
        inside.close()
        return True
    return inside is NoTls.REFUSED


class NoTls(Enum):
    """Why there is no connection with TLS."""

    SPOKEN = "the peer answers with something else, or ends the connection"
    REFUSED = "the peer speaks TLS, and wants another version, a name or a certificate"
    UNKNOWN = "the peer has not answered in time, or something else went wrong"


def open_tls(connected: socket.socket, host: str, seconds: float) -> ssl.SSLSocket | NoTls:
    """TLS on a fresh connection, whatever the certificate; without TLS, the connection is closed.

    host: its name, as the user gave it: some servers choose by it who answers.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connected.settimeout(seconds)
    try:
        return context.wrap_socket(connected, server_hostname=host.strip("[]") or None)
    except (ssl.SSLEOFError, ConnectionError):
        verdict = NoTls.SPOKEN
    except ssl.SSLError as error:
        reason = error.reason or ""
        # An alert comes from a TLS server too.
        known = {"WRONG_VERSION_NUMBER": NoTls.SPOKEN}
        verdict = NoTls.REFUSED if "ALERT" in reason else known.get(reason, NoTls.UNKNOWN)
    except (OSError, ValueError):  # a name that TLS cannot send is an error of values
        verdict = NoTls.UNKNOWN
    connected.close()
    return verdict


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
