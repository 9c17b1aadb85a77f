"""API v3: producing one record, a stream of records with a receipt for each, or a batch."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from barnabas.http.bodies import LARGE_BYTES
from barnabas.http.errors import HttpError
from barnabas.http.streaming import DuplexResponse
from barnabas.proxy.call import (
    ProxyCall,
    answer,
    as_number,
    dump,
    require_known,
    require_list,
    require_text,
)
from barnabas.proxy.dead_letters import DeadLetter, send
from barnabas.proxy.errors import INVALID_PAYLOAD, JSON_MEDIA_TYPE, from_kafka
from barnabas.proxy.formats import (
    AVRO,
    BINARY,
    JSON,
    JSONSCHEMA,
    PROTOBUF,
    STRING,
    Mismatch,
    encode_plain,
    frame,
)
from barnabas.proxy.json_stream import JsonStream, StreamError
from barnabas.proxy.producing import Batch, Delivered, Outgoing
from barnabas.proxy.schemas import Known
from barnabas.proxy.v3_cluster import BASE, Work
from barnabas.proxy.v3_shapes import shapes_of
from barnabas.schemas.codecs.rules import RuleFailed
from barnabas.schemas.json_text import BadJson, parse_json

log = logging.getLogger("barnabas.proxy")

RECORD_BYTES_MAX: Final = 16 << 20
UNDER_WAY_MAX: Final = 500
UNDER_WAY_BYTES_MAX: Final = 16 << 20
IDLE_S: Final = 300.0
BATCH_MAX: Final = 1_000
TYPES: Final = {
    "BINARY": BINARY,
    "JSON": JSON,
    "STRING": STRING,
    "AVRO": AVRO,
    "JSONSCHEMA": JSONSCHEMA,
    "PROTOBUF": PROTOBUF,
}
NAMES: Final = {format: name for name, format in TYPES.items()}
RECORD: Final = frozenset({"partition_id", "headers", "key", "value", "timestamp"})
PART: Final = frozenset(
    {"type", "subject", "subject_name_strategy", "schema_id", "schema_version", "schema", "data"}
)
PLAIN: Final = ("BINARY", "JSON", "STRING")
PARTS: Final = ("key", "value")
STRATEGIES: Final = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")


class Row(NamedTuple):
    """The JSON of one record, or the BadJson that says why it is none. is_large: it is encoded by a thread."""

    value: Any
    is_large: bool


class Part(NamedTuple):
    """An encoded key or value. shown: how the receipt describes it; None if the request does not have it."""

    data: bytes | None
    shown: dict[str, Any] | None


ABSENT: Final = Part(None, None)


async def produce(call: ProxyCall) -> Response:
    """POST .../topics/{topic}/records: produces concatenated JSON records; returns a receipt for each, in order."""
    shapes = await shapes_of(call)
    topic = call.part("topic")
    receipts = _receipts(call, shapes.cluster_id, topic)
    return DuplexResponse(receipts, JSON_MEDIA_TYPE, IDLE_S)


async def _receipts(call: ProxyCall, cluster_id: str, topic: str) -> AsyncGenerator[bytes, None]:
    """The receipts, in order. Reads more records while earlier ones are in progress, within the limits."""
    stream = JsonStream(RECORD_BYTES_MAX)
    body = call.request.stream().__aiter__()
    pending: deque[tuple[asyncio.Task[dict[str, Any]], int]] = deque()
    held_bytes, turn = 0, asyncio.Lock()
    reading: asyncio.Task[bytes | None] | None = None
    ended: HttpError | None = None
    over = False
    try:
        while not over or pending:
            full = len(pending) >= UNDER_WAY_MAX or held_bytes >= UNDER_WAY_BYTES_MAX
            if not over and reading is None and not full:
                reading = asyncio.create_task(_next(body))
            waiting: set[asyncio.Task[Any]] = {pending[0][0]} if pending else set()
            if reading is not None:
                waiting.add(reading)
            done, _ = await asyncio.wait(waiting, timeout=IDLE_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                over, ended = True, HttpError(408, f"no record arrived within {IDLE_S:g} s")
                if reading is not None:
                    reading.cancel()
                    reading = None
                continue
            if reading is not None and reading.done():
                values, over, ended = _cut(stream, reading)
                reading = None
                for raw in values:
                    row = await _read(raw)
                    task = asyncio.create_task(_produce(call, cluster_id, topic, row, turn))
                    pending.append((task, len(raw)))
                    held_bytes += len(raw)
            while pending and pending[0][0].done():
                task, size = pending.popleft()
                held_bytes -= size
                yield dump(task.result()) + b"\r\n"
        if ended is not None:
            yield dump({"error_code": ended.code, "message": ended.message}) + b"\r\n"
    finally:
        if reading is not None:
            reading.cancel()
        for task, _ in pending:
            task.cancel()


async def _next(body: AsyncIterator[bytes]) -> bytes | None:
    """The next piece of the body; None at its end, or if the client has disconnected."""
    try:
        return await anext(body)
    except (StopAsyncIteration, ClientDisconnect):
        return None


def _cut(
    stream: JsonStream, reading: asyncio.Task[bytes | None]
) -> tuple[list[bytes], bool, HttpError | None]:
    """(records that are complete now, whether the stream is over, the error that ended it)."""
    try:
        data = reading.result()
        if data is None:
            stream.end()
            return [], True, None
        return stream.feed(data), False, None
    except StreamError as error:
        return [], True, HttpError(400, f"{error}; records are JSON objects, one after the other")
    except HttpError as error:
        return [], True, error


async def _read(raw: bytes) -> Row:
    """One record. Large records are read in a thread, one after the other, because they are produced in the order in which
    they arrived.
    """
    is_large = len(raw) >= LARGE_BYTES
    try:
        return Row(await asyncio.to_thread(parse_json, raw) if is_large else parse_json(raw), is_large)
    except BadJson as error:
        return Row(error, is_large)


async def _produce(
    call: ProxyCall, cluster_id: str, topic: str, row: Row, turn: asyncio.Lock
) -> dict[str, Any]:
    """The receipt for one record."""
    if isinstance(row.value, BadJson):
        return {"error_code": 400, "message": f"the record cannot be parsed as JSON: {row.value}"}
    try:
        return await _produce_row(call, cluster_id, topic, row, turn)
    except HttpError as error:
        return {"error_code": error.code, "message": error.message}
    except Exception:
        log.exception("a record could not be produced", extra={"topic": topic})
        return {"error_code": 500, "message": "an internal error; the log of the service reports it"}


async def _produce_row(
    call: ProxyCall, cluster_id: str, topic: str, row: Row, turn: asyncio.Lock
) -> dict[str, Any]:
    """Produce a record; its receipt. turn: a lock that keeps records in the order of the request. Raises HttpError."""
    producing = call.services.producing
    try:
        key, value, batch = await _begin(call, topic, row, turn)
    except DeadLetter as letter:
        key_data, value_data = (part_value(row.value.get(name)) for name in PARTS)
        headers = read_headers(row.value.get("headers"))
        message = await send(producing, letter, topic, key_data, value_data, headers)
        raise HttpError(400, message, 400) from letter
    (result,) = await producing.fate(topic, batch)
    return _receipt(cluster_id, topic, key, value, result)


def part_value(part: Any) -> Any:
    """A key or value of a request: the bytes that it stands for or, if it has a schema, its JSON value."""
    if not isinstance(part, dict):
        return None
    kind, data = part.get("type"), part.get("data")
    if kind not in PLAIN:
        return data
    try:
        return encode_plain(TYPES[kind], data)
    except Mismatch:  # not valid for its type: used as it is
        return data


async def _begin(call: ProxyCall, topic: str, entry: Row, turn: asyncio.Lock) -> tuple[Part, Part, Batch]:
    """Encode a record and hand it to the producer. Raises HttpError, DeadLetter."""
    row = entry.value
    try:
        require_known(row, RECORD)
    except HttpError as error:  # one record of a stream, not the request
        raise HttpError(400, error.message) from None
    producing = call.services.producing
    async with turn:
        count = await _partitions(call, topic)
        partition = row.get("partition_id")
        number = -1 if partition is None else as_number(partition, "partition_id")
        if number >= count:
            raise HttpError(404, f"topic {topic} has no partition {number}; it has {count}", 40403)
        key = await _part(call, row.get("key"), "key", topic, entry.is_large)
        value = await _part(call, row.get("value"), "value", topic, entry.is_large)
        record = Outgoing(
            key.data, value.data, number, read_time(row.get("timestamp")), read_headers(row.get("headers"))
        )
        return key, value, producing.begin(topic, [record])


async def _partitions(call: ProxyCall, topic: str) -> int:
    try:
        return await call.services.producing.partitions(topic)
    except HttpError as error:
        if error.status == 404:
            raise HttpError(404, "This server does not host this topic-partition.", 40403) from error
        raise


def _receipt(cluster_id: str, topic: str, key: Part, value: Part, result: Delivered) -> dict[str, Any]:
    """The receipt for a stored record. Raises HttpError if it was not stored."""
    if result.error is not None:
        raise from_kafka(result.error)
    receipt: dict[str, Any] = {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": result.partition,
        "offset": result.offset,
        "timestamp": None if result.timestamp_ms < 0 else write_time(result.timestamp_ms),
    }
    if key.shown is not None:
        receipt["key"] = key.shown
    if value.shown is not None:
        receipt["value"] = value.shown
    return receipt


async def produce_batch(call: ProxyCall) -> Response:
    """POST .../topics/{topic}/records:batch: produces records; returns the success or failure of each by its id."""
    shapes = await shapes_of(call)
    topic = call.part("topic")
    body = await call.body()
    require_known(body, frozenset({"entries"}))
    entries = require_list(body, "entries")
    if not 0 < len(entries) <= BATCH_MAX:
        raise HttpError(
            422, f"entries has {len(entries)} records; 1 to {BATCH_MAX} are allowed", INVALID_PAYLOAD
        )
    for entry in entries:
        require_known(entry, RECORD | {"id"})
    ids = [require_text(entry, "id") for entry in entries]
    if len(set(ids)) != len(ids):
        raise HttpError(422, "two entries have the same id", INVALID_PAYLOAD)
    turn, is_large = asyncio.Lock(), await call.has_large_body()
    results = await asyncio.gather(
        *(
            _produce_row(call, shapes.cluster_id, topic, Row(_without_id(entry), is_large), turn)
            for entry in entries
        ),
        return_exceptions=True,
    )
    successes, failures = [], []
    for entry_id, result in zip(ids, results, strict=True):
        if isinstance(result, HttpError):
            failures.append({"id": entry_id, "error_code": result.code, "message": result.message})
        elif isinstance(result, BaseException):
            raise result
        else:
            successes.append({"id": entry_id, **{n: v for n, v in result.items() if n != "error_code"}})
    return answer({"successes": successes, "failures": failures}, status=207)


def _without_id(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "id"}


# --- the parts of a record ----------------------------------------------------------------------------


def read_time(value: Any) -> int:
    """A time in ISO 8601 as milliseconds since 1970; 0 for None. Raises HttpError 400."""
    if value is None:
        return 0
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            if time.tzinfo is None:
                time = time.replace(tzinfo=UTC)
            milliseconds = round(time.timestamp() * 1000)
            if milliseconds > 0:
                return milliseconds
    except (ValueError, OverflowError):
        pass
    raise HttpError(400, f"timestamp {str(value)[:40]!r} is not a time like 2021-02-05T19:14:42Z", 400)


def write_time(milliseconds: int) -> str:
    """Milliseconds since 1970 as a time in ISO 8601."""
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_headers(value: Any) -> list[tuple[str, bytes | None]]:
    """The headers of a record; in requests their values are base64. Raises HttpError."""
    if value is None:
        return []
    headers: list[tuple[str, bytes | None]] = []
    for index, row in enumerate(require_list({"headers": value}, "headers")):
        name, text = require_text(row, "name"), row.get("value")
        try:
            headers.append((name, None if text is None else base64.b64decode(text, validate=True)))
        except (binascii.Error, ValueError, TypeError):
            raise HttpError(400, f"headers[{index}].value is not base64", 400) from None
    return headers


async def _part(call: ProxyCall, data_given: Any, part: str, topic: str, is_large: bool) -> Part:
    """Encode a key or value. Raises HttpError; DeadLetter if a rule refuses it and names a topic for dead letters."""
    if data_given is None:
        return ABSENT
    if not isinstance(data_given, dict):
        raise HttpError(400, f"{part} must be an object with type and data", 400)
    if not PART.issuperset(data_given):
        raise HttpError(
            400, f"Unrecognized field: {', '.join(sorted(set(data_given) - PART))[:100]} in {part}"
        )
    kind, data = data_given.get("type"), data_given.get("data")
    if kind is not None and kind not in TYPES:
        raise HttpError(400, f"{part}.type {str(kind)[:40]!r} is not one of {', '.join(TYPES)}", 400)
    try:
        if kind in PLAIN:
            if is_large:
                raw = await asyncio.to_thread(encode_plain, TYPES[kind], data, is_large=True)
            else:
                raw = encode_plain(TYPES[kind], data)
            return Part(raw, {"type": kind, "size": len(raw or b"")})
        if data is None:
            return Part(None, {"type": kind, "size": 0})
        known = await _schema(call, data_given, part, topic)
        if kind is not None and TYPES[kind] != known.format:
            raise HttpError(
                400, f"{part}: schema {known.id} is of type {NAMES[known.format]}, not {kind}", 400
            )
        payload = await _payload(call, known, data, is_large)
        raw = frame(known.id, payload)
    except Mismatch as error:
        if isinstance(error, RuleFailed) and error.dead_letters is not None:
            raise DeadLetter(error, part, known.subject or f"{topic}-{part}") from error
        raise HttpError(400, f"{part}: {error}", 400) from error
    return Part(
        raw,
        {
            "type": NAMES[known.format],
            "subject": known.subject or None,
            "schema_id": known.id,
            "schema_version": known.version or None,
            "size": len(raw),
        },
    )


async def _payload(call: ProxyCall, known: Known, data: Any, is_large: bool) -> bytes:
    """A value, encoded where it holds nobody up. Raises Mismatch, HttpError."""
    if is_large or known.is_heavy:
        (encoded,) = await call.services.encoding.encode(known.source, [data])
        if isinstance(encoded, Mismatch):
            raise encoded
        assert encoded is not None
        return encoded
    if known.is_ruled:
        return await asyncio.to_thread(known.codec.encode, data)
    return known.codec.encode(data)


async def _schema(call: ProxyCall, fields: dict[str, Any], part: str, topic: str) -> Known:
    """The schema that a key or value names: by its text, id, version, or the newest of its subject. Raises HttpError."""
    schemas = call.services.schemas
    text, schema_id, version = fields.get("schema"), fields.get("schema_id"), fields.get("schema_version")
    if schema_id is not None:
        return await schemas.by_id(as_number(schema_id, f"{part}.schema_id"))
    subject = fields.get("subject")
    if subject is not None and (not isinstance(subject, str) or not subject):
        raise HttpError(400, f"{part}.subject must be a text", 400)
    strategy = fields.get("subject_name_strategy") or "TOPIC_NAME"
    if strategy not in STRATEGIES:
        raise HttpError(400, f"{part}.subject_name_strategy is not one of {', '.join(STRATEGIES)}", 400)
    if text is not None:
        if not isinstance(text, str) or fields.get("type") is None:
            raise HttpError(400, f"{part}.schema must be a text, and needs {part}.type", 400)
        named = subject or await _subject(call, strategy, topic, part, TYPES[fields["type"]], text)
        return await schemas.registered(named, TYPES[fields["type"]], text)
    if subject is None and strategy != "TOPIC_NAME":
        raise HttpError(400, f"{part}: {strategy} needs the schema, its id or the subject", 400)
    number = None if version is None else as_number(version, f"{part}.schema_version")
    return await schemas.by_version(subject or f"{topic}-{part}", number)


async def _subject(call: ProxyCall, strategy: str, topic: str, part: str, format: str, text: str) -> str:
    if strategy == "TOPIC_NAME":
        return f"{topic}-{part}"
    name = await call.services.schemas.record_name(format, text)
    return name if strategy == "RECORD_NAME" else f"{topic}-{name}"


ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("POST", f"{BASE}/topics/{{topic}}/records", produce),
    ("POST", f"{BASE}/topics/{{topic}}/records:batch", produce_batch),
)
