"""Two topics side by side: their options, their partitions, and the records in which they differ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from barnabas.admin import ConfigKind, ConfigResource
from barnabas.admin.families.records import Bounds
from barnabas.admin.families.topics import Topic
from barnabas.admin.values import TopicPartition
from barnabas.console.asking import Ask
from barnabas.console.pages.compare.comparing import ByKey, Difference, Pair, Place, Reader, by_offset
from barnabas.console.pages.records.showing import TEXT_MAX
from barnabas.console.pages.topic import topic_of
from barnabas.console.pages.topics import NAME
from barnabas.console.records.fetching import Row
from barnabas.console.records.searching import cursor_text, parse_cursor
from barnabas.console.roles import Role, require
from barnabas.console.said import Refused, said
from barnabas.console.site import Data, Page

LIMIT: Final = 50
LIMIT_MAX: Final = 500
BUDGET_MS: Final = 2_500
BUDGET_MS_MAX: Final = 30_000
WAYS: Final = ("offset", "key")
NOTHING: Final[Data] = {
    "other": None, "by": "offset", "options": [], "partitions": [], "differences": [], "counted": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Both:
    """The two topics, with where their partitions begin and end."""

    here: Topic
    there: Topic
    bounds: tuple[Mapping[int, Bounds], Mapping[int, Bounds]]


async def read(ask: Ask) -> Data:
    """A topic beside another one: with (its name), by (offset, key), partition, limit, budget_ms; `at` goes on.
    By offset: the records at the same offset of the same partition. By key: the newest record of each key."""
    here = await topic_of(ask)
    name = ask.text("with")
    plain = {"topic": here.name, "tab": "compare", "count": len(here.partitions)}
    if not name:
        return {**NOTHING, **plain, "commands": [ask.command("topic", "describe", here.name)]}
    if not NAME.fullmatch(name):
        raise Refused(404, said("There is no topic {name}", name=name[:250]))
    require(ask.role_for(name), Role.READ, ask.user)
    there = (await ask.admin.topics.describe([name]))[name]
    by = ask.text("by", "offset")
    if by not in WAYS:
        raise Refused(400, said("{name} must be one of {choices}", name="by", choices=", ".join(WAYS)))
    bounds = await asyncio.gather(_bounds(ask, here), _bounds(ask, there))
    both = Both(here, there, bounds)
    masks = (ask.masks(), ask.masking.of(name, ask.role_for(name)))
    is_masked = any(one.touches(part) for one in masks for part in ("key", "value", "headers"))
    compared: Data = {"differences": [], "counted": None, "next": None}
    if not is_masked:
        compared = await (_records_by_key(ask, both) if by == "key" else _records_by_offset(ask, both))
    return {
        **plain,
        "other": name,
        "by": by,
        "options": await _options(ask, here, there),
        "partitions": _partitions(both),
        "is_masked": is_masked,
        **compared,
        "commands": [ask.command("topic", "describe", here.name), ask.command("topic", "describe", name)],
    }


async def _bounds(ask: Ask, topic: Topic) -> dict[int, Bounds]:
    keys = [TopicPartition(topic.name, p.number) for p in topic.partitions if p.leader >= 0]
    bounds = await ask.admin.records.bounds(keys, read_committed=True)
    return {key.partition: bound for key, bound in bounds.done.items()}


async def _options(ask: Ask, here: Topic, there: Topic) -> list[dict[str, Any]]:
    """The number of partitions and of replicas, and options, where they differ."""
    first, second = (ConfigResource(ConfigKind.TOPIC, topic.name) for topic in (here, there))
    configs = await ask.admin.configs.describe([first, second])
    rows = [
        {"name": "partitions", "here": len(here.partitions), "there": len(there.partitions)},
        {"name": "replication.factor", "here": here.replication, "there": there.replication},
    ]
    for name in sorted({*configs[first], *configs[second]}):
        values = [
            None if (o := configs[r].get(name)) is None or o.is_sensitive else o.value
            for r in (first, second)
        ]
        rows.append({"name": name, "here": values[0], "there": values[1]})
    return [row for row in rows if row["here"] != row["there"]]


def _partitions(both: Both) -> list[dict[str, Any]]:
    def bounds_row(bound: Bounds | None) -> dict[str, Any] | None:
        return None if bound is None else {"start": bound.start, "end": bound.end, "records": bound.count}

    here, there = both.bounds
    rows = [
        {"partition": number, "here": bounds_row(here.get(number)), "there": bounds_row(there.get(number))}
        for number in sorted({*here, *there})
    ]
    return [{**row, "is_same": row["here"] == row["there"]} for row in rows]


# --- records ---------------------------------------------------------------------------------------------


def _pair(ask: Ask, both: Both, starts: tuple[dict[int, int], ...], ends: tuple[dict[int, int], ...]) -> Pair:
    readers = [
        Reader(ask.cluster.reading, ask.cluster.decoder, topic.name, starts[side], ends[side])
        for side, topic in enumerate((both.here, both.there))
    ]
    return Pair(readers[0], readers[1])


def _deadline_s(ask: Ask) -> float:
    return time.monotonic() + ask.number("budget_ms", BUDGET_MS, 1, BUDGET_MS_MAX) / 1000


def _only(ask: Ask, both: Both) -> int | None:
    """The partition that was asked for; None: all. Raises Refused."""
    if not ask.text("partition"):
        return None
    return ask.number("partition", 0, 0, max(len(both.here.partitions) - 1, 0))


async def _records_by_offset(ask: Ask, both: Both) -> Data:
    """The same offsets of the same partitions: what a copy that keeps offsets must have."""
    here, there = both.bounds
    only = _only(ask, both)
    numbers = sorted(n for n in set(here) & set(there) if only is None or n == only)
    starts = {n: max(int(here[n].start), int(there[n].start)) for n in numbers}
    ends = {n: max(min(int(here[n].end), int(there[n].end)), starts[n]) for n in numbers}
    whole = sum(ends[n] - starts[n] for n in numbers)
    at = dict(starts)
    if ask.text("at"):
        try:
            places = parse_cursor(ask.text("at"))
        except ValueError:
            raise Refused(
                400, said("{name} must look like {example}", name="at", example="0:15,1:20")
            ) from None
        at = {n: min(max(places.get(n, at[n]), at[n]), ends[n]) for n in numbers}
    limit, deadline_s = ask.number("limit", LIMIT, 1, LIMIT_MAX), _deadline_s(ask)
    differences_shown: list[Difference] = []
    scanned, skipped, began_s = 0, [], time.monotonic()
    for number in numbers:
        pair = _pair(ask, both, ({number: at[number]},) * 2, ({number: ends[number]},) * 2)
        async for differences, horizon in by_offset(pair, number):
            room = limit - len(differences_shown)
            differences_shown += differences[:room]
            # What has no room is found again: its place is where the next request begins.
            at[number] = horizon if len(differences) <= room else _offset(differences[room])
            if len(differences_shown) >= limit or time.monotonic() >= deadline_s:
                break
        scanned += pair.scanned
        skipped += pair.skipped
        if len(differences_shown) >= limit or time.monotonic() >= deadline_s:
            break
    is_over = all(at[n] >= ends[n] for n in numbers)
    counted = {
        "scanned": scanned, "is_over": is_over, "seconds": round(time.monotonic() - began_s, 3),
        "share": 1.0 if is_over else round(sum(at[n] - starts[n] for n in numbers) / max(whole, 1), 4),
        "skipped": skipped, "keys": None, "without_key": 0, "is_full": False,
    }  # fmt: skip
    return {
        "differences": [_shown(ask, one) for one in differences_shown],
        "counted": counted,
        "next": None if is_over else cursor_text(at),
    }


def _offset(difference: Difference) -> int:
    place = difference.here or difference.there
    assert place is not None
    return place.offset


async def _records_by_key(ask: Ask, both: Both) -> Data:
    """The newest record of each key: what a copy into other partitions must have."""
    only = _only(ask, both)
    sides = [{n: bound for n, bound in side.items() if only is None or n == only} for side in both.bounds]
    starts = tuple({n: int(bound.start) for n, bound in side.items()} for side in sides)
    ends = tuple({n: int(bound.end) for n, bound in side.items()} for side in sides)
    pair = _pair(ask, both, starts, ends)
    keys, deadline_s, began_s = ByKey(pair), _deadline_s(ask), time.monotonic()
    async for _ in keys.steps():
        if time.monotonic() >= deadline_s:
            break
    limit = ask.number("limit", LIMIT, 1, LIMIT_MAX)
    # Before everything was read, a key may still come in the topic that seems to lack it.
    differences = list(islice(keys.differences(), limit)) if pair.is_over else []
    counted = {
        "scanned": pair.scanned, "is_over": pair.is_over, "seconds": round(time.monotonic() - began_s, 3),
        "share": round(pair.share, 4), "skipped": pair.skipped, "is_full": keys.is_full,
        "keys": len(keys.here.by_key), "without_key": keys.here.without_key + keys.there.without_key,
    }  # fmt: skip
    return {"differences": [_shown(ask, one) for one in differences], "counted": counted, "next": None}


def _shown(ask: Ask, one: Difference) -> dict[str, Any]:
    def place(place_of_record: Place | None, row: Row | None) -> dict[str, Any] | None:
        if place_of_record is None:
            return None
        cell: dict[str, Any] = {"partition": place_of_record.partition, "offset": place_of_record.offset}
        if row is not None:
            cell["value"] = _text(row.value)
        return cell

    return {
        "what": one.what,
        "key": _text(one.key),
        "here": place(one.here, one.rows[0]),
        "there": place(one.there, one.rows[1]),
    }


def _text(data: bytes | None) -> str | None:
    """As text if it is text, otherwise as hex; cut."""
    if data is None:
        return None
    try:
        return data.decode()[:TEXT_MAX]
    except UnicodeDecodeError:
        return data[: TEXT_MAX // 3].hex(" ")


PAGES: Final = (Page("compare", "/topics/{topic}/compare", "topics", read, named="topic"),)
