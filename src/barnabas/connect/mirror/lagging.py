"""How far copies of MirrorMaker 2 are behind, as both clusters say: also where another process, or Java's, copies."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, TopicPartition

from barnabas.admin.blocking import Admin
from barnabas.connect.errors import RetriableError
from barnabas.connect.mirror.dedicated import COPYING, MirrorFlow
from barnabas.connect.mirror.flow import SOURCE, TARGET, Flow
from barnabas.connect.mirror.source import OFFSET, place_of
from barnabas.connect.worker.board import Board
from barnabas.connect.worker.logs import TopicLogs
from barnabas.connect.worker.planning import load

READ_S: Final = 30.0
MESSAGES_MAX: Final = 1_000
Place = tuple[str, int]


class TopicLag(NamedTuple):
    """A topic of a source. copy: its name in the target. partitions: how many it has; begun: of how many something was
    copied. lag: offsets that are not copied yet. lag_ms: age of the newest copied record while there are newer ones, of the
    partition that is most behind; None where nothing was copied, or that record is gone.
    """

    flow: str
    topic: str
    copy: str
    partitions: int
    begun: int
    lag: int
    lag_ms: int | None


@dataclass(slots=True)
class _Behind:
    """A partition with more offsets than were copied. copied: the last one, -1 for none; time_ms: of its record, -1 while
    unknown. has_more: whether records follow; behind the last one there may be markers of transactions only."""

    copied: int
    start: int
    end: int
    time_ms: int = -1
    has_more: bool = False

    @property
    def lag(self) -> int:
        """In offsets."""
        return self.end - max(self.copied + 1, self.start) if self.has_more else 0


def lags(flow: MirrorFlow) -> Iterator[TopicLag]:
    """The topics that a flow copies, by name. Raises ConnectError, ClientError, KafkaException."""
    if not flow.enabled:
        return
    clients = Flow(load(flow.worker, flow.worker.first[COPYING]).config)
    with clients.admin(SOURCE) as source, clients.admin(TARGET) as target:
        topics = {name: row for name, row in source.topics.list().items() if clients.takes(name)}
        keys = [(name, part.number) for name, row in topics.items() for part in row.partitions]
        bounds = source.records.bounds(keys, read_committed=True).require()
        copied = _copied(flow, target, keys)
    behind = {
        (key.topic, key.partition): _Behind(at, bound.start, bound.end)
        for key, bound in bounds.items()
        if max((at := copied.get((key.topic, key.partition), -1)) + 1, bound.start) < bound.end
    }
    _look_at(clients, behind)
    now_ms = time.time_ns() // 1_000_000
    for name, row in sorted(topics.items()):
        places = [(name, part.number) for part in row.partitions]
        late = [behind[place] for place in places if place in behind and behind[place].has_more]
        ages = [now_ms - part.time_ms for part in late if part.time_ms >= 0]
        yield TopicLag(
            str(flow),
            name,
            clients.policy.remote(flow.source, name),
            len(places),
            sum(place in copied for place in places),
            sum(part.lag for part in late),
            max(ages, default=None if late else 0),
        )


def _copied(flow: MirrorFlow, target: Admin, places: list[Place]) -> Mapping[Place, int]:
    """The last offset of each partition that is copied, as the worker has stored them in the target."""
    topic = flow.worker.offset_topic
    if topic not in target.topics.list():
        return {}
    board = Board()
    logs = TopicLogs(flow.worker.clients(), {topic: board.take_offset}, target)
    try:
        logs.start()
    finally:
        logs.stop()
    offsets = {place: board.offset(COPYING, place_of(flow.source, *place)) for place in places}
    return {place: int(offset[OFFSET]) for place, offset in offsets.items() if offset is not None}


def _look_at(clients: Flow, behind: Mapping[Place, _Behind]) -> None:
    """Reads the last copied record of partitions, and whether another one follows. Raises RetriableError."""
    if not behind:
        return
    consumer = clients.consumer(SOURCE, {"enable.partition.eof": True})
    left = set(behind)
    consumer.assign([TopicPartition(*place, max(row.copied, row.start)) for place, row in behind.items()])
    deadline_s = time.monotonic() + READ_S
    try:
        while left:
            if time.monotonic() > deadline_s:
                topic, number = min(left)
                raise RetriableError(f"{topic}-{number} of {clients.source} cannot be read in {READ_S:g} s")
            for message in consumer.consume(MESSAGES_MAX, 0.5):
                place, error = (message.topic(), message.partition()), message.error()
                if place not in left:
                    continue
                if error is None and message.offset() <= behind[place].copied:
                    behind[place].time_ms = message.timestamp()[1]
                    continue
                behind[place].has_more = error is None
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
                    consumer.incremental_unassign([TopicPartition(*place)])
    finally:
        consumer.close()
