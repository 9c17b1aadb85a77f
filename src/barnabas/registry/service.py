"""One instance of the registry: answers reads from its own state, and has the writer make changes.

The writer decides, appends and replays each change under one lock. Every other instance forwards changes to the writer,
and does not wait until it has read them back: its own responses show a change once its reader thread has the record.
"""

from __future__ import annotations

import asyncio
import http.client
import json
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
from barnabas.http.json_text import BadJson, parse_json
from barnabas.registry.decisions import Decision
from barnabas.registry.election import Election, Identity, Outcome
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.formats.reading import Library
from barnabas.registry.model import Content
from barnabas.registry.records import noop_entry
from barnabas.registry.state import State
from barnabas.registry.store import RECORD_OVERHEAD_BYTES, Fenced, Store, StoreOptions, TooLarge, Writer

log = logging.getLogger("barnabas.registry")

WRITER_WAIT_S: Final = 30.0
RETRY_S: Final = 0.2
SHRINKS: Final = 2
"""A schema more than this many times as large as the largest record is not parsed: its stored form would not fit."""
INLINE_BYTES_MAX: Final = 20_000
"""Larger schemas are parsed and compared in a thread, so that they do not delay other requests."""
FORWARDED: Final = "X-Forward"
"""Confluent's header that marks a request as forwarded by another instance."""


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """advertise: HOST:PORT at which other instances reach this one; None: the address it listens on.

    peers: TLS settings for requests to other instances (trusted authorities, own certificate); None: the system's.
    """

    client: ClientOptions
    store: StoreOptions = field(default_factory=StoreOptions)
    group: str = "schema-registry"
    advertise: str | None = None
    session_timeout_ms: int = 10_000
    eligible: bool = True
    peers: ssl.SSLContext | None = None


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
        self.library = Library(self.store.state)
        self.writer: str | None = None
        self.writing = False
        self._elected_own = False
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
        await self.store.start()
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
        await self.store.stop()
        self._append_thread.shutdown()
        self._appender.close()
        self._forward_threads.shutdown(wait=False, cancel_futures=True)

    def unready(self) -> str | None:
        """Why requests cannot be served; None if they can."""
        if self.store.trouble is not None:
            return self.store.trouble
        return None if self.writer is not None else "no instance has been elected to write yet"

    def _identity(self, url: str) -> Identity:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port or 8081
        if self.options.advertise:
            told = urlsplit(f"//{self.options.advertise}")
            host, port = told.hostname or host, told.port or port
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
        said = ""
        while self._elected_own and not self.writing:
            try:
                async with self._lock:
                    await self._begin_writing()
            except (ClientError, Fenced) as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("cannot begin writing; trying again", extra={"reason": said})
                await asyncio.sleep(RETRY_S)
        async with self._changed:
            self._changed.notify_all()

    async def _begin_writing(self) -> None:
        """Fence earlier writers, then read everything that they appended. Raises ClientError, Fenced."""
        if self.writing or not self._elected_own:
            return
        beginnings = self.store.beginnings
        await self._on_writer(self._appender.begin)
        entry = noop_entry(self.state.ids_given())
        row = (entry.key.encode(), entry.encode_value())
        offset = await self._on_writer(lambda: self._appender.append([row]))
        await self.store.wait_for(offset + 1, beginnings)
        self.writing = self._elected_own
        log.info("writing begins", extra={"offset": offset})

    async def _on_writer(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._append_thread, work)

    # --- changes ----------------------------------------------------------------------------------------

    async def change(self, decide: Callable[[], Decision], handed: Handed, *, size: int = 0) -> Any:
        """Make a change here or at the writer; returns the decision's reply, or the writer's Answer.

        size: characters of the schemas that the decision reads. Raises RegistryError.
        """
        deadline = time.monotonic() + WRITER_WAIT_S
        while True:
            if self.writing:
                async with self._lock:
                    decision = await self._decide(decide, size) if self.writing else None
                    if decision is not None and self.writing:  # it may have ended while deciding
                        return await self._write(decision)
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
            raise RegistryError(Code.NO_LEADER, "No instance can write right now; try again in a few seconds")

    async def _write(self, decision: Decision) -> Any:
        if not decision.entries:
            return decision.reply
        rows = [
            (self.state.raw_keys.get(entry.key) or entry.key.encode(), entry.encode_value())
            for entry in decision.entries
        ]
        total = sum(len(key) + len(value or b"") for key, value in rows)
        limit = self.store.record_bytes_max - RECORD_OVERHEAD_BYTES
        if total > limit:
            raise _too_large(total, limit)
        beginnings = self.store.beginnings
        try:
            offset = await asyncio.shield(self._on_writer(lambda: self._appender.append(rows)))
            if not self.store.take_own(decision.entries, offset, beginnings):
                await self.store.wait_for(offset + len(rows), beginnings)
        except TooLarge:
            raise _too_large(total, limit) from None
        except (Fenced, ClientError) as error:
            # The records may or may not be in the log: nothing is decided until all of it has been read.
            self._read_again()
            raise RegistryError(
                Code.STORE_FAILED,
                f"Register operation failed: {error}; the change may or may not have been made, try again",
            ) from error
        return decision.reply

    async def _decide(self, decide: Callable[[], Decision], size: int) -> Decision:
        if size <= INLINE_BYTES_MAX:
            return decide()
        await self.store.hold()
        try:
            return await asyncio.to_thread(decide)
        finally:
            self.store.release()

    async def require_fitting(self, content: Content) -> None:
        """Reject a schema that is too large for a record, before it is parsed. Raises RegistryError 42209."""
        limit = self.store.record_bytes_max - RECORD_OVERHEAD_BYTES
        if len(content.text) > SHRINKS * limit:
            size = await asyncio.to_thread(_least_size, content)
            if size > SHRINKS * limit:
                raise _too_large(size, limit)

    async def look(self, query: Callable[[], Any], size: int) -> Any:
        """Run a query that parses schemas, in a thread if they are large. size: their characters."""
        if size <= INLINE_BYTES_MAX:
            return query()
        await self.store.hold()
        try:
            return await asyncio.to_thread(query)
        finally:
            self.store.release()

    # --- forwarding ---------------------------------------------------------------------------------------

    async def _forward(self, writer: str, handed: Handed) -> Answer | None:
        """The writer's response; None to send the request again: it did not arrive, or repeating it does no harm."""
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(
                self._forward_threads, send, writer, handed, self.options.peers
            )
        except ConnectionRefusedError:
            return None
        except (OSError, http.client.HTTPException) as error:
            if handed.method != "DELETE":
                return None
            raise RegistryError(
                Code.FORWARDING_FAILED,
                f"The writer at {writer} did not answer: {error}; check whether the deletion was made",
            ) from error
        if answer.status >= 500 and b"50004" in answer.body:
            return None  # it is no longer the writer
        return answer


def _least_size(content: Content) -> int:
    """The characters of a schema without spaces; the stored form is not much shorter."""
    try:
        return len(json.dumps(parse_json(content.text), separators=(",", ":"), ensure_ascii=False))
    except BadJson:  # a .proto file, or a text that the parser will reject
        return len(" ".join(content.text.split()))


def _too_large(size: int, limit: int) -> RegistryError:
    return RegistryError(
        Code.TOO_LARGE,
        f"The schema is too large: its record has {size} bytes, the topic accepts {limit}; raise max.message.bytes of "
        "the topic, or split the schema with references",
    )


def send(writer: str, handed: Handed, peers: ssl.SSLContext | None = None) -> Answer:
    """Send a request to the writer and wait for its response. Raises OSError, HTTPException."""
    parts = urlsplit(writer)
    host, port = parts.hostname or "localhost", parts.port
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=WRITER_WAIT_S, context=peers
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=WRITER_WAIT_S)
    try:
        connection.request(
            handed.method, handed.target, handed.body or None, {**handed.headers, FORWARDED: "true"}
        )
        response = connection.getresponse()
        return Answer(
            response.status, response.read(), response.getheader("content-type") or "application/json"
        )
    finally:
        connection.close()
