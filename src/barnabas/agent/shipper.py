"""Sends pieces of files and moves the files' positions when the broker has acknowledged them.

A position moves only past lines that are all acknowledged, in the order of the file. When an agent is killed, the
next run finds the lines that were sent after the last written position in the topic itself: each
record says in its headers which file (`file`), and where in it (`position`, as `id:byte`), so it reads the end of the
topic and leaves out the lines that have arrived. Where to begin reading is stored as offsets, not as times, because
clocks may be set.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from barnabas.agent.files import Followed, Piece
from barnabas.agent.state import State
from barnabas.terminal.connection import BATCH_BYTES, Connection, explain
from barnabas.terminal.errors import EXIT_NOT_DELIVERED, CliError
from barnabas.terminal.outbox import TOO_LARGE, Outbox, Stage

PRODUCER: Final = {
    "linger.ms": 20,
    "batch.size": BATCH_BYTES,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 300_000,
    "queue.buffering.max.kbytes": 192 * 1024,
    "enable.idempotence": True,
    "acks": "all",
    # Wait for a broker that is away: no line is given up, and the order is kept.
    "message.timeout.ms": 0,
    "reconnect.backoff.max.ms": 2000,
    "partitioner": "murmur2_random",
}

REST_SECONDS: Final = 0.02
TIMEOUT_SECONDS: Final = 30.0
TOPIC_GONE: Final = (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
NOT_VALID: Final = {
    KafkaError.INVALID_TIMESTAMP: "the broker refuses the time of this machine's clock; set both clocks right",
    **dict.fromkeys(
        (KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD),
        "the broker refuses the records: the clock of one of the machines is wrong, or the topic is compacted and "
        "wants a key (--key)",
    ),
}
PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class Refused(Exception):
    """The broker refuses records that it may accept later; the argument says why. Another run sends everything again."""


class Stopped(Exception):
    """A signal arrived while the queue was full and the broker was away."""


@dataclass(slots=True)
class Sent:
    """A piece that is being sent. `left` counts its lines that are not acknowledged."""

    shipper: Shipper
    followed: Followed
    piece: Piece
    left: int
    high: dict[int, int]
    """By partition: the offset after the last one that was acknowledged when this piece was sent."""

    def delivered(
        self, stage: Stage, position: int, line: bytes, error: KafkaError | None, message: Any
    ) -> None:
        """Delivery callback of each of its lines."""
        if error is not None:
            positions = self.piece.positions
            number = -1 if positions is None else positions.index(position)
            self.shipper.outbox.failed(error, stage, Line(self, position, line, number))
            return
        self.left -= 1
        shipper = self.shipper
        shipper.lines_arrived += 1
        shipper.high[message.partition()] = message.offset() + 1


@dataclass(frozen=True, slots=True)
class Line:
    """One line that was sent and came back with an error."""

    sent: Sent
    position: int
    data: bytes
    number: int = -1
    """Which of the piece's records it is, if these are not simply one line after the other."""


@dataclass(slots=True)
class Shipper:
    """One producer, the pieces on their way, and what was counted."""

    connection: Connection
    topic: str
    state: State
    key: bytes | None
    with_headers: bool
    settings: dict[str, Any]
    is_stopped: Callable[[], bool]
    while_waiting: Callable[[], None] = lambda: None
    """Called again and again while the queue is full."""
    more_headers: list[tuple[str, bytes]] = field(default_factory=list)
    """The input's own fields."""
    tells_ends: bool = False
    """Whether records say where in the file they end: they may have several lines."""
    dead_letters: str = ""
    """The topic of lines that are refused; empty: they are left out."""
    outbox: Outbox = field(init=False)
    on_way: deque[Sent] = field(default_factory=deque)
    high: dict[int, int] = field(default_factory=dict)
    """By partition: the offset after the last one that was acknowledged; too low is safe, too high is not."""
    arrived: dict[str, set[int]] = field(default_factory=dict)
    """Positions, by file id, of lines that an earlier run has already brought into the topic."""
    ends: dict[str, set[int]] = field(default_factory=dict)
    """Where records of an earlier run that may have several lines ended, by file id."""
    last_arrived: dict[str, int] = field(default_factory=dict)
    lines_arrived: int = 0
    lines_refused: int = 0
    lines_found: int = 0
    bytes_sent: int = 0
    changed: bool = False
    failure: str = ""
    topic_is_gone: bool = False
    refused_for_now: str = ""
    unwritten: str = ""
    """Why the positions could not be written; empty when they were written."""
    notes: list[str] = field(default_factory=list)
    refused_note: str = ""
    dying: deque[tuple[Line, str]] = field(default_factory=deque)
    """Refused lines that are not sent to the dead letters yet."""

    def __post_init__(self) -> None:
        settings = {**PRODUCER, **self.settings}
        self.outbox = Outbox(self.connection, self.topic, settings, self.send_again, self.give_up)

    # --- sending ---------------------------------------------------------------------------------------

    def send(self, followed: Followed, piece: Piece) -> None:
        """Hand the piece's lines to librdkafka; waits while its queue is full. Raises Stopped, CliError."""
        if piece.too_long:
            self.refuse(followed, "a line before byte", piece.start, "is longer than 64 MB")
        if not piece.lines and not piece.too_long and piece.positions is None:
            return
        sent = Sent(self, followed, piece, len(piece.lines), self.high.copy())
        followed.outstanding += 1
        self.on_way.append(sent)
        if piece.positions is not None:
            self.send_records(sent, piece.positions)
            return
        arrived = self.arrived.get(followed.entry.id, ())
        # The loop over every line: what hand_over looks up for a line is looked up once here.
        stage, key, position = self.outbox.stage, self.key_of(followed), piece.start
        headers, more = self.more_headers or None, self.more_headers
        produce, delivered, topic = stage.producer.produce, sent.delivered, self.topic
        named, id_prefix = self.name_headers(followed)
        for line in piece.lines:
            if position in arrived:
                sent.left -= 1
                self.lines_found += 1
            else:
                if self.with_headers:
                    headers = [named, ("position", id_prefix % position), *more]
                try:
                    produce(
                        topic,
                        line,
                        key,
                        on_delivery=partial(delivered, stage, position, line),
                        headers=headers,
                    )
                except (BufferError, KafkaException):
                    self.hand_over(stage, Line(sent, position, line))
                self.bytes_sent += len(line)
            position += len(line) + 1
        self.outbox.poll(0)

    def send_records(self, sent: Sent, positions: list[int]) -> None:
        """As the loop over every line in `send`, for records that are not simply one line after the other."""
        followed, piece, stage = sent.followed, sent.piece, self.outbox.stage
        arrived = self.arrived.get(followed.entry.id, ())
        for number, (line, position) in enumerate(zip(piece.lines, positions, strict=True)):
            if position in arrived:
                sent.left -= 1
                self.lines_found += 1
            else:
                self.hand_over(stage, Line(sent, position, line, number))
                self.bytes_sent += len(line)
        for refusal in piece.refused:
            sent.left += 1
            self.refuse_line(Line(sent, refusal.position, refusal.data), refusal.reason)
        self.outbox.poll(0)

    def name_headers(self, followed: Followed) -> tuple[tuple[str, bytes], bytes]:
        """The header with the file's name, and the other header's text before the position."""
        named = ("file", followed.path.encode("utf-8", "surrogateescape"))
        return named, followed.entry.id.encode() + b":%d"

    def hand_over(self, stage: Stage, line: Line) -> None:
        """Give one line to librdkafka, waiting for room. Raises Stopped, CliError."""
        headers, key = self.headers_of(line), self.key_of_line(line)
        delivered = partial(line.sent.delivered, stage, line.position, line.data)
        while True:
            try:
                stage.producer.produce(self.topic, line.data, key, on_delivery=delivered, headers=headers)
            except BufferError:
                self.wait_for_room(stage)
            except KafkaException as error:
                self.outbox.failed(error.args[0], stage, line)
                return
            else:
                return

    def headers_of(self, line: Line) -> list[tuple[str, bytes]] | None:
        """The headers of one record."""
        if not self.with_headers:
            return self.more_headers or None
        piece, followed = line.sent.piece, line.sent.followed
        named, id_prefix = self.name_headers(followed)
        headers = [named, ("position", id_prefix % line.position), *self.more_headers]
        if piece.ends is not None and self.tells_ends and line.number >= 0:
            headers.append(("end", b"%d" % piece.ends[line.number]))
        return headers

    def key_of_line(self, line: Line) -> bytes | None:
        """The key of one record."""
        keys = line.sent.piece.keys
        return self.key_of(line.sent.followed) if keys is None else keys[line.number]

    def send_again(self, stage: Stage, line: Line) -> None:
        """A line that was refused with its batch. A stop leaves it to the next run."""
        with contextlib.suppress(Stopped):
            self.hand_over(stage, line)

    def wait_for_room(self, stage: Stage) -> None:
        """Serve delivery callbacks. Raises Stopped after a signal, CliError once a line has failed for good."""
        self.outbox.rest(REST_SECONDS)
        self.settle()
        self.while_waiting()
        self.raise_failure()
        if self.is_stopped() or self.topic_is_gone:
            raise Stopped

    def key_of(self, followed: Followed) -> bytes | None:
        """The key of a file's records; FILE_KEY stands for its path."""
        return followed.path.encode("utf-8", "surrogateescape") if self.key is FILE_KEY else self.key

    # --- what became of it -------------------------------------------------------------------------------

    def give_up(self, error: KafkaError, line: Line) -> None:
        """A line did not arrive: if it is too large it is counted, every other error stops the agent."""
        code = error.code()
        if code in TOO_LARGE:
            size = f"of {len(line.data):,} bytes is larger than the topic takes (max.message.bytes)"
            self.refuse_line(line, size)
        elif code in TOPIC_GONE:
            self.topic_is_gone = True
        elif code in NOT_VALID:
            self.refused_for_now = self.refused_for_now or NOT_VALID[code]
        elif code not in PURGED and not self.failure:
            self.failure = f"{line.sent.followed.path}: {explain(error)}"

    def refuse_line(self, line: Line, why: str) -> None:
        """A line that is left out, or becomes a dead letter."""
        self.refuse(line.sent.followed, "the line at byte", line.position, why)
        if self.dead_letters:
            self.dying.append((line, why))
        else:
            line.sent.left -= 1

    def bury(self) -> None:
        """Send dead letters; not to be called in a callback."""
        while self.dying:
            line, why = self.dying[0]

            def delivered(error: KafkaError | None, _message: Any, line: Line = line) -> None:
                if error is None:
                    line.sent.left -= 1
                elif error.code() not in PURGED and not self.failure:
                    self.failure = f"{line.sent.followed.path}: to {self.dead_letters}: {explain(error)}"

            named, id_prefix = self.name_headers(line.sent.followed)
            headers = [named, ("position", id_prefix % line.position), ("reason", why.encode())]
            if len(line.data) > DEAD_BYTES_MAX:
                headers.append(("bytes", b"%d" % len(line.data)))
            try:
                self.outbox.producer.produce(
                    self.dead_letters, line.data[:DEAD_BYTES_MAX], on_delivery=delivered, headers=headers
                )
            except BufferError:
                return  # later
            self.dying.popleft()

    def refuse(self, followed: Followed, where: str, position: int, why: str) -> None:
        """Count and report a line that is left out."""
        self.lines_refused += 1
        message = f"{followed.path}: {where} {position:,} {why}"
        self.refused_note = self.refused_note or message
        if len(self.notes) < NOTES_MAX:
            self.notes.append(f"{'a dead letter' if self.dead_letters else 'left out'}: {message}")

    def raise_failure(self) -> None:
        """Raises CliError when a line failed for good, Refused when it did for now."""
        if self.refused_for_now:
            raise Refused(self.refused_for_now)
        if self.failure:
            raise CliError(f"cannot ship {self.failure}", EXIT_NOT_DELIVERED)

    def settle(self) -> None:
        """Move the positions past all that is acknowledged."""
        if self.dying:
            self.bury()
        while self.on_way and self.on_way[0].left <= 0:
            sent = self.on_way.popleft()
            sent.followed.acknowledged(sent.piece)
            self.changed = True

    def save(self, clean: bool = False, force: bool = False) -> bool:
        """Write the state if it changed (always with `force`). clean: no lines are being sent. False when it cannot
        be written.
        """
        if not self.changed and not force and not self.unwritten:
            return True
        try:
            self.state.save(clean and not self.on_way, self.starts())
        except OSError as error:
            if not self.unwritten:
                self.notes.append(
                    f"cannot write {self.state.path}: {error.strerror}; files that are new wait until it can be written"
                )
            self.unwritten = error.strerror or str(error)
            return False
        self.changed, self.unwritten = False, ""
        return True

    def starts(self) -> dict[int, int]:
        """By partition: an offset before which nothing was sent that lies beyond the positions."""
        written = {entry.id: entry.position for entry in self.state.entries}
        for file_id, positions in self.arrived.items():
            if self.last_arrived[file_id] >= written.get(file_id, self.last_arrived[file_id] + 1):
                # Lines of an earlier run are still to come: if this run is killed, too, the next run
                # must read back as far.
                return self.state.starts
            positions.clear()
        return self.on_way[0].high if self.on_way else self.high.copy()

    def drain(self, seconds: float | None) -> bool:
        """Wait until everything is acknowledged; False when that takes longer than `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            self.outbox.rest(REST_SECONDS)
            self.settle()
            self.save()
            self.raise_failure()
            if not self.on_way:
                return True
            if self.topic_is_gone or (deadline is not None and time.monotonic() > deadline):
                return False
            if deadline is None and self.is_stopped():
                deadline = time.monotonic() + STOP_SECONDS

    # --- what an earlier run has sent --------------------------------------------------------------------

    def find_arrived(self) -> int:
        """Find the records that a killed agent had sent beyond the written positions; how many there are.

        Nothing is read when the last run ended cleanly. Raises CliError when the topic cannot be read.
        """
        consumer = self.connection.consumer(
            {
                "group.id": "barnabas-agent",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                # Read uncommitted records, since another producer's open transaction may precede the agent's records.
                "isolation.level": "read_uncommitted",
            }
        )
        try:
            self._read_back(consumer, self.state.clean or not self.state.entries or not self.with_headers)
        except KafkaException as error:
            raise CliError(f"cannot read {self.topic} back: {explain(error.args[0])}") from None
        finally:
            consumer.close()
        self.last_arrived = {file_id: max(positions) for file_id, positions in self.arrived.items()}
        return sum(map(len, self.arrived.values()))

    def _read_back(self, consumer: Any, only_ends: bool) -> None:
        partitions = consumer.list_topics(self.topic, timeout=TIMEOUT_SECONDS).topics[self.topic].partitions
        for partition in partitions:
            part = TopicPartition(self.topic, partition)
            self.high[partition] = consumer.get_watermark_offsets(part, timeout=TIMEOUT_SECONDS)[1]
        if only_ends:
            return
        starts = self.state.starts
        still_open = {part for part in partitions if starts.get(part, 0) < self.high[part]}
        consumer.assign(
            [TopicPartition(self.topic, part, max(starts.get(part, 0), 0)) for part in still_open]
        )
        written = {entry.id: entry.position for entry in self.state.entries}
        while still_open and not self.is_stopped():
            messages = consumer.consume(10_000, 0)
            if not messages:
                time.sleep(REST_SECONDS)
            for message in messages:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    still_open.discard(message.partition())
                elif error is not None:
                    raise KafkaException(error)
                else:
                    self._note_arrived(message, written)

    def _note_arrived(self, message: Any, written: dict[str, int]) -> None:
        headers = dict(message.headers() or ())
        place = headers.get("position")
        if place is None:
            return
        file_id, _, position = place.decode("ascii", "replace").partition(":")
        if file_id in written and position.isdigit() and int(position) >= written[file_id]:
            self.arrived.setdefault(file_id, set()).add(int(position))
            end = headers.get("end", b"")
            if end.isdigit():
                self.ends.setdefault(file_id, set()).add(int(end))


FILE_KEY: Final = b"\0file"
"""Stands for `--key file`; compared by identity."""
STOP_SECONDS: Final = 5.0
"""How long a stopped agent waits for acknowledgements; the next run sends lines that were not acknowledged."""
NOTES_MAX: Final = 5
DEAD_BYTES_MAX: Final = 512 << 10
"""What a dead letter has of a line at most: the topic of dead letters has a limit, too."""
