"""A reader of a table against a leader whose answers are scripted: any two logs that part somewhere, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.options import ClientOptions
from barnabas.client.tables import following
from barnabas.client.tables.following import Follower
from barnabas.client.tables.replay import Change, Replay, Rows
from barnabas.records.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.wire.schema import Message
from tests.support.cluster import until
from tests.support.scripted import ScriptedPeer
from tests.support.tables import Numbers

FETCH, LIST_OFFSETS, METADATA, EPOCHS = 1, 2, 3, 23
VERSIONS = {FETCH: (4, 12), LIST_OFFSETS: (1, 5), METADATA: (1, 10), EPOCHS: (0, 4)}
DEADLINE_S = 60.0

Row = tuple[int, str, int]
"""Leader epoch, key, value."""


class Leader:
    """One partition. log: its rows, by offset. epoch: the leader's own. high_watermark: beyond the log, where compaction has
    removed its end."""

    def __init__(self, log: Sequence[Row]) -> None:
        self.become(log, 0)
        self.next: tuple[Sequence[Row], int] | None = None
        """The log and epoch that are there from the next question about the topic's leader on."""
        self.topic_id = UUID(int=1)
        self.fetched = threading.Semaphore(0)
        answers = {
            FETCH: self._fetch,
            LIST_OFFSETS: self._list,
            METADATA: self._metadata,
            EPOCHS: self._end_of_epoch,
        }
        self.peer = ScriptedPeer(answers, VERSIONS)  # type: ignore[arg-type]

    def become(self, log: Sequence[Row], epoch: int, removed: int = 0) -> None:
        """Lead with another log from now on. removed: how many records at its end compaction has removed."""
        self.log, self.epoch, self.high_watermark = list(log), epoch, len(log) + removed

    def _metadata(self, request: Message) -> Message:
        if self.next is not None:
            self.become(*self.next)
            self.next = None
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.peer.port)
        row = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=self.epoch)
        topic = MetadataResponseTopic(name="numbers", topic_id=self.topic_id, partitions=[row])
        return MetadataResponse(brokers=[broker], controller_id=1, topics=[topic])

    def _fetch(self, request: FetchRequest) -> Message:
        asked = request.topics[0].partitions[0]
        offset, log = asked.fetch_offset, self.log
        records = b""
        code = 0 if offset <= self.high_watermark else ErrorCode.OFFSET_OUT_OF_RANGE
        if offset < len(log):
            epoch, key, value = log[offset]
            row = Record(offset, 0, key.encode(), str(value).encode())
            records = build_batch([row], base_offset=offset, leader_epoch=epoch)
        else:
            time.sleep(0.002)  # a broker would wait for records
        data = PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=self.high_watermark,
            log_start_offset=0,
            records=records,
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="numbers", partitions=[data])])

    def _list(self, request: ListOffsetsRequest) -> Message:
        place = request.topics[0].partitions[0].timestamp
        offset = 0 if place == -2 else self.high_watermark
        row = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="numbers", partitions=[row])])

    def _end_of_epoch(self, request: OffsetForLeaderEpochRequest) -> Message:
        wanted = request.topics[0].partitions[0].leader_epoch
        end = sum(epoch <= wanted for epoch, _, _ in self.log)
        known = max((epoch for epoch, _, _ in self.log if epoch <= wanted), default=-1)
        row = EpochEndOffset(partition=0, leader_epoch=known, end_offset=end if known >= 0 else -1)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic="numbers", partitions=[row])]
        )


class Reading:
    """A follower in its thread, and the table that it makes."""

    def __init__(self, leader: Leader) -> None:
        self.rows: Rows[str, int] = Rows()
        self.replay: Replay[str, int, int] = Replay(self.rows)
        self.replay.begin(0, leader.high_watermark)
        self.trouble: str | None = None
        self.stopping = threading.Event()
        client = ClientOptions((("127.0.0.1", leader.peer.port),), backoff_s=0.001, deadline_s=5)
        follower = Follower(client, "numbers", Numbers(), self, self.stopping, 0)
        self.thread = threading.Thread(target=follower.run, daemon=True)
        self.thread.start()

    def take(self, changes: Sequence[Change[str, int]], next_offset: int) -> None:
        self.replay.take(changes, next_offset)

    def begin_again(self, start: int, end: int) -> None:
        self.replay.begin_again(start, end)

    def note_trouble(self, reason: str | None) -> None:
        self.trouble = reason

    def until(self, leader: Leader) -> None:
        """Wait until the table is what the leader's log says."""
        end = time.monotonic() + DEADLINE_S
        wanted = {key: value for _, key, value in leader.log}
        while self.rows.shown != wanted or self.replay.next_offset != leader.high_watermark:
            assert time.monotonic() < end, (self.rows.shown, wanted, self.trouble)
            time.sleep(0.002)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAUSE_S", 0.01)
    monkeypatch.setattr(following, "LOOK_S", 0.0)


KEYS = st.sampled_from("abc")


def rows(epoch: int, first: int, keys: list[str]) -> list[Row]:
    return [(epoch, key, first + index) for index, key in enumerate(keys)]


@settings(max_examples=25, deadline=None)
@given(st.lists(KEYS, max_size=3), st.lists(KEYS, max_size=3), st.lists(KEYS, max_size=4), st.integers(0, 2))
def test_whatever_log_the_next_leader_has_the_table_becomes_it(
    common: list[str], lost: list[str], others: list[str], removed: int
) -> None:
    before = rows(0, 100, common)
    leader = Leader([*before, *rows(1, 200, lost)])
    reading = Reading(leader)
    try:
        reading.until(leader)
        leader.become([*before, *rows(2, 300, others)], 2, removed)
        reading.until(leader)
    finally:
        reading.stopping.set()
        reading.thread.join(DEADLINE_S)
        leader.peer.close()


def test_a_new_leader_with_the_same_log_costs_one_question() -> None:
    leader = Leader(rows(0, 100, ["a", "b"]))
    reading = Reading(leader)
    try:
        reading.until(leader)
        # Not between the answer that names the leader and a fetch: the new record would be a reason of its own to ask.
        leader.next = [*leader.log, (1, "c", 7)], 1
        until(lambda: leader.next is None, "the leader was asked for")
        reading.until(leader)
    finally:
        reading.stopping.set()
        reading.thread.join(DEADLINE_S)
        leader.peer.close()
    assert reading.replay.beginnings == 0
    assert sum(request.API_KEY == EPOCHS for request in leader.peer.asked) == 1


def test_a_topic_of_the_same_name_with_another_id_is_read_from_its_start() -> None:
    leader = Leader(rows(0, 100, ["a", "b"]))
    reading = Reading(leader)
    try:
        reading.until(leader)
        leader.log = rows(0, 300, ["c", "d"])
        leader.topic_id = UUID(int=2)
        reading.until(leader)
    finally:
        reading.stopping.set()
        reading.thread.join(DEADLINE_S)
        leader.peer.close()
    assert reading.replay.beginnings == 1
