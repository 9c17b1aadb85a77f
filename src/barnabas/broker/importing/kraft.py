"""The metadata of a cluster in KRaft mode: the newest checkpoint of `__cluster_metadata-0`, and the log behind it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from barnabas.broker.importing.metadata import CannotImport, KnownTopic, Metadata
from barnabas.cores import znode_layout as layout
from barnabas.cores.acl import Operation, Pattern, Permission, Resource, ResourceType, Rule
from barnabas.cores.quota_entities import entity_config
from barnabas.cores.tokens import Token
from barnabas.records.batch import CorruptBatch
from barnabas.storage.files import LogFile
from barnabas.storage.formats import Damaged, records_in, verify
from barnabas.storage.scan import scan
from barnabas.wire.errors import ApiError
from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas import cluster_metadata as kinds
from barnabas.wire.schema import Data

FOLDER: Final = "__cluster_metadata-0"
SNAPSHOT_SUFFIX: Final = ".checkpoint"
SCRAM: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
CONFIG_KINDS: Final = {2: "topics", 4: "brokers", 16: "client-metrics", 32: "groups"}


class Replay:
    """Applies metadata records in order. The records of a transaction count when it ends."""

    def __init__(self, source: str) -> None:
        self.metadata = Metadata(source)
        self._names: dict[UUID, str] = {}
        self._rules: dict[UUID, tuple[Resource, Rule]] = {}
        self._open: list[Data] | None = None

    def apply(self, record: Data) -> None:
        if isinstance(record, kinds.BeginTransactionRecord):
            self._open = []
        elif isinstance(record, kinds.AbortTransactionRecord):
            self._open = None
        elif isinstance(record, kinds.EndTransactionRecord):
            ended, self._open = self._open or [], None
            for one in ended:
                self.apply(one)
        elif self._open is not None:
            self._open.append(record)
        else:
            APPLY[type(record)](self, record)

    def finish(self) -> Metadata:
        for resource, rule in self._rules.values():
            self.metadata.rules.setdefault(resource, set()).add(rule)
        return self.metadata

    def topic(self, record: kinds.TopicRecord) -> None:
        self._names[record.topic_id] = record.name
        self.metadata.topics[record.name] = KnownTopic(record.topic_id)

    def topic_removed(self, record: kinds.RemoveTopicRecord) -> None:
        name = self._names.pop(record.topic_id, None)
        if name is not None:
            self.metadata.topics.pop(name, None)
            self.metadata.configs.pop(("topics", name), None)

    def partition(self, record: kinds.PartitionRecord) -> None:
        known = self._topic(record.topic_id)
        known.leaders[record.partition_id] = record.leader
        known.epochs[record.partition_id] = record.leader_epoch
        known.in_sync[record.partition_id] = tuple(record.isr)

    def partition_changed(self, record: kinds.PartitionChangeRecord) -> None:
        known = self._topic(record.topic_id)
        if (
            record.isr
        ):  # with eligible leader replicas (Kafka 4.1), the set is empty after the last one's orderly stop
            known.in_sync[record.partition_id] = tuple(record.isr)
        if (
            record.leader != kinds.UNCHANGED
        ):  # a change that names a leader, even the same one, raises its epoch
            known.leaders[record.partition_id] = record.leader
            known.epochs[record.partition_id] = known.epochs.get(record.partition_id, -1) + 1

    def _topic(self, topic_id: UUID) -> KnownTopic:
        name = self._names.get(topic_id)
        if name is None:
            raise CannotImport(f"{self.metadata.source}: a partition of topic {topic_id}, which is not there")
        return self.metadata.topics[name]

    def config(self, record: kinds.ConfigRecord) -> None:
        kind = CONFIG_KINDS.get(record.resource_type)
        if kind is None:
            return
        name = record.resource_name
        if kind == "brokers" and not name:
            name = layout.DEFAULT_ENTITY
        self.metadata.set_config((kind, name), record.name, record.value)

    def user(self, record: kinds.UserScramCredentialRecord) -> None:
        def text(data: bytes) -> str:
            return base64.b64encode(data).decode()

        credential = (
            f"salt={text(record.salt)},stored_key={text(record.stored_key)},"
            f"server_key={text(record.server_key)},iterations={record.iterations}"
        )
        self._set_user(record.name, record.mechanism, credential)

    def user_removed(self, record: kinds.RemoveUserScramCredentialRecord) -> None:
        self._set_user(record.name, record.mechanism, None)

    def _set_user(self, name: str, mechanism: int, credential: str | None) -> None:
        if mechanism in SCRAM:
            self.metadata.set_config(("users", layout.sanitize(name)), SCRAM[mechanism], credential)

    def quota(self, record: kinds.ClientQuotaRecord) -> None:
        try:
            key = entity_config({row.entity_type: row.entity_name for row in record.entity})
        except ApiError as error:
            raise CannotImport(f"{self.metadata.source}: a quota of an unknown entity: {error}") from error
        self.metadata.set_config(key, record.key, None if record.remove else _number(record.value))

    def producer_ids(self, record: kinds.ProducerIdsRecord) -> None:
        self.metadata.next_producer_id = max(self.metadata.next_producer_id, record.next_producer_id)

    def token(self, record: kinds.DelegationTokenRecord) -> None:
        self.metadata.tokens[record.token_id] = Token(
            id=record.token_id,
            owner=record.owner,
            requester=record.requester,
            renewers=tuple(record.renewers),
            issued_ms=record.issue_timestamp,
            max_ms=record.max_timestamp,
            expiry_ms=record.expiration_timestamp,
        )

    def token_removed(self, record: kinds.RemoveDelegationTokenRecord) -> None:
        self.metadata.tokens.pop(record.token_id, None)

    def rule(self, record: kinds.AccessControlEntryRecord) -> None:
        try:
            resource = Resource(
                ResourceType(record.resource_type), Pattern(record.pattern_type), record.resource_name
            )
            permission = Permission(record.permission_type)
            rule = Rule(record.principal, record.host, Operation(record.operation), permission)
        except ValueError as error:  # a rule that is left out could let somebody in, or keep everybody out
            raise CannotImport(f"{self.metadata.source}: an access rule that is not known: {error}") from None
        self._rules[record.id] = (resource, rule)

    def rule_removed(self, record: kinds.RemoveAccessControlEntryRecord) -> None:
        self._rules.pop(record.id, None)


APPLY: Final[dict[type[Data], Callable[..., None]]] = {
    kinds.TopicRecord: Replay.topic,
    kinds.RemoveTopicRecord: Replay.topic_removed,
    kinds.PartitionRecord: Replay.partition,
    kinds.PartitionChangeRecord: Replay.partition_changed,
    kinds.ConfigRecord: Replay.config,
    kinds.DelegationTokenRecord: Replay.token,
    kinds.RemoveDelegationTokenRecord: Replay.token_removed,
    kinds.UserScramCredentialRecord: Replay.user,
    kinds.RemoveUserScramCredentialRecord: Replay.user_removed,
    kinds.ClientQuotaRecord: Replay.quota,
    kinds.ProducerIdsRecord: Replay.producer_ids,
    kinds.AccessControlEntryRecord: Replay.rule,
    kinds.RemoveAccessControlEntryRecord: Replay.rule_removed,
}


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def read(folder: Path) -> Metadata:
    """The metadata in a folder `__cluster_metadata-0`. Raises CannotImport, OSError."""
    replay = Replay(str(folder))
    begin = 0
    snapshots = sorted(folder.glob(f"*{SNAPSHOT_SUFFIX}"))
    if snapshots:
        begin = int(snapshots[-1].name.partition("-")[0])
        for _, value in _values(snapshots[-1]):
            _apply(replay, snapshots[-1], value)
    for segment in sorted(folder.glob("*.log")):
        for offset, value in _values(segment):
            if offset >= begin:
                _apply(replay, segment, value)
    return replay.finish()


def _apply(replay: Replay, file: Path, value: bytes) -> None:
    try:
        record = kinds.decode_metadata(value)
    except WireError as error:
        raise CannotImport(f"{file}: {error}") from error
    if record is not None:
        replay.apply(record)


def _values(file: Path) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of the records in a segment or a checkpoint, without control records."""
    opened = LogFile(str(file), write=False)
    try:
        for _, view in scan(opened, 0, file.stat().st_size):
            header = verify(view)
            if not header.is_control:
                yield from (
                    (record.offset, bytes(record.value))
                    for record in records_in(view, header)
                    if record.value is not None
                )
    except (Damaged, CorruptBatch) as error:
        raise CannotImport(f"{file} is damaged: {error}") from error
