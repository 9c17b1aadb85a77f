"""Runs one task of a source: what a poll returns is written with its offsets in one transaction, or, with
transaction.boundary=interval, what all polls of some seconds return.

At start the transactional id is taken over, which aborts what an earlier task with it has left open, and only then the
offsets are read: so the records after the last committed offset come next, each once, whatever was killed when. Source:
KIP-618.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from confluent_kafka import KafkaException, Producer

from barnabas.connect.connectors import Batch, SourceConnector, SourceContext
from barnabas.connect.errors import ConnectError, RetriableError
from barnabas.connect.records import Json, SourceRecord
from barnabas.connect.worker import failing, formats
from barnabas.connect.worker.converting import Converting, Written
from barnabas.connect.worker.creating import Creation
from barnabas.connect.worker.failing import Failing
from barnabas.connect.worker.formats import TaskId
from barnabas.connect.worker.letters import letters_topic, send_letter
from barnabas.connect.worker.planning import PARTITIONS, Loaded
from barnabas.connect.worker.services import Counts, Services, overrides
from barnabas.connect.worker.settings import WorkerOptions
from barnabas.observe.metric import Sample

log = logging.getLogger("barnabas.connect")

TRANSACTION_S: Final = 60.0
RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 30.0
ROUND_S: Final = 0.5
"""Between polls that returned nothing, if the task is to end when nothing comes."""
DEFAULTS: Final = {
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    "acks": "all",
    "message.max.bytes": 16 << 20,
    "queue.buffering.max.kbytes": 256 << 10,
    "allow.auto.create.topics": True,
}


class SourceTask:
    """One run of a task, in one thread, until it fails or is stopped. rounds: it also ends after so many polls of all
    partitions in a row that returned nothing; None: it waits for more."""

    def __init__(
        self,
        services: Services,
        task: TaskId,
        loaded: Loaded,
        stopping: threading.Event,
        rounds: int | None = None,
    ) -> None:
        self._services, self._task, self._loaded, self._stopping = services, task, loaded, stopping
        self._rounds = rounds
        self._config = loaded.config
        self._exact = services.options["exactly.once.source.support"] != "disabled"
        self._counts = services.counts.setdefault(task, Counts())
        self._offsets: dict[str, Json | None] = {}
        self._in_transaction = False
        self._begun_at = 0.0
        self._pending: dict[str, tuple[Json, Json]] = {}
        self._topics: set[str] = set()
        self._boundary_s = _boundary_s(loaded.config, services.options) if self._exact else 0.0
        self._failures: list[str] = []
        self._written: Callable[[SourceRecord, str, int, int], None] | None = None

    def run(self, started: Any) -> None:
        """Works until `stopping` is set. started: called when the connector runs. Raises ConnectError, KafkaException."""
        services, config = self._services, self._config
        self._partitions = self._given_partitions()
        self._producer = self._made_producer()
        services.logs.read_to_end([services.options.offset_topic])
        topic = letters_topic(services.admin, config)
        rules = Failing(
            self._task.connector,
            self._task.number,
            config,
            self._stopping,
            None if topic is None else lambda letter: send_letter(self._begun(), topic, letter),
        )
        self._rules = rules
        self._converting = Converting(services.options, config, rules)
        self._creation = Creation(services.admin, config, services.options["topic.creation.enable"])
        connector = cast(SourceConnector, self._loaded.kind())
        context = SourceContext(
            self._task.connector,
            self._task.number,
            self._stopping,
            self._loaded.reconfigure,
            services.options.folder,
            self._stored,
            self._partitions,
        )
        if type(connector).written is not SourceConnector.written:
            self._written = connector.written
        samples: Callable[[], Iterable[Sample]] | None = None
        try:
            connector.start(config, context)
            started()
            services.measured[self._task] = samples = connector.samples
            self._loop(connector)
        finally:
            # Another run of the task may have begun, if this one was late.
            if samples is not None and services.measured.get(self._task) is samples:
                del services.measured[self._task]
            self._abort()
            connector.stop()

    def _given_partitions(self) -> list[Json]:
        """Raises RetriableError if the work was divided by a worker of Kafka, whose tasks are described in other words."""
        text = self._loaded.texts.get(PARTITIONS)
        if text is None:
            raise RetriableError(
                "another kind of worker has divided this connector's work; the task begins once it is divided again"
            )
        partitions: list[Json] = json.loads(text)
        return partitions

    def _made_producer(self) -> Producer:
        """Raises KafkaException."""
        own = {**DEFAULTS, **overrides(self._config, "producer")}
        if self._exact:
            own |= {
                "transactional.id": self._services.transactional_id(self._task),
                "transaction.timeout.ms": int((TRANSACTION_S + self._boundary_s) * 1000),
            }
        else:
            own |= {"enable.idempotence": True}
        producer = Producer(self._services.options.clients("producer", own))
        if self._exact:
            producer.init_transactions(TRANSACTION_S)
        return producer

    def _stored(self, partitions: Sequence[Json]) -> list[Json | None]:
        board = self._services.board
        return [board.offset(self._task.connector, partition) for partition in partitions]

    # --- polling ------------------------------------------------------------------------------------

    def _loop(self, connector: SourceConnector) -> None:
        interval_s = _interval_s(connector, self._config)
        if self._rounds is not None:
            interval_s = min(interval_s, ROUND_S)
        empty = 0
        while not self._stopping.is_set() and empty != self._rounds:
            count = 0
            for partition in [{}] if connector.polls_together else self._partitions:
                if self._stopping.is_set():
                    break
                count += self._turn(connector, partition)
            empty = 0 if count else empty + 1
            if self._in_transaction and self._due_s() <= 0:
                self._commit_pending(connector)
            if not count:
                self._stopping.wait(min(interval_s, self._due_s()) if self._in_transaction else interval_s)
        self._commit_pending(connector)

    def _due_s(self) -> float:
        """The time until the transaction has lasted for its interval."""
        return max(0.0, self._begun_at + self._boundary_s - time.monotonic())

    def _turn(self, connector: SourceConnector, partition: Json) -> int:
        """Polls a partition and writes what it returns; the number of records, or 1 if only the offset moved."""
        name = formats.canonical(partition)
        if name not in self._offsets:
            self._offsets[name] = self._stored([partition])[0]
        batch = self._polled(connector, partition, self._offsets[name])
        ends = self._ends(partition, name, batch)
        if not batch.records and not ends:
            return 0
        self._begun()
        for record in batch.records:
            written = self._converting.write(record)
            if written is not None:
                self._produce(record, written)
                self._topics.add(written.topic)
        for end_name, end in ends.items():
            self._pending.pop(end_name, None)
            self._pending[end_name] = end
            self._offsets[end_name] = end[1]
        if not self._boundary_s:
            self._commit_pending(connector)
        self._counts.records += len(batch.records)
        self._counts.failed = self._rules.failed
        self._counts.at = time.time()
        return len(batch.records) or 1

    def _polled(self, connector: SourceConnector, partition: Json, offset: Json | None) -> Batch:
        pause_s = RETRY_S
        while True:
            try:
                polled = connector.poll(partition, offset)
                return polled if isinstance(polled, Batch) else Batch(list(polled))
            except RetriableError as error:
                log.warning(
                    "source does not answer", extra={"connector": self._task.connector, "reason": str(error)}
                )
                self._services.tell(self._task.connector, "WARNING", f"task {self._task.number}: {error}")
                self._commit_pending(connector)  # which would last too long otherwise
                if self._stopping.wait(pause_s):
                    return Batch()
                pause_s = min(pause_s * 2, RETRY_MAX_S)

    def _ends(self, polled: Json, name: str, batch: Batch) -> dict[str, tuple[Json, Json]]:
        """The last offset of each source partition that a batch has moved."""
        last: dict[int, tuple[Json, Json]] = {}  # by the object of the partition, which many records share
        for record in batch.records:
            if record.source_offset is not None:
                place = polled if record.source_partition is None else record.source_partition
                last.pop(id(place), None)
                last[id(place)] = (place, record.source_offset)
        ends = {
            name if place is polled else formats.canonical(place): (place, offset)
            for place, offset in last.values()
        }
        if batch.offset is not None and (batch.records or batch.offset != self._offsets.get(name)):
            ends[name] = (polled, batch.offset)
        return ends

    # --- writing ------------------------------------------------------------------------------------

    def _begun(self) -> Producer:
        """The producer, in a transaction."""
        if self._exact and not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction, self._begun_at = True, time.monotonic()
        return self._producer

    def _produce(self, record: SourceRecord, written: Written) -> None:
        self._creation.require(written.topic)
        producer = self._begun()
        done = self._done if self._written is None else partial(self._reported, self._written, record)
        more: dict[str, Any] = {}
        if written.partition >= 0:
            more["partition"] = written.partition
        if written.timestamp_ms >= 0:
            more["timestamp"] = written.timestamp_ms
        while True:
            try:
                producer.produce(
                    written.topic,
                    written.value,
                    written.key,
                    headers=written.headers,
                    on_delivery=done,
                    **more,
                )
                return
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                self._rules.note(record, failing.STAGE_PRODUCE, "Producer", error)
                return

    def _done(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(f"a record for topic {message.topic()} was not written: {error.str()}")

    def _reported(self, written: Any, record: SourceRecord, error: Any, message: Any) -> None:
        if error is None:
            written(record, message.topic(), message.partition(), message.offset())
        else:
            self._done(error, message)

    def _commit_pending(self, connector: SourceConnector) -> None:
        """Commits what was written, with its offsets, and tells the connector. Raises ConnectError."""
        if not (self._pending or self._topics or self._in_transaction):
            return
        ends, self._pending = self._pending, {}
        self._commit(ends)
        for topic in self._topics:
            self._services.note_topic(topic, self._task)
        self._topics.clear()
        for place, offset in ends.values():
            connector.committed(place, offset)

    def _commit(self, ends: Mapping[str, tuple[Json, Json]]) -> None:
        services, producer = self._services, self._begun()
        if not self._exact:
            producer.flush(TRANSACTION_S)
        for place, offset in ends.values():
            key = services.board.offset_key(self._task.connector, place)
            producer.produce(services.options.offset_topic, formats.dump(offset), key, on_delivery=self._done)
        if not self._exact:
            if producer.flush(TRANSACTION_S) or self._failures:
                raise ConnectError(self._failures[0] if self._failures else "brokers do not answer")
            return
        try:
            producer.commit_transaction(TRANSACTION_S)
        except KafkaException as error:
            reason = self._failures[0] if self._failures else error.args[0].str()
            raise ConnectError(f"the transaction could not be committed: {reason}") from error
        self._in_transaction = False
        if self._failures:  # the transaction could not have been committed
            raise ConnectError(self._failures[0])

    def _abort(self) -> None:
        try:
            if self._exact and self._in_transaction:
                self._producer.abort_transaction(10)
            else:
                self._producer.flush(5)
        except KafkaException as error:
            log.warning("a transaction is left to the next task", extra={"reason": error.args[0].str()})


def _boundary_s(config: Mapping[str, Any], options: WorkerOptions) -> float:
    """How long transactions are to last; 0: for one poll."""
    if str(config["transaction.boundary"]).lower() != "interval":
        return 0.0
    interval_ms = config["transaction.boundary.interval.ms"]
    return int(options["offset.flush.interval.ms"] if interval_ms is None else interval_ms) / 1000


def _interval_s(connector: SourceConnector, config: Mapping[str, Any]) -> float:
    interval_ms = config.get("poll.interval.ms")
    try:
        return int(connector.poll_interval_ms if interval_ms is None else interval_ms) / 1000
    except (TypeError, ValueError):
        return connector.poll_interval_ms / 1000
