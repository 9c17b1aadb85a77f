"""Records of __transaction_state: one for each change of a transactional id's state."""

from __future__ import annotations

from typing import Final

from barnabas.wire.primitives import Buffer
from barnabas.wire.records_schemas import RecordTypes, decode_record
from barnabas.wire.schema import Data, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Data, versions=(0, 0)):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Data, versions=(0, 1), flexible=1):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, null="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


TRANSACTION_RECORDS: Final[RecordTypes] = {0: (TransactionLogKey, TransactionLogValue)}


def decode_transaction_record(key: Buffer, value: Buffer | None) -> tuple[Data, Data | None]:
    """Key and value of a record of __transaction_state. Errors as `decode_record`."""
    return decode_record(TRANSACTION_RECORDS, key, value)
