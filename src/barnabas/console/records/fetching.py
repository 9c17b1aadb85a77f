"""Reads batches of partitions for pages: one fetch at a time, of bounded size, without waiting unless asked to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.admin.values import TopicPartition
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.errors import BrokerError, ClientError
from barnabas.records.batch import CorruptBatch, Record
from barnabas.records.columnar import AbortedTransactions, BinaryColumn, Decoded, decode
from barnabas.records.message_set import read_message_set
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

FETCH_BYTES: Final = 2 << 20
RECORDS_BYTES_MAX: Final = 64 << 20
"""What the records of one fetch may have when they are decompressed."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one fetch brought. end: the offset after the last record that readers may see."""

    place: TopicPartition
    start: int
    records: memoryview
    end: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]


async def fetch(
    cluster: AsyncCluster,
    place: TopicPartition,
    offset: int,
    *,
    wait_ms: int = 0,
    max_bytes: int = FETCH_BYTES,
) -> Piece:
    """Committed records from an offset on; one batch at least, if there is one, however large it is. Raises ClientError."""

    async def attempt() -> Piece:
        leader = (await cluster.leaders([place]))[place]
        if isinstance(leader, ClientError):
            raise leader
        connection = await cluster.node(leader)
        version = min(connection.version_for(FetchRequest), 12)  # later ones name topics by id
        wanted = FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=1,
            session_epoch=-1,
            topics=[FetchTopic(topic=place.topic, partitions=[wanted])],
        )
        answer: FetchResponse = await connection.call(request, FetchResponse, version_max=version)
        doing = f"reading {place} from offset {offset}"
        if answer.error_code:
            raise BrokerError(answer.error_code, doing)
        row = answer.responses[0].partitions[0]
        if row.error_code:
            raise BrokerError(row.error_code, doing)
        records = memoryview(b"") if row.records is None else memoryview(row.records)
        stable = (
            row.last_stable_offset
            if row.last_stable_offset is not None and row.last_stable_offset >= 0
            else -1
        )
        end = stable if stable >= 0 else row.high_watermark
        aborted = tuple((a.producer_id, a.first_offset) for a in row.aborted_transactions or ())
        return Piece(place, offset, records, end, row.log_start_offset, aborted)

    return await cluster.retry(attempt)


class Row(NamedTuple):
    """One record, and the partition that it is in. timestamp_type: 0 the producer's time, 1 the broker's."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one partition that are copied already."""

    partition: int
    records: list[Row]

    def key(self, row: int) -> bytes | None:
        return self.records[row].key

    def value(self, row: int) -> bytes | None:
        return self.records[row].value

    def headers(self, row: int) -> tuple[tuple[str, bytes | None], ...]:
        return self.records[row].headers


@dataclass(frozen=True, slots=True)
class Columns:
    """The records of a piece, as offsets into bytes that they share; a record is copied out only if it is looked at.

    next_offset: where to go on.
    """

    partition: int
    rows: int
    next_offset: int
    offsets: memoryview
    times_us: memoryview
    time_types: memoryview
    key_ends: memoryview
    keys: memoryview
    values: memoryview
    value_ends: memoryview
    header_ends: memoryview
    name_ends: memoryview
    names: memoryview
    header_value_ends: memoryview
    header_values: memoryview
    key_nulls: memoryview | None
    value_nulls: memoryview | None
    header_value_nulls: memoryview | None

    def key(self, row: int) -> bytes | None:
        if self.key_nulls is not None and not self.key_nulls[row >> 3] >> (row & 7) & 1:
            return None
        return bytes(self.keys[self.key_ends[row] : self.key_ends[row + 1]])

    def value(self, row: int) -> bytes | None:
        if self.value_nulls is not None and not self.value_nulls[row >> 3] >> (row & 7) & 1:
            return None
        return bytes(self.values[self.value_ends[row] : self.value_ends[row + 1]])

    def headers(self, row: int) -> tuple[tuple[str, bytes | None], ...]:
        headers = []
        for at in range(self.header_ends[row], self.header_ends[row + 1]):
            name = bytes(self.names[self.name_ends[at] : self.name_ends[at + 1]]).decode("utf-8", "replace")
            is_null = (
                self.header_value_nulls is not None and not self.header_value_nulls[at >> 3] >> (at & 7) & 1
            )
            headers.append(
                (
                    name,
                    None
                    if is_null
                    else bytes(
                        self.header_values[self.header_value_ends[at] : self.header_value_ends[at + 1]]
                    ),
                )
            )
        return tuple(headers)

    def row(self, row: int) -> Row:
        """One record, copied."""
        return Row(
            self.partition,
            self.offsets[row],
            self.times_us[row] // 1000,
            self.time_types[row],
            self.key(row),
            self.value(row),
            self.headers(row),
        )


def columns_of(piece: Piece, limit: int | None = None) -> Iterator[Columns | Rows]:
    """The records of a piece, in parts of bounded size. limit: the offset before which to stop.

    Records of magic 0 and 1 come as rows. Raises Damaged.
    """
    if len(piece.records) >= 17 and piece.records[16] < 2:
        yield Rows(piece.place.partition, _old_rows(piece, limit))
        return
    end = piece.end if limit is None else min(limit, piece.end)
    aborted = AbortedTransactions(piece.aborted)
    position, start = 0, piece.start
    while position < len(piece.records):
        try:
            decoded = decode(
                piece.records, start, end, position=position, headers=True, aborted=aborted, rows_bytes_max=8 << 20,
                batch_bytes_max=RECORDS_BYTES_MAX,
            )  # fmt: skip
        except CorruptBatch as error:
            raise Damaged(piece.place, start, str(error)) from None
        yield _columns(piece.place.partition, decoded)
        if decoded.position <= position:
            return
        position, start = decoded.position, decoded.next_offset


class Damaged(ClientError):
    """Records cannot be read: they are damaged, or of a size that nobody should read into memory."""

    def __init__(self, place: TopicPartition, offset: int, reason: str) -> None:
        self.place = place
        self.offset = offset
        super().__init__(f"records of {place} from offset {offset} on cannot be read: {reason}")


def _old_rows(piece: Piece, limit: int | None) -> list[Row]:
    try:
        records: list[Record] = list(read_message_set(piece.records, RECORDS_BYTES_MAX))
    except CorruptBatch as error:
        raise Damaged(piece.place, piece.start, str(error)) from None
    return [
        Row(piece.place.partition, r.offset, r.timestamp, 0, _bytes(r.key), _bytes(r.value), ())
        for r in records
        if r.offset >= piece.start and (limit is None or r.offset < limit)
    ]


def _bytes(data: bytes | None) -> bytes | None:
    return None if data is None else bytes(data)


def _columns(partition: int, decoded: Decoded) -> Columns:
    headers, names, header_values = decoded.headers, decoded.header_keys, decoded.header_values
    assert headers is not None
    assert names is not None
    assert header_values is not None
    key, value = decoded.key, decoded.value
    return Columns(
        partition,
        decoded.rows,
        decoded.next_offset,
        memoryview(decoded.offsets).cast("q"),
        memoryview(decoded.timestamps_us).cast("q"),
        memoryview(decoded.timestamp_types).cast("i"),
        memoryview(key.offsets).cast("i"),
        memoryview(key.data),
        memoryview(value.data),
        memoryview(value.offsets).cast("i"),
        memoryview(headers.offsets).cast("i"),
        memoryview(names.offsets).cast("i"),
        memoryview(names.data),
        memoryview(header_values.offsets).cast("i"),
        memoryview(header_values.data),
        _nulls(key),
        _nulls(value),
        _nulls(header_values),
    )


def _nulls(column: BinaryColumn) -> memoryview | None:
    validity = column.validity
    return None if validity is None else memoryview(validity)
