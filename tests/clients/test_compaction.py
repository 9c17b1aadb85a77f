"""A compacted topic through real clients: the product inventory whose last prices are what remains."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.clients.drivers import Confluent, Message
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess


def test_only_the_newest_record_of_each_key_remains(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(log__cleaner__backoff__ms="100")
    create_topic(
        broker.bootstrap,
        "inventory",
        config={
            "cleanup.policy": "compact",
            "segment.ms": "200",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "100",
        },
    )
    client = Confluent()

    def send(*pairs: tuple[bytes, bytes | None]) -> None:
        messages = [Message(0, key, value) for key, value in pairs]
        assert client.produce(broker.bootstrap, "inventory", messages, codec="none", acks=-1) == len(pairs)

    send((b"123", b'{"NB":"3"}'), (b"456", b'{"PAD":"5"}'), (b"789", b'{"TV":"7"}'))
    time.sleep(0.3)
    send((b"123", b'{"NB":"8"}'), (b"789", b'{"TV":"13"}'))
    time.sleep(0.3)
    send((b"last", b"1"), (b"last", b"2"))  # in the active segment, which is never compacted
    deadline = time.monotonic() + 120
    while True:
        read_back = client.read_to_end(broker.bootstrap, "inventory")
        kept = [(item.key, item.value) for item in read_back]
        if len(kept) <= 5 or time.monotonic() > deadline:
            break
    assert kept == [
        (b"456", b'{"PAD":"5"}'),
        (b"123", b'{"NB":"8"}'),
        (b"789", b'{"TV":"13"}'),
        (b"last", b"1"),
        (b"last", b"2"),
    ]
    offsets = [item.offset for item in read_back]
    assert offsets == [1, 3, 4, 5, 6]
    before = kept
    broker.kill()
    broker.start()
    again = client.read_to_end(broker.bootstrap, "inventory")
    assert [(row.key, row.value) for row in again] == before
