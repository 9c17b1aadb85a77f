"""Converts JSON values to the bytes of records with schemas, and back: for the command line and the REST proxy."""

from typing import Final

TAGS: Final = "confluent:tags"
"""Where tags stand in Avro and JSON Schema."""


class Mismatch(ValueError):
    """Data does not match its format or its schema; the message says where and why."""
