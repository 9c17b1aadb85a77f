"""The options of the Spark source and sink: Spark's own Kafka names, checked before anything starts.

Names are case-insensitive, as everywhere in Spark. `kafka.*` options go to the client. Every refusal is an
OptionError of one line that names the option, its value and what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.pipelines.columns import ARROW_TYPES, BASE_COLUMNS
from barnabas.records.compression import Codec, codec_of

TopicPartition = tuple[str, int]
DataLoss = Literal["stop", "earliest", "latest"]
Where = Literal["earliest", "latest"]

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1

SOURCE_NAMES: Final = {
    "subscribe": "topics to read, separated by commas",
    "subscribepattern": "a regular expression of topics to read; matching topics made later are found",
    "assign": 'partitions to read, as JSON: {"topic": [0, 1]}',
    "startingoffsets": 'earliest, latest or JSON: {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)',
    "startingtimestamp": "begin at the first record at or after this time, in milliseconds",
    "startingoffsetsbytimestamp": 'the same per partition, as JSON: {"topic": {"0": 1700000000000}}',
    "startinggroup": "begin where this consumer group stands; startingOffsets where it has no offset",
    "endingoffsets": "latest or JSON: where a batch read ends",
    "endingtimestamp": "a batch read ends before the first record at or after this time, in milliseconds",
    "endingoffsetsbytimestamp": "the same per partition, as JSON",
    "maxoffsetspertrigger": "at most so many records in one micro-batch",
    "minpartitions": "split large ranges so that at least so many Spark tasks read",
    "failondataloss": "false: go on at the earliest record when records are gone (onDataLoss=earliest)",
    "ondataloss": "when records are gone: stop (default), earliest or latest",
    "includeheaders": "true: a column headers",
    "columns": "only these columns, separated by commas: what is not read is not sent to Spark",
    "commitgroup": "the consumer group to commit progress to after each micro-batch",
    "rowsperbatch": "rows in one Arrow batch",
    "checkcrcs": "false: trust the broker's bytes without a checksum",
    "checkpointlocation": "the query's checkpoint: where it begins is kept there, in case it dies at once",
    "firstoffsets": "where the query begins, as its checkpoint had it (JSON); goes before startingOffsets",
    "stopfile": "while this file of the driver's machine exists no new micro-batch begins",
    "groupidprefix": "accepted; this source does not join a group",
}
SINK_NAMES: Final = {
    "topic": "the topic to write to when a row names none",
    "includeheaders": "accepted; headers are written when the column is there",
    "checkpointlocation": "belongs to Spark",
    "path": "belongs to Spark",
    "queryname": "belongs to Spark",
    "outputmode": "belongs to Spark",
}
FETCH_BYTES: Final = 8 << 20
ROWS_PER_BATCH: Final = 16_384


class OptionError(ValueError):
    """An option of the source or sink is not usable."""


def client_options(options: Mapping[str, str]) -> ClientOptions:
    """The connection out of the `kafka.*` options. Raises OptionError."""
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
    """Where to begin or end: an offset (or -2, -1) or a time per partition, else `otherwise` for all.

    timestamp_ms: one time for all partitions. group: a consumer group whose offsets come first.
    """

    otherwise: Where
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything the readers need; picklable."""

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

    @property
    def headers(self) -> bool:
        return "headers" in self.columns


def source_options(raw: Mapping[str, str]) -> SourceOptions:
    """Checks the options of a reader. Raises OptionError."""
    options = {name.lower(): value for name, value in raw.items()}
    _refuse_unknown(options, {*SOURCE_NAMES, "path"}, "source")
    chosen = [n for n in ("subscribe", "subscribepattern", "assign") if n in options]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "none of them"
        raise OptionError(f"one of subscribe, subscribePattern and assign is needed; {found} is set")
    topics = tuple(part.strip() for part in options.get("subscribe", "").split(",") if part.strip())
    if "subscribe" in options and not topics:
        raise OptionError("subscribe is empty: name at least one topic")
    pattern = options.get("subscribepattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"subscribePattern={pattern} is not a regular expression: {error}") from error
    isolation = options.get("kafka.isolation.level", "read_uncommitted")
    if isolation not in ("read_uncommitted", "read_committed"):
        raise OptionError(f"kafka.isolation.level={isolation} is not read_uncommitted or read_committed")
    limit = _number(options, "maxoffsetspertrigger", "maxOffsetsPerTrigger", None)
    return SourceOptions(
        client=client_options(options),
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
    )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Everything the writers need; picklable. batch_bytes: uncompressed bytes of one record batch."""

    client: ClientOptions
    topic: str | None
    codec: Codec
    level: int | None
    batch_bytes: int


def sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Checks the options of a writer. Raises OptionError."""
    options = {name.lower(): value for name, value in raw.items()}
    _refuse_unknown(options, set(SINK_NAMES), "sink")
    acks = options.get("kafka.acks", "all")
    if acks not in ("all", "-1"):
        raise OptionError(f"kafka.acks={acks}: the sink always waits for all in-sync replicas")
    try:
        codec = codec_of(options.get("kafka.compression.type", "none"))
    except ValueError as error:
        raise OptionError(f"kafka.compression.type: {error}") from error
    level = options.get(f"kafka.compression.{codec.name.lower()}.level")
    return SinkOptions(
        client=client_options(options),
        topic=options.get("topic"),
        codec=codec,
        level=None if level is None else int(level),
        batch_bytes=_number(options, "kafka.batch.size", "kafka.batch.size", 500_000) or 500_000,
    )


def _refuse_unknown(options: Mapping[str, str], known: set[str], what: str) -> None:
    for name in options:
        if not name.startswith("kafka.") and name not in known:
            shown = ", ".join(sorted(known))
            raise OptionError(f"the barnabas {what} has no option {name}; it has {shown} and kafka.*")


def _number(options: Mapping[str, str], name: str, shown: str, default: int | None) -> int | None:
    if name not in options:
        return default
    try:
        value = int(options[name])
    except ValueError:
        value = 0
    if value < 1:
        raise OptionError(f"{shown}={options[name]} is not a number from 1 up")
    return value


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
                f"columns={options['columns']}: there is no column {name}; {', '.join(by_name.values())}"
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
    found = {}
    for topic, partitions in _json(text, shown).items():
        if not isinstance(partitions, dict):
            raise OptionError(f'{shown}={text} is not of the form {{"topic": {{"0": 23}}}}')
        for partition, value in partitions.items():
            good = partition.isdigit() and isinstance(value, int) and not isinstance(value, bool)
            if not good or value < lowest:
                raise OptionError(f"{shown}: {topic}-{partition}: {value!r} is not a number from {lowest} up")
            found[topic, int(partition)] = value
    return found


def _position(options: Mapping[str, str], side: Literal["starting", "ending"]) -> Position:
    default: Where = "latest"
    offsets: dict[TopicPartition, int] = {}
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
            offsets = _per_partition(text, shown, EARLIEST_OFFSET)
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
    )
