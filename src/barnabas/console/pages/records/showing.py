"""Records as pages and the API show them: decoded, cut to a bearable length, with what can be copied."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.console.asking import Ask
from barnabas.console.records.decoding import Shown
from barnabas.console.records.fetching import Row
from barnabas.console.rendering import moment
from barnabas.console.said import Refused, said

TEXT_MAX: Final = 2_000
"""Characters of a key, value or header in a list."""
WHOLE_MAX: Final = 16 << 20
HEADERS_MAX: Final = 100


def shown_rows(
    ask: Ask, rows: Sequence[Row], how: tuple[str, str], *, whole: bool = False
) -> list[dict[str, Any]]:
    """Called in a thread: registries may have to be asked."""
    return [shown_row(ask, row, how, WHOLE_MAX if whole else TEXT_MAX) for row in rows]


def shown_row(ask: Ask, row: Row, how: tuple[str, str], length_max: int) -> dict[str, Any]:
    """One record. Key and value: kind, text, size_bytes, is_cut; document only if it is whole."""
    topic, decoder = ask.path["topic"], ask.cluster.decoder
    masks = ask.masks()
    pair = decoder.internal(topic, row.key, row.value) if how == ("auto", "auto") else None
    if pair is None:
        pair = (
            decoder.shown(topic, "key", row.key, masks.how("key", how[0]), row.headers),
            decoder.shown(topic, "value", row.value, masks.how("value", how[1]), row.headers),
        )
    key, value = masks.shown("key", pair[0]), masks.shown("value", pair[1])
    headers = masks.headers(row.headers)
    return {
        "partition": row.partition,
        "offset": row.offset,
        "timestamp_ms": row.timestamp_ms,
        "timestamp": moment(row.timestamp_ms),
        "timestamp_type": "broker" if row.timestamp_type else "producer",
        "key": _cut(key, length_max),
        "value": _cut(value, length_max),
        "headers": [
            {"name": name, **_header(content, length_max)} for name, content in headers[:HEADERS_MAX]
        ],
        "headers_left_out": max(len(row.headers) - HEADERS_MAX, 0),
        "is_masked": any(map(masks.touches, ("key", "value", "headers"))),
        "command": ask.command(
            "consume", topic, "-p", str(row.partition), "-o", f"{row.offset}:{row.offset + 1}", "-J"
        ),
    }


def _cut(content: Shown, length_max: int) -> dict[str, Any]:
    is_cut = len(content.text) > length_max
    fields: dict[str, Any] = {
        "kind": content.kind,
        "text": content.text[:length_max],
        "size_bytes": content.size_bytes,
        "is_cut": is_cut,
        "schema": content.schema,
        "error": content.error,
    }
    if content.document is not None and not is_cut:
        fields["document"] = content.document
    return fields


def _header(data: bytes | None, length_max: int) -> dict[str, Any]:
    if data is None:
        return {"value": None}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"value": data[:length_max].hex(" "), "is_hex": True}
    return {"value": text[:length_max]}


def records_json(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as a line of an export: values as they are, not as text, where they are JSON."""

    def content(part: Mapping[str, Any]) -> Any:
        return None if part["kind"] == "null" else part.get("document", part["text"])

    return {
        "partition": record["partition"],
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "key": content(record["key"]),
        "value": content(record["value"]),
        "headers": {header["name"]: header["value"] for header in record["headers"]},
    }


def bytes_of(text: str, how: str, name: str) -> bytes:
    """The bytes that somebody wrote as text, json, hex or base64. Raises Refused."""
    try:
        if how == "hex":
            return bytes.fromhex(text)
        if how == "base64":
            return base64.b64decode("".join(text.split()), validate=True)
        if how == "json":
            return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, binascii.Error, RecursionError) as error:
        raise Refused(
            400, said("{name} is not {format}: {reason}", name=name, format=how, reason=str(error)[:200])
        ) from None
    if how != "text":
        raise Refused(
            400, said("{name} is not one of {choices}", name=how[:40], choices="text, json, hex, base64")
        )
    return text.encode("utf-8", "surrogatepass")
