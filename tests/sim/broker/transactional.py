"""Simulated transactional producers, of the older protocol and of KIP-890, and readers of what they committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.records.batch import Record, batches, build_batch, records_of
from barnabas.records.control import read_marker
from barnabas.sim.transactions import Outcome, Txn
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.schema import Message
from tests.sim.broker.wire import Client, Lost

if TYPE_CHECKING:
    from tests.sim.broker.world import Topic, World

TIMEOUT_MS = 30_000
AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}


class Over(Exception):
    """This producer's life is over: it was fenced, or killed."""


class Rivals:
    """All producers of one transactional id."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.newest = (-1, -1)
        """The newest producer id and epoch that any of them was told."""
        self.may_fence = count > 1
        """Whether a producer may be fenced at any time: by another one, or by a request that was lost on its way."""


class TransactionalProducer(Client):
    """Carries out `left` transactions, whatever happens meanwhile; each life of it is a producer of its own."""

    def __init__(self, world: World, name: str, topic: Topic, rivals: Rivals, count: int) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.rivals = rivals
        self.left = count
        self.history = world.transactions
        self.new_protocol = self.chance.random() < 0.5
        self.with_offsets = self.chance.random() < 0.5
        self.producer_id, self.epoch = -1, -1
        self.number = 0
        self.life = 0
        self.begun_s = 0.0
        self.lost = 0
        self.sequences: dict[int, int] = {}

    @property
    def run_name(self) -> str:
        """Of this life."""
        return f"{self.name}.{self.life}"

    @property
    def waiting_for(self) -> str | None:
        return f"{self.name} has {self.left} transactions to carry out" if self.left else None

    async def run(self) -> None:
        while self.left:
            self.life += 1
            try:
                await self._init()
                while self.left:
                    await self._transaction()
                    if self.chance.random() < 0.3:
                        await self.rest(1.0)
            except Over:
                self.close()
                await self.rest(self.chance.uniform(0.2, 5.0))
        self.close()

    async def _ask(self, request: Message, low: int, high: int) -> Any:
        """The answer whose error is for the caller: what is worth another attempt has been tried again."""
        while True:
            self._may_be_killed()
            try:
                answer = await self.call(request, low=low, high=high)
            except Lost:
                self.lost += 1
                await self.rest()
                continue
            code = _code_of(answer)
            if code not in AGAIN:
                return answer
            await self.rest()

    def _may_be_killed(self) -> None:
        if self.world.quiet_since_s is None and self.chance.random() < 0.01:
            raise Over

    def _check(self, code: int, what: str) -> None:
        """Raises Over when this producer is fenced."""
        if code in FENCED:
            timed_out = (self.world.loop.time() - self.begun_s) * 1000 > TIMEOUT_MS / 2
            if not self.rivals.may_fence and not timed_out:
                self.world.fail("fenced", f"{self.run_name} is fenced at {what} although it is alone")
            raise Over
        if code:
            self.world.fail("failed", f"{self.run_name} is refused at {what} with {ErrorCode(code).name}")
            raise Over

    async def _init(self) -> None:
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.rivals.name])
        try:
            await self.call(find, low=4)
        except Lost:
            await self.rest()
        self.begun_s = self.world.loop.time()
        request = InitProducerIdRequest(transactional_id=self.rivals.name, transaction_timeout_ms=TIMEOUT_MS)
        had_fenced, self.rivals.may_fence = self.rivals.may_fence, True  # unless all goes well
        self.lost = 0
        answer = await self._ask(request, 0, 5)
        self.rivals.may_fence = had_fenced or self.lost > 0
        if answer.error_code:
            self.world.fail("failed", f"{self.run_name} cannot begin: {ErrorCode(answer.error_code).name}")
            raise Over
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.rivals.newest = max(self.rivals.newest, (self.producer_id, self.epoch))
        self.sequences.clear()

    async def _transaction(self) -> None:
        self.number += 1
        txn = self.history.begin(self.run_name, self.number)
        commit = self.chance.random() < 0.7
        self.begun_s = self.world.loop.time()
        for _ in range(self.chance.randint(1, 3)):
            await self._write(txn, self.chance.randrange(self.topic.partitions))
        if self.with_offsets and self.chance.random() < 0.7:
            await self._commit_offset(txn)
        await self._end(txn, commit)
        self.left -= 1

    async def _write(self, txn: Txn, partition: int) -> None:
        name = self.topic.name
        if not self.new_protocol:
            answer = await self._ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.rivals.name,
                    v3_and_below_producer_id=self.producer_id,
                    v3_and_below_producer_epoch=self.epoch,
                    v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[partition])],
                ),
                0,
                3,
            )
            self._check(_code_of(answer), "AddPartitionsToTxn")
        count = self.chance.randint(1, 4)
        begin = len(txn.sent)
        values = [b"%s:%d:%d" % (self.run_name.encode(), txn.number, begin + i) for i in range(count)]
        sequence = self.sequences.get(partition, 0)
        now_ms = self.world.node.clock.now_ms()
        batch = build_batch(
            [Record(0, now_ms, None, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self.history.on_sent(txn, partition, values)
        request = ProduceRequest(
            transactional_id=self.rivals.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=name, partition_data=[PartitionProduceData(index=partition, records=batch)]
                )
            ],
        )
        low, high = (12, 12) if self.new_protocol else (3, 11)
        answer = await self._ask(request, low, high)
        self._check(_code_of(answer), "Produce")
        self.sequences[partition] = sequence + count
        self.history.on_acked(txn, partition, values)

    async def _commit_offset(self, txn: Txn) -> None:
        if not self.new_protocol:
            added = await self._ask(
                AddOffsetsToTxnRequest(
                    transactional_id=self.rivals.name,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=self.run_name,
                ),
                0,
                3,
            )
            self._check(added.error_code, "AddOffsetsToTxn")
        row = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=txn.number, committed_metadata=""
        )
        answer = await self._ask(
            TxnOffsetCommitRequest(
                transactional_id=self.rivals.name,
                group_id=self.run_name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                generation_id=-1,
                topics=[TxnOffsetCommitRequestTopic(name=self.topic.name, partitions=[row])],
            ),
            *((5, 5) if self.new_protocol else (0, 4)),
        )
        self._check(_code_of(answer), "TxnOffsetCommit")
        txn.offset = txn.number

    async def _end(self, txn: Txn, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.rivals.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        self._may_be_killed()  # before anybody knows how it is to end
        txn.outcome = Outcome.UNKNOWN if commit else Outcome.ABORTED
        newest = self.rivals.newest
        answer = await self._ask(request, *((5, 5) if self.new_protocol else (0, 4)))
        self._check(answer.error_code, "EndTxn")
        if commit:
            txn.outcome = Outcome.COMMITTED
            if newest > (self.producer_id, self.epoch):
                self.world.fail("fenced", f"{self.run_name} committed after a newer producer had begun")
        if self.new_protocol:
            if (answer.producer_id, answer.producer_epoch) == (self.producer_id, self.epoch):
                self.world.fail("failed", f"{self.run_name} got no new epoch")
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.rivals.newest = max(self.rivals.newest, (self.producer_id, self.epoch))
            self.sequences.clear()


def _code_of(answer: Any) -> int:
    """The one error of an answer."""
    fields = answer.FIELDS
    if "results_by_topic_v3_and_below" in fields:
        code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    elif "responses" in fields:
        code = answer.responses[0].partition_responses[0].error_code
    elif "topics" in fields:
        code = answer.topics[0].partitions[0].error_code
    else:
        code = answer.error_code
    return code


class CommittedReader(Client):
    """Reads the committed records of all partitions, and leaves out aborted ones as clients do."""

    def __init__(self, world: World, name: str, topic: Topic) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.positions = dict.fromkeys(range(topic.partitions), 0)
        self.behind: dict[int, str] = {}
        self.found: dict[int, dict[int, bytes]] = {index: {} for index in self.positions}
        self.max_bytes = self.chance.choice([300, 2_000, 60_000])
        self.polls = 0

    @property
    def waiting_for(self) -> str | None:
        """A transaction that nobody ends holds its readers up."""
        for index, what in self.behind.items():
            return f"{self.name} is held up in {self.topic.name}-{index}: {what}"
        return None

    async def run(self) -> None:
        while not self.world.over:
            try:
                await self.poll()
            except Lost:
                await self.rest()
            await self.rest(0.3)
        self.close()

    async def poll(self) -> None:
        """Fetch once. Raises Lost."""
        history = self.world.transactions
        floors = {index: history.stable.get(index, 0) for index in self.positions}
        rows = [
            FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=self.max_bytes)
            for index, position in self.positions.items()
        ]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1, session_id=0, session_epoch=-1,
            topics=[FetchTopic(topic=self.topic.name, partitions=rows)],
        )  # fmt: skip
        power_cuts = self.world.power_cuts
        answer = await self.call(request, low=4, high=12)
        self.polls += 1
        if answer.error_code:
            self.world.fail("failed", f"{self.name}: a fetch is refused with {answer.error_code}")
            return
        for topic in answer.responses:
            for row in topic.partitions:
                if not row.error_code:
                    floor = floors[row.partition_index] if power_cuts == self.world.power_cuts else 0
                    history.on_stable(row.partition_index, floor, row.last_stable_offset, self.name)
                    self._take(row)

    def _take(self, row: Any) -> None:
        index = row.partition_index
        position = self.positions[index]
        coming = sorted(row.aborted_transactions or (), key=lambda t: t.first_offset, reverse=True)
        aborted: set[int] = set()
        data = row.records or b""
        for at, header in batches(data):
            while coming and coming[-1].first_offset <= header.next_offset - 1:
                aborted.add(coming.pop().producer_id)
            records = list(records_of(data, at, header))
            if header.is_control:
                marker = read_marker(records[0])
                if marker is not None and not marker.commit:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                for record in records:
                    if record.offset >= position:
                        self.found[index][record.offset] = record.value or b""
                        self.world.transactions.on_read(index, record.offset, record.value or b"", self.name)
            if header.next_offset > row.last_stable_offset:
                self.world.fail(
                    "aborted", f"{self.name} got records at {header.base_offset}, behind the stable ones"
                )
            self.positions[index] = position = max(position, header.next_offset)
        self.behind.pop(index, None)
        if position < row.high_watermark:
            self.behind[index] = f"{position}, stable to {row.last_stable_offset} of {row.high_watermark}"


async def committed_offsets(client: Client, topic: Topic, groups: list[str]) -> dict[str, int]:
    """What each group has committed for the first partition."""
    offsets: dict[str, int] = {}
    for group in groups:
        while group not in offsets:
            rows = [OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])]
            asked = OffsetFetchRequestGroup(group_id=group, topics=rows)
            try:
                answer = await client.call(
                    OffsetFetchRequest(groups=[asked], require_stable=True), low=8, high=9
                )
            except Lost:
                await client.rest()
                continue
            row = answer.groups[0].topics[0].partitions[0]
            if answer.groups[0].error_code or row.error_code:
                await client.rest()
                if row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT and client.world.is_calm:
                    client.world.fail("stuck", f"the offsets of {group} stay unstable")
                    return offsets
                continue
            offsets[group] = row.committed_offset
    return offsets
