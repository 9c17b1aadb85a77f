"""The part of a log that is in its topic: read to its present end, or followed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from barnabas.logs.rows import Row, row_of
from barnabas.terminal.connection import ClusterAddress, explain
from barnabas.terminal.errors import CliError

TIMEOUT_SECONDS: Final = 30.0
AT_ONCE: Final = 10_000
REST_SECONDS: Final = 0.02
LATE_MS: Final = 3_600_000
"""How much later than its own time a line may arrive in the topic and still be found by a search until a time."""


class Tail:
    """A topic that is read without a group."""

    def __init__(self, connection: ClusterAddress, topic: str) -> None:
        self.topic = topic
        self._consumer = connection.consumer(
            {
                "group.id": "barnabas-logs",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def rows(self, starts: Mapping[int, int] | None, since: int | None) -> Iterator[Row]:
        """The rows that are in the topic now. starts: by partition, offsets before which is nothing new; since: ms.
        Raises CliError."""
        try:
            ends = self._ends()
            begins = self._begins(ends, starts or {}, since)
            parts = [TopicPartition(self.topic, part, at) for part, at in begins.items() if at < ends[part]]
            yield from self._read(parts, ends)
        except KafkaException as error:
            raise CliError(f"cannot read {self.topic}: {explain(error.args[0])}") from None

    def follow(self, is_stopped: Callable[[], bool]) -> Iterator[Row]:
        """The rows that come from now on. Raises CliError."""
        try:
            parts = [TopicPartition(self.topic, part, at) for part, at in self._ends().items()]
            self._consumer.assign(parts)
            while not is_stopped():
                messages = self._consumer.consume(AT_ONCE, 0)
                if not messages:
                    time.sleep(REST_SECONDS)
                for message in messages:
                    if message.error() is None:
                        yield _row(message)
                    elif message.error().code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(message.error())
        except KafkaException as error:
            raise CliError(f"cannot read {self.topic}: {explain(error.args[0])}") from None

    def _ends(self) -> dict[int, int]:
        metadata = self._consumer.list_topics(self.topic, timeout=TIMEOUT_SECONDS).topics[self.topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        ends = {}
        for part in metadata.partitions:
            where = TopicPartition(self.topic, part)
            ends[part] = self._consumer.get_watermark_offsets(where, timeout=TIMEOUT_SECONDS)[1]
        return ends

    def _begins(
        self, ends: Mapping[int, int], starts: Mapping[int, int], since: int | None
    ) -> dict[int, int]:
        begins = {part: starts.get(part, 0) for part in ends}
        if since is not None:
            asked = [TopicPartition(self.topic, part, since) for part in ends]
            for start in self._consumer.offsets_for_times(asked, timeout=TIMEOUT_SECONDS):
                at = ends[start.partition] if start.offset < 0 else start.offset
                begins[start.partition] = max(begins[start.partition], at)
        return begins

    def _read(self, parts: list[TopicPartition], ends: Mapping[int, int]) -> Iterator[Row]:
        if not parts:
            return
        self._consumer.assign(parts)
        still_open = {part.partition for part in parts}
        while still_open:
            messages = self._consumer.consume(AT_ONCE, 0)
            if not messages:
                time.sleep(REST_SECONDS)
            for message in messages:
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    still_open.discard(message.partition())
                elif message.offset() < ends[message.partition()]:
                    yield _row(message)
                    if message.offset() + 1 == ends[message.partition()]:
                        still_open.discard(message.partition())
                else:
                    still_open.discard(message.partition())


def _row(message: Any) -> Row:
    return row_of(
        message.value() or b"",
        message.timestamp()[1],
        message.headers() or (),
        message.partition(),
        message.offset(),
    )
