"""Writing records: key, value, headers, partition; as a copy of one that is edited first, with an example of a schema, or
many of a template."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, Final

from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.client.registry import RegistryClient, RegistryError
from barnabas.console.apart import apart
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.produce.examples import example_of
from barnabas.console.pages.produce.templates import HELP
from barnabas.console.pages.produce.templates import filled as filled_in
from barnabas.console.pages.records.one import read as read_one
from barnabas.console.pages.records.showing import bytes_of
from barnabas.console.pages.topic import topic_of
from barnabas.console.producing import produce, produce_all
from barnabas.console.records.decoding import pretty
from barnabas.console.records.searching import PARTITIONERS
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page
from barnabas.records.batch import Record
from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.model import Reference

FORMATS: Final = ("text", "json", "hex", "base64", "null")
HEADERS_MAX: Final = 200
COUNT_MAX: Final = 1_000
REGISTRY_S: Final = 3.0
"""How long the page waits for the registry: the form is worth showing without an example."""


async def read(ask: Ask) -> Data:
    """What the form of a new record begins with: empty, or a copy of the record at partition and offset"""
    topic = await topic_of(ask)
    filled: dict[str, Any] = {
        "key": "", "key_format": "text", "key_schema": "", "value": "", "value_format": "text",
        "value_schema": "", "headers": "",
    }  # fmt: skip
    if ask.text("partition") and ask.text("offset"):
        ask.path = {**ask.path, "partition": ask.text("partition"), "offset": ask.text("offset")}
        record = (await read_one(ask))["record"]
        if record["is_masked"]:
            raise Refused(
                403,
                said("Fields of this record are masked for you, so it cannot be sent again"),
                said("Its masks would be written in place of what they hide."),
            )
        filled |= _copied(record)
    filled |= {name: str(ask.raw(name)) for name in filled if ask.raw(name) is not None}
    newest = {part: await _newest(ask, topic.name, part) for part in ("key", "value")}
    part = ask.text("example")
    if part in newest and (schema := newest[part]) is not None:
        example = example_of(schema["kind"], schema["text"], schema["dependencies"])
        filled |= {part: pretty(example), f"{part}_format": "json", f"{part}_schema": schema["id"]}
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "filled": filled,
        "formats": FORMATS,
        "gaps": HELP,
        "count_max": COUNT_MAX,
        "newest": {
            part: None if schema is None else {name: schema[name] for name in ("subject", "id", "kind")}
            for part, schema in newest.items()
        },
        "has_registry": ask.cluster.registry() is not None,
        "tab": "produce",
        "commands": [f"echo 'KEY:VALUE' | {ask.command('produce', topic.name, '-K', ':')}"],
    }


async def _newest(ask: Ask, topic: str, part: str) -> dict[str, Any] | None:
    """The newest schema of the topic's keys or values; None without one, and without a registry that answers."""
    address = ask.cluster.registry()
    if address is None:
        return None
    subject = f"{topic}-{part}"
    try:
        registry = RegistryClient(address.url, timeout_s=REGISTRY_S, tries=1, context=address.context)
        schema = await apart(address.url, lambda: registry.newest(subject), REGISTRY_S)
    except (RegistryError, TimeoutError):
        return None
    dependencies = [Dependency(name, Reference(name, name, 1), text) for name, text in schema.dependencies]
    return {
        "subject": subject, "id": schema.id, "kind": schema.kind, "text": schema.text, "dependencies": dependencies
    }  # fmt: skip


def _copied(record: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for part in ("key", "value"):
        content = record[part]
        has_schema = (
            content["schema"] is not None and content["error"] is None and content["schema"].isdecimal()
        )
        kind = content["kind"] if content["kind"] in FORMATS else "json" if "document" in content else "text"
        fields |= {
            part: content["text"],
            f"{part}_format": "json" if has_schema else kind,
            f"{part}_schema": content["schema"] if has_schema else "",
        }
    lines = [f"{h['name']}: {h['value']}" for h in record["headers"] if h["value"] is not None]
    return {**fields, "headers": "\n".join(lines)}


async def write(ask: Ask) -> Done:
    """Write a record: key, value, key_format, value_format (text, json, hex, base64, null), key_schema, value_schema (ids),
    headers, partition, partitioner; fill=1: gaps like {{uuid}} are filled in; count: how many records"""
    topic = await topic_of(ask)
    count = len(topic.partitions)
    partition = ask.number("partition", -1, -1, count - 1)
    copies = ask.number("count", 1, 1, COUNT_MAX)
    if copies > 1 or ask.flag("fill"):
        return await _write_all(ask, topic.name, count, partition, copies)
    key, value = await _content(ask, "key"), await _content(ask, "value")
    if partition < 0:
        choose = PARTITIONERS.get(ask.text("partitioner", "java"), PARTITIONERS["java"])
        partition = 0 if key is None else choose(key, count)
    place = TopicPartition(topic.name, partition)
    offset = await produce(ask.admin, place, key, value, _headers(ask))
    return Done(
        said("Written to partition {partition} at offset {offset}", partition=partition, offset=offset),
        f"/topics/{encoded(topic.name)}/records/{partition}/{offset}",
        {"topic": topic.name, "partition": partition, "offset": offset},
    )


async def _write_all(ask: Ask, topic: str, count: int, partition: int, copies: int) -> Done:
    """Write records that a template makes. Raises Refused, which says how many were written."""
    given, by_partition = ask.fields, dict[int, list[Record]]()
    choose = PARTITIONERS.get(ask.text("partitioner", "java"), PARTITIONERS["java"])
    for number in range(1, copies + 1):
        now_s = time.time()
        if ask.flag("fill"):
            ask.fields = {name: _with_gaps_filled(value, number, now_s) for name, value in given.items()}
        key, value = await _content(ask, "key"), await _content(ask, "value")
        to = partition if partition >= 0 else 0 if key is None else choose(key, count)
        by_partition.setdefault(to, []).append(Record(0, int(now_s * 1000), key, value, tuple(_headers(ask))))
    ask.fields = given
    written = 0
    try:
        for to, records in sorted(by_partition.items()):
            async for more in produce_all(ask.admin, TopicPartition(topic, to), records):
                written += more
    except ClientError as error:
        reason = said("{count} of {total} records were written, then: {reason}", count=written, total=copies,
                      reason=str(error))  # fmt: skip
        raise Refused(502, reason) from None
    return Done(
        said("{count} records are written", count=written),
        f"/topics/{encoded(topic)}/records",
        {"topic": topic, "written": written},
    )


def _with_gaps_filled(value: Any, number: int, now_s: float) -> Any:
    """Also in the values of JSON in a request to the API."""
    if isinstance(value, str):
        return filled_in(value, number, now_s)
    if isinstance(value, dict):
        return {name: _with_gaps_filled(inner, number, now_s) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_gaps_filled(inner, number, now_s) for inner in value]
    return value


async def _content(ask: Ask, part: str) -> bytes | None:
    how, text = ask.text(f"{part}_format", "text"), ask.raw(part)
    content = ask.fields.get(part)
    if how == "null" or text is None or (part == "key" and text == ""):
        return None
    if isinstance(content, (dict, list)):  # a JSON value in a request to the API
        text, how = json.dumps(content, ensure_ascii=False), "json"
    if ask.text(f"{part}_schema"):
        schema = ask.number(f"{part}_schema", 0, 0, (1 << 31) - 1)
        try:
            document = json.loads(text)
            return await asyncio.to_thread(ask.cluster.decoder.encoded, schema, document)
        except (Mismatch, ValueError) as error:
            raise Refused(
                400,
                said(
                    "{name} does not fit schema {schema}: {reason}",
                    name=part,
                    schema=schema,
                    reason=str(error),
                ),
            ) from None
    return bytes_of(text.replace("\r\n", "\n") if how == "text" else text, how, part)


def _headers(ask: Ask) -> Sequence[tuple[str, bytes | None]]:
    headers_given = ask.fields.get("headers")
    if isinstance(headers_given, dict):
        return [
            (str(name), None if value is None else str(value).encode())
            for name, value in headers_given.items()
        ]
    headers: list[tuple[str, bytes | None]] = []
    for line in (ask.raw("headers") or "").splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise Refused(400, said("{line} is not a header like name: value", line=line[:100]))
        headers.append((name.strip(), value.strip().encode()))
    if len(headers) > HEADERS_MAX:
        raise Refused(400, said("A record may have at most {count} headers here", count=HEADERS_MAX))
    return headers


PAGES: Final = (
    Page(
        "produce", "/topics/{topic}/produce", "topics", read, Role.OPERATE, named="topic",
        actions=(Action("/topics/{topic}/produce", write, Role.OPERATE, "topic"),),
    ),
)  # fmt: skip
