"""The fast path for produce requests that look like the previous one.

A producer sends the same bytes again and again: client id, acks, topic; only the correlation id, the partition and the
records differ. A lane holds what a connection's requests have in common, learned from one that took the general path
(dispatch, decoder, handler). A request that begins with exactly the same bytes goes straight to its partition, and its
answer is a few numbers written into a prepared frame. Everything unusual, errors above all, is left to the general path,
which decides again and produces the error: a refused append has changed nothing.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.broker.api.plain_lane import PlainLane
from barnabas.records.batch import ATTRIBUTES_POS, TRANSACTIONAL_BIT
from barnabas.runtime.timing import now_us
from barnabas.wire.header import encode_response
from barnabas.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.wire.produce_shape import ProduceShape

if TYPE_CHECKING:
    from barnabas.broker.net.connection import Connection
    from barnabas.broker.partitions.acknowledgement import Acknowledgement
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.runtime.timing import RequestStats, Timing

BATCHES_FROM: Final = 3
START_OFFSET_FROM: Final = 5
ZSTD_FROM: Final = 7
FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
LANES_PER_CONNECTION_MAX: Final = 256
PREFIX_AT: Final = 8
"""Where the common bytes begin in a frame: after API key, version and correlation id."""
ATTRIBUTES_LOW_AT: Final = ATTRIBUTES_POS + 1
NO_TAGS: Final = b"\0\0\0"
INT32: Final = struct.Struct(">i")
# Partition, error code, base offset, time of the append, and since version 5 the log start offset.
UP_TO_TIME: Final = struct.Struct(">ihqq")
UP_TO_START: Final = struct.Struct(">ihqqq")
MARKS: Final = (0x5EED5EED, 0, 0x7A11E57A11E57A11, 0x0FF5E70FF5E70FF5, 0x5EA15EA15EA15EA1)


class ProduceLane:
    """One producer's requests to one topic."""

    __slots__ = (
        "_acks_all",
        "_served",
        "_timeout_s",
        "_transactional",
        "_version",
        "_zstd",
        "plain",
        "shape",
        "topic",
    )

    def __init__(
        self,
        version: int,
        prefix: bytes,
        request: ProduceRequest,
        served: Mapping[int, Partition],
        name: str,
    ) -> None:
        """prefix: the bytes that the requests have in common. served: the partitions of the topic `name`, until lanes become
        stale."""
        self._served = served
        self._version = version
        self.topic = name
        self._acks_all = request.acks == -1
        self._timeout_s = max(request.timeout_ms, 0) / 1000
        self._transactional = request.transactional_id is not None
        self._zstd = version >= ZSTD_FROM
        with_start = version >= START_OFFSET_FROM
        numbers = UP_TO_START.pack(*MARKS) if with_start else UP_TO_TIME.pack(*MARKS[:4])
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
        before, marks, after = frame.partition(numbers)
        assert marks, "the numbers of an answer follow each other in every version"
        self.shape = ProduceShape(version, prefix, version >= FLEXIBLE_FROM, before, after, with_start)
        self.plain = PlainLane(self.shape, served, self._acks_all, self._zstd, name)

    def take(
        self,
        connection: Connection,
        index: int,
        records: memoryview,
        correlation_id: int,
        stats: RequestStats,
    ) -> bool:
        """Append `records` to partition `index`, and answer; False leaves the frame to the general path.

        False is also returned when anything goes wrong before something was appended.
        """
        partition = self._served.get(index)
        if partition is None:
            return False
        begun_us, end = now_us(), partition.log.core.log_end_offset
        try:
            if records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT and not self._transactional:
                return False
            appended = partition.append(
                records, acks_all=self._acks_all, zstd_allowed=self._zstd, may_take_long=False
            )
        except Exception as error:
            if partition.log_end_offset == end:
                return False
            connection.fail(error)  # the batch is in the log: appending it again would duplicate it
            return True
        if appended.is_ready:
            connection.respond([self._answer(appended, index, correlation_id)])
            timing = stats.quick(begun_us, 1, self._version, len(records), (self.topic,))
            if timing is not None:
                connection.timings.append(timing)
        else:
            timing = stats.begin(begun_us, self._version, len(records), (self.topic,))
            timing.wait()
            self._answer_later(connection, appended, index, correlation_id, timing)
        return True

    def _answer_later(
        self,
        connection: Connection,
        appended: Acknowledgement,
        index: int,
        correlation_id: int,
        timing: Timing,
    ) -> None:
        """Answer when the append is committed, has failed, or takes longer than the producer's timeout. The connection's
        next produce requests are handled meanwhile.

        Kept out of `take`, because variables that an inner function uses would slow down every request there.
        """
        owed = connection.owe()
        timer = asyncio.get_running_loop().call_later(self._timeout_s, appended.time_is_up)

        def ready(appended: Acknowledgement) -> None:
            timer.cancel()
            try:
                timing.finish()
                connection.pay(owed, [self._answer(appended, index, correlation_id)])
                timing.answer(0)
                connection.timings.append(timing)
            except Exception as error:
                connection.fail(error)

        appended.when_ready(ready)

    def _answer(self, appended: Acknowledgement, index: int, correlation_id: int) -> bytes:
        if appended.error is not None:
            return self.shape.answer(correlation_id, index, appended.error.code, -1, -1, -1)
        return self.shape.answer(
            correlation_id,
            index,
            0,
            appended.base_offset,
            appended.log_append_time_ms,
            appended.log_start_offset,
        )


class ProduceLanes:
    """The lanes of one connection, found by the bytes at the beginning of a request."""

    __slots__ = ("_by_length", "_count", "_last", "_topology", "_version")

    def __init__(self) -> None:
        self._by_length: dict[int, dict[bytes, ProduceLane]] = {}
        self._count = 0
        self._last: ProduceLane | None = None
        """The lane that was found last; most connections have only one."""
        self._topology = -1
        # The version comes before the common bytes. A connection uses one version; others take the general path.
        self._version: int | None = None

    def plain(self, topology: int) -> PlainLane | None:
        """The lane that was found last, for requests about which nothing is special."""
        return None if self._last is None or topology != self._topology else self._last.plain

    def find(
        self, frame: memoryview, version: int, topology: int
    ) -> tuple[ProduceLane, int, memoryview] | None:
        """(lane, partition, records) for a produce request; None if no lane matches.

        topology: counts changes to the set of partitions; each change makes all lanes stale.
        """
        if topology != self._topology:
            self._by_length.clear()
            self._count = 0
            self._last = None
            self._topology = topology
            return None
        lane = self._last
        parts = None if lane is None else lane.shape.split(frame)
        if parts is None:
            lane = self._find_by_prefix(frame, version)
            parts = None if lane is None else lane.shape.split(frame)
        if lane is None or parts is None:
            return None
        self._last = lane
        return lane, parts[0], parts[1]

    def _find_by_prefix(self, frame: memoryview, version: int) -> ProduceLane | None:
        if version == self._version:
            for length, lanes in self._by_length.items():
                lane = lanes.get(bytes(frame[PREFIX_AT : PREFIX_AT + length]))
                if lane is not None:
                    return lane
        return None

    def learn(self, frame: memoryview, version: int, request: ProduceRequest, partitions: Partitions) -> None:
        """Learn a lane from `request` if it is of the plain kind."""
        if version < BATCHES_FROM or request.acks not in (1, -1):
            return
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        topic = request.topic_data[0]
        data = topic.partition_data[0]
        name = partitions.name_of(topic.topic_id) if version >= TOPIC_IDS_FROM else topic.name
        served = {} if name is None else partitions.of_topic(name)
        if name is None or data.index not in served or served[data.index].config.is_internal:
            return
        if not data.records or self._count >= LANES_PER_CONNECTION_MAX:
            return
        # The common bytes are followed by the partition and the length of the records.
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
            lanes[prefix] = ProduceLane(version, prefix, request, served, name)
            self._count += 1


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
