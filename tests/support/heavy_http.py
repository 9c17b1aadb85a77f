"""The heaviest HTTP requests to any route of a service, made from its path and method alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

SIZE_BYTES: Final = 1 << 20
ROWS: Final = 3_000
KNOWN: Final = {"version": "1", "id": "1", "topic": "heavy", "topic_name": "heavy", "partition": "0"}


class HeavyRequest(NamedTuple):
    """What is heavy about a request, and what to send."""

    shape: str
    target: str
    headers: dict[str, str]
    body: bytes | None


def _bodies() -> dict[str, bytes]:
    row: Any = {"key": "k", "value": {"type": "JSON", "data": 1}}
    union = [{"type": "record", "name": f"R{i}", "fields": []} for i in range(1_500)]
    doubled = {
        f"d{i}": {"properties": {name: {"$ref": f"#/definitions/d{i + 1}"} for name in "ab"}}
        for i in range(60)
    }
    doubling = {"$ref": "#/definitions/d0", "definitions": {**doubled, "d60": {}}}
    rows = [row] * ROWS
    many = dict.fromkeys(("records", "entries", "data", "offsets", "partitions", "configs"), rows)
    return {
        "brackets": b'{"records":[' + b"[]," * (SIZE_BYTES // 3) + b"1]}",
        "deep": b"[" * SIZE_BYTES,
        "same name": b"{" + b'"a":1,' * (SIZE_BYTES // 6) + b'"a":1}',
        "number": b'{"schema":' + b"9" * SIZE_BYTES + b"}",
        "not utf-8": json.dumps({"schema": "x" * (SIZE_BYTES // 2)}).encode("utf-16"),
        "rows": json.dumps(many).encode(),
        "records": json.dumps({"records": [{"value": n} for n in range(ROWS)]}).encode(),
        "one after the other": json.dumps({"value": {"type": "JSON", "data": 1}}).encode() * 200,
        "union": json.dumps({"schema": json.dumps(union)}).encode(),
        "doubling": json.dumps({"schemaType": "JSON", "schema": json.dumps(doubling)}).encode(),
    }


BODIES: Final = _bodies()


def heavy_requests(method: str, path: str) -> Iterator[HeavyRequest]:
    """Legal and illegal ones; at least three for each route."""

    def target(long: int) -> str:
        return re.sub(
            r"\{(\w+)[^}]*\}", lambda found: "n" * long if long else KNOWN.get(found[1], "heavy"), path
        )

    kind = "application/json" if path.startswith("/v3/") else "application/vnd.kafka.json.v2+json"
    headers = {"content-type": kind}
    query = "&".join(f"name{n}=%5B" for n in range(2_000))
    yield HeavyRequest("query", f"{target(0)}?{query}", headers, None)
    yield HeavyRequest("names", target(8_000), headers, None)
    yield HeavyRequest("headers", target(0), {**headers, **{f"x-{n}": "v" for n in range(90)}}, None)
    if method in ("POST", "PUT", "PATCH"):
        for shape, body in BODIES.items():
            yield HeavyRequest(shape, target(0), headers, body)
