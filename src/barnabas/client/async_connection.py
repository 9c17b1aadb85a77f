"""One asynchronous connection to one broker, with the negotiation, logins and error texts of the blocking one.

    connection = await AsyncConnection.open("localhost", 9092, options)
    answer = await connection.call(MetadataRequest(topics=[]), MetadataResponse)

Several tasks may call at the same time: requests are written in the order of the calls and answered in that order. What
breaks the connection fails every request under way with BrokerUnavailable; the connection is closed then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from barnabas.client.connection import body_of, frame_size, handshake_failed, tls_refused
from barnabas.client.errors import BrokerUnavailable, ClientError
from barnabas.client.login import Versions, choose_version, decode_answer, log_in
from barnabas.client.options import ClientOptions
from barnabas.wire.header import encode_request_parts
from barnabas.wire.primitives import WireError
from barnabas.wire.schema import Message

log = logging.getLogger("barnabas.client")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[str, int, ssl.SSLContext | None], Awaitable[Streams]]
"""Connects to a host and port, with TLS or without. Raises OSError."""

READ_AHEAD_BYTES: Final = 1 << 20
"""How much a connection reads in advance: with asyncio's 64 KB, large answers come in at half the speed."""


class Waiting(NamedTuple):
    """A request under way."""

    correlation_id: int
    response: type[Message]
    version: int
    body: asyncio.Future[memoryview]


class AsyncConnection:
    """Made by `open`. versions: what the broker serves, by API key."""

    def __init__(
        self,
        address: str,
        options: ClientOptions,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.address = address
        self.options = options
        self.versions: Versions = {}
        self._reader = reader
        self._writer = writer
        self._waiting: deque[Waiting] = deque()
        self._correlation_id = 0
        self._failure: ClientError | None = None
        self._receiving = asyncio.create_task(self._receive(), name=f"answers of {address}")

    @classmethod
    async def open(
        cls, host: str, port: int, options: ClientOptions, dial: Dial | None = None
    ) -> AsyncConnection:
        """dial: how to connect; None for a socket of this machine's. Raises BrokerUnavailable, AuthenticationFailed,
        UnsupportedByBroker."""
        address = f"{host}:{port}"
        if dial is None:
            reader, writer = await _open_streams(host, port, options)
        else:
            try:
                reader, writer = await dial(
                    host, port, None if options.tls is None else options.tls.context()
                )
            except OSError as error:
                raise BrokerUnavailable(f"no broker answers at {address}: {_reason(error)}") from error
        connection = cls(address, options, reader, writer)
        try:
            await connection._log_in()
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._failure is None

    def close(self) -> None:
        """Fails what is under way."""
        self._fail(BrokerUnavailable(f"the connection to {self.address} was closed"))

    def version_for(self, request: type[Message]) -> int:
        """The highest version that both sides know. Raises UnsupportedByBroker."""
        return choose_version(self.address, self.versions, request)

    def serves(self, request: type[Message]) -> bool:
        """Whether the broker announced this API."""
        return request.API_KEY in self.versions

    async def call(
        self,
        request: Message,
        response: type[Message],
        *,
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """The answer. version_max: no version above it. timeout_s: in place of the options' request_timeout_s.

        Raises UnsupportedByBroker, BrokerUnavailable.
        """
        version = self.version_for(type(request))
        if version_max is not None:
            version = min(version, version_max)
        body = await self._exchange(request, response, version, timeout_s)
        return decode_answer(self.address, response, body, version)

    async def _log_in(self) -> None:
        sasl, bearer = self.options.sasl, ""
        if sasl is not None and sasl.is_bearer:
            bearer = await asyncio.to_thread(sasl.bearer)  # a file is read, or a server asked
        conversation = log_in(self.address, self.options, bearer)
        ask = next(conversation)
        while True:
            body = await self._exchange(ask.request, ask.response, ask.version)
            try:
                ask = conversation.send(body)
            except StopIteration as end:
                self.versions = end.value
                return

    async def _exchange(
        self, request: Message, response: type[Message], version: int, timeout_s: float | None = None
    ) -> memoryview:
        if self._failure is not None:
            raise self._failure
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request_parts(request, version, self._correlation_id, self.options.client_id)
        log.debug("%s version %d to %s", type(request).__name__, version, self.address)
        body: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        # No await between the number, the write and the queue: the broker answers in the order of the writes.
        self._waiting.append(Waiting(self._correlation_id, response, version, body))
        self._writer.writelines(parts)
        seconds = self.options.request_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(seconds):
                return await body
        except TimeoutError:
            self._fail(BrokerUnavailable(f"{self.address} did not answer within {seconds:g} s"))
            raise BrokerUnavailable(f"{self.address} did not answer within {seconds:g} s") from None

    async def _receive(self) -> None:
        try:
            while True:
                length = await self._reader.readexactly(4)
                frame = await self._reader.readexactly(frame_size(length, self.address, self.options))
                if not self._waiting:
                    raise BrokerUnavailable(f"{self.address} answered where nothing was asked")
                waiting = self._waiting.popleft()
                view = memoryview(frame)
                try:
                    body = body_of(
                        view, self.address, waiting.response, waiting.version, waiting.correlation_id
                    )
                except BaseException:
                    self._waiting.appendleft(waiting)
                    raise
                if not waiting.body.done():  # its caller may have been cancelled
                    waiting.body.set_result(body)
        except asyncio.IncompleteReadError:
            self._fail(BrokerUnavailable(f"{self.address} closed the connection"))
        except ssl.SSLError as error:
            self._fail(tls_refused(self.options, self.address, error))
        except OSError as error:
            self._fail(BrokerUnavailable(f"the connection to {self.address} broke: {error}"))
        except WireError as error:
            self._fail(BrokerUnavailable(f"{self.address} sent an answer that cannot be read: {error}"))
        except ClientError as error:
            self._fail(error)

    def _fail(self, error: ClientError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._writer.transport.abort()
        if asyncio.current_task() is not self._receiving:
            self._receiving.cancel()
        while self._waiting:
            body = self._waiting.popleft().body
            if not body.done():
                body.set_exception(error)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, after `close`."""
        with contextlib.suppress(asyncio.CancelledError):
            await self._receiving
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def _open_streams(host: str, port: int, options: ClientOptions) -> Streams:
    """Raises BrokerUnavailable, AuthenticationFailed."""
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            plain = await _connect(host, port)
    except OSError as error:
        raise BrokerUnavailable(f"no broker answers at {address}: {_reason(error)}") from error
    try:
        context = None if options.tls is None else options.tls.context()
        async with asyncio.timeout(options.request_timeout_s):
            return await asyncio.open_connection(
                sock=plain,
                limit=READ_AHEAD_BYTES,
                ssl=context,
                server_hostname=None if context is None else host,
            )
    except OSError as error:
        plain.close()
        raise handshake_failed(options, address, error) from error
    except BaseException:
        plain.close()
        raise


async def _connect(host: str, port: int) -> socket.socket:
    """A connected socket. Raises OSError, that of the last address tried."""
    loop = asyncio.get_running_loop()
    last: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, where in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.setblocking(False)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await loop.sock_connect(plain, where)
        except OSError as error:
            plain.close()
            last = error
        except BaseException:
            plain.close()
            raise
        else:
            return plain
    raise last


def _reason(error: OSError) -> str:
    """An error of `connect` as a blocking socket words it."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if error.errno is None or isinstance(error, socket.gaierror):
        return str(error)
    return f"[Errno {error.errno}] {os.strerror(error.errno)}"
