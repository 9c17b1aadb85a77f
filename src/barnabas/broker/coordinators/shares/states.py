"""The share coordinator of this broker: `__share_group_state`, one core for each of its partitions.

Whoever changes the state of a share partition waits for its record: a change that cannot be appended has not happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster.internal_topics import SHARE_STATE_TOPIC
from barnabas.broker.coordinators.runtime import CoordinatorRuntime, Kind, MakeEvent
from barnabas.config import broker_groups, broker_share
from barnabas.cores.group.share.partition import DONE, StateBatch
from barnabas.cores.group.share.state import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    ShareState,
    ShareStateCore,
    SnapshotState,
    StateReply,
    WriteState,
    coordinator_name,
    record_key,
)
from barnabas.records.compression import Codec
from barnabas.records.units import Offset
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.shares")

RECORDS_PER_KEY_KEPT: Final = 4
"""How many records a share partition may have on average before idle ones are written anew to free the rest."""


class ShareStates:
    """All states that this broker keeps.

    Methods that change return the answer as a future, which on a single node is done, and raise ApiError with nothing
    changed where the change is refused at once.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        controller: Controller,
        partitions: Partitions,
    ) -> None:
        self._partitions = partitions
        self._updates = config.get(broker_share.SHARE_SNAPSHOT_UPDATE_RECORDS)
        kind = Kind(
            "share",
            SHARE_STATE_TOPIC,
            lambda index: ShareStateCore(self._updates),
            Codec.NONE,
            config.get(broker_groups.OFFSETS_LOAD_BUFFER_SIZE),
            on_records=ShareStateCore.note_offsets,
        )
        self.runtime = CoordinatorRuntime(kind, loop, clock, partitions, controller.ensure_internal_topic)

    async def prepare(self) -> None:
        """Create and load the topic, once. Raises ApiError."""
        await self.runtime.prepare()

    async def load_existing(self) -> None:
        """At start: load what an earlier run left."""
        await self.runtime.load_existing()

    def close(self) -> None:
        """Answer whoever still waits."""
        self.runtime.close()

    # --- reading ---------------------------------------------------------------------------------------

    def find(self, key: ShareKey) -> ShareState | None:
        """The state as it is. Raises ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        if not self.runtime.partition_count:
            return None
        core = self.runtime.core_of(coordinator_name(key))
        if core is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of {key} is being loaded")
        return core.summary(key)

    def keys(self) -> list[ShareKey]:
        """Of all states."""
        return [key for _, core in self.runtime.cores() for key in core.states]

    # --- changing --------------------------------------------------------------------------------------

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int = -1
    ) -> asyncio.Future[StateReply]:
        """Begin a state anew. What an earlier group of the same name left with a higher epoch goes first."""
        old = self.find(key)
        if old is not None and state_epoch < old.state_epoch:
            self.delete(key)
        return self._request(
            key, lambda token, now_ms: InitializeState(token, now_ms, key, state_epoch, start_offset)
        )

    def read(self, key: ShareKey, leader_epoch: int) -> asyncio.Future[StateReply]:
        """The state for a leader of the partition; from now on only that one may write."""
        return self._request(key, lambda token, now_ms: ReadState(token, now_ms, key, leader_epoch))

    def write(
        self,
        key: ShareKey,
        state: ShareState,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int,
    ) -> asyncio.Future[StateReply]:
        """`state` as it was read: its epochs say on whose behalf."""
        return self._request(
            key,
            lambda token, now_ms: WriteState(
                token,
                now_ms,
                key,
                state.state_epoch,
                state.leader_epoch,
                start_offset,
                batches,
                delivery_complete_count,
            ),
        )

    def delete(self, key: ShareKey) -> None:
        """Forget a state, if there is one."""
        if self.runtime.partition_count:
            self._request(key, lambda token, now_ms: DeleteState(token, now_ms, key))

    def clear(self) -> None:
        """No group knows of any state: drop all of them."""
        self.runtime.sweep(lambda core, now_ms: (DeleteState(None, now_ms, key) for key in list(core.states)))

    def cut(self, key: ShareKey, log_end_offset: int) -> None:
        """Forget what is stored of offsets that the log has lost: the records that come there next are others."""
        state = self.find(key)
        if state is None or max((state.start_offset - 1, *(b.last for b in state.batches))) < log_end_offset:
            return
        kept = [
            b._replace(last=min(b.last, log_end_offset - 1))
            for b in state.batches
            if b.first < log_end_offset
        ]
        start = min(state.start_offset, log_end_offset)
        self.initialize(key, state.state_epoch, start)
        settled = sum(batch.last - batch.first + 1 for batch in kept if batch.state in DONE)
        self.write(key, state, start, kept, settled)

    def _request(self, key: ShareKey, make_event: MakeEvent) -> asyncio.Future[StateReply]:
        future: asyncio.Future[StateReply] = self.runtime.request(coordinator_name(key), make_event)
        if future.done():
            require(future.result())
        return future

    # --- old records -----------------------------------------------------------------------------------

    def prune(self) -> None:
        """Called every share.coordinator.state.topic.prune.interval.ms: give up records that no state needs any more."""
        for index, core in self.runtime.cores():
            partition = self._partitions.get(SHARE_STATE_TOPIC, index)
            if partition is None:
                continue
            offsets = core.snapshot_offsets
            end = partition.log_end_offset
            kept = 2 * self._updates + RECORDS_PER_KEY_KEPT * len(offsets)
            idle = [key for key, offset in offsets.items() if offset < end - kept]
            try:
                for raw_key in idle:
                    self._write_whole(record_key(raw_key))
            except ApiError as error:
                extra = {"partition": index, "reason": error.message}
                log.error("old records of share groups' states are kept for now", extra=extra)
                continue
            partition.log.advance_log_start(Offset(min(offsets.values(), default=end)))

    def _write_whole(self, key: ShareKey) -> None:
        self._request(key, lambda token, now_ms: SnapshotState(token, now_ms, key))


def require(reply: StateReply) -> ShareState | None:
    """The state of an answer. Raises ApiError where it is a refusal."""
    if reply.error is not ErrorCode.NONE:
        raise ApiError(reply.error, reply.message or reply.error.name)
    return reply.state
