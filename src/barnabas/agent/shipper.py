"""Sends pieces of files and moves the files' positions when the broker has acknowledged them.

A position moves only past lines that are all acknowledged, in the order of the file. When an agent is killed, the
next run finds the lines that were sent after the last written position in the topic itself: each
record says in its headers which file (`file`), and where in it (`position`, as `id:byte`), so it reads the end of the
topic and leaves out the lines that have arrived. Where to begin reading is stored as offsets, not as times, because
clocks may be set.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from barnabas.agent.files import Followed, Piece
from barnabas.agent.state import State
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.sending import TOO_LARGE, Batch, Outcome, Sender
from barnabas.records.batch_header import HEADER_BYTES
from barnabas.records.columnar_encoder import murmur2
from barnabas.records.compression import codec_of
from barnabas.records.record_block import Stamp, encode_headers
from barnabas.terminal.administering import options_of
from barnabas.terminal.connection import BATCH_BYTES, HINTS, RECORD_BYTES_MAX, ClusterAddress, explain
from barnabas.terminal.errors import EXIT_NOT_DELIVERED, CliError
from barnabas.terminal.topics import batch_limits
from barnabas.wire.errors import ErrorCode

MEMORY_KB: Final = 4 * 1024
"""How much may be on its way if nobody says otherwise."""
LINGER_SECONDS: Final = 0.02
"""How long records wait for others while earlier ones are on their way; if none are, they do not wait."""
REST_SECONDS: Final = 0.02
TIMEOUT_SECONDS: Final = 30.0
NOT_VALID: Final = {
    ErrorCode.INVALID_TIMESTAMP: "the broker refuses the time of this machine's clock; set both clocks right",
    ErrorCode.INVALID_RECORD: "the broker refuses the records: the clock of one of the machines is wrong, or the topic is "
    "compacted and wants a key (--key)",
}


class Refused(Exception):
    """The broker refuses records that it may accept later; the argument says why. Another run sends everything again."""


class Stopped(Exception):
    """A signal arrived while the queue was full and the broker was away."""


@dataclass(slots=True, eq=False)
class Sent:
    """A piece that is being sent. `left` counts its records that are not acknowledged."""

    followed: Followed
    piece: Piece
    left: int
    high: dict[int, int]
    """By partition: the offset after the last one that was acknowledged when this piece was sent."""


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a piece."""

    sent: Sent
    position: int
    data: bytes
    number: int = -1
    """Which of the piece's records it is, if these are not simply one line after the other."""


@dataclass(slots=True, eq=False)
class Span:
    """Records of one piece in one batch: `count` lines in a part of its block, from `at` to `end`; or its records of these
    `numbers`; or a single `line`. dead: that is a dead letter.
    """

    sent: Sent
    count: int = 1
    at: int = 0
    end: int = 0
    numbers: list[int] = field(default_factory=list)
    line: Line | None = None
    dead: bool = False

    def each(self) -> Iterator[Line]:
        """The records, one by one."""
        piece = self.sent.piece
        if self.line is not None:
            yield self.line
        elif self.numbers:
            assert piece.positions is not None
            for number in self.numbers:
                yield Line(self.sent, piece.positions[number], piece.lines[number], number)
        else:
            position = piece.start + self.at
            for data in piece.block[self.at : self.end].removesuffix(b"\n").split(b"\n"):
                value = data if piece.framed is None else piece.framed.one(data, position, 1)
                yield Line(self.sent, position, value)
                position += len(data) + 1


@dataclass(slots=True)
class Shipper:
    """One producer, the pieces on their way, and what was counted."""

    connection: ClusterAddress
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
    sender: Sender = field(init=False)
    partitions: int = 1
    open: dict[tuple[str, int], Batch] = field(default_factory=dict)
    """Batches that are being filled."""
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
    refused_for_now: str = ""
    unwritten: str = ""
    """Why the positions could not be written; empty when they were written."""
    notes: list[str] = field(default_factory=list)
    refused_note: str = ""
    dying: deque[tuple[Line, str]] = field(default_factory=deque)
    """Refused lines that are not sent to the dead letters yet."""
    record_bytes_max: int = RECORD_BYTES_MAX
    memory_bytes: int = 0
    _sticky: int = field(default_factory=lambda: random.randrange(1 << 16))
    """Counts batches without a key: they go to one partition after the other."""

    def __post_init__(self) -> None:
        wanted = {**self.settings, **self.connection.properties}
        codec = wanted.get("compression.type", wanted.get("compression.codec", "lz4"))
        try:
            self.memory_bytes = int(wanted.get("queue.buffering.max.kbytes", MEMORY_KB)) * 1024
            limits = batch_limits(self.connection, self.topic)
            batch_bytes = int(limits.get("batch.size", BATCH_BYTES)) - HEADER_BYTES
            self.record_bytes_max = int(limits.get("message.max.bytes", RECORD_BYTES_MAX))
            self.sender = Sender(options_of(self.connection), codec_of(codec), self.split, batch_bytes)
        except (ClientError, ValueError) as error:
            raise CliError(str(error)) from None

    # --- sending ---------------------------------------------------------------------------------------

    def send(self, followed: Followed, piece: Piece) -> None:
        """Put the piece's records into batches; waits while too much is on its way. Raises Stopped, CliError."""
        if piece.too_long:
            self.refuse(followed, "a line before byte", piece.start, "is longer than 64 MB")
        if not piece.count and not piece.too_long and piece.positions is None:
            return
        sent = Sent(followed, piece, piece.count, self.high.copy())
        followed.outstanding += 1
        self.on_way.append(sent)
        if piece.block:
            self.send_block(sent)
        else:
            self.send_records(sent)
        self.poll()

    def send_block(self, sent: Sent) -> None:
        """Lines that are records as they are, or become some alone."""
        followed, piece = sent.followed, sent.piece
        frame = None if piece.framed is None else piece.framed.frame
        key, stamp, now_ms = self.key_of(followed), self.stamp_of(followed), time.time_ns() // 1_000_000
        for at, end in self.unknown_parts(sent):
            part = memoryview(piece.block)[:end]
            self.bytes_sent += end - at
            while at < end:
                batch = self.batch_for(key)
                upto, count = batch.block.add_lines(
                    part, at, piece.start + at, stamp, now_ms, self.sender.batch_bytes, frame
                )
                if count:
                    batch.spans.append(Span(sent, count, at, upto))
                at = upto
                if at < end:
                    self.dispatch(batch)
                    self.wait_for_room()

    def unknown_parts(self, sent: Sent) -> Iterator[tuple[int, int]]:
        """The parts of a block without the lines that an earlier run has brought into the topic."""
        piece, file_id = sent.piece, sent.followed.entry.id
        arrived: Collection[int] = self.arrived.get(file_id, ())
        if not arrived or self.last_arrived[file_id] < piece.start:
            yield 0, len(piece.block)
            return
        begun = at = 0
        for line in piece.block.removesuffix(b"\n").split(b"\n"):
            end = at + len(line) + 1
            if piece.start + at in arrived:
                sent.left -= 1
                self.lines_found += 1
                if begun < at:
                    yield begun, at
                begun = end
            at = end
        if begun < len(piece.block):
            yield begun, len(piece.block)

    def send_records(self, sent: Sent) -> None:
        """Records that are made one by one."""
        followed, piece = sent.followed, sent.piece
        arrived = self.arrived.get(followed.entry.id, ())
        stamp, now_ms = self.stamp_of(followed), time.time_ns() // 1_000_000
        key, keys, ends = self.key_of(followed), piece.keys, piece.ends if self.tells_ends else None
        if piece.positions is None:
            piece.positions = positions_of(piece)
        for number, (data, position) in enumerate(zip(piece.lines, piece.positions, strict=True)):
            if position in arrived:
                sent.left -= 1
                self.lines_found += 1
                continue
            if keys is not None:
                key = keys[number]
            end = -1 if ends is None else ends[number]
            batch = self.batch_for(key)
            if not batch.block.add_stamped(data, key, stamp, position, end, now_ms, self.sender.batch_bytes):
                self.dispatch(batch)
                self.wait_for_room()
                batch = self.batch_for(key)
                batch.block.add_stamped(data, key, stamp, position, end, now_ms, self.sender.batch_bytes)
            span = batch.spans[-1] if batch.spans else None
            if span is None or span.sent is not sent:
                span = Span(sent, 0)
                batch.spans.append(span)
            span.numbers.append(number)
            span.count += 1
            self.bytes_sent += len(data)
        for refusal in piece.refused:
            sent.left += 1
            self.refuse_line(Line(sent, refusal.position, refusal.data), refusal.reason)

    def batch_for(self, key: bytes | None) -> Batch:
        """The batch that records with this key go to."""
        number = self._sticky if key is None else murmur2(key) & 0x7FFFFFFF
        place = (self.topic, number % self.partitions)
        batch = self.open.get(place)
        if batch is None:
            batch = self.open[place] = Batch(*place)
        return batch

    def dispatch(self, batch: Batch) -> None:
        """Send a batch that is full or has waited long enough."""
        del self.open[batch.topic, batch.partition]
        self._sticky += 1
        if batch.block.records == 1 and batch.block.size_bytes > self.record_bytes_max:
            for span in batch.spans:
                for line in span.each():
                    self.refuse_line(line, too_large(line))
        else:
            self.sender.put(batch)

    def flush(self, force: bool = False) -> None:
        """Send what waits for more records, unless it should still wait for them."""
        now, is_idle = time.monotonic(), self.sender.is_idle()
        for batch in [*self.open.values()]:
            if batch.block.records and (force or is_idle or now - batch.begun_at > LINGER_SECONDS):
                self.dispatch(batch)

    def split(self, batch: Batch, size_bytes_max: int) -> list[Batch]:
        """Smaller batches with the same records; called in the sender's thread."""
        batches, now_ms = [Batch(batch.topic, batch.partition)], batch.block.base_timestamp
        for span in batch.spans:
            piece, stamp = span.sent.piece, self.stamp_of(span.sent.followed)
            for line in span.each():
                key = self.key_of(span.sent.followed) if piece.keys is None else piece.keys[line.number]
                end = piece.ends[line.number] if piece.ends is not None and self.tells_ends else -1
                record = (line.data, key, stamp, line.position, end, now_ms, size_bytes_max)
                if not batches[-1].block.add_stamped(*record):
                    batches.append(Batch(batch.topic, batch.partition))
                    batches[-1].block.add_stamped(*record)
                batches[-1].spans.append(Span(span.sent, line=line))
        return batches

    def stamp_of(self, followed: Followed) -> Stamp:
        """What all records of a file have in common."""
        key, last, count = self.key_of(followed), encode_headers(self.more_headers), len(self.more_headers)
        if not self.with_headers:
            return Stamp(key, b"", last, count)
        named, id_prefix = self.name_headers(followed)
        return Stamp(key, encode_headers([named]), last, count + 1, "position", id_prefix)

    def name_headers(self, followed: Followed) -> tuple[tuple[str, bytes], bytes]:
        """The header with the file's name, and the other header's text before the position."""
        named = ("file", followed.path.encode("utf-8", "surrogateescape"))
        return named, followed.entry.id.encode() + b":"

    def key_of(self, followed: Followed) -> bytes | None:
        """The key of a file's records; FILE_KEY stands for its path."""
        return followed.path.encode("utf-8", "surrogateescape") if self.key is FILE_KEY else self.key

    def wait_for_room(self) -> None:
        """Wait while too much is on its way. Raises Stopped after a signal, CliError once a line has failed for good."""
        while self.sender.waiting_bytes > self.memory_bytes:
            self.sender.wait(REST_SECONDS)
            self.settle()
            self.while_waiting()
            self.raise_failure()
            if self.is_stopped() or self.topic_is_gone:
                raise Stopped

    # --- what became of it -------------------------------------------------------------------------------

    @property
    def topic_is_gone(self) -> bool:
        """Whether the cluster has no such topic any more."""
        return self.sender.gone

    def poll(self) -> None:
        """Send what has waited long enough, and note what has arrived."""
        self.flush()
        while self.sender.outcomes:
            self.note_outcome(self.sender.outcomes.popleft())
        if self.sender.failure and not self.failure:
            self.failure = f"to {self.topic}: {self.sender.failure}"

    def rest(self, seconds: float) -> None:
        """Wait for acknowledgements, with a time limit."""
        self.poll()
        if not self.sender.is_idle():
            self.sender.wait(seconds)
        else:
            time.sleep(seconds)
        self.poll()

    def note_outcome(self, outcome: Outcome) -> None:
        """A batch has arrived, or was refused."""
        batch = outcome.batch
        for span in batch.spans:
            if outcome.error is not None:
                self.give_up(outcome.error, span)
                continue
            span.sent.left -= span.count
            if not span.dead:
                self.lines_arrived += span.count
        if outcome.error is None and outcome.offset >= 0 and batch.topic == self.topic:
            self.high[batch.partition] = outcome.offset + batch.block.records

    def give_up(self, error: BrokerError, span: Span) -> None:
        """Records did not arrive: one that is too large is counted, every other error stops the agent."""
        path = span.sent.followed.path
        if span.dead:
            self.failure = self.failure or f"{path}: to {self.dead_letters}: {explained(error)}"
        elif error.code in TOO_LARGE:
            for line in span.each():
                self.refuse_line(line, too_large(line))
        elif error.code in NOT_VALID:
            self.refused_for_now = self.refused_for_now or NOT_VALID[ErrorCode(error.code)]
        else:
            self.failure = self.failure or f"{path}: {explained(error)}"

    def refuse_line(self, line: Line, why: str) -> None:
        """A line that is left out, or becomes a dead letter."""
        self.refuse(line.sent.followed, "the line at byte", line.position, why)
        if self.dead_letters:
            self.dying.append((line, why))
        else:
            line.sent.left -= 1

    def bury(self) -> None:
        """Send dead letters."""
        while self.dying:
            line, why = self.dying.popleft()
            named, id_prefix = self.name_headers(line.sent.followed)
            headers = [named, ("position", id_prefix + b"%d" % line.position), ("reason", why.encode())]
            if len(line.data) > DEAD_BYTES_MAX:
                headers.append(("bytes", b"%d" % len(line.data)))
            batch = Batch(self.dead_letters, 0)
            now_ms = time.time_ns() // 1_000_000
            batch.block.add(
                line.data[:DEAD_BYTES_MAX], None, encode_headers(headers), len(headers), now_ms, BATCH_BYTES
            )
            batch.spans.append(Span(line.sent, line=line, dead=True))
            self.sender.put(batch)

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
        self.poll()
        if self.dying:
            self.bury()
        while self.on_way and self.on_way[0].left <= 0:
            sent = self.on_way.popleft()
            sent.followed.acknowledged(sent.piece)
            self.changed = True

    def close(self) -> None:
        """Give up what is not acknowledged."""
        self.sender.close()

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
            self.flush(force=True)
            self.settle()
            if self.on_way:
                self.sender.wait(REST_SECONDS)
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
        self.partitions = max(len(partitions), 1)
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


def positions_of(piece: Piece) -> list[int]:
    """Where each line of a piece begins whose lines follow each other."""
    positions, position = [], piece.start
    for line in piece.lines:
        positions.append(position)
        position += len(line) + 1
    return positions


def too_large(line: Line) -> str:
    """Why a line is refused that the topic does not take."""
    return f"of {len(line.data):,} bytes is larger than the topic takes (max.message.bytes)"


def explained(error: BrokerError) -> str:
    """What happened and what to do, on one line."""
    hint = HINTS.get(error.code)
    return f"{error} ({hint})" if hint else str(error)
