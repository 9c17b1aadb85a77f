"""Saved searches as alerts: rules of the kind `search` in a file of alerts (monitoring.md) are judged as lines arrive."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.cli.log_search.tail import Tail
from barnabas.client.options import ClientOptions
from barnabas.logs.query import BadQuery, Node, parse
from barnabas.logs.rows import Row
from barnabas.monitor.alerts.conditions import Finding
from barnabas.monitor.alerts.engine import Engine
from barnabas.monitor.alerts.rules import AlertFile, Rule
from barnabas.monitor.alerts.sending import Mailbox, headline
from barnabas.terminal.connection import ClusterAddress
from barnabas.terminal.errors import CliError, UsageError
from barnabas.terminal.output import note

STEP_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 5.0
KIND: Final = "search"
KEPT_MAX: Final = 1_000_000
EXAMPLE_CHARACTERS: Final = 300


@dataclass(slots=True, eq=False)
class SavedSearch:
    """A rule and the lines that match it. hits: when they arrived, in seconds of the monotonic clock."""

    rule: Rule
    node: Node
    hits: deque[float] = field(default_factory=lambda: deque[float](maxlen=KEPT_MAX))
    last: Row | None = None

    def note(self, row: Row, now: float) -> None:
        """Look at a line."""
        if self.node.matches(row):
            self.hits.append(now)
            self.last = row

    def findings(self, now: float) -> list[Finding]:
        """What is wrong now."""
        window, above = self.rule.values["window"], self.rule.values["above"]
        while self.hits and self.hits[0] < now - window:
            self.hits.popleft()
        count = len(self.hits)
        if count <= above or self.last is None:
            return []
        example = self.last.message[:EXAMPLE_CHARACTERS]
        text = f"{count:,} lines in {window:g} s match {self.rule.values['query']!r}, the last one: {example}"
        return [Finding(f"search {self.rule.name}", count, text)]


def saved_searches(file: AlertFile) -> list[SavedSearch]:
    """The searches of a file. Raises UsageError."""
    searches = []
    for rule in file.rules:
        if rule.kind != KIND:
            continue
        try:
            searches.append(SavedSearch(rule, parse(rule.values["query"])))
        except BadQuery as error:
            raise UsageError(f"line {rule.line}: rule {rule.name}: {error}") from None
    if not searches:
        raise UsageError("the file has no rule of kind search")
    return searches


@dataclass(slots=True, eq=False)
class Reader:
    """Reads one topic in a thread, for all of its searches."""

    topic: str
    searches: list[SavedSearch]
    connection: ClusterAddress
    stopped: threading.Event
    lock: threading.Lock

    def run(self) -> None:
        """Read until stopped; a topic that cannot be read is tried again."""
        trouble = ""
        while not self.stopped.is_set():
            try:
                tail = Tail(self.connection, self.topic)
                try:
                    for row in tail.follow(self.stopped.is_set):
                        now = time.monotonic()
                        with self.lock:
                            for search in self.searches:
                                search.note(row, now)
                        trouble = ""
                finally:
                    tail.close()
            except CliError as error:
                if str(error) != trouble:
                    note(f"barnabas logs watch: {error}; trying again")
                trouble = str(error)
                self.stopped.wait(AGAIN_SECONDS)


def watch(
    file: AlertFile,
    connection: ClusterAddress,
    clients: Mapping[str, ClientOptions],
    is_stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> None:
    """Watch until stopped. clients: how receivers reach the cluster, by its name. told: gets what is sent. Raises
    UsageError."""
    searches, stopped, lock = saved_searches(file), threading.Event(), threading.Lock()
    by_topic: dict[str, list[SavedSearch]] = {}
    for search in searches:
        by_topic.setdefault(search.rule.values["topic"], []).append(search)
    threads = [
        threading.Thread(target=Reader(topic, topic_searches, connection, stopped, lock).run, daemon=True)
        for topic, topic_searches in by_topic.items()
    ]
    for thread in threads:
        thread.start()
    try:
        asyncio.run(_judge(file, searches, clients, lock, is_stopped, tell))
    finally:
        stopped.set()
        for thread in threads:
            thread.join(AGAIN_SECONDS)


async def _judge(
    file: AlertFile,
    searches: list[SavedSearch],
    clients: Mapping[str, ClientOptions],
    lock: threading.Lock,
    is_stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> None:
    engine, (cluster, *_) = Engine(file), clients
    mailboxes = {receiver.name: Mailbox(receiver, clients) for receiver in file.receivers}
    for mailbox in mailboxes.values():
        mailbox.start()
    try:
        while not is_stopped():
            await asyncio.sleep(STEP_SECONDS)
            now = time.monotonic()
            with lock:
                findings = {search.rule.name: search.findings(now) for search in searches}
            for message in engine.step(time.time_ns() // 1_000_000, cluster, findings):
                tell(headline(message))
                for name in message.receivers:
                    mailboxes[name].put(message)
    finally:
        for mailbox in mailboxes.values():
            await mailbox.stop()
