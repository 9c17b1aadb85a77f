"""`barnabas verify log`: which records cannot be read, by topic, partition and offset, and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from barnabas.admin import Admin, DamagedPlace
from barnabas.admin.families.inspection import MISPLACED
from barnabas.terminal.errors import CliError
from barnabas.terminal.output import count_of, size_text

Row = dict[str, Any]


@dataclass
class Checked:
    """What was read, and what was found."""

    partitions: int = 0
    size_bytes: int = 0
    rows: list[Row] = field(default_factory=list)

    @property
    def records(self) -> int:
        """How many offsets cannot be read."""
        return sum(row["records"] for row in self.rows)

    def as_json(self) -> Row:
        return {
            "partitions": self.partitions, "bytes": self.size_bytes, "unreadable_records": self.records,
            "damaged": self.rows,
        }  # fmt: skip

    def __str__(self) -> str:
        read = f"{count_of(self.partitions, 'partition')}, {size_text(self.size_bytes)} read"
        if not self.rows:
            return f"{read}: nothing is damaged"
        return (
            f"{read}: {count_of(len(self.rows), 'damaged place')}, "
            f"{count_of(self.records, 'record')} cannot be read"
        )


def known(admin: Admin) -> list[Row]:
    """The damage that brokers have met since they were started; nothing for brokers that do not support the request.
    Raises ClientError.
    """
    damage_by_broker = admin.inspection.damage().require()
    return [row_of(broker, place) for broker, places in damage_by_broker.items() for place in places]


def check(admin: Admin, wanted: dict[str, set[int] | None]) -> Iterator[tuple[str, Checked]]:
    """Has the brokers read every batch of the partitions, of all topics when none is `wanted`; the same Checked
    grows from step to step, beside the name of the partition. Raises CliError, ClientError."""
    topics = admin.topics.list()
    for missing in sorted(wanted.keys() - topics.keys()):
        raise CliError(f"no topic {missing!r}; `barnabas topic list` shows what is there")
    done = Checked()
    for name, topic in topics.items():
        if wanted and name not in wanted:
            continue
        chosen = wanted.get(name)
        for absent in sorted((chosen or set()) - {partition.number for partition in topic.partitions}):
            raise CliError(f"{name} has no partition {absent}; `barnabas topic describe {name}` shows them")
        for partition in topic.partitions:
            if chosen is None or partition.number in chosen:
                for _ in _check_partition(admin, partition.leader, (name, partition.number), done):
                    yield f"{name}-{partition.number}", done
                done.partitions += 1


def _check_partition(admin: Admin, leader: int, partition: tuple[str, int], done: Checked) -> Iterator[None]:
    if leader < 0:
        raise CliError(f"{partition[0]}-{partition[1]} has no leader; start the broker that has it")
    offset: int | None = 0
    while offset is not None:
        part = admin.inspection.check(leader, partition, offset)
        done.rows += [row_of(leader, place) for place in part.places]
        done.size_bytes += part.checked_bytes
        offset = part.next_offset
        yield


def row_of(broker: int, place: DamagedPlace) -> Row:
    """A damaged place, as a JSON object."""
    return {
        "broker": broker,
        "topic": place.partition.topic,
        "partition": place.partition.partition,
        "kind": place.kind,
        "first_offset": place.first_offset,
        "last_offset": place.last_offset,
        "records": place.records,
        "file": place.file,
        "position": place.position,
        "bytes": place.size_bytes,
        "reason": place.reason,
    }


def line_of(row: Row) -> str:
    """A damaged place in words."""
    name, file = f"{row['topic']}-{row['partition']}", os.path.basename(row["file"])
    first, last = row["first_offset"], row["last_offset"]
    offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
    if row["kind"] == MISPLACED:
        return (
            f"{name}: {offsets} lie under a wrong offset at byte {row['position']} of {file} "
            f"({row['reason']}); a restart or `barnabas log repair` repairs it"
        )
    if row["kind"] == "missing":
        return f"{name}: {offsets} are missing ({count_of(row['records'], 'record')}) behind {file}: {row['reason']}"
    what = (
        f"{offsets} cannot be read ({count_of(row['records'], 'record')})"
        if row["records"]
        else "no record is lost"
    )
    where = f"{row['bytes']} bytes at byte {row['position']} of {file}"
    return f"{name}: {what}, {where}" + (f": {row['reason']}" if row["reason"] else "")
