"""One run of the agent: files are read round by round and shipped, until it is stopped."""

from __future__ import annotations

import codecs
import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from barnabas.admin import Admin, Results, Topic
from barnabas.agent.alarm import FULL_SECONDS, Alarm
from barnabas.agent.assembly import Assembler, Recipe
from barnabas.agent.files import CLOSED, Compressed, Followed, Piece, Truncated
from barnabas.agent.shipper import Shipper
from barnabas.agent.state import Entry
from barnabas.agent.watcher import PARKED_AT_ONCE, FileKey, Watcher
from barnabas.terminal.administering import options_of
from barnabas.terminal.connection import ClusterAddress
from barnabas.terminal.errors import CliError
from barnabas.terminal.output import count_of, note

POLL_SECONDS: Final = 0.2
SCAN_SECONDS: Final = 1.0
SAVE_SECONDS: Final = 1.0
PROGRESS_SECONDS: Final = 5.0
TOPIC_SECONDS: Final = 2.0
"""How often the agent checks whether the topic was created again."""
LOOK_SECONDS: Final = 10.0
ACKNOWLEDGED_SECONDS: Final = 0.01
"""How often acknowledgements are processed while the agent waits for lines."""


@dataclass(slots=True)
class Pace:
    """How fast may be read. bytes_per_s, lines_per_s: 0 for no limit. One second's worth may come at once."""

    bytes_per_s: int = 0
    lines_per_s: int = 0
    due_at: float = 0.0

    def wait_seconds(self, lines: int, size_bytes: int, now: float) -> float:
        """How long to wait after so much was read."""
        cost = max(
            size_bytes / self.bytes_per_s if self.bytes_per_s else 0.0,
            lines / self.lines_per_s if self.lines_per_s else 0.0,
        )
        self.due_at = max(self.due_at, now) + cost
        return self.due_at - now

    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return bool(self.bytes_per_s or self.lines_per_s)


@dataclass(slots=True)
class TopicWatch:
    """Checks from time to time, without waiting for the answer, whether the topic is still the same as at the start."""

    connection: ClusterAddress
    topic: str
    topic_id: str
    admin: Admin | None = None
    answer: Future[Results[str, Topic]] | None = None
    asked_at: float = field(default_factory=time.monotonic)
    partitions: int = 0
    """How many the topic has by the last answer."""

    def close(self) -> None:
        """Ask no more."""
        admin, self.admin, self.answer = self.admin, None, None
        if admin is not None:
            admin.close()

    def has_changed(self) -> bool:
        """Whether the last answer named another topic of this name."""
        now = time.monotonic()
        if not self.topic_id or now - self.asked_at < TOPIC_SECONDS:
            return False
        if self.answer is None:
            if self.admin is None:
                self.admin = Admin(options_of(self.connection, LOOK_SECONDS))
            self.answer = self.admin.thread.start(self.admin.asynchronous.topics.describe([self.topic]))
            return False
        if not self.answer.done():
            return False
        answer, self.answer, self.asked_at = self.answer, None, now
        # An error proves nothing: the broker is away, or the topic was deleted and is not created again yet.
        if answer.exception() is not None:
            return False
        description = answer.result().done.get(self.topic)
        self.partitions = len(description.partitions) if description is not None else 0
        return description is not None and description.id is not None and str(description.id) != self.topic_id


@dataclass(slots=True)
class Stop:
    """Whether a signal has asked the agent to end."""

    asked: bool = False

    def ask(self) -> None:
        """End after the piece at hand."""
        self.asked = True

    def wait(self, seconds: float) -> None:
        """Wait until the end is asked for, with a time limit."""
        deadline = time.monotonic() + seconds
        while not self.asked and time.monotonic() < deadline:
            time.sleep(0.1)


class TopicMadeAnew(Exception):
    """The topic is not the one of the start any more; the lines that were sent to the old topic are gone."""


@dataclass(slots=True)
class Run:
    """One run of the agent, into one topic."""

    watcher: Watcher
    shipper: Shipper
    topic_watch: TopicWatch
    quiet: bool
    stop: Stop
    who: str = "barnabas agent tail"
    recipe: Recipe = field(default_factory=Recipe)
    pace: Pace = field(default_factory=Pace)
    scan_seconds: float = SCAN_SECONDS
    alarm: Alarm | None = None
    """Says which files to read; without it, all of them are looked at again and again."""
    again: set[str] = field(default_factory=set)
    """Paths that the next round must look at, whatever is heard of them."""
    looked_at: float = 0.0
    """When all files were looked at."""
    after_save: Callable[[list[Entry]], None] = lambda entries: None
    """Called when the state is on the disk, with the positions in it."""
    assemblers: dict[str, Assembler] = field(default_factory=dict)
    """By file id; none when each line is a record."""
    lines_read: int = 0
    began: float = field(default_factory=time.monotonic)
    scanned_at: float = 0.0
    saved_at: float = field(default_factory=time.monotonic)
    told_at: float = field(default_factory=time.monotonic)
    told_lines: int = 0
    told_waiting: bool = False
    is_short_of_descriptors: bool = False

    def once(self) -> None:
        """Send everything that the files contain, including a last line without a newline. Raises CliError, Stopped."""
        self.watcher.holds_copies = False
        self.watcher.scan()
        while not self.stop.asked:
            self.is_short_of_descriptors = False
            if not self.save_new_files():
                raise CliError(f"cannot write {self.shipper.state.path}: {self.shipper.unwritten}")
            if not self.read_round() and not self.is_short_of_descriptors:
                if not self.watcher.waiting:
                    break
                self.leave_finished()
            self.housekeep()
        if self.stop.asked:
            return
        for key in list(self.watcher.open_files):
            self.send_partial(key)
        self.send_waiting(at_end=True)

    def follow(self) -> None:
        """Send lines as they are written, until stopped. Raises CliError, Stopped, TopicMadeAnew."""
        while not self.stop.asked:
            if self.must_scan():
                self.scan()
            self.save_new_files()
            has_read = self.read_round()
            self.leave_finished()
            if self.assemblers:
                self.send_waiting()
            if not has_read:
                self.rest()
            self.housekeep()

    def scan(self) -> None:
        """Look for new files and new names."""
        before = {*self.watcher.open_files}
        self.watcher.scan()
        self.scanned_at = time.monotonic()
        for key, followed in self.watcher.open_files.items():
            if key not in before:
                self.look_again(followed)

    def must_scan(self) -> bool:
        """Whether to look for new files and new names now."""
        since, alarm = time.monotonic() - self.scanned_at, self.alarm
        if alarm is None:
            return since > self.scan_seconds
        alarm.wait(0)
        if not alarm.has_new and since < FULL_SECONDS:
            return False
        alarm.has_new = False
        alarm.watch(self.watcher.patterns)
        return True

    def rest(self) -> None:
        """Wait for new lines for a while; acknowledgements arrive meanwhile."""
        alarm = self.alarm
        if alarm is None:
            self.shipper.rest(POLL_SECONDS)
            return
        until = time.monotonic() + POLL_SECONDS
        while not (alarm.changed or alarm.has_new or self.stop.asked) and time.monotonic() < until:
            if self.shipper.on_way:
                alarm.wait(ACKNOWLEDGED_SECONDS)
                self.shipper.settle()
            else:
                alarm.wait(max(until - time.monotonic(), 0))
        self.shipper.settle()

    def files_to_read(self) -> list[tuple[FileKey, Followed]]:
        """The files that may have something new."""
        open_files, alarm = list(self.watcher.open_files.items()), self.alarm
        if alarm is None:
            return open_files
        now = time.monotonic()
        if alarm.is_lost or now - self.looked_at > FULL_SECONDS:
            alarm.is_lost, self.looked_at = False, now
            alarm.changed.clear()
            self.again.clear()
            return open_files
        changed, saved = alarm.changed | self.again, self.shipper.state.saved
        alarm.changed, self.again = set(), set()
        return [
            (key, followed)
            for key, followed in open_files
            if followed.path in changed
            or followed.moved
            or followed.packed_bytes
            or followed.entry.id not in saved
        ]

    def save_new_files(self) -> bool:
        """Note new files in the state before their first line is sent: the next run must know their ids."""
        saved, is_new = self.shipper.state.saved, False
        for followed in self.watcher.open_files.values():
            if followed.entry.id not in saved and self.has_room(followed):
                was_closed = followed.descriptor == CLOSED
                try:
                    is_new = followed.note_head() or is_new
                except OSError as error:
                    self.on_unreadable(followed, error)
                self.watcher.room -= was_closed and followed.descriptor != CLOSED
        return self.shipper.save(force=True) if is_new else True

    def read_round(self) -> bool:
        """Read one piece of each file; False when none had anything new. Raises CliError, Stopped."""
        has_read, saved = False, self.shipper.state.saved
        for key, followed in self.files_to_read():
            if self.stop.asked:
                break
            if self.watcher.open_files.get(key) is not followed:
                continue  # the file is the rest of one that was truncated
            if (
                followed.entry.id not in saved
                or self.watcher.is_held(followed)
                or not self.has_room(followed)
            ):
                self.look_again(followed)
                continue
            was_closed = followed.descriptor == CLOSED
            try:
                if not self.is_plain:
                    self.prepare(followed)
                piece = followed.read(as_block=self.is_plain or self.is_framed)
            except Truncated:
                self.watcher.restart(key)
                self.look_again(followed)
                has_read = self.save_new_files() or has_read
                continue
            except Compressed as kind:
                self.watcher.leave_out(key, str(kind))
                continue
            except OSError as error:
                self.on_unreadable(followed, error)
                continue
            self.watcher.room -= was_closed and followed.descriptor != CLOSED
            if piece is not None:
                has_read = True
                self.look_again(followed)
                self.take(followed, piece)
        return has_read

    def look_again(self, followed: Followed) -> None:
        """The next round must look at this file, whatever is heard of it."""
        if self.alarm is not None:
            self.again.add(followed.path)

    @property
    def is_plain(self) -> bool:
        """Whether each line is a record as it is."""
        return self.recipe.is_plain()

    @property
    def is_framed(self) -> bool:
        """Whether each line becomes an event of JSON by itself."""
        return self.recipe.is_framed()

    def prepare(self, followed: Followed) -> None:
        """Before a file is read for the first time, what makes records of its lines is made."""
        file_id = followed.entry.id
        assembler = self.assemblers.get(file_id)
        if assembler is not None:
            assembler.followed = followed  # the rest of a file may be in another one
            return
        shipper = self.shipper
        known = shipper.arrived.get(file_id, set()) | shipper.ends.get(file_id, set())
        self.assemblers[file_id] = Assembler(self.recipe, followed, known)

    def take(self, followed: Followed, piece: Piece) -> None:
        """Ship lines that were read. Raises CliError, Stopped."""
        self.lines_read += piece.count
        if self.pace.is_limited():
            self.keep_pace(piece)
        if self.is_plain:
            self.shipper.send(followed, piece)
            return
        self.prepare(followed)
        if piece.block and not self.frame(followed, piece):
            piece.cut_apart()
        if piece.block:
            self.assemblers[followed.entry.id].passed(piece)
            self.shipper.send(followed, piece)
            return
        complete = self.assemblers[followed.entry.id].feed(piece)
        if complete is not None:
            self.shipper.send(followed, complete)

    def frame(self, followed: Followed, piece: Piece) -> bool:
        """Say how values are made of a block; whether they can be: its bytes are UTF-8, without a mark of their order."""
        try:
            if not piece.block.isascii():
                piece.block.decode()
        except UnicodeDecodeError:
            return False
        if not piece.start and piece.block.startswith(codecs.BOM_UTF8):
            return False
        piece.framed = self.recipe.shape.framed(followed.path, time.time())
        return True

    def keep_pace(self, piece: Piece) -> None:
        """Wait as the limits of this input demand; acknowledgements are processed meanwhile."""
        wait = self.pace.wait_seconds(piece.count, piece.end - piece.start, time.monotonic())
        until = time.monotonic() + wait - 1
        while not self.stop.asked and time.monotonic() < until:
            self.shipper.rest(min(POLL_SECONDS, max(until - time.monotonic(), 0)))
            self.shipper.settle()
            self.write_down()

    def send_waiting(self, at_end: bool = False) -> None:
        """Ship records that have waited long enough for more lines, and those of files that are followed no more."""
        now = time.monotonic()
        followed_ids = {followed.entry.id for followed in self.watcher.open_files.values()}
        for file_id, assembler in list(self.assemblers.items()):
            is_left = file_id not in followed_ids
            if at_end or is_left or (assembler.is_due(now) and not assembler.followed.has_more()):
                complete = assembler.flush()
                if complete is not None:
                    self.shipper.send(assembler.followed, complete)
            if is_left:
                del self.assemblers[file_id]

    def has_room(self, followed: Followed) -> bool:
        """Whether a file is open or may be opened; acknowledged lines of other files make room."""
        if self.watcher.has_room(followed):
            return True
        self.shipper.rest(0)
        self.shipper.settle()
        self.is_short_of_descriptors = True
        return False

    def on_unreadable(self, followed: Followed, error: OSError) -> None:
        """A file cannot be opened or read. If there are no descriptors left, other files are closed, and it is tried
        again.
        """
        if error.errno != errno.EMFILE:
            self.watcher.skip(followed.path, f"cannot read {followed.path}: {error.strerror}")
            return
        self.is_short_of_descriptors = True
        self.shipper.rest(POLL_SECONDS)  # files whose lines are acknowledged can be closed
        self.shipper.settle()
        self.watcher.park_idle(at_least=PARKED_AT_ONCE)

    def send_partial(self, key: FileKey) -> None:
        """Ship a file's last line although it has no newline."""
        followed = self.watcher.open_files[key]
        try:
            piece = followed.take_partial()
        except Compressed as kind:
            self.watcher.leave_out(key, str(kind))
            return
        if piece is not None:
            self.take(followed, piece)

    def leave_finished(self) -> None:
        """Close renamed files that no process writes to any more; their last line will not get a newline."""
        for key in self.watcher.finished():
            self.send_partial(key)
            if key in self.watcher.open_files:
                self.watcher.close(key)
        self.watcher.unpack_next()
        for key in self.watcher.unpacked():
            self.send_partial(key)
            followed = self.watcher.open_files.get(key)
            if followed is not None and not followed.outstanding:
                self.watcher.leave_unpacked(key)
                self.shipper.changed = True

    def housekeep(self) -> None:
        """Positions, state file, notes and progress, each at its own pace. Raises CliError, TopicMadeAnew."""
        self.shipper.settle()
        self.shipper.raise_failure()
        if self.topic_watch.has_changed() or self.shipper.topic_is_gone:
            raise TopicMadeAnew
        self.shipper.partitions = max(self.shipper.partitions, self.topic_watch.partitions)
        self.write_down()

    def wait(self) -> None:
        """What goes on while the queue is full: files that come and are rotated meanwhile are opened."""
        if self.must_scan():
            self.scan()
            self.save_new_files()
        self.write_down()

    def write_down(self) -> None:
        """Positions, notes and progress."""
        now = time.monotonic()
        if now - self.saved_at > SAVE_SECONDS:
            if self.shipper.save():
                self.after_save(self.shipper.state.entries)
            self.saved_at = now
        self.tell_notes()
        if now - self.told_at > PROGRESS_SECONDS:
            self.tell_progress(now)

    def abandon(self) -> None:
        """Forget the lines that are being sent; the next run finds out which of them arrived."""
        self.tell_notes()
        self.shipper.save()
        self.watcher.close_all()
        self.close()
        self.shipper.state.close()

    def close(self) -> None:
        """Release what is asked beside the files, and the connection that is sent on."""
        self.topic_watch.close()
        self.shipper.close()
        if self.alarm is not None:
            self.alarm.close()
            self.alarm = None

    def behind_bytes(self) -> int:
        """How much of the followed files is not acknowledged yet; may be called in another thread."""
        behind = 0
        for followed in [*self.watcher.open_files.values()]:
            try:
                status = (
                    os.stat(followed.path) if followed.descriptor == CLOSED else os.fstat(followed.descriptor)
                )
            except OSError:
                continue
            behind += max(status.st_size - followed.entry.position, 0)
        return behind

    def tell_notes(self) -> None:
        """What happened to files and lines, on standard error."""
        for notes in (self.watcher.notes, self.shipper.notes):
            for message in notes:
                note(f"{self.who}: {message}")
            notes.clear()

    def tell_progress(self, now: float) -> None:
        """Print a line on standard error when lines arrived, or while the broker is away."""
        arrived = self.shipper.lines_arrived
        waiting = bool(self.shipper.on_way) and arrived == self.told_lines
        if waiting and not self.told_waiting:
            reason = self.shipper.sender.trouble or "no acknowledgement yet"
            note(f"{self.who}: waiting for the broker: {reason}")
        elif arrived != self.told_lines and not self.quiet:
            rate = (arrived - self.told_lines) / (now - self.told_at)
            note(f"shipped {count_of(arrived, 'line')}, {rate:,.0f} lines/s")
        self.told_waiting = waiting
        self.told_at, self.told_lines = now, arrived
