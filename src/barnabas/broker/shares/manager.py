"""Share groups at this broker: their queues (partition), sessions, states, and what the group cores ask for.

A queue is made when somebody first fetches from it and dropped when its state is deleted or set anew; the
next fetch then begins with what is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.broker.shares.dead_letters import DeadLetters
from barnabas.broker.shares.options import ShareOptions, share_options
from barnabas.broker.shares.partition import SharePartition
from barnabas.broker.shares.states import ShareStates
from barnabas.config import broker_share
from barnabas.cores.group import DeleteShareState, InitializeShareState, ShareInitialized
from barnabas.cores.group.share_session import ShareSession, ShareSessions
from barnabas.cores.group.share_state import ShareKey
from barnabas.runtime.timers import KeyedTimers
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.connection import Connection
    from barnabas.broker.server import BrokerServer

log = logging.getLogger("barnabas.shares")


class Shares:
    """See the module."""

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker
        self.states = ShareStates(broker)
        self.sessions = ShareSessions(broker.config.get(broker_share.GROUP_SHARE_MAX_SHARE_SESSIONS))
        self._queues: dict[str, dict[ShareKey, SharePartition]] = {}
        self._options: dict[str, ShareOptions] = {}
        self._timers = KeyedTimers(broker.loop, broker.clock, self._fire)
        self._dead_letters = DeadLetters(broker)
        self._tasks: set[asyncio.Task[None]] = set()

    def load_existing(self) -> None:
        """At start, after the groups: load the states; drop what groups have forgotten and logs have lost.

        A crash of the machine may take a log's end and leave what was stored of it. That has to be noticed before
        anybody produces again.
        """
        self.states.load_existing()
        for key in self.states.keys():  # noqa: SIM118  (not a mapping)
            if self._broker.groups.has_forgotten(*key):
                self._delete(key)
            else:
                self._cut(key)

    def _cut(self, key: ShareKey) -> None:
        name = self._broker.partitions.name_of(key.topic_id)
        partition = None if name is None else self._broker.partitions.get(name, key.partition)
        if partition is None:
            return
        try:
            self.states.cut(key, partition.log_end_offset)
        except ApiError as error:
            log.error("a share group's state is not mended", extra={"key": key, "reason": error.message})

    def close(self) -> None:
        self._timers.close()
        for task in self._tasks:
            task.cancel()

    # --- queues ----------------------------------------------------------------------------------------

    def open(self, group_id: str, topic_id: UUID, index: int) -> SharePartition:
        """The queue, made now if need be. Raises ApiError."""
        key = ShareKey(group_id, topic_id, index)
        queue = self._queues.get(group_id, {}).get(key)
        if queue is None or queue.partition.offline is not None:
            queue = self._make(key)
            self._queues.setdefault(group_id, {})[key] = queue
        return queue

    def _make(self, key: ShareKey) -> SharePartition:
        partitions = self._broker.partitions
        name = partitions.name_of(key.topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {key.topic_id}")
        partition = partitions.require(name, key.partition)
        if partition.offline is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"log dir {partition.offline} is offline")
        options = self.options_of(key.group_id)
        self._dead_letters.prepare(options)
        return SharePartition(
            key,
            partition,
            self.states,
            options,
            self._broker.clock.now_ms(),
            set_timer=self._timers.set,
            on_dead_letters=self._dead_letters.write,
        )

    def forget(self, group_id: str, topic_id: UUID, indexes: Iterable[int]) -> None:
        """Drop queues whose state is about to change behind their back."""
        queues = self._queues.get(group_id, {})
        for index in indexes:
            queues.pop(ShareKey(group_id, topic_id, index), None)
        if not queues:
            self._queues.pop(group_id, None)

    def options_of(self, group_id: str) -> ShareOptions:
        options = self._options.get(group_id)
        if options is None:
            texts = self._broker.image.config("groups", group_id)
            options = self._options[group_id] = share_options(self._broker.config, texts)
        return options

    def on_configs_changed(self, kind: str, entity: str) -> None:
        """Options of groups hold from the next request on; those of brokers are their defaults."""
        if kind not in ("groups", "brokers"):
            return
        changed = [entity] if kind == "groups" else list(self._options)
        for group_id in changed:
            self._options.pop(group_id, None)
            for queue in self._queues.get(group_id, {}).values():
                queue.configure(self.options_of(group_id))
                self._dead_letters.prepare(queue.options)

    def _fire(self, key: Hashable) -> None:
        assert isinstance(key, ShareKey)
        queue = self._queues.get(key.group_id, {}).get(key)
        if queue is not None:
            queue.on_timer(self._broker.clock.now_ms())

    def poll_timers(self) -> None:
        """Fire what is due now; for tests that move the clock."""
        self._timers.poll()

    # --- sessions --------------------------------------------------------------------------------------

    def end_session(self, session: ShareSession) -> None:
        """Give what the member holds to others; with the group's last session its idle queues go."""
        group_id = session.key.group_id
        for queue in list(self._queues.get(group_id, {}).values()):
            try:
                queue.release_member(session.key.member_id)
            except ApiError as error:  # the locks run out by themselves
                log.warning("a member's locks are kept for now", extra={"reason": error.message})
        queues = self._queues.get(group_id, {})
        if not self.sessions.has_group(group_id) and all(queue.is_idle for queue in queues.values()):
            self._queues.pop(group_id, None)
            self._options.pop(group_id, None)

    def on_closed(self, connection: Connection) -> None:
        """A connection is gone, and the sessions that it opened with it."""
        if len(self.sessions):
            for session in self.sessions.close_owned(connection):
                self.end_session(session)

    # --- what group cores ask for ----------------------------------------------------------------------

    def carry_out(self, effect: Any) -> None:
        """An effect of a group's decision (cores.group.share_events), after its records were appended."""
        if isinstance(effect, DeleteShareState):
            self.forget(effect.group_id, effect.topic_id, effect.partitions)
            for index in effect.partitions:
                self._delete(ShareKey(effect.group_id, effect.topic_id, index))
        elif isinstance(effect, InitializeShareState):
            task = self._broker.loop.create_task(self._initialize(effect))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _delete(self, key: ShareKey) -> None:
        try:
            self.states.delete(key)
        except ApiError as error:
            log.error("a share group's state stays behind", extra={"key": key, "reason": error.message})

    async def _initialize(self, effect: InitializeShareState) -> None:
        try:
            await self.states.prepare()
            for index in effect.partitions:
                key = ShareKey(effect.group_id, effect.topic_id, index)
                self.states.initialize(key, effect.state_epoch)
            topics = {effect.topic_id: effect.partitions}
            await self._broker.groups.ask(
                lambda token, now_ms: ShareInitialized(token, now_ms, effect.group_id, topics),
                effect.group_id,
            )
        except ApiError as error:  # asked again by a heartbeat after group.share.initialize.retry.interval.ms
            log.error("a share group cannot begin", extra={"group": effect.group_id, "reason": error.message})
