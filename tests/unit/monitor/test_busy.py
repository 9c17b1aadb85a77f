"""Rates between two looks, their order, and the keys of `barnabas top`."""

from __future__ import annotations

from barnabas.admin import TopicPartition
from barnabas.cli.monitoring.top import pressed
from barnabas.monitor.busy import Order, What, rows_of
from barnabas.monitor.lag.model import GroupLag, PartitionLag
from barnabas.monitor.snapshot import ConnectionSeen, PartitionSeen, Snapshot


def look(now_ms: int, committed: int, **ends: int | None) -> Snapshot:
    parts = {(name[:-1], int(name[-1])): PartitionSeen(1, 2, 2, end) for name, end in ends.items()}
    row = PartitionLag(TopicPartition("a", 0), committed, 100, 100 - committed, next_ms=now_ms - 5000)
    return Snapshot(now_ms, {1: "b:1"}, parts, (GroupLag("g", "classic", "Stable", 1, (row,)),))


BEFORE = look(0, 20, a0=0, a1=50, b0=10, c0=7)
SEEN = look(2000, 60, a0=100, a1=50, b0=50, c0=3, d0=9)


def test_rates_and_order() -> None:
    topics = rows_of(BEFORE, SEEN, Order())
    assert [(row[0], row[1]) for row in topics] == [("a", 50.0), ("b", 20.0), ("c", None), ("d", None)]
    partitions = rows_of(BEFORE, SEEN, Order(What.PARTITIONS, 1, "A"))
    assert [(row[0], row[1]) for row in partitions] == [("a-0", 50.0), ("a-1", 0.0)]
    assert rows_of(BEFORE, SEEN, Order(What.GROUPS)) == [("g", 40, 5.0, 20.0, 1)]
    assert [row[0] for row in rows_of(BEFORE, SEEN, Order(What.TOPICS, 0))] == ["a", "b", "c", "d"]


def test_keys() -> None:
    order, typing = pressed("/", Order(), None)
    for key in "abc":
        order, typing = pressed(key, order, typing)
    order, typing = pressed("\x7f", order, typing)
    assert (order.text, typing) == ("ab", "ab")
    order, typing = pressed("\r", order, typing)
    assert (order.text, typing) == ("ab", None)
    order, typing = pressed("g", order, typing)
    assert (order.what, order.text) == (What.GROUPS, "ab")
    order, typing = pressed("s", order, typing)
    assert order.column == 2
    order, typing = pressed("\x1b", *pressed("/", order, typing))
    assert (order.text, typing) == ("", None)


def test_clients_by_their_connections() -> None:
    def seen(now_ms: int, *rows: ConnectionSeen) -> Snapshot:
        return Snapshot(now_ms, {}, {}, connections=rows)

    before = seen(
        0,
        ConnectionSeen(1, "a:1", "app", "User:u", 100, 10),
        ConnectionSeen(1, "a:2", "old", "User:u", None, None),
    )
    after = seen(
        2000,
        ConnectionSeen(1, "a:1", "app", "User:u", 300, 10),
        ConnectionSeen(2, "a:9", "app", "User:u", 50, 4),
        ConnectionSeen(1, "a:2", "old", "User:u", None, None),
    )
    assert rows_of(before, after, Order(What.CLIENTS)) == [
        ("app", 125.0, 2.0, 2, "User:u"),
        ("old", None, None, 1, "User:u"),
    ]
    first = rows_of(Snapshot(0, {}, {}), after, Order(What.CLIENTS))
    assert [row[1] for row in first] == [None, None]
