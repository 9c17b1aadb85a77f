"""One blocking connection to one broker: version negotiation, TLS, SASL, requests in flight.

Requests are answered in the order in which they were sent (Kafka's rule), so several may be under way:
`send` them, then `receive` as often. Not thread-safe: each thread has its own.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import deque
from typing import Any, Final, NamedTuple

from barnabas.client.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnavailable,
    ClientError,
    UnsupportedByBroker,
    error_name,
)
from barnabas.client.options import ClientOptions, SaslOptions
from barnabas.client.tls import not_trusted_text, own_source
from barnabas.extras import how_to_install
from barnabas.security.purposes import NO_CLIENT_AUTH, why_ended
from barnabas.wire.header import decode_response_header, encode_request_parts
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.wire.primitives import WireError
from barnabas.wire.schema import Message

log = logging.getLogger("barnabas.client")

RESPONSE_BYTES_MAX: Final = 1 << 30
UNSUPPORTED_VERSION: Final = 35
TLS_ALERT: Final = 0x15
"""First byte of what a TLS listener answers to plain text; as a length it would be 350 MB."""
VERSION_CAPS: Final = {0: 11, 1: 12, 8: 9, 9: 9, 22: 5, 24: 3, 26: 4, 28: 4}
"""Versions above these name topics by id (Fetch, OffsetCommit, OffsetFetch), where this client asks by name, are not
settled (InitProducerId), are for brokers alone (AddPartitionsToTxn), or speak KIP-890's protocol of transactions (Produce,
EndTxn, TxnOffsetCommit), which only brokers with transaction.version 2 take."""


class Pending(NamedTuple):
    """A request under way."""

    correlation_id: int
    response: type[Message]
    version: int


class Connection:
    """Connects on construction. Raises BrokerUnavailable, AuthenticationFailed, UnsupportedByBroker.

    versions: what the broker serves, by API key. pending: requests not yet answered.
    """

    def __init__(self, host: str, port: int, options: ClientOptions) -> None:
        self.address = f"{host}:{port}"
        self.options = options
        self.versions: dict[int, tuple[int, int]] = {}
        self.pending: deque[Pending] = deque()
        self._correlation_id = 0
        self._length = bytearray(4)
        self._socket = self._connect(host, port)
        try:
            if options.sasl is not None and not options.sasl.mechanism:
                raise ClientError("no SASL mechanism is set")
            self._negotiate()
            if options.sasl is not None:
                self._authenticate(options.sasl)
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
        except ssl.SSLCertVerificationError as error:
            plain.close()
            said = not_trusted_text(dict(self.options.tls.pairs), self.address, error)
            raise AuthenticationFailed(said) from error
        except ssl.SSLError as error:
            plain.close()
            why = why_ended(error, NO_CLIENT_AUTH)
            raise AuthenticationFailed(f"TLS handshake with {self.address} failed: {why}") from error
        except OSError as error:  # a broker that goes away in the middle: it may come back
            plain.close()
            raise BrokerUnavailable(f"TLS handshake with {self.address} broke: {error}") from error

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For `select`: readable when an answer has come; -1 once it is closed."""
        return self._socket.fileno()

    def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="0.1.0")
        for version in (3, 0):
            # A broker that does not know version 3 answers in version 0 with error 35.
            correlation_id = self._write(request, version)
            body = self._read_body(correlation_id, ApiVersionsResponse, version)
            code = int.from_bytes(body[:2], "big", signed=True)
            if code == UNSUPPORTED_VERSION and version:
                continue
            response = ApiVersionsResponse.decode(body, version)
            if response.error_code:
                raise BrokerError(response.error_code, f"asking {self.address} for its API versions")
            self.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
            return

    def _authenticate(self, sasl: SaslOptions) -> None:
        answer = self.call(SaslHandshakeRequest(mechanism=sasl.mechanism), SaslHandshakeResponse)
        if answer.error_code:
            known = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationFailed(f"{self.address} does not take {sasl.mechanism}; it takes {known}")
        if sasl.mechanism == "PLAIN":
            self._token(sasl, f"\0{sasl.username}\0{sasl.password}".encode())
        elif sasl.mechanism == "OAUTHBEARER":
            self._token(sasl, f"n,,\x01auth=Bearer {sasl.bearer()}\x01\x01".encode())
        else:
            self._scram(sasl)

    def _scram(self, sasl: SaslOptions) -> None:
        try:
            from scramp import ScramClient, ScramException
        except ImportError:
            raise ClientError(
                f"{sasl.mechanism} needs an extra that is not installed; install it with {how_to_install('security')}"
            ) from None
        client = ScramClient([sasl.mechanism], sasl.username, sasl.password)
        try:
            client.set_server_first(self._token(sasl, client.get_client_first().encode()).decode())
            client.set_server_final(self._token(sasl, client.get_client_final().encode()).decode())
        except ScramException as error:
            raise self._refused(sasl, str(error)) from error

    def _token(self, sasl: SaslOptions, token: bytes) -> bytes:
        answer = self.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
        if answer.error_code:
            raise self._refused(sasl, answer.error_message or error_name(answer.error_code))
        data = bytes(answer.auth_bytes)
        if data.startswith(b"{"):  # OAUTHBEARER: the reason comes as JSON and ends the exchange
            raise self._refused(sasl, data.decode("utf-8", "replace"))
        return data

    def _refused(self, sasl: SaslOptions, reason: str) -> AuthenticationFailed:
        who = f" of {sasl.username}" if sasl.username else ""
        return AuthenticationFailed(
            f"{self.address} refused the credentials{who} ({sasl.mechanism}): {reason}"
        )

    def version_for(self, request: type[Message]) -> int:
        """The highest version that both sides know."""
        low, high = self.versions.get(request.API_KEY, (0, -1))
        ours = request.VERSIONS
        version = min(high, ours[-1], VERSION_CAPS.get(request.API_KEY, ours[-1]))
        if version < max(low, ours[0]):
            name = request.__name__.removesuffix("Request")
            raise UnsupportedByBroker(
                f"{self.address} serves {name} in versions {low} to {high}; {ours[0]} to {ours[-1]} are known here"
                if high >= 0
                else f"{self.address} does not serve {name}",
                name,
            )
        return version

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
        try:
            return pending.response.decode(body, pending.version)
        except WireError as error:
            raise BrokerUnavailable(f"{self.address} sent an answer that cannot be read: {error}") from error

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
            raise self._tls_refused(error) from error
        except OSError as error:
            raise BrokerUnavailable(f"the connection to {self.address} broke: {error}") from error
        return self._correlation_id

    def _read_body(self, correlation_id: int, response: type[Message], version: int) -> memoryview:
        self._read_into(memoryview(self._length))
        size = int.from_bytes(self._length, "big", signed=True)
        if self._length[0] == TLS_ALERT and self.options.tls is None:
            raise AuthenticationFailed(f"{self.address} speaks TLS: set security.protocol to SSL or SASL_SSL")
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise BrokerUnavailable(f"{self.address} is not a Kafka broker: it announced {size} bytes")
        frame = memoryview(bytearray(size))
        self._read_into(frame)
        answered, pos = decode_response_header(frame, response.API_KEY, version)
        if answered != correlation_id:
            raise BrokerUnavailable(
                f"{self.address} answered request {answered} where {correlation_id} was expected"
            )
        return frame[pos:]

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
            raise self._tls_refused(error) from error
        except OSError as error:
            raise BrokerUnavailable(f"the connection to {self.address} broke: {error}") from error

    def _tls_refused(self, error: ssl.SSLError) -> ClientError:
        """In TLS 1.3 a broker says only after the handshake that it does not take our certificate, or wants one."""
        if "ALERT" not in (error.reason or ""):
            return BrokerUnavailable(f"the connection to {self.address} broke: {error}")
        own = "" if self.options.tls is None else own_source(dict(self.options.tls.pairs))
        hint = (
            f"it does not take the certificate in {own}"
            if own
            else "does it ask for a certificate (ssl.keystore.location or ssl.certificate.location)?"
        )
        reason = why_ended(error, NO_CLIENT_AUTH)
        return AuthenticationFailed(f"{self.address} refused the TLS connection: {reason}; {hint}")
