"""Transactions of the blocking client, with the requests from before KIP-890, which all brokers since 0.11 accept.

    transactions = Transactions(client)
    producer = transactions.begin("copy-0", timeout_ms=60_000)
    stream = ProduceStream(client.cluster, joined=Joined(transactions, producer))
    ...
    transactions.add_offset(producer, "copy", ("events", 0), 17, "")
    transactions.end(producer, commit=True)

`begin` requests a producer id each time, so that each transaction has its own epoch: an open transaction with the same
transactional id is aborted first, and late requests are recognized by their epoch. Any process may end a transaction
that another has begun, since only the producer id and the epoch are needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.errors import BrokerError, BrokerUnavailable, ClientError
from barnabas.records.units import Offset, ProducerEpoch
from barnabas.wire.errors import RETRIABLE, ErrorCode
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.wire.schema import Message

if TYPE_CHECKING:
    from barnabas.client.blocking import BlockingClient
    from barnabas.client.connection import BrokerConnection

GROUP: Final = 0
TRANSACTION: Final = 1
CONCURRENT_PAUSE_S: Final = 0.01
CONCURRENT_PAUSE_MAX_S: Final = 0.5
LOST: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Errors that say that a transaction is no longer open."""
MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


class TransactionLost(ClientError):
    """The transaction was aborted: it timed out, or another producer has begun with the same transactional id."""

    def __init__(self, transactional_id: str, doing: str) -> None:
        self.transactional_id = transactional_id
        super().__init__(
            f"{doing}: the transaction of {transactional_id} was aborted, because another producer has begun with this "
            "transactional id or transaction.timeout.ms has passed"
        )


class TxnProducer(NamedTuple):
    """Everything needed to write to a transaction and to end it."""

    transactional_id: str
    producer_id: int
    epoch: ProducerEpoch


class Transactions:
    """The transactional requests of a client. Raises TransactionLost, BrokerError, BrokerUnavailable."""

    def __init__(self, client: BlockingClient) -> None:
        self.client = client

    def begin(self, transactional_id: str, timeout_ms: int) -> TxnProducer:
        """Fence earlier producers with this transactional id, wait until their open transaction is aborted, and return the
        new producer."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        answer = self._ask(
            transactional_id,
            request,
            InitProducerIdResponse,
            lambda answer: answer.error_code,
            "beginning a transaction",
        )
        return TxnProducer(transactional_id, answer.producer_id, answer.producer_epoch)

    def add_partitions(self, producer: TxnProducer, topic: str, partitions: Iterable[int]) -> None:
        """Add partitions to the transaction; must be called before the first record of each."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

        def code_of(answer: Any) -> int:
            rows = [row for t in answer.results_by_topic_v3_and_below for row in t.results_by_partition]
            codes: list[int] = [row.partition_error_code for row in rows if row.partition_error_code]
            # If one partition has an error of its own, the others were not attempted.
            own = [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
            return (own or codes or [0])[0]

        doing = f"adding {topic} to a transaction"
        self._ask(producer.transactional_id, request, AddPartitionsToTxnResponse, code_of, doing)

    def add_offset(
        self, producer: TxnProducer, group: str, place: tuple[str, int], offset: Offset, metadata: str
    ) -> None:
        """Commit an offset of a group as part of the transaction."""
        self._ask(
            producer.transactional_id,
            AddOffsetsToTxnRequest(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                group_id=group,
            ),
            AddOffsetsToTxnResponse,
            lambda answer: answer.error_code,
            f"adding group {group} to a transaction",
        )
        row = TxnOffsetCommitRequestPartition(
            partition_index=place[1], committed_offset=offset, committed_metadata=metadata
        )
        self._ask(
            group,
            TxnOffsetCommitRequest(
                transactional_id=producer.transactional_id,
                group_id=group,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=[TxnOffsetCommitRequestTopic(name=place[0], partitions=[row])],
            ),
            TxnOffsetCommitResponse,
            lambda answer: answer.topics[0].partitions[0].error_code,
            f"committing offsets of group {group} in a transaction",
            kind=GROUP,
        )

    def end(self, producer: TxnProducer, *, commit: bool) -> None:
        """Commit or abort. May be repeated: a transaction that has already ended in the same way is a success."""
        self._ask(
            producer.transactional_id,
            _end_request(producer, commit),
            EndTxnResponse,
            lambda answer: answer.error_code,
            "committing a transaction" if commit else "aborting a transaction",
        )

    def end_all(self, producers: Sequence[TxnProducer], *, commit: bool) -> list[TransactionLost]:
        """End many transactions, with several requests in flight; returns the lost ones, the others have ended."""
        left = list(producers) if len(producers) < 2 else self._end_at_once(producers, commit)
        lost = []
        for producer in left:
            try:
                self.end(producer, commit=commit)
            except TransactionLost as error:
                lost.append(error)
        return lost

    def _end_at_once(self, producers: Sequence[TxnProducer], commit: bool) -> list[TxnProducer]:
        """Send all requests before waiting for the first answer; returns the producers to be retried one by one."""
        lanes: dict[tuple[str, int], BrokerConnection] = {}
        waiting: list[tuple[TxnProducer, BrokerConnection]] = []
        left: list[TxnProducer] = []
        for producer in producers:  # before anything is in flight: the look-up may send requests
            with suppress(BrokerUnavailable, BrokerError):
                self.client.coordinator(producer.transactional_id, TRANSACTION)
        for producer in producers:
            try:
                address = self.client.coordinator_address(producer.transactional_id, TRANSACTION)
                if address is None:
                    raise BrokerUnavailable(f"no coordinator of {producer.transactional_id} is known")
                if address not in lanes:
                    lanes[address] = self.client.cluster.connect(address)
                lanes[address].send(_end_request(producer, commit), EndTxnResponse)
            except (BrokerUnavailable, BrokerError):
                left.append(producer)
            else:
                waiting.append((producer, lanes[address]))
        for producer, lane in waiting:
            try:
                failed = bool(lane.receive().error_code)
            except BrokerUnavailable:
                self.client.cluster.forget(lane)
                failed = True
            if failed:
                left.append(producer)
        return left

    def open_ids(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix that have an open transaction, as far as this client may see them. Empty
        with brokers that cannot list them (before 3.0)."""

        def attempt() -> list[str]:
            self.client.cluster.refresh()
            ids = []
            for node in self.client.cluster.brokers:
                connection = self.client.cluster.node(node)
                if ListTransactionsRequest.API_KEY not in connection.versions:
                    continue
                request = ListTransactionsRequest(state_filters=["Ongoing"])
                answer = self.client.call(connection, request, ListTransactionsResponse)
                if answer.error_code:
                    raise BrokerError(answer.error_code, "listing transactions")
                ids += [row.transactional_id for row in answer.transaction_states]
            return [name for name in ids if name.startswith(prefix)]

        return self.client.cluster.retry(attempt)

    def notes(self, group: str) -> list[str]:
        """The metadata committed with the offsets of a group, once no open transaction changes them."""

        def attempt() -> list[str]:
            connection = self.client.coordinator(group, GROUP)
            asked = OffsetFetchRequestGroup(group_id=group, topics=None)
            request = (
                OffsetFetchRequest(groups=[asked], require_stable=True)
                if connection.version_for(OffsetFetchRequest) >= 8
                else OffsetFetchRequest(group_id=group, topics=None, require_stable=True)
            )
            answer = self.client.call(connection, request, OffsetFetchResponse)
            of_group = (answer.groups or [answer])[0]
            rows = [row for topic in of_group.topics for row in topic.partitions]
            for code in (of_group.error_code, *(row.error_code for row in rows)):
                if code in MOVED:
                    self.client.forget_coordinator(group, GROUP)
                if code:
                    raise BrokerError(code, f"reading offsets of group {group}")
            return [row.metadata for row in rows if row.metadata]

        return self.client.cluster.retry(attempt)

    def _ask(
        self,
        key: str,
        request: Message,
        response: type[Message],
        code_of: Callable[[Any], int],
        doing: str,
        kind: int = TRANSACTION,
    ) -> Any:
        """Send a request to a coordinator until its answer is not a temporary error."""
        name = key if kind == TRANSACTION else request.transactional_id  # type: ignore[attr-defined]

        def attempt() -> Any:
            pause_s = CONCURRENT_PAUSE_S
            give_up = time.monotonic() + self.client.options.deadline_s
            while True:
                answer = self.client.call(self.client.coordinator(key, kind), request, response)
                code = code_of(answer)
                if code == ErrorCode.CONCURRENT_TRANSACTIONS and time.monotonic() < give_up:
                    time.sleep(pause_s)
                    pause_s = min(pause_s * 2, CONCURRENT_PAUSE_MAX_S)
                    continue
                if code in LOST:
                    raise TransactionLost(name, doing)
                if code in RETRIABLE:
                    self.client.forget_coordinator(key, kind)
                if code:
                    raise BrokerError(code, f"{doing} of {name}")
                return answer

        return self.client.cluster.retry(attempt)


class Joined:
    """The partitions of one transaction, for a stream that writes to it."""

    def __init__(self, transactions: Transactions, producer: TxnProducer) -> None:
        self.transactions = transactions
        self.producer = producer
        self._added: set[tuple[str, int]] = set()

    @property
    def transactional_id(self) -> str:
        """Of the transaction's producer."""
        return self.producer.transactional_id

    def add(self, topic: str, partitions: Iterable[int]) -> None:
        """Add the partitions that are not in the transaction yet."""
        fresh = sorted({p for p in partitions if (topic, p) not in self._added})
        if fresh:
            self.transactions.add_partitions(self.producer, topic, fresh)
            self._added.update((topic, p) for p in fresh)


def _end_request(producer: TxnProducer, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
