"""The "consumer" group protocol: what members of classic groups put into JoinGroup and SyncGroup.

Readers treat an unknown version like the newest one that they know; fields are only added at the end.
"""

from __future__ import annotations

from barnabas.wire.schema import Data, Struct, array, bytes_, int32, string

PROTOCOL_TYPE = "consumer"


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Data, versions=(0, 3), read_newer=True):
    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(null="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", null="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Data, versions=(0, 3), read_newer=True):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = bytes_(null="0+", default=None)
