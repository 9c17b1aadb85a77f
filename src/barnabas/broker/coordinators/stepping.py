"""Steps a core: it decides on an event, the entries are appended, the decision is applied, replies wait for the commit.

Nothing is awaited in between, so a core never handles two events at once, and its state is always what its log says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Final, Generic

from barnabas.broker.coordinators.doubt import Doubts, Prove
from barnabas.broker.coordinators.seats import C, CoordinatorKind, Seat
from barnabas.cores.decision import Decision, DoneReply, Event, Producer, RawEntry, TimerFired
from barnabas.records.batch import Record, build_batch
from barnabas.records.compression import Codec
from barnabas.runtime.timers import KeyedTimers
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.partitions.acknowledgement import Acknowledgement
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.coordinators")

AS_COORDINATORS_SAY: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error for a change that was not written; clients retry after these errors, or look for the coordinator."""


class Stepping(Generic[C]):
    """Steps the cores of one coordinator, one event at a time.

    seat_of: the seat of a partition. reload: loads a seat's partition again, since its memory cannot be trusted.
    """

    def __init__(
        self,
        kind: CoordinatorKind[C],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        is_certain: Callable[[], bool],
        seat_of: Callable[[int], Seat[C] | None],
        reload: Callable[[Seat[C]], None],
    ) -> None:
        """is_certain: whether no other broker can have taken over from this one unnoticed (Controller.is_certain)."""
        self._kind = kind
        self._clock = clock
        self._seat_of = seat_of
        self._reload = reload
        self._doubts: Doubts[Seat[C]] = Doubts(loop, is_certain, self._prove)
        self._timers = KeyedTimers(loop, clock, self._fire)

    # --- one event -------------------------------------------------------------------------------------

    def step(self, seat: Seat[C], event: Event[object]) -> None:
        """Decide on an event and carry out the decision. A bug costs this event and the memory of this seat."""
        try:
            if isinstance(event, Prove):
                self.carry_out(seat, Decision(event, replies=((event.token, DoneReply()),)))
                return
            self._kind.before_step(seat.core)
            self.carry_out(seat, seat.core.decide(event))
        except Exception:
            # Only this request gets a non-retriable error; the other pending requests get a retriable one.
            if event.token is not None and seat.waiting.pop(event.token, None) is not None:
                _answer(event.token, event.refused(ErrorCode.UNKNOWN_SERVER_ERROR))
            self.fail(seat, type(event).__name__)

    def fail(self, seat: Seat[C], what: str) -> None:
        """Called in an exception handler for a bug in a core. Its memory cannot be trusted, so it is loaded again."""
        log.exception(
            "a coordinator met a bug; this partition of it is loaded again, the others go on",
            extra={"topic": self._kind.topic, "partition": seat.index, "at": what},
        )
        self._reload(seat)

    def carry_out(self, seat: Seat[C], decision: Decision) -> None:
        """Append the entries of a decision, apply it, set its timers; give out its replies when they are certain."""
        acknowledgement: Acknowledgement | None = None
        is_doubtful = self._doubts.concern(decision)
        if decision.entries:
            # Appending can raise the high watermark and so release earlier decisions, whose effects may step this core
            # again. It must not decide before this decision is applied: they are released below.
            seat.is_appending = True
            try:
                acknowledgement = self.append(seat, decision)
            except ApiError as error:
                decision = self._refused(seat, decision, error)
            finally:
                seat.is_appending = False
        seat.core.apply(decision)
        for timer in decision.timers:
            if timer.deadline_ms is None:
                seat.armed.discard(timer.key)
                self._timers.cancel((seat.index, timer.key))
            else:
                seat.armed.add(timer.key)
                self._timers.set((seat.index, timer.key), timer.deadline_ms)
        for note in decision.notes:
            log.info(note.text, extra=dict(note.fields))
        if acknowledgement is not None and seat.uncommitted:
            self._release(seat)
        if is_doubtful:
            self._doubts.prove_later(seat, decision)
        elif acknowledgement is not None and not acknowledgement.is_ready:
            self.hold(seat, acknowledgement, decision)
        elif seat.uncommitted:  # an answer must not show what a crash could still undo
            seat.uncommitted.append((seat.uncommitted[-1][0], decision))
        else:
            self._give_out(seat, decision)

    def append(self, seat: Seat[C], decision: Decision) -> Acknowledgement:
        """Append the entries of a decision as one batch. Raises ApiError with nothing written."""
        entries = decision.encoded()
        batch = _batch(entries, decision.producer, self._clock.now_ms(), self._kind.codec)
        acknowledgement = seat.partition.append_built(batch)
        seat.refused_for = ""
        self._kind.on_entries(seat.core, acknowledgement.base_offset, entries)
        return acknowledgement

    def _refused(self, seat: Seat[C], decision: Decision, error: ApiError) -> Decision:
        # One that does not lead is about to be unloaded, which is logged.
        if seat.partition.is_leader and seat.refused_for != error.message:
            seat.refused_for = error.message
            log.error(
                "a coordinator's change was not written",
                extra={"topic": self._kind.topic, "partition": seat.index, "reason": error.message},
            )
        code = AS_COORDINATORS_SAY.get(error.code, error.code)
        return seat.core.refuse(decision, code, self._clock.now_ms())

    # --- replies ---------------------------------------------------------------------------------------

    def hold(self, seat: Seat[C], acknowledgement: Acknowledgement, decision: Decision) -> None:
        """Give out a decision's replies and effects, and those of all later ones, once the acknowledgement is ready."""
        seat.uncommitted.append((acknowledgement, decision))
        acknowledgement.when_ready(lambda _: self._release(seat))

    def _release(self, seat: Seat[C]) -> None:
        """Release what waited, as far as the high watermark has advanced."""
        while (
            seat.uncommitted
            and seat.uncommitted[0][0].is_ready
            and not seat.is_gone
            and not seat.is_appending
        ):
            acknowledgement, decision = seat.uncommitted.popleft()
            if acknowledgement.error is not None and not seat.partition.is_leader:
                self.leave(seat)  # the topic was deleted, or another broker leads
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

    def _prove(self, seat: Seat[C], doubtful: Decision) -> None:
        """Append an entry that changes nothing: once it is committed, the replies are known to be right."""
        try:
            acknowledgement = self.append(seat, Decision(entries=(self._kind.proof,)))
        except ApiError as error:
            code = AS_COORDINATORS_SAY.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            refused = ((token, seat.waiting[token].refused(code)) for token, _ in doubtful.replies)
            self._give_out(seat, Decision(replies=tuple(refused), effects=doubtful.effects))
        else:
            self.hold(seat, acknowledgement, doubtful)

    def _give_out(self, seat: Seat[C], decision: Decision) -> None:
        for token, reply in decision.replies:
            seat.waiting.pop(token, None)
            _answer(token, reply)
        for effect in decision.effects:
            try:
                self._kind.on_effect(effect)
            except Exception:
                log.exception("a coordinator's effect met a bug", extra={"effect": type(effect).__name__})

    def leave(self, seat: Seat[C], error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Answer the pending requests of a partition and cancel its timers; the core is no longer used."""
        seat.is_gone, seat.is_loaded = True, False
        for key in seat.armed:
            self._timers.cancel((seat.index, key))
        waiting, seat.waiting = seat.waiting, {}
        for token, event in waiting.items():
            _answer(token, event.refused(error))
        seat.uncommitted.clear()
        self._doubts.forget(seat)

    # --- time ------------------------------------------------------------------------------------------

    def _fire(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        index, timer_key = key
        seat = self._seat_of(index)
        if seat is None or not seat.is_loaded:
            return
        seat.armed.discard(timer_key)
        deadline_ms = seat.core.deadlines.get(timer_key)
        if deadline_ms is not None:
            self.step(seat, TimerFired(self._clock.now_ms(), timer_key, deadline_ms))

    def poll_timers(self) -> None:
        """Fire the timers that are due; for tests that move the clock."""
        self._timers.poll()

    def close(self) -> None:
        """Stop the timers."""
        self._timers.close()


def _answer(token: object, reply: object) -> None:
    assert isinstance(token, asyncio.Future)
    if not token.done():
        token.set_result(reply)


def _batch(entries: list[RawEntry], producer: Producer | None, now_ms: int, codec: Codec) -> bytes:
    records = [Record(0, now_ms, key, value) for key, value in entries]
    if producer is None:
        return build_batch(records, codec=codec)
    return build_batch(
        records,
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transactional=True,
    )
