"""Records of a topic: by place, time or key, with a filter; searched, and followed as they arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from barnabas.admin.values import TopicPartition
from barnabas.client.async_cluster import AsyncCluster
from barnabas.console import rendering
from barnabas.console.asking import Ask
from barnabas.console.clusters import patient_for_pages
from barnabas.console.pages.records.following import follow
from barnabas.console.pages.records.one import PAGE as ONE
from barnabas.console.pages.records.showing import bytes_of, records_json, shown_rows
from barnabas.console.pages.topic import topic_of
from barnabas.console.records.decoding import FORMATS
from barnabas.console.records.fetching import Row
from barnabas.console.records.filters import BadFilter, compile_filter
from barnabas.console.records.scanning import Progress, Wanted
from barnabas.console.records.searching import PARTITIONERS, Search, cursor_text, newest_first, parse_cursor
from barnabas.console.said import Refused, Said, said
from barnabas.console.site import Data, Page

LIMIT: Final = 50
LIMIT_MAX: Final = 500
STREAM_MAX: Final = 10_000
BUDGET_MS: Final = 2_500
BUDGET_MS_MAX: Final = 30_000
TELL_S: Final = 0.3
PLACES: Final = ("newest", "oldest", "offset", "time")


async def read(ask: Ask) -> Data:
    """Records of a topic: from (newest, oldest, offset, time), partition, key, filter, limit; `at` goes on"""
    limit = ask.number("limit", LIMIT, 1, LIMIT_MAX)
    budget_ms = ask.number("budget_ms", BUDGET_MS, 1, BUDGET_MS_MAX)
    asked = await question(ask, limit)
    search = asked.search
    deadline_s = time.monotonic() + budget_ms / 1000
    rows: list[Row] = []
    async for batch in search.batches():
        rows += batch
        if time.monotonic() >= deadline_s:
            break
    if search.backward:
        rows.sort(key=newest_first, reverse=True)
    shown = await asyncio.to_thread(shown_rows, ask, rows[:limit], asked.how, whole=ask.flag("whole"))
    return {
        "topic": ask.path["topic"],
        "records": shown,
        "progress": progress_of(search.progress, search.is_over),
        "next": None if search.is_over else cursor_text(search.cursor),
        "backward": search.backward,
        "notes": asked.notes,
        "is_searched": not asked.wanted.is_everything,
        "partitions": asked.partitions,
        "formats": FORMATS,
        "tab": "records",
        "commands": [_command(ask)],
    }


def _command(ask: Ask) -> str:
    topic, words = ask.path["topic"], []
    if ask.text("partition"):
        words += ["-p", ask.text("partition")]
    where = {"oldest": "beginning", "offset": ask.text("offset", "0"), "time": "@" + ask.text("time")}
    words += ["-o", where.get(ask.text("from"), "-50")]
    return ask.command("consume", topic, *words, "-e")


def progress_of(progress: Progress, is_over: bool) -> dict[str, Any]:
    """How far a search is, for people and programs."""
    return {
        "scanned": progress.scanned,
        "size_bytes": progress.size_bytes,
        "share": 1.0 if is_over else round(min(max(progress.share, 0.0), 1.0), 4),
        "is_over": is_over,
        "filter_failed": progress.failed,
        "skipped": progress.skipped,
        "seconds": round(time.monotonic() - progress.began_s, 3),
    }


class Question:
    """What a request for records asks for. notes: what a reader has to know about the answer."""

    def __init__(
        self, search: Search, wanted: Wanted, how: tuple[str, str], partitions: int, notes: list[Said]
    ) -> None:
        self.search = search
        self.wanted = wanted
        self.how = how
        self.partitions = partitions
        self.notes = notes


async def question(ask: Ask, limit: int) -> Question:
    """The search that a request asks for. Raises Refused, ClientError."""
    topic = await topic_of(ask)
    count = len(topic.partitions)
    wanted, how = wanted_of(ask)
    numbers, notes = _partitions(ask, count, wanted)
    starts, ends, failures = await _bounds(ask, topic.name, numbers)
    notes += failures
    place = ask.text("from", "newest")
    if place not in PLACES:
        raise Refused(400, said("{name} must be one of {choices}", name="from", choices=", ".join(PLACES)))
    backward = place == "newest"
    if ask.text("at"):
        _go_on(ask, starts, ends, backward=backward)
    elif place == "offset":
        offset = ask.number("offset", 0, 0, 1 << 62)
        for number in starts:
            if len(numbers) == 1 and not starts[number] <= offset <= ends[number]:
                notes.append(
                    said("Partition {partition} holds the offsets {start} to {end}", partition=number,
                         start=starts[number], end=ends[number])
                )  # fmt: skip
            starts[number] = min(max(starts[number], offset), ends[number])
    elif place == "time":
        await _from_time(ask, topic.name, starts, ends)
    search = Search(
        ask.cluster.reading, ask.cluster.decoder, topic.name, wanted, starts, ends, limit, backward=backward
    )
    return Question(search, wanted, how, count, notes)


def wanted_of(ask: Ask) -> tuple[Wanted, tuple[str, str]]:
    """What records have to be, and how they are decoded. Raises Refused."""
    how = ask.text("key_as", "auto"), ask.text("value_as", "auto")
    for one in how:
        if one not in FORMATS:
            raise Refused(
                400, said("{name} is not one of {choices}", name=one[:40], choices=", ".join(FORMATS))
            )
    fits = None
    if ask.text("filter"):
        try:
            fits = compile_filter(ask.text("filter"))
        except BadFilter as error:
            raise Refused(
                400,
                said("The filter cannot be understood: {reason}", reason=str(error)),
                said("For example: value.country = 'DE' AND amount > 100"),
            ) from None
    text = ask.raw("key")
    key = bytes_of(text, ask.text("key_format", "text"), "key") if text else None
    masks = ask.masks()
    if key is not None and masks.touches("key"):
        raise Refused(403, said("Keys of this topic are masked for you, and cannot be searched for"))
    return Wanted(key, fits, how, masks), how


def _partitions(ask: Ask, count: int, wanted: Wanted) -> tuple[list[int], list[Said]]:
    if ask.text("partition"):
        number = ask.number("partition", 0, 0, count - 1)
        return [number], []
    how = ask.text("partitioner", "java")
    if wanted.key is None or how == "all":
        return list(range(count)), []
    choose = PARTITIONERS.get(how)
    if choose is None:
        known = ", ".join((*PARTITIONERS, "all"))
        raise Refused(400, said("{name} is not one of {choices}", name=how[:40], choices=known))
    number = choose(wanted.key, count)
    return [number], [
        said(
            "Only partition {partition} of {count} was searched: {client} sends this key there. "
            "Records that were written otherwise, or before partitions were added, are in others.",
            partition=number, count=count, client="Java" if how == "java" else how,
        )
    ]  # fmt: skip


async def _bounds(
    ask: Ask, topic: str, numbers: list[int]
) -> tuple[dict[int, int], dict[int, int], list[Said]]:
    keys = [TopicPartition(topic, number) for number in numbers]
    found = await ask.admin.records.bounds(keys, read_committed=True)
    if not found.done:
        for error in found.failed.values():
            raise error
    starts = {key.partition: int(bound.start) for key, bound in found.done.items()}
    ends = {key.partition: int(bound.end) for key, bound in found.done.items()}
    notes = [
        said("Partition {partition} was not searched: {reason}", partition=key.partition, reason=str(error))
        for key, error in found.failed.items()
    ]
    return starts, ends, notes


def _go_on(ask: Ask, starts: dict[int, int], ends: dict[int, int], *, backward: bool) -> None:
    try:
        places = parse_cursor(ask.text("at"))
    except ValueError:
        raise Refused(400, said("{name} must look like {example}", name="at", example="0:15,1:20")) from None
    for number in list(starts):
        if number not in places:
            continue
        at = min(max(places[number], starts[number]), ends[number])
        if backward:
            ends[number] = at
        else:
            starts[number] = at


async def _from_time(ask: Ask, topic: str, starts: dict[int, int], ends: Mapping[int, int]) -> None:
    given = ask.required("time")
    try:
        when_ms = int(given) if given.isdecimal() else _milliseconds(given)
    except ValueError:
        raise Refused(
            400, said("{value} is not a time like 2026-01-31T12:00 (UTC) or 1767225600000", value=given[:60])
        ) from None
    found = await ask.admin.records.offsets({TopicPartition(topic, number): when_ms for number in starts})
    for key, place in found.done.items():
        number = key.partition
        starts[number] = (
            ends[number] if place.offset is None else min(max(place.offset, starts[number]), ends[number])
        )


def _milliseconds(text: str) -> int:
    found = datetime.fromisoformat(text)
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


# --- streams ---------------------------------------------------------------------------------------------


async def search_stream(ask: Ask) -> AsyncIterator[Mapping[str, Any]]:
    """A search as server-sent events: found (records), progress, and at last done; closing the connection ends it"""
    asked = await question(ask, ask.number("limit", LIMIT_MAX, 1, STREAM_MAX))
    search, told_s = asked.search, 0.0
    if asked.notes:
        yield {"event": "notes", "notes": asked.notes}
    async for rows in search.batches():
        if rows:
            yield {"event": "found", "records": await asyncio.to_thread(shown_rows, ask, rows, asked.how)}
        if time.monotonic() - told_s >= TELL_S:
            told_s = time.monotonic()
            yield {"event": "progress", **_progress(search, is_over=False)}
    yield {"event": "done", **_progress(search, is_over=search.is_over)}


def _progress(search: Search, *, is_over: bool) -> dict[str, Any]:
    made = progress_of(search.progress, is_over)
    looked = said(
        "Looked at {count} records ({size}) in {seconds} s: {found} fit, {percent} % is done.",
        count=rendering.number(made["scanned"]),
        size=rendering.size(made["size_bytes"]), seconds=made["seconds"],
        found=rendering.number(search.found),
        percent=int(made["share"] * 100),
    )  # fmt: skip
    following = None if search.is_over else cursor_text(search.cursor)
    return {**made, "found": search.found, "next": following, "said": looked}


async def export_stream(ask: Ask) -> AsyncIterator[Mapping[str, Any]]:
    """The records that a search finds, as lines of JSON: the same fields, limit up to 10000"""
    asked = await question(ask, ask.number("limit", LIMIT_MAX, 1, STREAM_MAX))
    async for rows in asked.search.batches():
        for record in await asyncio.to_thread(shown_rows, ask, rows, asked.how, whole=True):
            yield records_json(record)


async def tail(ask: Ask) -> AsyncIterator[Mapping[str, Any]]:
    """New records as they arrive, as server-sent events; those that are too many to be shown are counted"""
    topic = await topic_of(ask)
    wanted, how = wanted_of(ask)
    numbers, notes = _partitions(ask, len(topic.partitions), wanted)
    if notes:
        yield {"event": "notes", "notes": notes}
    cluster = AsyncCluster(patient_for_pages(ask.cluster.options))
    try:
        async for event in follow(ask, cluster, topic.name, numbers, wanted, how):
            yield event
    finally:
        await cluster.close()


PAGES: Final = (
    Page(
        "records", "/topics/{topic}/records", "topics", read, named="topic",
        streams={
            "/topics/{topic}/records/search": search_stream,
            "/topics/{topic}/records/tail": tail,
        },
        exports={"/topics/{topic}/records/export": export_stream},
        rows="records/rows.html",
    ),
    ONE,
)  # fmt: skip
