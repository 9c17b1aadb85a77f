"""The sender of idempotent batches against a leader that keeps sequence numbers as a broker does, and fails when told."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.client import sending
from barnabas.client.options import ClientOptions
from barnabas.client.sending import Batch, Sender
from barnabas.records.batch import batches, read_records
from barnabas.records.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.init_producer_id import InitProducerIdResponse
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.wire.schema import Message
from tests.support.scripted import ScriptedPeer

PRODUCE, METADATA, INIT_PRODUCER_ID = 0, 3, 22
VERSIONS = {PRODUCE: (3, 9), METADATA: (1, 9), INIT_PRODUCER_ID: (0, 2)}
SECONDS = 60.0
WAIT_CODES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
FAULTS = ("cut", "cut after the append", "no answer but a time limit", "producer forgotten", *WAIT_CODES)


class Leader:
    """One partition. faults: what happens to the next batches; log: the values that it has."""

    def __init__(self, faults: Iterable[str | ErrorCode], records_max: int = 1 << 30) -> None:
        self.faults = deque(faults)
        self.records_max = records_max
        self.log: list[bytes] = []
        self.known: dict[int, dict[int, tuple[int, int]]] = {}
        """By producer: the batches that it has, by sequence number: their ends and first offsets."""
        self.producers = 0
        answers = {PRODUCE: self._produce, METADATA: self._metadata, INIT_PRODUCER_ID: self._producer}
        self.peer = ScriptedPeer(answers, VERSIONS)  # type: ignore[arg-type]

    def _metadata(self, request: Message) -> Message:
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.peer.port)
        row = MetadataResponsePartition(partition_index=0, leader_id=1)
        topic = MetadataResponseTopic(name="lines", partitions=[row])
        return MetadataResponse(brokers=[broker], controller_id=1, topics=[topic])

    def _producer(self, request: Message) -> Message:
        self.producers += 1
        return InitProducerIdResponse(producer_id=self.producers, producer_epoch=0)

    def _produce(self, request: ProduceRequest) -> Message | None:
        data = request.topic_data[0].partition_data[0].records
        ((_, header),) = batches(data)
        values = [record.value or b"" for record in read_records(data)]
        fault = self.faults.popleft() if self.faults else None
        if fault == "cut":
            return None
        if isinstance(fault, ErrorCode):
            return answer(fault)
        if values[0] == b"refused":
            return answer(ErrorCode.INVALID_RECORD)
        if len(values) > self.records_max:
            return answer(ErrorCode.MESSAGE_TOO_LARGE)
        known = self.known.setdefault(header.producer_id, {})
        if header.base_sequence in known:
            reply = answer(ErrorCode.NONE, known[header.base_sequence][1])
        elif fault == "producer forgotten" and known:
            self.known[header.producer_id] = {}
            return answer(ErrorCode.UNKNOWN_PRODUCER_ID)
        elif header.base_sequence != max((end for end, _ in known.values()), default=0):
            return answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        else:
            known[header.base_sequence] = (header.base_sequence + len(values), len(self.log))
            reply = answer(ErrorCode.NONE, len(self.log))
            self.log += values
        if fault == "cut after the append":
            return None
        return answer(ErrorCode.REQUEST_TIMED_OUT) if fault == "no answer but a time limit" else reply


def answer(code: ErrorCode, offset: int = -1) -> Message:
    row = PartitionProduceResponse(index=0, error_code=code, base_offset=offset)
    return ProduceResponse(responses=[TopicProduceResponse(name="lines", partition_responses=[row])])


def batch_of(values: Iterable[bytes]) -> Batch:
    batch = Batch("lines", 0)
    for value in values:
        assert batch.block.add(value, None, b"", 0, 0, 1 << 20)
        batch.spans.append(value)
    return batch


def halves(batch: Batch, size_bytes_max: int) -> list[Batch]:
    middle = len(batch.spans) // 2
    return [batch_of(batch.spans[:middle]), batch_of(batch.spans[middle:])]


def sent(leader: Leader, groups: Iterable[list[bytes]]) -> list[tuple[list[bytes], int]]:
    """The values and first offsets of what got an outcome, in its order; -1 for what was refused."""
    options = ClientOptions((("127.0.0.1", leader.peer.port),), backoff_s=0.001)
    sender = Sender(options, Codec.NONE, halves, 1 << 20)
    try:
        for values in groups:
            sender.put(batch_of(values))
        deadline_s = time.monotonic() + SECONDS
        while not sender.is_idle():
            assert time.monotonic() < deadline_s, sender.trouble or sender.failure
            assert not sender.failure
            time.sleep(0.001)
        return [(outcome.batch.spans, outcome.offset) for outcome in sender.outcomes]
    finally:
        sender.close()
        leader.peer.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(sending, "PAUSE_SECONDS_MAX", 0.002)


def numbered(sizes: Iterable[int]) -> list[list[bytes]]:
    """Batches of so many records, whose values are different."""
    groups, number = [], 0
    for size in sizes:
        groups.append([b"%d" % (number + i) for i in range(size)])
        number += size
    return groups


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.lists(st.sampled_from((*FAULTS, "none")), max_size=12),
)
def test_whatever_fails_each_record_is_there_once_and_in_order(sizes: list[int], faults: list[str]) -> None:
    leader, groups = Leader(faults), numbered(sizes)
    outcomes = sent(leader, groups)
    assert leader.log == [value for values in groups for value in values]
    assert [values for values, _ in outcomes] == groups
    assert all(leader.log[offset : offset + len(values)] == values for values, offset in outcomes)


def test_a_batch_that_is_too_large_is_divided_until_it_fits() -> None:
    leader = Leader(["none", "cut after the append"], records_max=2)
    groups = numbered([2, 7, 1])
    outcomes = sent(leader, groups)
    assert leader.log == [value for values in groups for value in values]
    assert [len(values) for values, _ in outcomes] == [2, 1, 2, 2, 2, 1]


def test_what_is_refused_for_good_does_not_hold_up_those_behind_it() -> None:
    leader = Leader([])
    outcomes = sent(leader, [[b"1"], [b"refused"], [b"2"], [b"3"]])
    assert outcomes == [([b"1"], 0), ([b"refused"], -1), ([b"2"], 1), ([b"3"], 2)]
    assert leader.log == [b"1", b"2", b"3"]


def test_a_sender_that_is_closed_while_nobody_answers_ends() -> None:
    leader = Leader(["cut"] * 100_000)
    options = ClientOptions((("127.0.0.1", leader.peer.port),), backoff_s=0.001)
    sender = Sender(options, Codec.NONE, halves, 1 << 20)
    sender.put(batch_of([b"1"]))
    while not sender.trouble:
        time.sleep(0.001)
    sender.close()
    leader.peer.close()
    assert not sender.outcomes
    assert sender._thread is not None
    assert not sender._thread.is_alive()
