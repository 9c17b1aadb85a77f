"""What is busy in a cluster: rates between two looks at it, and their order. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from barnabas.monitor.snapshot import Snapshot


class What(StrEnum):
    """What the rows are about."""

    TOPICS = "topics"
    PARTITIONS = "partitions"
    GROUPS = "groups"
    CLIENTS = "clients"


class Column(NamedTuple):
    """A column: its head, and whether the greatest value comes first when it is sorted by it."""

    head: str
    is_descending: bool = True


COLUMNS: Final[Mapping[What, Sequence[Column]]] = {
    What.TOPICS: (
        Column("TOPIC", False),
        Column("RECORDS/S"),
        Column("PARTITIONS"),
        Column("UNDER-REPLICATED"),
        Column("END"),
    ),
    What.PARTITIONS: (
        Column("PARTITION", False),
        Column("RECORDS/S"),
        Column("LEADER", False),
        Column("IN SYNC", False),
        Column("END"),
    ),
    What.GROUPS: (
        Column("GROUP", False),
        Column("LAG"),
        Column("LAG SECONDS"),
        Column("READ/S"),
        Column("MEMBERS"),
    ),
    What.CLIENTS: (
        Column("CLIENT", False),
        Column("TO BROKERS B/S"),
        Column("FROM BROKERS B/S"),
        Column("CONNECTIONS"),
        Column("PRINCIPAL", False),
    ),
}
RATE: Final = 1
"""The column by which rows are sorted at first."""

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """What is shown. column: by which rows are sorted. text: only rows whose name contains it."""

    what: What = What.TOPICS
    column: int = RATE
    text: str = ""


def rows_of(before: Snapshot, seen: Snapshot, order: Order) -> list[Row]:
    """The rows of two looks, filtered and sorted; a rate that cannot be known is None."""
    rows = ROWS[order.what](before, seen)
    wanted = [row for row in rows if order.text.lower() in row[0].lower()]
    column = COLUMNS[order.what][order.column]

    def place(row: Row) -> Any:
        value = row[order.column]
        if isinstance(value, str):
            return value
        known = float("-inf") if value is None else value
        return -known if column.is_descending else known

    wanted.sort(key=lambda row: row[0])
    wanted.sort(key=place)
    return wanted


def _rates(before: Snapshot, seen: Snapshot) -> dict[tuple[str, int], float | None]:
    """Records per second of each partition; None for one that is new, or was created anew."""
    seconds = (seen.now_ms - before.now_ms) / 1000
    rates: dict[tuple[str, int], float | None] = {}
    for key, row in seen.partitions.items():
        was = before.partitions.get(key)
        rates[key] = None
        if was is not None and was.end is not None and row.end is not None and seconds > 0:
            rates[key] = (row.end - was.end) / seconds if row.end >= was.end else None
    return rates


def _topics(before: Snapshot, seen: Snapshot) -> list[Row]:
    rates = _rates(before, seen)
    by_topic: dict[str, list[Any]] = {}
    for (topic, number), row in seen.partitions.items():
        values = by_topic.setdefault(topic, [None, 0, 0, 0])
        rate = rates[topic, number]
        if rate is not None:
            values[0] = (values[0] or 0.0) + rate
        values[1] += 1
        values[2] += row.in_sync < row.replicas
        values[3] += row.end or 0
    return [(topic, *values) for topic, values in by_topic.items()]


def _partitions(before: Snapshot, seen: Snapshot) -> list[Row]:
    rates = _rates(before, seen)
    return [
        (f"{topic}-{number}", rates[topic, number], row.leader, row.in_sync, row.end)
        for (topic, number), row in seen.partitions.items()
    ]


def _groups(before: Snapshot, seen: Snapshot) -> list[Row]:
    """READ/S: by what a group has committed between the looks, so it moves with its commits."""
    seconds = (seen.now_ms - before.now_ms) / 1000
    was = {(group.name, row.partition): row.committed for group in before.groups for row in group.partitions}
    rows = []
    for group in seen.groups:
        read = 0
        for row in group.partitions:
            earlier = was.get((group.name, row.partition))
            if row.committed is not None and earlier is not None:
                read += max(row.committed - earlier, 0)
        rate = read / seconds if seconds > 0 else None
        rows.append((group.name, group.records, group.waiting_s(seen.now_ms), rate, group.members))
    return rows


def _clients(before: Snapshot, seen: Snapshot) -> list[Row]:
    """By client id and principal. A connection that was opened between the looks counts with all that it has moved."""
    seconds = (seen.now_ms - before.now_ms) / 1000
    was = {(row.broker, row.address): row for row in before.connections or ()}
    by_client: dict[tuple[str, str], list[Any]] = {}
    for row in seen.connections or ():
        values = by_client.setdefault((row.client or "(no client id)", row.principal), [None, None, 0])
        values[2] += 1
        if before.connections is None or seconds <= 0:
            continue
        earlier = was.get((row.broker, row.address))
        for place, now, then in (
            (0, row.received_bytes, earlier.received_bytes if earlier else 0),
            (1, row.sent_bytes, earlier.sent_bytes if earlier else 0),
        ):
            if now is not None and then is not None and now >= then:
                values[place] = (values[place] or 0.0) + (now - then) / seconds
    return [(client, *values, principal) for (client, principal), values in by_client.items()]


ROWS: Final[Mapping[What, Callable[[Snapshot, Snapshot], list[Row]]]] = {
    What.TOPICS: _topics,
    What.PARTITIONS: _partitions,
    What.GROUPS: _groups,
    What.CLIENTS: _clients,
}
