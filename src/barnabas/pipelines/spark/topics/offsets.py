"""Plans which partitions and offsets a query reads: the driver's side of the source.

A stream offset, as Spark stores it in the checkpoint, is a JSON object with an entry per topic: the topic's id and the
next offset of each partition, `{"orders": {"id": "f0e1...", "0": 120, "1": 98}}`. The id shows whether a topic was
deleted and created again since the query read it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient
from barnabas.client.cluster import TopicView
from barnabas.client.errors import UnknownTopic
from barnabas.client.options import ClientOptions
from barnabas.client.patterns import java_pattern
from barnabas.client.watching import Watch
from barnabas.pipelines.spark.topics.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Position,
    SourceOptions,
    TopicPartition,
)
from barnabas.records.units import Offset

log = logging.getLogger(__name__)

StreamOffset = dict[str, dict[str, Any]]
COMMIT_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 0.5
"""After this time without records, the source lets the brokers tell it about new ones, instead of polling."""
WAIT_SECONDS: Final = 1.0
"""The longest wait: new partitions are found after it, and a query that is to stop waits no longer than this."""
ROWS_SHARED_MAX: Final = 1_000
"""Ranges may share a task if they have at most this many records together."""
NO_ID: Final = str(UUID(int=0))


class DataLost(Exception):
    """Records after the checkpoint no longer exist, and the policy (onDataLoss) is to stop."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets start..end-1 of one partition."""

    topic: str
    partition: int
    start: Offset
    end: Offset


def parse_offset(
    offset: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[TopicPartition, Offset], dict[str, str]]:
    """The next offset of each partition, and the id of each topic, in a stream offset."""
    positions = {
        (topic, int(name)): Offset(int(value))
        for topic, entry in offset.items()
        for name, value in entry.items()
        if name != "id"
    }
    ids = {topic: str(entry.get("id", NO_ID)) for topic, entry in offset.items()}
    return positions, ids


def build_offset(positions: Mapping[TopicPartition, Offset], ids: Mapping[str, str]) -> StreamOffset:
    """A stream offset. Equal positions give equal JSON, by which Spark sees that there is nothing new."""
    offset: StreamOffset = {}
    for topic, partition in sorted(positions):
        entry = offset.setdefault(topic, {"id": ids.get(topic, NO_ID)})
        entry[str(partition)] = positions[topic, partition]
    return offset


def planner_clients(options: SourceOptions) -> tuple[ClientOptions, ClientOptions]:
    """The options of a planner's clients: for all else, and for commits to the consumer group. These only show progress, so
    they give up early and do not delay the query."""
    return (
        replace(options.client, retries_max=options.offset_retries_max),
        replace(options.client, deadline_s=COMMIT_SECONDS),
    )


class Planner:
    """Finds out which records exist and plans what to read next. Has connections, so it cannot be pickled."""

    def __init__(self, options: SourceOptions, *, is_lent: bool = False) -> None:
        """is_lent: it has no clients of its own, but uses those of `lent`."""
        self.options = options
        if not is_lent:
            self.client, self._commits = (BlockingClient(o) for o in planner_clients(options))
        self._ids: dict[str, str] = {}
        self._ends_seen: dict[TopicPartition, Offset] = {}
        """The newest ends of partitions that this process has seen, to know how much of a deleted topic was unread."""
        self._watch: Watch | None = None
        self._news_at = time.monotonic()

    @contextmanager
    def lent(self, client: BlockingClient, commits: BlockingClient) -> Iterator[None]:
        """Uses these clients meanwhile. They have the options of `planner_clients`."""
        self.client, self._commits = client, commits
        try:
            yield
        finally:
            del self.client, self._commits

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()
        self._commits.close()

    def partitions(self) -> list[TopicPartition]:
        """The partitions to read now. Raises UnknownTopic if a topic or partition in the options does not exist."""
        options = self.options
        if options.pattern is not None:
            wanted = java_pattern(options.pattern)
            views = {n: v for n, v in self.client.topics().items() if wanted.fullmatch(n)}
        else:
            names = options.topics or tuple(dict.fromkeys(topic for topic, _ in options.assigned))
            views = self.client.describe(names)
            for name in names:
                if name not in views:
                    raise UnknownTopic(
                        f"topic {name} does not exist: create it with `barnabas topic create {name}`"
                    )
        self._ids = {name: str(view.topic_id) for name, view in views.items()}
        if options.assigned:
            return [self._assigned(pair, views) for pair in options.assigned]
        return [(name, p) for name, view in sorted(views.items()) for p in view.partitions]

    @staticmethod
    def _assigned(pair: TopicPartition, views: Mapping[str, TopicView]) -> TopicPartition:
        topic, partition = pair
        count = len(views[topic].partitions)
        if partition not in views[topic].partitions:
            raise UnknownTopic(f"topic {topic} has no partition {partition}; it has {count}")
        return pair

    def log_starts(self, pairs: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Log start offsets."""
        offsets = self.client.list_offsets(dict.fromkeys(pairs, EARLIEST))
        return {pair: timed.offset for pair, timed in offsets.items()}

    def log_ends(self, pairs: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """High watermarks, or last stable offsets if only committed records are read."""
        offsets = self.client.list_offsets(
            dict.fromkeys(pairs, LATEST), read_committed=self.options.read_committed
        )
        return {pair: timed.offset for pair, timed in offsets.items()}

    def resolve(self, position: Position, pairs: list[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The offset of each partition that a start or end option stands for. Raises UnknownTopic."""
        for pair in (*position.offsets, *position.timestamps_ms):
            if pair not in pairs:
                raise UnknownTopic(f"the offsets name partition {pair[0]}-{pair[1]}, which is not read")
        offsets: dict[TopicPartition, Offset] = {}
        if position.group is not None:
            topics: dict[str, list[int]] = {}
            for topic, partition in pairs:
                topics.setdefault(topic, []).append(partition)
            offsets.update(self.client.committed(position.group, topics))
        for pair, offset in position.offsets.items():
            if offset >= 0:
                offsets.setdefault(pair, offset)
        times = dict(position.timestamps_ms)
        if position.timestamp_ms is not None:
            times = {pair: times.get(pair, position.timestamp_ms) for pair in pairs}
        times = {pair: time for pair, time in times.items() if pair not in offsets}
        for pair, timed in self.client.list_offsets(times).items():
            if timed.offset >= 0:
                offsets[pair] = timed.offset
            elif not position.end_when_younger:
                raise UnknownTopic(
                    f"partition {pair[0]}-{pair[1]} has no record at or after {times[pair]}: set "
                    "startingOffsetsByTimestampStrategy to latest to begin at its end"
                )
            else:
                offsets[pair] = self.log_ends([pair])[pair]
        otherwise = EARLIEST_OFFSET if position.otherwise == "earliest" else LATEST_OFFSET
        rest = {p: position.offsets.get(p, otherwise) for p in pairs if p not in offsets}
        offsets.update(self.log_starts([p for p, word in rest.items() if word == EARLIEST_OFFSET]))
        offsets.update(self.log_ends([p for p, word in rest.items() if word == LATEST_OFFSET]))
        return offsets

    def initial(self) -> StreamOffset:
        """Where a query without a checkpoint begins. Raises UnknownTopic."""
        pairs = self.partitions()
        return build_offset(self.resolve(self.options.starting, pairs), self._ids)

    def newest(self) -> StreamOffset:
        """The present ends of all partitions."""
        pairs = self.partitions()
        ends = self.log_ends(pairs)
        self._ends_seen.update(ends)
        return build_offset(ends, self._ids)

    def advance(self, start: StreamOffset, target: StreamOffset, rows_max: int | None) -> StreamOffset:
        """Where the next micro-batch ends: at `target`, or earlier so that it reads about `rows_max` records.

        The limit is divided in proportion to the number of waiting records in each partition, as in Spark's own source.
        Partitions added since `start` are read from their beginning. Deleted topics of a pattern, and partitions that a
        topic no longer has after it was created again, are removed from the offset. Raises DataLost if
        the policy is to stop and a topic was created again, or unread records may be lost.
        """
        begin, old_ids = parse_offset(start)
        ends, ids = parse_offset(target)
        renewed = set()
        for topic, known in old_ids.items():
            if topic in ids and ids[topic] != known and NO_ID not in (ids[topic], known):
                self._recreated(topic, known, ids[topic])
                renewed.add(topic)
        begin = {pair: Offset(0) if pair[0] in renewed else at for pair, at in begin.items()}
        begin = {
            pair: at for pair, at in begin.items() if pair in ends or not self._leaves(pair, at, renewed)
        }
        old_ids = {topic: known for topic, known in old_ids.items() if topic in {name for name, _ in begin}}
        new = [pair for pair in ends if pair not in begin]
        if new:
            begin.update(self.log_starts(new))
        if self.options.data_loss == "latest":
            # If records of a partition are gone, the query continues at its end, whatever limit a micro-batch has.
            starts = self.log_starts(ends)
            jumps = {p for p in ends if p[0] in renewed or begin[p] < starts[p] or ends[p] < begin[p]}
            for pair in jumps:
                log.warning(
                    "records are gone", extra={"topic": pair[0], "partition": pair[1], "goes_on": ends[pair]}
                )
            begin.update({pair: ends[pair] for pair in jumps})
        waiting = {pair: max(end - begin[pair], 0) for pair, end in ends.items()}
        total = sum(waiting.values())
        reached = dict(begin)
        for pair, rows in waiting.items():
            if rows_max is None or total <= rows_max:
                share = rows
            else:
                share = min(rows, max(rows * rows_max // total, 1))
            # A log that ends before the position was truncated or replaced, which `ranges` handles.
            reached[pair] = Offset(begin[pair] + share) if ends[pair] >= begin[pair] else ends[pair]
        return build_offset(reached, {**old_ids, **ids})

    def note_news(self) -> None:
        """To be called when new records were found."""
        self._news_at = time.monotonic()

    def await_news(self, start: StreamOffset, stopped: Callable[[], bool]) -> bool:
        """If there were no records for a while, waits for records at or after `start`; returns whether to look again at
        once.

        Without this, every idle query would ask its brokers ten times a second. stopped: ends the wait when it returns
        true.
        """
        if time.monotonic() - self._news_at < QUIET_SECONDS:
            return False
        if self._watch is None:
            self._watch = Watch(self.client.cluster, read_committed=self.options.read_committed)
        heard = self._watch.wait(parse_offset(start)[0], WAIT_SECONDS, stopped)
        if heard:
            self.note_news()  # even if it turns out to be nothing new, so as not to wait again at once
        return heard

    def _leaves(self, pair: TopicPartition, at: int, renewed: set[str]) -> bool:
        """Whether a partition that no longer exists is to be removed from the offset. Raises DataLost if records of it
        may be lost and the policy is to stop."""
        topic, partition = pair
        if topic not in renewed and self.options.pattern is None:
            return False  # the options name it: a request for it fails with its name
        end = self._ends_seen.get(pair)
        if topic in renewed or (end is not None and end <= at):
            return True
        lost = "possibly unread records" if end is None else f"the unread records {at} to {end - 1}"
        if self.options.data_loss == "stop":
            raise DataLost(
                f"topic {topic} was deleted, and with it {lost} of partition {partition}: set onDataLoss to earliest "
                "or latest to continue without them, or start with a new checkpoint"
            )
        log.warning("topic is gone", extra={"topic": topic, "partition": partition, "what": lost})
        return True

    def _recreated(self, topic: str, old: str, new: str) -> None:
        if self.options.data_loss == "stop":
            raise DataLost(
                f"topic {topic} was deleted and created again since the checkpoint (id {old}, now {new}): set "
                "onDataLoss to earliest or latest to continue with the new one, or start with a new checkpoint"
            )
        log.warning("topic was created again", extra={"topic": topic, "old_id": old, "new_id": new})

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[Range]:
        """The ranges that the tasks of a micro-batch read. If their records are gone, the policy decides.

        Raises DataLost or UnknownTopic if the policy is to stop.
        """
        begin, old_ids = parse_offset(start)
        ends, ids = parse_offset(end)
        active = [
            pair for pair, at in ends.items() if begin.get(pair, 0) != at or self._swapped(pair, old_ids, ids)
        ]
        if not active:
            return []
        self.client.cluster.retry(lambda: self.client.cluster.refresh({topic for topic, _ in active}))
        there = {
            (topic, p)
            for topic in {t for t, _ in active} & self.client.cluster.topics.keys()
            for p in self.client.cluster.topics[topic].partitions
        }
        gone = [pair for pair in active if pair not in there]
        if gone and self.options.data_loss != "stop":
            log.warning("partitions are gone", extra={"partitions": [f"{topic}-{p}" for topic, p in gone]})
            active = [pair for pair in active if pair in there]
        elif gone:
            raise UnknownTopic(
                f"partition {gone[0][0]}-{gone[0][1]} was deleted while the query was reading it"
            )
        starts = self.log_starts(active)
        ranges = []
        for pair in active:
            swapped = self._swapped(pair, old_ids, ids)
            at = starts[pair] if swapped or pair not in begin else begin[pair]
            ranges.append(self._range(pair, at, ends[pair], starts[pair], swapped))
        return split(
            [r for r in ranges if r.end > r.start],
            self.options.partitions_min,
            self.options.rows_per_task_max,
        )

    @staticmethod
    def _swapped(pair: TopicPartition, old: Mapping[str, str], new: Mapping[str, str]) -> bool:
        before, now = old.get(pair[0], NO_ID), new.get(pair[0], NO_ID)
        return before != now and NO_ID not in (before, now)

    def _range(
        self, pair: TopicPartition, start: Offset, end: Offset, log_start: Offset, swapped: bool
    ) -> Range:
        topic, partition = pair
        policy = self.options.data_loss
        if start < log_start or end < start or swapped:
            if start > end:
                what = f"the log of {topic}-{partition} ends at {end}, before offset {start} that the query had reached"
            else:
                what = f"records {start} to {log_start - 1} of {topic}-{partition} are gone (retention or deletion)"
            if policy == "stop":
                raise DataLost(
                    f"{what}: set onDataLoss to earliest or latest to continue, or start with a new checkpoint"
                )
            log.warning("records are gone", extra={"topic": topic, "partition": partition, "what": what})
            start = end if policy == "latest" else log_start
        return Range(topic, partition, start, end)

    def batch_ranges(self) -> list[Range]:
        """The ranges that a batch read covers. Raises UnknownTopic, DataLost."""
        pairs = self.partitions()
        starts = self.resolve(self.options.starting, pairs)
        ends = self.resolve(self.options.ending, pairs)
        oldest = self.log_starts(pairs)
        ranges = [self._range(p, starts[p], ends[p], oldest[p], False) for p in pairs if ends[p] > starts[p]]
        return split(ranges, self.options.partitions_min, self.options.rows_per_task_max)

    def commit(self, end: StreamOffset) -> None:
        """Commits the progress to the consumer group, if there is one. Raises ClientError."""
        if self.options.commit_group is None:
            return
        positions, _ = parse_offset(end)
        self._commits.commit(self.options.commit_group, positions, "barnabas pipeline")


def split(ranges: list[Range], count_min: int, rows_max: int | None = None) -> list[Range]:
    """Splits ranges into about `count_min` ranges or more, each of at most `rows_max` records. Long ranges are cut into
    equal parts; the order within a partition is kept."""
    if rows_max is not None:
        ranges = [
            Range(r.topic, r.partition, Offset(at), Offset(min(at + rows_max, r.end)))
            for r in ranges
            for at in range(r.start, r.end, rows_max)
        ]
    total = sum(r.end - r.start for r in ranges)
    if len(ranges) >= count_min or total == 0:
        return ranges
    parts = []
    for r in ranges:
        size = r.end - r.start
        pieces = min(max(round(size * count_min / total), 1), size)
        edges = [Offset(r.start + size * i // pieces) for i in range(pieces + 1)]
        parts += [Range(r.topic, r.partition, a, b) for a, b in pairwise(edges)]
    return parts


def gather(ranges: list[Range], count_min: int) -> list[tuple[Range, ...]]:
    """The ranges of each task. Ranges with few records share a task, because a task costs more than some hundred
    records do; but there are at least `count_min` tasks if there are that many ranges."""
    spare = max(len(ranges) - count_min, 0)
    tasks: list[tuple[Range, ...]] = []
    rows = 0
    for r in ranges:
        if tasks and spare and rows + r.end - r.start <= ROWS_SHARED_MAX:
            tasks[-1] += (r,)
            spare -= 1
        else:
            tasks.append((r,))
            rows = 0
        rows += r.end - r.start
    return tasks
