"""Reads a topic from its start and goes on with what comes, in a thread of its own.

A reader must notice when the log is not the one it has read: the topic was created anew (its id changes), records at its
start were deleted, or an unclean election has cut off its end. Fetching alone shows the last two only while the new log
is shorter; so whenever the leader's epoch has changed, the leader is asked where the epoch of the last record read ends
in its log, as Kafka's consumer does.

Compaction keeps tombstones for delete.retention.ms (a day) after the first time it met them: a reader that cannot read for
longer may miss them, so it begins again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Generic, Protocol, TypeVar
from uuid import UUID

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import BrokerError, ClientError, UnsupportedByBroker
from barnabas.client.fetching import Fetched, OffsetOutOfRange
from barnabas.client.options import ClientOptions
from barnabas.client.tables.replay import Change, Codec
from barnabas.client.tables.topic import bounds
from barnabas.records.batch import batches, records_of
from barnabas.records.units import Offset
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

log = logging.getLogger("barnabas.client")

K = TypeVar("K")
V = TypeVar("V")

FETCH_BYTES_MAX: Final = 512 << 10
PAUSE_S: Final = 1.0
TROUBLE_S: Final = 5.0
"""How long brokers may not answer before that is reported."""
LOOK_S: Final = 10.0
"""How often the topic's id and leader are asked for although nothing has failed."""
AWAY_S: Final = 12 * 3600.0
"""After so long without an answer, tombstones may have come and gone."""
NO_ID: Final = UUID(int=0)


class AnotherLog(ClientError):
    """What has been read is not in the log any more."""


class Sink(Protocol[K, V]):
    """Receives what a follower reads, in its thread. Each method returns when it has been dealt with."""

    def take(self, changes: Sequence[Change[K, V]], next_offset: Offset) -> None:
        """Records, without those that cannot be read, and the offset after the last one."""

    def begin_again(self, start: Offset, end: Offset) -> None:
        """All that was given before is void. start, end: the offsets that the topic has now."""

    def note_trouble(self, reason: str | None) -> None:
        """Why the topic cannot be read; None: it can."""


class Follower(Generic[K, V]):
    """Reads from `start` on. run: the thread's work, until `stopping` is set."""

    def __init__(
        self,
        client: ClientOptions,
        topic: str,
        codec: Codec[K, V],
        sink: Sink[K, V],
        stopping: threading.Event,
        start: Offset,
    ) -> None:
        self._client = BlockingClient(replace(client, deadline_s=min(client.deadline_s, TROUBLE_S)))
        self._topic = topic
        self._codec = codec
        self._sink = sink
        self._stopping = stopping
        self._offset = start
        self._must_begin_again = False
        self._epoch_read = -1
        """The leader epoch of the last batch that was read."""
        self._log: tuple[UUID, int] | None = None
        """The topic's id and the leader's epoch, when the log was last found to be the one that is being read."""
        self._looked_s = self._answered_s = time.monotonic()
        self._high_watermark = Offset(-1)

    def run(self) -> None:
        """Read until the event is set. Errors are logged and reported to the sink; reading goes on afterwards."""
        while not self._stopping.is_set():
            try:
                self._turn()
                self._sink.note_trouble(None)
            except (OffsetOutOfRange, AnotherLog) as error:
                log.error(
                    "topic recreated or truncated: reading all of it again",
                    extra={"topic": self._topic, "reason": str(error)},
                )
                self._must_begin_again = True
            except ClientError as error:
                self._sink.note_trouble(str(error))
                log.warning("topic cannot be read", extra={"topic": self._topic, "reason": str(error)})
                self._client.close()
                self._stopping.wait(PAUSE_S)
            except Exception as error:
                self._sink.note_trouble(f"{type(error).__name__}: {error}")
                log.exception("reader failed", extra={"topic": self._topic})
                self._stopping.wait(PAUSE_S)
        self._client.close()

    def _turn(self) -> None:
        if self._must_begin_again:
            self._begin_again()
        if time.monotonic() - self._looked_s >= LOOK_S:
            self._looked_s = time.monotonic()
            self._client.cluster.refresh([self._topic])
        piece = self._client.fetch_raw(self._topic, 0, self._offset, max_bytes=FETCH_BYTES_MAX)
        if time.monotonic() - self._answered_s > AWAY_S:
            raise AnotherLog(f"topic {self._topic} could not be read for {AWAY_S / 3600:g} hours")
        self._answered_s = time.monotonic()
        epochs = [header.partition_leader_epoch for _, header in batches(piece.records)]
        self._require_same_log(epochs)
        next_offset = self._after(piece)
        if next_offset > self._offset:
            self._sink.take(self._changes_in(piece.records), next_offset)
            self._offset = next_offset
        if epochs:
            self._epoch_read = epochs[-1]

    def _begin_again(self) -> None:
        self._client.cluster.refresh([self._topic])
        start, end = bounds(self._client, self._topic)
        self._offset, self._epoch_read, self._log, self._high_watermark = start, -1, None, Offset(-1)
        self._sink.begin_again(start, end)
        self._must_begin_again = False
        self._answered_s = time.monotonic()

    def _after(self, piece: Fetched) -> Offset:
        """The offset after a piece. Compaction may have removed the last records before the high watermark: they are passed
        once two answers in a row say that there is nothing although the first one had named a higher watermark (the second
        one alone may have been read a moment before a record came).
        """
        before, self._high_watermark = self._high_watermark, piece.high_watermark
        if not len(piece.records) and min(before, piece.high_watermark) > self._offset:
            return min(before, piece.high_watermark)
        return piece.next_offset

    def _changes_in(self, records: memoryview) -> list[Change[K, V]]:
        changes = []
        for position, header in batches(records):
            if header.is_control:
                continue
            for record in records_of(records, position, header):
                if record.offset < self._offset:
                    continue
                try:
                    key, value = self._codec.decode(record.key, record.value)
                except ValueError as error:
                    log.error(
                        "record cannot be read",
                        extra={"topic": self._topic, "offset": record.offset, "reason": str(error)},
                    )
                    continue
                changes.append(Change(Offset(record.offset), key, value, record.key))
        return changes

    # --- is it still the same log? ------------------------------------------------------------------

    def _require_same_log(self, epochs: Sequence[int]) -> None:
        """Raises AnotherLog. epochs: of the batches that have just been fetched."""
        view = self._client.cluster.topic(self._topic)
        identity = view.topic_id, view.partitions[0].leader_epoch
        if self._log is not None and NO_ID != self._log[0] != view.topic_id:
            raise AnotherLog(f"topic {self._topic} was created anew")
        is_new_epoch = bool(epochs) and epochs[0] != self._epoch_read
        if self._epoch_read >= 0 and (identity != self._log or is_new_epoch):
            end = self._end_of_epoch(self._epoch_read)
            if end is not None and end < self._offset:
                raise AnotherLog(
                    f"the log of {self._topic} has leader epoch {self._epoch_read} up to offset {end} only, but was read "
                    f"up to {self._offset}"
                )
        self._log = identity

    def _end_of_epoch(self, epoch: int) -> int | None:
        """Where an epoch ends in the leader's log; -1 if it is unknown there; None if the broker cannot say."""
        client, name = self._client, self._topic
        wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=[wanted])]
        )

        def attempt() -> int:
            connection = client.cluster.node(client.cluster.leader(name, 0))
            answer = client.call(connection, request, OffsetForLeaderEpochResponse)
            row = answer.topics[0].partitions[0]
            if row.error_code:
                raise BrokerError(row.error_code, f"asking for the end of a leader epoch of {name}-0")
            end: int = row.end_offset
            return end

        try:
            return client.cluster.retry(attempt, [name])
        except UnsupportedByBroker:
            return None
