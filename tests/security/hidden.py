"""Requests that name what must stay hidden, made from the declarations of the messages, and the error codes of answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from barnabas.wire.errors import ErrorCode
from barnabas.wire.fields import Field
from barnabas.wire.schema import Struct

TOPIC, GROUP, TXN = "hidden-topic", "hidden-group", "hidden-txn"
REFUSED = {
    int(code)
    for code in ErrorCode
    if code.name.endswith("_AUTHORIZATION_FAILED") or code.name in ("UNKNOWN_TOPIC_ID",)
}


def samples(kind: type[Struct], version: int, topic_id: UUID) -> dict[str, Any]:
    """Values for all fields that exist in a version: they name what must stay hidden."""
    return {
        name: _value(name, field, version, topic_id)
        for name, field in kind.FIELDS.items()
        if field.exists_in(version)
    }


NAMES = {"group_id": GROUP, "groups_names": GROUP, "group_ids": GROUP, "transactional_id": TXN, "key": GROUP,
         "transactional_ids": TXN, "v3_and_below_transactional_id": TXN, "coordinator_keys": GROUP, "groups": GROUP,
         "assignor": "range", "client_software_name": "test", "client_software_version": "1", "mechanism": "PLAIN",
         "principal": "User:alice", "principal_filter": "User:alice", "entity_type": "user", "host": "*",
         "member_id": "m", "user": "alice", "protocol_type": "consumer", "path": "/nowhere"}  # fmt: skip
NUMBERS = {"resource_type": 2, "resource_type_filter": 2, "operation": 3, "permission_type": 3, "acks": 1, "max_wait_ms": 0,
           "replication_factor": 1, "num_partitions": 1, "count": 2, "session_epoch": -1, "replica_id": -1, "timestamp": -2,
           "partition_max_bytes": 1000, "max_bytes": 10_000, "iterations": 4096, "mechanism": 1, "epoch": 0,
           "pattern_type_filter": 3, "resource_pattern_type": 3, "session_timeout_ms": 10_000, "max_records": 1,
           "endpoint_type": 1, "share_session_epoch": 0, "max_num_offsets": 1, "producer_id": -1, "producer_epoch": -1,
           "timeout_ms": 1000, "current_leader_epoch": -1, "leader_epoch": 0}  # fmt: skip


def _value(name: str, field: Field, version: int, topic_id: UUID) -> Any:
    if field.kind == "array":
        if name == "forgotten_topics_data" or name == "cluster_id":
            return []
        if isinstance(field.element, type):
            return [field.element(**samples(field.element, version, topic_id))]
        return [_primitive(name, field.element, topic_id)]
    if field.kind == "struct":
        if field.nullable_in(version) or field.tag is not None:
            return field.default if not isinstance(field.default, type) else None
        return field.element(**samples(field.element, version, topic_id))
    if field.tag is not None:
        return field.default
    return _primitive(name, field.kind, topic_id)


def _primitive(name: str, kind: str, topic_id: UUID) -> Any:
    if kind == "string":
        return NAMES.get(name, TOPIC)
    if kind == "uuid":
        return topic_id if name == "topic_id" else UUID(int=7)
    if kind in ("bytes", "record_bytes", "records"):
        return b""
    if kind == "bool":
        return False
    if kind.startswith("float"):
        return 1.0
    return NUMBERS.get(name, 0)


def codes(part: object) -> Iterator[int]:
    """Every error code in an answer."""
    if isinstance(part, list):
        for row in part:
            yield from codes(row)
    elif isinstance(part, Struct):
        for name in part.FIELDS:
            value = getattr(part, name)
            if name.endswith("error_code"):
                yield int(value)
            elif isinstance(value, list | Struct):
                yield from codes(value)
