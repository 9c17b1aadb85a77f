"""One blocking connection to one broker: version negotiation, TLS, SASL, requests in flight.

Requests are answered in the order in which they were sent (Kafka's rule), so several may be under way:
`send` them, then `receive` as often. Not thread-safe: each thread has its own.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections import deque
from typing import Any, Final, NamedTuple

from barnabas.client.errors import AuthenticationFailed, BrokerUnavailable, ClientError
from barnabas.client.login import Versions, choose_version, decode_answer, log_in
from barnabas.client.options import ClientOptions
from barnabas.client.tls import not_trusted_text, own_source
from barnabas.security.purposes import NO_CLIENT_AUTH, why_ended
from barnabas.wire.header import decode_response_header, encode_request_parts
from barnabas.wire.schema import Message

log = logging.getLogger("barnabas.client")

RESPONSE_BYTES_MAX: Final = 1 << 30
TLS_ALERT: Final = 0x15
"""First byte of what a TLS listener answers to plain text; as a length it would be 350 MB."""


class Pending(NamedTuple):
    """A request under way."""

    correlation_id: int
    response: type[Message]
    version: int


class BrokerConnection:
    """Connects on construction. Raises BrokerUnavailable, AuthenticationFailed, UnsupportedByBroker.

    versions: what the broker serves, by API key. pending: requests not yet answered.
    """

    def __init__(self, host: str, port: int, options: ClientOptions) -> None:
        self.address = f"{host}:{port}"
        self.options = options
        self.versions: Versions = {}
        self.pending: deque[Pending] = deque()
        self._correlation_id = 0
        self._length = bytearray(4)
        self._socket = self._connect(host, port)
        try:
            self._log_in()
        except BaseException:
            self.close()
            raise

    def _connect(self, host: str, port: int) -> socket.socket:
        try:
            plain = socket.create_connection((host, port), self.options.connect_timeout_s)
        except OSError as error:
            raise BrokerUnavailable(f"no broker answers at {self.address}: {error}") from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        plain.settimeout(self.options.request_timeout_s)
        if self.options.tls is None:
            return plain
        try:
            return self.options.tls.context().wrap_socket(plain, server_hostname=host)
        except OSError as error:
            plain.close()
            raise handshake_failed(self.options, self.address, error) from error

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """Make whatever another thread waits for on this connection fail with BrokerUnavailable at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def fileno(self) -> int:
        """For `select`: readable when an answer has come; -1 once it is closed."""
        return self._socket.fileno()

    def _log_in(self) -> None:
        sasl = self.options.sasl
        bearer = sasl.bearer() if sasl is not None and sasl.is_bearer else ""
        conversation = log_in(self.address, self.options, bearer)
        ask = next(conversation)
        while True:
            correlation_id = self._write(ask.request, ask.version)
            body = self._read_body(correlation_id, ask.response, ask.version)
            try:
                ask = conversation.send(body)
            except StopIteration as end:
                self.versions = end.value
                return

    def version_for(self, request: type[Message]) -> int:
        """The highest version that both sides know. Raises UnsupportedByBroker."""
        return choose_version(self.address, self.versions, request)

    def send(self, request: Message, response: type[Message], *, expect_answer: bool = True) -> None:
        """Sends without waiting. `expect_answer` False for Produce with acks 0, which gets none."""
        version = self.version_for(type(request))
        correlation_id = self._write(request, version)
        if expect_answer:
            self.pending.append(Pending(correlation_id, response, version))

    def receive(self) -> Any:
        """The answer to the oldest request under way. Record fields are views into fresh memory."""
        pending = self.pending.popleft()
        body = self._read_body(pending.correlation_id, pending.response, pending.version)
        return decode_answer(self.address, pending.response, body, pending.version)

    def call(self, request: Message, response: type[Message]) -> Any:
        """Sends and waits. Only while nothing else is under way."""
        assert not self.pending, "a call would take the answer of an earlier request"
        self.send(request, response)
        return self.receive()

    def _write(self, request: Message, version: int) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request_parts(request, version, self._correlation_id, self.options.client_id)
        log.debug("%s version %d to %s", type(request).__name__, version, self.address)
        try:
            for part in parts:
                self._socket.sendall(part)
        except ssl.SSLError as error:
            raise tls_refused(self.options, self.address, error) from error
        except OSError as error:
            raise BrokerUnavailable(f"the connection to {self.address} broke: {error}") from error
        return self._correlation_id

    def _read_body(self, correlation_id: int, response: type[Message], version: int) -> memoryview:
        self._read_into(memoryview(self._length))
        frame = memoryview(bytearray(frame_size(self._length, self.address, self.options)))
        self._read_into(frame)
        return body_of(frame, self.address, response, version, correlation_id)

    def _read_into(self, view: memoryview) -> None:
        try:
            while view:
                count = self._socket.recv_into(view)
                if count == 0:
                    raise BrokerUnavailable(f"{self.address} closed the connection")
                view = view[count:]
        except TimeoutError as error:
            seconds = self.options.request_timeout_s
            raise BrokerUnavailable(f"{self.address} did not answer within {seconds:g} s") from error
        except ssl.SSLError as error:
            raise tls_refused(self.options, self.address, error) from error
        except OSError as error:
            raise BrokerUnavailable(f"the connection to {self.address} broke: {error}") from error


def frame_size(length: bytes | bytearray, address: str, options: ClientOptions) -> int:
    """The size that an answer's first four bytes announce. Raises AuthenticationFailed, BrokerUnavailable."""
    size = int.from_bytes(length, "big", signed=True)
    if length[0] == TLS_ALERT and options.tls is None:
        raise AuthenticationFailed(f"{address} speaks TLS: set security.protocol to SSL or SASL_SSL")
    if not 4 <= size <= RESPONSE_BYTES_MAX:
        raise BrokerUnavailable(f"{address} is not a Kafka broker: it announced {size} bytes")
    return size


def body_of(
    frame: memoryview, address: str, response: type[Message], version: int, correlation_id: int
) -> memoryview:
    """The body of the answer to request `correlation_id`. Raises BrokerUnavailable."""
    answered, pos = decode_response_header(frame, response.API_KEY, version)
    if answered != correlation_id:
        raise BrokerUnavailable(f"{address} answered request {answered} where {correlation_id} was expected")
    return frame[pos:]


def handshake_failed(options: ClientOptions, address: str, error: OSError) -> ClientError:
    """What a TLS handshake that ended with `error` means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        pairs = {} if options.tls is None else dict(options.tls.pairs)
        return AuthenticationFailed(not_trusted_text(pairs, address, error))
    if isinstance(error, ssl.SSLError):
        why = why_ended(error, NO_CLIENT_AUTH)
        return AuthenticationFailed(f"TLS handshake with {address} failed: {why}")
    # a broker that goes away in the middle: it may come back
    return BrokerUnavailable(f"TLS handshake with {address} broke: {error}")


def tls_refused(options: ClientOptions, address: str, error: ssl.SSLError) -> ClientError:
    """In TLS 1.3 a broker says only after the handshake that it does not take our certificate, or wants one."""
    if "ALERT" not in (error.reason or ""):
        return BrokerUnavailable(f"the connection to {address} broke: {error}")
    own = "" if options.tls is None else own_source(dict(options.tls.pairs))
    hint = (
        f"it does not take the certificate in {own}"
        if own
        else "does it ask for a certificate (ssl.keystore.location or ssl.certificate.location)?"
    )
    reason = why_ended(error, NO_CLIENT_AUTH)
    return AuthenticationFailed(f"{address} refused the TLS connection: {reason}; {hint}")
