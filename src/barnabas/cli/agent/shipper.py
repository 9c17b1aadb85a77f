"""Sends pieces of files and moves the files' positions when the broker has acknowledged them.

A position moves only past lines that are all acknowledged, in the order of the file. What was sent
after the last written position when an agent is killed is found again in the topic itself: each
record says in its headers which file (`file`), and where in it (`position`, as `id:byte`), so the
next run reads the end of the topic back and leaves out what has arrived.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from barnabas.cli.agent.files import Followed, Piece
from barnabas.cli.agent.state import State
from barnabas.cli.connection import BATCH_BYTES, Connection, explain
from barnabas.cli.errors import EXIT_NOT_DELIVERED, CliError

PRODUCER: Final = {
    "linger.ms": 20,
    "batch.size": BATCH_BYTES,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 300_000,
    "queue.buffering.max.kbytes": 192 * 1024,
    "enable.idempotence": True,
    "acks": "all",
    # A broker that is away is waited for: nothing is given up, and the order stays.
    "message.timeout.ms": 0,
    "reconnect.backoff.max.ms": 2000,
    "partitioner": "murmur2_random",
}
CLOCK_MARGIN_MS: Final = 2_000
READ_BACK_SECONDS: Final = 60.0
TIMEOUT_SECONDS: Final = 30.0
TOO_LARGE: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE)


@dataclass(slots=True)
class Sent:
    """One piece on its way. `left` counts its lines that are not acknowledged."""

    shipper: Shipper
    followed: Followed
    piece: Piece
    left: int
    sent_ms: int

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        """Delivery callback of each of its lines."""
        if error is not None:
            self.shipper.on_failure(error, self.followed.path, self.piece)
            if error.code() not in TOO_LARGE:
                return
        self.left -= 1


@dataclass(slots=True)
class Shipper:
    """One producer, the pieces on their way, and what was counted."""

    connection: Connection
    producer: Any
    topic: str
    state: State
    key: bytes | None
    with_headers: bool
    on_way: deque[Sent] = field(default_factory=deque)
    arrived: dict[str, set[int]] = field(default_factory=dict)
    """Positions per file id that an earlier run's records already hold in the topic."""
    last_arrived: dict[str, int] = field(default_factory=dict)
    lines_sent: int = 0
    lines_refused: int = 0
    lines_found: int = 0
    bytes_sent: int = 0
    changed: bool = False
    failure: str = ""
    refused_note: str = ""

    def send(self, followed: Followed, piece: Piece) -> None:
        """Hand the piece's lines to librdkafka; waits while its queue is full."""
        sent = Sent(self, followed, piece, len(piece.lines), time.time_ns() // 1_000_000)
        followed.outstanding += 1
        self.on_way.append(sent)
        if self.with_headers:
            self._send_with_headers(sent, self.arrived.get(followed.entry.id, set()))
        else:
            self._send_batch(sent)
        self.producer.poll(0)

    def _send_with_headers(self, sent: Sent, arrived: set[int]) -> None:
        topic, key, produce, delivered = (
            self.topic,
            self.key_of(sent.followed),
            self.producer.produce,
            sent.delivered,
        )
        file_header = ("file", sent.followed.path.encode("utf-8", "surrogateescape"))
        id_prefix = sent.followed.entry.id.encode() + b":%d"
        position = sent.piece.start
        for line in sent.piece.lines:
            if position in arrived:
                sent.left -= 1
                self.lines_found += 1
            else:
                headers = [file_header, ("position", id_prefix % position)]
                while True:
                    try:
                        produce(topic, line, key, on_delivery=delivered, headers=headers)
                    except BufferError:
                        self.wait_for_room()
                    except KafkaException as error:
                        delivered(error.args[0], None)
                        break
                    else:
                        break
                self.lines_sent += 1
                self.bytes_sent += len(line)
            position += len(line) + 1

    def _send_batch(self, sent: Sent) -> None:
        key = self.key_of(sent.followed)
        waiting: list[dict[str, Any]] = [{"value": line, "key": key} for line in sent.piece.lines]
        self.lines_sent += len(waiting)
        self.bytes_sent += sum(map(len, sent.piece.lines))
        while waiting:
            self.producer.produce_batch(self.topic, waiting, on_delivery=sent.delivered)
            refused = [record for record in waiting if "_error" in record]
            waiting = []
            for record in refused:
                error = record.pop("_error")
                if error.code() == KafkaError._QUEUE_FULL:
                    waiting.append(record)
                else:
                    sent.delivered(error, None)
            if waiting:
                self.wait_for_room()

    def wait_for_room(self) -> None:
        """Let acknowledgements in. Raises CliError once a line has failed for good."""
        self.producer.poll(0.1)
        self.raise_failure()

    def key_of(self, followed: Followed) -> bytes | None:
        """The key of a file's records; FILE_KEY stands for its path."""
        return followed.path.encode("utf-8", "surrogateescape") if self.key is FILE_KEY else self.key

    def on_failure(self, error: KafkaError, path: str, piece: Piece) -> None:
        """A line did not arrive: too large ones are counted, everything else stops the agent."""
        if error.code() in TOO_LARGE:
            self.lines_refused += 1
            self.refused_note = self.refused_note or (
                f"{path}: a line after byte {piece.start} is larger than the topic takes (max.message.bytes)"
            )
        elif not self.failure:
            self.failure = f"{path}: {explain(error)}"

    def raise_failure(self) -> None:
        """Raises CliError when a line failed for good."""
        if self.failure:
            raise CliError(f"cannot ship {self.failure}", EXIT_NOT_DELIVERED)

    def settle(self) -> None:
        """Move the positions past all that is acknowledged."""
        while self.on_way and self.on_way[0].left <= 0 and not self.failure:
            sent = self.on_way.popleft()
            sent.followed.acknowledged(sent.piece)
            self.changed = True

    def save(self, clean: bool = False, force: bool = False) -> None:
        """Write the state when it changed (always with `force`). clean: nothing is on its way."""
        if not self.changed and not force:
            return
        self.changed = False
        self.state.save(clean and not self.on_way, self.since_ms())

    def since_ms(self) -> int:
        """A time before which nothing was sent that lies beyond the positions."""
        written = {entry.id: entry.position for entry in self.state.entries}
        for file_id, positions in self.arrived.items():
            if self.last_arrived[file_id] >= written.get(file_id, self.last_arrived[file_id] + 1):
                # An earlier run's records are still ahead of us: should we be killed too, the next
                # run must read back as far as we did.
                return self.state.since_ms
            positions.clear()
        return self.on_way[0].sent_ms if self.on_way else time.time_ns() // 1_000_000

    def drain(self, seconds: float | None) -> bool:
        """Wait until everything is acknowledged; False when that takes longer than `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            self.producer.flush(0.2)
            self.settle()
            self.save()
            self.raise_failure()
            if not self.on_way:
                return True
            if deadline is not None and time.monotonic() > deadline:
                return False

    def find_arrived(self) -> int:
        """Read back what an agent that was killed had sent beyond the written positions; how many records.

        Nothing is read when the last run ended cleanly. Raises CliError when the topic cannot be read.
        """
        if self.state.clean or not self.state.entries or not self.with_headers:
            return 0
        consumer = self.connection.consumer(
            {"group.id": "barnabas-agent", "enable.auto.commit": False, "enable.partition.eof": True}
        )
        try:
            self._read_back(consumer)
        except KafkaException as error:
            raise CliError(f"cannot read {self.topic} back: {explain(error.args[0])}") from None
        finally:
            consumer.close()
        self.last_arrived = {file_id: max(positions) for file_id, positions in self.arrived.items()}
        return sum(map(len, self.arrived.values()))

    def _read_back(self, consumer: Any) -> None:
        since_ms = self.state.since_ms - CLOCK_MARGIN_MS
        partitions = consumer.list_topics(self.topic, timeout=TIMEOUT_SECONDS).topics[self.topic].partitions
        wanted = [TopicPartition(self.topic, partition, since_ms) for partition in partitions]
        starts = [
            part
            for part in consumer.offsets_for_times(wanted, timeout=TIMEOUT_SECONDS)
            if part.offset not in (OFFSET_END, -1)
        ]
        consumer.assign(starts)
        written = {entry.id: entry.position for entry in self.state.entries}
        still_open = {part.partition for part in starts}
        while still_open:
            for message in consumer.consume(10_000, 0) or consumer.consume(1, READ_BACK_SECONDS):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    still_open.discard(message.partition())
                elif error is not None:
                    raise KafkaException(error)
                else:
                    self._note_arrived(message, written)

    def _note_arrived(self, message: Any, written: dict[str, int]) -> None:
        place = dict(message.headers() or ()).get("position")
        if place is None:
            return
        file_id, _, position = place.decode("ascii", "replace").partition(":")
        if file_id in written and position.isdigit() and int(position) >= written[file_id]:
            self.arrived.setdefault(file_id, set()).add(int(position))


FILE_KEY: Final = b"\0file"
"""Stands for `--key file`; compared by identity."""
