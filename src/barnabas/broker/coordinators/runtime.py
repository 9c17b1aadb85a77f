"""Drives the cores of one coordinator: one core for each partition of its topic that this broker leads.

Groups, share group states and transactions all load, decide, append, apply, set timers and unload here and nowhere else. A
request becomes an event; the core decides; its entries are appended as one batch; then the decision is applied and timers
are set; replies and effects are released when the high watermark covers the entries (stepping.py). Nothing is awaited in
between, so a core never handles two events at once.

A fault costs only one partition: an exception in a core is logged once with its stack, the pending requests of the partition
are answered, and it is loaded again from its log. The other partitions are not affected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from barnabas.broker.cluster.internal_topics import usable
from barnabas.broker.coordinators.doubt import Prove
from barnabas.broker.coordinators.loading import replay_log
from barnabas.broker.coordinators.moving_home import move_home
from barnabas.broker.coordinators.seats import C, CoordinatorKind, Seat
from barnabas.broker.coordinators.stepping import Stepping
from barnabas.cores.decision import Decision, DoneReply, Event
from barnabas.records.partitioner import partition_for_name
from barnabas.runtime.pace import in_pieces
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.partitions.acknowledgement import Acknowledgement
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.coordinators")

RELOAD_DELAY_S: Final = 1.0
RELOAD_DELAY_S_MAX: Final = 60.0

R = TypeVar("R")
MakeEvent = Callable[[object, int], Event[R]]
"""(token, now_ms) -> an event, whose reply is an R."""


class CoordinatorRuntime(Generic[C]):
    """See the module."""

    def __init__(
        self,
        kind: CoordinatorKind[C],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        partitions: Partitions,
        ensure_topic: Callable[[str], Awaitable[int]],
        is_certain: Callable[[], bool],
    ) -> None:
        """is_certain: whether no other broker can have taken over from this one unnoticed (Controller.is_certain)."""
        self._kind = kind
        self.loop = loop
        self.clock = clock
        self._partitions = partitions
        self.ensure_topic = ensure_topic
        self.seats: dict[int, Seat[C]] = {}
        self._stepping: Stepping[C] = Stepping(kind, loop, clock, is_certain, self.seats.get, self.reload)
        self._preparing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._follows_roles = False
        self.partition_count = 0
        """The topic's partition count; 0 while the topic does not exist or is not loaded."""

    @property
    def topic(self) -> str:
        """The coordinator's topic."""
        return self._kind.topic

    def new_core(self, index: int) -> C:
        """An empty core for a partition; not used unless it is seated."""
        return self._kind.make_core(index)

    # --- the topic -------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Create and load the topic, unless that is done. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        if self.partition_count:
            return
        if self._preparing is None:
            self._preparing = self.loop.create_task(self._prepare())
            self._preparing.add_done_callback(self._prepared)
        await asyncio.shield(self._preparing)

    async def _prepare(self) -> None:
        await self._load_all(await usable(self._kind.topic, self.ensure_topic))

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._preparing = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error(
                "a coordinator's topic cannot be prepared",
                extra={"topic": self._kind.topic, "reason": str(task.exception())},
            )
        self.roles_changed()

    async def load_existing(self) -> None:
        """At start: load the existing topic, if any."""
        await self._load_all(self._partitions.count(self._kind.topic))
        self._follows_roles = True
        self.roles_changed()

    def roles_changed(self) -> None:
        """The set of partitions that this broker leads may have changed: load the new ones, unload the lost ones."""
        if not self._follows_roles or self._preparing is not None:
            return  # called again after loading
        for index, seat in list(self.seats.items()):
            if not self._is_led(seat) and not seat.partition.is_deleted:  # `topic_deleted` follows for those
                del self.seats[index]
                self._stepping.leave(seat)
                log.info("a coordinator is on another broker now", extra=self._place(index))
        self.partition_count = self._partitions.count(self._kind.topic)
        for index in range(self.partition_count):
            partition = self._partitions.get(self._kind.topic, index)
            if partition is not None and partition.is_leader and index not in self.seats:
                log.info("a coordinator is on this broker now", extra=self._place(index))
                self._load_soon(self._take_seat(index, partition))

    def _is_led(self, seat: Seat[C]) -> bool:
        partition = self._partitions.get(self._kind.topic, seat.index)
        return partition is seat.partition and partition.is_leader

    def _place(self, index: int) -> dict[str, object]:
        return {"topic": self._kind.topic, "partition": index}

    async def _load_all(self, count: int) -> None:
        loaded = []
        for index in range(count):
            partition = self._partitions.get(self._kind.topic, index)
            if partition is not None and partition.is_leader and index not in self.seats:
                seat = self._take_seat(index, partition)
                await self._replay(seat)
                loaded.append(seat)
        seats = {seat.index: seat for seat in loaded if not seat.is_gone}
        await move_home(self.loop, self.clock, self._kind.topic, self._stepping, seats, count)
        # Set before `_begin`: effects of loading may be carried out at once, and call this runtime.
        if all(not seat.is_gone for seat in loaded):  # otherwise the topic was deleted meanwhile
            self.partition_count = count
        for seat in loaded:
            self._begin(seat)

    def topic_deleted(self) -> None:
        """The coordinator's topic was deleted: all state is dropped, and the next request creates a new topic."""
        self.partition_count = 0
        seats = list(self.seats.values())
        self.seats.clear()
        for seat in seats:
            self._stepping.leave(seat)
        if seats:
            log.warning(
                "a coordinator's topic was deleted with all that it kept",
                extra={"topic": self._kind.topic, "partitions": len(seats)},
            )

    def close(self) -> None:
        """Answer all pending requests, and stop the timers."""
        self._stepping.close()
        for task in self._tasks:
            task.cancel()
        for seat in self.seats.values():
            self._stepping.leave(seat)

    # --- loading and unloading -------------------------------------------------------------------------

    def _take_seat(self, index: int, partition: Partition) -> Seat[C]:
        seat = self.seats[index] = Seat(index, partition, self._kind.make_core(index))
        return seat

    async def _replay(self, seat: Seat[C]) -> None:
        def on_record(offset: int, key: bytes, value: bytes | None) -> None:
            self._kind.on_entries(seat.core, offset, ((key, value),))

        pieces = replay_log(seat.partition, seat.core, self._kind.load_bytes, on_record)
        await in_pieces(self.loop, self.clock, pieces)

    def _begin(self, seat: Seat[C]) -> None:
        """Start serving, after everything has been replayed."""
        if seat.is_gone:
            return
        seat.is_loaded = True
        if seat.partition.high_watermark < seat.partition.log_end_offset:
            # Entries that a new leader has loaded may not be committed yet; no answer may show them before they are.
            self._stepping.hold(seat, seat.partition.promise_end(), Decision())
        try:
            for decision in seat.core.on_loaded(self.clock.now_ms()):
                self._stepping.carry_out(seat, decision)
        except Exception:
            self._stepping.fail(seat, "loading")

    def reload(self, seat: Seat[C]) -> None:
        if seat.is_gone:
            return
        self._stepping.leave(seat)
        if self.seats.get(seat.index) is seat:
            self._load_soon(self._take_seat(seat.index, seat.partition))

    def _load_soon(self, seat: Seat[C]) -> None:
        task = self.loop.create_task(self._load_again(seat))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load_again(self, seat: Seat[C]) -> None:
        delay_s = RELOAD_DELAY_S
        while not seat.is_gone:
            try:
                await self._replay(seat)
            except Exception:
                log.exception(
                    "a coordinator's partition cannot be loaded; it is tried again",
                    extra={"topic": self._kind.topic, "partition": seat.index, "after_s": delay_s},
                )
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RELOAD_DELAY_S_MAX)
                seat.core = self._kind.make_core(seat.index)
            else:
                self._begin(seat)
                return

    # --- asking ----------------------------------------------------------------------------------------

    def index_of(self, name: str) -> int:
        """The partition that stores `name`, computed as in Kafka. The topic must exist."""
        return partition_for_name(name, self.partition_count)

    def core_of(self, name: str) -> C | None:
        """The core that holds `name`, for reading; None while it is not loaded."""
        seat = self.seats.get(self.index_of(name)) if self.partition_count else None
        return seat.core if seat is not None and seat.is_loaded else None

    def cores(self) -> Iterator[tuple[int, C]]:
        """The loaded cores, by partition."""
        for index, seat in list(self.seats.items()):
            if seat.is_loaded:
                yield index, seat.core

    def leader_epoch_of(self, index: int) -> int:
        """The leader epoch of a partition whose core is here."""
        return max(self.seats[index].partition.leader_epoch, 0)

    def request(self, name: str, make_event: MakeEvent[R]) -> asyncio.Future[R]:
        """The reply to an event about one name. On a single node it is done on return, unless the core delays the reply."""
        if not self.partition_count:
            return self._request(None, make_event)
        return self._request(self.seats.get(self.index_of(name)), make_event)

    def request_at(self, index: int, make_event: MakeEvent[R]) -> asyncio.Future[R]:
        """The reply of one partition."""
        return self._request(self.seats.get(index), make_event)

    def _request(self, seat: Seat[C] | None, make_event: MakeEvent[R]) -> asyncio.Future[R]:
        token: asyncio.Future[R] = self.loop.create_future()
        event = make_event(token, self.clock.now_ms())
        if seat is None:
            token.set_result(event.refused(ErrorCode.NOT_COORDINATOR))
        elif not seat.is_loaded:
            token.set_result(event.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            seat.waiting[token] = event
            self._stepping.step(seat, event)
        return token

    def prove(self, indexes: Iterable[int]) -> asyncio.Future[list[DoneReply]]:
        """Whether what was just read from some cores is certain to be right; an error for each core of which it is not."""
        return asyncio.gather(*(self.request_at(index, Prove) for index in indexes))

    @property
    def is_whole(self) -> bool:
        """Whether this broker holds every partition of the topic, so that a name missing here does not exist."""
        # Not `partition_count`: a broker that holds none is not told when the topic is created.
        return len(self.seats) == self._partitions.count(self._kind.topic)

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still being loaded, so that a missing name may yet appear."""
        return any(not seat.is_loaded for seat in self.seats.values())

    def append_marker(
        self,
        index: int,
        append: Callable[[Partition], Acknowledgement],
        make_event: Callable[[int], Event[object]],
    ) -> Acknowledgement:
        """Write the marker that ends a transaction into one partition of the topic, and step its core in the same turn.

        make_event: now_ms -> the event, whose token is None. Raises ApiError with nothing written.
        """
        seat = self.seats.get(index)
        if seat is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self._kind.topic}-{index} is not led here")
        if not seat.is_loaded:  # loading would miss a marker behind the end that it has determined
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._kind.topic}-{index} is being loaded"
            )
        acknowledgement = append(seat.partition)
        if not acknowledgement.is_ready:  # answers that show the transaction's end wait until it is committed
            self._stepping.hold(seat, acknowledgement, Decision())
        self._stepping.step(seat, make_event(self.clock.now_ms()))
        return acknowledgement

    def sweep(self, make_pieces: Callable[[C, int], Iterator[Event[object] | None]]) -> asyncio.Future[None]:
        """Step events that concern all names, piece by piece, one partition after the other; small sweeps finish at once."""
        return in_pieces(self.loop, self.clock, self._sweep(make_pieces))

    def _sweep(self, make_pieces: Callable[[C, int], Iterator[Event[object] | None]]) -> Iterator[None]:
        now_ms = self.clock.now_ms()
        # `make_pieces` is called for all partitions before any of them makes a step, because it may already change what
        # clients see: deleted topics, for example, must disappear from all partitions at the same moment.
        begun = [
            (seat, iter(make_pieces(seat.core, now_ms))) for seat in self.seats.values() if seat.is_loaded
        ]
        for seat, pieces in begun:
            while not seat.is_gone:
                try:
                    event = next(pieces)
                except StopIteration:
                    break
                except Exception:
                    self._stepping.fail(seat, "a sweep")
                    break
                if event is not None:
                    self._stepping.step(seat, event)
                yield

    # --- time ------------------------------------------------------------------------------------------

    def poll_timers(self) -> None:
        """Fire the timers that are due; for tests that move the clock."""
        self._stepping.poll_timers()
