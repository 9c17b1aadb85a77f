"""The transaction coordinator: one core for each partition of `__transaction_state` that this broker leads.

The runtime drives the cores; this is what is particular to transactions: producer ids, markers, and the question
that every transactional batch asks before it is appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster.internal_topics import TRANSACTION_TOPIC
from barnabas.broker.coordinators.markers import MarkerWriter
from barnabas.broker.coordinators.runtime import CoordinatorRuntime, Kind
from barnabas.config import broker_share
from barnabas.cores.decision import Producer
from barnabas.cores.transactions import (
    AddPartitions,
    EndTxn,
    ExpireTransactionalId,
    InitProducer,
    InitReply,
    MarkersWritten,
    Transaction,
    TransactionCore,
    TxnReply,
    TxnState,
    WriteMarkers,
)
from barnabas.cores.transactions.state import ENDING, TV_2, TopicPartition
from barnabas.records.compression import Codec
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.cluster.producer_ids import ProducerIds
    from barnabas.broker.coordinators.groups import GroupCoordinator
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.records.batch import BatchHeader
    from barnabas.runtime.clock import Clock

HINTS_MAX: Final = 10_000


class Transactions:
    """All transactional ids of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        controller: Controller,
        partitions: Partitions,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
    ) -> None:
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._producer_ids = producer_ids
        self._names: dict[int, str] = {}
        """Producer id -> the transactional id that had it when it last wrote: where to look first."""
        self._orphans: set[WriteMarkers] = set()
        """Ends of transactions whose coordinator's topic was deleted."""
        self._verifies = True
        self.configure()
        self.markers = MarkerWriter(loop, clock, partitions, groups, lambda: controller.image)
        self.markers.on_written = self._on_written
        self.markers.is_wanted = self._is_ending
        retry_ms = config.get(broker_share.TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS)
        kind = Kind(
            "transaction",
            TRANSACTION_TOPIC,
            lambda index: TransactionCore(retry_ms),
            Codec.NONE,
            config.get(broker_share.TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE),
            on_effect=self._write_markers,
        )
        self.runtime = CoordinatorRuntime(kind, loop, clock, partitions, controller.ensure_internal_topic)

    def configure(self) -> None:
        """Options have changed."""
        self._verifies = self._config.get(broker_share.TRANSACTION_PARTITION_VERIFICATION_ENABLE)

    async def prepare(self) -> None:
        """Create and load the topic, once. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        await self.runtime.prepare()

    async def load_existing(self) -> None:
        """At start: load what an earlier run left, and end the transactions that it had decided."""
        await self.runtime.load_existing()

    def on_topics_deleted(self, topics: frozenset[str]) -> None:
        """All transactional ids end with the topic that keeps them. What they had under way is ended first, or readers of
        committed records would wait for it for ever."""
        if TRANSACTION_TOPIC not in topics:
            return
        now_ms = self._clock.now_ms()
        left = [
            (effect, self.runtime.leader_epoch_of(index))
            for index, core in self.runtime.cores()
            for effect in core.last_markers(now_ms)
        ]
        self.runtime.topic_deleted()
        self._names.clear()
        for effect, coordinator_epoch in left:
            self._orphans.add(effect)
            self.markers.write_soon(effect, coordinator_epoch)

    def poll_timers(self) -> None:
        """Fire what is due now; for tests that move the clock."""
        self.runtime.poll_timers()

    def close(self) -> None:
        """Answer whoever still waits."""
        self.markers.close()
        self.runtime.close()

    # --- asking ----------------------------------------------------------------------------------------

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> InitReply:
        """InitProducerId of a transactional id."""
        if not 0 < timeout_ms <= self._config.get(broker_share.TRANSACTION_MAX_TIMEOUT_MS):
            return InitReply(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        await self.runtime.prepare()

        def ask(fresh_id: int) -> asyncio.Future[InitReply]:
            return self.runtime.request(
                transactional_id,
                lambda token, now_ms: InitProducer(
                    token, now_ms, transactional_id, timeout_ms, expected, fresh_id
                ),
            )

        reply = await ask(-1)
        return await ask(await self._producer_ids.next_id()) if reply.needs_id else reply

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        version: int,
        connection: int = -1,
    ) -> asyncio.Future[TxnReply]:
        """The reply to AddPartitionsToTxn; on a single node it is there when this returns."""
        return self.runtime.request(
            transactional_id,
            lambda token, now_ms: AddPartitions(
                token, now_ms, transactional_id, producer, partitions, version, connection
            ),
        )

    async def end(
        self, transactional_id: str, producer: Producer, commit: bool, version: int, connection: int
    ) -> TxnReply:
        """EndTxn. The reply comes when the decision is stored; the markers may follow later."""

        def ask(fresh_id: int) -> asyncio.Future[TxnReply]:
            return self.runtime.request(
                transactional_id,
                lambda token, now_ms: EndTxn(
                    token, now_ms, transactional_id, producer, commit, version, fresh_id, connection
                ),
            )

        reply = await ask(-1)
        return await ask(await self._producer_ids.next_id()) if reply.needs_id else reply

    def core_of(self, transactional_id: str) -> TransactionCore:
        """The core that keeps a transactional id. Raises ApiError while it is not here."""
        if not self.runtime.partition_count:
            raise ApiError(ErrorCode.NOT_COORDINATOR, "this broker keeps no transactional ids")
        core = self.runtime.core_of(transactional_id)
        if core is None:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of {transactional_id!r} is being loaded"
            )
        return core

    # --- the question before each transactional batch --------------------------------------------------

    def check(self, partition: Partition, header: BatchHeader) -> bool:
        """Raises ApiError unless the producer has a transaction under way that the partition was added to.

        True when its first batch in a partition must have sequence 0, since its epoch is new with each transaction.
        """
        if not self._verifies:
            return False
        known = self._owner_of(header.producer_id)
        if known is None:
            if self.runtime.is_loading:
                # What older clients try again, whatever they make of the coordinator's own errors.
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "the state of transactions is being loaded")
            if not self.runtime.is_whole:
                return False  # the transaction's coordinator is another broker
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"no transactional id has producer id {header.producer_id}"
            )
        if header.producer_epoch != known.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {header.producer_epoch} of producer {header.producer_id} is not {known.epoch}",
            )
        if known.state is not TxnState.ONGOING or (partition.topic, partition.index) not in known.partitions:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{partition} was not added to a transaction of {known.transactional_id!r} that is under way",
            )
        return known.client_version >= TV_2

    def check_added(self, transactional_id: str, producer: Producer, where: TopicPartition) -> None:
        """Raises ApiError TRANSACTION_ABORTABLE and others unless a partition was added to the transaction under way."""
        if self._verifies:
            error = self.core_of(transactional_id).check_added(transactional_id, producer, (where,))[where]
            if error:
                raise ApiError(
                    error, f"{where[0]}-{where[1]} was not added to the transaction of {transactional_id!r}"
                )

    def _owner_of(self, producer_id: int) -> Transaction | None:
        name = self._names.get(producer_id)
        if name is not None and self.runtime.partition_count:
            core = self.runtime.core_of(name)
            known = None if core is None else core.owner_of(producer_id)
            if known is not None:
                return known
        for _, core in self.runtime.cores():
            known = core.owner_of(producer_id)
            if known is not None:
                if len(self._names) >= HINTS_MAX:
                    self._names.clear()
                self._names[producer_id] = known.transactional_id
                return known
        return None

    # --- markers ---------------------------------------------------------------------------------------

    def _write_markers(self, effect: WriteMarkers) -> None:
        index = self.runtime.index_of(effect.transactional_id) if self.runtime.partition_count else -1
        partition = self._partitions.get(TRANSACTION_TOPIC, index)
        self.markers.write_soon(effect, 0 if partition is None else max(partition.leader_epoch, 0))

    def _is_ending(self, effect: WriteMarkers) -> bool:
        """Whether the transaction still waits for its markers, as far as can be known."""
        if effect in self._orphans:
            return True
        if not self.runtime.partition_count:
            return False
        core = self.runtime.core_of(effect.transactional_id)
        known = None if core is None else core.find(effect.transactional_id)
        return (
            known is not None
            and known.state in ENDING
            and Producer(known.producer_id, known.epoch) == effect.producer
        )

    def _on_written(self, effect: WriteMarkers) -> bool:
        """The transaction is complete; False while that could not be written."""
        if effect in self._orphans:
            self._orphans.discard(effect)
            return True
        if not self._is_ending(effect):
            return True
        done = self.runtime.request(
            effect.transactional_id,
            lambda token, now_ms: MarkersWritten(token, now_ms, effect.transactional_id, effect.producer),
        )
        return not (done.done() and done.result().error)

    # --- time ------------------------------------------------------------------------------------------

    async def expire_ids(self) -> None:
        """Forget the transactional ids that nobody has used for transactional.id.expiration.ms."""
        expiration_ms = self._config.get(broker_share.TRANSACTIONAL_ID_EXPIRATION_MS)

        def pieces(core: TransactionCore, now_ms: int) -> Iterator[ExpireTransactionalId | None]:
            for name in core.names():
                expired = core.is_expired(name, now_ms, expiration_ms)
                yield ExpireTransactionalId(None, now_ms, name) if expired else None

        await self.runtime.sweep(pieces)
