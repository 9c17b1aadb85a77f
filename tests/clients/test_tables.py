"""Tables over compacted topics on a real broker that restarts, compacts, deletes topics and loses the end of its log.

Another program's client (confluent-kafka) writes to the same topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Producer

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions, parse_bootstrap
from barnabas.client.tables import following
from barnabas.client.tables.table import TopicTable
from barnabas.client.tables.topic import CompactedTopic
from barnabas.client.tables.writing import TooLarge
from barnabas.records.batch import batches
from barnabas.testing import Broker
from tests.support.tables import DEADLINE_S, Numbers, eventually

HOUR_MS = 3_600_000
OPTIONS = {
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.bytes": "2000",
}


Table = TopicTable[str, int]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAUSE_S", 0.05)
    monkeypatch.setattr(following, "LOOK_S", 0.2)
    monkeypatch.setattr(following, "TROUBLE_S", 0.5)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(OPTIONS, manual_clock=True) as broker:
        yield broker


def options(broker: Broker) -> ClientOptions:
    return ClientOptions(parse_bootstrap(broker.bootstrap), deadline_s=60)


@asynccontextmanager
async def tables(broker: Broker, count: int = 1):
    """So many instances of one table, each of which has read all of it."""
    all_tables = [
        Table(options(broker), CompactedTopic("numbers", "numbers"), Numbers(), read_back_s=DEADLINE_S)
        for _ in range(count)
    ]
    try:
        for table in all_tables:
            await table.start()
        yield all_tables
    finally:
        for table in all_tables:
            await table.stop()


async def until_shown(table: Table, wanted: dict[str, int]) -> None:
    await eventually(lambda: table.snapshot() == wanted)


def write(broker: Broker, *rows: tuple[str, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for key, value in rows:
        producer.produce("numbers", value, key)
    assert producer.flush(60) == 0


def records_in(broker: Broker) -> int:
    with BlockingClient(options(broker)) as client:
        piece = client.fetch_raw("numbers", 0, 0)
    return sum(header.record_count for _, header in batches(piece.records))


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), 4 * DEADLINE_S)

    asyncio.run(bounded())


def test_whoever_has_written_reads_it_and_others_follow(broker: Broker) -> None:
    async def work() -> None:
        async with tables(broker, 2) as (first, second):
            await first.put("a", 1)
            assert first.get("a") == 1
            await second.write({"b": 2, "c": 3})
            assert second.snapshot() == {"a": 1, "b": 2, "c": 3}  # it has read what came before its own
            await until_shown(first, {"a": 1, "b": 2, "c": 3})
            before = first.snapshot()
            await first.delete("a")
            assert first.get("a") is None
            assert before == {"a": 1, "b": 2, "c": 3}
            await asyncio.to_thread(write, broker, ("b", b"no number"), ("d", b"4"), ("c", None))
            for table in (first, second):
                await until_shown(table, {"b": 2, "d": 4})
            assert len(first) == 2
            assert first.trouble is None

    run(work)


def test_compaction_goes_on_while_tables_write_and_read(broker: Broker) -> None:
    async def work() -> None:
        async with tables(broker, 2) as (first, second):
            for turn in range(6):
                await asyncio.gather(
                    first.write({f"a{index}": turn for index in range(20)}),
                    second.write({f"b{index}": turn for index in range(20)}),
                )
                await first.delete("a0")
                await asyncio.to_thread(broker.advance, HOUR_MS)
            wanted = {f"a{index}": 5 for index in range(1, 20)} | {f"b{index}": 5 for index in range(20)}
            await until_shown(first, wanted)
            await until_shown(second, wanted)
            for _ in range(3):  # the tombstones' time is over
                await asyncio.to_thread(broker.advance, 25 * HOUR_MS)
            assert records_in(broker) < 100
            async with tables(broker) as (third,):
                assert third.snapshot() == wanted

    run(work)


def test_the_broker_restarts(broker: Broker) -> None:
    async def work() -> None:
        async with tables(broker) as (table,):
            await table.put("a", 1)
            await asyncio.to_thread(broker.restart)
            await table.put("b", 2)
            await asyncio.to_thread(broker.stop)
            waiting = asyncio.create_task(table.put("c", 3))
            await eventually(lambda: table.trouble is not None)
            assert table.snapshot() == {"a": 1, "b": 2}
            await asyncio.to_thread(broker.start)
            await waiting
            assert table.snapshot() == {"a": 1, "b": 2, "c": 3}
            await eventually(lambda: table.trouble is None)

    run(work)


def test_an_answer_that_is_lost_stores_nothing_twice(broker: Broker) -> None:
    async def work() -> None:
        async with tables(broker) as (table,):
            broker.faults.drop_answers("Produce")
            await table.put("a", 1)
            assert broker.faults.happened == 1
            with BlockingClient(options(broker)) as client:
                assert client.list_offsets({("numbers", 0): -1})["numbers", 0].offset == 1

    run(work)


def test_a_producer_that_the_broker_has_forgotten_or_fenced_writes_on(broker: Broker) -> None:
    async def work() -> None:
        async with tables(broker) as (table,):
            await table.put("a", 1)
            await asyncio.to_thread(broker.advance, 30 * 24 * HOUR_MS)
            await table.put("a", 2)
            broker.faults.fence_producers()
            await table.put("a", 3)
            assert table.snapshot() == {"a": 3}

    run(work)


def test_a_record_that_is_too_large_is_refused_and_the_next_is_taken(broker: Broker) -> None:
    async def work() -> None:
        async with tables(broker) as (table,):
            with pytest.raises(TooLarge):
                await table.put("a" * 2_000_000, 1)
            await table.put("a", 1)
            assert table.snapshot() == {"a": 1}

    run(work)


def test_a_topic_that_is_created_anew_is_read_again(broker: Broker) -> None:
    """The new one has as many records as the old one: the positions alone would not show it."""

    def again() -> None:
        with BlockingClient(options(broker)) as client:
            client.delete_topics(["numbers"])
            client.create_topics([NewTopic("numbers", 1, configs={"cleanup.policy": "compact"})])
        write(broker, ("x", b"7"), ("y", b"8"), ("z", b"9"))

    async def work() -> None:
        async with tables(broker) as (table,):
            await table.write({"a": 1, "b": 2, "c": 3})
            await asyncio.to_thread(again)
            await until_shown(table, {"x": 7, "y": 8, "z": 9})
            await table.put("w", 6)
            assert table.snapshot() == {"w": 6, "x": 7, "y": 8, "z": 9}

    run(work)


def test_a_log_whose_end_is_gone_is_read_again(broker: Broker) -> None:
    async def work() -> None:
        async with tables(broker) as (table,):
            await table.put("a", 1)
            snapshot = broker.snapshot()
            await table.write({"b": 2, "c": 3})
            await asyncio.to_thread(broker.restore, snapshot)
            await until_shown(table, {"a": 1})
            await table.put("d", 4)
            assert table.snapshot() == {"a": 1, "d": 4}

    run(work)


def test_a_topic_that_would_delete_its_records_is_refused(broker: Broker) -> None:
    with BlockingClient(options(broker)) as client:
        client.create_topics([NewTopic("numbers", 1)])

    async def work() -> None:
        with pytest.raises(ClientError, match="which would delete numbers"):
            async with tables(broker):
                pass

    run(work)
