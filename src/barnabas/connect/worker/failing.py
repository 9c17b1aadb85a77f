"""What happens to records that fail: retries, tolerance, and dead letters with Connect's headers.

Source: KIP-298, KIP-610, Kafka's DeadLetterQueueReporter.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from barnabas.connect.errors import ConnectError, DataError, RetriableError
from barnabas.connect.records import Record, SinkRecord

log = logging.getLogger("barnabas.connect")

PREFIX: Final = "__connect.errors."
RETRY_MS: Final = 300
STAGE_KEY, STAGE_VALUE, STAGE_HEADER = "KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER"
STAGE_TRANSFORM, STAGE_PUT, STAGE_PRODUCE = "TRANSFORMATION", "TASK_PUT", "KAFKA_PRODUCE"

T = TypeVar("T")
Letter = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class Failing:
    """The rules of one task. send: writes a dead letter; None if there is no topic for them. failed: how many records have
    been passed over."""

    def __init__(
        self,
        connector: str,
        task: int,
        config: Mapping[str, Any],
        stopping: threading.Event,
        send: Callable[[Letter], None] | None = None,
    ) -> None:
        self.connector, self.task, self.stopping, self.send = connector, task, stopping, send
        self.tolerant = config["errors.tolerance"] == "all"
        self.retry_ms = config["errors.retry.timeout"]
        self.delay_ms = config["errors.retry.delay.max.ms"]
        self.logs = config["errors.log.enable"]
        self.logs_records = config["errors.log.include.messages"]
        self.headers = config["errors.deadletterqueue.context.headers.enable"]
        self.failed = 0

    def tried(self, work: Callable[[], T]) -> T:
        """The result of work that is repeated while it raises RetriableError, for errors.retry.timeout."""
        if not self.retry_ms:
            return work()
        begun, attempt = time.monotonic(), 0
        while True:
            try:
                return work()
            except RetriableError:
                passed_ms = (time.monotonic() - begun) * 1000
                if self.stopping.is_set() or (self.retry_ms >= 0 and passed_ms >= self.retry_ms):
                    raise
                pause_ms = min(RETRY_MS * 2.0**attempt, self.delay_ms) * random.uniform(0.8, 1.0)
                attempt = min(attempt + 1, 30)
                self.stopping.wait(pause_ms / 1000)

    def note(self, record: Any, stage: str, class_name: str, error: Exception) -> None:
        """A record failed: it becomes a dead letter, or is passed over. Raises ConnectError if that is not tolerated.

        record: a SinkRecord, a SourceRecord, or a message that could not be converted.
        """
        if not self.tolerant:
            where = _where(record)
            raise ConnectError(
                f"{stage} failed{where}: {error}; errors.tolerance=all would pass over it"
            ) from error
        self.failed += 1
        if self.logs:
            shown: dict[str, Any] = {"record": repr(record)[:1000]} if self.logs_records else {}
            log.error(
                "record failed",
                extra={
                    "connector": self.connector,
                    "task": self.task,
                    "stage": stage,
                    "reason": str(error),
                    **shown,
                },
            )
        if self.send is not None:
            self.send(self._letter(record, stage, class_name, error))

    def _letter(self, record: Any, stage: str, class_name: str, error: Exception) -> Letter:
        key, value, headers = _raw(record)
        if self.headers:
            headers = headers + self._context(record, stage, class_name, error)
        return key, value, headers

    def _context(
        self, record: Any, stage: str, class_name: str, error: Exception
    ) -> list[tuple[str, bytes | None]]:
        about: dict[str, Any] = {}
        if isinstance(record, SinkRecord):
            about = {
                "topic": record.original_topic,
                "partition": record.original_partition,
                "offset": record.offset,
            }
        elif hasattr(record, "offset"):
            about = {"topic": record.topic(), "partition": record.partition(), "offset": record.offset()}
        elif isinstance(record, Record) and record.topic is not None:
            about = {"topic": record.topic}
        about |= {
            "connector.name": self.connector,
            "task.id": self.task,
            "stage": stage,
            "class.name": class_name,
            "exception.class.name": exception_class(error),
            "exception.message": str(error),
            "exception.stacktrace": "".join(traceback.format_exception(error))[-8_000:],
        }
        return [(f"{PREFIX}{name}", str(value).encode()) for name, value in about.items()]


def exception_class(error: BaseException) -> str:
    """The name that Kafka has for an error."""
    package = "org.apache.kafka.connect.errors"
    if isinstance(error, DataError):
        return f"{package}.DataException"
    if isinstance(error, RetriableError):
        return f"{package}.RetriableException"
    if isinstance(error, ConnectError):
        return f"{package}.ConnectException"
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _where(record: Any) -> str:
    if isinstance(record, SinkRecord):
        return f" at offset {record.offset} of {record.original_topic}-{record.original_partition}"
    if isinstance(record, Record):
        return f" for a record of {record.topic}"
    if hasattr(record, "offset"):
        return f" at offset {record.offset()} of {record.topic()}-{record.partition()}"
    return ""


def _raw(record: Any) -> Letter:
    """A record's bytes; those of a source's record are JSON of what the connector returned."""
    if isinstance(record, SinkRecord):
        return record.raw_key, record.raw_value, []
    if isinstance(record, Record):
        return _json(record.key), _json(record.value), []
    return record.key(), record.value(), list(record.headers() or [])


def _json(value: Any) -> bytes | None:
    return (
        None
        if value is None
        else json.dumps(value, default=_text, ensure_ascii=False).encode("utf-8", "replace")
    )


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
