"""Writing one record: key, value, headers, partition; also as a copy of another one that is edited first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

from barnabas.admin.values import TopicPartition
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.records.one import read as read_one
from barnabas.console.pages.records.showing import bytes_of
from barnabas.console.pages.topic import topic_of
from barnabas.console.producing import produce
from barnabas.console.records.searching import PARTITIONERS
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page
from barnabas.schemas.codecs import Mismatch

FORMATS: Final = ("text", "json", "hex", "base64", "null")
HEADERS_MAX: Final = 200


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
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "filled": filled,
        "formats": FORMATS,
        "has_registry": ask.cluster.registry() is not None,
        "tab": "produce",
        "commands": [f"echo 'KEY:VALUE' | {ask.command('produce', topic.name, '-K', ':')}"],
    }


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
    headers, partition, partitioner"""
    topic = await topic_of(ask)
    count = len(topic.partitions)
    key, value = await _content(ask, "key"), await _content(ask, "value")
    partition = ask.number("partition", -1, -1, count - 1)
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
