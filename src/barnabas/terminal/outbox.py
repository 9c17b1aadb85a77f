"""A producer that does not mistake the error of a batch for an error of its records.

A broker refuses a batch that is larger than the topic's max.message.bytes as a whole, with all its records, and the
limit may change during the run. So records that were refused as too large are sent again, first in batches that fit
the present limit, then alone. Only a record that is refused alone is too large itself.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError

from barnabas.terminal.connection import RECORD_BYTES_MAX, ClusterAddress
from barnabas.terminal.topics import batch_limits

TOO_LARGE: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE)
ALONE: Final = {"batch.num.messages": 1, "linger.ms": 0, "message.max.bytes": RECORD_BYTES_MAX}
LOOK_SECONDS: Final = 1.0
"""How often the topic's limit is looked up at most, since many records may be too large."""
LOOK_TIMEOUT_SECONDS: Final = 5.0
REST_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One producer and the limits it was made for."""

    producer: Any
    limits: dict[str, Any]
    sends_alone: bool = False


@dataclass(slots=True)
class Outbox:
    """The producers of one topic. `again` sends a refused record at another stage; `give_up` gets those that are lost."""

    connection: ClusterAddress
    topic: str
    settings: dict[str, Any]
    again: Callable[[Stage, Any], None]
    give_up: Callable[[KafkaError, Any], None]
    stages: list[Stage] = field(default_factory=list)
    _alone: Stage | None = None
    _looked_at: float = -LOOK_SECONDS
    _refused: deque[tuple[KafkaError, Stage, Any]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._add(batch_limits(self.connection, self.topic))

    @property
    def stage(self) -> Stage:
        """Where new records are sent."""
        return self.stages[-1]

    @property
    def producer(self) -> Any:
        """The producer of new records."""
        return self.stages[-1].producer

    def _add(self, limits: dict[str, Any]) -> None:
        self.stages.append(Stage(self.connection.producer({**self.settings, **limits}), limits))

    def failed(self, error: KafkaError, stage: Stage, record: Any) -> None:
        """To be called in the delivery callback of a record that was not delivered."""
        if error.code() in TOO_LARGE and not stage.sends_alone:
            self._refused.append((error, stage, record))
        else:
            self.give_up(error, record)

    def send_again(self) -> None:
        """Send records again that were refused as part of a batch; not to be called in a callback."""
        while self._refused:
            _error, stage, record = self._refused.popleft()
            self.again(self._next(stage), record)

    def _next(self, stage: Stage) -> Stage:
        if stage is self.stage and time.monotonic() - self._looked_at > LOOK_SECONDS:
            limits = batch_limits(self.connection, self.topic, LOOK_TIMEOUT_SECONDS)
            self._looked_at = time.monotonic()
            if limits and limits != stage.limits:
                self._add(limits)
        if stage is not self.stage:
            return self.stage
        if self._alone is None:
            self._alone = Stage(self.connection.producer({**self.settings, **ALONE}), {}, sends_alone=True)
        return self._alone

    def _producers(self) -> list[Any]:
        producers = [stage.producer for stage in self.stages]
        return producers if self._alone is None else [*producers, self._alone.producer]

    def poll(self, seconds: float) -> None:
        """Serve delivery callbacks, waiting for them at most so long, and send again what was refused."""
        first, *others = self._producers()
        for producer in others:
            producer.poll(0)
        first.poll(seconds)
        self.send_again()

    def rest(self, seconds: float) -> None:
        """As `poll`, but waits by the monotonic clock, and ends early when there were callbacks.

        librdkafka waits until a time of the wall clock, so it waits an hour longer when that is set back by an hour
        (its issue 2145).
        """
        deadline = time.monotonic() + seconds
        while not sum(producer.poll(0) for producer in self._producers()) and time.monotonic() < deadline:
            time.sleep(REST_SECONDS)
        self.send_again()

    def flush(self, seconds: float) -> int:
        """Wait until everything is delivered or has failed, with a time limit; how many records are left."""
        deadline = time.monotonic() + seconds
        while True:
            for producer in self._producers():
                producer.flush(max(deadline - time.monotonic(), 0))
            self.send_again()
            left = len(self)
            if not left or time.monotonic() >= deadline:
                return left

    def purge(self) -> None:
        """Drop everything that is not acknowledged; its callbacks get an error."""
        self._refused.clear()
        for producer in self._producers():
            producer.purge()
            producer.flush(0.5)

    def __len__(self) -> int:
        return sum(map(len, self._producers())) + len(self._refused)
