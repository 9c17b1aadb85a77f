"""Answers made comparable: what must differ from broker to broker is taken out, the rest is plain data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas.wire.schema import Struct

DROPPED: Final = frozenset({
    "throttle_time_ms", "host", "port", "cluster_id", "partition_size", "total_bytes", "usable_bytes", "log_dir",
    "documentation", "finalized_features_epoch", "supported_features", "finalized_features", "api_keys",
    "replica_directory_id",
    "node_endpoints", "cordoned_log_dirs", "is_cordoned",
})  # fmt: skip
SIGN_ONLY: Final = frozenset({
    "session_id", "producer_id", "log_append_time_ms", "timestamp", "controller_id", "heartbeat_interval_ms",
    "session_timeout_ms", "acquisition_lock_timeout_ms", "push_interval_ms", "subscription_id",
})  # fmt: skip
IDENTITY: Final = (
    "name", "topic", "topic_name", "group_id", "key", "resource_type", "resource_name", "partition_index", "partition_id",
    "partition", "index", "broker_id", "node_id", "member_id", "topic_id",
)  # fmt: skip
GENERATED: Final = re.compile(r"^(.*-)?[0-9a-f]{8}-[0-9a-f]{4}-|^[A-Za-z0-9_-]{22}$")


class Difference(NamedTuple):
    """path: fields of the answer, `each` for elements of lists. Values are JSON texts; "absent" where there is none."""

    path: str
    kafka: str
    ours: str


def plain(value: Any, name: str = "") -> Any:
    """An answer (or a part of it) as comparable data."""
    if isinstance(value, Struct):
        fields = {key: getattr(value, key) for key in value.FIELDS}
        return {key: plain(field, key) for key, field in fields.items() if key not in DROPPED}
    if isinstance(value, list):
        return sorted(
            (plain(item, name) for item in value), key=lambda item: json.dumps(item, sort_keys=True)
        )
    if isinstance(value, UUID):
        return "zero id" if value.int == 0 else "an id"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if name in SIGN_ONLY and isinstance(value, int):
        return (value > 0) - (value < 0)
    if isinstance(value, str):
        if name.endswith("message"):
            return "a text" if value else ""
        if GENERATED.match(value):
            return "generated"
    return int(value) if isinstance(value, int) else value


def differences(kafka: Any, ours: Any, path: str = "") -> Iterator[Difference]:
    """Where two answers differ."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in kafka:
            yield from differences(kafka[key], ours.get(key), f"{path}.{key}" if path else key)
    elif isinstance(kafka, list) and isinstance(ours, list):
        if _is_options(kafka) or _is_options(ours):
            kafka, ours = _in_common(kafka, ours)
        if len(kafka) != len(ours):
            yield Difference(f"{path}.length", str(len(kafka)), str(len(ours)))
            return
        for theirs, own in _pairs(kafka, ours):
            yield from differences(theirs, own, f"{path}.each")
    elif kafka != ours:
        yield Difference(path, json.dumps(kafka), json.dumps(ours))


def _pairs(kafka: list[Any], ours: list[Any]) -> list[tuple[Any, Any]]:
    """Rows that are about the same thing side by side; where that cannot be told, in sorted order."""
    theirs = {_identity(row): row for row in kafka}
    own = {_identity(row): row for row in ours}
    if len(theirs) == len(kafka) and theirs.keys() == own.keys():
        return [(row, own[identity]) for identity, row in theirs.items()]
    return list(zip(kafka, ours, strict=True))


def _identity(row: Any) -> str:
    named = {key: row[key] for key in IDENTITY if key in row} if isinstance(row, dict) else row
    return json.dumps(named)


def _is_options(items: list[Any]) -> bool:
    return bool(items) and isinstance(items[0], dict) and "read_only" in items[0] | {"is_default": 0}


def _in_common(kafka: list[Any], ours: list[Any]) -> tuple[list[Any], list[Any]]:
    """The options that both know: which there are is compared elsewhere (docs/configuration.md)."""
    both = {option["name"] for option in kafka} & {option["name"] for option in ours}
    return [o for o in kafka if o["name"] in both], [o for o in ours if o["name"] in both]
