"""`barnabas agent tail`: the command line of the tail agent and its loop."""

from __future__ import annotations

import errno
import hashlib
import socket
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from barnabas.admin import Admin, Results, Topic
from barnabas.agent.files import CLOSED, Compressed, Followed, Truncated
from barnabas.agent.shipper import FILE_KEY, STOP_SECONDS, Refused, Shipper, Stopped
from barnabas.agent.state import default_folder, open_state
from barnabas.agent.watcher import PARKED_AT_ONCE, FileKey, Watcher, require_files
from barnabas.cli.records.produce import require_topic
from barnabas.terminal.administering import administering, options_of
from barnabas.terminal.connection import Connection, connect
from barnabas.terminal.errors import EXIT_NOT_DELIVERED, EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Quiet, Verbose
from barnabas.terminal.output import count_of, note, print_json, size_text
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.signals import ending

app = new_app("Ship the lines of growing files into a topic.")

POLL_SECONDS: Final = 0.2
SCAN_SECONDS: Final = 1.0
SAVE_SECONDS: Final = 1.0
PROGRESS_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 0.5
TOPIC_SECONDS: Final = 2.0
"""How often the agent checks whether the topic was created again."""
LOOK_SECONDS: Final = 10.0
REFUSED_SECONDS: Final = 5.0
TRIES: Final = 3
"""How often the start may fail with a broker that answers, before the agent gives up."""


@app.callback()
def agent() -> None:
    """Ship the lines of growing files into a topic."""


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
                break
            self.housekeep()
        if self.stop.asked:
            return
        for key in list(self.watcher.open_files):
            self.send_partial(key)

    def follow(self) -> None:
        """Send lines as they are written, until stopped. Raises CliError, Stopped, TopicMadeAnew."""
        while not self.stop.asked:
            if time.monotonic() - self.scanned_at > SCAN_SECONDS:
                self.watcher.scan()
                self.scanned_at = time.monotonic()
            self.save_new_files()
            found = self.read_round()
            self.leave_finished()
            if not found:
                # Acknowledgements arrive during this wait, which also limits how long a new line waits.
                self.shipper.outbox.rest(POLL_SECONDS)
            self.housekeep()

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
        found, saved = False, self.shipper.state.saved
        for key, followed in list(self.watcher.open_files.items()):
            if self.stop.asked:
                break
            if self.watcher.open_files.get(key) is not followed:
                continue  # the file is the rest of one that was truncated
            if followed.entry.id not in saved or self.watcher.is_held(followed):
                continue
            if not self.has_room(followed):
                continue
            was_closed = followed.descriptor == CLOSED
            try:
                piece = followed.read()
            except Truncated:
                self.watcher.restart(key)
                found = self.save_new_files() or found
                continue
            except Compressed as kind:
                self.watcher.leave_out(key, str(kind))
                continue
            except OSError as error:
                self.on_unreadable(followed, error)
                continue
            self.watcher.room -= was_closed and followed.descriptor != CLOSED
            if piece is not None:
                found = True
                self.lines_read += len(piece.lines)
                self.shipper.send(followed, piece)
        return found

    def has_room(self, followed: Followed) -> bool:
        """Whether a file is open or may be opened; acknowledged lines of other files make room."""
        if self.watcher.has_room(followed):
            return True
        self.shipper.outbox.rest(0)
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
        self.shipper.outbox.rest(POLL_SECONDS)  # files whose lines are acknowledged can be closed
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
            self.lines_read += len(piece.lines)
            self.shipper.send(followed, piece)

    def leave_finished(self) -> None:
        """Close renamed files that no process writes to any more; their last line will not get a newline."""
        for key in self.watcher.finished():
            self.send_partial(key)
            if key in self.watcher.open_files:
                self.watcher.close(key)

    def housekeep(self) -> None:
        """Positions, state file, notes and progress, each at its own pace. Raises CliError, TopicMadeAnew."""
        self.shipper.settle()
        self.shipper.raise_failure()
        if self.topic_watch.has_changed() or self.shipper.topic_is_gone:
            raise TopicMadeAnew
        self.write_down()

    def write_down(self) -> None:
        """The part of housekeeping that also goes on while the queue is full."""
        now = time.monotonic()
        if now - self.saved_at > SAVE_SECONDS:
            self.shipper.save()
            self.saved_at = now
        self.tell_notes()
        if now - self.told_at > PROGRESS_SECONDS:
            self.tell_progress(now)

    def abandon(self) -> None:
        """Forget the lines that are being sent; the next run finds out which of them arrived."""
        self.tell_notes()
        self.shipper.save()
        self.shipper.outbox.purge()
        self.watcher.close_all()
        self.shipper.state.close()

    def tell_notes(self) -> None:
        """What happened to files and lines, on standard error."""
        for notes in (self.watcher.notes, self.shipper.notes):
            for message in notes:
                note(f"barnabas agent tail: {message}")
            notes.clear()

    def tell_progress(self, now: float) -> None:
        """Print a line on standard error when lines arrived, or while the broker is away."""
        arrived = self.shipper.lines_arrived
        waiting = bool(self.shipper.on_way) and arrived == self.told_lines
        if waiting and not self.told_waiting:
            reason = self.shipper.connection.last_error or "no acknowledgement yet"
            note(f"barnabas agent tail: waiting for the broker: {reason}")
        elif arrived != self.told_lines and not self.quiet:
            rate = (arrived - self.told_lines) / (now - self.told_at)
            note(f"shipped {count_of(arrived, 'line')}, {rate:,.0f} lines/s")
        self.told_waiting = waiting
        self.told_at, self.told_lines = now, arrived


@app.command(
    epilog=example(
        "barnabas agent tail /var/log/nginx/access.log --topic access-log",
        "barnabas agent tail 'logs/*.log' --topic logs --once --json",
    )
)
def tail(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files or quoted patterns ('logs/*.log').", show_default=False),
    ],
    topic: Annotated[
        str, typer.Option("-t", "--topic", metavar="TOPIC", show_default=False, help="Where to.")
    ],
    once: Annotated[
        bool,
        typer.Option("--once/--follow", help="Stop at the end of the files, or follow them as they grow."),
    ] = False,
    state_folder: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="DIR", help="Where positions are kept. Default: ~/.local/state/barnabas/agent."
        ),
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget the positions: ship everything again.")
    ] = False,
    key: Annotated[
        str,
        typer.Option(metavar="KEY", help="none, file (its path: keeps a file's order), host, or any text."),
    ] = "none",
    headers: Annotated[
        bool,
        typer.Option(
            "--headers/--no-headers",
            help="Say in headers from which file and position a record comes; this also prevents duplicates after a kill.",
        ),
    ] = True,
    codec: Annotated[
        str, typer.Option("-z", "--compress", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = "lz4",
    quiet: Quiet = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Ship each line of the files as one record, byte for byte, and remember how far it came.

    Renamed, recreated and truncated files are followed. A line counts as shipped when all in-sync
    replicas have it. Exit code 3: some lines did not arrive (they are tried again by the next run)
    or were too large for the topic.
    """
    for name in require_files(files, may_come=not once):
        note(f"barnabas agent tail: {name}: no such file yet; waiting for it")
    connection = connect(bootstrap, properties, verbose)
    job = Job(
        connection, topic, [*files], state_folder or default_folder(), {"compression.type": codec},
        key_bytes(key), headers, once, quiet, reset,
    )  # fmt: skip
    stop = Stop()
    with ending(stop.ask):
        while not stop.asked:
            run = job.prepare_when_reachable(stop)
            if run is None:
                break
            try:
                return ship(run, once, json)
            except TopicMadeAnew:
                note(
                    f"barnabas agent tail: the topic {topic} was created again; shipping every file from its start"
                )
                run.abandon()
                job.reset = False
            except Refused as reason:
                if once or stop.asked:
                    raise CliError(f"cannot ship: {reason}", EXIT_NOT_DELIVERED) from None
                job.tell_refused(str(reason))
                run.abandon()
                job.reset = False
                stop.wait(REFUSED_SECONDS)
    return EXIT_OK


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


@dataclass(slots=True)
class Job:
    """What the command line asks for."""

    connection: Connection
    topic: str
    patterns: list[str]
    state_folder: Path
    settings: dict[str, Any]
    key: bytes | None
    with_headers: bool
    once: bool
    quiet: bool
    reset: bool
    told_refused: str = ""

    def tell_refused(self, reason: str) -> None:
        """Report once why the broker accepts nothing."""
        if reason != self.told_refused:
            note(f"barnabas agent tail: {reason}; trying again until it is accepted")
        self.told_refused = reason

    def prepare_when_reachable(self, stop: Stop) -> Run | None:
        """A run that is ready to begin; None when it was stopped before. A run that follows files waits for a broker
        that is away.

        Raises CliError.
        """
        told, tries = False, 0
        while not stop.asked:
            try:
                return self.prepare(stop)
            except CliError as error:
                if self.once or isinstance(error, UsageError):
                    raise
                # A broker that comes back during the request has not answered, although it can be reached.
                tries = tries + 1 if self.connection.is_reachable() else 0
                if tries == TRIES:
                    raise
                if not told:
                    note(f"barnabas agent tail: waiting for the broker: {error}")
                    told = True
                time.sleep(RETRY_SECONDS)
        return None

    def prepare(self, stop: Stop) -> Run:
        """Open the state and the topic. Raises CliError."""
        self.connection.require_reachable()
        require_topic(self.connection.producer({}), self.topic)
        cluster, topic_id = ids_of(self.connection, self.topic)
        state = open_state(self.state_folder, state_name(cluster, self.topic, topic_id), self.topic, cluster)
        try:
            if self.reset:
                state.entries.clear()
                state.clean = True
            shipper = Shipper(
                self.connection, self.topic, state, self.key, self.with_headers, self.settings,
                lambda: stop.asked,
            )  # fmt: skip
            found = shipper.find_arrived()
        except BaseException:
            state.close()
            raise
        if found and not self.quiet:
            note(
                f"barnabas agent tail: {count_of(found, 'line')} of a run that was killed arrived; not sent again"
            )
        topic_watch = TopicWatch(self.connection, self.topic, topic_id)
        run = Run(Watcher(self.patterns, state), shipper, topic_watch, self.quiet, stop)
        shipper.while_waiting = run.write_down
        return run


def ship(run: Run, once: bool, json: bool) -> int:
    """Run to the end of the files, or until stopped; the exit code. Raises CliError, TopicMadeAnew."""
    shipper, state = run.shipper, run.shipper.state
    run.watcher.scan()
    already = sum(followed.entry.lines for followed in run.watcher.open_files.values())
    if already and not run.quiet and not once:
        note(f"{count_of(already, 'line')} shipped by earlier runs; going on from there")
    try:
        run.once() if once else run.follow()
    except Stopped:
        if shipper.topic_is_gone:
            raise TopicMadeAnew from None
    finished = shipper.drain(None if once and not run.stop.asked else STOP_SECONDS)
    if shipper.topic_is_gone:
        raise TopicMadeAnew
    run.watcher.forget_gone()
    written = shipper.save(clean=finished, force=True)
    run.tell_notes()
    if not finished:
        shipper.outbox.purge()
    state.close()
    code = conclude(run, already, finished, json)
    if not written:
        raise CliError(f"cannot write {state.path}: {shipper.unwritten}; the next run finds out what arrived")
    return code


def conclude(run: Run, already: int, finished: bool, json: bool) -> int:
    """Print the summary; the exit code."""
    shipper, seconds = run.shipper, time.monotonic() - run.began
    undelivered = sum(sent.left for sent in shipper.on_way)
    delivered = shipper.lines_arrived
    already += shipper.lines_found
    if json:
        print_json(
            {
                "topic": shipper.topic,
                "files": len(run.watcher.open_files),
                "lines_read": run.lines_read,
                "lines_sent": delivered,
                "already_shipped": already,
                "refused": shipper.lines_refused,
                "seconds": round(seconds, 3),
            }
        )
    elif not run.quiet:
        rate = (
            f" in {seconds:.1f} s, {delivered / max(seconds, 1e-9):,.0f} lines/s" if delivered > 1000 else ""
        )
        size = size_text(shipper.bytes_sent)
        note(
            f"{count_of(delivered, 'line')} ({size}) shipped to {shipper.topic}{rate}; "
            f"{count_of(already, 'line')} shipped before"
        )
    if not finished:
        raise CliError(
            f"{count_of(undelivered, 'line')} not acknowledged; the next run sends them again",
            EXIT_NOT_DELIVERED,
        )
    if shipper.lines_refused:
        raise CliError(
            f"{count_of(shipper.lines_refused, 'line')} refused: {shipper.refused_note}", EXIT_NOT_DELIVERED
        )
    return EXIT_OK


def key_bytes(key: str) -> bytes | None:
    """The records' key for `--key`."""
    match key:
        case "none" | "":
            return None
        case "file":
            return FILE_KEY
        case "host":
            return socket.gethostname().encode()
        case _:
            return key.encode("utf-8", "surrogateescape")


def ids_of(connection: Connection, topic: str) -> tuple[str, str]:
    """The ids of the cluster and of the topic; the latter is empty with brokers that have none."""
    with administering(connection) as admin:
        cluster = admin.cluster.describe().id or "cluster"
        found = admin.topics.describe([topic])[topic]
    # Older brokers have no topic ids; there the name has to do.
    return cluster, "" if found.id is None else str(found.id)


def state_name(cluster: str, topic: str, topic_id: str) -> str:
    """A file name for this topic of this cluster; a topic that was created anew has another."""
    digest = hashlib.blake2b(f"{cluster}\n{topic}\n{topic_id}".encode(), digest_size=6).hexdigest()
    return f"{topic}-{digest}"


@dataclass(slots=True)
class TopicWatch:
    """Checks from time to time, without waiting for the answer, whether the topic is still the same as at the start."""

    connection: Connection
    topic: str
    topic_id: str
    admin: Admin | None = None
    answer: Future[Results[str, Topic]] | None = None
    asked_at: float = field(default_factory=time.monotonic)

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
        found = answer.result().done.get(self.topic)
        return found is not None and found.id is not None and str(found.id) != self.topic_id
