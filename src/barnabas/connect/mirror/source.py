"""MirrorSourceConnector: copies the records of topics into the same partitions of their copies, and notes now and then which
offset of the copy belongs to which of the source.

Source: Kafka's MirrorSourceConnector, MirrorSourceTask, OffsetSyncWriter.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from barnabas.admin import LATEST
from barnabas.admin import TopicPartition as Partition
from barnabas.client.errors import ClientError
from barnabas.client.patterns import PatternError
from barnabas.connect.connectors import SourceConnector, SourceContext
from barnabas.connect.converters.finding import make_converter, prefixed
from barnabas.connect.errors import ConnectError, RetriableError
from barnabas.connect.mirror.flow import SOURCE, TARGET, Flow, message_of, require_topic
from barnabas.connect.mirror.formats import OffsetSync
from barnabas.connect.mirror.measures import Copied
from barnabas.connect.mirror.options import PACKAGE, start_ms
from barnabas.connect.mirror.options import SOURCE as OPTIONS
from barnabas.connect.mirror.syncs import SyncRule
from barnabas.connect.mirror.upkeep import Upkeep
from barnabas.connect.options import Config
from barnabas.connect.records import Header, Json, SourceRecord
from barnabas.connect.schemas import OPTIONAL_BYTES
from barnabas.observe.metric import Sample

log = logging.getLogger("barnabas.connect")

MESSAGES_MAX: Final = 4_000
POLL_MAX_S: Final = 1.0
REST_S: Final = 0.5
"""How long a partition must be at rest before the sync of its last record is written."""
START_S: Final = 60.0
LOOK_S: Final = 1.0
"""How often it is noted where the source ends, for the lag."""
NEVER_S: Final = 365 * 86_400.0
RESET: Final = "auto.offset.reset"
PROVENANCE: Final = "mirror.from"
"""A header of copied records: ALIAS/TOPIC/PARTITION/OFFSET; one for each cluster that they have come through."""
OFFSET: Final = "offset"
GONE: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
FOR_EVER: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)

Place = tuple[str, int]


class MirrorSource(SourceConnector):
    """Consumes the source; its partitions are those of the source's topics."""

    doc = "Topics of another cluster, with their partitions, options and access rules (MirrorMaker 2)."
    aliases = (f"{PACKAGE}.MirrorSourceConnector",)
    options = OPTIONS
    polls_together: ClassVar[bool] = True
    poll_interval_ms: ClassVar[int] = 0

    # --- the connector --------------------------------------------------------------------------------

    @classmethod
    def look_interval_s(cls, config: Config) -> float:
        """The shortest of the intervals of topics, options and rules."""
        intervals = [
            float(config[f"{part}.interval.seconds"])
            for part in ("refresh.topics", "sync.topic.configs", "sync.topic.acls")
            if config[f"{part}.enabled"] and config[f"{part}.interval.seconds"] > 0
        ]
        return min(intervals, default=NEVER_S)

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        wrong = check_flow(config)
        for part in ("key", "value"):
            try:
                _reader(config, part)
            except ConnectError as error:
                wrong[f"source.{part}.converter"] = str(error)
        return wrong

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._flow = Flow(config)
        self._consumer: Consumer | None = None
        self._syncs: Producer | None = None
        self._copied: dict[Place, Copied] = {}
        if context.partitions:
            self._begin(context)

    def partitions(self) -> Sequence[Json]:
        """Those of all topics that are copied; the target's topics are brought up to date first."""
        flow, config = self._flow, self.config
        if not config["enabled"]:
            return []
        with flow.admin(SOURCE) as source, flow.admin(TARGET) as target:
            if config["emit.offset-syncs.enabled"]:
                side = source if flow.syncs_side == SOURCE else target
                require_topic(
                    side, flow.syncs_alias, flow.syncs_topic, config["offset-syncs.topic.replication.factor"]
                )
            topics = Upkeep(flow, source, target).topics()
        return [
            place_of(flow.source, name, row.number)
            for name, topic in topics.items()
            for row in topic.partitions
        ]

    @classmethod
    def check_offsets(cls, config: Config, offsets: Sequence[tuple[Json, Json | None]]) -> None:
        """See SourceConnector. Source: Kafka's MirrorUtils.validateSourcePartition*."""
        for partition, offset in offsets:
            if set(partition) != {"cluster", "topic", "partition"}:
                raise ConnectError(
                    f"{dict(partition)} is not a partition of this connector: it has cluster, topic and partition"
                )
            at = 0 if offset is None else offset.get(OFFSET)
            if isinstance(at, bool) or not isinstance(at, int) or at < 0:
                raise ConnectError(
                    "The value for the 'offset' key in the offset should be a non-negative integer"
                )

    # --- a task ---------------------------------------------------------------------------------------

    def _begin(self, context: SourceContext) -> None:
        """Goes on after what has been copied. Raises ConnectError."""
        flow, config = self._flow, self.config
        self._alias = flow.source
        self._remote: dict[str, str] = {}
        self._places: dict[Place, Json] = {}
        self._marks = config["provenance.headers.enabled"]
        self._mark_of_target = f"{flow.target}/".encode()
        self._keeps = config["partitions"] == "keep"
        self._read_key, self._read_value = (_reader(config, part) for part in ("key", "value"))
        self._timeout_s = min(config["consumer.poll.timeout.ms"] / 1000, POLL_MAX_S)
        self._rules: dict[Place, SyncRule] = {}
        self._at_rest: dict[Place, tuple[float, OffsetSync]] = {}
        self._due: list[OffsetSync] = []
        self._next_look_s = 0.0
        self._unread: list[Any] = []
        # Where a log has no such offset, the records that are gone are named before it is read on; see _take_error.
        self._consumer = flow.consumer(SOURCE, {"enable.partition.eof": True}, {RESET: "error"})
        if config["emit.offset-syncs.enabled"]:
            self._syncs = flow.producer(flow.syncs_side)
        begins: dict[Place, int] = {}
        rows = []
        for place, offset in zip(context.partitions, context.offsets(context.partitions), strict=True):
            name, number = str(place["topic"]), int(place["partition"])
            if offset is not None:
                begins[name, number] = int(offset[OFFSET]) + 1
            labels = (flow.source, flow.target, self._remote_of(name), str(number))
            self._copied[name, number] = Copied(labels)
            rows.append(TopicPartition(name, number, begins.get((name, number), self._first())))
        self._begin_at_time([row for row in rows if (row.topic, row.partition) not in begins])
        self._note_losses([row for row in rows if row.offset >= 0])
        for row in rows:
            self._copied[row.topic, row.partition].position = max(row.offset, -1)
        if self._syncs is not None and begins:
            self._sync_begin(begins)
        self._consumer.assign(rows)
        log.info("copying", extra={"flow": f"{flow.source}->{flow.target}", "partitions": len(rows)})

    def _first(self) -> int:
        """Where partitions begin of which nothing was copied yet."""
        reset = self._flow.properties(SOURCE, "consumer").get(RESET, "earliest")
        return int(OFFSET_END if reset in ("latest", "largest", "end") else OFFSET_BEGINNING)

    def _begin_at_time(self, rows: Sequence[TopicPartition]) -> None:
        """Sets the offsets of partitions that nothing was copied of yet. Raises RetriableError."""
        since_ms = start_ms(self.config["start.from"], time.time_ns() // 1_000_000)
        if since_ms is None or not rows:
            return
        assert self._consumer is not None
        asked = [TopicPartition(row.topic, row.partition, since_ms) for row in rows]
        try:
            offsets = self._consumer.offsets_for_times(asked, START_S)
        except KafkaException as error:
            raise RetriableError(f"{self._alias} cannot look up a time: {message_of(error)}") from error
        for row, place in zip(rows, offsets, strict=True):
            row.offset = OFFSET_END if place.offset < 0 else place.offset

    def _note_losses(self, rows: Sequence[TopicPartition]) -> None:
        """Says which records of the source are gone before they were copied, and where its log is another one: there it is
        read from its beginning. Raises RetriableError."""
        if not rows:
            return
        with self._flow.admin(SOURCE) as source:
            try:
                bounds_by_partition = source.records.bounds([(row.topic, row.partition) for row in rows]).done
            except ClientError as error:
                raise RetriableError(f"{self._alias} does not say where its logs begin: {error}") from error
        for row in rows:
            bounds = bounds_by_partition.get(Partition(row.topic, row.partition))
            if bounds is None or bounds.start <= row.offset <= bounds.end:
                continue
            place = {"cluster": self._alias, "partition": f"{row.topic}-{row.partition}"}
            if row.offset < bounds.start:
                self._copied[row.topic, row.partition].missed += bounds.start - row.offset
                log.error(
                    "retention at the source has overtaken the mirror: records were deleted before they were copied",
                    extra={
                        **place,
                        "from": row.offset,
                        "to": bounds.start,
                        "count": bounds.start - row.offset,
                    },
                )
            else:
                log.error(
                    "the topic was made again, or has lost records: it is copied from its beginning",
                    extra={**place, "copied_up_to": row.offset, "end": bounds.end},
                )
            row.offset = bounds.start

    def poll(self, partition: Json, offset: Json | None) -> list[SourceRecord]:
        """See SourceConnector. Records of all partitions of the task."""
        assert self._consumer is not None
        now_s = time.monotonic()
        self._write_syncs_at_rest(now_s)
        if now_s >= self._next_look_s:
            self._look(now_s)
        messages = self._unread or self._fetched()
        self._unread = []
        records: list[SourceRecord] = []
        self._now_ms = time.time_ns() // 1_000_000
        for at, message in enumerate(messages):
            error = message.error()
            try:
                if error is not None:
                    self._take_error(error, message)
                elif (copied := self._record(message)) is not None:
                    records.append(copied)
            except RetriableError:
                # What came before it is returned now, and the rest next time: nothing of it is fetched again.
                again = error is None or error.code() == KafkaError._AUTO_OFFSET_RESET
                self._unread = messages[at if again else at + 1 :]
                if not records:
                    raise
                return records
        return records

    def _fetched(self) -> list[Any]:
        assert self._consumer is not None
        first = self._consumer.poll(self._timeout_s)
        return [] if first is None else [first, *self._consumer.consume(MESSAGES_MAX - 1, 0)]

    def _record(self, message: Any) -> SourceRecord | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        place = self._places.get((topic, partition))
        if place is None:
            place = self._places[topic, partition] = place_of(self._alias, topic, partition)
            self._remote[topic] = self._remote_of(topic)
        headers: tuple[Header, ...] = ()
        message_headers = message.headers()
        if message_headers:
            headers = tuple(Header(name, value, OPTIONAL_BYTES) for name, value in message_headers)
        if self._marks:
            if self._was_in_target(message_headers):
                return None
            mark = f"{self._alias}/{topic}/{partition}/{offset}".encode()
            headers = (*headers, Header(PROVENANCE, mark, OPTIONAL_BYTES))
        kind, timestamp_ms = message.timestamp()
        key, key_schema = message.key(), OPTIONAL_BYTES
        value, value_schema = message.value(), OPTIONAL_BYTES
        copied = self._copied[topic, partition]
        copied.position, copied.reached_ms = offset + 1, timestamp_ms
        copied.bytes += len(value) if value else 0
        copied.ages.note(self._now_ms - timestamp_ms)
        if self._read_key is not None:
            key_schema, key = self._read_key(topic, key, message_headers or [])
        if self._read_value is not None:
            value_schema, value = self._read_value(topic, value, message_headers or [])
        return SourceRecord(
            self._remote[topic],
            value,
            key,
            value_schema,
            key_schema,
            headers,
            timestamp_ms if kind else None,
            partition if self._keeps else None,
            place,
            {OFFSET: offset},
        )

    def _remote_of(self, topic: str) -> str:
        return self._flow.policy.remote(self._alias, topic)

    def _was_in_target(self, headers: Any) -> bool:
        return any(
            name == PROVENANCE and value is not None and value.startswith(self._mark_of_target)
            for name, value in headers or ()
        )

    def _look(self, now_s: float) -> None:
        """Notes where the source ends, as the last fetches said."""
        assert self._consumer is not None
        self._next_look_s = now_s + LOOK_S
        for (topic, number), copied in self._copied.items():
            copied.turn(now_s)
            _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True)
            copied.end = max(copied.end, end)

    def samples(self) -> Iterator[Sample]:
        """See SourceConnector."""
        now_ms = time.time_ns() // 1_000_000
        for copied in list(self._copied.values()):
            yield from copied.samples(now_ms)

    def _overtaken(self, place: Place) -> None:
        """The source has nothing at the offset where copying would go on. Raises RetriableError."""
        assert self._consumer is not None
        row = TopicPartition(*place, self._copied[place].position)
        if row.offset < 0:
            row.offset = self._first()
        else:
            self._note_losses([row])
        self._consumer.incremental_unassign([TopicPartition(*place)])
        self._copied[place].end = -1
        self._consumer.incremental_assign([row])

    def _take_error(self, error: Any, message: Any) -> None:
        """Raises RetriableError, after which the message comes again if nothing has been done about it; ConnectError."""
        topic = message.topic()
        if error.code() == KafkaError._PARTITION_EOF:
            # Behind the last record there may be markers of transactions, which nobody copies.
            copied = self._copied[topic, message.partition()]
            copied.position = copied.end = max(message.offset(), copied.position)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._overtaken((topic, message.partition()))
        elif error.code() in GONE:
            log.warning("a topic of the source is gone", extra={"topic": topic})
            self.context.reconfigure()
        elif error.code() in FOR_EVER:
            raise ConnectError(f"{self._alias} refuses to be read: {error.str()}")
        elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
            raise RetriableError(f"the brokers of {self._alias} do not answer: {error.str()}")
        else:
            log.info("the source is read again", extra={"topic": topic, "reason": error.str()})

    # --- offset syncs ---------------------------------------------------------------------------------

    def written(self, record: SourceRecord, topic: str, partition: int, offset: int) -> None:
        """See SourceConnector."""
        if record.source_partition is None or record.source_offset is None:
            return
        place = (str(record.source_partition["topic"]), int(record.source_partition["partition"]))
        copied = self._copied[place]
        copied.count += 1
        if record.timestamp_ms is not None:
            copied.latencies.note(time.time_ns() // 1_000_000 - record.timestamp_ms)
        if self._syncs is None or partition != place[1]:
            return  # the offsets of both sides are not comparable
        rule = self._rules.get(place)
        if rule is None:
            rule = self._rules[place] = SyncRule(int(self.config["offset.lag.max"]))
        upstream = int(record.source_offset[OFFSET])
        if rule.note(upstream, offset):
            self._due.append(OffsetSync(*place, upstream, offset))

    def committed(self, partition: Json, offset: Json) -> None:
        """See SourceConnector: only now are the offsets of the copy certain."""
        if self._syncs is None:
            return
        if self._due:
            self._write_due()
        place = (str(partition["topic"]), int(partition["partition"]))
        sync = self._rules[place].due_at_rest() if place in self._rules else None
        if sync is None:
            self._at_rest.pop(place, None)
        else:
            self._at_rest[place] = (time.monotonic() + REST_S, OffsetSync(*place, *sync))

    def _write_syncs_at_rest(self, now_s: float) -> None:
        """Those that are due at a time."""
        places = [place for place, (at_s, _) in self._at_rest.items() if at_s <= now_s]
        self._due += [self._at_rest.pop(place)[1] for place in places]
        if self._due:
            self._write_due()

    def _sync_begin(self, offsets: Mapping[Place, int]) -> None:
        """A sync of where each partition goes on: `offsets` in the source, and the end of the copy. What was copied last
        before a task was killed may have no sync of its own."""
        names = {place: Partition(self._remote_of(place[0]), place[1]) for place in offsets}
        with self._flow.admin(TARGET) as target:
            try:
                ends = target.records.offsets(dict.fromkeys(names.values(), LATEST)).done
            except ClientError as error:
                raise RetriableError(f"the ends of the copies cannot be read: {error}") from error
        for place, offset in offsets.items():
            end = ends.get(names[place])
            if end is not None and end.offset:
                self._due.append(OffsetSync(*place, offset, end.offset))
        if self._due:
            self._write_due()

    def _write_due(self) -> None:
        assert self._syncs is not None
        topic = self._flow.syncs_topic
        for sync in self._due:
            try:
                self._syncs.produce(topic, sync.value(), sync.key(), partition=0)
            except BufferError:
                # The cluster of this topic does not answer: records are copied on, and translations stay behind.
                log.warning("offset syncs are left out", extra={"topic": topic, "count": len(self._due)})
                break
            except KafkaException as error:
                raise ConnectError(
                    f"an offset sync cannot be written to {topic}: {message_of(error)}"
                ) from error
        self._due.clear()
        self._syncs.poll(0)

    def stop(self) -> None:
        """See SourceConnector."""
        if getattr(self, "_consumer", None) is not None:
            assert self._consumer is not None
            self._consumer.close()
        if getattr(self, "_syncs", None) is not None:
            assert self._syncs is not None
            # Of records that were not committed there are none among these.
            self._due.clear()
            self._write_syncs_at_rest(math.inf)
            self._syncs.flush(5)


def _reader(config: Config, part: str) -> Callable[[str, Any, Any], tuple[Any, Any]] | None:
    """Reads keys or values with a converter; None if they stay bytes. Raises OptionError."""
    name = config[f"source.{part}.converter"]
    if not name:
        return None
    converter = make_converter(str(name), prefixed(config, f"source.{part}.converter."), part == "key")
    decoders: dict[str, Any] = {}

    def read(topic: str, data: Any, headers: Any) -> tuple[Any, Any]:
        decode = decoders.get(topic)
        if decode is None:
            decode = decoders[topic] = converter.decoder(topic)
        return decode(data, headers)

    return read


def place_of(alias: str, topic: str, partition: int) -> Json:
    """A partition as Kafka's worker stores it."""
    return {"cluster": alias, "topic": topic, "partition": partition}


def check_flow(config: Config) -> dict[str, str]:
    """What is wrong with a configuration as a whole: messages by option."""
    flow = Flow(config)
    if flow.source == flow.target:
        return {"target.cluster.alias": f"source and target are both called {flow.source}"}
    try:
        _ = flow.topics
        for side in (SOURCE, TARGET):
            with flow.admin(side):
                pass
    except PatternError as error:
        return {"topics": str(error)}
    except ConnectError as error:
        return {getattr(error, "option", "") or "connector.class": str(error)}
    return {}
