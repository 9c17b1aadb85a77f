"""Reads a topic with one partition from its beginning, and goes on with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from barnabas.connect.errors import RetriableError
from barnabas.connect.mirror.flow import Flow

log = logging.getLogger("barnabas.connect")

MESSAGES_MAX: Final = 1_000
READ_S: Final = 60.0
POLL_S: Final = 0.2


class Follower:
    """take: receives keys and values; it may raise ValueError for what is no record of this topic, which is left out."""

    def __init__(
        self, flow: Flow, side: str, topic: str, take: Callable[[bytes, bytes | None], None]
    ) -> None:
        self._topic, self._take = topic, take
        self._cluster = flow.source if side == "source" else flow.target
        self._consumer = flow.consumer(side, {"enable.partition.eof": True})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read_to_end(self) -> None:
        """Takes everything that is there. Raises RetriableError."""
        deadline = time.monotonic() + READ_S
        while not self._read(POLL_S):
            if time.monotonic() > deadline:
                raise RetriableError(f"topic {self._topic} of {self._cluster} cannot be read to its end")

    def read_on(self) -> None:
        """Takes what has come since."""
        low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), READ_S / 2)
        (now,) = self._consumer.position([TopicPartition(self._topic, 0)])
        if max(now.offset, low) < high:
            self.read_to_end()

    def _read(self, timeout_s: float) -> bool:
        """Whether the end was reached."""
        ended = False
        for message in self._consumer.consume(MESSAGES_MAX, timeout_s):
            error = message.error()
            if error is None:
                ended = False
                try:
                    self._take(message.key() or b"", message.value())
                except ValueError as wrong:
                    log.warning(
                        "a record is left out",
                        extra={"topic": self._topic, "offset": message.offset(), "reason": str(wrong)},
                    )
            elif error.code() == KafkaError._PARTITION_EOF:
                ended = True
            elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
                raise RetriableError(f"topic {self._topic} of {self._cluster} cannot be read: {error.str()}")
        return ended

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()
