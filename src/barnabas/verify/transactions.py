"""`barnabas verify transactions`: writes transactions, reads the committed records, and checks them against the
rules.

Each writer has a thread and a transactional id: it commits and aborts, is sometimes replaced by another producer with
the same id, and continues when brokers restart. A reader follows the topics meanwhile, and at the end everything is
read once more. The rules are those of `barnabas.sim.transactions`, which also check the simulation of the broker.
Records of other programs are ignored.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas.sim.history import Violation
from barnabas.sim.transactions import Outcome, TransactionHistory, Txn
from barnabas.terminal.administering import administering
from barnabas.terminal.connection import explain
from barnabas.terminal.errors import CliError, UsageError, describe_failure

if TYPE_CHECKING:
    from barnabas.terminal.connection import ClusterAddress

RECORDS_MAX: Final = 20
"""Of one transaction."""
ABORTED_SHARE: Final = 0.2
OVERTAKEN_SHARE: Final = 0.03
TIMEOUT_MS: Final = 20_000
"""Of a transaction whose producer has gone."""
CALL_S: Final = 15.0
PAUSE_S: Final = 0.2
LOOK_S: Final = 1.0
COMMIT_S: Final = 60.0
"""How long a commit is tried. After that its outcome is unknown, and the next producer of the id ends the
transaction.
"""
GRACE_S: Final = 5.0
"""How much longer a worker has to report by itself what it waited for."""
END_S: Final = 300.0
"""How long everything may take after the writing: the last transactions, reading all records, reading all offsets."""

QUIET: Final = logging.getLogger("barnabas.verify.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
"""Producers that are replaced on purpose would fill the screen with this message, whatever their log_level."""

Place = tuple[str, int]
T = TypeVar("T")


class Worker(threading.Thread):
    """A thread that records what it waits for. librdkafka may hang when a consumer is closed or a producer is
    destroyed; therefore a worker is a daemon thread, and every wait for it has a limit.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self.doing = "its beginning"
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.failure = error

    def await_end(self, give_up: float) -> None:
        """Raises CliError when it has not ended at `give_up` (of time.monotonic), or has failed."""
        self.join(max(0.0, give_up - time.monotonic()))
        if self.is_alive():
            raise CliError(
                f"{self.name} has not ended {END_S:.0f} s after the writing: it waits for {self.doing}"
            )
        if isinstance(self.failure, CliError):
            raise self.failure
        if self.failure is not None:
            raise CliError(
                f"{self.name} failed at {self.doing}: {describe_failure(self.failure)}"
            ) from self.failure


@dataclass
class Verified:
    """What was done and seen."""

    transactions: dict[str, int] = field(default_factory=dict)
    records: int = 0
    violations: list[Violation] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        rows = [{"rule": violation.rule, "what": violation.text} for violation in self.violations]
        return {"transactions": self.transactions, "records": self.records, "violations": rows}

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.transactions.items())
        verdict = f"{len(self.violations):,} violations" if self.violations else "every rule holds"
        return f"transactions: {counts}; {self.records:,} committed records read: {verdict}"


class Run:
    """One run over some topics. Workers report to `history` under `lock`."""

    def __init__(self, connection: ClusterAddress, topics: Iterable[str], writers: int, seed: int) -> None:
        self.connection = connection
        self.name = f"verify-{uuid.uuid4().hex[:8]}"
        self.history = TransactionHistory(self.name)
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.give_up = math.inf
        """When everything must have ended, by time.monotonic; known once the writing is over."""
        self.places = self._places(list(topics))
        self.index = {place: number for number, place in enumerate(self.places)}
        """The history knows partitions by number."""
        self.starts = self._ends()
        self.writers = [Writer(self, number, random.Random(seed + number)) for number in range(writers)]
        self.reader = Reader(self)

    def _places(self, topics: list[str]) -> list[Place]:
        with administering(self.connection) as admin:
            known = admin.topics.list()
        for topic in topics:
            if topic not in known:
                raise CliError(
                    f"topic {topic} does not exist: create it with `barnabas topic create {topic}`"
                )
        return [(topic, part.number) for topic in topics for part in known[topic].partitions]

    def left_s(self, longest_s: float) -> float:
        """How long a call may take: `longest_s`, or what is left of the run if that is less."""
        return max(0.1, min(longest_s, self.give_up - time.monotonic()))

    @property
    def is_late(self) -> bool:
        """Whether everything should have ended by now."""
        return time.monotonic() > self.give_up

    def consumer(self, group: str = "") -> Consumer:
        """A consumer that reads committed records only."""
        return self.connection.consumer(
            {
                "group.id": group or self.name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "metadata.recovery.strategy": "none",
            }
        )

    def producer(self, name: str) -> Producer:
        # After it has found its brokers again, librdkafka 2.15 would wait for a coordinator that it no longer knows.
        settings = {
            "transactional.id": f"{self.name}-{name}",
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 1,
            "metadata.recovery.strategy": "none",
            "logger": QUIET,
        }
        return self.connection.producer(settings)

    def _ends(self) -> dict[Place, int]:
        consumer = self.consumer()
        ends = {}
        try:
            for topic, partition in self.places:
                place = TopicPartition(topic, partition)
                ends[topic, partition] = consumer.get_watermark_offsets(place, timeout=30)[1]
        except KafkaException as failure:
            text = explain(failure.args[0])
            raise CliError(f"the end of {topic}-{partition} cannot be read: {text}") from None
        finally:
            consumer.close()
        return ends

    def start(self) -> None:
        for worker in (*self.writers, self.reader):
            worker.start()

    def finish(self) -> Verified:
        """Stop writing, read everything once more, and check the rules. Raises CliError, which says what did not
        happen in time.
        """
        self.give_up = time.monotonic() + END_S
        self.over.set()
        for worker in (*self.writers, self.reader):
            worker.await_end(self.give_up + GRACE_S)
        content = self._of_worker("the last reader", self._content)
        offsets = self._of_worker("the reader of offsets", self._offsets)
        self.history.finish(content, offsets)
        outcomes = [txn.outcome for txn in self.history.txns]
        counts = {outcome.value: outcomes.count(outcome) for outcome in Outcome}
        return Verified(counts, sum(map(len, content.values())), self.history.violations)

    def _of_worker(self, name: str, call: Callable[[Worker], T]) -> T:
        """The result of a call that may hang."""
        answers: list[T] = []
        worker = Worker(name, lambda: answers.append(call(worker)))
        worker.start()
        worker.await_end(self.give_up + GRACE_S)
        return answers[0]

    @contextmanager
    def _closing_consumer(self, worker: Worker, group: str = "") -> Iterator[Consumer]:
        """A consumer of a worker; waits for a broker that is starting."""
        worker.doing = "a broker that answers"
        while True:
            try:
                consumer = self.consumer(group)
                break
            except UsageError:
                raise
            except CliError:
                if self.is_late:
                    raise
                time.sleep(PAUSE_S)
        try:
            yield consumer
        finally:
            worker.doing = "its consumer's close"
            consumer.close()

    def _content(self, worker: Worker) -> dict[int, dict[int, bytes]]:
        values: dict[int, dict[int, bytes]] = {number: {} for number in self.index.values()}
        newest = dict(self.starts)
        left = set(self.places)
        with self._closing_consumer(worker) as consumer:
            worker.doing = "the committed records"
            consumer.assign([TopicPartition(*place, start) for place, start in self.starts.items()])
            while left:
                if self.is_late:
                    rows = ", ".join(f"{topic}-{p} after offset {newest[topic, p] - 1}" for topic, p in left)
                    raise CliError(f"not read to the end within {END_S:.0f} s: {rows}")
                message = consumer.poll(1)
                if message is None:
                    continue
                place = (message.topic(), message.partition())
                if message.error() is None:
                    newest[place] = message.offset() + 1
                    if self.is_own(message.value()):
                        values[self.index[place]][message.offset()] = message.value()
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
        return values

    def _offsets(self, worker: Worker) -> dict[str, int]:
        return {writer.name: self._offset_of(worker, writer) for writer in self.writers}

    def _offset_of(self, worker: Worker, writer: Writer) -> int:
        """The offset that a writer's group has committed; -1 for none."""
        with self._closing_consumer(worker, writer.group) as consumer:
            worker.doing = f"the committed offset of group {writer.group}"
            while True:
                try:
                    (row,) = consumer.committed(
                        [TopicPartition(*self.places[0])], timeout=self.left_s(CALL_S)
                    )
                    error = row.error
                except KafkaException as failure:
                    error = failure.args[0]
                if error is None:
                    return max(int(row.offset), -1)
                if self.is_late:
                    raise CliError(f"{worker.doing} cannot be read: {explain(error)}")
                time.sleep(PAUSE_S)

    def is_own(self, value: bytes | None) -> bool:
        return value is not None and value.startswith(f"{self.name} ".encode())


class Writer(Worker):
    """Transactions of one transactional id, one after the other."""

    def __init__(self, run: Run, number: int, chance: random.Random) -> None:
        super().__init__(f"writer {number}", self._write)
        self.verify = run
        self.chance = chance
        self.group = f"{run.name}-{self.name.replace(' ', '-')}"
        self.number = 0
        self.positions = run.consumer(self.group)
        """Never reads; the offsets of transactions are committed for its group."""

    def _write(self) -> None:
        producer = None
        while not self.verify.over.is_set():
            try:
                if producer is None:
                    producer = self._producer()
                self._transaction(producer)
            except UsageError:
                self.verify.over.set()  # this error does not go away: report it now
                raise
            except (KafkaException, BufferError, CliError):
                producer = None
                self.doing += ", then the end of its producer"
                self.verify.over.wait(PAUSE_S)
        self.doing = "the end of its producer"
        producer = None
        self._end_hanging()
        self.doing = "its consumer's close"
        self.positions.close()

    def _producer(self) -> Producer:
        self.doing = "a producer to begin with its transactional id"
        producer = self.verify.producer(self.name.replace(" ", "-"))
        producer.init_transactions(self.verify.left_s(CALL_S))
        return producer

    def _end_hanging(self) -> None:
        """Abort what the last producer may have left open, so that readers need not wait for its time-out.

        Raises CliError when the cluster does not do so in time.
        """
        while True:
            try:
                self._producer()
            except (KafkaException, CliError) as failure:
                if self.verify.is_late or isinstance(failure, UsageError):
                    why = explain(failure.args[0]) if isinstance(failure, KafkaException) else failure
                    raise CliError(f"the last transaction of {self.name} was not ended: {why}") from None
                time.sleep(PAUSE_S)
            else:
                return

    def _transaction(self, producer: Producer) -> None:
        verify = self.verify
        self.number += 1
        with verify.lock:
            txn = verify.history.begin(self.name, self.number)
        self.doing = "the begin of a transaction"
        producer.begin_transaction()
        for count in range(self.chance.randrange(1, RECORDS_MAX)):
            self._produce(producer, txn, count)
        self.doing = "the acknowledgement of its records"
        producer.flush(verify.left_s(CALL_S))
        place = verify.places[0]
        self.doing = "its group's offset to be taken into the transaction"
        producer.send_offsets_to_transaction(
            [TopicPartition(*place, self.number)],
            self.positions.consumer_group_metadata(),
            verify.left_s(CALL_S),
        )
        txn.offset = self.number
        if self.chance.random() < OVERTAKEN_SHARE:
            self._be_overtaken(producer, txn)
        elif self.chance.random() < ABORTED_SHARE:
            self.doing = "an abort"
            producer.abort_transaction(verify.left_s(CALL_S))
            txn.outcome = Outcome.ABORTED
        else:
            self._commit(producer, txn)

    def _produce(self, producer: Producer, txn: Txn, count: int) -> None:
        verify = self.verify
        number = self.chance.randrange(len(verify.places))
        topic, partition = verify.places[number]
        value = f"{verify.name} {self.name} {txn.number} {count}".encode()

        def acked(error: KafkaError | None, _: Any) -> None:
            if error is None:
                with verify.lock:
                    verify.history.on_acked(txn, number, [value])

        with verify.lock:
            verify.history.on_sent(txn, number, [value])
        producer.produce(topic, value, partition=partition, on_delivery=acked)

    def _commit(self, producer: Producer, txn: Txn) -> None:
        txn.outcome = Outcome.UNKNOWN
        give_up = time.monotonic() + COMMIT_S
        while True:
            self.doing = "a commit"
            try:
                producer.commit_transaction(self.verify.left_s(CALL_S))
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    self.doing = "an abort"
                    producer.abort_transaction(self.verify.left_s(CALL_S))
                    txn.outcome = Outcome.ABORTED
                    return
                if not error.retriable() or self.verify.is_late or time.monotonic() > give_up:
                    raise
            else:
                txn.outcome = Outcome.COMMITTED
                return

    def _be_overtaken(self, producer: Producer, txn: Txn) -> None:
        """Another producer with the same id begins: this one must not be able to commit any more."""
        self._producer()
        self.doing = "the refusal of a commit that was overtaken"
        try:
            producer.commit_transaction(self.verify.left_s(CALL_S))
        except KafkaException:
            txn.outcome = Outcome.ABORTED
            raise
        with self.verify.lock:
            text = f"{txn} was committed after another producer had begun with its transactional id"
            self.verify.history.violations.append(Violation("fenced", f"{self.verify.name}: {text}"))


class Reader(Worker):
    """Follows the topics while they are written."""

    def __init__(self, run: Run) -> None:
        super().__init__("the reader", self._follow)
        self.verify = run
        self.records = 0

    def _follow(self) -> None:
        verify = self.verify
        consumer = verify.consumer()
        consumer.assign([TopicPartition(*place, start) for place, start in verify.starts.items()])
        newest = dict(verify.starts)
        looked_s = 0.0
        while not verify.over.is_set():
            self.doing = "records"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                self._note(message, newest)
            if time.monotonic() - looked_s > LOOK_S:
                self._look_at_ends(consumer)
                looked_s = time.monotonic()
        self.doing = "its consumer's close"
        consumer.close()

    def _note(self, message: Any, newest: dict[Place, int]) -> None:
        verify, place = self.verify, (message.topic(), message.partition())
        with verify.lock:
            if message.offset() < newest[place]:
                text = f"the reader got offset {message.offset()} of {place} after {newest[place] - 1}"
                verify.history.violations.append(Violation("back", f"{verify.name}: {text}"))
            newest[place] = max(newest[place], message.offset() + 1)
            if verify.is_own(message.value()):
                self.records += 1
                verify.history.on_read(verify.index[place], message.offset(), message.value(), "the reader")

    def _look_at_ends(self, consumer: Consumer) -> None:
        """The last stable offsets, which never go back."""
        self.doing = "the ends of what is stable"
        for place, number in self.verify.index.items():
            if self.verify.over.is_set():
                return
            floor = self.verify.history.stable.get(number, 0)
            try:
                _, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=5)
            except KafkaException:
                return
            with self.verify.lock:
                self.verify.history.on_stable(number, floor, end, "the reader")
