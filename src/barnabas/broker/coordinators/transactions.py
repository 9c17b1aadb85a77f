"""The transaction coordinator: one core for each partition of `__transaction_state` that this broker leads.

The runtime drives the cores; this module holds what is specific to transactions: producer ids, markers, and the check
of every transactional batch before it is appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster.internal_topics import TRANSACTION_TOPIC
from barnabas.broker.coordinators.doubt import TO_BE_TRIED_AGAIN
from barnabas.broker.coordinators.markers import MarkerWriter
from barnabas.broker.coordinators.runtime import CoordinatorRuntime
from barnabas.broker.coordinators.seats import CoordinatorKind
from barnabas.broker.net.peers import PeerLost
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
from barnabas.cores.transactions.records import tombstone_of
from barnabas.cores.transactions.state import ENDING, TV_2, TopicPartition
from barnabas.records.compression import Codec
from barnabas.records.partitioner import partition_for_name
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.cluster.producer_ids import ProducerIds
    from barnabas.broker.coordinators.groups import GroupCoordinator
    from barnabas.broker.net.peers import Peers
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.broker.partitions.replica import Replica
    from barnabas.config.loader import BrokerConfig
    from barnabas.records.batch import BatchHeader
    from barnabas.runtime.clock import Clock

HINTS_MAX: Final = 10_000
ADD_VERSION: Final = 5
ADD_TIMEOUT_S: Final = 10.0


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
        peers: Peers | None = None,
    ) -> None:
        """peers: reaches coordinators and partitions on other brokers; None if there are no other brokers."""
        self._peers = peers
        self._controller = controller
        self.verified: dict[tuple[int, str, int], int] = {}
        """(producer id, topic, partition) -> epoch, for first batches that a coordinator on another broker has permitted, in
        the order of the permissions."""
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._producer_ids = producer_ids
        self._names: dict[int, str] = {}
        """Producer id -> the transactional id that last used it, to be tried first."""
        self._orphans: set[WriteMarkers] = set()
        """Undelivered ends of transactions whose coordinator's topic was deleted."""
        self._verifies = True
        self.configure()
        self.markers = MarkerWriter(loop, clock, partitions, groups, lambda: controller.image)
        self.markers.peers = peers
        self.markers.on_marker = self.on_marker
        self.markers.on_written = self._on_written
        self.markers.is_wanted = self._is_ending
        retry_ms = config.get(broker_share.TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS)
        kind = CoordinatorKind(
            "transaction",
            TRANSACTION_TOPIC,
            lambda index: TransactionCore(retry_ms),
            Codec.NONE,
            config.get(broker_share.TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE),
            proof=tombstone_of(""),
            on_effect=self._write_markers,
        )
        self.runtime = CoordinatorRuntime(
            kind, loop, clock, partitions, controller.topics.ensure_internal, lambda: controller.is_certain
        )

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
        """When the topic of the coordinator is deleted, all transactional ids end. Their open transactions are ended first:
        otherwise read_committed consumers would wait for them forever."""
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
        """Answer all pending requests."""
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

    def coordinator_elsewhere(self, transactional_id: str) -> int | None:
        """The other broker that holds a transactional id; None if this broker does, or none."""
        topic = self._controller.image.topics.get(TRANSACTION_TOPIC)
        if self._peers is None or topic is None or not topic.partitions:
            return None
        index = partition_for_name(transactional_id, len(topic.partitions))
        served = self._partitions.get(TRANSACTION_TOPIC, index)
        leader = topic.partitions[index].leader
        return None if leader < 0 or (served is not None and served.is_leader) else leader

    def add_partitions_anywhere(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> asyncio.Future[TxnReply]:
        """As `add_partitions`, wherever the transaction's coordinator is (implicit adding, KIP-890)."""
        coordinator = self.coordinator_elsewhere(transactional_id)
        if coordinator is None:
            return self.add_partitions(transactional_id, producer, partitions, TV_2)
        return asyncio.ensure_future(
            self._ask_elsewhere(coordinator, transactional_id, producer, partitions, verify_only=False)
        )

    async def verify_elsewhere(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> TxnReply:
        """Whether partitions were added to an ongoing transaction whose coordinator is another broker (KIP-890)."""
        if self.is_checked_here(transactional_id):
            return TxnReply()
        coordinator = self.coordinator_elsewhere(transactional_id)
        if coordinator is None:
            return TxnReply(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{transactional_id!r} has no coordinator just now"
            )
        return await self._ask_elsewhere(
            coordinator, transactional_id, producer, partitions, verify_only=True
        )

    def is_checked_here(self, transactional_id: str) -> bool:
        """Whether no other broker has to be asked before records of a transaction are appended, because this broker is its
        coordinator, so that `check` knows everything, or because nothing is verified."""
        return not self._verifies or self.runtime.core_of(transactional_id) is not None

    # --- what a broker that may have been replaced must not say (see doubt.py) ----------------------------

    def _final(self, code: ErrorCode, message: str) -> ApiError:
        """The error for refused records; one after which clients try again if this broker cannot be sure."""
        if self._controller.is_certain:
            return ApiError(code, message)
        return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{message}, or another broker knows better by now")

    def check_for(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions were added to the ongoing transaction of a transactional id whose coordinator is this broker.
        Raises ApiError if none was."""
        doubt = None
        try:
            errors = self.core_of(transactional_id).check_added(transactional_id, producer, partitions)
        except ApiError as error:
            if error.code in TO_BE_TRIED_AGAIN or self._controller.is_certain:
                raise
            doubt = error
        else:
            if self._controller.is_certain or not any(errors.values()):
                return errors
        raise ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "another broker may be the coordinator by now"
        ) from doubt

    async def _ask_elsewhere(
        self,
        coordinator: int,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        *,
        verify_only: bool,
    ) -> TxnReply:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, index in sorted(partitions):
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name, partitions=[])).partitions.append(
                index
            )
        asked = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=verify_only,
            topics=list(topics.values()),
        )
        try:
            assert self._peers is not None
            answer = await self._peers.call(
                coordinator, AddPartitionsToTxnRequest(transactions=[asked]), ADD_VERSION, ADD_TIMEOUT_S
            )
        except PeerLost as error:
            return TxnReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        for transaction in answer.results_by_transaction:
            for topic in transaction.topic_results:
                for row in topic.results_by_partition:
                    if row.partition_error_code:
                        code = ErrorCode(row.partition_error_code)
                        return TxnReply(code, f"the coordinator answers {code.name}")
        if not answer.error_code:
            for name, index in partitions:
                if len(self.verified) >= HINTS_MAX:
                    oldest = next(iter(self.verified))  # nobody waits for it any more
                    del self.verified[oldest]
                key = (producer.producer_id, name, index)
                self.verified.pop(key, None)
                self.verified[key] = producer.producer_epoch
        return TxnReply(ErrorCode(answer.error_code))

    def _take_permission(self, partition: Replica, producer: Producer) -> bool:
        """Whether the producer may append: its transaction is open in the partition, or the coordinator has allowed to open
        it. That permission is used up by this call: it is valid for one batch, and until a marker ends the producer's
        transaction in the partition.
        """
        known = partition.log.core.producers.get(producer.producer_id)
        if known is not None and known.txn_first_offset >= 0 and known.epoch == producer.producer_epoch:
            return True
        key = (producer.producer_id, partition.topic, partition.index)
        if self.verified.get(key) != producer.producer_epoch:
            return False
        del self.verified[key]
        return True

    def on_marker(self, topic: str, index: int, producer_id: int) -> None:
        self.verified.pop((producer_id, topic, index), None)

    async def end(
        self, transactional_id: str, producer: Producer, commit: bool, version: int, connection: int
    ) -> TxnReply:
        """EndTxn. The reply comes once the decision is stored; the markers may follow later."""

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
        """The core that holds a transactional id. Raises ApiError if it is not on this broker, or not loaded yet."""
        if not self.runtime.partition_count:
            raise ApiError(ErrorCode.NOT_COORDINATOR, "this broker keeps no transactional ids")
        core = self.runtime.core_of(transactional_id)
        if core is None:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of {transactional_id!r} is being loaded"
            )
        return core

    # --- the question before each transactional batch --------------------------------------------------

    def check(self, partition: Replica, header: BatchHeader) -> bool:
        """Raises ApiError unless the producer has an ongoing transaction that the partition was added to.

        True when the producer's first batch in a partition must have sequence 0, because each transaction has a new epoch.
        """
        if not self._verifies:
            return False
        known = self._owner_of(header.producer_id)
        if known is None:
            if self.runtime.is_loading:
                # Older clients retry after this error, but not after the coordinator's own errors.
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "the state of transactions is being loaded")
            if self.runtime.is_whole:
                raise self._final(
                    ErrorCode.INVALID_TXN_STATE, f"no transactional id has producer id {header.producer_id}"
                )
            # The transaction's coordinator is another broker.
            if not self._take_permission(partition, Producer(header.producer_id, header.producer_epoch)):
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"{partition} was not added to a transaction of producer {header.producer_id} that is under way",
                )
            return False
        if header.producer_epoch != known.epoch:
            raise self._final(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {header.producer_epoch} of producer {header.producer_id} is not {known.epoch}",
            )
        if known.state in ENDING:
            raise ApiError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"the last transaction of {known.transactional_id!r} is still being ended: try again",
            )
        if known.state is not TxnState.ONGOING or (partition.topic, partition.index) not in known.partitions:
            raise self._final(
                ErrorCode.TRANSACTION_ABORTABLE,
                f"{partition} was not added to a transaction of {known.transactional_id!r} that is under way",
            )
        return known.client_version >= TV_2

    def check_added(self, transactional_id: str, producer: Producer, where: TopicPartition) -> None:
        """Raises ApiError TRANSACTION_ABORTABLE and others unless a partition was added to the ongoing transaction."""
        if not self._verifies:
            return
        if self.coordinator_elsewhere(transactional_id) is not None:
            partition = self._partitions.get(*where)
            if partition is not None and not self._take_permission(partition, producer):
                raise ApiError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"the transaction of {transactional_id!r} has ended meanwhile, or has another coordinator",
                )
        else:
            error = self.check_for(transactional_id, producer, (where,))[where]
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
        """Whether the transaction still waits for its markers, as far as this broker knows."""
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
        """Complete the transaction; False if that could not be stored."""
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
        """Remove the transactional ids that have not been used for transactional.id.expiration.ms."""
        expiration_ms = self._config.get(broker_share.TRANSACTIONAL_ID_EXPIRATION_MS)

        def pieces(core: TransactionCore, now_ms: int) -> Iterator[ExpireTransactionalId | None]:
            for name in core.names():
                expired = core.is_expired(name, now_ms, expiration_ms)
                yield ExpireTransactionalId(None, now_ms, name) if expired else None

        await self.runtime.sweep(pieces)
