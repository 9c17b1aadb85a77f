"""The short way for produce requests that look like the one before.

A producer sends the same bytes again and again: client id, acks, topic; only the correlation id, the partition and the
records differ. What a connection's requests have in common is learned from one that went the general way
(dispatch, decoder, handler); a request that begins with the very same bytes then goes straight to its partition,
and its answer is a few numbers in a prepared frame. Whatever is unusual, an error above all, is left to the
general way, which decides again and says why: a refused append has changed nothing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas.wire.errors import ApiError
from barnabas.wire.header import encode_response
from barnabas.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connection import Connection
    from barnabas.broker.partitions import Partitions

BATCHES_FROM: Final = 3
START_OFFSET_FROM: Final = 5
ZSTD_FROM: Final = 7
FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
FLUSH_NEVER: Final = (1 << 63) - 1
LANES_PER_CONNECTION_MAX: Final = 256
PREFIX_AT: Final = 8
"""Where in a frame the common bytes begin: behind API key, version and correlation id."""
NO_TAGS: Final = b"\0\0\0"
INT32: Final = struct.Struct(">i")
SIZE_AND_CORRELATION: Final = struct.Struct(">ii")
# Partition, error code, base offset, time of the append, and since version 5 the log start offset.
UP_TO_TIME: Final = struct.Struct(">ihqq")
UP_TO_START: Final = struct.Struct(">ihqqq")
MARKS: Final = (0x5EED5EED, 0, 0x7A11E57A11E57A11, 0x0FF5E70FF5E70FF5, 0x5EA15EA15EA15EA1)


class ProduceLane:
    """One producer's requests to one topic."""

    __slots__ = (
        "_acks_all",
        "_after",
        "_before",
        "_flexible",
        "_name",
        "_partitions",
        "_size_bytes",
        "_start",
        "_zstd",
    )

    def __init__(
        self, version: int, acks: int, request: ProduceRequest, name: str, partitions: Partitions
    ) -> None:
        """name: of the topic, which the request may name by its id."""
        self._name = name
        self._partitions = partitions
        self._acks_all = acks == -1
        self._zstd = version >= ZSTD_FROM
        self._flexible = version >= FLEXIBLE_FROM
        self._start = version >= START_OFFSET_FROM
        fields = UP_TO_START if self._start else UP_TO_TIME
        topic = request.topic_data[0]
        answer = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=MARKS[0],
                            error_code=MARKS[1],
                            base_offset=MARKS[2],
                            log_append_time_ms=MARKS[3],
                            log_start_offset=MARKS[4],
                        )
                    ],
                )
            ]
        )
        frame = b"".join(encode_response(answer, version, 0))
        before, found, after = frame.partition(fields.pack(*(MARKS if self._start else MARKS[:4])))
        assert found, "the numbers of an answer follow each other in every version"
        self._size_bytes = len(frame) - 4
        self._before = before[SIZE_AND_CORRELATION.size :]
        self._after = after

    def take(self, connection: Connection, frame: memoryview, position: int, correlation_id: int) -> bool:
        """Append what lies behind the common bytes, and answer; False leaves the frame to the general way."""
        try:
            index = INT32.unpack_from(frame, position)[0]
            partition = self._partitions.get(self._name, index)
            if partition is None or partition.log.config.flush_messages != FLUSH_NEVER:
                return False
            records = self._records(frame, position + INT32.size)
            if records is None:
                return False
            base_offset, time_ms, start_offset = partition.append(
                records, acks_all=self._acks_all, zstd_allowed=self._zstd
            )
        except (ApiError, IndexError, struct.error):
            return False
        fields = (
            UP_TO_START.pack(index, 0, base_offset, time_ms, start_offset)
            if self._start
            else UP_TO_TIME.pack(index, 0, base_offset, time_ms)
        )
        head = SIZE_AND_CORRELATION.pack(self._size_bytes, correlation_id)
        connection.respond([b"".join((head, self._before, fields, self._after))])
        return True

    def _records(self, frame: memoryview, position: int) -> memoryview | None:
        """The record bytes whose length stands at `position`; None where something else is in the frame."""
        if not self._flexible:
            position += INT32.size
            length = INT32.unpack_from(frame, position - INT32.size)[0]
            return frame[position:] if length == len(frame) - position else None
        length = frame[position]
        position += 1
        if length & 0x80:
            length, position = _long_varint(frame, position, length & 0x7F)
        after = position + length - 1
        if len(frame) - after != len(NO_TAGS) or bytes(frame[after:]) != NO_TAGS:
            return None
        return frame[position:after]


def _long_varint(frame: memoryview, position: int, value: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte gave `value`: (value, position behind it)."""
    for shift in (7, 14, 21, 28):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
    return value, position


class ProduceLanes:
    """The lanes of one connection, found by the bytes that a request begins with."""

    __slots__ = ("_by_length", "_count", "_topology", "_version")

    def __init__(self) -> None:
        self._by_length: dict[int, dict[bytes, ProduceLane]] = {}
        self._count = 0
        self._topology = -1
        # The version lies before the common bytes. A connection speaks one; another takes the general way.
        self._version: int | None = None

    def find(self, frame: memoryview, version: int, topology: int) -> tuple[ProduceLane, int] | None:
        """(lane, position behind the common bytes) for a produce request; None where none was learned.

        topology: counts changes of which partitions there are; each makes all lanes stale.
        """
        if topology != self._topology:
            self._by_length.clear()
            self._count = 0
            self._topology = topology
            return None
        if version != self._version:
            return None
        for length, lanes in self._by_length.items():
            lane = lanes.get(bytes(frame[PREFIX_AT : PREFIX_AT + length]))
            if lane is not None:
                return lane, PREFIX_AT + length
        return None

    def learn(self, frame: memoryview, version: int, request: ProduceRequest, partitions: Partitions) -> None:
        """Remember what `request` may have in common with the next ones, where it is of the plain kind."""
        if version < BATCHES_FROM or request.acks not in (1, -1) or request.transactional_id is not None:
            return
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        topic = request.topic_data[0]
        data = topic.partition_data[0]
        name = partitions.name_of(topic.topic_id) if version >= TOPIC_IDS_FROM else topic.name
        if name is None or partitions.get(name, data.index) is None:
            return
        if not data.records or self._count >= LANES_PER_CONNECTION_MAX:
            return
        # Behind the common bytes follow the partition and the length of the records.
        end = len(frame) - len(data.records) - INT32.size
        if version >= FLEXIBLE_FROM:
            end -= len(NO_TAGS) + _varint_bytes(len(data.records) + 1)
            if bytes(frame[len(frame) - len(NO_TAGS) :]) != NO_TAGS:
                return
        else:
            end -= INT32.size
        if self._version not in (version, None):
            return
        self._version = version
        lanes = self._by_length.setdefault(end - PREFIX_AT, {})
        prefix = bytes(frame[PREFIX_AT:end])
        if prefix not in lanes:
            lanes[prefix] = ProduceLane(version, request.acks, request, name, partitions)
            self._count += 1


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
