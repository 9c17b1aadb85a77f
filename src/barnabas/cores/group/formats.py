"""Keys and values of the offsets topic, in Kafka's formats: classic groups and committed offsets.

The int16 before a key tells its kind, the int16 before a value its version.
Source: Kafka's OffsetCommitKey/Value and GroupMetadataKey/Value message definitions.
"""

from __future__ import annotations

from typing import Final

from barnabas.wire.schema import Data, Struct, array, bytes_, int32, int64, string

OFFSET_COMMIT_KINDS: Final = (0, 1)  # two kinds with the same fields; 1 is written
GROUP_METADATA_KIND: Final = 2


class OffsetCommitKey(Data, versions=(0, 1)):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Data, versions=(0, 4), flexible=4):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)


class GroupMetadataKey(Data, versions=(2, 2)):
    group: str = string()


class GroupMetadataMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(Data, versions=(0, 4), flexible=4):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(null="0+", default=None)
    leader: str | None = string(null="0+", default=None)
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)
