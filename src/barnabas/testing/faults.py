"""Faults on demand: lost acknowledgements, late answers, refused connections, fenced producers.

They are part of a dispatcher that replaces the broker's own, so a broker outside tests has no code for them. Every
method may be called from any thread, before or while clients are at work.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.broker.api.context import Context
from barnabas.broker.api.dispatch import HEAD, Dispatcher
from barnabas.broker.api.table import APIS, BY_KEY, Api
from barnabas.records.units import ProducerEpoch
from barnabas.runtime.clock import ManualClock
from barnabas.runtime.timing import now_us
from barnabas.wire.header import Encoded, decode_request_header

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.broker.net.connection import Connection
    from barnabas.broker.server import BrokerServer
    from barnabas.wire.schema import Message

T = TypeVar("T")
Call = Callable[[Callable[[], T]], T]

KEYS: Final = {api.name: api.key for api in APIS}


@dataclass(slots=True)
class _Planned:
    """A fault that is still to happen `times` times; delay_ms None: the answer is lost."""

    times: int
    delay_ms: int | None


class Faults:
    """Plans what goes wrong next; `broker.faults` is an instance."""

    def __init__(self) -> None:
        self.happened = 0
        """How many planned faults have happened."""
        self._lock = threading.Lock()
        self._planned: dict[int, list[_Planned]] = {}
        self._refusals = 0
        self._call: Callable[[Callable[[], None]], None] = lambda work: work()
        self._server: BrokerServer | None = None
        self._delayed: list[tuple[int, Callable[[], None]]] = []

    # --- planning --------------------------------------------------------------------------------------

    def drop_answers(self, api: str = "Produce", times: int = 1) -> None:
        """Carry out the next requests of an API, but close the connection instead of answering.

        api: Kafka's name, "Produce", "OffsetCommit" and so on. Raises ValueError for an API that is not served.
        """
        self._plan(api, _Planned(times, None))

    def delay(self, api: str, delay_ms: int, times: int = 1) -> None:
        """Make the next requests of an API wait before they are handled. With a manual clock they wait until
        `Broker.advance` has moved it that far.
        """
        self._plan(api, _Planned(times, delay_ms))

    def refuse_connections(self, times: int = 1) -> None:
        """Reset the next connections as soon as they are made."""
        with self._lock:
            self._refusals += times

    def fence_producers(self) -> None:
        """Raise the epoch of every producer id that a partition remembers, as a newer producer would.

        From then on existing producers are refused with INVALID_PRODUCER_EPOCH.
        """
        self._call(self._fence)

    def clear(self) -> None:
        """Cancel all planned faults that have not happened yet."""
        with self._lock:
            self._planned.clear()
            self._refusals = 0

    def _plan(self, api: str, planned: _Planned) -> None:
        key = KEYS.get(api)
        if key is None:
            near = get_close_matches(api, KEYS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(KEYS))}"
            raise ValueError(f"no API is called {api!r}{hint}")
        with self._lock:
            self._planned.setdefault(key, []).append(planned)

    # --- happening, on the broker's thread ----------------------------------------------------------------

    def attach(self, server: BrokerServer, call: Callable[[Callable[[], None]], None]) -> None:
        """Replace the dispatcher of a started broker. call: runs a function on the broker's thread."""
        self._server, self._call = server, call
        services = server.services
        dispatcher = server.dispatcher = _FaultyDispatcher(services, self)
        dispatcher.enforce(services.quotas)
        services.listeners.handle_with(dispatcher)
        admit = services.listeners.admit

        def admit_or_refuse(sock: socket.socket, name: str) -> Connection | None:
            if self._refuses():
                sock.close()
                return None
            return admit(sock, name)

        setattr(services.listeners, "admit", admit_or_refuse)  # noqa: B010 - one instance alone is changed

    @property
    def are_planned(self) -> bool:
        """Whether any request may meet a fault."""
        return any(list(self._planned.values()))  # a copy: tests plan in another thread

    def take(self, key: int) -> _Planned | None:
        """The fault that happens to a request of the API `key`, if any; counts it."""
        if not self._planned:
            return None
        with self._lock:
            planned = self._planned.get(key)
            if not planned:
                return None
            first = planned[0]
            first.times -= 1
            self.happened += 1
            if first.times <= 0:
                planned.pop(0)
            return first

    def after(self, delay_ms: int, work: Callable[[], None]) -> None:
        """Call `work` later, by the broker's clock."""
        assert self._server is not None
        if isinstance(self._server.clock, ManualClock):
            self._delayed.append((self._server.clock.now_ms() + delay_ms, work))
        else:
            self._server.services.loop.call_later(delay_ms / 1000, work)

    def on_time_moved(self, now_ms: int) -> None:
        """Call everything that is due, after a manual clock was moved."""
        due = [work for due_ms, work in self._delayed if due_ms <= now_ms]
        self._delayed = [(due_ms, work) for due_ms, work in self._delayed if due_ms > now_ms]
        for work in due:
            work()

    def _refuses(self) -> bool:
        with self._lock:
            if self._refusals <= 0:
                return False
            self._refusals -= 1
            self.happened += 1
            return True

    def _fence(self) -> None:
        assert self._server is not None
        for log in self._server.services.partitions.logs.logs.values():
            for producer in log.core.producers:
                producer.epoch = ProducerEpoch(producer.epoch + 1)


class _FaultyDispatcher(Dispatcher):
    def __init__(self, services: Services, faults: Faults) -> None:
        super().__init__(services)
        self._faults = faults
        self._dropped: set[tuple[int, int]] = set()

    def on_frames(self, connection: Connection, buffer: memoryview, end: int) -> int:
        # While a fault is planned, frames are processed one by one, by `on_frame`.
        return 0 if self._faults.are_planned else super().on_frames(connection, buffer, end)

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        key = HEAD.unpack_from(frame)[0] if len(frame) >= HEAD.size else -1
        planned = self._faults.take(key)
        if planned is None:
            super().on_frame(connection, frame)
        elif planned.delay_ms is None:
            self._handle_unanswered(connection, frame)
        else:
            copy = memoryview(bytearray(frame))
            connection.wait()
            self._faults.after(planned.delay_ms, lambda: self._handle_late(connection, copy))

    def _handle_late(self, connection: Connection, frame: memoryview) -> None:
        if connection.closed:
            return
        connection._waiting = False
        super().on_frame(connection, frame)
        if not connection._waiting:
            connection.resume()

    def _handle_unanswered(self, connection: Connection, frame: memoryview) -> None:
        key, version, correlation_id = HEAD.unpack_from(frame)
        api = BY_KEY[key]
        header, position = decode_request_header(frame)
        request: Any = api.request.decode(frame, version, position)
        timing = self.stats_of(api, request).begin(now_us(), version, len(frame), request)
        context = Context(self._services, connection, version, correlation_id, header.client_id, timing)
        self._dropped.add((id(connection), correlation_id))
        self._run(api, context, request)

    def _answer(self, api: Api, context: Context, answer: Message | Encoded) -> bool:
        dropped = (id(context.connection), context.correlation_id)
        if dropped in self._dropped:
            self._dropped.discard(dropped)
            context.connection.close(None)
            return False
        return super()._answer(api, context, answer)
