"""The records in a plain POST: JSON lines, one JSON value, CloudEvents. Pure.

Sources: CloudEvents 1.0, its HTTP and Kafka protocol bindings. Attributes of a binary event become headers `ce_...`, a
structured event is stored whole, and the extension `partitionkey` is the record's key.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from barnabas.schemas.json_text import BadJson, parse_json

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
REQUIRED: Final = ("specversion", "id", "source", "type")
RECORDS_MAX: Final = 10_000


class BadBody(ValueError):
    """A body does not contain valid records; the message says why."""


class Message(NamedTuple):
    """The contents of one record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def messages_in(media_type: str, headers: Mapping[str, str], body: bytes, key: str | None) -> list[Message]:
    """The records of a POST. media_type: without parameters. headers: names in lower case. Raises BadBody."""
    named = None if key is None else key.encode("utf-8", "surrogatepass")
    if media_type == STRUCTURED:
        return [_structured(_json(body), body, named)]
    if media_type == BATCHED:
        events = _json(body)
        if not isinstance(events, list) or not 0 < len(events) <= RECORDS_MAX:
            raise BadBody(f"a batch of CloudEvents must be a list of 1 to {RECORDS_MAX} events")
        return [_structured(event, _dump(event), named) for event in events]
    if "ce-specversion" in headers:
        return [_binary(media_type, headers, body, named)]
    return [Message(named, raw) for raw in _values(body)]


def _json(raw: bytes) -> Any:
    try:
        return parse_json(raw)
    except BadJson as error:
        raise BadBody(f"the body cannot be parsed as JSON: {error}") from None


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _values(body: bytes) -> list[bytes]:
    """The lines of a body, each one JSON value; a body that is one JSON value on several lines is one record."""
    lines = [(number, line.strip()) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise BadBody("the body is empty; send JSON, one value on each line")
    if len(lines) > RECORDS_MAX and body.lstrip()[:1] not in (b"{", b"["):
        raise BadBody(f"the body has {len(lines)} lines; at most {RECORDS_MAX} are accepted")
    for number, line in lines:
        try:
            parse_json(line)
        except BadJson as error:
            try:
                parse_json(body)
            except BadJson:
                raise BadBody(f"line {number} cannot be parsed as JSON: {error}") from None
            return [body.strip()]
    if len(lines) > RECORDS_MAX:
        raise BadBody(f"the body has {len(lines)} lines; at most {RECORDS_MAX} are accepted")
    return [line for _, line in lines]


def _structured(event: Any, raw: bytes, key: bytes | None) -> Message:
    if not isinstance(event, dict):
        raise BadBody("a CloudEvent must be a JSON object")
    _require(event)
    if "data_base64" in event:
        try:
            base64.b64decode(event["data_base64"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise BadBody("data_base64 is not base64") from None
    partition_key = event.get("partitionkey")
    if key is None and isinstance(partition_key, str):
        key = partition_key.encode("utf-8", "surrogatepass")
    return Message(key, raw, (("content-type", STRUCTURED.encode()),))


def _binary(media_type: str, headers: Mapping[str, str], body: bytes, key: bytes | None) -> Message:
    attributes = {
        name[3:]: unquote(value.encode("latin-1").decode("utf-8", "replace"))
        for name, value in headers.items()
        if name.startswith("ce-") and len(name) > 3
    }
    _require(attributes)
    if key is None and "partitionkey" in attributes:
        key = attributes["partitionkey"].encode()
    headers_made = [(f"ce_{name}", value.encode()) for name, value in sorted(attributes.items())]
    if media_type:
        headers_made.append(("content-type", headers["content-type"].encode("latin-1")))
    return Message(key, body or None, tuple(headers_made))


def _require(event: Mapping[str, Any]) -> None:
    for name in REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise BadBody(f"the CloudEvent has no {name}")
    if event["specversion"] != "1.0":
        raise BadBody(f"the CloudEvent's specversion is {event['specversion'][:20]!r}; only 1.0 is accepted")
