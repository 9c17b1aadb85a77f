"""Runs one task of a sink: a member of the group connect-NAME, whose offsets are committed once the sink has flushed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from barnabas.connect.connectors import SinkConnector, SinkContext, TopicPartition
from barnabas.connect.errors import ConnectError, RetriableError
from barnabas.connect.records import SinkRecord
from barnabas.connect.worker import failing
from barnabas.connect.worker.converting import Converting
from barnabas.connect.worker.failing import Failing
from barnabas.connect.worker.formats import TaskId
from barnabas.connect.worker.letters import letters_topic, send_letter
from barnabas.connect.worker.planning import Loaded
from barnabas.connect.worker.services import Counts, Services, overrides
from barnabas.connect.worker.topic_ids import TopicIds

log = logging.getLogger("barnabas.connect")

POLL_S: Final = 0.3
RECORDS_MAX: Final = 2_000
RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 30.0
FLUSH_S: Final = 30.0
COMMITTED_S: Final = 10.0
DEFAULTS: Final = {
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": 16 << 10,
    "fetch.wait.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 30_000,
    "allow.auto.create.topics": False,
}


def group_of(connector: str, config: Mapping[str, Any]) -> str:
    """The consumer group of a sink."""
    return str(config.get("consumer.override.group.id") or f"connect-{connector}")


class SinkTask:
    """One run of a task, in one thread, until it fails or is stopped."""

    def __init__(self, services: Services, task: TaskId, loaded: Loaded, stopping: threading.Event) -> None:
        self._services, self._task, self._loaded, self._stopping = services, task, loaded, stopping
        self._config = loaded.config
        self._counts = services.counts.setdefault(task, Counts())
        self._open: list[TopicPartition] = []
        self._ends: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._topic_ids = TopicIds(services.admin)
        self._failure: BaseException | None = None
        self._letters: Producer | None = None

    def run(self, started: Any) -> None:
        """Works until `stopping` is set. started: called when the connector runs. Raises ConnectError, KafkaException."""
        services, config = self._services, self._config
        topic = letters_topic(services.admin, config)
        if topic is not None:
            self._letters = Producer({**services.options.clients("producer"), "enable.idempotence": True})
        self._rules = Failing(
            self._task.connector,
            self._task.number,
            config,
            self._stopping,
            None if topic is None else lambda letter: send_letter(cast(Any, self._letters), topic, letter),
        )
        self._converting = Converting(services.options, config, self._rules)
        self._sink = cast(SinkConnector, self._loaded.kind())
        context = SinkContext(
            self._task.connector,
            self._task.number,
            self._stopping,
            self._loaded.reconfigure,
            services.options.folder,
            self._reported,
        )
        self._consumer: Consumer | None = None
        try:
            self._sink.start(config, context)
            self._consumer = Consumer(self._client())
            self._consumer.subscribe(
                self._topics(), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            started()
            self._loop(self._consumer)
            self._flush(self._consumer)
        finally:
            self._end()

    def _client(self) -> dict[str, Any]:
        own = {**DEFAULTS, **overrides(self._config, "consumer")}
        fixed = {"group.id": group_of(self._task.connector, self._config), "enable.auto.commit": False}
        return {**DEFAULTS, **self._services.options.clients("consumer", own), **fixed}

    def _topics(self) -> list[str]:
        pattern = self._config["topics.regex"]
        if pattern:
            return [pattern if pattern.startswith("^") else f"^{pattern}$"]
        return list(self._config["topics"])

    def _end(self) -> None:
        if self._consumer is not None:
            self._consumer.close()  # which revokes, and so flushes no more
        elif self._open:
            self._sink.close(self._open)
        self._sink.stop()
        if self._letters is not None:
            self._letters.flush(FLUSH_S)

    # --- the group ----------------------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, places: Sequence[Place]) -> None:
        pairs = [(place.topic, place.partition) for place in places]
        try:
            self._open = pairs
            starts = {**self._anew(consumer, places), **(self._sink.open(pairs) or {})}
        except Exception as error:  # librdkafka would only print it
            self._failure = error
            return
        for place in places:
            if (place.topic, place.partition) in starts:
                place.offset = starts[place.topic, place.partition]
        consumer.assign(places)
        self._services.tell(
            self._task.connector, "INFO", f"task {self._task.number} reads {len(places)} partitions"
        )

    def _anew(self, consumer: Consumer, places: Sequence[Place]) -> dict[TopicPartition, int]:
        """The partitions whose offsets were committed for a topic that has been deleted: they are read from their beginning.
        Raises KafkaException.
        """
        self._topic_ids.look(place.topic for place in places)
        committed = consumer.committed(list(places), COMMITTED_S) if places else []
        starts = {
            (place.topic, place.partition): OFFSET_BEGINNING
            for place in committed
            if self._topic_ids.is_of_another(place.topic, place.metadata)
        }
        self._tell_anew({topic for topic, _ in starts})
        return starts

    def _tell_anew(self, topics: set[str]) -> None:
        for topic in sorted(topics):
            text = f"topic {topic} was deleted and made again; it is read from its beginning"
            log.warning("topic made again", extra={"connector": self._task.connector, "topic": topic})
            self._services.tell(self._task.connector, "WARNING", f"task {self._task.number}: {text}")

    def _look_for_new(self, consumer: Consumer) -> None:
        """Goes to the beginning of topics that were made again: what was read of the old ones is not committed."""
        anew = self._topic_ids.look(topic for topic, _ in self._open)
        self._tell_anew(anew)
        for place in [place for place in self._open if place[0] in anew]:
            self._ends.pop(place, None)
            self._committed.pop(place, None)
            consumer.seek(Place(*place, OFFSET_BEGINNING))

    def _revoked(self, consumer: Consumer, places: Sequence[Place]) -> None:
        if self._failure is None and not self._stopping.is_set():
            try:
                self._flush(consumer)
            except Exception as error:
                self._failure = error
        self._closed()

    def _lost(self, consumer: Consumer, places: Sequence[Place]) -> None:
        self._closed()

    def _closed(self) -> None:
        opened, self._open = self._open, []
        self._ends.clear()
        self._committed.clear()
        if opened:
            self._sink.close(opened)

    # --- records ------------------------------------------------------------------------------------

    def _loop(self, consumer: Consumer) -> None:
        interval_s = self._services.options["offset.flush.interval.ms"] / 1000
        flushed = time.monotonic()
        while not self._stopping.is_set():
            messages = consumer.consume(RECORDS_MAX, POLL_S)
            if self._failure is not None:
                raise self._failure
            records = self._read(messages)
            self._put(consumer, records)
            for message in messages:
                if message.error() is None:
                    self._ends[message.topic(), message.partition()] = message.offset() + 1
            if records:
                self._counts.records += len(records)
                self._counts.at = time.time()
            self._counts.failed = self._rules.failed
            if time.monotonic() - flushed >= interval_s:
                if self._topic_ids.is_due(self._ends != self._committed):
                    self._look_for_new(consumer)
                self._flush(consumer)
                flushed = time.monotonic()

    def _read(self, messages: Sequence[Any]) -> list[SinkRecord]:
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                record = self._converting.read(message)
                if record is not None:
                    records.append(record)
                    self._services.note_topic(message.topic(), self._task)
            elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._services.tell(
                    self._task.connector, "WARNING", f"task {self._task.number}: {error.str()}"
                )
            elif error.fatal() or not error.retriable():
                raise ConnectError(f"topics cannot be read: {error.str()}")
        return records

    def _put(self, consumer: Consumer, records: list[SinkRecord]) -> None:
        pause_s, paused = RETRY_S, False
        while True:
            try:
                self._sink.put(records)
                break
            except RetriableError as error:
                log.warning(
                    "sink does not answer", extra={"connector": self._task.connector, "reason": str(error)}
                )
                self._services.tell(self._task.connector, "WARNING", f"task {self._task.number}: {error}")
                if not paused:  # so that the group goes on counting this member
                    consumer.pause(consumer.assignment())
                    paused = True
                if self._stopping.wait(pause_s):
                    raise
                consumer.poll(0)
                if self._failure is not None:
                    raise self._failure from error
                pause_s = min(pause_s * 2, RETRY_MAX_S)
        if paused:
            consumer.resume(consumer.assignment())

    def _reported(self, record: SinkRecord, error: Exception) -> None:
        self._rules.note(record, failing.STAGE_PUT, type(self._sink).__name__, error)

    def _flush(self, consumer: Consumer) -> None:
        """Raises ConnectError, KafkaException."""
        if not self._ends or self._ends == self._committed:
            return
        durable = self._sink.flush(dict(self._ends))
        done = dict(self._ends if durable is None else durable)
        if self._letters is not None and self._letters.flush(FLUSH_S):
            raise ConnectError("dead letters could not be written in time")
        places = [
            Place(topic, part, end, metadata=self._topic_ids.metadata(topic))
            for (topic, part), end in done.items()
            if (topic, part) in self._open
        ]
        if not places:
            return
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in LEFT:
                raise
            log.warning("offsets not committed", extra={"reason": error.args[0].str()})
            return
        self._committed = done


LEFT: Final = (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS)
"""The group has given the partitions to another member meanwhile, which reads the records again."""
