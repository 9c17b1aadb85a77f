"""A small HTTP client for bulk deliveries: persistent connections, retries with back-off, clear errors."""

from __future__ import annotations

import base64
import http.client
import ssl
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from barnabas.pipelines.kinds.targets.base import DeliveryError

RETRIED: Final = frozenset({429, 502, 503, 504})
BACKOFF_S: Final = 0.2
BACKOFF_MAX_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's response."""

    status: int
    body: bytes


class HttpTarget:
    """One server. The URL may contain user and password. deadline_s: how long a request is retried.

    Raises DeliveryError; once the URL is accepted, its message names the server without the password.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        deadline_s: float = 120.0,
        compress: bool = True,
        ca_file: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DeliveryError(f"{url!r} is not a URL like http://host:9200")
        self.name = (
            f"{parts.scheme}://{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        )
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._timeout_s, self._deadline_s, self._compress = timeout_s, deadline_s, compress
        self._headers = {"User-Agent": "barnabas", **(headers or {})}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """The response, whatever its status, except for overload: then, and after connection errors, the request is
        retried until the deadline. Raises DeliveryError after that."""
        sent = {**self._headers, **(headers or {})}
        if body and self._compress:
            packer = zlib.compressobj(1, zlib.DEFLATED, 31)
            body = packer.compress(body) + packer.flush()
            sent["Content-Encoding"] = "gzip"
        give_up = time.monotonic() + self._deadline_s
        pause_s = BACKOFF_S
        while True:
            try:
                answer = self._once(method, path, body, sent)
                if answer.status not in RETRIED:
                    return answer
                problem = f"{self.name} answered {answer.status}: {short_text(answer.body)}"
            except (OSError, http.client.HTTPException) as error:
                self.close()
                problem = f"{self.name} does not answer: {error or type(error).__name__}"
            if time.monotonic() + pause_s > give_up:
                raise DeliveryError(problem)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, BACKOFF_MAX_S)

    def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        if self._connection is None:
            if self._tls is None:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
            else:
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._timeout_s, context=self._tls
                )
        self._connection.request(method, self._path + path, body or None, dict(headers))
        response = self._connection.getresponse()
        return Answer(response.status, response.read())


def short_text(body: bytes, chars: int = 300) -> str:
    """The beginning of a response's body, on one line."""
    return " ".join(body.decode("utf-8", "replace").split())[:chars]
