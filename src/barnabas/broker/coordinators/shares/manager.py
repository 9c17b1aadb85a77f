"""Share groups at this broker: their queues (partition), sessions, states, and what the group cores request.

A queue is created by the first fetch from it. It is dropped when its state is deleted or reset, or when another broker
becomes leader of its partition; the next fetch then starts from the stored state. Fetches that wait for a queue wait for
the one that replaces it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from barnabas.broker.cluster.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from barnabas.broker.coordinators.shares.dead_letters import DeadLetters
from barnabas.broker.coordinators.shares.options import ShareOptions, share_options
from barnabas.broker.coordinators.shares.partition import SharePartition
from barnabas.broker.coordinators.shares.persister import Persister, when_done
from barnabas.broker.coordinators.shares.states import ShareStates, require
from barnabas.config import broker_share
from barnabas.cores.group import (
    DeleteShareState,
    GroupCoordinatorCore,
    InitializeShareState,
    ShareInitialized,
)
from barnabas.cores.group.share.session import ShareSession, ShareSessions
from barnabas.cores.group.share.state import NO_START_OFFSET, ShareKey, StateReply
from barnabas.runtime.pace import in_pieces
from barnabas.runtime.timers import KeyedTimers
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.coordinators.groups import GroupCoordinator
    from barnabas.broker.net.connection import Connection
    from barnabas.broker.net.peers import Peers
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.broker.partitions.replica import Waiter
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.shares")

REFUSED_MS: Final = 100
"""How long a queue that could not be loaded is kept, so that all fetches that wait for it receive the error."""

T = TypeVar("T")


class Shares:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        controller: Controller,
        partitions: Partitions,
        groups: GroupCoordinator,
        peers: Peers,
    ) -> None:
        self.clock = clock
        self._loop = loop
        self._config = config
        self._controller = controller
        self._partitions = partitions
        self._groups = groups
        self.states = ShareStates(config, loop, clock, controller, partitions)
        self.persister = Persister(loop, controller.node_id, lambda: controller.image, self.states, peers)
        self.sessions = ShareSessions(config.get(broker_share.GROUP_SHARE_MAX_SHARE_SESSIONS))
        self._queues: dict[str, dict[ShareKey, SharePartition]] = {}
        self._options: dict[str, ShareOptions] = {}
        self._timers = KeyedTimers(loop, clock, self._fire)
        self._dead_letters = DeadLetters(config, clock, controller, partitions, peers)
        self._tasks: set[asyncio.Task[None]] = set()

    async def load_existing(self) -> None:
        """At start, after the groups: load the states; drop those that no group uses and those beyond their log's end.

        A crash of the machine may lose the end of a log but not the state stored about it. This must be noticed before
        anybody produces again.
        """
        await self.states.load_existing()
        await in_pieces(self._loop, self.clock, self._compare())

    def _compare(self) -> Iterator[None]:
        for key in self.states.keys():  # noqa: SIM118  (not a mapping)
            if self._groups.has_forgotten(*key):
                self._delete(key)
            else:
                self._cut(key)
            yield

    def _cut(self, key: ShareKey) -> None:
        name = self._partitions.name_of(key.topic_id)
        partition = None if name is None else self._partitions.get(name, key.partition)
        state = self.states.find(key)
        if partition is not None and partition.is_leader and state is not None:
            self.persister.cut(key, state, partition.log_end_offset)

    def close(self) -> None:
        """Stop the lock timers, and answer everything that waits for a state."""
        self._timers.close()
        for task in self._tasks:
            task.cancel()
        self._dead_letters.close()
        self.persister.close()
        self.states.close()

    def on_topics_deleted(self, topics: frozenset[str]) -> None:
        """Called after the groups. Deleting a coordinator's own topic deletes its state, and everything starts afresh."""
        if OFFSETS_TOPIC in topics or SHARE_STATE_TOPIC in topics:
            for queues in list(self._queues.values()):
                for queue in list(queues.values()):
                    self._drop(queue)
        if OFFSETS_TOPIC in topics:
            self.states.clear()
        if SHARE_STATE_TOPIC in topics:
            self.states.runtime.topic_deleted()
            self._groups.runtime.sweep(GroupCoordinatorCore.states_lost)

    # --- queues ----------------------------------------------------------------------------------------

    def open(self, group_id: str, topic_id: UUID, index: int) -> SharePartition:
        """The queue of a share partition, created if needed. Raises ApiError."""
        key = ShareKey(group_id, topic_id, index)
        queues = self._queues.get(group_id, {})
        queue = queues.get(key)
        if queue is None or not queue.is_current or (queue.is_lost and not self._is_refused(queue)):
            queues.pop(key, None)
            queue = self._make(key, {} if queue is None else queue.waiters)
            if queue.error is None:
                self._queues.setdefault(group_id, {})[key] = queue
        if queue.error is not None:
            raise queue.error
        return queue

    def _is_refused(self, queue: SharePartition) -> bool:
        """Whether it is too early to retry a queue that could not be loaded."""
        return queue.error is not None and self.clock.monotonic_ms() < queue.lost_ms + REFUSED_MS

    def _make(self, key: ShareKey, waiters: dict[Waiter, None]) -> SharePartition:
        partitions = self._partitions
        name = partitions.name_of(key.topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {key.topic_id}")
        partition = partitions.require_leader(name, key.partition)
        if partition.offline is not None:
            raise partition.unavailable()
        options = self.options_of(key.group_id)
        self._dead_letters.prepare(options)
        return SharePartition(
            key,
            partition,
            self.persister,
            options,
            self.clock.now_ms(),
            waiters=waiters,
            set_timer=self._set_lock_timer,
            on_dead_letters=self._dead_letters.write,
            on_lost=self._drop,
        )

    def roles_changed(self, changed: Iterable[Partition]) -> None:
        """Partitions have become leaders or followers: drop queues of earlier terms, and resume waiting fetches."""
        if not self._queues:
            return
        places = {(partition.topic_id, partition.index) for partition in changed}
        for queues in list(self._queues.values()):
            for queue in list(queues.values()):
                if (queue.key.topic_id, queue.key.partition) in places and not queue.is_current:
                    self._drop(queue)

    def run(self, queue: SharePartition, act: Callable[[], T]) -> T:
        """Call `act`, which uses a queue. Raises ApiError. After a bug, the queue is loaded again from its stored state."""
        try:
            return act()
        except ApiError:
            raise
        except Exception as error:
            self._failed(queue)
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the share partition met a bug and is loaded again"
            ) from error

    def _failed(self, queue: SharePartition) -> None:
        """Called in an exception handler."""
        log.exception(
            "a share partition met a bug; it is loaded again, the others go on",
            extra={
                "group": queue.key.group_id,
                "topic": queue.partition.topic,
                "partition": queue.key.partition,
            },
        )
        self._drop(queue)

    def _drop(self, queue: SharePartition) -> None:
        """Drop a queue from memory; the next fetch starts from the stored state. Fetches that wait look again soon, when
        the caller has done what it drops the queue for."""
        queue.is_lost, queue.lost_ms = True, self.clock.monotonic_ms()
        queues = self._queues.get(queue.key.group_id, {})
        if queues.get(queue.key) is queue:
            if queue.waiters:
                self._loop.call_soon(queue.wake)
            else:
                del queues[queue.key]

    def forget(self, group_id: str, topic_id: UUID, indexes: Iterable[int]) -> None:
        """Drop queues whose stored state is about to be changed directly."""
        queues = self._queues.get(group_id, {})
        for index in indexes:
            queue = queues.get(ShareKey(group_id, topic_id, index))
            if queue is not None:
                self._drop(queue)
        if not queues:
            self._queues.pop(group_id, None)

    def options_of(self, group_id: str) -> ShareOptions:
        """A group's options: its own, and the defaults for the rest."""
        options = self._options.get(group_id)
        if options is None:
            texts = self._controller.image.config("groups", group_id)
            options = self._options[group_id] = share_options(self._config, texts)
        return options

    def on_configs_changed(self, kind: str, entity: str) -> None:
        """Options of groups apply from the next request on; options of brokers are their defaults."""
        if kind not in ("groups", "brokers"):
            return
        changed = [entity] if kind == "groups" else list(self._options)
        for group_id in changed:
            self._options.pop(group_id, None)
            for queue in list(
                self._queues.get(group_id, {}).values()
            ):  # fetches that it wakes may open others
                queue.configure(self.options_of(group_id))
                self._dead_letters.prepare(queue.options)

    def _fire(self, key: Hashable) -> None:
        assert isinstance(key, ShareKey)
        queue = self._queues.get(key.group_id, {}).get(key)
        if queue is not None and not queue.is_lost:
            try:
                queue.on_timer(self.lock_now_ms())
            except Exception:
                self._failed(queue)

    def lock_now_ms(self) -> int:
        """The clock for locks: monotonic, since locks are never stored."""
        return int(self.clock.monotonic_ms())

    def _set_lock_timer(self, key: ShareKey, lock_end_ms: int) -> None:
        self._timers.set_after(key, lock_end_ms - self.clock.monotonic_ms())

    def poll_timers(self) -> None:
        """Fire the timers that are due; for tests that move the clock."""
        self._timers.poll()

    # --- sessions --------------------------------------------------------------------------------------

    def end_session(self, session: ShareSession) -> None:
        """Release what the member holds; when it was the group's last session, drop its idle queues."""
        group_id = session.key.group_id
        for queue in list(self._queues.get(group_id, {}).values()):
            if queue.is_lost:
                continue
            try:
                self.run(queue, partial(queue.release_member, session.key.member_id))
            except ApiError as error:  # the locks run out by themselves
                log.warning("a member's locks are kept for now", extra={"reason": error.message})
        queues = self._queues.get(group_id, {})
        if not self.sessions.has_group(group_id) and all(queue.is_idle for queue in queues.values()):
            self._queues.pop(group_id, None)
            self._options.pop(group_id, None)

    def on_closed(self, connection: Connection) -> None:
        """A connection has closed: end the sessions that were opened on it."""
        if len(self.sessions):
            for session in self.sessions.close_owned(connection):
                self.end_session(session)

    # --- what group cores ask for ----------------------------------------------------------------------

    def carry_out(self, effect: object) -> None:
        """Carry out an effect of a group's decision (cores.group.share.events), after its entries were appended."""
        if isinstance(effect, DeleteShareState):
            self.forget(effect.group_id, effect.topic_id, effect.partitions)
            for index in effect.partitions:
                self._delete(ShareKey(effect.group_id, effect.topic_id, index))
        elif isinstance(effect, InitializeShareState):
            task = asyncio.ensure_future(self._initialize(effect))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _delete(self, key: ShareKey) -> None:
        when_done(self.persister.delete(key), partial(_note_deletion, key))

    async def _initialize(self, effect: InitializeShareState) -> None:
        try:
            await self.states.prepare()
            keys = [ShareKey(effect.group_id, effect.topic_id, index) for index in effect.partitions]
            await asyncio.gather(*(self.begin_state(key, effect.state_epoch) for key in keys))
            self.forget(effect.group_id, effect.topic_id, effect.partitions)
            topics = {effect.topic_id: effect.partitions}
            await self._groups.ask(
                lambda token, now_ms: ShareInitialized(token, now_ms, effect.group_id, topics),
                effect.group_id,
            )
        except ApiError as error:  # a heartbeat retries after group.share.initialize.retry.interval.ms
            log.error("a share group cannot begin", extra={"group": effect.group_id, "reason": error.message})

    async def begin_state(self, key: ShareKey, state_epoch: int, start_offset: int = NO_START_OFFSET) -> None:
        """Initialize a state for this broker's groups. Raises ApiError.

        If an earlier group of the same name left a state with a higher epoch, that state is deleted first.
        """
        reply = await self.persister.initialize(key, state_epoch, start_offset)
        if reply.error is ErrorCode.FENCED_STATE_EPOCH and self._groups.keeps(key.group_id):
            require(await self.persister.delete(key))
            reply = await self.persister.initialize(key, state_epoch, start_offset)
        require(reply)


def _note_deletion(key: ShareKey, reply: StateReply) -> None:
    if reply.error is not ErrorCode.NONE:
        log.error("a share group's state was not deleted", extra={"key": key, "reason": reply.message})
