"""Requests of connectors to HTTP services: those that may be repeated are RetriableError."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from barnabas.connect.errors import ConnectError, DataError, OptionError, RetriableError
from barnabas.connect.records import SinkRecord
from barnabas.http_client import Address, Answer, BadAddress, NoAnswer, Service, parts_of, without_login

BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


Left = TypeVar("Left")


@dataclass
class Halted(Generic[Left]):
    """How far a call of `put` had come when it raised RetriableError: what is repeated is only what is left of its records.

    records: of that call, after which the same list comes again. left: None at first.
    """

    records: Sequence[SinkRecord] = ()
    left: Left | None = None

    def take(self, records: Sequence[SinkRecord]) -> Left | None:
        """What is left of these records; None if they come for the first time. It is not remembered any more."""
        left, known = self.left, self.records
        self.left, self.records = None, ()
        return left if records is known else None

    def keep(self, records: Sequence[SinkRecord], left: Left) -> None:
        """For the next `take`."""
        self.records, self.left = records, left


class Talk:
    """One service. Raises OptionError for what is no address."""

    def __init__(
        self, url: str, timeout_s: float, headers: Mapping[str, str] | None = None, ca_file: str | None = None
    ) -> None:
        try:
            parts = parts_of(url)
        except BadAddress:
            raise OptionError(f"{without_login(url)!r} is not a URL like http://host:9200") from None
        context = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" and ca_file else None
        self.name = without_login(url)
        self._path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        root = url[: len(url) - len(self._path)] if url.endswith(self._path) else url
        self._service = Service(Address(root, context), timeout_s=timeout_s)
        self._headers = dict(headers or {})

    def close(self) -> None:
        """Closes the connection."""
        self._service.close()

    def ask(
        self, method: str, path: str | None = None, body: bytes = b"", media_type: str = "application/json"
    ) -> Answer:
        """The answer, if it is not an error. path: None for that of the URL. Raises RetriableError, DataError (4xx)."""
        headers = {"Content-Type": media_type, **self._headers}
        try:
            answer = self._service.ask(method, self._path if path is None else path, body, headers)
        except NoAnswer as error:
            raise RetriableError(f"{self.name} does not answer: {error}") from error
        if answer.status in BUSY:
            raise RetriableError(f"{self.name} answers {answer.status}: {short(answer.body)}")
        if answer.status in (401, 403, 404):
            raise ConnectError(f"{self.name} answers {answer.status}: {short(answer.body)}")
        if answer.status >= 400:
            raise DataError(f"{self.name} answers {answer.status}: {short(answer.body)}")
        return answer


def short(body: bytes) -> str:
    """The beginning of a body on one line."""
    return " ".join(body.decode("utf-8", "replace").split())[:300]


def plain_json(value: Any, schema: Any = None) -> str:
    """A value as JSON for other services: decimals as numbers, times as ISO texts."""
    return json.dumps(value, default=_text, ensure_ascii=False, separators=(",", ":"))


def _text(value: Any) -> Any:
    import base64
    from decimal import Decimal

    if isinstance(value, Decimal):
        return float(value) if value % 1 else int(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
