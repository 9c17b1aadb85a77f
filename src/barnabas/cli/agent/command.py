"""`barnabas agent tail`: the command line of the tail agent and its loop."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from barnabas.cli.agent.files import Truncated, Watcher, require_files
from barnabas.cli.agent.shipper import FILE_KEY, PRODUCER, Shipper
from barnabas.cli.agent.state import default_folder, open_state
from barnabas.cli.connection import Connection, connect
from barnabas.cli.errors import EXIT_NOT_DELIVERED, EXIT_OK, CliError
from barnabas.cli.options import AsJson, Bootstrap, Properties, Quiet, Verbose
from barnabas.cli.output import count_of, note, print_json, size_text
from barnabas.cli.produce import require_topic
from barnabas.cli.runner import example, new_app

app = new_app("Ship the lines of growing files into a topic.")

POLL_SECONDS: Final = 0.2
SCAN_SECONDS: Final = 1.0
SAVE_SECONDS: Final = 1.0
PROGRESS_SECONDS: Final = 5.0
STOP_SECONDS: Final = 10.0
"""How long a stopped agent waits for acknowledgements; what misses them is sent by the next run."""


@app.callback()
def agent() -> None:
    """Ship the lines of growing files into a topic."""


@dataclass(slots=True)
class Run:
    """One run of the agent."""

    watcher: Watcher
    shipper: Shipper
    quiet: bool
    stopped: bool = False
    lines_read: int = 0
    began: float = field(default_factory=time.monotonic)
    scanned_at: float = 0.0
    saved_at: float = field(default_factory=time.monotonic)
    told_at: float = field(default_factory=time.monotonic)
    told_lines: int = 0
    told_waiting: bool = False

    def once(self) -> None:
        """Ship everything that is there, the last line even without its newline."""
        self.watcher.scan()
        while self.read_round() and not self.stopped:
            self.housekeep()
        if self.stopped:
            return
        for followed in self.watcher.open_files.values():
            piece = followed.take_partial()
            if piece is not None:
                self.lines_read += 1
                self.shipper.send(followed, piece)

    def follow(self) -> None:
        """Ship lines as they come, until stopped."""
        while not self.stopped:
            if time.monotonic() - self.scanned_at > SCAN_SECONDS:
                self.watcher.scan()
                self.scanned_at = time.monotonic()
            if not self.read_round():
                self.leave_moved()
                # Acknowledgements come in here, and a line written meanwhile waits no longer than this.
                self.shipper.producer.poll(POLL_SECONDS)
                time.sleep(POLL_SECONDS / 4)
            self.housekeep()

    def read_round(self) -> bool:
        """Read one piece of each file; False when none had anything new."""
        found = False
        for key, followed in list(self.watcher.open_files.items()):
            if self.stopped:
                break
            try:
                piece = followed.read()
            except Truncated:
                self.watcher.restart(key)
                found = True
                continue
            if piece is not None:
                found = True
                self.lines_read += len(piece.lines)
                self.shipper.send(followed, piece)
        return found

    def leave_moved(self) -> None:
        """Close renamed files that are silent; their last line will not get its newline any more."""
        for key, followed in list(self.watcher.open_files.items()):
            if followed.is_over():
                piece = followed.take_partial()
                if piece is not None:
                    self.lines_read += 1
                    self.shipper.send(followed, piece)
                self.watcher.close(key)

    def housekeep(self) -> None:
        """Positions, state file, notes and progress, each at its own pace."""
        self.shipper.settle()
        self.shipper.raise_failure()
        now = time.monotonic()
        if now - self.saved_at > SAVE_SECONDS:
            self.shipper.save()
            self.saved_at = now
        for message in self.watcher.notes:
            note(f"barnabas agent tail: {message}")
        self.watcher.notes.clear()
        if now - self.told_at > PROGRESS_SECONDS:
            self.tell_progress(now)

    def tell_progress(self, now: float) -> None:
        """A line on standard error when lines went out, or when the broker keeps us waiting."""
        sent = self.shipper.lines_sent
        waiting = bool(self.shipper.on_way) and not self.shipper.changed and sent == self.told_lines
        if waiting and not self.told_waiting:
            reason = self.shipper.connection.last_error or "no acknowledgement yet"
            note(f"barnabas agent tail: waiting for the broker: {reason}")
        elif sent != self.told_lines and not self.quiet:
            rate = (sent - self.told_lines) / (now - self.told_at)
            size = size_text(self.shipper.bytes_sent)
            note(f"shipped {count_of(sent, 'line')} ({size}), {rate:,.0f} lines/s")
        self.told_waiting = waiting
        self.told_at, self.told_lines = now, sent


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
        bool, typer.Option("--once/--follow", help="Stop at the end of the files, or go on as they grow.")
    ] = False,
    state_folder: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="DIR", help="Where positions are kept; default ~/.local/state/barnabas/agent."
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
            help="Each record says its file and position, which also prevents duplicates after a kill.",
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
    require_files(files)
    connection = connect(bootstrap, properties, verbose)
    connection.require_reachable()
    producer = connection.producer({**PRODUCER, "compression.type": codec, **connection.batch_limits(topic)})
    require_topic(producer, topic)
    state = open_state(state_folder or default_folder(), state_name(connection, topic))
    if reset:
        state.entries.clear()
        state.clean = True
    shipper = Shipper(connection, producer, topic, state, key_bytes(key), headers)
    found = shipper.find_arrived()
    if found and not quiet:
        note(
            f"barnabas agent tail: {count_of(found, 'line')} of a run that was killed arrived; not sent again"
        )
    return ship(Run(Watcher([*files], state), shipper, quiet), once, json)


def ship(run: Run, once: bool, json: bool) -> int:
    """Run to the end of the files, or until stopped; the exit code."""
    shipper, state = run.shipper, run.shipper.state
    run.watcher.scan()
    already = sum(followed.entry.lines for followed in run.watcher.open_files.values())
    # Written before the first line leaves: the ids in the records must be known to the next run.
    shipper.save(force=True)
    if already and not run.quiet and not once:
        note(f"{count_of(already, 'line')} shipped by earlier runs; going on from there")
    with stop_on_signals(run):
        run.once() if once else run.follow()
    finished = shipper.drain(None if once and not run.stopped else STOP_SECONDS)
    state.forget_gone({followed.entry.id for followed in run.watcher.open_files.values()})
    shipper.save(clean=finished, force=True)
    state.close()
    return conclude(run, already, finished, json)


def conclude(run: Run, already: int, finished: bool, json: bool) -> int:
    """Print the summary; the exit code."""
    shipper, seconds = run.shipper, time.monotonic() - run.began
    undelivered = sum(sent.left for sent in shipper.on_way)
    delivered = shipper.lines_sent - shipper.lines_refused - undelivered
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


def state_name(connection: Connection, topic: str) -> str:
    """A file name for this topic of this cluster; a topic that was created anew has another."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(connection.config())
    cluster_id = admin.list_topics(topic, timeout=30).cluster_id or "cluster"
    topic_id = ""
    with contextlib.suppress(Exception):
        # Brokers before topic ids refuse this; the name alone must do there.
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=10)
        topic_id = str(described[topic].result(15).topic_id)
    digest = hashlib.blake2b(f"{cluster_id}\n{topic}\n{topic_id}".encode(), digest_size=6).hexdigest()
    return f"{topic}-{digest}"


@contextlib.contextmanager
def stop_on_signals(run: Run) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run after the piece at hand; a second one ends it at once."""

    def stop(_number: int, _frame: Any) -> None:
        if run.stopped:
            sys.exit(EXIT_NOT_DELIVERED)
        run.stopped = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    yield
