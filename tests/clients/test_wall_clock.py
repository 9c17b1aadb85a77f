"""Durations follow the monotonic clock: the wall clock is put back and forward an hour while clients are at work."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.transactions import TransactionLost, Transactions
from barnabas.runtime.clock import SystemClock
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.support.admin import create_topic
from tests.support.raw import Raw

HOUR_MS = 3_600_000
TIMEOUT_S = 60
SESSION_MS = 1_000


class SteppedClock(SystemClock):
    """The machine's clock, whose wall time a test puts forward or back."""

    def __init__(self) -> None:
        self.by_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.by_ms


class Load:
    """A producer and a group of one consumer that go on until they are stopped."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self.topic = f"load-{uuid.uuid4().hex[:8]}"
        create_topic(bootstrap, self.topic, 1, {})
        self.assigned = self.revoked = self.got = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        options = {"session.timeout.ms": 10_000} if protocol == "classic" else {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": self.topic, "auto.offset.reset": "earliest",
                "group.protocol": protocol, **options,
            }
        )  # fmt: skip
        self._consumer.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_assign(self, *_: object) -> None:
        self.assigned += 1

    def _on_revoke(self, *_: object) -> None:
        self.revoked += 1

    def _run(self) -> None:
        while not self._ends.is_set():
            self._producer.produce(self.topic, b"x")
            self._producer.poll(0)
            message = self._consumer.poll(0.01)
            if message is not None and message.error() is None:
                self.got += 1

    def goes_on(self, records: int = 20) -> None:
        """Wait until so many more records have come."""
        want, until = self.got + records, time.monotonic() + TIMEOUT_S
        while self.got < want:
            assert time.monotonic() < until, "the consumer gets no records any more"
            time.sleep(0.02)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()
        self._consumer.commit(asynchronous=False)
        self._consumer.close()


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    started = Broker({"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"})
    started.clock = clock  # type: ignore[assignment]
    with started:
        yield started


def join(raw: Raw, group: str) -> None:
    """A member that joins and is never heard of again."""
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, member_id="",
        protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )  # fmt: skip
    answer = raw.ask(request, JoinGroupResponse, 2)
    assert isinstance(answer, JoinGroupResponse)
    assert answer.error_code == ErrorCode.NONE


def members(raw: Raw, group: str) -> int:
    answer = raw.ask(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, 0)
    assert isinstance(answer, DescribeGroupsResponse)
    return len(answer.groups[0].members)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS], ids=["back", "forward"])
def test_sessions_keep_their_length(broker: Broker, clock: SteppedClock, by_ms: int, protocol: str) -> None:
    load = Load(broker.bootstrap, protocol)
    raw = Raw(broker)  # type: ignore[arg-type]
    try:
        load.goes_on()
        group = f"silent-{protocol}"
        begun_s = time.monotonic()
        join(raw, group)
        clock.by_ms = by_ms
        while members(raw, group):
            assert time.monotonic() - begun_s < TIMEOUT_S, "its session does not end"
            time.sleep(0.02)
        assert time.monotonic() - begun_s >= SESSION_MS / 1000, "its session ended too early"
        load.goes_on()
        clock.by_ms = 0
        load.goes_on()
        assert (load.assigned, load.revoked) == (1, 0)
    finally:
        load.stop()
        raw.sock.close()


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS], ids=["back", "forward"])
def test_flushes_and_deletions_keep_their_delays(broker: Broker, clock: SteppedClock, by_ms: int) -> None:
    create_topic(broker.bootstrap, "flushed", 1, {"flush.ms": "1000"})
    create_topic(broker.bootstrap, "gone", 1, {"file.delete.delay.ms": "2000"})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("flushed", b"x")
    producer.flush(TIMEOUT_S)
    begun_s = time.monotonic()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["gone"])["gone"].result(TIMEOUT_S)
    clock.by_ms = by_ms
    partition = broker.inside.server.services.partitions.require("flushed", 0)
    while partition.log.recovery_point < 1:
        assert time.monotonic() - begun_s < TIMEOUT_S, "it is not flushed"
        time.sleep(0.02)
    while list(broker.data_dir.glob("gone-0.*-delete")):
        assert time.monotonic() - begun_s < TIMEOUT_S, "its files are not removed"
        time.sleep(0.02)
    assert time.monotonic() - begun_s >= 2, "its files were removed too early"


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS], ids=["back", "forward"])
def test_transactions_keep_their_time_out(broker: Broker, clock: SteppedClock, by_ms: int) -> None:
    with BlockingClient(broker.bootstrap) as client:
        client.create_topics([NewTopic("t", 1)])
        transactions = Transactions(client)
        long = transactions.begin("long", HOUR_MS // 8)
        transactions.add_partitions(long, "t", [0])
        begun_s = time.monotonic()
        short = transactions.begin("short", SESSION_MS)
        transactions.add_partitions(short, "t", [0])
        clock.by_ms = by_ms
        while transactions.open_ids("short"):
            assert time.monotonic() - begun_s < TIMEOUT_S, "the transaction does not time out"
            time.sleep(0.02)
        assert time.monotonic() - begun_s >= SESSION_MS / 1000, "the transaction has timed out too early"
        with pytest.raises(TransactionLost):
            transactions.end(short, commit=True)
        transactions.end(long, commit=True)
