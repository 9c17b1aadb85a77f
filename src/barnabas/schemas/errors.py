"""What is refused about a schema, in one sentence. Pure."""

from __future__ import annotations

from typing import Final

INVALID_SCHEMA: Final = 42201
"""Confluent's error code."""


class SchemaError(Exception):
    """A schema, or a request about schemas, is refused. code: Confluent's error code. message: what is wrong, what to do."""

    def __init__(self, code: int, message: str) -> None:
        self.code = int(code)
        self.message = message
        super().__init__(message)


class InvalidSchema(SchemaError):
    """A schema is invalid; the message names the place in it."""

    def __init__(self, message: str) -> None:
        super().__init__(INVALID_SCHEMA, message)
