"""The heaviest HTTP requests to any route of a service, made from its path and method alone.

Bodies come with the media types that the service takes: a body that is refused for its type (415) shows nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from tests.support import heavy_schemas

SIZE_BYTES: Final = 1 << 20
LARGE_BYTES: Final = 2 << 20
LARGEST_BYTES: Final = 15 << 20
"""A little less than an HTTP service takes."""
ROWS: Final = 3_000
CHUNKS: Final = 100_000
KNOWN: Final = {
    "version": "1",
    "id": "1",
    "topic": "heavy",
    "topic_name": "heavy",
    "partition": "0",
    "action": "restart",
}
REGISTRY: Final = ("application/vnd.schemaregistry.v1+json", "application/json")
V2: Final = tuple(
    f"application/vnd.kafka.{kind}.v2+json" for kind in ("json", "binary", "avro", "jsonschema")
)
OF_TYPE: Final = {"AVRO": "avro", "JSON": "jsonschema", "PROTOBUF": "protobuf"}


class HeavyRequest(NamedTuple):
    """What is heavy about a request, and what to send."""

    shape: str
    target: str
    headers: dict[str, str]
    body: bytes | None


def media_types(service: str, path: str) -> tuple[str, ...]:
    """The types of bodies that a route takes."""
    if service == "registry":
        return REGISTRY
    if service == "rest" and not path.startswith("/v3/"):
        return V2 if path.startswith("/topics/") else ("application/vnd.kafka.v2+json",)
    if (service, path) == ("pipelines", "/pipelines"):
        return ("application/yaml",)
    return ("application/json",)


def _repeated(begin: bytes, piece: bytes, end: bytes, size_bytes: int) -> bytes:
    return begin + piece * (size_bytes // len(piece)) + end


@cache
def plain_bodies(large_bytes: int) -> dict[str, bytes]:
    """Bodies for any route."""
    numbers = list(range(large_bytes // 8))
    row: Any = {"key": "k", "value": {"type": "JSON", "data": 1}}
    rows = [row] * ROWS
    many = dict.fromkeys(("records", "entries", "data", "offsets", "partitions", "configs"), rows)
    few = [{"id": str(n), "value": {"type": "JSON", "data": numbers[::40]}} for n in range(40)]
    return {
        "brackets": _repeated(b'{"records":[', b"[],", b"1]}", SIZE_BYTES),
        "many brackets": _repeated(b'{"records":[', b"[],", b"1]}", large_bytes),
        "many objects": _repeated(b'{"records":[', b'{"value":1},', b'{"value":1}]}', large_bytes),
        "many texts": _repeated(b'{"entries":[', b'"a",', b'""]}', large_bytes),
        "one text": _repeated(b'{"records":[{"value":"', b"a", b'"}]}', large_bytes),
        "many spaces": _repeated(b"", b" ", b"{}", large_bytes),
        "deep": b"[" * SIZE_BYTES,
        "deep value": _repeated(b'{"records":[{"value":', b"[" * 290 + b"]" * 290 + b"}", b"", 1),
        "same name": _repeated(b"{", b'"a":1,', b'"a":1}', SIZE_BYTES),
        "many names": json.dumps({f"n{n}": n for n in range(300_000)}).encode(),
        "number": b'{"schema":' + b"9" * SIZE_BYTES + b"}",
        "not utf-8": json.dumps({"schema": "x" * (SIZE_BYTES // 2)}).encode("utf-16"),
        "rows": json.dumps(many).encode(),
        "records": json.dumps({"records": [{"value": n} for n in range(ROWS)]}).encode(),
        "one record": json.dumps({"records": [{"value": numbers}]}).encode(),
        "large records": json.dumps({"records": few}).encode(),
        "large entries": json.dumps({"entries": few}).encode(),
        "one after the other": json.dumps({"value": {"type": "JSON", "data": 1}}).encode() * 20_000,
        "one large record": json.dumps({"value": {"type": "JSON", "data": numbers}}).encode(),
    }


@cache
def schemas(large_bytes: int) -> dict[str, tuple[str, str]]:
    """(type, text) of heavy schemas. Of two with a name and "name again", the second one is compared with the first."""
    schemas_by_name: dict[str, tuple[str, str]] = {}
    for again, leaf, avro in (("", {"type": "integer"}, "int"), (" again", {"type": "string"}, "string")):
        schemas_by_name |= {
            f"union{again}": ("AVRO", heavy_schemas.union_avro(1_500, avro)),
            f"circle{again}": ("AVRO", heavy_schemas.circle_avro(1_500, avro)),
            f"nested{again}": ("AVRO", heavy_schemas.doubling_avro(60, avro)),
            f"fields{again}": ("AVRO", heavy_schemas.fields_avro(10_000, avro)),
            f"doubling{again}": ("JSON", heavy_schemas.doubling_json(60, leaf)),
            f"not{again}": ("JSON", heavy_schemas.doubling_not(60, leaf)),
            f"alternatives{again}": ("JSON", heavy_schemas.alternatives_json(250, leaf)),
            f"messages{again}": ("PROTOBUF", heavy_schemas.messages_protobuf(3_000, avro)),
            f"long message{again}": ("PROTOBUF", heavy_schemas.fields_protobuf(20_000, avro)),
            f"small union{again}": ("AVRO", heavy_schemas.union_avro(150, avro)),
            f"small doubling{again}": ("JSON", heavy_schemas.doubling_json(20, leaf)),
            f"small messages{again}": ("PROTOBUF", heavy_schemas.messages_protobuf(250, avro)),
        }
    return schemas_by_name | {
        "defaults": ("AVRO", heavy_schemas.defaults_avro(250, "int")),
        "brackets": ("AVRO", "[" * large_bytes),
        "lists": ("JSON", '{"x":[' + "[]," * (large_bytes // 4) + "1]}"),
        "deep message": ("PROTOBUF", 'syntax="proto3";' + "message M {" * 20_000 + "}" * 20_000),
        "one long name": ("PROTOBUF", 'syntax="proto3"; message ' + "M" * large_bytes + " {}"),
        "escapes": ("AVRO", '"' + "\\u0041" * (large_bytes // 8) + '"'),
    }


TAKES_SCHEMAS: Final = (
    "/subjects/{subject}/versions",
    "/subjects/{subject}",
    "/compatibility/subjects/{subject}/versions/{version}",
    "/topics/{topic}",
    "/v3/clusters/{cluster_id}/topics/{topic_name}/records",
    "/v3/clusters/{cluster_id}/topics/{topic_name}/records:batch",
)


def _with_schemas(service: str, path: str, target: str, large_bytes: int) -> Iterator[HeavyRequest]:
    for shape, (kind, text) in schemas(large_bytes).items():
        name = "heavy-" + shape.removesuffix(" again").replace(" ", "-")
        headers = {"content-type": media_types(service, path)[0]}
        body: Any = {"schemaType": kind, "schema": text}
        if service == "rest" and path.startswith("/topics/"):
            headers = {"content-type": f"application/vnd.kafka.{OF_TYPE[kind]}.v2+json"}
            body = {"value_schema": text, "records": [{"value": {"f": 1}}] * 3}
        elif service == "rest":
            part = {"type": OF_TYPE[kind].upper(), "schema": text, "data": {"f": 1}, "subject": name}
            body = {"value": part}
            if path.endswith(":batch"):
                body = {"entries": [{"id": "1", **body}]}
        yield HeavyRequest(
            f"schema: {shape}", target.replace("/heavy", f"/{name}", 1), headers, json.dumps(body).encode()
        )


@cache
def documents() -> dict[str, bytes]:
    """YAML, which a server of pipelines reads."""
    levels = "\n".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(9))
    return {
        "aliases": f"a0: &a0 [x, x]\n{levels}\nname: heavy\n".encode(),
        "yaml brackets": b"pipeline: heavy\nsteps: [" + b"[], " * 150_000 + b"]",
        "deep yaml": b"pipeline: heavy\nsteps: " + b"[" * 1_000_000,
        "indented yaml": b"".join(b" " * n + b"a:\n" for n in range(1_300)),
        "yaml rows": b"pipeline: heavy\nsteps:\n" + b"- filter: a = 1\n" * 50_000,
        "yaml names": b"pipeline: heavy\n" + b"".join(b"n%d: 1\n" % n for n in range(80_000)),
        "one yaml text": b"pipeline: " + b"x" * 1_000_000,
        "yaml quotes": b'pipeline: "' + b"\\x41" * 250_000 + b'"',
        "yaml outputs": b"pipeline: heavy\nsource: {topic: t}\noutputs:\n"
        + b"".join(b"- {name: o%d, topic: t%d}\n" % (n, n) for n in range(20_000)),
    }


def _bodies(service: str, path: str, target: str, large_bytes: int) -> Iterator[HeavyRequest]:
    types = media_types(service, path)
    for number, (shape, body) in enumerate(plain_bodies(large_bytes).items()):
        yield HeavyRequest(shape, target, {"content-type": types[number % len(types)]}, body)
    chunks = {
        "tiny chunks": b"1\r\n \r\n" * CHUNKS + b"2\r\n{}\r\n0\r\n\r\n",
        "long chunk extensions": (b"1;" + b"x" * 10_000 + b"\r\n \r\n") * 100 + b"2\r\n{}\r\n0\r\n\r\n",
    }
    for shape, body in chunks.items():
        yield HeavyRequest(shape, target, {"content-type": types[0], "transfer-encoding": "chunked"}, body)
    if service == "pipelines":
        for shape, text in documents().items():
            whole = text if path == "/pipelines" else json.dumps({"pipeline": text.decode()}).encode()
            yield HeavyRequest(shape, target, {"content-type": types[0]}, whole)
    elif service in ("registry", "rest") and path in TAKES_SCHEMAS:
        yield from _with_schemas(service, path, target, large_bytes)


def heavy_requests(
    service: str, method: str, path: str, large_bytes: int = LARGE_BYTES
) -> Iterator[HeavyRequest]:
    """Legal and illegal ones; at least seven for each route."""

    def target(long: int) -> str:
        return re.sub(
            r"\{(\w+)[^}]*\}", lambda match: "n" * long if long else KNOWN.get(match[1], "heavy"), path
        )

    headers = {"content-type": media_types(service, path)[0]}
    query = "&".join(f"name{n}=%5B" for n in range(2_000))
    yield HeavyRequest("query", f"{target(0)}?{query}", headers, None)
    yield HeavyRequest("names", target(8_000), headers, None)
    yield HeavyRequest("long names", target(30_000), headers, None)
    yield HeavyRequest("long path", target(0) + "/" + "%41/" * 15_000, headers, None)
    yield HeavyRequest("endless path", target(0) + "/" + "a" * large_bytes, headers, None)
    yield HeavyRequest("headers", target(0), {**headers, **{f"x-{n}": "v" for n in range(5_000)}}, None)
    yield HeavyRequest("endless headers", target(0), {f"x-{n}": "v" * 1_000 for n in range(5_000)}, None)
    for name in ("accept", "x-request-id", "origin", "authorization", "content-type", "cookie"):
        long = {**headers, name: "a/b;q=0.1," * 6_000}
        yield HeavyRequest(f"long {name}", target(0), long, None)
    if method in ("POST", "PUT", "PATCH"):
        yield from _bodies(service, path, target(0), large_bytes)
