"""Records of KRaft's `__cluster_metadata`: what `barnabas import` reads of them.

A record has no key. Its value is a frame: the frame's version (1), the kind and the layout's version, each an unsigned
varint, and the body. Kinds that are not here concern only Kafka's own brokers and controllers.
Source: Kafka's metadata/src/main/resources/common/metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from barnabas.wire.primitives import Buffer, UnsupportedVersion, WireError, decode_uvarint
from barnabas.wire.schema import (
    Data,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int32,
    int64,
    string,
    uuid,
)

FRAME_VERSION: Final = 1
UNCHANGED: Final = -2
"""In a change of a partition: its leader stays."""


class TopicRecord(Data, versions=(0, 0), flexible=0):
    name: str = string()
    topic_id: UUID = uuid()


class PartitionRecord(Data, versions=(0, 2), flexible=0):
    partition_id: int = int32()
    topic_id: UUID = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[UUID] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", null="2+", tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", null="2+", tag=2)


class ConfigRecord(Data, versions=(0, 0), flexible=0):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(null="0+")


class DelegationTokenRecord(Data, versions=(0, 0), flexible=0):
    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class RemoveDelegationTokenRecord(Data, versions=(0, 0), flexible=0):
    token_id: str = string()


class PartitionChangeRecord(Data, versions=(0, 2), flexible=0):
    partition_id: int = int32()
    topic_id: UUID = uuid()
    isr: list[int] | None = array(int32, null="0+", tag=0)
    leader: int = int32(default=UNCHANGED, tag=1)
    replicas: list[int] | None = array(int32, null="0+", tag=2)
    removing_replicas: list[int] | None = array(int32, null="0+", tag=3)
    adding_replicas: list[int] | None = array(int32, null="0+", tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", null="2+", tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", null="2+", tag=7)
    directories: list[UUID] | None = array(uuid, "1+", null="1+", tag=8)


class RemoveTopicRecord(Data, versions=(0, 0), flexible=0):
    topic_id: UUID = uuid()


class UserScramCredentialRecord(Data, versions=(0, 0), flexible=0):
    name: str = string()
    mechanism: int = int8()
    salt: bytes = bytes_()
    stored_key: bytes = bytes_()
    server_key: bytes = bytes_()
    iterations: int = int32()


class RemoveUserScramCredentialRecord(Data, versions=(0, 0), flexible=0):
    name: str = string()
    mechanism: int = int8()


class QuotaEntity(Struct):
    entity_type: str = string()
    entity_name: str | None = string(null="0+")


class ClientQuotaRecord(Data, versions=(0, 0), flexible=0):
    entity: list[QuotaEntity] = array(QuotaEntity)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Data, versions=(0, 0), flexible=0):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class AccessControlEntryRecord(Data, versions=(0, 0), flexible=0):
    id: UUID = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Data, versions=(0, 0), flexible=0):
    id: UUID = uuid()


class BeginTransactionRecord(Data, versions=(0, 0), flexible=0):
    name: str | None = string(null="0+", tag=0)


class EndTransactionRecord(Data, versions=(0, 0), flexible=0):
    """Has no fields."""


class AbortTransactionRecord(Data, versions=(0, 0), flexible=0):
    reason: str | None = string(null="0+", tag=0)


KINDS: Final[Mapping[int, type[Data]]] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
}


def decode_metadata(value: Buffer) -> Data | None:
    """The record in a value; None for a kind that is not here. Raises WireError."""
    frame, position = decode_uvarint(value, 0)
    if frame != FRAME_VERSION:
        raise UnsupportedVersion(f"a metadata record has frame version {frame}, known is {FRAME_VERSION}")
    kind, position = decode_uvarint(value, position)
    version, position = decode_uvarint(value, position)
    known = KINDS.get(kind)
    if known is None:
        return None
    try:
        return known.decode(value, version, position)
    except UnsupportedVersion as error:
        raise WireError(f"a metadata record of kind {kind} has version {version}: {error}") from error
