"""Records of a topic: by place, time or key, with a filter; searched, and followed as they arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from barnabas.client.async_cluster import AsyncCluster
from barnabas.console import rendering
from barnabas.console.asking import Ask
from barnabas.console.clusters import patient_for_pages
from barnabas.console.pages.records.asked import Question, partitions_of, question, wanted_of
from barnabas.console.pages.records.copying import copy
from barnabas.console.pages.records.following import follow
from barnabas.console.pages.records.one import PAGE as ONE
from barnabas.console.pages.records.showing import records_json, shown_rows
from barnabas.console.pages.topic import topic_of
from barnabas.console.records.fetching import Row
from barnabas.console.records.scanning import Progress
from barnabas.console.records.searching import Search, cursor_text, newest_first
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page

LIMIT: Final = 50
LIMIT_MAX: Final = 500
STREAM_MAX: Final = 10_000
BUDGET_MS: Final = 2_500
BUDGET_MS_MAX: Final = 30_000
PATIENCE_S: Final = 5.0
"""How much longer a page waits for the first step of a search, so that the next page goes on where it has stopped."""
TELL_S: Final = 0.3
SCHEMA_KINDS: Final = {"avro": "avro", "json": "jsonschema", "protobuf": "protobuf"}
"""Kinds of schemas, and what `consume -s` calls them."""


async def read(ask: Ask) -> Data:
    """Records of a topic: from (newest, oldest, offset, time), partition, key, filter, limit; `at` goes on"""
    budget_ms = ask.number("budget_ms", BUDGET_MS, 1, BUDGET_MS_MAX)
    try:
        limit = ask.number("limit", LIMIT, 1, LIMIT_MAX)
        asked = await question(ask, limit)
    except Refused as refused:
        if refused.status == 400:
            refused.data = await _unasked(ask)
        raise
    search = asked.search
    deadline_s = time.monotonic() + budget_ms / 1000
    begun, rows = dict(search.cursor), list[Row]()
    async for batch in search.batches():
        rows += batch
        late_s = time.monotonic() - deadline_s
        if late_s >= PATIENCE_S or (late_s >= 0 and search.cursor != begun):
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
        "formats": ask.cluster.decoder.formats,
        "tab": "records",
        "commands": [_command(ask, asked, shown)],
    }


async def _unasked(ask: Ask) -> Data:
    """The page without records, for a question that cannot be understood."""
    nothing = Progress({}, {}, {})
    return {
        "topic": ask.path["topic"],
        "records": [],
        "progress": progress_of(nothing, is_over=False),
        "next": None,
        "backward": True,
        "notes": [],
        "is_searched": True,
        "partitions": len((await topic_of(ask)).partitions),
        "formats": ask.cluster.decoder.formats,
        "tab": "records",
        "commands": [],
    }


def _command(ask: Ask, asked: Question, shown: Sequence[Mapping[str, Any]]) -> str:
    """The command that reads the same records, those of a search from the beginning on."""
    chosen = _filter_of(ask)
    words = ["-p", str(asked.numbers[0])] if len(asked.numbers) == 1 < asked.partitions else []
    where = {"oldest": "beginning", "offset": ask.text("offset", "0"), "time": "@" + ask.text("time")}
    words += ["-o", where.get(ask.text("from"), "beginning" if chosen else f"-{LIMIT}"), "-e"]
    if chosen:
        words += ["--filter", chosen]
    for part in ("key", "value"):
        kinds = {record[part]["kind"] for record in shown if record[part]["schema"] is not None}
        for kind in sorted(kinds & SCHEMA_KINDS.keys())[:1]:
            words += ["-s", f"{part}={SCHEMA_KINDS[kind]}"]
    return ask.command("consume", ask.path["topic"], *words)


def _filter_of(ask: Ask) -> str:
    """Key and filter as one expression; empty without both."""
    text, key = ask.text("filter"), ask.raw("key")
    if not key or ask.text("key_format", "text") != "text":
        return text
    same = "key = '" + key.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"{same} AND ({text})" if text else same


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
    fields = progress_of(search.progress, is_over)
    looked = said(
        "Looked at {count} records ({size}) in {seconds} s: {found} fit, {percent} % is done.",
        count=rendering.number(fields["scanned"]),
        size=rendering.size(fields["size_bytes"]), seconds=fields["seconds"],
        found=rendering.number(search.fitting),
        percent=int(fields["share"] * 100),
    )  # fmt: skip
    following = None if search.is_over else cursor_text(search.cursor)
    return {**fields, "found": search.fitting, "next": following, "said": looked}


async def export_stream(ask: Ask) -> AsyncIterator[Mapping[str, Any]]:
    """The records that a search finds, as lines of JSON: the same fields, limit up to 10000"""
    asked = await question(ask, ask.number("limit", LIMIT_MAX, 1, STREAM_MAX))
    async for rows in asked.search.batches():
        for record in await asyncio.to_thread(shown_rows, ask, rows, asked.how, whole=True):
            yield records_json(record)


async def tail(ask: Ask) -> AsyncIterator[Mapping[str, Any]]:
    """New records as they arrive, as server-sent events; those that are too many to be shown are counted; `at` goes on"""
    topic = await topic_of(ask)
    wanted, how = wanted_of(ask)
    numbers, notes = partitions_of(ask, len(topic.partitions), wanted)
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
        actions=(Action("/topics/{topic}/records/copy", copy, Role.OPERATE, "topic"),),
    ),
    ONE,
)  # fmt: skip
