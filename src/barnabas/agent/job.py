"""What is shipped where: runs are made of it, one after the other while the cluster or the topic changes."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.agent.alarm import new_alarm
from barnabas.agent.assembly import Recipe
from barnabas.agent.running import SCAN_SECONDS, Pace, Run, Stop, TopicMadeAnew, TopicWatch
from barnabas.agent.shipper import FILE_KEY, STOP_SECONDS, Refused, Shipper, Stopped
from barnabas.agent.state import Entry, open_state
from barnabas.agent.watcher import Looks, Watcher
from barnabas.terminal.administering import administering
from barnabas.terminal.connection import ClusterAddress
from barnabas.terminal.errors import EXIT_NOT_DELIVERED, EXIT_OK, CliError, UsageError
from barnabas.terminal.output import count_of, note, print_json, size_text
from barnabas.terminal.topics import require_topic

RETRY_SECONDS: Final = 0.5
REFUSED_SECONDS: Final = 5.0
TRIES: Final = 3
"""How often the start may fail with a broker that answers, before the agent gives up."""


@dataclass(slots=True)
class Job:
    """What the command line, or one input of a configuration, asks for.

    who: begins its messages. name: of the input; empty for the command line.
    """

    connection: ClusterAddress
    topic: str
    patterns: list[str]
    state_folder: Path
    settings: dict[str, Any]
    key: bytes | None
    with_headers: bool
    once: bool
    quiet: bool
    reset: bool
    who: str = "barnabas agent tail"
    name: str = ""
    recipe: Recipe = field(default_factory=Recipe)
    looks: Looks = field(default_factory=Looks)
    pace: Pace = field(default_factory=Pace)
    more_headers: list[tuple[str, bytes]] = field(default_factory=list)
    dead_letters: str = ""
    after_save: Callable[[list[Entry]], None] = lambda entries: None
    told_refused: str = ""
    run: Run | None = None
    """The present one."""
    scan_seconds: float = SCAN_SECONDS

    def keep_shipping(self, stop: Stop, end: Callable[[Run], int]) -> int:
        """Make runs until one ends; the exit code. end: ships with one run, see `ship`. Raises CliError."""
        while not stop.asked:
            run = self.run = self.prepare_when_reachable(stop)
            if run is None:
                break
            try:
                return end(run)
            except TopicMadeAnew:
                note(
                    f"{self.who}: the topic {self.topic} was created again; shipping every file from its start"
                )
                run.abandon()
                self.reset = False
            except Refused as reason:
                if self.once or stop.asked:
                    raise CliError(f"cannot ship: {reason}", EXIT_NOT_DELIVERED) from None
                self.tell_refused(str(reason))
                run.abandon()
                self.reset = False
                stop.wait(REFUSED_SECONDS)
        return EXIT_OK

    def tell_refused(self, reason: str) -> None:
        """Report once why the broker accepts nothing."""
        if reason != self.told_refused:
            note(f"{self.who}: {reason}; trying again until it is accepted")
        self.told_refused = reason

    def prepare_when_reachable(self, stop: Stop) -> Run | None:
        """A run that is ready to begin; None when it was stopped before. A run that follows files waits for a broker
        that is away.

        Raises CliError.
        """
        has_warned, tries = False, 0
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
                if not has_warned:
                    note(f"{self.who}: waiting for the broker: {error}")
                    has_warned = True
                time.sleep(RETRY_SECONDS)
        return None

    def prepare(self, stop: Stop) -> Run:
        """Open the state and the topic. Raises CliError."""
        self.connection.require_reachable()
        require_topic(self.connection.producer({}), self.topic)
        cluster, topic_id = ids_of(self.connection, self.topic)
        if self.dead_letters:
            require_topic(self.connection.producer({}), self.dead_letters)
        name = state_name(cluster, self.topic, topic_id, self.name)
        state = open_state(self.state_folder, name, self.topic, cluster, self.name)
        try:
            if self.reset:
                state.entries.clear()
                state.clean = True
            shipper = Shipper(
                self.connection, self.topic, state, self.key, self.with_headers, self.settings,
                lambda: stop.asked, more_headers=self.more_headers, dead_letters=self.dead_letters,
                tells_ends=self.recipe.multiline is not None,
            )  # fmt: skip
            arrived = shipper.find_arrived()
        except BaseException:
            state.close()
            raise
        if arrived and not self.quiet:
            note(f"{self.who}: {count_of(arrived, 'line')} of a run that was killed arrived; not sent again")
        topic_watch = TopicWatch(self.connection, self.topic, topic_id)
        watcher = Watcher(self.patterns, state, looks=self.looks)
        run = Run(
            watcher,
            shipper,
            topic_watch,
            self.quiet,
            stop,
            self.who,
            self.recipe,
            self.pace,
            self.scan_seconds,
            after_save=self.after_save,
        )
        if not self.once:
            run.alarm = new_alarm()
        shipper.while_waiting = run.wait
        return run


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. already: lines that earlier runs had shipped. all_arrived: nothing is left to be acknowledged.
    unwritten: why the state could not be written; empty if it was.
    """

    already: int
    all_arrived: bool
    unwritten: str = ""


def finish(run: Run, once: bool) -> Outcome:
    """Run to the end of the files, or until stopped, and close the state. Raises CliError, TopicMadeAnew; then the state
    is still open.
    """
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
    all_arrived = shipper.drain(None if once and not run.stop.asked else STOP_SECONDS)
    if shipper.topic_is_gone:
        raise TopicMadeAnew
    run.watcher.forget_gone()
    written = shipper.save(clean=all_arrived, force=True)
    run.tell_notes()
    run.close()
    state.close()
    return Outcome(already, all_arrived, "" if written else shipper.unwritten)


def ship(run: Run, once: bool, json: bool) -> int:
    """Run to the end of the files, or until stopped; the exit code. Raises CliError, TopicMadeAnew."""
    outcome = finish(run, once)
    code = conclude(run, outcome.already, outcome.all_arrived, json)
    if outcome.unwritten:
        path = run.shipper.state.path
        raise CliError(f"cannot write {path}: {outcome.unwritten}; the next run finds out what arrived")
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


def ids_of(connection: ClusterAddress, topic: str) -> tuple[str, str]:
    """The ids of the cluster and of the topic; the latter is empty with brokers that have none."""
    with administering(connection) as admin:
        cluster = admin.cluster.describe().id or "cluster"
        description = admin.topics.describe([topic])[topic]
    # Older brokers have no topic ids; there the name has to do.
    return cluster, "" if description.id is None else str(description.id)


def state_name(cluster: str, topic: str, topic_id: str, input: str = "") -> str:
    """A file name for this topic of this cluster, and this input; a topic that was created anew has another."""
    words = f"{cluster}\n{topic}\n{topic_id}" + (f"\n{input}" if input else "")
    digest = hashlib.blake2b(words.encode(), digest_size=6).hexdigest()
    return f"{topic}-{digest}"
