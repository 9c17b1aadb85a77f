"""Ids of topics, clusters and directories as text, as Kafka writes them everywhere (`org.apache.kafka.common.Uuid`)."""

from __future__ import annotations

import base64
from uuid import UUID


def uuid_text(value: UUID) -> str:
    """22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid_text(text: str) -> UUID:
    """The id that `uuid_text` wrote. Raises ValueError."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        raise ValueError(f"{text!r} is not an id of 22 base64 characters") from None
