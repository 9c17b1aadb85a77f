"""Values for the fields of requests: plausible ones, and odd ones that a client may legally send."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from barnabas.records.batch import Record, build_batch
from barnabas.wire.schema import UNSET, Field, Struct

PLAIN: Final = "diff-plain"
COMPACT: Final = "diff-compact"
GROUP: Final = "diff-group"
LONG: Final = "x" * 250
MAX32: Final = (1 << 31) - 1
MAX64: Final = (1 << 63) - 1
NOWHERE: Final = UUID(int=0x1234)
ZERO: Final = UUID(int=0)

TOPICS: Final = (PLAIN, PLAIN, COMPACT, "absent", "", "bad name!", LONG, "__consumer_offsets", ".")
GROUPS: Final = (GROUP, GROUP, "absent-group", "")
STRINGS: Final[dict[str, Sequence[str]]] = {
    "topic": TOPICS,
    "topics": TOPICS,
    "topic_name": TOPICS,
    "topic_names": TOPICS,
    "subscribed_topic_names": (PLAIN, "absent", ""),
    "subscribed_topic_regex": ("diff-.*", "(", ""),
    "group_id": GROUPS,
    "groups": GROUPS,
    "group_ids": GROUPS,
    "groups_names": GROUPS,
    "key": GROUPS,
    "coordinator_keys": GROUPS,
    "member_id": ("", "nobody", LONG),
    "group_instance_id": ("", "static"),
    "protocol_type": ("consumer", "", "connect"),
    "protocol_name": ("range", "", "roundrobin"),
    "resource_name": (PLAIN, "absent", "1", "", "77", GROUP, "bad name!"),
    "states_filter": ("Stable", "Empty", "nonsense", ""),
    "types_filter": ("classic", "consumer", "nonsense", ""),
    "configuration_keys": ("retention.ms", "nonsense", "", "cleanup.policy"),
    "server_assignor": ("uniform", "range", "nonsense", ""),
    "entity_type": ("user", "client-id", "ip", "nonsense", ""),
    "entity_name": ("somebody", "", "127.0.0.1"),
    "client_software_name": ("test", "", "bad name!"),
    "client_software_version": ("1.0", "", "bad version!"),
    "transactional_id": ("",),
    "reason": ("because",),
    "rack_id": ("",),
    "metadata": ("", "note"),
    "committed_metadata": ("", "note", "x" * 5000),
    "path": ("", "/nowhere"),
    "principal": ("User:somebody", "", "nobody"),
    "host": ("*", "", "127.0.0.1"),
}
NUMBERS: Final[dict[str, Sequence[int]]] = {
    "partition": (0, 0, 1, 5, -1, MAX32),
    "partition_index": (0, 0, 1, 5, -1, MAX32),
    "partition_indexes": (0, 1, 5, -1),
    "partition_id": (0, 1, 5, -1),
    "index": (0, 0, 1, 5, -1),
    "acks": (-1, 0, 1, 2, -2),
    "timeout_ms": (2000,),
    "max_wait_ms": (0, 10),
    "min_bytes": (0, 1, -1),
    "max_bytes": (1 << 20, 0, 1, MAX32),
    "partition_max_bytes": (1 << 20, 0, 1, -1),
    "fetch_offset": (0, 1, 3, 4, 100, -1, -2),
    "offset": (0, 1, 3, 4, 100, -1, -2, MAX64),
    "committed_offset": (0, 1, -1, MAX64),
    "committed_leader_epoch": (-1, 0, 7),
    "commit_timestamp": (-1,),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1, MAX64),
    "current_leader_epoch": (-1, -1, 0, 5),
    "leader_epoch": (0, -1, 5),
    "last_fetched_epoch": (-1, -1, 0, 5),
    "isolation_level": (0, 1, 2, -1),
    "replica_id": (-1, -1, -2, 1),
    "session_id": (0, 0, 12345),
    "session_epoch": (-1, 0, 1),
    "resource_type": (2, 2, 4, 8, 16, 32, 0, 1, 3, 127),
    "num_partitions": (1, 2, 0, -1, -2),
    "replication_factor": (1, 0, -1, -2, 2),
    "count": (3, 2, 1, 0, -1, 50),
    "broker_ids": (1, 1, 99, -1),
    "replicas": (1, 1, 99, -1),
    "election_type": (0, 1, 5, -1),
    "key_type": (0, 0, 1, 2, 5, -1),
    "session_timeout_ms": (10_000, 1, 0, -1, MAX32),
    "rebalance_timeout_ms": (10_000, -1, 0),
    "retention_time_ms": (-1, 1000, MAX64),
    "generation_id": (-1, 0, 1),
    "generation_id_or_member_epoch": (-1, 0, 1),
    "member_epoch": (0, -1, 5, -2),
    "producer_id": (-1, 5),
    "producer_epoch": (-1, 3),
    "transaction_timeout_ms": (1000, 0, -1, MAX32),
    "config_operation": (0, 1, 2, 3, 9),
    "response_partition_limit": (2000, 1, 0, -1),
    "match_type": (0, 1, 2, 9),
    "state_batches": (0,),
}
CONFIGS: Final = (
    ("retention.ms", "1000"),
    ("retention.ms", "x"),
    ("retention.ms", "-5"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", ""),
    ("max.message.bytes", "100000"),
    ("nonsense", "1"),
    ("", "1"),
    ("segment.bytes", "1"),
    ("compression.type", "zstd"),
    ("compression.type", "nonsense"),
    ("message.downconversion.enable", "true"),
)


class Source:
    """Makes the fields of one request from one seed; `own` replaces the plain topic where requests change things."""

    def __init__(self, rng: random.Random, ids: dict[str, UUID], own: str | None) -> None:
        self._rng = rng
        self._ids = ids
        self._own = own

    def make(self, cls: type[Struct], version: int) -> Any:
        """An instance of a request or of a struct in it."""
        values: dict[str, Any] = {}
        for name, field in cls.FIELDS.items():
            if field.exists_in(version):
                values[name] = self._value(cls, name, field, version)
        if "value" in values and "name" in values and self._rng.random() < 0.9:
            values["name"], values["value"] = self._rng.choice(CONFIGS)
        return cls(**values)

    def _value(self, cls: type[Struct], name: str, field: Field, version: int) -> Any:
        rng = self._rng
        if field.nullable_in(version) and rng.random() < 0.15:
            return None
        if field.tag is not None and rng.random() < 0.7 and field.default is not UNSET:
            return field.default
        if field.kind == "array":
            return self._array(cls, name, field, version)
        if field.kind == "struct":
            return self.make(field.element, version) if field.element else None
        return self._plain(cls, name, field.kind)

    def _array(self, cls: type[Struct], name: str, field: Field, version: int) -> list[Any]:
        rng = self._rng
        items = [
            self._plain(cls, name, field.element)
            if isinstance(field.element, str)
            else self.make(field.element, version)
            for _ in range(rng.choice((0, 1, 1, 1, 2)))
        ]
        if items and rng.random() < 0.1:
            items.append(items[0])  # the same again
        return items

    def _plain(self, cls: type[Struct], name: str, kind: str) -> Any:
        rng = self._rng
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "uuid":
            return rng.choice((*self._ids.values(), NOWHERE, ZERO))
        if kind == "float64":
            return rng.choice((1000.0, 0.0, -1.0))
        if kind == "records":
            stamp = int(time.time() * 1000) // 3_600_000 * 3_600_000
            return build_batch([Record(0, stamp, b"k", b"v")] * rng.choice((1, 1, 3)))
        if kind == "bytes":
            return rng.choice((b"", b"\0\0\0\0\0\0\0\0\0\0", b"abc"))
        if kind == "string":
            return self._text(cls, name)
        return rng.choice(NUMBERS.get(name, (0, 1, -1)))

    def _text(self, cls: type[Struct], name: str) -> str:
        choices = STRINGS.get(name)
        if choices is None and name in ("name", "names"):
            choices = GROUPS if "Group" in cls.__name__ else TOPICS
        text = self._rng.choice(choices or ("", "text"))
        return self._own if self._own is not None and text == PLAIN else text
