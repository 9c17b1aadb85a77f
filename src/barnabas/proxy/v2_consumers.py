"""API v2: consumer instances."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition
from starlette.responses import Response

from barnabas.http.errors import HttpError
from barnabas.proxy import formats
from barnabas.proxy.call import (
    OFFSET_MAX,
    ProxyCall,
    as_number,
    dump,
    negotiate,
    no_content,
    quoted,
    require_known,
    require_list,
    require_text,
)
from barnabas.proxy.consuming import DEFAULT_TIMEOUT_MS, RESPONSE_BYTES_MAX, Instance, exclusive
from barnabas.proxy.errors import (
    BAD_CONSUMER_CONFIG,
    CONVERSION_FAILED,
    FORMAT_MISMATCH,
    INVALID_PAYLOAD,
    PARTITION_NOT_FOUND,
)
from barnabas.proxy.formats import V2_FORMATS, WITH_SCHEMA, Mismatch
from barnabas.proxy.schemas import Known
from barnabas.proxy.v2 import GENERAL, RECORDS, embedded, json_answer
from barnabas.schemas.codecs.schemas import mapped_value

Work = Callable[[ProxyCall], Awaitable[Response]]

RESETS: Final = ("earliest", "latest", "none", "smallest", "largest")
SETTINGS: Final = frozenset(
    {
        "id", "name", "format", "auto.offset.reset", "auto.commit.enable", "enable.auto.commit",
        "fetch.min.bytes", "responseMinBytes", "consumer.request.timeout.ms", "requestWaitMs",
    }
)  # fmt: skip
SUBSCRIPTION: Final = frozenset({"topics", "topic_pattern"})
PLACE: Final = frozenset({"topic", "partition"})
PLACE_WITH_OFFSET: Final = PLACE | {"offset", "metadata"}
NAME_MAX: Final = 255
MARGIN_S: Final = 5.0


async def create(call: ProxyCall) -> Response:
    """POST /consumers/{group}: creates a consumer instance."""
    body = await call.optional_body() or {}
    require_known(body, SETTINGS)
    format = body.get("format", formats.BINARY)
    if format not in V2_FORMATS:
        raise HttpError(422, f"format {_shown(format)} is not one of {', '.join(V2_FORMATS)}")
    name = body.get("name", body.get("id"))
    if name is not None and (not isinstance(name, str) or not 0 < len(name) <= NAME_MAX):
        raise _bad_config(f"name {_shown(name)} must be a text of 1 to {NAME_MAX} characters")
    group = call.part("group")
    instance = await call.services.consuming.create(group, name, format, _settings(body))
    uri = f"{call.base_url()}/consumers/{quoted(group)}/instances/{quoted(instance.name)}"
    return json_answer({"instance_id": instance.name, "base_uri": uri})


def _settings(body: dict[str, Any]) -> dict[str, Any]:
    """The settings of an instance from the body of a request. Raises HttpError 42204."""
    reset = body.get("auto.offset.reset", "latest")
    if reset not in RESETS:
        raise _bad_config(f"auto.offset.reset {_shown(reset)} is not one of earliest, latest, none")
    commit = body.get("auto.commit.enable", body.get("enable.auto.commit", True))
    if isinstance(commit, str) and commit.lower() in ("true", "false"):
        commit = commit.lower() == "true"
    if not isinstance(commit, bool):
        raise _bad_config(f"auto.commit.enable {_shown(commit)} is not true or false")
    return {
        "auto.offset.reset": "error" if reset == "none" else reset,
        "enable.auto.commit": commit,
        "fetch.min.bytes": _number(body, "fetch.min.bytes", "responseMinBytes", 1, 10 << 20),
        "consumer.request.timeout.ms": _number(
            body, "consumer.request.timeout.ms", "requestWaitMs", DEFAULT_TIMEOUT_MS, 30_000
        ),
    }


def _number(body: dict[str, Any], name: str, alias: str, default: int, limit: int) -> int:
    value = body.get(name, body.get(alias))
    if value is None or value in (-1, "-1"):
        return default
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise _bad_config(f"{name} {_shown(value)} is not a number from 0 to {limit}")
    return value


def _bad_config(message: str) -> HttpError:
    return HttpError(422, f"Invalid consumer configuration: {message}", BAD_CONSUMER_CONFIG)


def _shown(value: Any) -> str:
    return repr(value)[:60]


async def delete(call: ProxyCall) -> Response:
    """DELETE /consumers/{group}/instances/{instance}: leaves the group."""
    await call.services.consuming.delete(call.part("group"), call.part("instance"))
    return no_content()


# --- what is read -------------------------------------------------------------------------------------


async def subscribe(call: ProxyCall) -> Response:
    """POST .../subscription: topics by their names or by a pattern."""
    body = await call.body()
    require_known(body, SUBSCRIPTION)
    topics, pattern = body.get("topics"), body.get("topic_pattern")
    if topics is not None and pattern is not None:
        raise exclusive()
    if topics is None and pattern is None:
        raise HttpError(422, "topics or topic_pattern is needed", INVALID_PAYLOAD)
    if pattern is not None and (not isinstance(pattern, str) or not pattern):
        raise HttpError(422, "topic_pattern is not a regular expression", INVALID_PAYLOAD)
    if topics is not None and (
        not isinstance(topics, list) or not topics or not all(isinstance(t, str) and t for t in topics)
    ):
        raise HttpError(422, "topics is not a list of names", INVALID_PAYLOAD)
    async with _using(call) as instance:
        await call.services.consuming.subscribe(instance, topics or [], pattern)
    return no_content()


async def subscription(call: ProxyCall) -> Response:
    """GET .../subscription: the subscribed topics."""
    async with _using(call) as instance:
        topics = list(instance.topics)
        if instance.pattern is not None:
            partitions = await call.services.consuming.assignment(instance)
            topics = sorted({place.topic for place in partitions})
    return json_answer({"topics": topics})


async def unsubscribe(call: ProxyCall) -> Response:
    """DELETE .../subscription."""
    async with _using(call) as instance:
        await call.services.consuming.unsubscribe(instance)
    return no_content()


async def assign(call: ProxyCall) -> Response:
    """POST .../assignments: assigns partitions by hand, whatever the rest of the group reads."""
    places = _places(await call.body(), "partitions")
    async with _using(call) as instance:
        await call.services.consuming.assign(instance, places)
    return no_content()


async def assignments(call: ProxyCall) -> Response:
    """GET .../assignments: the partitions assigned by hand."""
    async with _using(call) as instance:
        rows = [{"topic": place.topic, "partition": place.partition} for place in instance.assigned]
    return json_answer({"partitions": rows})


async def seek(call: ProxyCall) -> Response:
    """POST .../positions: sets the offsets of the next records."""
    places = _places(await call.body(), "offsets", with_offset=True)
    async with _using(call) as instance:
        await call.services.consuming.seek(instance, places)
    return no_content()


async def seek_beginning(call: ProxyCall) -> Response:
    """POST .../positions/beginning."""
    return await _seek_to(call, OFFSET_BEGINNING)


async def seek_end(call: ProxyCall) -> Response:
    """POST .../positions/end."""
    return await _seek_to(call, OFFSET_END)


async def _seek_to(call: ProxyCall, offset: int) -> Response:
    named = _places(await call.body(), "partitions")
    places = [TopicPartition(place.topic, place.partition, offset) for place in named]
    async with _using(call) as instance:
        await call.services.consuming.seek(instance, places)
    return no_content()


# --- records ------------------------------------------------------------------------------------------


async def records(call: ProxyCall) -> Response:
    """GET .../records: the next records, as soon as there are some."""
    limit_ms = int((call.services.request_s - MARGIN_S) * 1000)
    timeout_ms = call.number("timeout", -1)
    max_bytes = min(call.number("max_bytes", RESPONSE_BYTES_MAX), RESPONSE_BYTES_MAX)
    await call.request.body()  # after it, the only possible message is that the client has disconnected
    async with _using(call) as instance:
        media_type = _accepted(call, instance)

        async def make(fetched: Sequence[Any]) -> tuple[bytes, int]:
            known = await _schemas_of(call, instance, fetched)
            return await asyncio.to_thread(_write, instance.format, known, fetched)

        wait_ms = instance.timeout_ms if timeout_ms < 0 else timeout_ms
        body = await call.services.consuming.fetch(
            instance, max(min(wait_ms, limit_ms), 0), max(max_bytes, 1), call.request.is_disconnected, make
        )
    return Response(body, media_type=media_type)


def _accepted(call: ProxyCall, instance: Instance) -> str:
    """The media type of the answer. Raises HttpError 40601 if the client accepts only those of other instances, or 406."""
    accept = call.request.headers.get("accept")
    try:
        return negotiate(accept, (embedded(instance.format), *GENERAL))
    except HttpError:
        negotiate(accept, RECORDS)  # raises it for what no instance has
    raise HttpError(
        406,
        "The requested embedded data format does not match the deserializer for this consumer instance, which has "
        f"the format {instance.format}",
        FORMAT_MISMATCH,
    )


Named = dict[int | str, Known]
"""Schemas by id or GUID."""


async def _schemas_of(call: ProxyCall, instance: Instance, fetched: Sequence[Any]) -> Named:
    """The schemas that these records name. Raises HttpError."""
    if instance.format not in WITH_SCHEMA:
        return {}
    known: Named = {}
    schemas = call.services.schemas
    for record in fetched:
        for part, data in (("key", record.key()), ("value", record.value())):
            if data is None:
                continue
            try:
                name, _ = formats.schema_of(record, part)
            except Mismatch:
                continue  # `_write` reports it
            if name not in known:
                known[name] = await (schemas.by_id(name) if isinstance(name, int) else schemas.by_guid(name))
    return known


def _write(format: str, known: Named, fetched: Sequence[Any]) -> tuple[bytes, int]:
    """The answer's bytes, and how many records are in it: those before the first one that cannot be decoded.

    Raises HttpError 42203 if the very first one cannot be decoded.
    """
    rows = []
    for record in fetched:
        try:
            rows.append(
                {
                    "topic": record.topic(),
                    "key": _decode(format, known, record, "key"),
                    "value": _decode(format, known, record, "value"),
                    "partition": record.partition(),
                    "offset": record.offset(),
                }
            )
        except Mismatch as error:
            where = f"{record.topic()}-{record.partition()} offset {record.offset()}"
            if rows:
                break
            raise HttpError(
                422,
                f"{where} cannot be read as {format}: {error}; skip it with POST .../positions",
                CONVERSION_FAILED,
            ) from error
    return dump(rows), len(rows)


def _decode(format: str, known: Named, record: Any, part: str) -> Any:
    data = record.key() if part == "key" else record.value()
    if data is None:
        return None
    if format not in WITH_SCHEMA:
        return formats.decode_plain(format, data)
    name, payload = formats.schema_of(record, part)
    return mapped_value(known[name].codec, payload)


# --- offsets ------------------------------------------------------------------------------------------


async def commit(call: ProxyCall) -> Response:
    """POST .../offsets: commits that these records were processed, or all records read if the body is empty.

    As in Confluent's proxy, the offsets in the body are those of the last records; the group goes on after them.
    """
    body = await call.optional_body()
    places = (
        None
        if body is None or not body
        else _places(body, "offsets", with_offset=True, offset_max=OFFSET_MAX - 1)
    )
    for place in places or ():
        place.offset += 1
    async with _using(call) as instance:
        if places:
            await _require_partitions(call, places)
        await call.services.consuming.commit(instance, places)
    return json_answer([])


async def committed(call: ProxyCall) -> Response:
    """GET .../offsets: the committed offsets of the partitions in the body (or in the query as topic and partition)."""
    body = await call.optional_body()
    if body is None:
        query = call.request.query_params
        pairs = zip(query.getlist("topic"), query.getlist("partition"), strict=False)
        body = {"partitions": [{"topic": t, "partition": int(p)} for t, p in pairs if p.isdigit()]}
        if not body["partitions"]:
            raise HttpError(404, "Partition not found: the request names none.", PARTITION_NOT_FOUND)
    places = _places(body, "partitions")
    async with _using(call) as instance:
        await _require_partitions(call, places)
        offsets = await call.services.consuming.committed(instance, places)
    rows = [
        {"topic": p.topic, "partition": p.partition, "offset": p.offset, "metadata": p.metadata or ""}
        for p in offsets
        if p.offset >= 0
    ]
    return json_answer({"offsets": rows})


async def _require_partitions(call: ProxyCall, places: Sequence[TopicPartition]) -> None:
    """Raises HttpError 40402 if one of the partitions does not exist."""
    topics = await call.services.kafka.topics()
    there = {(topic.name, partition.number) for topic in topics.values() for partition in topic.partitions}
    for place in places:
        if (place.topic, place.partition) not in there:
            raise HttpError(404, f"Partition {place.topic}-{place.partition} not found.", PARTITION_NOT_FOUND)


def _places(
    body: dict[str, Any], name: str, *, with_offset: bool = False, offset_max: int = OFFSET_MAX
) -> list[TopicPartition]:
    """The partitions, with offsets if needed, in the list `name` of a body. Raises HttpError 422."""
    partitions = []
    require_known(body, frozenset({name}))
    for index, row in enumerate(require_list(body, name)):
        require_known(row, PLACE_WITH_OFFSET if with_offset else PLACE)
        topic = require_text(row, "topic")
        partition = as_number(row.get("partition"), f"{name}[{index}].partition")
        if with_offset:
            offset = as_number(row.get("offset"), f"{name}[{index}].offset", offset_max)
            metadata = row.get("metadata")
            if metadata is not None and not isinstance(metadata, str):
                raise HttpError(422, f"{name}[{index}].metadata must be a text", INVALID_PAYLOAD)
            partitions.append(TopicPartition(topic, partition, offset, metadata or ""))
        else:
            partitions.append(TopicPartition(topic, partition))
    return partitions


def _using(call: ProxyCall) -> Any:
    return call.services.consuming.using(call.part("group"), call.part("instance"))


BASE: Final = "/consumers/{group}/instances/{instance}"
ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", f"{BASE}/records", records),
    ("POST", f"{BASE}/offsets", commit),
    ("GET", f"{BASE}/offsets", committed),
    ("POST", "/consumers/{group}", create),
    ("POST", "/consumers/{group}/", create),
    ("DELETE", BASE, delete),
    ("POST", f"{BASE}/subscription", subscribe),
    ("GET", f"{BASE}/subscription", subscription),
    ("DELETE", f"{BASE}/subscription", unsubscribe),
    ("POST", f"{BASE}/assignments", assign),
    ("GET", f"{BASE}/assignments", assignments),
    ("POST", f"{BASE}/positions", seek),
    ("POST", f"{BASE}/positions/beginning", seek_beginning),
    ("POST", f"{BASE}/positions/end", seek_end),
)
