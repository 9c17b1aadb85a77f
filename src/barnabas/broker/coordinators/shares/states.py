"""The share coordinator of this broker: `__share_group_state`, with one core for each of its partitions.

A change of a state is answered once its entry is stored: a change that cannot be appended has not happened.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.cluster.internal_topics import SHARE_STATE_TOPIC
from barnabas.broker.coordinators.runtime import CoordinatorRuntime
from barnabas.broker.coordinators.seats import CoordinatorKind
from barnabas.broker.coordinators.shares.state_requests import StateEvent
from barnabas.config import broker_groups, broker_share
from barnabas.cores.group.share.state import (
    NO_ENTRY,
    DeleteState,
    ShareKey,
    ShareState,
    ShareStateCore,
    SnapshotState,
    StateReply,
    coordinator_name,
    record_key,
)
from barnabas.records.compression import Codec
from barnabas.records.units import Offset
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.shares")

RECORDS_PER_KEY_KEPT: Final = 4
"""Average number of entries per share partition above which idle states are rewritten, so that older ones can be deleted."""


class Due(NamedTuple):
    """Entries before `needed_from` are no longer needed once everything before `end` is committed."""

    core: ShareStateCore
    needed_from: int
    end: int


class ShareStates:
    """All states that this broker holds. Used by its persister and, through requests 83 to 87, by those of other brokers."""

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
        kind = CoordinatorKind(
            "share",
            SHARE_STATE_TOPIC,
            lambda index: ShareStateCore(self._updates),
            Codec.NONE,
            config.get(broker_groups.OFFSETS_LOAD_BUFFER_SIZE),
            proof=NO_ENTRY,
            on_entries=ShareStateCore.note_offsets,
        )
        self._due: dict[int, Due] = {}
        """By partition: deletions found by the last `prune` that have to wait."""
        self.runtime = CoordinatorRuntime(
            kind, loop, clock, partitions, controller.topics.ensure_internal, lambda: controller.is_certain
        )

    async def prepare(self) -> None:
        """Create and load the topic, once. Raises ApiError."""
        await self.runtime.prepare()

    async def load_existing(self) -> None:
        """At start: load what an earlier run left."""
        await self.runtime.load_existing()

    def close(self) -> None:
        """Answer all pending requests."""
        self.runtime.close()

    # --- reading ---------------------------------------------------------------------------------------

    def find(self, key: ShareKey) -> ShareState | None:
        """The current state, if any. Raises ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        if not self.runtime.partition_count:
            return None
        core = self.runtime.core_of(coordinator_name(key))
        if core is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of {key} is being loaded")
        return core.summary(key)

    def keys(self) -> list[ShareKey]:
        """The keys of all states."""
        return [key for _, core in self.runtime.cores() for key in core.states]

    # --- asking ----------------------------------------------------------------------------------------

    def ask(self, event: StateEvent) -> asyncio.Future[StateReply]:
        """The reply to an event, whose token and time are filled in here; refused if another broker holds the state.

        On a single node it is done on return.
        """
        return self.runtime.request(
            coordinator_name(event.key), lambda token, now_ms: replace(event, token=token, now_ms=now_ms)
        )

    def clear(self) -> None:
        """Drop all states, because no group knows of any."""
        self.runtime.sweep(lambda core, now_ms: (DeleteState(None, now_ms, key) for key in list(core.states)))

    # --- old records -----------------------------------------------------------------------------------

    def prune(self) -> None:
        """Called every share.coordinator.state.topic.prune.interval.ms: delete entries that no state needs any more.

        A snapshot replaces older entries only once it is committed: until then the next leader may lack it.
        """
        for index, core in self.runtime.cores():
            partition = self._partitions.get(SHARE_STATE_TOPIC, index)
            if partition is None:
                continue
            self._give_up_due(partition, core)
            offsets = core.snapshot_offsets
            kept = 2 * self._updates + RECORDS_PER_KEY_KEPT * len(offsets)
            idle = [key for key, offset in offsets.items() if offset < partition.log_end_offset - kept]
            try:
                for raw_key in idle:
                    self._write_whole(record_key(raw_key))
            except ApiError as error:
                extra = {"partition": index, "reason": error.message}
                log.error("old records of share groups' states are kept for now", extra=extra)
                continue
            end = partition.log_end_offset
            self._due[index] = Due(core, min(offsets.values(), default=end), end)
            self._give_up_due(partition, core)

    def _give_up_due(self, partition: Partition, core: ShareStateCore) -> None:
        due = self._due.get(partition.index)
        if due is None or (due.core is core and partition.high_watermark < due.end):
            return
        del self._due[partition.index]
        if due.core is core:
            partition.log.advance_log_start(Offset(due.needed_from))

    def _write_whole(self, key: ShareKey) -> None:
        snapshot: asyncio.Future[StateReply] = self.runtime.request(
            coordinator_name(key), lambda token, now_ms: SnapshotState(token, now_ms, key)
        )
        if snapshot.done():
            require(snapshot.result())


def require(reply: StateReply) -> ShareState | None:
    """The state in a reply. Raises ApiError if the reply is a refusal."""
    if reply.error is not ErrorCode.NONE:
        raise ApiError(reply.error, reply.message or reply.error.name)
    return reply.state
