"""Appends to a table's topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.options import ClientOptions
from barnabas.records.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode

FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Fenced(ClientError):
    """The broker does not take batches of this epoch: with a transactional id, another instance has become the writer."""


class TooLarge(ClientError):
    """The broker rejects a batch of this size."""


class Writer:
    """Appends as an idempotent producer: a batch that is sent again is not stored twice.

    transactional_id: if several instances share one, each that begins to write gets a higher epoch of the same producer, and
    the broker rejects all batches of earlier ones; the partition learns the epoch from its first record. No transactions
    are used. Not thread-safe; every method may block.
    """

    def __init__(self, client: ClientOptions, topic: str, transactional_id: str | None = None) -> None:
        self.client = BlockingClient(client)
        self.topic = topic
        self.transactional_id = transactional_id
        self._producer_id = -1
        self._epoch = -1
        self._sequence = 0

    def begin(self) -> None:
        """Obtain a new epoch, or without a transactional id a new producer. Raises ClientError."""
        self._producer_id, self._epoch = self.client.init_producer_id(self.transactional_id)
        self._sequence = 0

    def append(self, entries: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Append keys and values as one batch, and return its first offset. Raises Fenced, TooLarge, ClientError.

        After ClientError, the batch may or may not have been appended: call `begin` before appending again.
        """
        now_ms = int(time.time() * 1000)
        rows = [Record(0, now_ms, key, value) for key, value in entries]
        batch = build_batch(
            rows, producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=self._sequence
        )
        try:
            offset = self.client.produce_raw(self.topic, 0, batch)
        except BrokerError as error:
            if error.code in FENCED:
                raise Fenced(str(error)) from error
            if error.code in TOO_LARGE:
                raise TooLarge(str(error)) from error
            raise
        self._sequence += len(rows)
        return offset

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
