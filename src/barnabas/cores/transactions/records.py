"""Transactional ids as entries of `__transaction_state`, in Kafka's format: one key each, the newest value counts."""

from __future__ import annotations

from barnabas.cores.decision import CorruptRecord, Entry
from barnabas.cores.transactions.state import Transaction, TxnState
from barnabas.wire.primitives import UnsupportedVersion, WireError
from barnabas.wire.records_schemas.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    decode_transaction_record,
)
from barnabas.wire.schema import Data

VALUE_VERSION = 1


def entry_of(transaction: Transaction) -> Entry:
    """The entry with the complete state of a transactional id."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(index)
    partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if transaction.state is TxnState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    return Entry(TransactionLogKey(transactional_id=transaction.transactional_id), value, VALUE_VERSION)


def tombstone_of(transactional_id: str) -> Entry:
    """The tombstone of a transactional id."""
    return Entry(TransactionLogKey(transactional_id=transactional_id), None)


def decode(key: bytes, value: bytes | None) -> tuple[Data, Data | None] | None:
    """An entry as it is in the log; None for a kind that this version does not know. Raises CorruptRecord."""
    try:
        return decode_transaction_record(key, value)
    except UnsupportedVersion:
        return None
    except WireError as error:
        raise CorruptRecord(f"record of the transactions with key {key[:80]!r}: {error}") from error


def read(key: Data, raw_value: Data | None) -> tuple[str, Transaction | None]:
    """Transactional id and state of an entry. Raises CorruptRecord for a state that does not exist."""
    assert isinstance(key, TransactionLogKey)
    name = key.transactional_id
    if raw_value is None:
        return name, None
    assert isinstance(raw_value, TransactionLogValue)
    try:
        state = TxnState(raw_value.transaction_status)
    except ValueError as error:
        raise CorruptRecord(f"transactional id {name!r} has state {raw_value.transaction_status}") from error
    if state is TxnState.DEAD:
        return name, None
    return name, Transaction(
        name,
        raw_value.producer_id,
        raw_value.producer_epoch,
        raw_value.transaction_timeout_ms,
        state,
        raw_value.transaction_last_update_timestamp_ms,
        frozenset(
            (row.topic, index)
            for row in raw_value.transaction_partitions or ()
            for index in row.partition_ids
        ),
        raw_value.transaction_start_timestamp_ms,
        raw_value.previous_producer_id,
        raw_value.next_producer_id,
        client_version=raw_value.client_transaction_version,
    )
