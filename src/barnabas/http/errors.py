"""The exception with which handlers refuse a request, and the type of functions that write it as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class HttpError(Exception):
    """Refuses a request. code: the number that the API documents, by default the HTTP status itself."""

    def __init__(
        self,
        status: int,
        message: str,
        code: int | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.code = status if code is None else code
        self.headers = dict(headers or {})
        super().__init__(message)


class ErrorShape(Protocol):
    """Writes an error in the format of an API."""

    def __call__(self, error: HttpError, request_id: str) -> tuple[bytes, str]:
        """The body of the answer and its media type."""
        ...
