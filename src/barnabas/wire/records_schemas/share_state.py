"""Records of __share_group_state: delivery state of share partitions (KIP-932)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from barnabas.wire.primitives import Buffer
from barnabas.wire.records_schemas import RecordTypes, decode_record
from barnabas.wire.schema import Data, Struct, array, int8, int16, int32, int64, string, uuid


class ShareSnapshotKey(Data, versions=(0, 0)):
    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Data, versions=(0, 0), flexible=0):
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(Data, versions=(1, 1)):
    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


class ShareUpdateValue(Data, versions=(0, 0), flexible=0):
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch)


SHARE_STATE_RECORDS: Final[RecordTypes] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}


def decode_share_state_record(key: Buffer, value: Buffer | None) -> tuple[Data, Data | None]:
    """Key and value of a record of __share_group_state. Errors as `decode_record`."""
    return decode_record(SHARE_STATE_RECORDS, key, value)
