"""Offsets of connectors, read and set by users. Source: KIP-875."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from barnabas.admin import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.connect.connectors import SourceConnector
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.plugins import SOURCE
from barnabas.connect.records import Json
from barnabas.connect.worker import formats
from barnabas.connect.worker.board import Deployed
from barnabas.connect.worker.formats import Target, TaskId
from barnabas.connect.worker.planning import Loaded, load
from barnabas.connect.worker.requests import Requests, kind_of
from barnabas.connect.worker.sink import group_of
from barnabas.http.errors import HttpError
from barnabas.wire.errors import ErrorCode

ALTERED: Final = "The offsets for this connector have been altered successfully"
RESET: Final = "The offsets for this connector have been reset successfully"
NO_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND,)
TRANSACTION_S: Final = 30.0
TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"

Rows = Sequence[tuple[Json, Json | None]]


def read_offsets(requests: Requests, name: str) -> dict[str, Any]:
    """ConnectorOffsets. Raises HttpError."""
    row = requests.deployed(name)
    if kind_of(row.config) == SOURCE:
        requests.services.logs.read_to_end([requests.services.options.offset_topic])
        offsets = requests.board.offsets(name)
        return {"offsets": [{"partition": partition, "offset": offset} for partition, offset in offsets]}
    loaded = _loaded(requests, row)
    group = group_of(name, loaded.config)
    try:
        places = requests.services.admin.groups.offsets([group])[group]
    except ClientError as error:
        if getattr(error, "code", 0) not in NO_GROUP:
            raise HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, f"offsets cannot be read: {error}") from error
        places = {}
    return {
        "offsets": [
            {
                "partition": {PARTITION: place.partition, TOPIC: place.topic},
                "offset": {OFFSET: committed.offset},
            }
            for place, committed in sorted(
                places.items(), key=lambda pair: (pair[0].topic, pair[0].partition)
            )
        ]
    }


def _loaded(requests: Requests, row: Deployed) -> Loaded:
    try:
        return load(requests.services.options, row.config)
    except OptionError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error


def _stopped(requests: Requests, name: str) -> Deployed:
    """Raises HttpError 400 unless the connector is stopped, and its tasks have ended."""
    row = requests.deployed(name)
    if row.target is not Target.STOPPED or row.tasks:
        raise HttpError(
            HTTPStatus.BAD_REQUEST,
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            f"specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
        )
    requests.herder.halt(lambda task: task.connector == name)
    return row


def alter_offsets(requests: Requests, name: str, body: Mapping[str, Any]) -> dict[str, str]:
    """Sets offsets; null removes one. Raises HttpError."""
    rows = _rows(body)
    row = _stopped(requests, name)
    loaded = _loaded(requests, row)
    if loaded.is_source:
        _alter_source(requests, name, loaded, rows)
    else:
        _alter_sink(requests, name, loaded, rows)
    return {"message": ALTERED}


def reset_offsets(requests: Requests, name: str) -> dict[str, str]:
    """Removes all offsets. Raises HttpError."""
    row = _stopped(requests, name)
    loaded = _loaded(requests, row)
    if loaded.is_source:
        _alter_source(
            requests, name, loaded, [(partition, None) for partition, _ in requests.board.offsets(name)]
        )
        return {"message": RESET}
    try:
        requests.services.admin.groups.delete([group_of(name, loaded.config)]).except_for(*NO_GROUP).require()
    except ClientError as error:
        raise _group_error(name, error) from error
    return {"message": RESET}


def _group_error(name: str, error: ClientError) -> HttpError:
    return HttpError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        f"The consumer group of {name} cannot be changed: {error}. If its tasks have just been stopped, try again.",
    )


def _rows(body: Mapping[str, Any]) -> Rows:
    entries = body.get("offsets")
    if not isinstance(entries, list) or not entries:
        raise HttpError(
            HTTPStatus.BAD_REQUEST,
            "Partitions / offsets need to be provided for an alter offsets request",
        )
    rows: list[tuple[Json, Json | None]] = []
    for entry in entries:
        partition = entry.get("partition") if isinstance(entry, dict) else None
        offset = entry.get("offset") if isinstance(entry, dict) else None
        if not isinstance(partition, dict) or not (offset is None or isinstance(offset, dict)):
            raise HttpError(
                HTTPStatus.BAD_REQUEST,
                'each of offsets must be {"partition": {...}, "offset": {...} or null}',
            )
        rows.append((partition, offset))
    return rows


def _alter_source(requests: Requests, name: str, loaded: Loaded, rows: Rows) -> None:
    services = requests.services
    assert issubclass(loaded.kind, SourceConnector)
    try:
        loaded.kind.check_offsets(loaded.config, rows)
    except ConnectError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
    fenced = requests.board.fencing(name)
    ids = [services.transactional_id(TaskId(name, number)) for number in range(fenced)]
    try:
        if ids:
            services.admin.transactions.fence(ids).require()
        producer = Producer(
            services.options.clients("producer", {"transactional.id": f"{services.options.group}-{name}"})
        )
        producer.init_transactions(TRANSACTION_S)
        producer.begin_transaction()
        for partition, offset in rows:
            key = services.board.offset_key(name, partition)
            value = None if offset is None else formats.dump(offset)
            producer.produce(services.options.offset_topic, value, key)
        producer.commit_transaction(TRANSACTION_S)
    except (ClientError, KafkaException) as error:
        raise HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, f"offsets cannot be written: {error}") from error
    services.logs.read_to_end([services.options.offset_topic])


def _alter_sink(requests: Requests, name: str, loaded: Loaded, rows: Rows) -> None:
    group, groups = group_of(name, loaded.config), requests.services.admin.groups
    wanted, removed = {}, []
    for partition, offset in rows:
        place = _place(partition)
        if offset is None:
            removed.append(place)
            continue
        try:
            number = int(str(offset[OFFSET]))
            if number < 0:
                raise ValueError
        except (KeyError, ValueError):
            raise HttpError(
                HTTPStatus.BAD_REQUEST,
                f"'{OFFSET}' must be a number from 0 on, but the offset is {dict(offset)}",
            ) from None
        wanted[place] = number
    try:
        if wanted:
            groups.alter_offsets(group, wanted).require()
        if removed:
            groups.delete_offsets(group, removed).require()
    except ClientError as error:
        raise _group_error(name, error) from error


def _place(partition: Json) -> TopicPartition:
    try:
        return TopicPartition(str(partition[TOPIC]), int(str(partition[PARTITION])))
    except (KeyError, ValueError):
        raise HttpError(
            HTTPStatus.BAD_REQUEST,
            f"The partition for a sink connector offset must have the keys '{TOPIC}' and '{PARTITION}', but is "
            f"{dict(partition)}",
        ) from None
