"""Finds rows that their topic would reject before they are sent, and makes dead letters of them.

A broker rejects a whole batch because of one record: the query would fail, repeat the micro-batch, write the record's
neighbours again and fail again, forever. So rows are first compared with the topic's config: its largest batch, whether
it needs keys, and its limits for timestamps. A row that does not fit becomes a dead letter with the original record,
which is read from its source again. A dead letter that is itself too large is cut, which a header notes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.errors import BrokerError, ClientError, UnknownTopic
from barnabas.pipelines.formats.columns import ARROW_TYPES, append_batch
from barnabas.pipelines.spark.topics.options import SinkOptions
from barnabas.pipelines.spark.topics.records import read_ranges
from barnabas.records.columnar_encoder import BatchEncoder
from barnabas.records.compression import Codec
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.blocking import BlockingClient

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that belong to the brokers."""
LEGAL: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
BATCH_BYTES_MAX: Final = 1_048_588
"""Kafka's default of max.message.bytes."""
RECORD_OVERHEAD: Final = 61 + 40
"""The bytes of a batch's header, and the most bytes of a record's other fields."""
HEADER_OVERHEAD: Final = 10
FOREVER_MS: Final = 1 << 62
CUT: Final = "barnabas.cut"
DEAD_COLUMNS: Final = ("key", "value", "headers", "timestamp")


class RefusedTopic(ClientError):
    """The topic does not exist, or must not be written to."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that its topic would reject. row: its index in the batch."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Gate:
    """What a topic accepts. before_ms, after_ms: how far before and after now a record's timestamp may be."""

    topic: str
    batch_bytes_max: int = BATCH_BYTES_MAX
    needs_key: bool = False
    before_ms: int = FOREVER_MS
    after_ms: int = FOREVER_MS

    def encoder_bytes(self, wanted: int) -> int:
        """The largest size of batches with several records, before compression, that the topic certainly accepts."""
        return max(min(wanted, self.batch_bytes_max * 98 // 100 - 512), 1)

    def refusals(self, rows: pa.RecordBatch, now_ms: int, codec: Codec) -> list[Refusal]:
        """The rows that the topic would reject, by row, with the first reason for each."""
        refusals = [*self._without_key(rows), *self._out_of_time(rows, now_ms), *self._too_large(rows, codec)]
        first = {refusal.row: refusal for refusal in reversed(refusals)}
        return [first[row] for row in sorted(first)]

    def _without_key(self, rows: pa.RecordBatch) -> list[Refusal]:
        if not self.needs_key:
            return []
        keys = rows.column("key") if "key" in rows.schema.names else pa.nulls(rows.num_rows)
        if not keys.null_count:
            return []
        reason = f"topic {self.topic} is compacted and accepts no records without a key"
        return [Refusal(row, reason) for row in pc.indices_nonzero(keys.is_null()).to_pylist()]

    def _out_of_time(self, rows: pa.RecordBatch, now_ms: int) -> list[Refusal]:
        if "timestamp" not in rows.schema.names or min(self.before_ms, self.after_ms) == FOREVER_MS:
            return []
        column = rows.column("timestamp")
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
        times = column.cast(pa.int64())
        bad = pc.or_(pc.greater(times, now_ms + self.after_ms), pc.less(times, now_ms - self.before_ms))
        reason = (
            f"topic {self.topic} rejects this timestamp: see message.timestamp.before.max.ms and after.max.ms"
        )
        return [Refusal(row, reason) for row in pc.indices_nonzero(pc.fill_null(bad, False)).to_pylist()]

    def _too_large(self, rows: pa.RecordBatch, codec: Codec) -> list[Refusal]:
        sizes = record_sizes(rows, self.batch_bytes_max)
        if sizes is None:
            return []
        refusals = []
        for row in pc.indices_nonzero(pc.greater(sizes, self.batch_bytes_max)).to_pylist():
            size = sizes[row].as_py()
            if codec != Codec.NONE:
                alone = BatchEncoder(1, codec=codec, batch_bytes_max=size)
                kept = [name for name in rows.schema.names if name in DEAD_COLUMNS]
                append_batch(alone, rows.slice(row, 1).select(kept), 0)
                size = sum(len(batch.data) for batch in alone.flush())
                if size <= self.batch_bytes_max:
                    continue
            limit = f"topic {self.topic} accepts {self.batch_bytes_max} (max.message.bytes)"
            refusals.append(Refusal(row, f"the record needs {size} bytes, but {limit}"))
        return refusals


def record_sizes(rows: pa.RecordBatch, limit: int) -> pa.Array | None:
    """The most bytes that each row may need as a record; None if no row can exceed the limit (bytes)."""
    names = rows.schema.names
    parts = [_lengths(rows.column(name)) for name in ("key", "value") if name in names]
    if "headers" in names:
        parts.append(_headers_sizes(rows.column("headers")))
    if sum(int(part.max(initial=0)) for part in parts) + RECORD_OVERHEAD <= limit:
        return None
    return pa.array(sum(parts) + RECORD_OVERHEAD, pa.int64())


def _lengths(texts: pa.Array) -> Any:
    """The bytes of each text, 0 for null."""
    return pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False).astype(np.int64)


def _headers_sizes(headers: pa.Array) -> Any:
    """`headers_size` of each row, without Python objects for headers."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    entries = headers.flatten()
    sizes = HEADER_OVERHEAD + _lengths(entries.field(0)) + _lengths(entries.field(1))
    before = np.concatenate([[0], np.cumsum(sizes)])
    ends = np.cumsum(counts)
    return before[ends] - before[ends - counts]


def headers_size(headers: list[dict[str, Any]] | None) -> int:
    """The most bytes that headers may need in a record."""
    return sum(
        HEADER_OVERHEAD
        + sum(len(v.encode() if isinstance(v, str) else v) for v in h.values() if v is not None)
        for h in headers or ()
    )


def gate_of(client: BlockingClient, topic: str) -> Gate:
    """What a topic accepts now. Raises RefusedTopic if it does not exist, or must not be written to."""
    if not LEGAL.fullmatch(topic):
        raise RefusedTopic(f"{topic[:80]!r} is not a legal name of a topic")
    if topic in INTERNAL:
        raise RefusedTopic(f"topic {topic} belongs to the brokers")
    try:
        view = client.cluster.retry(lambda: client.cluster.topic(topic))
        if view.internal:
            raise RefusedTopic(f"topic {topic} belongs to the brokers")
        configs = client.topic_configs(topic)
    except UnknownTopic:
        raise RefusedTopic(
            f"topic {topic} does not exist: create it with `barnabas topic create {topic}`"
        ) from None
    except BrokerError as error:
        if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and topic in client.cluster.topics:
            return Gate(topic)  # writing may be allowed, only reading its config is not
        if error.code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise RefusedTopic(str(error)) from None
        raise
    return _gate(topic, configs)


def _gate(topic: str, configs: Mapping[str, str | None]) -> Gate:
    def number(name: str, default: int) -> int:
        text = configs.get(name)
        return int(text) if text is not None and text.lstrip("-").isdigit() else default

    own_time = configs.get("message.timestamp.type") != "LogAppendTime"
    return Gate(
        topic,
        number("max.message.bytes", BATCH_BYTES_MAX),
        "compact" in (configs.get("cleanup.policy") or ""),
        min(number("message.timestamp.before.max.ms", FOREVER_MS), FOREVER_MS) if own_time else FOREVER_MS,
        min(number("message.timestamp.after.max.ms", FOREVER_MS), FOREVER_MS) if own_time else FOREVER_MS,
    )


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. timestamp: None: now."""

    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]]
    timestamp: Any = None

    def fitted(self, gate: Gate) -> Letter:
        """The letter, cut if necessary so that the topic accepts it: first the value is cut, then the key; then
        the record's own headers are removed. The header CUT tells what is missing."""
        size = RECORD_OVERHEAD + len(self.key or b"") + len(self.value or b"") + headers_size(self.headers)
        if size <= gate.batch_bytes_max:
            return self
        kept = self.headers
        parts = {"key": self.key, "value": self.value}
        room = gate.batch_bytes_max - RECORD_OVERHEAD - headers_size(kept) - 200
        if room < 0:
            kept = [h for h in kept if h["key"].startswith("barnabas.")]
            room = max(gate.batch_bytes_max - RECORD_OVERHEAD - headers_size(kept) - 200, 0)
        key = None if self.key is None else self.key[:room]
        value = None if self.value is None else self.value[: room - len(key or b"")]
        cuts = [
            f"{name} of {len(whole)} bytes to {len(part or b'')}"
            for (name, whole), part in zip(parts.items(), (key, value), strict=True)
            if whole is not None and len(whole) != len(part or b"")
        ]
        if len(kept) != len(self.headers):
            cuts.append(f"{len(self.headers) - len(kept)} headers of the record left out")
        note = {"key": CUT, "value": "; ".join(cuts).encode()}
        return replace(self, key=key, value=value, headers=[*kept, note])


class DeadLetters:
    """Makes dead letters of rows that the sink cannot write."""

    def __init__(self, client: BlockingClient, options: SinkOptions) -> None:
        self.client = client
        self.options = options

    def letter(self, row: Mapping[str, Any], topic: str, reason: str) -> Letter:
        """A dead letter with the row's original record (the row itself if that is gone), and headers with the
        reason."""
        origin = row.get("origin")
        record = self._original(origin) or row
        headers = [dict(header) for header in record.get("headers") or ()]
        place = origin or {"topic": None, "partition": None, "offset": None}
        place = {name: value for name, value in place.items() if name != "output" or value is not None}
        added = {
            "pipeline": self.options.pipeline or "",
            "step": f"write {topic[:249]}",
            "reason": reason,
            **place,
        }
        if self.options.replay:
            added = {"replayed": _attempt(row), **added}
        headers += [
            {"key": f"barnabas.{name}", "value": None if value is None else str(value).encode()}
            for name, value in added.items()
        ]
        return Letter(_bytes(record.get("key")), _bytes(record.get("value")), headers, _in_time(record))

    def _original(self, origin: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The source's record; None if the row comes from no single record, or the record is gone."""
        if origin is None or origin["offset"] is None:
            return None
        place, offset = (origin["topic"], origin["partition"]), origin["offset"]
        try:
            rows: list[dict[str, Any]] = read_ranges(self.client, {place: (offset, offset + 1)}).to_pylist()
        except ClientError:
            return None
        return next((row for row in rows if row["offset"] == offset), None)


def _attempt(row: Mapping[str, Any]) -> str:
    """How often the row's record was replayed, from its header; 1 without the header."""
    attempts = [
        h["value"] for h in row.get("headers") or () if h["key"] == "barnabas.replayed" and h["value"]
    ]
    return (_bytes(attempts[-1]) or b"1").decode() if attempts else "1"


def as_batch(letters: list[Letter]) -> pa.RecordBatch:
    """Letters as rows for an encoder."""
    columns = {
        name: pa.array([getattr(letter, name) for letter in letters], ARROW_TYPES[name])
        for name in DEAD_COLUMNS
    }
    return pa.record_batch(columns)


def letter_of(row: Mapping[str, Any]) -> Letter:
    """The letter in a row for the dead-letter topic."""
    headers = [dict(header) for header in row.get("headers") or ()]
    return Letter(_bytes(row.get("key")), _bytes(row.get("value")), headers, _in_time(row))


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _in_time(row: Mapping[str, Any]) -> Any:
    """The record's timestamp; None (now) if it has none or it is in the future, which topics may reject."""
    at = row.get("timestamp")
    if at is None or isinstance(at, int):
        return None
    return at if at.timestamp() <= time.time() else None
