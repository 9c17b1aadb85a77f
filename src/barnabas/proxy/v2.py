"""API v2: brokers, topics, partitions, producing. The media type names the embedded format."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from barnabas.admin import ConfigKind, ConfigResource, ConfigSource, Partition, Topic
from barnabas.http.errors import HttpError
from barnabas.proxy.call import ProxyCall, answer, as_number, require_known, require_list
from barnabas.proxy.dead_letters import DeadLetter, send
from barnabas.proxy.errors import (
    CONVERSION_FAILED,
    INVALID_PAYLOAD,
    KEY_SCHEMA_MISSING,
    PARTITION_NOT_FOUND,
    TOPIC_NOT_FOUND,
    V2_MEDIA_TYPE,
    VALUE_SCHEMA_MISSING,
    is_retriable,
)
from barnabas.proxy.formats import BINARY, V2_FORMATS, WITH_SCHEMA, Mismatch, encode_plain, frame
from barnabas.proxy.producing import DIRECT_MAX, Delivered, Outgoing
from barnabas.proxy.schemas import Known
from barnabas.schemas.codecs.rules import RuleFailed

Work = Callable[[ProxyCall], Awaitable[Response]]

"""The source of an option's value: it was set for the topic."""
PRODUCED: Final = frozenset({"records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"})
RECORD: Final = frozenset({"key", "value", "partition", "timestamp"})
_TYPE: Final = re.compile(r"application/vnd\.kafka(?:\.([a-z]+))?\.v2\+json")
_GENERIC: Final = frozenset(
    {"", "application/vnd.kafka+json", "application/json", "application/octet-stream"}
)


def content_format(call: ProxyCall) -> str:
    """The embedded format that the request's media type names. Raises HttpError 415."""
    content_type = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type in _GENERIC:
        return BINARY
    match = _TYPE.fullmatch(content_type)
    if match is None or (match[1] is not None and match[1] not in V2_FORMATS):
        formats = "|".join(V2_FORMATS)
        raise HttpError(
            415,
            f"content type {content_type[:100]} is not accepted; send application/vnd.kafka.{{{formats}}}.v2+json",
        )
    return match[1] or BINARY


def embedded(format: str) -> str:
    """The media type of answers with records of a format."""
    return f"application/vnd.kafka.{format}.v2+json"


GENERAL: Final = (V2_MEDIA_TYPE, "application/json", "application/vnd.kafka+json")
"""The media types of answers without records."""
RECORDS: Final = (*GENERAL, *(embedded(format) for format in V2_FORMATS))
"""Those of answers about consumer instances: clients may send the one of their records with every request."""


def json_answer(value: Any) -> Response:
    """An answer of API v2."""
    return answer(value, V2_MEDIA_TYPE)


def _no_topic(name: str) -> HttpError:
    return HttpError(404, f"Topic {name!r} not found.", TOPIC_NOT_FOUND)


def _no_partition(name: str) -> HttpError:
    return HttpError(404, f"Partition {name!r} not found.", PARTITION_NOT_FOUND)


# --- metadata -----------------------------------------------------------------------------------------


async def list_brokers(call: ProxyCall) -> Response:
    """GET /brokers: the ids of the brokers."""
    return json_answer({"brokers": await call.services.kafka.brokers()})


async def list_topics(call: ProxyCall) -> Response:
    """GET /topics: the names of the topics."""
    return json_answer(list(await call.services.kafka.topics()))


async def get_topic(call: ProxyCall) -> Response:
    """GET /topics/{topic}: its options and partitions."""
    name = call.part("topic")
    topic = await _topic(call, name)
    entries = await call.services.kafka.configs(ConfigResource(ConfigKind.TOPIC, name))
    configs = {
        entry.name: entry.value for entry in entries if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }
    return json_answer(
        {
            "name": name,
            "configs": configs,
            "partitions": [_partition(p) for p in topic.partitions],
        }
    )


async def list_partitions(call: ProxyCall) -> Response:
    """GET /topics/{topic}/partitions."""
    topic = await _topic(call, call.part("topic"))
    return json_answer([_partition(p) for p in topic.partitions])


async def get_partition(call: ProxyCall) -> Response:
    """GET /topics/{topic}/partitions/{partition}."""
    topic = await _topic(call, call.part("topic"))
    missing = _no_partition(call.part("partition"))
    number = call.number_part("partition", missing)
    for partition in topic.partitions:
        if partition.number == number:
            return json_answer(_partition(partition))
    raise missing


async def get_offsets(call: ProxyCall) -> Response:
    """GET /topics/{topic}/partitions/{partition}/offsets: the first offset and the one after the last."""
    name = call.part("topic")
    topic = await _topic(call, name)
    missing = _no_partition(call.part("partition"))
    partition = call.number_part("partition", missing)
    if partition not in {partition_info.number for partition_info in topic.partitions}:
        raise missing
    first, last = await call.services.kafka.offsets_of(name, partition)
    return json_answer({"beginning_offset": first, "end_offset": last})


async def _topic(call: ProxyCall, name: str) -> Topic:
    try:
        return await call.services.kafka.topic(name)
    except HttpError as error:
        if error.status == 404:
            raise _no_topic(name) from error
        raise


def _partition(info: Partition) -> dict[str, Any]:
    in_sync = set(info.in_sync)
    return {
        "partition": info.number,
        "leader": info.leader,
        "replicas": [
            {"broker": broker, "leader": broker == info.leader, "in_sync": broker in in_sync}
            for broker in info.replicas
        ],
    }


# --- producing ----------------------------------------------------------------------------------------


async def produce(call: ProxyCall) -> Response:
    """POST /topics/{topic}: produces records; registers a schema that is given as text."""
    return await _produce(call, None)


async def produce_to_partition(call: ProxyCall) -> Response:
    """POST /topics/{topic}/partitions/{partition}."""
    return await _produce(call, call.number_part("partition", _no_partition(call.part("partition"))))


async def _produce(call: ProxyCall, partition: int | None) -> Response:
    format = content_format(call)
    body = await call.body()
    is_large = await call.has_large_body()
    require_known(body, PRODUCED)
    rows = require_list(body, "records")
    for row in rows:
        require_known(row, RECORD)
    if not rows:
        raise HttpError(422, "records must not be empty", INVALID_PAYLOAD)
    topic = call.part("topic")
    count = await call.services.producing.partitions(topic)
    if partition is not None and partition >= count:
        raise _no_partition(str(partition))
    schemas = await _schemas(call, body, rows, topic, format)
    encoded = await _encoded(call, schemas, rows, is_large)

    def encode_part(index: int, row: dict[str, Any], part: str) -> bytes | None:
        schema, value = schemas[part], row.get(part)
        encoded_value = None if part not in encoded else encoded[part][index]

        def encode() -> bytes | None:
            if format not in WITH_SCHEMA:
                return encode_plain(format, value, is_large=is_large)
            if value is None or schema is None:
                return None
            if isinstance(encoded_value, Mismatch):
                raise encoded_value
            return frame(schema.id, schema.codec.encode(value) if encoded_value is None else encoded_value)

        return _checked(encode, format, f"records[{index}].{part}", f"{topic}-{part}")

    def encode_row(index: int, row: dict[str, Any]) -> Outgoing | DeadLetter:
        number = _row_partition(row, index) if partition is None else partition
        timestamp = row.get("timestamp")
        time_ms = 0 if timestamp is None else as_number(timestamp, f"records[{index}].timestamp", 1 << 62)
        try:
            key = encode_part(index, row, "key")
            value = encode_part(index, row, "value")
        except DeadLetter as letter:
            return letter
        return Outgoing(key, value, number, time_ms)

    def encode() -> list[Outgoing | DeadLetter]:
        return [encode_row(index, row) for index, row in enumerate(rows)]

    in_thread = is_large or any(known is not None and known.is_ruled for known in schemas.values())
    records = await asyncio.to_thread(encode) if in_thread or len(rows) > DIRECT_MAX else encode()
    results = iter(
        await call.services.producing.send(
            topic, [outgoing for outgoing in records if isinstance(outgoing, Outgoing)]
        )
    )
    offsets = [
        _offset(next(results))
        if isinstance(outgoing, Outgoing)
        else _refused(await send(call.services.producing, outgoing, topic, row.get("key"), row.get("value")))
        for outgoing, row in zip(records, rows, strict=True)
    ]
    return json_answer(
        {
            "offsets": offsets,
            **{f"{part}_schema_id": None if known is None else known.id for part, known in schemas.items()},
        }
    )


def _row_partition(row: dict[str, Any], index: int) -> int:
    partition = row.get("partition")
    return -1 if partition is None else as_number(partition, f"records[{index}].partition")


async def _schemas(
    call: ProxyCall, body: dict[str, Any], rows: Sequence[dict[str, Any]], topic: str, format: str
) -> dict[str, Known | None]:
    """The schemas of keys and values, as far as there are any. Raises HttpError."""
    missing = {"key": KEY_SCHEMA_MISSING, "value": VALUE_SCHEMA_MISSING}
    return {
        part: await _schema(call, body, part, topic, format, code)
        if format in WITH_SCHEMA and any(row.get(part) is not None for row in rows)
        else None
        for part, code in missing.items()
    }


async def _encoded(
    call: ProxyCall, schemas: Mapping[str, Known | None], rows: Sequence[dict[str, Any]], is_large: bool
) -> dict[str, list[bytes | Mismatch | None]]:
    """The payloads of keys and values that another process has to encode, see Encoding. Raises HttpError."""
    return {
        part: await call.services.encoding.encode(known.source, [row.get(part) for row in rows])
        for part, known in schemas.items()
        if known is not None and (is_large or known.is_heavy)
    }


async def _schema(
    call: ProxyCall, body: dict[str, Any], part: str, topic: str, format: str, missing: int
) -> Known:
    """The schema that the request names by its text or its id. Raises HttpError."""
    schemas = call.services.schemas
    text, schema_id = body.get(f"{part}_schema"), body.get(f"{part}_schema_id")
    if schema_id is not None:
        known = await schemas.by_id(as_number(schema_id, f"{part}_schema_id"))
    elif isinstance(text, str) and text:
        known = await schemas.registered(f"{topic}-{part}", format, text)
    else:
        raise HttpError(
            422,
            f"Request includes {part}s but does not include {part} schema: {part}_schema or {part}_schema_id",
            missing,
        )
    if known.format != format:
        raise HttpError(
            422,
            f"{part}_schema_id {known.id} is a schema of format {known.format}, the request has format {format}",
            missing,
        )
    return known


def _checked(encode: Callable[[], bytes | None], format: str, where: str, subject: str) -> bytes | None:
    """An encoded key or value. Raises HttpError; DeadLetter if a rule refuses it and names a topic for dead letters."""
    try:
        return encode()
    except Mismatch as error:
        if isinstance(error, RuleFailed) and error.dead_letters is not None:
            raise DeadLetter(error, where, subject) from error
        raise HttpError(
            422, f"{where}: {error}", CONVERSION_FAILED if format in WITH_SCHEMA else 422
        ) from error


def _refused(message: str) -> dict[str, Any]:
    """The result of a record for which trying again does not help."""
    return {"partition": None, "offset": None, "error_code": 1, "error": message}


def _offset(result: Delivered) -> dict[str, Any]:
    error = result.error
    if error is None:
        return {"partition": result.partition, "offset": result.offset, "error_code": None, "error": None}
    return {
        "partition": None,
        "offset": None,
        "error_code": 2 if is_retriable(error) else 1,
        "error": error.str(),
    }


ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", "/brokers", list_brokers),
    ("GET", "/topics", list_topics),
    ("GET", "/topics/{topic}", get_topic),
    ("POST", "/topics/{topic}", produce),
    ("GET", "/topics/{topic}/partitions", list_partitions),
    ("GET", "/topics/{topic}/partitions/{partition}", get_partition),
    ("POST", "/topics/{topic}/partitions/{partition}", produce_to_partition),
    ("GET", "/topics/{topic}/partitions/{partition}/offsets", get_offsets),
)
