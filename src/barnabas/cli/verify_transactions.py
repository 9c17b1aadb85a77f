"""`barnabas verify transactions`: writes transactions, reads what was committed, and judges whether it may be so.

Each writer has a thread and a transactional id: it commits and aborts, is overtaken by another producer of its id now and
then, and goes on over restarts of the brokers. A reader follows the topics meanwhile, and at the end everything is read once
more. The rules are those of `barnabas.sim.transactions`, which judge the simulation of the broker as well. Records that are
not of this run are left out.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas.cli.errors import CliError
from barnabas.sim.history import Violation
from barnabas.sim.transactions import Outcome, TransactionHistory, Txn

if TYPE_CHECKING:
    from barnabas.cli.connection import Connection

RECORDS_MAX: Final = 20
"""Of one transaction."""
ABORTED_SHARE: Final = 0.2
OVERTAKEN_SHARE: Final = 0.03
TIMEOUT_MS: Final = 20_000
"""Of a transaction whose producer has gone."""
CALL_S: Final = 15.0
PAUSE_S: Final = 0.2
END_S: Final = 300.0
"""How long the cluster may take to answer again at the end."""

QUIET: Final = logging.getLogger("barnabas.verify.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
"""Producers that are overtaken on purpose would fill the screen with it, whatever their log_level."""

Place = tuple[str, int]


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
        told = ", ".join(f"{count:,} {name}" for name, count in self.transactions.items())
        found = f"{len(self.violations):,} violations" if self.violations else "every rule holds"
        return f"transactions: {told}; {self.records:,} committed records read: {found}"


class Run:
    """One run over some topics. Threads report to `history` under `lock`."""

    def __init__(self, connection: Connection, topics: Iterable[str], writers: int, seed: int) -> None:
        self.connection = connection
        self.name = f"verify-{uuid.uuid4().hex[:8]}"
        self.history = TransactionHistory(self.name)
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.places = self._places(list(topics))
        self.index = {place: number for number, place in enumerate(self.places)}
        """The history knows partitions by number."""
        self.starts = self._ends()
        self.writers = [Writer(self, number, random.Random(seed + number)) for number in range(writers)]
        self.reader = Reader(self)

    def _places(self, topics: list[str]) -> list[Place]:
        known = self.connection.admin().list_topics(timeout=30).topics
        for topic in topics:
            if topic not in known:
                raise CliError(
                    f"topic {topic} does not exist: create it with `barnabas topic create {topic}`"
                )
        return [(topic, partition) for topic in topics for partition in sorted(known[topic].partitions)]

    def consumer(self, group: str = "") -> Consumer:
        """One that reads committed records alone."""
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
        # Having found its brokers anew, librdkafka 2.15 would wait for a coordinator that it has given up.
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
        try:
            return {
                (topic, partition): consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=30
                )[1]
                for topic, partition in self.places
            }
        finally:
            consumer.close()

    def start(self) -> None:
        for thread in (*self.writers, self.reader):
            thread.start()

    def finish(self) -> Verified:
        """Stops writing, reads everything once more, and judges. Raises CliError when the cluster does not answer."""
        self.over.set()
        for thread in (*self.writers, self.reader):
            thread.join(END_S)
            if thread.is_alive():
                raise CliError(
                    f"the cluster has not ended the transactions of {thread.name} in {END_S:.0f} s"
                )
        content, offsets = self._content(), self._offsets()
        self.history.finish(content, offsets)
        outcomes = [txn.outcome for txn in self.history.txns]
        counts = {outcome.value: outcomes.count(outcome) for outcome in Outcome}
        return Verified(counts, sum(map(len, content.values())), self.history.violations)

    def _content(self) -> dict[int, dict[int, bytes]]:
        consumer = self.consumer()
        found: dict[int, dict[int, bytes]] = {number: {} for number in self.index.values()}
        ended: set[Place] = set()
        give_up = time.monotonic() + END_S
        consumer.assign([TopicPartition(*place, start) for place, start in self.starts.items()])
        try:
            while len(ended) < len(self.places):
                if time.monotonic() > give_up:
                    left = ", ".join(f"{topic}-{p}" for topic, p in sorted(set(self.places) - ended))
                    raise CliError(f"not read to their ends in {END_S:.0f} s: {left}")
                message = consumer.poll(1)
                if message is None:
                    continue
                place = (message.topic(), message.partition())
                if message.error() is None:
                    if self.is_own(message.value()):
                        found[self.index[place]][message.offset()] = message.value()
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(place)
        finally:
            consumer.close()
        return found

    def _offsets(self) -> dict[str, int]:
        found = {}
        for writer in self.writers:
            consumer = self.consumer(writer.group)
            try:
                (row,) = consumer.committed([TopicPartition(*self.places[0])], timeout=END_S)
            finally:
                consumer.close()
            found[writer.name] = row.offset if row.offset >= 0 else -1
        return found

    def is_own(self, value: bytes | None) -> bool:
        return value is not None and value.startswith(f"{self.name} ".encode())


class Writer(threading.Thread):
    """Transactions of one transactional id, one after the other."""

    def __init__(self, run: Run, number: int, chance: random.Random) -> None:
        super().__init__(name=f"writer {number}", daemon=True)
        self.verify = run
        self.chance = chance
        self.group = f"{run.name}-{self.name.replace(' ', '-')}"
        self.number = 0
        self.positions = run.consumer(self.group)
        """Never reads: its group is what the offsets of transactions are committed for."""

    def run(self) -> None:
        producer = None
        while not self.verify.over.is_set():
            try:
                if producer is None:
                    producer = self._producer()
                self._transaction(producer)
            except (KafkaException, BufferError):
                producer = None
                self.verify.over.wait(PAUSE_S)
        self._end_hanging()
        self.positions.close()

    def _producer(self) -> Producer:
        producer = self.verify.producer(self.name.replace(" ", "-"))
        producer.init_transactions(CALL_S)
        return producer

    def _end_hanging(self) -> None:
        """What the last producer may have left under way is aborted, so that readers need not wait for its time-out."""
        give_up = time.monotonic() + END_S
        while time.monotonic() < give_up:
            try:
                self._producer()
            except KafkaException:
                time.sleep(PAUSE_S)
            else:
                return

    def _transaction(self, producer: Producer) -> None:
        verify = self.verify
        self.number += 1
        with verify.lock:
            txn = verify.history.begin(self.name, self.number)
        producer.begin_transaction()
        for count in range(self.chance.randrange(1, RECORDS_MAX)):
            self._produce(producer, txn, count)
        producer.flush(CALL_S)
        place = verify.places[0]
        producer.send_offsets_to_transaction(
            [TopicPartition(*place, self.number)], self.positions.consumer_group_metadata(), CALL_S
        )
        txn.offset = self.number
        if self.chance.random() < OVERTAKEN_SHARE:
            self._be_overtaken(producer, txn)
        elif self.chance.random() < ABORTED_SHARE:
            producer.abort_transaction(CALL_S)
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
        give_up = time.monotonic() + END_S
        while True:
            try:
                producer.commit_transaction(CALL_S)
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    producer.abort_transaction(CALL_S)
                    txn.outcome = Outcome.ABORTED
                    return
                if not error.retriable() or time.monotonic() > give_up:
                    raise
            else:
                txn.outcome = Outcome.COMMITTED
                return

    def _be_overtaken(self, producer: Producer, txn: Txn) -> None:
        """Another producer of the same id begins: this one may commit nothing any more."""
        self._producer()
        try:
            producer.commit_transaction(CALL_S)
        except KafkaException:
            txn.outcome = Outcome.ABORTED
            raise
        with self.verify.lock:
            text = f"{txn} was committed after another producer had begun with its transactional id"
            self.verify.history.violations.append(Violation("fenced", f"{self.verify.name}: {text}"))


class Reader(threading.Thread):
    """Follows the topics while they are written."""

    def __init__(self, run: Run) -> None:
        super().__init__(name="reader", daemon=True)
        self.verify = run
        self.records = 0

    def run(self) -> None:
        verify = self.verify
        consumer = verify.consumer()
        consumer.assign([TopicPartition(*place, start) for place, start in verify.starts.items()])
        newest = dict(verify.starts)
        looked_s = 0.0
        while not verify.over.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                self._note(message, newest)
            if time.monotonic() - looked_s > 1:
                self._look_at_ends(consumer)
                looked_s = time.monotonic()
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
        """The ends of what may be read: they never go back."""
        for place, number in self.verify.index.items():
            floor = self.verify.history.stable.get(number, 0)
            try:
                _, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=5)
            except KafkaException:
                return
            with self.verify.lock:
                self.verify.history.on_stable(number, floor, end, "the reader")
