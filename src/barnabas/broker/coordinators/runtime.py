"""Drives the cores of one coordinator: one core for each partition of its topic that this broker leads.

Groups, share group states and transactions all load, step, append, undo, set timers and unload here and nowhere else. A
request becomes an event; the core decides; its entries are appended as one batch; then timers are set, and replies and
effects are released when the high watermark covers the entries. Nothing is awaited in between, so a core never handles
two events at once.

A fault costs only one partition: an exception in a core is logged once with its stack, the pending requests of the partition
are answered, and it is loaded again from its log. The other partitions are not affected.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from barnabas.broker.cluster.internal_topics import usable
from barnabas.broker.coordinators.doubt import Doubts, Prove
from barnabas.broker.coordinators.loading import replay_log
from barnabas.cores.decision import Decision, DoneReply, Entry, TimerFired
from barnabas.records.batch import Record, build_batch
from barnabas.records.compression import Codec
from barnabas.records.partitioner import partition_for_name
from barnabas.runtime.pace import in_pieces
from barnabas.runtime.timers import KeyedTimers
from barnabas.storage.errors import StorageError
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.partitions.acknowledgement import Acknowledgement
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.coordinators")

RELOAD_DELAY_S: Final = 1.0
RELOAD_DELAY_S_MAX: Final = 60.0

AS_COORDINATORS_SAY: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Error text when a change was not written; clients retry after these errors, or look for the coordinator."""

MakeEvent = Callable[[Any, int], Any]
"""(token, now_ms) -> event."""


class Core(Protocol):
    """What the runtime needs from a core; see cores/group/core.py and cores/group/share/state.py."""

    @property
    def deadlines(self) -> Mapping[Any, int]:
        """Timer key -> when it is due, in milliseconds of the runtime's clock."""

    def names(self) -> Iterable[str]:
        """The units (groups, transactional ids) that the core holds."""

    def step(self, event: Any) -> Decision:
        """Decide on one event. The decision takes effect at once; `abandon` undoes it."""

    def abandon(self, decisions: Sequence[Decision], error: ErrorCode, now_ms: int) -> Decision:
        """Undo decisions whose entries could not be appended, newest first; their requests are answered with `error`."""

    def replay(self, key: bytes, value: bytes | None, *, producer_id: int = -1) -> None:
        """Apply one entry of the log. producer_id: the producer, if the entry belongs to a transaction; -1 otherwise."""

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Apply the end of a producer's transaction."""

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        """What remains to be done after the whole log was replayed, one piece at a time."""

    def export(self, name: str, now_ms: int) -> Iterator[Any]:
        """Events that recreate one unit, as it is now, in the core of another partition."""

    def disown(self, name: str, now_ms: int) -> Iterator[Any]:
        """Events that remove one unit here after another core has received it."""


C = TypeVar("C", bound=Core)


@dataclass(frozen=True)
class Kind(Generic[C]):
    """What distinguishes one coordinator from another.

    make_core: creates the core of a partition. proof: an entry that changes nothing (see doubt.py). before_step: called
    before each event. on_effect: carries out an effect that a core has decided. on_records: called with entries that were
    replayed or appended, and the offset of the first.
    """

    name: str
    topic: str
    make_core: Callable[[int], C]
    codec: Codec
    load_bytes: int
    proof: Entry
    before_step: Callable[[C], None] = lambda core: None
    on_effect: Callable[[Any], None] = lambda effect: None
    on_records: Callable[[C, int, Sequence[Entry]], None] = lambda core, offset, entries: None


@dataclass(eq=False)
class Seat(Generic[C]):
    """One partition of the topic and its core, from loading to unloading."""

    index: int
    partition: Partition
    core: C
    is_loaded: bool = False
    is_gone: bool = False
    waiting: dict[Any, Any] = field(default_factory=dict)
    """Token -> event, for requests that have not been answered."""
    armed: set[Hashable] = field(default_factory=set)
    held: deque[tuple[Acknowledgement, Decision]] = field(default_factory=deque)
    """Decisions whose replies and effects wait until the high watermark covers their entries, oldest first."""
    refused_for: str = ""
    """Why the last change was not written, "" if it was: clients that try again at once must not fill the log."""


class CoordinatorRuntime(Generic[C]):
    """See the module."""

    def __init__(
        self,
        kind: Kind[C],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        partitions: Partitions,
        ensure_topic: Callable[[str], Awaitable[int]],
        is_certain: Callable[[], bool],
    ) -> None:
        """is_certain: whether no other broker can have taken over from this one unnoticed (Controller.is_certain)."""
        self._kind = kind
        self._doubts: Doubts[Seat[C]] = Doubts(loop, is_certain, self._prove)
        self.loop = loop
        self.clock = clock
        self._partitions = partitions
        self._ensure_topic = ensure_topic
        self._seats: dict[int, Seat[C]] = {}
        self._timers = KeyedTimers(loop, clock, self._fire)
        self._preparing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._follows_roles = False
        self.partition_count = 0
        """The topic's partition count; 0 while the topic does not exist or is not loaded."""

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
        await self._load_all(await usable(self._kind.topic, self._ensure_topic))

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
        for index, seat in list(self._seats.items()):
            if not self._is_led(seat) and not seat.partition.is_deleted:  # `topic_deleted` follows for those
                del self._seats[index]
                self._leave(seat)
                log.info("a coordinator is on another broker now", extra=self._place(index))
        self.partition_count = self._partitions.count(self._kind.topic)
        for index in range(self.partition_count):
            partition = self._partitions.get(self._kind.topic, index)
            if partition is not None and partition.is_leader and index not in self._seats:
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
            if partition is not None and partition.is_leader and index not in self._seats:
                seat = self._take_seat(index, partition)
                await self._replay(seat)
                loaded.append(seat)
        await self._move_home({seat.index: seat for seat in loaded if not seat.is_gone}, count)
        # Set before `_begin`: effects of loading may be carried out at once, and call this runtime.
        if all(not seat.is_gone for seat in loaded):  # otherwise the topic was deleted meanwhile
            self.partition_count = count
        for seat in loaded:
            self._begin(seat)

    def topic_deleted(self) -> None:
        """The coordinator's topic was deleted: all state is dropped, and the next request creates a new topic."""
        self.partition_count = 0
        seats, self._seats = self._seats, {}
        for seat in seats.values():
            self._leave(seat)
        if seats:
            log.warning(
                "a coordinator's topic was deleted with all that it kept",
                extra={"topic": self._kind.topic, "partitions": len(seats)},
            )

    def close(self) -> None:
        """Answer all pending requests, and stop the timers."""
        self._timers.close()
        for task in self._tasks:
            task.cancel()
        for seat in self._seats.values():
            self._leave(seat)

    # --- loading and unloading -------------------------------------------------------------------------

    def _take_seat(self, index: int, partition: Partition) -> Seat[C]:
        seat = self._seats[index] = Seat(index, partition, self._kind.make_core(index))
        return seat

    async def _replay(self, seat: Seat[C]) -> None:
        def on_record(offset: int, key: bytes, value: bytes | None) -> None:
            self._kind.on_records(seat.core, offset, ((key, value),))

        pieces = replay_log(seat.partition, seat.core, self._kind.load_bytes, on_record)
        await in_pieces(self.loop, self.clock, pieces)

    def _begin(self, seat: Seat[C]) -> None:
        """Start serving, after everything has been replayed."""
        if seat.is_gone:
            return
        seat.is_loaded = True
        if seat.partition.high_watermark < seat.partition.log_end_offset:
            # Entries that a new leader has loaded may not be committed yet; no answer may show them before they are.
            self._hold(seat, seat.partition.promise_end(), Decision())
        try:
            for decision in seat.core.on_loaded(self.clock.now_ms()):
                self._append_and_carry_out(seat, decision)
        except Exception:
            self._fail(seat, "loading")

    def _leave(self, seat: Seat[C], error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Answer the pending requests of a partition and cancel its timers; the core is no longer used."""
        seat.is_gone, seat.is_loaded = True, False
        for key in seat.armed:
            self._timers.cancel((seat.index, key))
        waiting, seat.waiting = seat.waiting, {}
        for token, event in waiting.items():
            if not token.done():
                token.set_result(event.refused(error))
        seat.held.clear()
        self._doubts.forget(seat)

    def _fail(self, seat: Seat[C], what: str) -> None:
        """Called in an exception handler for a bug in a core. Its memory cannot be trusted, so it is loaded again."""
        log.exception(
            "a coordinator met a bug; this partition of it is loaded again, the others go on",
            extra={"topic": self._kind.topic, "partition": seat.index, "at": what},
        )
        self._reload(seat)

    def _reload(self, seat: Seat[C]) -> None:
        if seat.is_gone:
            return
        self._leave(seat)
        if self._seats.get(seat.index) is seat:
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

    # --- names in partitions that are not theirs -----------------------------------------------------------

    async def _move_home(self, seats: Mapping[int, Seat[C]], count: int) -> None:
        """Move names that an earlier version stored in another partition than Kafka does. Runs before anything is served.

        The right partition is written and flushed before the wrong one forgets, so after a crash in between the move is
        repeated.
        """
        moves = [
            (seat, name, home)
            for seat in seats.values()
            for name in seat.core.names()
            if (home := seats.get(partition_for_name(name, count))) is not None and home is not seat
        ]
        if not moves:
            return
        try:
            await in_pieces(self.loop, self.clock, self._export(moves))
            for home in {seat.index: seat for _, _, seat in moves}.values():
                await self.loop.run_in_executor(None, home.partition.log.flush)
            await in_pieces(self.loop, self.clock, self._disown(moves))
        except (ApiError, StorageError) as error:
            log.error(
                "entries in the wrong partition were not moved to theirs; the next start tries again",
                extra={"topic": self._kind.topic, "reason": str(error)},
            )
            return
        log.warning(
            "entries in the wrong partition were moved to theirs",
            extra={"topic": self._kind.topic, "moved": len(moves)},
        )

    def _export(self, moves: Iterable[tuple[Seat[C], str, Seat[C]]]) -> Iterator[None]:
        for seat, name, home in moves:
            for event in seat.core.export(name, self.clock.now_ms()):
                self._write_move(home, event)
                yield

    def _disown(self, moves: Iterable[tuple[Seat[C], str, Seat[C]]]) -> Iterator[None]:
        for seat, name, _ in moves:
            for event in seat.core.disown(name, self.clock.now_ms()):
                self._write_move(seat, event)
                yield

    def _write_move(self, seat: Seat[C], event: Any) -> None:
        """Raises ApiError; nothing is lost then, and the next start moves the rest."""
        decision = seat.core.step(event)
        if decision.records:
            self._append(seat, decision)

    # --- asking ----------------------------------------------------------------------------------------

    def index_of(self, name: str) -> int:
        """The partition that stores `name`, computed as in Kafka. The topic must exist."""
        return partition_for_name(name, self.partition_count)

    def core_of(self, name: str) -> C | None:
        """The core that holds `name`, for reading; None while it is not loaded."""
        seat = self._seats.get(self.index_of(name)) if self.partition_count else None
        return seat.core if seat is not None and seat.is_loaded else None

    def cores(self) -> Iterator[tuple[int, C]]:
        """The loaded cores, by partition."""
        for index, seat in list(self._seats.items()):
            if seat.is_loaded:
                yield index, seat.core

    def leader_epoch_of(self, index: int) -> int:
        """The leader epoch of a partition whose core is here."""
        return max(self._seats[index].partition.leader_epoch, 0)

    def request(self, name: str, make_event: MakeEvent) -> asyncio.Future[Any]:
        """The reply to an event about one name. On a single node it is done on return, unless the core delays the reply."""
        if not self.partition_count:
            return self._request(None, make_event)
        return self._request(self._seats.get(self.index_of(name)), make_event)

    def request_at(self, index: int, make_event: MakeEvent) -> asyncio.Future[Any]:
        """The reply of one partition."""
        return self._request(self._seats.get(index), make_event)

    def _request(self, seat: Seat[C] | None, make_event: MakeEvent) -> asyncio.Future[Any]:
        token: asyncio.Future[Any] = self.loop.create_future()
        event = make_event(token, self.clock.now_ms())
        if seat is None:
            token.set_result(event.refused(ErrorCode.NOT_COORDINATOR))
        elif not seat.is_loaded:
            token.set_result(event.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            seat.waiting[token] = event
            self._step(seat, event)
        return token

    def prove(self, indexes: Iterable[int]) -> asyncio.Future[list[DoneReply]]:
        """Whether what was just read from some cores is certain to be right; an error for each core of which it is not."""
        return asyncio.gather(*(self.request_at(index, Prove) for index in indexes))

    @property
    def is_whole(self) -> bool:
        """Whether this broker holds every partition of the topic, so that a name missing here does not exist."""
        # Not `partition_count`: a broker that holds none is not told when the topic is created.
        return len(self._seats) == self._partitions.count(self._kind.topic)

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still being loaded, so that a missing name may yet appear."""
        return any(not seat.is_loaded for seat in self._seats.values())

    def append_marker(
        self, index: int, append: Callable[[Partition], Acknowledgement], make_event: Callable[[int], Any]
    ) -> Acknowledgement:
        """Write the marker that ends a transaction into one partition of the topic, and step its core in the same turn.

        make_event: now_ms -> the event, whose token is None. Raises ApiError with nothing written.
        """
        seat = self._seats.get(index)
        if seat is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self._kind.topic}-{index} is not led here")
        if not seat.is_loaded:  # loading would miss a marker behind the end that it has determined
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._kind.topic}-{index} is being loaded"
            )
        acknowledgement = append(seat.partition)
        if not acknowledgement.is_ready:  # answers that show the transaction's end wait until it is committed
            self._hold(seat, acknowledgement, Decision())
        self._step(seat, make_event(self.clock.now_ms()))
        return acknowledgement

    def sweep(self, make_pieces: Callable[[C, int], Iterator[Any]]) -> asyncio.Future[None]:
        """Step events that concern all names, piece by piece, one partition after the other; small sweeps finish at once."""
        return in_pieces(self.loop, self.clock, self._sweep(make_pieces))

    def _sweep(self, make_pieces: Callable[[C, int], Iterator[Any]]) -> Iterator[None]:
        now_ms = self.clock.now_ms()
        # `make_pieces` is called for all partitions before any of them makes a step, because it may already change what
        # clients see: deleted topics, for example, must disappear from all partitions at the same moment.
        begun = [
            (seat, iter(make_pieces(seat.core, now_ms))) for seat in self._seats.values() if seat.is_loaded
        ]
        for seat, pieces in begun:
            while not seat.is_gone:
                try:
                    event = next(pieces)
                except StopIteration:
                    break
                except Exception:
                    self._fail(seat, "a sweep")
                    break
                if event is not None:
                    self._step(seat, event)
                yield

    # --- stepping --------------------------------------------------------------------------------------

    def _step(self, seat: Seat[C], event: Any) -> None:
        try:
            if type(event) is Prove:
                self._append_and_carry_out(seat, Decision(event, replies=((event.token, DoneReply()),)))
                return
            self._kind.before_step(seat.core)
            decision = seat.core.step(event)
            self._append_and_carry_out(seat, decision)
        except Exception:
            # Only this request gets a non-retriable error; the other pending requests get a retriable one.
            if event.token is not None and seat.waiting.pop(event.token, None) is not None:
                event.token.set_result(event.refused(ErrorCode.UNKNOWN_SERVER_ERROR))
            self._fail(seat, type(event).__name__)

    def _append_and_carry_out(self, seat: Seat[C], decision: Decision) -> None:
        acknowledgement: Acknowledgement | None = None
        is_doubtful = self._doubts.concern(decision)
        if decision.records:
            try:
                acknowledgement = self._append(seat, decision)
            except ApiError as error:
                # One that does not lead is about to be unloaded, which is logged.
                if seat.partition.is_leader and seat.refused_for != error.message:
                    seat.refused_for = error.message
                    log.error(
                        "a coordinator's change was not written",
                        extra={"topic": self._kind.topic, "partition": seat.index, "reason": error.message},
                    )
                code = AS_COORDINATORS_SAY.get(error.code, error.code)
                decision = seat.core.abandon([decision], code, self.clock.now_ms())
        for timer in decision.timers:
            if timer.deadline_ms is None:
                seat.armed.discard(timer.key)
                self._timers.cancel((seat.index, timer.key))
            else:
                seat.armed.add(timer.key)
                self._timers.set((seat.index, timer.key), timer.deadline_ms)
        for note in decision.notes:
            log.info(note.text, extra=dict(note.fields))
        if is_doubtful:
            self._doubts.prove_later(seat, decision)
        elif acknowledgement is not None and not acknowledgement.is_ready:
            self._hold(seat, acknowledgement, decision)
        elif seat.held:  # an answer must not show what a crash could still undo
            seat.held.append((seat.held[-1][0], decision))
        else:
            self._give_out(seat, decision)

    def _hold(self, seat: Seat[C], acknowledgement: Acknowledgement, decision: Decision) -> None:
        seat.held.append((acknowledgement, decision))
        acknowledgement.when_ready(lambda _: self._release(seat))

    def _append(self, seat: Seat[C], decision: Decision) -> Acknowledgement:
        acknowledgement = seat.partition.append_built(_batch(decision, self.clock.now_ms(), self._kind.codec))
        seat.refused_for = ""
        self._kind.on_records(seat.core, acknowledgement.base_offset, decision.records)
        return acknowledgement

    def _prove(self, seat: Seat[C], doubtful: Decision) -> None:
        """Append an entry that changes nothing: once it is committed, the replies are known to be right."""
        try:
            acknowledgement = self._append(seat, Decision(records=(self._kind.proof,)))
        except ApiError as error:
            code = AS_COORDINATORS_SAY.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            refused = ((token, seat.waiting[token].refused(code)) for token, _ in doubtful.replies)
            self._give_out(seat, Decision(replies=tuple(refused), effects=doubtful.effects))
        else:
            self._hold(seat, acknowledgement, doubtful)

    def _release(self, seat: Seat[C]) -> None:
        """Release what waited, as far as the high watermark has advanced."""
        while seat.held and seat.held[0][0].is_ready and not seat.is_gone:
            acknowledgement, decision = seat.held.popleft()
            if acknowledgement.error is not None and not seat.partition.is_leader:
                self._leave(seat)  # the topic was deleted, or another broker leads
                return
            if acknowledgement.error is not None:
                log.error(
                    "entries that a coordinator had appended were lost; the partition is loaded again",
                    extra={
                        "topic": self._kind.topic,
                        "partition": seat.index,
                        "reason": acknowledgement.error.message,
                    },
                )
                self._reload(seat)
                return
            self._give_out(seat, decision)

    def _give_out(self, seat: Seat[C], decision: Decision) -> None:
        for token, reply in decision.replies:
            seat.waiting.pop(token, None)
            if not token.done():
                token.set_result(reply)
        for effect in decision.effects:
            try:
                self._kind.on_effect(effect)
            except Exception:
                log.exception("a coordinator's effect met a bug", extra={"effect": type(effect).__name__})

    # --- time ------------------------------------------------------------------------------------------

    def _fire(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        index, timer_key = key
        seat = self._seats.get(index)
        if seat is None or not seat.is_loaded:
            return
        seat.armed.discard(timer_key)
        deadline_ms = seat.core.deadlines.get(timer_key)
        if deadline_ms is not None:
            self._step(seat, TimerFired(self.clock.now_ms(), timer_key, deadline_ms))

    def poll_timers(self) -> None:
        """Fire the timers that are due; for tests that move the clock."""
        self._timers.poll()


def _batch(decision: Decision, now_ms: int, codec: Codec) -> bytes:
    records = [Record(0, now_ms, key, value) for key, value in decision.records]
    if decision.producer is None:
        return build_batch(records, codec=codec)
    return build_batch(
        records,
        codec=codec,
        producer_id=decision.producer.producer_id,
        producer_epoch=decision.producer.producer_epoch,
        transactional=True,
    )
