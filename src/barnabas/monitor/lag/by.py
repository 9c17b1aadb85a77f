"""Lag by tenant: unread records counted by a header or by the beginning of their key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from barnabas.records.batch import Record, batches, records_of
from barnabas.records.columnar import AbortedTransactions
from barnabas.records.compression import Buffer

KEY = "key"
NONE = "(none)"
"""The value of records without the header or key."""


@dataclass(frozen=True, slots=True)
class By:
    """What records are counted by: a header, or the key up to a separator (the whole key if that is empty)."""

    header: str | None = None
    separator: str = ""

    @classmethod
    def parse(cls, text: str) -> By:
        """`NAME`, a header; `key`, the key; `key:TEXT`, the key up to the first TEXT; `header:NAME` for odd names."""
        kind, colon, rest = text.partition(":")
        if kind == KEY:
            return cls(None, rest)
        return cls(rest if kind == "header" and colon else text)

    def value_of(self, record: Record) -> str:
        """The last header of the name, as clients read it, or the part of the key."""
        if self.header is None:
            text = None if record.key is None else record.key.decode("utf-8", "replace")
            return NONE if text is None else text.partition(self.separator)[0] if self.separator else text
        header_values = [value for name, value in record.headers if name == self.header]
        return (
            NONE
            if not header_values or header_values[-1] is None
            else header_values[-1].decode("utf-8", "replace")
        )


@dataclass(slots=True)
class Counts:
    """Unread records by value: how many, and the timestamp of the oldest in ms."""

    records: dict[str, int] = field(default_factory=dict)
    oldest_ms: dict[str, int] = field(default_factory=dict)

    def add(self, value: str, timestamp_ms: int) -> None:
        """Count a record."""
        self.records[value] = self.records.get(value, 0) + 1
        if timestamp_ms >= 0:
            self.oldest_ms[value] = min(timestamp_ms, self.oldest_ms.get(value, timestamp_ms))


def readable(records: Buffer, start: int, end: int, aborted: Iterable[tuple[int, int]]) -> Iterator[Record]:
    """The records with start <= offset < end that a reader would get. Raises CorruptBatch."""
    dropping = AbortedTransactions(aborted)
    for at, header in batches(records):
        if header.is_control:
            dropping.marker(header.producer_id)
        elif not (header.is_transactional and dropping.drops(header.producer_id, header.last_offset)):
            yield from (r for r in records_of(records, at, header) if start <= r.offset < end)
