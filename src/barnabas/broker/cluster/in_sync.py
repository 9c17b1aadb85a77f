"""Which followers are in sync: the leaders of this broker determine it and write it to the partitions' states.

A leader changes the in-sync set of its partition itself, as leaders did before AlterPartition. The version of the state
makes the change fail if anybody else has changed the partition meanwhile. When a change got no answer, its outcome is
unknown: the new set stays wanted, and therefore counts for the high watermark, until the tree has answered.

A change names the registrations of the brokers that it means, and the tree refuses it if one of them has registered anew
(KIP-903): such a broker may have come back with an empty disk. Before each attempt, those who would join are looked at
again, since much may have happened while the tree did not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config import broker_replication
from barnabas.cores.elections import AlterIsr, decide_alter_isr
from barnabas.cores.znode_ops import Check, Op
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.broker.partitions.replica import Replica
    from barnabas.config.loader import BrokerConfig

log = logging.getLogger("barnabas.replication")

RETRY_S: Final = 0.5
PARTITIONS_PER_TURN: Final = 1_000
HELD_UP_MS: Final = 5_000
"""If writes wait for a follower that is behind for so long, the log says so."""
WISHES_AT_ONCE: Final = 500


class _Wish(NamedTuple):
    """The in-sync set that a leader wants for its partition, and the epochs that it knows."""

    partition: Replica
    in_sync: tuple[int, ...]
    event: AlterIsr
    grows: bool


class InSync:
    """See the module. `change_soon` requests a change of a partition's in-sync set; `start`, `close`."""

    def __init__(self, config: BrokerConfig, controller: Controller, partitions: Partitions) -> None:
        self._config = config
        self._controller = controller
        self._partitions = partitions
        self._waiting: dict[Replica, None] = {}
        self.shrinks = self.expands = 0
        """How many in-sync sets this broker has made smaller and larger."""
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start watching the followers."""
        self._tasks = [asyncio.ensure_future(self._change()), asyncio.ensure_future(self._look())]

    async def close(self) -> None:
        """Stop; no more changes are made."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def change_soon(self, partition: Replica) -> None:
        """Request that the partition's `wanted_in_sync` be written."""
        self._waiting[partition] = None
        self._woken.set()

    async def _look(self) -> None:
        """Periodically look for followers that have fallen behind."""
        while True:
            lag_ms = self._config.get(broker_replication.REPLICA_LAG_TIME_MAX_MS)
            await asyncio.sleep(max(lag_ms / 2, 10) / 1000)
            await self.look_at_followers(lag_ms)

    async def look_at_followers(self, lag_ms: float) -> None:
        """Remove the followers that have been behind for longer than `lag_ms`, and log for which ones writes wait."""
        held_up: Counter[int] = Counter()
        first: Replica | None = None
        partitions = 0
        for count, partition in enumerate(self._partitions.led(), 1):
            followers = partition.held_up_by(HELD_UP_MS)
            if followers:
                held_up.update(followers)
                first = first or partition
                partitions += 1
            partition.shrink_in_sync(lag_ms)
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        if held_up:
            log.warning(
                "writes with acks=all wait for followers that are behind",
                extra={"followers": dict(held_up), "partitions": partitions, "first": str(first)},
            )

    async def _change(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            waiting, self._waiting = self._waiting, {}
            try:
                partitions = list(waiting)
                for begin in range(0, len(partitions), WISHES_AT_ONCE):
                    await self._change_all(partitions[begin : begin + WISHES_AT_ONCE])
            except Exception:
                log.exception("a change of in-sync replicas met a bug; it is tried again")
                self._again(waiting)

    def _again(self, partitions: dict[Replica, None]) -> None:
        for partition in partitions:
            if partition.wanted_in_sync:
                self._waiting[partition] = None
        asyncio.get_running_loop().call_later(RETRY_S, self._woken.set)

    def _wish(self, partition: Replica) -> _Wish | None:
        """What to request for a partition now; None for nothing."""
        if not partition.wanted_in_sync or not partition.is_leader:
            return None
        known = self._controller.image.partition(partition.topic, partition.index)
        in_sync = partition.wanted_in_sync
        if known is None or known.partition_epoch == partition.image.partition_epoch:
            in_sync = partition.in_sync_to_request()
        # Otherwise the state has just been changed, perhaps by the attempt before this one: `take_role` will settle that.
        if not in_sync:
            return None
        event = AlterIsr(
            self._controller.node_id,
            partition.topic_id,
            partition.index,
            partition.leader_epoch,
            partition.image.partition_epoch,
            in_sync,
            epochs=partition.epochs_of(in_sync),
        )
        return _Wish(partition, in_sync, event, len(in_sync) > len(partition.image.isr))

    async def _change_all(self, partitions: Sequence[Replica]) -> None:
        wishes: dict[Replica, _Wish] = {}
        refused: dict[Replica, ApiError] = {}

        def decide() -> list[Op]:
            wishes.clear()
            refused.clear()
            ops: dict[Op, None] = {}
            for partition in partitions:
                wish = self._wish(partition)
                if wish is None:
                    continue
                wishes[partition] = wish
                try:
                    ops.update(dict.fromkeys(decide_alter_isr(self._controller.image, wish.event)))
                except ApiError as error:
                    refused[partition] = error
            return sorted(
                ops, key=lambda op: not isinstance(op, Check)
            )  # checks first: they guard all changes

        try:
            await self._controller.run(lambda: self._controller.change_states(decide))
        except ApiError as error:
            if error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR):
                log.warning(
                    "in-sync replicas could not be changed; it is tried again",
                    extra={"partitions": len(partitions), "reason": error.message},
                )
                self._again(dict.fromkeys(partitions))
                return
            for partition in wishes:
                refused.setdefault(partition, error)
        for partition, wish in wishes.items():
            if partition not in refused:
                self.expands += wish.grows
                self.shrinks += not wish.grows
                log.info(
                    "in-sync replicas changed",
                    extra={"partition": str(partition), "in_sync": list(wish.in_sync)},
                )
            partition.in_sync_settled(wish.in_sync)
