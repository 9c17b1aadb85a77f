"""Requests of partition leaders and group coordinators to the share coordinator, here or on another broker (KIP-932).

Requests about one share partition are handled in order, one at a time; writes that wait meanwhile are merged into one.
While the share coordinator moves to another broker, requests are retried. All of them may be repeated safely: a write
contains the resulting state of offsets, not a difference. Requests to another broker in the same turn of the loop are
sent as one request per group.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.cluster.internal_topics import SHARE_STATE_TOPIC
from barnabas.broker.coordinators.shares.state_requests import StateEvent, replies_of, request_of
from barnabas.broker.net.peers import PeerLost
from barnabas.cores.group.share.partition import DONE, StateBatch
from barnabas.cores.group.share.state import (
    NO_START_OFFSET,
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    ShareState,
    StateReply,
    SummarizeState,
    WriteState,
    coordinator_name,
)
from barnabas.records.partitioner import partition_for_name
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.shares.states import ShareStates
    from barnabas.broker.net.peers import Peers
    from barnabas.cores.cluster_image import ClusterImage

log = logging.getLogger("barnabas.shares")

TRY_S: Final = 25.0
"""How long one request is tried: longer than a broker's session lasts, shorter than clients wait for an answer."""
SEND_TIMEOUT_S: Final = 10.0
PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 0.5
BATCHES_AT_ONCE_MAX: Final = 2_000
"""Limit on the batches of writes that are merged into one."""

MOVES: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
NOT_NOW: Final = MOVES | {ErrorCode.COORDINATOR_NOT_AVAILABLE}
"""Refusals after which the same request may succeed."""

Answer = asyncio.Future[StateReply]


class _Item(NamedTuple):
    """A queued request. after: must be done before the request is sent; it never fails."""

    event: StateEvent
    answer: Answer
    after: asyncio.Future[None] | None


class Persister:
    """See the module. Answers are futures; those that need only this broker are done when the method returns."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: int,
        image: Callable[[], ClusterImage],
        states: ShareStates,
        peers: Peers,
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self._image = image
        self._states = states
        self._peers = peers
        self._lines: dict[ShareKey, deque[_Item]] = {}
        """Queued requests by share partition; each queue has a task that works on it."""
        self._outbox: dict[tuple[int, str, type[StateEvent]], list[tuple[StateEvent, Answer]]] = {}
        """By broker, group and kind: requests to be sent at the end of this turn of the loop."""
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Stop retrying; waiting callers are refused."""
        for task in self._tasks:
            task.cancel()

    # --- what can be asked -----------------------------------------------------------------------------

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int = NO_START_OFFSET) -> Answer:
        """Initialize a state. FENCED_STATE_EPOCH if there is one with a higher epoch."""
        return self._ask(InitializeState(None, 0, key, state_epoch, start_offset))

    def read(self, key: ShareKey, leader_epoch: int) -> Answer:
        """Read the state for a leader of the partition, None if there is none. From now on only this leader may write it."""
        return self._ask(ReadState(None, 0, key, leader_epoch))

    def write(
        self,
        key: ShareKey,
        state: ShareState,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int,
        after: asyncio.Future[None] | None = None,
    ) -> Answer:
        """Change a state, with the epochs of `state`, once `after` is done.

        When a write fails, the writes queued behind it fail too.
        """
        event = WriteState(
            None,
            0,
            key,
            state.state_epoch,
            state.leader_epoch,
            start_offset,
            batches,
            delivery_complete_count,
        )
        return self._ask(event, after)

    def delete(self, key: ShareKey) -> Answer:
        """Delete a state, if it exists."""
        return self._ask(DeleteState(None, 0, key))

    def summary(self, key: ShareKey) -> Answer:
        """The state without its batches; None if there is none."""
        return self._ask(SummarizeState(None, 0, key))

    def cut(self, key: ShareKey, state: ShareState, log_end_offset: int) -> bool:
        """Drop what is stored about offsets that the log has lost: the records that get these offsets next are different
        ones.

        False when nothing had to be dropped. Later requests about `key` see the result.
        """
        if max((state.start_offset - 1, *(b.last for b in state.batches))) < log_end_offset:
            return False
        kept = [
            b._replace(last=min(b.last, log_end_offset - 1))
            for b in state.batches
            if b.first < log_end_offset
        ]
        start = min(state.start_offset, log_end_offset)
        settled = sum(batch.last - batch.first + 1 for batch in kept if batch.state in DONE)
        log.warning(
            "a log has lost records that a share group had settled; they are forgotten",
            extra={"key": key, "log_end_offset": log_end_offset},
        )
        for answer in (
            self.initialize(key, state.state_epoch, start),
            self.write(key, state, start, kept, settled),
        ):
            when_done(answer, partial(_note_cut, key))
        return True

    # --- one line for each share partition -------------------------------------------------------------

    def _ask(self, event: StateEvent, after: asyncio.Future[None] | None = None) -> Answer:
        answer: Answer = self._loop.create_future()
        line = self._lines.get(event.key)
        if line is not None:
            line.append(_Item(event, answer, after))
            return answer
        if SHARE_STATE_TOPIC not in self._image().topics and not isinstance(event, InitializeState):
            answer.set_result(_nothing_stored(event))
            return answer
        begun: Answer | None = None
        if after is None and self._coordinator(event.key) == self._node_id:
            begun = self._states.ask(event)
            if begun.done() and begun.result().error not in MOVES:
                return begun
        self._lines[event.key] = deque([_Item(event, answer, after)])
        self._start(self._work(event.key, begun))
        return answer

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, key: ShareKey, begun: Answer | None) -> None:
        """Send the requests of a queue until it is empty. begun: the answer to the first request, if it was already sent."""
        line = self._lines[key]
        taken: list[_Item] = []
        refusal = StateReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is being stopped")
        try:
            while line:
                taken = _take(line)
                if taken[0].after is not None:
                    await taken[0].after
                event = _as_one([item.event for item in taken])
                reply = await self._settle(event, begun)
                begun = None
                if reply.error is not ErrorCode.NONE and isinstance(event, WriteState):
                    while line and isinstance(line[0].event, WriteState):
                        taken.append(line.popleft())
                for item in taken:
                    _give(item.answer, reply)
        except Exception:
            log.exception("a request to the share coordinator met a bug", extra={"key": key})
            refusal = StateReply(
                ErrorCode.UNKNOWN_SERVER_ERROR, "a request to the share coordinator met a bug"
            )
        finally:
            del self._lines[key]
            for item in (*taken, *line):
                _give(item.answer, refusal)

    async def _settle(self, event: StateEvent, begun: Answer | None) -> StateReply:
        """The answer to a request, retried for up to TRY_S while the refusal may be temporary."""
        until_s = self._loop.time() + TRY_S
        pause_s = PAUSE_S
        while True:
            reply = await (begun or self._once(event))
            begun = None
            if reply.error not in NOT_NOW or self._loop.time() + pause_s > until_s:
                return reply
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _once(self, event: StateEvent) -> Answer:
        broker = self._coordinator(event.key)
        if broker == self._node_id:
            return self._states.ask(event)
        answer: Answer = self._loop.create_future()
        if broker < 0:
            why = f"the partition of {SHARE_STATE_TOPIC} that keeps the state has no leader"
            answer.set_result(StateReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))
        else:
            if not self._outbox:
                self._loop.call_soon(self._send_all)
            batch = self._outbox.setdefault((broker, event.key.group_id, type(event)), [])
            batch.append((event, answer))
        return answer

    def _coordinator(self, key: ShareKey) -> int:
        """The broker that leads the partition which stores a state; -1 if there is none."""
        topic = self._image().topics.get(SHARE_STATE_TOPIC)
        if topic is None or not topic.partitions:
            return -1
        partition = topic.partitions.get(partition_for_name(coordinator_name(key), len(topic.partitions)))
        return -1 if partition is None else partition.leader

    # --- other brokers ---------------------------------------------------------------------------------

    def _send_all(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for (broker, group_id, kind), batch in outbox.items():
            self._start(self._send(broker, group_id, kind, batch))

    async def _send(
        self, broker: int, group_id: str, kind: type[StateEvent], batch: list[tuple[StateEvent, Answer]]
    ) -> None:
        replies: dict[ShareKey, StateReply] = {}
        missing = StateReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the share coordinator did not answer")
        try:
            request, version = request_of([event for event, _ in batch])
            answer = await self._peers.call(broker, request, version, SEND_TIMEOUT_S)
            replies = replies_of(kind, group_id, answer)
        except PeerLost as error:
            missing = StateReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the share coordinator: {error}")
        except Exception:
            log.exception("a request to a share coordinator met a bug", extra={"broker": broker})
            missing = StateReply(
                ErrorCode.UNKNOWN_SERVER_ERROR, "a request to the share coordinator met a bug"
            )
        finally:
            for event, reply in batch:
                _give(reply, replies.get(event.key, missing))


def _nothing_stored(event: StateEvent) -> StateReply:
    """The answer when nothing has ever been stored."""
    if isinstance(event, WriteState):
        return StateReply(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {SHARE_STATE_TOPIC}")
    return StateReply()


def _take(line: deque[_Item]) -> list[_Item]:
    """Take the first request of a queue, and the writes behind it that can be merged with it."""
    taken = [line.popleft()]
    first = taken[0].event
    if not isinstance(first, WriteState):
        return taken
    batches = len(first.batches)
    while line and line[0].after is None:
        event = line[0].event
        if not isinstance(event, WriteState) or _epochs(event) != _epochs(first):
            break
        batches += len(event.batches)
        if batches > BATCHES_AT_ONCE_MAX:
            break
        taken.append(line.popleft())
    return taken


def _epochs(event: WriteState) -> tuple[int, int]:
    return event.state_epoch, event.leader_epoch


def _as_one(events: Sequence[StateEvent]) -> StateEvent:
    """Merge writes: the result leaves the same state as the last of them."""
    last = events[-1]
    if len(events) == 1 or not isinstance(last, WriteState):
        return last
    batches = [batch for event in events if isinstance(event, WriteState) for batch in event.batches]
    return replace(last, batches=tuple(batches))


def _give(answer: Answer, reply: StateReply) -> None:
    if not answer.done():
        answer.set_result(reply)


def _note_cut(key: ShareKey, reply: StateReply) -> None:
    if reply.error is not ErrorCode.NONE:
        log.error(
            "a share group's state beyond the log's end was not removed",
            extra={"key": key, "reason": reply.message},
        )


def when_done(answer: Answer, use: Callable[[StateReply], None]) -> None:
    """Call `use` with the answer: now if it is there, otherwise later."""
    if answer.done():
        use(answer.result())
    else:
        answer.add_done_callback(lambda done: None if done.cancelled() else use(done.result()))
