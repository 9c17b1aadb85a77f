"""One lookout for many readers, against a real broker."""

from __future__ import annotations

import queue

import pytest

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.lookout import Lookout
from barnabas.client.options import ClientOptions, parse_bootstrap
from tests.pipelines.conftest import send

WAIT_S = 60.0


class Readers:
    """Readers by name, and a queue of those that were told."""

    def __init__(self, bootstrap: str) -> None:
        self.lookout = Lookout(ClientOptions(parse_bootstrap(bootstrap)), read_committed=False)
        self.told: queue.Queue[str] = queue.Queue()

    def wait(self, name: str, positions: dict[tuple[str, int], int]) -> None:
        self.lookout.await_news(name, positions, lambda: self.told.put(name))

    def next(self) -> str:
        return self.told.get(timeout=WAIT_S)


@pytest.fixture
def readers(bootstrap):
    started = Readers(bootstrap)
    yield started
    started.lookout.close()


def test_each_reader_is_told_of_its_own_records_once(client, new_topic, readers):
    one, two = new_topic(1), new_topic(2)
    readers.wait("of one", {(one, 0): 0})
    readers.wait("of two", {(two, 0): 0, (two, 1): 0})
    readers.wait("of both", {(one, 0): 0, (two, 1): 0})
    send(client, two, [b"a"], partition=1)
    assert {readers.next(), readers.next()} == {"of two", "of both"}
    send(client, two, [b"b"], partition=1)
    send(client, one, [b"c"])
    assert readers.next() == "of one", "who was told has to ask again"
    readers.wait("late", {(two, 1): 1})
    assert readers.next() == "late", "what is there already is told at once"


def test_readers_of_one_partition_at_different_places(client, new_topic, readers):
    topic = new_topic(1)
    send(client, topic, [b"a", b"b"])
    readers.wait("at the end", {(topic, 0): 2})
    readers.wait("behind", {(topic, 0): 1})
    assert readers.next() == "behind"
    readers.wait("at the end", {(topic, 0): 2})
    readers.lookout.forget("at the end")
    readers.wait("another", {(topic, 0): 2})
    send(client, topic, [b"c"])
    assert readers.next() == "another"
    assert readers.told.empty()


def test_what_cannot_be_watched_is_told(client, new_topic, readers):
    topic = new_topic(1)
    readers.wait("nowhere", {("nowhere", 0): 0})
    assert readers.next() == "nowhere"
    readers.wait("beyond", {(topic, 0): 7})
    assert readers.next() == "beyond"
    readers.wait("well", {(topic, 0): 0})
    send(client, topic, [b"a"])
    assert readers.next() == "well"


def test_a_killed_broker_is_news_and_the_next_one_is_watched(own_broker):
    broker = own_broker()
    with BlockingClient(broker.bootstrap) as client:
        client.create_topics([NewTopic("t", 1)])
        readers = Readers(broker.bootstrap)
        try:
            readers.wait("one", {("t", 0): 0})
            broker.kill()
            assert readers.next() == "one"
            broker.start()
            readers.wait("one", {("t", 0): 0})
            send(client, "t", [b"a"])
            assert readers.next() == "one"
        finally:
            readers.lookout.close()


def test_hundreds_of_readers_with_few_requests(client, new_topic, readers):
    topics = [new_topic(1) for _ in range(40)]
    names = [f"{topic} {i}" for topic in topics for i in range(5)]
    for name in names:
        readers.wait(name, {(name.split()[0], 0): 0})
    for topic in topics:
        send(client, topic, [b"a"])
    assert {readers.next() for _ in names} == set(names)
