"""The options of the Spark source and sink, checked before anything starts. Names are those of Spark's own Kafka
source.

Names are case-insensitive, as everywhere in Spark. `kafka.*` options are passed to the client. An invalid option raises
OptionError, whose message is one line with the option, its value and what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.client.patterns import PatternError, java_pattern
from barnabas.pipelines.formats.columns import ARROW_TYPES, BASE_COLUMNS
from barnabas.records.compression import Codec, codec_of
from barnabas.records.units import Offset
from barnabas.schemas.framing import Schema

TopicPartition = tuple[str, int]
DataLoss = Literal["stop", "earliest", "latest"]
Where = Literal["earliest", "latest"]

PARTS: Final[tuple[Literal["key", "value"], ...]] = ("key", "value")
EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Named:
    """An option. name: spelt as in Spark's documentation. in_files: whether pipeline files may set it; others are for
    Spark programs. internal: only set by this package, and never shown."""

    name: str
    doc: str
    in_files: bool = True
    internal: bool = False


def _by_name(*options: Named) -> dict[str, Named]:
    return {option.name.lower(): option for option in options}


SCHEMA_NAMES: Final = (
    Named(
        "value.schema", "registry: values are structs, with the schemas of a schema registry", in_files=False
    ),
    Named("key.schema", "registry: the same for keys", in_files=False),
    Named("value.subject", "the subject of values; default: TOPIC-value", in_files=False),
    Named("key.subject", "the subject of keys; default: TOPIC-key", in_files=False),
    Named("schema.registry.url", "the registry's address, for example http://localhost:8081", in_files=False),
)
SOURCE_NAMES: Final = _by_name(
    Named("subscribe", "topics to read, separated by commas", in_files=False),
    Named(
        "subscribePattern",
        "a regular expression, in Java's syntax, for topics to read, also those created later",
        in_files=False,
    ),
    Named("assign", 'partitions to read, as JSON: {"topic": [0, 1]}', in_files=False),
    Named(
        "startingOffsets",
        'earliest, latest or JSON: {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest); default: latest for a '
        "stream, earliest for a batch read",
    ),
    Named("startingTimestamp", "begin at the first record at or after this time, in milliseconds"),
    Named("startingOffsetsByTimestamp", 'the same per partition, as JSON: {"topic": {"0": 1700000000000}}'),
    Named("startingOffsetsByTimestampStrategy", "if no record is that recent: error (default) or latest"),
    Named("startingGroup", "begin at this consumer group's offsets; at startingOffsets if it has none"),
    Named("endingOffsets", "latest or JSON: where a batch read ends", in_files=False),
    Named(
        "endingTimestamp",
        "a batch read ends before the first record at or after this time, in milliseconds",
        in_files=False,
    ),
    Named("endingOffsetsByTimestamp", "the same per partition, as JSON", in_files=False),
    Named("maxOffsetsPerTrigger", "at most this many records in a micro-batch"),
    Named(
        "minOffsetsPerTrigger",
        "a micro-batch waits for this many records, or until maxTriggerDelay has passed",
    ),
    Named(
        "maxTriggerDelay", "how long minOffsetsPerTrigger may hold a micro-batch back, like 15m (the default)"
    ),
    Named("maxRecordsPerPartition", "at most this many records in a Spark task: larger ranges are split"),
    Named("minPartitions", "split large ranges so that about this many Spark tasks or more read"),
    Named(
        "failOnDataLoss", "false: continue at the earliest record if records are lost (onDataLoss=earliest)"
    ),
    Named("onDataLoss", "if records are lost: stop (default), or continue at earliest or latest"),
    Named("includeHeaders", "true: add a column headers", in_files=False),
    Named(
        "columns",
        "only these columns, separated by commas; others are not sent to Spark",
        in_files=False,
    ),
    Named("commitGroup", "the consumer group to commit progress to after each micro-batch", in_files=False),
    Named("rowsPerBatch", "rows in one Arrow batch"),
    Named("checkCrcs", "false: do not verify the checksums of record batches"),
    Named("checkpointLocation", "the query's checkpoint, where its first offsets are stored", in_files=False),
    Named("firstOffsets", "the query's first offsets, from its checkpoint (JSON)", internal=True),
    Named(
        "direct",
        "program for processing lines where they are read, see direct/planning.py (JSON)",
        internal=True,
    ),
    Named("stopFile", "while this file exists no new micro-batch begins", internal=True),
    Named("kafkaConsumer.pollTimeoutMs", "how long one request to a broker may take, in milliseconds"),
    Named(
        "fetchOffset.numRetries",
        "how often a failed request for offsets is tried again; default: for a minute",
    ),
    Named("fetchOffset.retryIntervalMs", "the pause before a request is tried again, in milliseconds"),
    Named("groupIdPrefix", "accepted and ignored; this source does not join a group"),
    *SCHEMA_NAMES,
    Named(
        "undecodable",
        "records that cannot be decoded: fail (default), or null, with the reason in a column error",
        in_files=False,
    ),
)
SINK_NAMES: Final = _by_name(
    Named("topic", "the topic to write to when a row names none", in_files=False),
    *SCHEMA_NAMES,
    Named(
        "deadLetters",
        "the topic for rows that their own topic rejects; without it they fail the query",
        in_files=False,
    ),
    Named(
        "exactlyOnce",
        "false: a micro-batch that is repeated after a failure is written again; true needs checkpointLocation or "
        "kafka.transactional.id",
    ),
    Named("pipeline", "the pipeline's name, for dead letters", internal=True),
    Named("batchId", "the number of foreachBatch's micro-batch", internal=True),
    Named("queryId", "the query that foreachBatch belongs to", internal=True),
    Named("replay", "true: the rows are replayed records, which their dead letters note", internal=True),
    Named("parcels", "true: rows may be parcels, see direct/parcels.py", internal=True),
    Named("ownTopics", "topics whose absence fails the query", internal=True),
    Named("includeHeaders", "accepted and ignored; a column headers is always written", in_files=False),
    Named("checkpointLocation", "belongs to Spark", internal=True),
    Named("path", "belongs to Spark", internal=True),
    Named("queryName", "belongs to Spark", internal=True),
    Named("outputMode", "belongs to Spark", internal=True),
)


def shown_names(known: Mapping[str, Named], *, in_files: bool) -> list[str]:
    """The names that messages may suggest."""
    return [o.name for o in known.values() if not o.internal and (o.in_files or not in_files)]


FETCH_BYTES: Final = 8 << 20
ROWS_PER_BATCH: Final = 16_384


class OptionError(ValueError):
    """An option of the source or sink is not usable."""


def client_options(options: Mapping[str, str]) -> ClientOptions:
    """The client's options from the `kafka.*` options. Raises OptionError."""
    lowered = {name.lower(): value for name, value in options.items()}
    kafka = {n.removeprefix("kafka."): v for n, v in lowered.items() if n.startswith("kafka.")}
    if "bootstrap.servers" not in kafka:
        raise OptionError("option kafka.bootstrap.servers is not set: name at least one broker as host:port")
    try:
        return ClientOptions.from_kafka(kafka)
    except ClientError as error:
        raise OptionError(f"kafka.{error}") from error


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or end: an offset (or -2, -1) or a time per partition; `otherwise` for partitions that have
    neither.

    timestamp_ms: one time for all partitions. group: a consumer group, whose offsets take precedence. end_when_younger:
    if no record is at or after the time, take the partition's end; otherwise that is an error. is_stated: whether
    `otherwise` was chosen by the options, and is not a default.
    """

    otherwise: Where
    offsets: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    group: str | None = None
    end_when_younger: bool = True
    is_stated: bool = field(
        default=False, repr=False
    )  # not part of the name of a program's stored first offsets


@dataclass(frozen=True, slots=True)
class SchemaPlace:
    """Keys or values that have the schemas of a subject. schema: for reading or writing, once it has been looked up."""

    part: Literal["key", "value"]
    url: str
    subject: str
    schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of the readers; picklable."""

    client: ClientOptions
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    starting: Position
    ending: Position
    rows_per_trigger_max: int | None
    partitions_min: int
    data_loss: DataLoss
    columns: tuple[str, ...]
    commit_group: str | None
    rows_per_batch: int
    read_committed: bool
    fetch_bytes: int
    check_crcs: bool
    stop_file: str | None = None
    checkpoint: str | None = None
    first: str | None = None
    direct: str | None = None
    rows_per_trigger_min: int | None = None
    trigger_delay_s: float = 900.0
    rows_per_task_max: int | None = None
    offset_retries_max: int | None = None
    schemas: tuple[SchemaPlace, ...] = ()
    keeps_undecodable: bool = False

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns to read: those of the result, and headers if they may name schemas."""
        return self.columns if self.headers or not self.schemas else (*self.columns, "headers")

    @property
    def headers(self) -> bool:
        """Whether the result has a column headers."""
        return "headers" in self.columns


def batch_options(options: SourceOptions) -> SourceOptions:
    """The options for a batch read, which begins at the earliest record unless its options say where, as in Spark."""
    starting = options.starting
    if starting.is_stated:
        return options
    return replace(options, starting=replace(starting, otherwise="earliest"))


def source_options(raw: Mapping[str, str]) -> SourceOptions:
    """Checks the options of a reader. Raises OptionError."""
    options = {name.lower(): value for name, value in raw.items()}
    _refuse_unknown(options, SOURCE_NAMES, "source")
    chosen = [n for n in ("subscribe", "subscribepattern", "assign") if n in options]
    if len(chosen) != 1:
        chosen_text = " and ".join(chosen) or "none of them"
        raise OptionError(f"one of subscribe, subscribePattern and assign is needed; {chosen_text} is set")
    topics = tuple(part.strip() for part in options.get("subscribe", "").split(",") if part.strip())
    if "subscribe" in options and not topics:
        raise OptionError("subscribe is empty: name at least one topic")
    pattern = options.get("subscribepattern")
    if pattern is not None:
        try:
            java_pattern(pattern)
        except PatternError as error:
            raise OptionError(f"subscribePattern={error}") from error
    isolation = options.get("kafka.isolation.level", "read_uncommitted")
    if isolation not in ("read_uncommitted", "read_committed"):
        raise OptionError(f"kafka.isolation.level={isolation} is not read_uncommitted or read_committed")
    limit = _number(options, "maxoffsetspertrigger", "maxOffsetsPerTrigger", None)
    return SourceOptions(
        client=_timed(client_options(options), options),
        topics=topics,
        pattern=pattern,
        assigned=_assigned(options.get("assign")),
        starting=_position(options, "starting"),
        ending=_position(options, "ending"),
        rows_per_trigger_max=limit,
        partitions_min=_number(options, "minpartitions", "minPartitions", 1) or 1,
        data_loss=_data_loss(options),
        columns=_columns(options),
        commit_group=options.get("commitgroup") or None,
        rows_per_batch=_number(options, "rowsperbatch", "rowsPerBatch", ROWS_PER_BATCH) or ROWS_PER_BATCH,
        read_committed=isolation == "read_committed",
        fetch_bytes=_number(options, "kafka.fetch.max.bytes", "kafka.fetch.max.bytes", FETCH_BYTES)
        or FETCH_BYTES,
        check_crcs=_flag(options, "checkcrcs", "checkCrcs", True),
        stop_file=options.get("stopfile"),
        checkpoint=options.get("checkpointlocation"),
        first=options.get("firstoffsets"),
        direct=options.get("direct"),
        rows_per_trigger_min=_number(options, "minoffsetspertrigger", "minOffsetsPerTrigger", None),
        trigger_delay_s=delay_seconds(options),
        rows_per_task_max=_number(options, "maxrecordsperpartition", "maxRecordsPerPartition", None),
        offset_retries_max=_number(options, "fetchoffset.numretries", "fetchOffset.numRetries", None, low=0),
        schemas=_schemas(options, _only_topic(topics, options)),
        keeps_undecodable=_keeps_undecodable(options),
    )


def _only_topic(topics: tuple[str, ...], options: Mapping[str, str]) -> str | None:
    names = topics or tuple({topic for topic, _ in _assigned(options.get("assign"))})
    return names[0] if len(names) == 1 else None


def _schemas(options: Mapping[str, str], topic: str | None) -> tuple[SchemaPlace, ...]:
    """Keys and values with schemas. topic: the only one; None if there are several. Raises OptionError."""
    url = options.get("schema.registry.url", "")
    places = []
    for part in PARTS:
        kind, subject = options.get(f"{part}.schema"), options.get(f"{part}.subject")
        if kind is None:
            if subject is not None:
                raise OptionError(f"{part}.subject needs {part}.schema=registry")
            continue
        if kind.lower() != "registry":
            raise OptionError(f"{part}.schema={kind} is not registry")
        if not url:
            raise OptionError(
                f"{part}.schema=registry needs schema.registry.url, for example http://localhost:8081"
            )
        if subject is None and topic is None:
            raise OptionError(f"{part}.schema=registry of several topics needs {part}.subject")
        places.append(SchemaPlace(part, url, subject or f"{topic}-{part}"))
    return tuple(places)


def _keeps_undecodable(options: Mapping[str, str]) -> bool:
    value = options.get("undecodable", "fail").lower()
    if value not in ("fail", "null"):
        raise OptionError(f"undecodable={options['undecodable']} is not fail or null")
    return value == "null"


def _timed(client: ClientOptions, options: Mapping[str, str]) -> ClientOptions:
    """The client's options with Spark's options for timeouts and pauses applied."""
    wait = _number(options, "kafkaconsumer.polltimeoutms", "kafkaConsumer.pollTimeoutMs", None)
    pause = _number(options, "fetchoffset.retryintervalms", "fetchOffset.retryIntervalMs", None)
    return replace(
        client,
        request_timeout_s=client.request_timeout_s if wait is None else wait / 1000,
        backoff_s=client.backoff_s if pause is None else pause / 1000,
    )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options of the writers; picklable. batch_bytes: of a record batch, uncompressed. exactly_once: None: if the
    sink has what it needs for it. transactional_id: the prefix of transactional ids. batch: query and number of
    foreachBatch's micro-batch."""

    client: ClientOptions
    topic: str | None
    codec: Codec
    level: int | None
    batch_bytes: int
    dead_letters: str | None = None
    pipeline: str | None = None
    own_topics: tuple[str, ...] = ()
    replay: bool = False
    parcels: bool = False
    exactly_once: bool | None = None
    transactional_id: str | None = None
    transaction_timeout_ms: int | None = None
    checkpoint: str | None = None
    batch: tuple[str, int] | None = None
    schemas: tuple[SchemaPlace, ...] = ()


LEVELS: Final = {Codec.GZIP: (-1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}
"""The lowest and the highest level of a codec, as in Kafka."""


def sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Checks the options of a writer. Raises OptionError."""
    options = {name.lower(): value for name, value in raw.items()}
    _refuse_unknown(options, SINK_NAMES, "sink")
    acks = options.get("kafka.acks", "all")
    if acks not in ("all", "-1"):
        raise OptionError(f"kafka.acks={acks}: the sink always waits for all in-sync replicas")
    try:
        codec = codec_of(options.get("kafka.compression.type", "none"))
    except ValueError as error:
        raise OptionError(f"kafka.compression.type: {error}") from error
    return SinkOptions(
        client=client_options(options),
        topic=options.get("topic"),
        codec=codec,
        level=_level(options, codec),
        batch_bytes=_number(options, "kafka.batch.size", "kafka.batch.size", 500_000) or 500_000,
        dead_letters=options.get("deadletters") or None,
        pipeline=options.get("pipeline"),
        replay=options.get("replay") == "true",
        parcels=options.get("parcels") == "true",
        own_topics=tuple(name for name in options.get("owntopics", "").split(",") if name),
        exactly_once=_flag(options, "exactlyonce", "exactlyOnce", True) if "exactlyonce" in options else None,
        transactional_id=options.get("kafka.transactional.id") or None,
        transaction_timeout_ms=_number(
            options, "kafka.transaction.timeout.ms", "kafka.transaction.timeout.ms", None
        ),
        checkpoint=options.get("checkpointlocation") or None,
        batch=(options["queryid"], int(options["batchid"])) if "batchid" in options else None,
        schemas=_schemas(options, options.get("topic")),
    )


def _level(options: Mapping[str, str], codec: Codec) -> int | None:
    name = f"kafka.compression.{codec.name.lower()}.level"
    if name not in options:
        return None
    if codec not in LEVELS:
        raise OptionError(f"{name} is set, and {codec.name.lower()} has no levels")
    low, high = LEVELS[codec]
    level = _number(options, name, name, None, low, high)
    if codec is Codec.GZIP and level == 0:
        raise OptionError(f"{name}=0 is not -1, for the default, or a number from 1 to 9")
    return level


def _refuse_unknown(options: Mapping[str, str], known: Mapping[str, Named], what: str) -> None:
    for name in options:
        if not name.startswith("kafka.") and name not in known and name != "path":
            shown = ", ".join(sorted(shown_names(known, in_files=False)))
            raise OptionError(f"the barnabas {what} has no option {name}; allowed: {shown}, kafka.*")


def _number(
    options: Mapping[str, str],
    name: str,
    shown: str,
    default: int | None,
    low: int = 1,
    high: int | None = None,
) -> int | None:
    if name not in options:
        return default
    try:
        value = int(options[name])
    except ValueError:
        value = low - 1
    if value < low or (high is not None and value > high):
        allowed = f"from {low} up" if high is None else f"from {low} to {high}"
        raise OptionError(f"{shown}={options[name]} is not a number {allowed}")
    return value


_UNITS: Final = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(options: Mapping[str, str], name: str, shown: str, default: float) -> float:
    """A duration in Spark's notation (15m, 30s, 500ms), in seconds. Raises OptionError."""
    if name not in options:
        return default
    match = re.fullmatch(r"\s*(\d+)\s*(us|ms|s|m|min|h|d|)\s*", options[name].lower())
    if match is None:
        raise OptionError(f"{shown}={options[name]} is not a duration like 15m, 30s or 500ms")
    return int(match[1]) * _UNITS[match[2]]


def delay_seconds(options: Mapping[str, str]) -> float:
    """How long a micro-batch may wait for `minOffsetsPerTrigger` records. options: with names in lower case. Raises
    OptionError."""
    return _seconds(options, "maxtriggerdelay", "maxTriggerDelay", 900.0)


def _flag(options: Mapping[str, str], name: str, shown: str, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise OptionError(f"{shown}={value} is not true or false")
    return value == "true"


def _data_loss(options: Mapping[str, str]) -> DataLoss:
    policy = options.get("ondataloss")
    if policy is None:
        return "stop" if _flag(options, "failondataloss", "failOnDataLoss", True) else "earliest"
    if policy not in ("stop", "earliest", "latest"):
        raise OptionError(f"onDataLoss={policy} is not stop, earliest or latest")
    return policy  # type: ignore[return-value]  # the test above narrows it


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    by_name = {name.lower(): name for name in ARROW_TYPES}
    if "columns" not in options:
        headers = _flag(options, "includeheaders", "includeHeaders", False)
        return (*BASE_COLUMNS, "headers") if headers else BASE_COLUMNS
    names = [part.strip().lower() for part in options["columns"].split(",") if part.strip()]
    for name in names:
        if name not in by_name:
            raise OptionError(
                f"columns={options['columns']}: there is no column {name}; allowed: {', '.join(by_name.values())}"
            )
    if not names:
        raise OptionError("columns is empty: name at least one")
    return tuple(by_name[name] for name in dict.fromkeys(names))


def _assigned(text: str | None) -> tuple[TopicPartition, ...]:
    if text is None:
        return ()
    value = _json(text, "assign")
    pairs = []
    for topic, partitions in value.items():
        if not isinstance(partitions, list) or not all(isinstance(p, int) and p >= 0 for p in partitions):
            raise OptionError(f'assign={text} is not of the form {{"topic": [0, 1]}}')
        pairs += [(topic, p) for p in partitions]
    if not pairs:
        raise OptionError("assign is empty: name at least one partition")
    return tuple(sorted(set(pairs)))


def _json(text: str, shown: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f"{shown}={text} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise OptionError(f"{shown}={text} is not a JSON object")
    return value


def _per_partition(text: str, shown: str, lowest: int) -> dict[TopicPartition, int]:
    offsets = {}
    for topic, partitions in _json(text, shown).items():
        if not isinstance(partitions, dict):
            raise OptionError(f'{shown}={text} is not of the form {{"topic": {{"0": 23}}}}')
        for partition, value in partitions.items():
            good = partition.isdigit() and isinstance(value, int) and not isinstance(value, bool)
            if not good or value < lowest:
                raise OptionError(f"{shown}: {topic}-{partition}: {value!r} is not a number from {lowest} up")
            offsets[topic, int(partition)] = value
    return offsets


def _position(options: Mapping[str, str], side: Literal["starting", "ending"]) -> Position:
    default: Where = "latest"
    offsets: dict[TopicPartition, Offset] = {}
    shown = f"{side}Offsets"
    text = options.get(f"{side}offsets")
    where: Where = default
    if text is not None:
        word = text.strip().lower()
        if word == "latest":
            where = "latest"
        elif word == "earliest" and side == "starting":
            where = "earliest"
        elif text.strip().startswith("{"):
            offsets = {p: Offset(n) for p, n in _per_partition(text, shown, EARLIEST_OFFSET).items()}
        else:
            words = "earliest, latest" if side == "starting" else "latest"
            raise OptionError(f"{shown}={text} is not {words} or JSON per partition")
    times: dict[TopicPartition, int] = {}
    if f"{side}offsetsbytimestamp" in options:
        times = _per_partition(options[f"{side}offsetsbytimestamp"], f"{shown}ByTimestamp", 0)
    timestamp = options.get(f"{side}timestamp")
    if timestamp is not None and not timestamp.strip().isdigit():
        raise OptionError(f"{side}Timestamp={timestamp} is not a time in milliseconds since 1970")
    return Position(
        otherwise=where,
        offsets=offsets,
        timestamps_ms=times,
        timestamp_ms=None if timestamp is None else int(timestamp),
        group=options.get("startinggroup") if side == "starting" else None,
        end_when_younger=side == "ending" or _strategy(options) == "latest",
        is_stated=text is not None and not offsets,
    )


def _strategy(options: Mapping[str, str]) -> str:
    name = "startingoffsetsbytimestampstrategy"
    strategy = options.get(name, "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"startingOffsetsByTimestampStrategy={options[name]} is not error or latest")
    return strategy
