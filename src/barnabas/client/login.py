"""How a connection begins: version negotiation and SASL, as a conversation without I/O.

    conversation = log_in("host:9092", options)
    ask = next(conversation)
    ask = conversation.send(body)      # the body of the answer to `ask`; StopIteration carries what the broker serves

Both the blocking and the asynchronous connection drive it, so that both negotiate and fail in the same way.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from barnabas.client.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnavailable,
    ClientError,
    CredentialsRefused,
    UnsupportedByBroker,
    error_name,
)
from barnabas.client.options import ClientOptions, SaslOptions
from barnabas.extras import how_to_install
from barnabas.wire.header import decode_api_versions
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.wire.primitives import Buffer, WireError
from barnabas.wire.schema import Message

UNSUPPORTED_VERSION: Final = 35
VERSION_CAPS: Final = {0: 11, 1: 12, 8: 9, 9: 9, 22: 5, 24: 3, 26: 4, 28: 4}
"""Versions above these name topics by id (Fetch, OffsetCommit, OffsetFetch), where this client asks by name, are not
settled (InitProducerId), are for brokers alone (AddPartitionsToTxn), or speak KIP-890's protocol of transactions (Produce,
EndTxn, TxnOffsetCommit), which only brokers with transaction.version 2 take."""

Versions = dict[int, tuple[int, int]]
"""What a broker serves: the lowest and highest version by API key."""


class Ask(NamedTuple):
    """A request of the conversation, and the version that it and its answer have."""

    request: Message
    response: type[Message]
    version: int


def choose_version(address: str, versions: Versions, request: type[Message]) -> int:
    """The highest version that both sides know. Raises UnsupportedByBroker."""
    low, high = versions.get(request.API_KEY, (0, -1))
    ours = request.VERSIONS
    version = min(high, ours[-1], VERSION_CAPS.get(request.API_KEY, ours[-1]))
    if version < max(low, ours[0]):
        name = request.__name__.removesuffix("Request")
        raise UnsupportedByBroker(
            f"{address} serves {name} in versions {low} to {high}; {ours[0]} to {ours[-1]} are known here"
            if high >= 0
            else f"{address} does not serve {name}",
            name,
        )
    return version


def decode_answer(address: str, response: type[Message], body: Buffer, version: int) -> Any:
    """An answer's body as a message. Raises BrokerUnavailable if it cannot be read."""
    try:
        return response.decode(body, version)
    except WireError as error:
        raise BrokerUnavailable(f"{address} sent an answer that cannot be read: {error}") from error


def log_in(address: str, options: ClientOptions, bearer: str = "") -> Generator[Ask, Buffer, Versions]:
    """What the broker serves, once it has accepted the login. bearer: the token, if one is needed: to get it may block.

    Raises AuthenticationFailed, UnsupportedByBroker, BrokerError, BrokerUnavailable.
    """
    if options.sasl is not None and not options.sasl.mechanism:
        raise ClientError("no SASL mechanism is set")
    versions = yield from _negotiate(address)
    if options.sasl is not None:
        yield from _Login(address, versions, options.sasl, bearer).run()
    return versions


def _negotiate(address: str) -> Generator[Ask, Buffer, Versions]:
    request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="0.1.0")
    version = 3
    while True:
        # A broker that does not know version 3 answers in version 0 with error 35.
        body = yield Ask(request, ApiVersionsResponse, version)
        try:
            answer = decode_api_versions(body, version)
        except WireError as error:
            raise BrokerUnavailable(f"{address} sent an answer that cannot be read: {error}") from error
        if answer.error_code == UNSUPPORTED_VERSION and version:
            version = 0
            continue
        if answer.error_code:
            raise BrokerError(answer.error_code, f"asking {address} for its API versions")
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


class _Login:
    """One SASL exchange."""

    def __init__(self, address: str, versions: Versions, sasl: SaslOptions, bearer: str) -> None:
        self._address = address
        self._versions = versions
        self._sasl = sasl
        self._bearer = bearer

    def run(self) -> Generator[Ask, Buffer, None]:
        sasl = self._sasl
        answer = yield from self._call(SaslHandshakeRequest(mechanism=sasl.mechanism), SaslHandshakeResponse)
        if answer.error_code:
            known = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationFailed(f"{self._address} does not take {sasl.mechanism}; it takes {known}")
        if sasl.mechanism == "PLAIN":
            yield from self._token(f"\0{sasl.username}\0{sasl.password}".encode())
        elif sasl.is_bearer:
            pairs = "".join(f"\x01{pair.strip()}" for pair in sasl.extensions.split(",") if pair.strip())
            yield from self._token(f"n,,\x01auth=Bearer {self._bearer}{pairs}\x01\x01".encode())
        else:
            yield from self._scram()

    def _scram(self) -> Generator[Ask, Buffer, None]:
        sasl = self._sasl
        try:
            from scramp import ScramClient, ScramException
        except ImportError:
            raise ClientError(
                f"{sasl.mechanism} needs an extra that is not installed; install it with {how_to_install('security')}"
            ) from None
        client = ScramClient([sasl.mechanism], sasl.username, sasl.password)
        try:
            first = yield from self._token(client.get_client_first().encode())
            client.set_server_first(first.decode())
            final = yield from self._token(client.get_client_final().encode())
            client.set_server_final(final.decode())
        except ScramException as error:
            raise self._refused(str(error)) from error

    def _token(self, token: bytes) -> Generator[Ask, Buffer, bytes]:
        answer = yield from self._call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
        if answer.error_code:
            raise self._refused(answer.error_message or error_name(answer.error_code))
        data = bytes(answer.auth_bytes)
        if data.startswith(b"{"):  # OAUTHBEARER: the reason comes as JSON and ends the exchange
            raise self._refused(data.decode("utf-8", "replace"))
        return data

    def _call(self, request: Message, response: type[Message]) -> Generator[Ask, Buffer, Any]:
        version = choose_version(self._address, self._versions, type(request))
        body = yield Ask(request, response, version)
        return decode_answer(self._address, response, body, version)

    def _refused(self, reason: str) -> CredentialsRefused:
        self._sasl.forget_bearer()
        who = f" of {self._sasl.username}" if self._sasl.username else ""
        return CredentialsRefused(
            f"{self._address} refused the credentials{who} ({self._sasl.mechanism}): {reason}"
        )
