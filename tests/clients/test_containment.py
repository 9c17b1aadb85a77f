"""One fault costs one connection: whatever raises, wherever, other clients notice nothing and the broker goes on serving.

Each test breaks one point of a running broker for one victim's connection, with real sockets, while a real client goes on
producing and consuming beside it. What was done is undone by the end of the test, and nothing in the broker knows of it.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.broker.api import dispatch
from barnabas.broker.net.connection import Connection
from barnabas.broker.partitions import plain_append
from barnabas.broker.partitions.partition import Partition
from barnabas.records.batch import Record, build_batch
from barnabas.runtime.timers import KeyedTimers
from barnabas.storage.errors import LogDirOffline
from barnabas.storage.files import FileSlice
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.admin import create_topic
from tests.support.raw import Raw

TIMEOUT_S = 30
VICTIM = "victim"
READ_COMMITTED = 1


class Boom(RuntimeError):
    """What the tests inject."""


def boom(*_: Any, **__: Any) -> Any:
    raise Boom


class Neighbour:
    """A real client that shares the broker with the victim: its connections stay open, its records arrive in order."""

    def __init__(self, broker: Broker) -> None:
        self.topic = f"neighbour-{uuid.uuid4().hex[:8]}"
        create_topic(broker.bootstrap, self.topic, 1, {})
        self.client_id = f"client-{self.topic}"
        self._broker = broker
        self._sent = self._got = 0
        self.errors: list[str] = []
        common = {
            "bootstrap.servers": broker.bootstrap,
            "client.id": self.client_id,
            "error_cb": lambda error: self.errors.append(str(error)),
        }
        self._producer = Producer({**common, "enable.idempotence": True, "linger.ms": 0})
        self._consumer = Consumer({**common, "group.id": self.topic, "auto.offset.reset": "earliest"})
        self._consumer.subscribe([self.topic])
        self.works()
        self._connections = self._open()
        assert self._connections

    def works(self) -> None:
        """Produce some records and read them back."""
        for _ in range(10):
            self._producer.produce(self.topic, b"%d" % self._sent)
            self._sent += 1
        assert self._producer.flush(TIMEOUT_S) == 0
        until = time.monotonic() + TIMEOUT_S
        while self._got < self._sent and time.monotonic() < until:
            message = self._consumer.poll(1)
            if message is not None and message.error() is None:
                assert message.value() == b"%d" % self._got
                self._got += 1
        assert self._got == self._sent

    def _open(self) -> set[Connection]:
        connections = self._broker.inside.server.services.listeners.connections
        return self._broker.inside.call(lambda: {c for c in connections if c.client_id == self.client_id})

    def is_undisturbed(self) -> bool:
        """It still works, by the connections that it had, and its library has seen no error."""
        self.works()
        return self._connections <= self._open() and not self.errors

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    options = {
        "log.retention.check.interval.ms": "50",
        "log.cleaner.backoff.ms": "50",
        "num.partitions": "1",
    }
    with Broker(options, data_dir=tmp_path_factory.mktemp("containment") / "data") as running:
        yield running


@pytest.fixture
def neighbour(broker: Broker) -> Iterator[Neighbour]:
    started = Neighbour(broker)
    yield started
    assert started.is_undisturbed()
    started.close()


class Victim(Raw):
    """A client whose requests meet the fault."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)  # type: ignore[arg-type]
        self.topic = f"victim-{uuid.uuid4().hex[:8]}"
        create_topic(broker.bootstrap, self.topic, 1, {})
        self._broker = broker
        self.ask(HeartbeatRequest(group_id="none", member_id=""), HeartbeatResponse, 0, VICTIM)

    @property
    def connection(self) -> Connection:
        """The broker's side of it."""
        mine = "{}:{}".format(*self.sock.getsockname())
        connections = self._broker.inside.server.services.listeners.connections
        return self._broker.inside.call(lambda: next(c for c in connections if c.peer == mine))

    @property
    def partition(self) -> Partition:
        return self._broker.inside.server.services.partitions.require(self.topic, 0)

    def produced(self, count: int = 1, size: int = 100) -> ProduceResponse:
        """The answer to one batch."""
        answer = self.ask(self.produce_request(count, size), ProduceResponse, 9, VICTIM)
        assert isinstance(answer, ProduceResponse)
        return answer

    def produce_request(self, count: int = 1, size: int = 100, **producer: int) -> ProduceRequest:
        records = build_batch([Record(0, int(time.time() * 1000), None, b"x" * size)] * count, **producer)
        data = TopicProduceData(
            name=self.topic, partition_data=[PartitionProduceData(index=0, records=records)]
        )
        return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])

    def begin_fetch(self, offset: int, *, min_bytes: int = 1, version: int = 11) -> None:
        """Send a fetch that waits if need be; `frame` gets its answer."""
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=64 << 20)
        request = FetchRequest(
            max_wait_ms=60_000, min_bytes=min_bytes, max_bytes=64 << 20, isolation_level=READ_COMMITTED,
            session_epoch=-1, topics=[FetchTopic(topic=self.topic, partitions=[asked])],
        )  # fmt: skip
        self.send(encode_request(request, version, 9, VICTIM))

    def fetched(self, version: int = 11) -> FetchResponse:
        frame = self.frame()
        _, position = decode_response_header(frame, FetchRequest.API_KEY, version)
        answer = FetchResponse.decode(frame, version, position)
        assert isinstance(answer, FetchResponse)
        return answer


@pytest.fixture
def victim(broker: Broker) -> Iterator[Victim]:
    started = Victim(broker)
    yield started
    started.sock.close()


@pytest.fixture
def bugs(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The log entries so far that carry the stack of what the test injected."""
    caplog.set_level(logging.WARNING)
    return lambda: [r.message for r in caplog.records if r.exc_info and isinstance(r.exc_info[1], Boom)]


class BrokenTransport:
    """Takes nothing to send."""

    sends_files = True
    has_pending = False

    def __init__(self, transport: Any) -> None:
        self.fd = transport.fd
        self.peer = transport.peer
        self.close = transport.close
        self.send = self.send_file = boom


def await_(what: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def test_a_frame(neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = victim.connection.handler
    plain = dispatcher.on_frame

    def on_frame(connection: Connection, frame: memoryview) -> None:
        if b"poison" in bytes(frame):
            raise Boom
        plain(connection, frame)

    monkeypatch.setattr(dispatcher, "on_frame", on_frame)
    victim.send(encode_request(HeartbeatRequest(group_id="poison", member_id=""), 0, 1, VICTIM))
    assert victim.is_closed()
    assert len(bugs()) == 1


def test_a_large_frame(
    neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = victim.connection.handler
    plain = handler.on_frame

    def on_frame(connection: Connection, frame: memoryview) -> None:
        if len(frame) > 300_000:
            raise Boom
        plain(connection, frame)

    monkeypatch.setattr(handler, "on_frame", on_frame)
    victim.send(encode_request(victim.produce_request(size=400_000), 9, 1, VICTIM))
    assert victim.is_closed()
    assert len(bugs()) == 1


def test_an_answer_that_cannot_be_written_down(
    neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler is done after a wait, so that nobody but the loop calls what fails."""
    plain = dispatch.encode_response

    def encode_response(answer: Any, version: int, correlation_id: int) -> Any:
        if correlation_id == 4711:
            raise Boom
        return plain(answer, version, correlation_id)

    monkeypatch.setattr(dispatch, "encode_response", encode_response)
    victim.send(encode_request(HeartbeatRequest(group_id="some", member_id=""), 0, 4711, VICTIM))
    assert victim.is_closed()
    monkeypatch.undo()
    assert len(bugs()) == 1


def test_waking_a_fetch(
    broker: Broker, neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of transactions cannot be read when a parked fetch looks again: its fetch alone gets an error."""
    victim.begin_fetch(0)
    await_(lambda: bool(victim.partition.waiters))
    log = victim.partition.log
    broken = threading.Event()

    def aborted(*_: Any) -> Any:
        broken.set()
        raise Boom

    monkeypatch.setattr(type(log), "aborted", aborted)
    writer = Victim(broker)
    writer.topic = victim.topic
    assert writer.produced().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert broken.wait(TIMEOUT_S)
    assert victim.fetched().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    monkeypatch.undo()
    victim.begin_fetch(0)
    assert victim.fetched().responses[0].partitions[0].records
    assert len(bugs()) == 1
    writer.sock.close()


def test_waking_a_fetch_of_a_version_without_an_error_of_its_own(
    broker: Broker, neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim.begin_fetch(0, version=5)
    await_(lambda: bool(victim.partition.waiters))
    monkeypatch.setattr(type(victim.partition.log), "aborted", boom)
    writer = Victim(broker)
    writer.topic = victim.topic
    writer.produced()
    assert victim.is_closed()
    monkeypatch.undo()
    assert len(bugs()) == 1
    writer.sock.close()


def test_the_end_of_a_turn(
    broker: Broker, neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is woken, be it no fetch at all."""

    class Broken:
        wake = wake_waiters = boom

    services = broker.inside.server.services
    partition = victim.partition
    broker.inside.call(lambda: partition.waiters.__setitem__(Broken(), None))  # type: ignore[call-arg]
    assert victim.produced().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert len(bugs()) == 1
    broker.inside.call(partition.waiters.clear)
    broker.inside.call(lambda: services.partitions._turn.to_wake(Broken()))
    assert victim.produced().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert len(bugs()) == 2


def test_a_flush(neighbour: Neighbour, victim: Victim, bugs: Any) -> None:
    connection = victim.connection
    connection.transport = BrokenTransport(connection.transport)
    victim.send(encode_request(HeartbeatRequest(group_id="none", member_id=""), 0, 1, VICTIM))
    assert victim.is_closed()
    assert len(bugs()) == 1


def test_a_peer_that_reads_slowly(neighbour: Neighbour, victim: Victim, bugs: Any) -> None:
    """The rest of an answer is written when the loop finds the socket writable: nobody else is on the stack."""
    for _ in range(8):
        victim.produced(size=900_000)
    connection = victim.connection
    victim.begin_fetch(0, min_bytes=4 << 20)
    await_(lambda: connection.is_writer_armed)
    connection.transport = BrokenTransport(connection.transport)
    while True:
        try:
            if not victim.sock.recv(1 << 20):
                break
        except ConnectionError:
            break
    assert len(bugs()) == 1


def test_the_fast_path_of_produce(
    neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything was appended the general path answers; afterwards the connection closes, and nothing is doubled."""
    victim.produced()
    victim.produced()  # by the fast path
    partition = victim.partition
    core = type(partition.log.core)
    plain = core.decide_append

    def decide_append(self: Any, *args: Any) -> Any:
        if self is partition.log.core:
            raise Boom
        return plain(self, *args)

    monkeypatch.setattr(core, "decide_append", decide_append)
    request = victim.produce_request(producer_id=7, producer_epoch=0, base_sequence=0)
    victim.send(encode_request(request, 9, 1, VICTIM))
    assert (
        victim.is_closed()
    )  # the general path has no better answer to a bug: Produce has no error of its own
    monkeypatch.undo()
    assert len(bugs()) == 1
    assert partition.log_end_offset == 2


def test_the_plain_append_gives_up_and_the_general_path_answers(
    neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim.produced()
    victim.produced()

    def fails(*_: Any) -> int:
        raise Boom

    monkeypatch.setattr(plain_append, "crc32c", fails)
    answer = victim.produced().responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2)
    neighbour.works()
    assert not bugs()


def test_a_plain_append_that_is_in_the_log_but_cannot_be_answered(
    neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim.produced()
    victim.produced()
    partition, connection = victim.partition, victim.connection
    plain = Connection.respond

    def respond(self: Connection, parts: Any) -> None:
        if self is connection:
            raise Boom
        plain(self, parts)

    monkeypatch.setattr(Connection, "respond", respond)
    victim.send(encode_request(victim.produce_request(), 9, 1, VICTIM))
    assert victim.is_closed()
    monkeypatch.undo()
    assert partition.log_end_offset == 3
    assert len(bugs()) == 1


def test_the_fast_path_of_produce_when_the_batch_is_in_the_log_already(
    neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim.produced()
    victim.produced()
    partition = victim.partition
    stamped = dataclasses.replace(partition.log.config, message_timestamp_type="LogAppendTime")
    partition.log.set_config(stamped)  # so that the append is not a plain one
    plain = Partition._advance

    def advance(self: Partition) -> None:
        if self is partition:
            raise Boom
        plain(self)

    monkeypatch.setattr(Partition, "_advance", advance)
    victim.send(encode_request(victim.produce_request(), 9, 1, VICTIM))
    assert victim.is_closed()
    monkeypatch.undo()
    assert partition.log_end_offset == 3
    assert len(bugs()) == 1


def test_what_was_answered_before_a_bug_is_sent(
    neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer hears of the batches that are in the log, although a later request of the same packet meets a bug."""
    victim.produced()
    victim.produced()
    partition, connection = victim.partition, victim.connection
    stamped = dataclasses.replace(partition.log.config, message_timestamp_type="LogAppendTime")
    partition.log.set_config(stamped)  # so that each is answered alone
    plain = Connection.respond
    answered: list[Any] = []

    def respond(self: Connection, parts: Any) -> None:
        if self is connection:
            if answered:
                raise Boom
            answered.append(parts)
        plain(self, parts)

    monkeypatch.setattr(Connection, "respond", respond)
    victim.send(b"".join(encode_request(victim.produce_request(), 9, number, VICTIM) for number in (1, 2)))
    frame = victim.frame()
    assert victim.is_closed()
    monkeypatch.undo()
    _, position = decode_response_header(frame, ProduceRequest.API_KEY, 9)
    answer = ProduceResponse.decode(frame, 9, position).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2)
    assert partition.log_end_offset == 4
    assert len(bugs()) == 1


def test_a_sender_thread(
    broker: Broker, neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Victim(broker)
    other.topic = victim.topic
    for _ in range(2):
        victim.produced(size=900_000)
    connection = victim.connection
    plain = FileSlice.send_to

    def send_to(self: FileSlice, fd: int, begin: int = 0) -> int:
        if fd == connection._fd and threading.current_thread().name.startswith("sender"):
            raise Boom
        return plain(self, fd, begin)

    monkeypatch.setattr(FileSlice, "send_to", send_to)
    # On a machine with two cores the loop sends what is in memory.
    monkeypatch.setattr(FileSlice, "is_cached", lambda _: False)
    other.begin_fetch(0)
    assert len(other.fetched().responses[0].partitions[0].records) > 900_000
    victim.begin_fetch(0)  # the large slice before went to another socket, so a thread sends this one
    with pytest.raises(ConnectionError):
        victim.frame()
    monkeypatch.undo()
    for _ in range(2):  # the threads live
        other.begin_fetch(0)
        assert len(other.fetched().responses[0].partitions[0].records) > 900_000
    assert len(bugs()) == 1
    other.sock.close()


def test_accepting(
    broker: Broker, neighbour: Neighbour, victim: Victim, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong with one new peer closes that peer's socket; the next one is served."""
    limits = broker.inside.server.services.listeners.limits
    monkeypatch.setattr(limits, "refusal", boom)
    refused = Raw(broker)  # type: ignore[arg-type]
    assert refused.is_closed()
    monkeypatch.undo()
    welcome = Victim(broker)  # after the listener's rest
    assert welcome.produced().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    welcome.sock.close()
    refused.sock.close()
    assert len(bugs()) == 1


def test_what_follows_a_closed_connection(
    broker: Broker, neighbour: Neighbour, victim: Victim, bugs: Any
) -> None:
    connection = victim.connection
    followed = threading.Event()
    broker.inside.call(lambda: connection.call_when_closed("broken", boom))
    broker.inside.call(lambda: connection.call_when_closed("next", followed.set))
    victim.sock.close()
    assert followed.wait(TIMEOUT_S)
    assert len(bugs()) == 1
    assert connection not in broker.inside.server.services.listeners.connections


def test_a_periodic_job(
    broker: Broker, neighbour: Neighbour, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention fails once and runs again."""
    partitions = broker.inside.server.services.partitions
    runs: list[bool] = []

    async def delete_old_segments() -> None:
        runs.append(True)
        if len(runs) == 1:
            raise Boom

    monkeypatch.setattr(partitions, "delete_old_segments", delete_old_segments)
    await_(lambda: len(runs) > 2)
    assert len(bugs()) == 1


def test_a_pass_of_the_cleaner(
    broker: Broker, neighbour: Neighbour, bugs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice of a log fails once, and the next pass chooses again. (`tests/unit/storage/test_cleaner_crashes.py` has the
    bugs inside a pass, which cost one log a minute.)"""
    cleaning = broker.inside.server.cleaning
    assert cleaning is not None
    plain = cleaning.cleaner.filthiest
    passes: list[int] = []

    def filthiest(now_ms: int) -> Any:
        passes.append(now_ms)
        if len(passes) == 1:
            raise Boom
        return plain(now_ms)

    monkeypatch.setattr(cleaning.cleaner, "filthiest", filthiest)
    await_(lambda: len(passes) > 2)
    assert len(bugs()) == 1


def test_a_timer(neighbour: Neighbour, broker: Broker, bugs: Any) -> None:
    """One group's timer meets a bug; the session of another group's member still ends in time."""
    fired = threading.Event()
    server = broker.inside.server

    def fire(key: object) -> None:
        if key == "broken":
            raise Boom
        fired.set()

    timers = broker.inside.call(lambda: KeyedTimers(server.services.loop, server.clock, fire))
    broker.inside.call(lambda: timers.set_after("broken", 1))
    broker.inside.call(lambda: timers.set_after("sound", 2))
    assert fired.wait(TIMEOUT_S)
    assert len(bugs()) == 1


def test_a_disk_that_fails_a_flush(tmp_path: Path) -> None:
    """flush.messages=1: the producer gets the error of that partition, on a connection that stays open."""
    with Broker(data_dir=tmp_path / "data") as broker:
        topic = f"flushed-{uuid.uuid4().hex[:8]}"
        create_topic(broker.bootstrap, topic, 1, {"flush.messages": "1"})
        victim = Victim(broker)
        victim.topic = topic
        assert victim.produced().responses[0].partition_responses[0].error_code == ErrorCode.NONE
        log = victim.partition.log

        def failing_flush(*_: Any) -> None:
            raise LogDirOffline(log.log_dir, OSError(errno.EIO, "Input/output error"))

        broker.inside.server.on_fatal = lambda: None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(log), "flush", failing_flush)
            answer = victim.produced().responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert answer.base_offset == -1
        heartbeat = victim.ask(HeartbeatRequest(group_id="none", member_id=""), HeartbeatResponse, 0, VICTIM)
        assert isinstance(heartbeat, HeartbeatResponse)
        victim.sock.close()
