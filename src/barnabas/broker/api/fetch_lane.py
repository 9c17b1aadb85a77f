"""The fast path for fetches that look like the previous one: of one partition, without a fetch session.

Consumers built on librdkafka, and most others in Python, send the same bytes again and again; only the correlation id and
the fetch offset differ. A lane holds what a connection's fetches have in common, learned from one on the general path. A
request that begins and ends with exactly the same bytes is read at once, and its answer is a few numbers written into a
prepared frame, followed by the records. Everything unusual (errors, nothing to read yet, aborted transactions) is left to
the general path, which decides again: reading changes nothing.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.api.handlers.records.fetch import (
    RACKS_FROM,
    READ_COMMITTED,
    TOPIC_IDS_FROM,
    ZSTD_FROM,
    find_partition,
)
from barnabas.cores.fetch import FINAL_EPOCH, FetchPartition
from barnabas.runtime.slow import topics_of
from barnabas.storage.files import FileSlice
from barnabas.wire.header import REQUEST_FLEXIBLE_FROM, encode_request, encode_response
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.wire.primitives import encode_uvarint

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.broker.net.connection import Connection
    from barnabas.wire.header import RequestHeader

log = logging.getLogger("barnabas.dispatch")

FETCH_KEY: Final = 1
VERSION_MIN: Final = 5
CORRELATION_AT: Final = 4
PREFIX_AT: Final = 8
"""Where the client id begins in a frame: after API key, version and correlation id."""
FRAME_BYTES_MAX: Final = 1024
INT64: Final = struct.Struct(">q")
INT32: Final = struct.Struct(">i")
HEAD: Final = struct.Struct(">ii")
NUMBERS: Final = struct.Struct(">qqq")
"""High watermark, last stable offset, log start offset."""
MARKS: Final = (0x0FF5E70FF5E70FF5, 0x7A11E57A11E57A11, 0x5EA15EA15EA15EA1)


class _Records:
    """Stands for records of a certain size."""

    size = 1000


class FetchLane:
    """One consumer's fetches of one partition."""

    __slots__ = (
        "_after", "_asked", "_before", "_flexible", "_frame_bytes", "_from_follower", "_key_and_version", "_max_bytes",
        "_min_bytes", "_offset_at", "_prefix", "_read_committed", "_rest_at", "_suffix", "_tail", "_topics", "_version",
        "_zstd",
    )  # fmt: skip

    def __init__(self, data: bytes, offset_at: int, version: int, request: FetchRequest) -> None:
        """data: the frame of `request`. offset_at: where the fetch offset stands in it."""
        topic = request.topics[0]
        asked = topic.partitions[0]
        self._frame_bytes = len(data)
        self._version = version
        self._topics = topics_of(request)
        self._offset_at = offset_at
        self._rest_at = offset_at + INT64.size
        self._key_and_version = data[:CORRELATION_AT]
        self._prefix, self._suffix = data[PREFIX_AT:offset_at], data[self._rest_at :]
        self._asked = FetchPartition(
            topic.topic_id if version >= TOPIC_IDS_FROM else topic.topic,
            asked.partition,
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
        )
        self._min_bytes = request.min_bytes
        self._max_bytes = min(request.max_bytes, asked.partition_max_bytes)
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._from_follower = version >= RACKS_FROM
        self._zstd = version >= ZSTD_FROM
        self._flexible = version >= REQUEST_FLEXIBLE_FROM[FETCH_KEY]
        self._before, self._tail, self._after = self._answer_parts(version, request)

    def _answer_parts(self, version: int, request: FetchRequest) -> tuple[bytes, bytes, bytes]:
        """The bytes of an answer before the numbers (with room for size and correlation id), between them and the length of
        the records, and behind the records."""
        topic = request.topics[0]
        data = PartitionData(
            partition_index=topic.partitions[0].partition,
            high_watermark=MARKS[0],
            last_stable_offset=MARKS[1],
            log_start_offset=MARKS[2],
            aborted_transactions=[] if self._read_committed else None,
            records=_Records(),
        )
        row = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
        first, _, *rest = encode_response(FetchResponse(responses=[row]), version, 0)
        before, marks, tail = first.partition(NUMBERS.pack(*MARKS))
        assert marks, "the numbers of an answer follow each other in every version"
        return before, tail.removesuffix(self._length(_Records.size)), b"".join(rest)

    def _length(self, size: int) -> bytes:
        return encode_uvarint(size + 1) if self._flexible else INT32.pack(size)

    def offset_in(self, frame: memoryview) -> int | None:
        """The fetch offset of a request that differs from the learned one in nothing else; None for any other request."""
        if len(frame) != self._frame_bytes:
            return None
        data = frame.tobytes()
        if (
            data[:CORRELATION_AT] != self._key_and_version
            or data[PREFIX_AT : self._offset_at] != self._prefix
            or data[self._rest_at :] != self._suffix
        ):
            return None
        offset: int = INT64.unpack_from(data, self._offset_at)[0]
        return offset

    def take(self, services: Services, connection: Connection, offset: int, correlation_id: int) -> bool:
        """Answer a fetch from `offset`; False leaves it to the general path."""
        begun_us = services.consumer_fetches.begin_quick()
        asked = self._asked
        asked.fetch_offset = offset
        partition, error = find_partition(services, asked, zstd=self._zstd)
        if partition is None or error or offset >= partition.high_watermark:
            return False
        read = partition.read(
            asked,
            min(self._max_bytes, services.fetch_bytes_max),
            self._read_committed,
            at_least_one=True,
            from_follower=self._from_follower,
        )
        records = read.records
        if not isinstance(records, FileSlice) or read.error or read.aborted or records.size < self._min_bytes:
            return False
        numbers = NUMBERS.pack(read.high_watermark, read.last_stable_offset, read.log_start_offset)
        connection.respond(self._answer(correlation_id, numbers, records))
        partition.note_fetched(records.size)
        timing = services.consumer_fetches.quick(begun_us, 1, self._version, self._frame_bytes, self._topics)
        if timing is not None:
            connection.timings.append(timing)
        return True

    def _answer(self, correlation_id: int, numbers: bytes, records: FileSlice) -> list[Any]:
        before, after, size = self._before, self._after, records.size
        tail = self._tail + self._length(size)
        total = len(before) + NUMBERS.size + len(tail) + size + len(after) - INT32.size
        first = HEAD.pack(total, correlation_id) + before[HEAD.size :] + numbers + tail
        return [first, records, after] if after else [first, records]


class FetchLanes:
    """The lane of one connection, and whether it is worth learning another."""

    __slots__ = ("_fitted", "_is_off", "_lane", "_misses")

    def __init__(self) -> None:
        self._lane: FetchLane | None = None
        self._fitted = False
        self._misses = 0
        self._is_off = False

    def take(
        self, services: Services, connection: Connection, frame: memoryview, correlation_id: int
    ) -> bool:
        """Answer the fetch in `frame` by the lane; False leaves it to the general path, which knows all errors."""
        lane = self._lane
        if lane is None:
            return False
        offset = lane.offset_in(frame)
        self._fitted = offset is not None
        if offset is None:
            return False
        try:
            return lane.take(services, connection, offset, correlation_id)
        except Exception:
            log.exception("the fast path for fetches met a bug", extra={"peer": connection.peer})
            self._lane = None
            self._is_off = True
            return False

    def learn(
        self, frame: memoryview, header: RequestHeader, request: FetchRequest, services: Services
    ) -> None:
        """Learn a lane from a request that took the general path, if it is of the plain kind.

        A consumer whose requests differ again and again should not pay for it: only misses 1, 2, 4, 8, ... are learned from.
        A request that the lane fitted, but could not answer yet, is no miss.
        """
        if self._fitted or self._is_off:
            return
        version = header.request_api_version
        self._misses += 1
        if self._misses & (self._misses - 1) or len(frame) > FRAME_BYTES_MAX:
            return
        if version < VERSION_MIN or services.authorizer is not None or not _is_plain(request):
            return
        # The request as the codec writes it shows where the offset stands; other ways to write it are left alone.
        asked = request.topics[0].partitions[0]
        offset, asked.fetch_offset = asked.fetch_offset, MARKS[0]
        marked = encode_request(request, version, header.correlation_id, header.client_id)[INT32.size :]
        asked.fetch_offset = offset
        before, mark, after = marked.partition(INT64.pack(MARKS[0]))
        if mark and before + INT64.pack(offset) + after == frame:
            self._lane = FetchLane(frame.tobytes(), len(before), version, request)


def _is_plain(request: FetchRequest) -> bool:
    """Whether it is a consumer's, outside of a session, of one partition, and no other replica may be nearer."""
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return (
        replica_id < 0
        and (request.session_id, request.session_epoch) == (0, FINAL_EPOCH)
        and not request.forgotten_topics_data
        and not request.rack_id
        and len(request.topics) == 1
        and len(request.topics[0].partitions) == 1
    )
