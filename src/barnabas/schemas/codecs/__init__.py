"""Converts JSON values to the bytes of records with schemas, and back: for the command line and the REST proxy."""

from collections.abc import Mapping
from typing import Any, Final

TAGS: Final = "confluent:tags"
"""Where tags stand in Avro and JSON Schema."""


def tags_at(node: Mapping[str, Any]) -> frozenset[str]:
    """The tags of one part of an Avro or JSON schema; a text in place of the list is one tag."""
    tags = node.get(TAGS) or ()
    return frozenset((tags,) if isinstance(tags, str) else tags)


class Mismatch(ValueError):
    """Data does not match its format or its schema; the message says where and why."""
