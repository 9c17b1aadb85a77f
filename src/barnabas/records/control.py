"""Control records: the markers that end a transaction in a partition's log.

A marker is a batch of its own, control and transactional, with one record:
key   = version int16, type int16 (0 abort, 1 commit)
value = version int16, coordinator epoch int32
Source: Kafka's ControlRecordType and EndTransactionMarker.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.records.batch import NO_SEQUENCE, BatchHeader, CorruptBatch, Record, build_batch, records_of
from barnabas.records.units import CoordinatorEpoch, ProducerEpoch

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class ControlType(IntEnum):
    """The type of a control record. The KRaft types are only known in order to skip them."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class EndTransactionMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that ended it."""

    commit: bool
    coordinator_epoch: CoordinatorEpoch


def control_type(record: Record) -> ControlType:
    """The type of a control batch's record. Raises CorruptBatch for a key that is too short."""
    key = record.key
    if key is None or len(key) < 4:
        raise CorruptBatch(f"the control record at offset {record.offset} has no type in its key")
    number = _KEY.unpack_from(key)[1]
    return ControlType(number) if number in ControlType.__members__.values() else ControlType.UNKNOWN


def read_marker(record: Record) -> EndTransactionMarker | None:
    """The end of a transaction in `record` of a control batch; None for records of other types.

    Raises CorruptBatch.
    """
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    value = record.value
    if value is None or len(value) < 6:
        raise CorruptBatch(f"the transaction marker at offset {record.offset} has no coordinator epoch")
    return EndTransactionMarker(kind == ControlType.COMMIT, _VALUE.unpack_from(value)[1])


def marker_of(records: bytes | bytearray | memoryview, header: BatchHeader) -> EndTransactionMarker | None:
    """The end of a transaction in a control batch; None for other control records and for an emptied batch."""
    for record in records_of(records, 0, header):
        return read_marker(record)
    return None


def build_marker(
    *,
    commit: bool,
    coordinator_epoch: CoordinatorEpoch,
    producer_id: int,
    producer_epoch: ProducerEpoch,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The batch that ends a producer's transaction in one partition."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    record = Record(base_offset, timestamp, _KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )
