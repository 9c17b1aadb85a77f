"""Errors of the registry: an HTTP status, Confluent's error code and a message of one sentence. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.schemas.errors import INVALID_SCHEMA, SchemaError


class Code(IntEnum):
    """Confluent's error codes; the first three digits are the HTTP status."""

    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    SUBJECT_CONFIG_NOT_FOUND = 40408
    SUBJECT_MODE_NOT_FOUND = 40409
    INCOMPATIBLE = 409
    INVALID_SCHEMA = INVALID_SCHEMA
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY = 42203
    INVALID_MODE = 42204
    NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    ID_MISMATCH = 42207
    INVALID_SUBJECT = 42208
    TOO_LARGE = 42209
    INVALID_RULE_SET = 42210
    CONTEXT_NOT_EMPTY = 42211
    STORE_FAILED = 50001
    STORE_TIMEOUT = 50002
    FORWARDING_FAILED = 50003
    NO_LEADER = 50004


class RegistryError(SchemaError):
    """A request is rejected. The message states what is wrong and what to do."""


def status_of(error: SchemaError) -> int:
    """The HTTP status that goes with an error's code."""
    return error.code // 100 if error.code >= 1000 else error.code


INVALID: Final = "Invalid schema"
"""How messages of error 42201 begin in Confluent's registry, which clients look for."""


def client_message(error: SchemaError) -> str:
    """The message as clients get it."""
    if error.code == Code.INVALID_SCHEMA and not error.message.startswith(INVALID):
        return f"{INVALID}: {error.message}"
    return error.message
