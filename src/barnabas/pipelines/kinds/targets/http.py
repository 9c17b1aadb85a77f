"""A small HTTP client for bulk deliveries: persistent connections, retries with back-off, clear errors."""

from __future__ import annotations

import ssl
import time
import zlib
from collections.abc import Mapping
from typing import Final

from barnabas.http_client import Address, Answer, BadAddress, NoAnswer, Service, parts_of
from barnabas.pipelines.kinds.targets.base import DeliveryError

RETRIED: Final = frozenset({429, 502, 503, 504})
BACKOFF_S: Final = 0.2
BACKOFF_MAX_S: Final = 10.0


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
        try:
            parts = parts_of(url)
        except BadAddress:
            raise DeliveryError(f"{url!r} is not a URL like http://host:9200") from None
        self.name = (
            f"{parts.scheme}://{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        )
        context = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._service = Service(Address(url, context), timeout_s=timeout_s)
        self._deadline_s, self._compress = deadline_s, compress
        self._headers = dict(headers or {})

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
        self._service.close()

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
                answer = self._service.ask(method, path, body, sent)
                if answer.status not in RETRIED:
                    return answer
                problem = f"{self.name} answered {answer.status}: {short_text(answer.body)}"
            except NoAnswer as error:
                self.close()
                problem = f"{self.name} does not answer: {error}"
            if time.monotonic() + pause_s > give_up:
                raise DeliveryError(problem)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, BACKOFF_MAX_S)


def short_text(body: bytes, chars: int = 300) -> str:
    """The beginning of a response's body, on one line."""
    return " ".join(body.decode("utf-8", "replace").split())[:chars]
