"""MirrorCheckpointConnector: where consumer groups of the source would go on in the target. The offsets are translated by
the offset syncs, written as checkpoints, and on request to the groups of the target.

Source: Kafka's MirrorCheckpointConnector, MirrorCheckpointTask.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

from barnabas.admin import CommittedOffset, ResourceError
from barnabas.admin import TopicPartition as Partition
from barnabas.admin.blocking import Admin
from barnabas.client.errors import ClientError
from barnabas.connect.connectors import Batch, SourceConnector, SourceContext
from barnabas.connect.errors import RetriableError
from barnabas.connect.mirror.flow import SOURCE, TARGET, Flow, require_topic
from barnabas.connect.mirror.follower import Follower
from barnabas.connect.mirror.formats import Checkpoint, OffsetSync
from barnabas.connect.mirror.measures import CHECKPOINTS, Spread
from barnabas.connect.mirror.options import CHECKPOINT, PACKAGE
from barnabas.connect.mirror.source import NEVER_S, check_flow
from barnabas.connect.mirror.syncs import SyncStore, is_newer
from barnabas.connect.options import Config
from barnabas.connect.records import Json, SourceRecord
from barnabas.connect.schemas import OPTIONAL_BYTES
from barnabas.observe.metric import Sample
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.connect")

WAIT_S: Final = 1.0
INTERVAL_S_MIN: Final = 0.05
IDLE: Final = ("empty", "dead")
PROTOCOLS: Final = ("consumer", "")

Place = tuple[str, int]


class MirrorCheckpoint(SourceConnector):
    """Its partitions are the groups of the source."""

    doc = "Offsets of consumer groups of another cluster, translated to those of the copies (MirrorMaker 2)."
    aliases = (f"{PACKAGE}.MirrorCheckpointConnector",)
    options = CHECKPOINT
    polls_together: ClassVar[bool] = True
    poll_interval_ms: ClassVar[int] = 20

    # --- the connector --------------------------------------------------------------------------------

    @classmethod
    def look_interval_s(cls, config: Config) -> float:
        """How often there may be new groups."""
        interval_s = float(config["refresh.groups.interval.seconds"])
        return interval_s if config["refresh.groups.enabled"] and interval_s > 0 else NEVER_S

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        return check_flow(config)

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._flow = Flow(config)
        self._open: list[Follower | Admin] = []
        self._latencies: dict[tuple[str, ...], Spread] = {}
        if context.partitions:
            self._begin([str(row["group"]) for row in context.partitions])

    def partitions(self) -> Sequence[Json]:
        """The groups of the source that have checkpoints."""
        flow, config = self._flow, self.config
        if not (
            config["enabled"] and config["emit.checkpoints.enabled"] and config["emit.offset-syncs.enabled"]
        ):
            return []
        try:
            with flow.admin(SOURCE) as source, flow.admin(TARGET) as target:
                side = source if flow.syncs_side == SOURCE else target
                require_topic(
                    side, flow.syncs_alias, flow.syncs_topic, config["offset-syncs.topic.replication.factor"]
                )
                topic = flow.policy.checkpoints_topic(flow.source)
                require_topic(target, flow.target, topic, config["checkpoints.topic.replication.factor"])
                listed = source.groups.list().require()
        except ClientError as error:
            raise RetriableError(f"the groups of {flow.source} cannot be listed: {error}") from error
        names = {
            row.name
            for rows in listed.values()
            for row in rows
            if row.protocol_type in PROTOCOLS and row.type.lower() != "share" and flow.groups.takes(row.name)
        }
        return [{"group": name} for name in sorted(names)]

    # --- a task ---------------------------------------------------------------------------------------

    def _begin(self, groups: Sequence[str]) -> None:
        flow = self._flow
        self._groups = groups
        self._topic = flow.policy.checkpoints_topic(flow.source)
        self._source, self._target = flow.admin(SOURCE), flow.admin(TARGET)
        self._open += [self._source, self._target]
        self._store = SyncStore()
        self._known: dict[str, dict[Place, Checkpoint]] = {}
        self._syncs = Follower(flow, flow.syncs_side, flow.syncs_topic, self._take_sync)
        self._open.append(self._syncs)
        self._syncs.read_to_end()
        before = Follower(flow, TARGET, self._topic, self._take_checkpoint)
        self._open.append(before)
        before.read_to_end()
        self._next_s = self._next_sync_s = 0.0

    def _take_sync(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            self._store.add(OffsetSync.read(key, value))

    def _take_checkpoint(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            checkpoint = Checkpoint.read(key, value)
            self._known.setdefault(checkpoint.group, {})[checkpoint.topic, checkpoint.partition] = checkpoint

    def poll(self, partition: Json, offset: Json | None) -> Sequence[SourceRecord] | Batch:
        """See SourceConnector. The checkpoints that have moved since they were last written."""
        now = time.monotonic()
        config = self.config
        # Groups are moved to checkpoints that have been written: those that an earlier poll returned.
        if config["sync.group.offsets.enabled"] and now >= self._next_sync_s:
            self._sync_groups()
            self._next_sync_s = now + float(config["sync.group.offsets.interval.seconds"])
        if now < self._next_s:
            self.context.stopping.wait(min(self._next_s - now, WAIT_S))
            return []
        moved = list(self._moved())
        self._next_s = time.monotonic() + max(
            float(config["emit.checkpoints.interval.seconds"]), INTERVAL_S_MIN
        )
        return [self._record(row) for row in moved]

    def _moved(self) -> Iterable[Checkpoint]:
        try:
            # Offsets first: a group cannot have read what was copied only after this was asked.
            offsets_by_group = self._source.groups.offsets(self._groups)
        except ClientError as error:
            raise RetriableError(
                f"offsets of groups of {self._flow.source} cannot be read: {error}"
            ) from error
        self._syncs.read_on()
        for group, offsets in offsets_by_group.done.items():
            for place, committed in offsets.items():
                checkpoint = self._translated(group, place, committed)
                if checkpoint is None:
                    continue
                rows = self._known.setdefault(group, {})
                if is_newer(rows.get((checkpoint.topic, checkpoint.partition)), checkpoint):
                    rows[checkpoint.topic, checkpoint.partition] = checkpoint
                    yield checkpoint
        for group, refusal in offsets_by_group.failed.items():
            log.warning("offsets of a group cannot be read", extra={"group": group, "reason": str(refusal)})

    def _translated(self, group: str, place: Partition, committed: CommittedOffset) -> Checkpoint | None:
        flow = self._flow
        if not flow.topics.takes(place.topic):
            return None
        offset = self._store.translate(place.topic, place.partition, committed.offset)
        if offset is None or offset < 0:
            return None
        topic = flow.policy.renamed(place.topic, flow.source, flow.target)
        return Checkpoint(group, topic, place.partition, committed.offset, offset, committed.metadata)

    def _record(self, row: Checkpoint) -> SourceRecord:
        return SourceRecord(
            self._topic,
            row.value(),
            row.key(),
            OPTIONAL_BYTES,
            OPTIONAL_BYTES,
            timestamp_ms=time.time_ns() // 1_000_000,
            partition=0,
            source_partition={"group": row.group, "topic": row.topic, "partition": row.partition},
            source_offset={"offset": 0},
        )

    def written(self, record: SourceRecord, topic: str, partition: int, offset: int) -> None:
        """See SourceConnector."""
        place = record.source_partition
        if place is None or record.timestamp_ms is None:
            return
        names = (str(place["group"]), str(place["topic"]), str(place["partition"]))
        spread = self._latencies.setdefault((self._flow.source, self._flow.target, *names), Spread())
        spread.turn(time.monotonic())
        spread.note(time.time_ns() // 1_000_000 - record.timestamp_ms)

    def samples(self) -> Iterator[Sample]:
        """See SourceConnector."""
        for labels, spread in list(self._latencies.items()):
            yield from spread.samples(CHECKPOINTS, labels)

    # --- groups of the target -------------------------------------------------------------------------

    def _sync_groups(self) -> None:
        """Moves groups of the target on that have no members there; never back."""
        wanted = {group: rows for group in self._groups if (rows := self._known.get(group))}
        if not wanted:
            return
        try:
            states = self._target.groups.describe(wanted)
            idle = [
                group
                for group in wanted
                if (group in states.done and states.done[group].state.lower() in IDLE)
                or getattr(states.failed.get(group), "code", None) == ErrorCode.GROUP_ID_NOT_FOUND
            ]
            for group, refusal in states.failed.items():
                if getattr(refusal, "code", None) != ErrorCode.GROUP_ID_NOT_FOUND:
                    log.warning(
                        "a group of the target is not moved: its members cannot be seen",
                        extra={"group": group, "reason": str(refusal)},
                    )
            present = self._target.groups.offsets(idle).done
            for group in idle:
                self._sync_group(group, wanted[group], present.get(group, {}))
        except ClientError as error:
            raise RetriableError(f"groups of {self._flow.target} cannot be moved: {error}") from error

    def _sync_group(
        self, group: str, rows: Mapping[Place, Checkpoint], present: Mapping[Partition, CommittedOffset]
    ) -> None:
        changes: dict[Partition, int | CommittedOffset] = {}
        for place, row in rows.items():
            before = present.get(Partition(*place))
            if before is None or before.offset < row.downstream:
                changes[Partition(*place)] = CommittedOffset(row.downstream, None, row.metadata)  # type: ignore[arg-type]
        if not changes:
            return
        try:
            self._target.groups.alter_offsets(group, changes).require()
        except ResourceError as error:
            # Its members came in this moment, or a topic of it is not in the target yet.
            log.info("a group was not moved", extra={"group": group, "reason": str(error)})

    def stop(self) -> None:
        """See SourceConnector."""
        for client in getattr(self, "_open", ()):
            client.close()
