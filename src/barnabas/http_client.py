"""Requests to HTTP services: schema registries, servers of pipelines, identity providers, search engines.

    answer = ask(Address("https://USER:PASSWORD@registry:8081"), "GET", "/subjects", timeout_s=30)

The only module that makes such requests. They go where the configuration says and nowhere else: redirects are not
followed, and the environment's proxies are not used.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

if TYPE_CHECKING:
    import ssl

    import urllib3

PORTS: Final = {"http": 80, "https": 443}
"""Where a service of a scheme listens if its address does not say."""


class Address(NamedTuple):
    """The address of a service: http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH]. context: verifies the service; None for the
    system's authorities. port: where it listens if the URL does not say; None for the scheme's port."""

    url: str
    context: ssl.SSLContext | None = None
    port: int | None = None


class BadAddress(ValueError):
    """Not the address of an HTTP service. The message does not contain it: it may have a password."""


class NoAnswer(OSError):
    """A service did not answer; the message is the reason, in a clause. was_refused: nothing listens there, so that nothing
    was sent."""

    def __init__(self, reason: str, *, was_refused: bool = False) -> None:
        super().__init__(reason)
        self.was_refused = was_refused


class Answer(NamedTuple):
    """A service's answer, whatever its status. media_type: its Content-Type, empty if it names none."""

    status: int
    body: bytes
    media_type: str


class Service:
    """One service, whose connections are kept for the next requests. Threads may share it.

    timeout_s: how long connecting, and waiting for any part of an answer, may take. connections: how many are kept.
    Raises BadAddress.
    """

    def __init__(self, address: Address, *, timeout_s: float, connections: int = 1) -> None:
        self._parts, self._address = parts_of(address.url), address
        self._timeout_s, self._connections = timeout_s, connections
        self._base = self._parts.path.rstrip("/")
        query = f"?{self._parts.query}" if self._parts.query else ""
        self._itself = (self._parts.path or "/") + query
        self._headers = {"User-Agent": "barnabas", **login_of(self._parts)}
        self.pool: urllib3.HTTPConnectionPool | None = None

    def ask(
        self,
        method: str,
        path: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        bytes_max: int | None = None,
    ) -> Answer:
        """The answer to a request. path: below the address's own, with its query; empty for the address itself, as it is.
        bytes_max: the answer is cut off there; 0 does not wait for its body.

        Raises NoAnswer. Nothing is sent a second time.
        """
        import http.client

        import urllib3

        if self.pool is None:
            self.pool = _pool(self._parts, self._address, self._timeout_s, self._connections)
        sent = urllib3.HTTPHeaderDict(self._headers)
        sent.update(headers or {})  # which replaces, whatever the case of the letters
        try:
            response = self.pool.urlopen(
                method,
                self._base + path if path else self._itself,
                body or None,
                sent,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                body_read = b"" if bytes_max == 0 else response.read(bytes_max)
            finally:
                if bytes_max is None:
                    response.release_conn()
                else:
                    response.close()  # there may be more
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            raise _no_answer(error) from error
        return Answer(response.status, body_read, response.headers.get("content-type", ""))

    def close(self) -> None:
        """Close the connections. The next request opens another."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None


def ask(
    address: Address,
    method: str,
    path: str = "",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float,
    bytes_max: int | None = None,
) -> Answer:
    """The answer to one request, over a connection of its own. Raises BadAddress, NoAnswer."""
    service = Service(address, timeout_s=timeout_s)
    try:
        return service.ask(method, path, body, headers, bytes_max=bytes_max)
    finally:
        service.close()


class Stream:
    """An answer whose lines come one after the other, perhaps for days. status, media_type: as of Answer."""

    def __init__(self, response: urllib3.BaseHTTPResponse, pool: urllib3.HTTPConnectionPool) -> None:
        self.status = response.status
        self.media_type = response.headers.get("content-type", "")
        self._response, self._pool = response, pool

    def lines(self) -> Iterator[bytes]:
        """The lines, until the service or `close` ends them. Raises NoAnswer."""
        import http.client

        import urllib3

        rest = b""
        try:
            for part in self._response.stream(1 << 16, decode_content=False):
                *whole, rest = (rest + part).split(b"\n")
                yield from whole
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise _no_answer(error) from error
        if rest:
            yield rest

    def whole(self, bytes_max: int = 1 << 20) -> Answer:
        """All of it, for an answer that is an error."""
        return Answer(self.status, self._response.read(bytes_max) or b"", self.media_type)

    def close(self) -> None:
        """End it, from any thread: whoever waits for a line stops waiting."""
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()
        self._response.close()
        self._pool.close()


def stream(
    address: Address,
    method: str,
    path: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    connect_s: float,
) -> Stream:
    """A request whose answer comes line by line, without a limit of time once it is connected.

    Raises BadAddress, NoAnswer.
    """
    import http.client

    import urllib3

    parts = parts_of(address.url)
    pool = _pool(parts, address, connect_s, 1)
    sent = urllib3.HTTPHeaderDict({"User-Agent": "barnabas", **login_of(parts)})
    sent.update(headers)
    try:
        response = pool.urlopen(
            method,
            parts.path.rstrip("/") + path,
            body,
            sent,
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
            timeout=urllib3.Timeout(connect=connect_s, read=None),
        )
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
        pool.close()
        raise _no_answer(error) from error
    return Stream(response, pool)


def parts_of(url: str) -> SplitResult:
    """The parts of a service's address. Raises BadAddress."""
    parts = urlsplit(url)
    try:
        is_address = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number from 0 to 65535
        is_address = False
    if not is_address:
        raise BadAddress("it is not the address of an HTTP service, for example http://localhost:8081")
    return parts


def login_of(parts: SplitResult) -> dict[str, str]:
    """The header that sends an address's login; empty for an address without one."""
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def without_login(url: str) -> str:
    """The address without its login, for messages."""
    head, at, rest = url.rpartition("@")
    return f"{head.partition('://')[0]}://{rest}" if at and "://" in head else rest if at else url


def _pool(
    parts: SplitResult, address: Address, timeout_s: float, connections: int
) -> urllib3.HTTPConnectionPool:
    # Imported here: it takes as long as a short command, and few commands ask a service.
    import urllib3

    # Without a port, http.client would look for one in the host, and find one in [::1].
    port = parts.port or address.port or PORTS[parts.scheme]
    host = parts.hostname or "localhost"
    if parts.scheme == "http":
        return urllib3.HTTPConnectionPool(host, port, timeout=timeout_s, maxsize=connections)
    context = address.context
    if context is None:
        import ssl

        context = ssl.create_default_context()
    return urllib3.HTTPSConnectionPool(
        host,
        port,
        timeout=timeout_s,
        maxsize=connections,
        ssl_context=context,
        # Otherwise urllib3 compares the host's name also where the context was told not to.
        assert_hostname=None if context.check_hostname else False,
    )


def _no_answer(error: BaseException) -> NoAnswer:
    """Why there is no answer. urllib3 wraps the system's error, or that of http.client."""
    import urllib3

    inner: BaseException = error
    while True:
        wrapped = [arg for arg in inner.args if isinstance(arg, Exception)]
        deeper = inner.__cause__ or (wrapped[0] if wrapped else None)
        if deeper is None:
            break
        inner = deeper
    if isinstance(inner, urllib3.exceptions.TimeoutError | TimeoutError):
        return NoAnswer("timed out")
    reason = getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
    return NoAnswer(reason, was_refused=isinstance(inner, ConnectionRefusedError))
