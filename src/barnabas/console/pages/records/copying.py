"""Copies what a search finds to another topic, byte for byte: dead letters back to where they belong, examples to a test."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.records.asked import question
from barnabas.console.producing import produce_all
from barnabas.console.records.fetching import Row
from barnabas.console.records.searching import PARTITIONERS, cursor_text
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role, require
from barnabas.console.said import Refused, said
from barnabas.records.batch import Record

LIMIT: Final = 100
LIMIT_MAX: Final = 1_000
BYTES_MAX: Final = 32 << 20
SECONDS_MAX: Final = 20.0


async def copy(ask: Ask) -> Done:
    """Copy the records that a search finds to the topic `to`: the fields of a search (from is oldest by default), limit,
    without: the beginning of the names of headers that are left out"""
    to, limit = ask.required("to"), ask.number("limit", LIMIT, 1, LIMIT_MAX)
    require(ask.role_for(to), Role.OPERATE, ask.user)
    if any(map(ask.masks().touches, ("key", "value", "headers"))):
        raise Refused(
            403, said("Fields of this topic are masked for you, so its records cannot be copied elsewhere")
        )
    target = (await ask.admin.topics.describe([to]))[to]
    ask.fields = {"from": "oldest", **{name: value for name, value in ask.fields.items() if value != ""}}
    asked = await question(ask, limit)
    rows: list[Row] = []
    size, deadline_s = 0, time.monotonic() + SECONDS_MAX
    async for batch in asked.search.batches():
        rows += batch
        size += sum(len(row.key or b"") + len(row.value or b"") for row in batch)
        if size > BYTES_MAX or time.monotonic() >= deadline_s:
            break
    rows = sorted(rows[:limit], key=lambda row: (row.timestamp_ms, row.partition, row.offset))
    copied = await _write(ask, to, len(target.partitions), rows)
    following = None if asked.search.is_over else cursor_text(asked.search.cursor)
    done = said("{count} records are copied to {name}", count=copied, name=to)
    if following is not None:
        done = said(
            "{count} records are copied to {name}, and there are more to search", count=copied, name=to
        )
    return Done(done, f"/topics/{encoded(to)}/records", {"to": to, "copied": copied, "next": following})


async def _write(ask: Ask, to: str, count: int, rows: Sequence[Row]) -> int:
    """How many were written: all of them. Raises Refused, which says how many were."""
    choose = PARTITIONERS.get(ask.text("partitioner", "java"), PARTITIONERS["java"])
    without = ask.text("without")
    by_partition: dict[int, list[Record]] = {}
    for row in rows:
        number = row.partition % count if row.key is None else choose(row.key, count)
        headers = tuple(header for header in row.headers if not (without and header[0].startswith(without)))
        by_partition.setdefault(number, []).append(Record(0, row.timestamp_ms, row.key, row.value, headers))
    copied = 0
    try:
        for number, records in sorted(by_partition.items()):
            async for written in produce_all(ask.admin, TopicPartition(to, number), records):
                copied += written
    except ClientError as error:
        raise Refused(
            502,
            said("{count} of {total} records were copied, then: {reason}", count=copied, total=len(rows),
                 reason=str(error)),
        ) from None  # fmt: skip
    return copied
