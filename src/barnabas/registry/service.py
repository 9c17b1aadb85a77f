"""One instance of the registry: answers reads from its own state, and has the writer make changes.

The writer decides, appends and replays each change under one lock. Every other instance forwards changes to the writer,
and does not wait until it has read them back: its own responses show a change once its reader thread has the record.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.client.tables.writing import TooLarge, Writer
from barnabas.http_client import Address, NoAnswer, ask
from barnabas.registry.decisions import Decision
from barnabas.registry.election import Election, Identity, Outcome
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.library import QUICK, Library, Needed
from barnabas.registry.records import noop_entry
from barnabas.registry.state import State
from barnabas.registry.store import RECORD_OVERHEAD_BYTES, Store, StoreOptions
from barnabas.registry.tasks import TOO_LONG, Asks, Task
from barnabas.registry.worker import Limits, Report, Worker

log = logging.getLogger("barnabas.registry")

WRITER_WAIT_S: Final = 30.0
RETRY_S: Final = 0.2
DECISION_CPU_S: Final = 20.0
"""A decision that needs more of the worker's CPU time is given up. What was found out is kept for the next attempt."""
FORWARDED: Final = "X-Forward"
"""Confluent's header that marks a request as forwarded by another instance."""


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """advertise: HOST:PORT at which other instances reach this one; None: the address it listens on.

    peers: TLS settings for requests to other instances (trusted authorities, own certificate); None: the system's.
    limits: of the process that works with large schemas.
    """

    client: ClientOptions
    store: StoreOptions = field(default_factory=StoreOptions)
    group: str = "schema-registry"
    advertise: str | None = None
    session_timeout_ms: int = 10_000
    eligible: bool = True
    peers: ssl.SSLContext | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Handed:
    """A request that may be forwarded to the writer. target: path and query. forwarded: by another instance."""

    method: str
    target: str
    body: bytes
    headers: Mapping[str, str]
    forwarded: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The writer's response to a forwarded request."""

    status: int
    body: bytes
    media_type: str


class Registry:
    """writer: the URL of the writer; None while there is none. writing: whether this instance makes changes."""

    def __init__(self, options: RegistryOptions) -> None:
        self.options = options
        self.store = Store(options.client, options.store)
        self.store.begun_again = self._read_again
        self.library = Library(self.store.state, QUICK)
        self.worker = Worker(options.limits)
        self.writer: str | None = None
        self.writing = False
        self._elected_own = False
        self._hindrance = ""
        """Why this instance, which is to write, cannot; empty if nothing is known."""
        self._changed = asyncio.Condition()
        self._lock = asyncio.Lock()
        self._appender = Writer(options.client, options.store.topic, f"{options.group}-writer")
        self._append_thread = ThreadPoolExecutor(1, "registry writer")
        self._forward_threads = ThreadPoolExecutor(32, "registry forward")
        self._election: Election | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> State:
        """This instance's copy of the data. It changes only on the event loop, in other callbacks and tasks."""
        return self.store.state

    async def start(self, url: str) -> None:
        """Read the topic, then join the other instances. url: where this one listens. Raises ClientError."""
        await self.store.topic.start()
        loop = asyncio.get_running_loop()

        def decided(outcome: Outcome) -> None:
            try:
                loop.call_soon_threadsafe(self._decided, outcome)
            except RuntimeError:
                pass  # the loop has ended

        self._election = Election(
            self.options.client,
            self.options.group,
            self._identity(url),
            decided,
            session_timeout_ms=self.options.session_timeout_ms,
        )
        self._election.start()

    async def stop(self) -> None:
        """Leave the group, so that another instance becomes the writer, and end the threads."""
        if self._election is not None:
            await asyncio.to_thread(self._election.stop)
        async with self._lock:
            self.writing = False
        for task in list(self._tasks):
            task.cancel()
        await self.store.topic.stop()
        self._append_thread.shutdown()
        self._appender.close()
        self._forward_threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.worker.close)

    def unready(self) -> str | None:
        """Why requests cannot be served; None if they can."""
        if self.store.topic.trouble is not None:
            return self.store.topic.trouble
        return None if self.writer is not None else "no instance has been elected to write yet"

    def _identity(self, url: str) -> Identity:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port or 8081
        if self.options.advertise:
            address = urlsplit(f"//{self.options.advertise}")
            host, port = address.hostname or host, address.port or port
        return Identity(host, port, parts.scheme, self.options.eligible)

    # --- the writer -----------------------------------------------------------------------------------

    def _decided(self, outcome: Outcome) -> None:
        self.writer = outcome.writer
        self._elected_own = outcome.own
        if not outcome.own:
            self.writing = False
        task = asyncio.get_running_loop().create_task(self._announce())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _read_again(self) -> None:
        """Decide no change until everything that is in the topic now has been read."""
        self.writing = False
        self._decided(Outcome(self.writer, self._elected_own))

    async def _announce(self) -> None:
        self._hindrance = ""
        while self._elected_own and not self.writing:
            try:
                async with self._lock:
                    await self._begin_writing()
            except ClientError as error:
                if str(error) != self._hindrance:
                    self._hindrance = str(error)
                    log.warning("cannot begin writing; trying again", extra={"reason": self._hindrance})
                await asyncio.sleep(RETRY_S)
        async with self._changed:
            self._changed.notify_all()

    async def _begin_writing(self) -> None:
        """Fence earlier writers, then read everything that they appended. Raises ClientError."""
        if self.writing or not self._elected_own:
            return
        beginnings = self.store.topic.beginnings
        await self._on_writer(self._appender.begin)
        entry = noop_entry(self.state.ids_given())
        row = (entry.key.encode(), entry.encode_value())
        offset = await self._on_writer(lambda: self._appender.append([row]))
        await self.store.topic.wait_for(offset + 1, beginnings)
        self.writing = self._elected_own
        log.info("writing begins", extra={"offset": offset})

    async def _on_writer(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._append_thread, work)

    # --- changes ----------------------------------------------------------------------------------------

    async def change(self, decide: Callable[[], Decision], handed: Handed) -> Any:
        """Make a change here or at the writer; returns the decision's reply, or the writer's Answer.

        Raises RegistryError.
        """
        deadline = time.monotonic() + WRITER_WAIT_S
        left_s = DECISION_CPU_S
        while True:
            if self.writing:
                try:
                    async with self._lock:
                        if self.writing:
                            self.library.begin()
                            return await self._write(decide())
                except Needed as needed:  # not under the lock: other changes do not wait for it
                    left_s -= await self._find_out(needed, left_s)
                    deadline = time.monotonic() + WRITER_WAIT_S
                    continue
            elif handed.forwarded:
                await self._await_writer(min(deadline, time.monotonic() + 2), handed)
            elif self.writer is not None and not self._elected_own:
                answer = await self._forward(self.writer, handed)
                if answer is not None:
                    return answer
                await asyncio.sleep(RETRY_S)
            await self._await_writer(deadline, handed)

    async def _await_writer(self, deadline: float, handed: Handed) -> None:
        """Wait until there is a writer to try. Raises RegistryError 50004 if there is none before the deadline."""
        while not self.writing and (self.writer is None or self._elected_own or handed.forwarded):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            async with self._changed:
                try:
                    await asyncio.wait_for(self._changed.wait(), min(left, 0.5))
                except TimeoutError:
                    continue
        if time.monotonic() >= deadline and not self.writing:
            why = f": {self._hindrance}" if self._hindrance else "; try again in a few seconds"
            raise RegistryError(Code.NO_LEADER, f"No instance can write right now{why}")

    async def _write(self, decision: Decision) -> Any:
        if not decision.entries:
            return decision.reply
        rows = [
            (self.state.raw_keys.get(entry.key) or entry.key.encode(), entry.encode_value())
            for entry in decision.entries
        ]
        total = sum(len(key) + len(value or b"") for key, value in rows)
        limit = self.store.topic.record_bytes_max - RECORD_OVERHEAD_BYTES
        if total > limit:
            raise _too_large(total, limit)
        beginnings = self.store.topic.beginnings
        try:
            offset = await asyncio.shield(self._on_writer(lambda: self._appender.append(rows)))
            await self.store.topic.wait_for(offset + len(rows), beginnings)
        except TooLarge:
            raise _too_large(total, limit) from None
        except asyncio.CancelledError:
            self._read_again()  # the records may be in the log, though the state does not have them yet
            raise
        except ClientError as error:
            # The records may or may not be in the log: nothing is decided until all of it has been read.
            self._read_again()
            raise RegistryError(
                Code.STORE_FAILED,
                f"Register operation failed: {error}; the change may or may not have been made, try again",
            ) from error
        return decision.reply

    # --- work with schemas --------------------------------------------------------------------------------

    async def look(self, query: Callable[[], Any]) -> Any:
        """Run a query that reads schemas. Raises RegistryError."""
        left_s = DECISION_CPU_S
        while True:
            self.library.begin()
            try:
                return query()
            except Needed as needed:
                left_s -= await self._find_out(needed, left_s)

    async def _find_out(self, needed: Needed, left_s: float) -> float:
        """Have the worker carry out a task; returns the seconds of CPU time that this took. Raises RegistryError."""
        if left_s <= 0:
            raise RegistryError(TOO_LONG.code, TOO_LONG.value)
        report = await self._carry_out(needed.task)
        assert report.outcome is not None
        self.library.remember(needed.task, report.outcome)
        return report.cpu_s

    async def _carry_out(self, task: Task) -> Report:
        report = await self.worker.carry_out(task)
        if report.outcome is None:
            raise AssertionError(f"the worker failed: {report.bug}")
        return report

    async def parse(self, raw: bytes, asks: Asks) -> Any:
        """What is in a large body. asks: BODY for its object, or REQUEST for the schema in it. Raises RegistryError."""
        limit = self.store.topic.record_bytes_max - RECORD_OVERHEAD_BYTES
        report = await self._carry_out(Task(asks, (), str(limit), raw))
        assert report.outcome is not None
        return report.outcome.result()

    # --- forwarding ---------------------------------------------------------------------------------------

    async def _forward(self, writer: str, handed: Handed) -> Answer | None:
        """The writer's response; None to send the request again: it did not arrive, or repeating it does no harm."""
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(
                self._forward_threads, send, writer, handed, self.options.peers
            )
        except NoAnswer as error:
            if error.was_refused or handed.method != "DELETE":
                return None
            raise RegistryError(
                Code.FORWARDING_FAILED,
                f"The writer at {writer} did not answer: {error}; check whether the deletion was made",
            ) from error
        if answer.status >= 500 and b"50004" in answer.body:
            return None  # it is no longer the writer
        return answer


def _too_large(size: int, limit: int) -> RegistryError:
    return RegistryError(
        Code.TOO_LARGE,
        f"The schema is too large: its record has {size} bytes, the topic accepts {limit}; raise max.message.bytes of "
        "the topic, or split the schema with references",
    )


def send(writer: str, handed: Handed, peers: ssl.SSLContext | None = None) -> Answer:
    """Send a request to the writer and wait for its response. Raises NoAnswer."""
    answer = ask(
        Address(writer, peers),
        handed.method,
        handed.target,
        handed.body,
        {**handed.headers, FORWARDED: "true"},
        timeout_s=WRITER_WAIT_S,
    )
    return Answer(answer.status, answer.body, answer.media_type or "application/json")
