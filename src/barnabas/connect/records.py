"""Records between connectors and topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.connect.schemas import Schema

Json = Mapping[str, Any]
"""A source partition, or an offset in one: an object that JSON can write."""


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    key: str
    value: Any
    schema: Schema | None = None


@dataclass(slots=True)
class SourceRecord:
    """A record for a topic. It is not changed once it was made; making a frozen one takes four times as long.

    topic: None is only allowed if a transform sets it. Without a schema, a key or value is what JSON can say. partition:
    of the topic; None: chosen by the key. timestamp_ms: since 1970; None: the time when it is written.
    source_partition: of the source that it comes from; None: the one that was polled. source_offset: where to go on after
    this record; None: nowhere, as between the records of one place in the source that must not be parted.
    """

    topic: str | None
    value: Any = None
    key: Any = None
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    source_partition: Json | None = None
    source_offset: Json | None = None


@dataclass(slots=True)
class SinkRecord:
    """A record of a topic, converted and transformed. It is not changed once it was made, see SourceRecord.

    topic, partition: as transforms have made them. original_topic, original_partition, offset: its place in the log.
    raw_key, raw_value: its bytes.
    """

    topic: str
    value: Any
    key: Any = None
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = 0
    offset: int = 0
    original_topic: str = ""
    original_partition: int = 0
    raw_key: bytes | None = None
    raw_value: bytes | None = None


Record = SourceRecord | SinkRecord
