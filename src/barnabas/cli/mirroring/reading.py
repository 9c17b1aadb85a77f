"""Reads the records of a partition as pieces to compare, where one side has no batches yet. See client/comparing.py."""

from __future__ import annotations

import time
import zlib
from typing import Final

from barnabas.client.comparing import Piece, Pieces
from barnabas.terminal.connection import ClusterAddress
from barnabas.terminal.errors import CliError

READ_RECORDS: Final = 1_000
PATIENCE_S: Final = 30.0


def records_of(connection: ClusterAddress, topic: str, partition: int, first: int, end: int) -> Pieces:
    """The records with offsets from `first` to before `end`, as a client reads them. Raises CliError if they do not come."""
    from confluent_kafka import TopicPartition

    consumer = connection.consumer(
        {
            "group.id": "barnabas-mirror-verify",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, first)])
    give_up = time.monotonic() + PATIENCE_S
    try:
        while True:
            for record in consumer.consume(READ_RECORDS, 1.0):
                give_up = time.monotonic() + PATIENCE_S
                if record.error() is not None or record.offset() >= end:
                    return
                contents = (record.timestamp()[1], record.key(), record.value())
                yield Piece(record.offset(), record.offset(), 1, zlib.crc32(repr(contents).encode()))
            if time.monotonic() > give_up:
                raise CliError(
                    f"{topic}-{partition} of {connection.bootstrap} cannot be read to offset {end}"
                )
    finally:
        consumer.close()
