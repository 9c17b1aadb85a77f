"""The records of MirrorMaker 2's internal topics. No I/O.

topic                                  key                          value
mm2-offset-syncs.<alias>.internal      topic, partition             upstream offset, downstream offset
<source>.checkpoints.internal          group, topic, partition      version, upstream offset, downstream offset, metadata
heartbeats                             source alias, target alias   version, time in ms

Numbers are big-endian, strings have their length in two bytes before them. Source: Kafka's OffsetSync, Checkpoint and
Heartbeat of org.apache.kafka.connect.mirror.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

VERSION: Final = 0
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_TWO_LONGS: Final = struct.Struct(">qq")
_VERSION_AND_LONG: Final = struct.Struct(">hq")


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """That a record of the source has this offset in the target. topic: the source's name of it."""

    topic: str
    partition: int
    upstream: int
    downstream: int

    def key(self) -> bytes:
        """The key of the record."""
        return _string(self.topic) + _INT.pack(self.partition)

    def value(self) -> bytes:
        """The value of the record."""
        return _TWO_LONGS.pack(self.upstream, self.downstream)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> OffsetSync:
        """Raises ValueError."""
        with _checked("an offset sync"):
            topic, at = _read_string(key, 0)
            return cls(topic, _INT.unpack_from(key, at)[0], *_TWO_LONGS.unpack_from(value, 0))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a group would go on in the target. topic: the target's name of it."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        """The key of the record."""
        return _string(self.group) + _string(self.topic) + _INT.pack(self.partition)

    def value(self) -> bytes:
        """The value of the record."""
        return _SHORT.pack(VERSION) + _TWO_LONGS.pack(self.upstream, self.downstream) + _string(self.metadata)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Checkpoint:
        """Raises ValueError."""
        with _checked("a checkpoint"):
            group, at = _read_string(key, 0)
            topic, at = _read_string(key, at)
            (partition,) = _INT.unpack_from(key, at)
            upstream, downstream = _TWO_LONGS.unpack_from(value, _SHORT.size)
            return cls(
                group,
                topic,
                partition,
                upstream,
                downstream,
                _read_string(value, _SHORT.size + _TWO_LONGS.size)[0],
            )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """That a flow was alive at a time, in milliseconds since 1970."""

    source: str
    target: str
    at_ms: int

    def key(self) -> bytes:
        """The key of the record."""
        return _string(self.source) + _string(self.target)

    def value(self) -> bytes:
        """The value of the record."""
        return _VERSION_AND_LONG.pack(VERSION, self.at_ms)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Heartbeat:
        """Raises ValueError."""
        with _checked("a heartbeat"):
            source, at = _read_string(key, 0)
            target, _ = _read_string(key, at)
            return cls(source, target, _VERSION_AND_LONG.unpack_from(value, 0)[1])


@contextmanager
def _checked(what: str) -> Iterator[None]:
    try:
        yield
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not {what} of MirrorMaker 2: {error}") from None


def _string(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    """The string at a position, and where the next field begins."""
    (size,) = _SHORT.unpack_from(data, at)
    at += _SHORT.size
    if size < 0 or at + size > len(data):
        raise struct.error(f"a string of {size} bytes in a field of {len(data)}")
    return data[at : at + size].decode(), at + size
