"""Objects in S3 and what speaks its protocol, or files in a folder. The options are those of Confluent's S3 sink.

An object has the records of one partition of a topic, and is named after the first one's offset. Offsets are committed up to
the first record that is not in an object yet: with `flush.size`, and with `rotate.interval.ms`, which goes by the records'
times, what is written again after a failure are the same objects.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from barnabas.connect import schemas
from barnabas.connect.connectors import SinkConnector, SinkContext, TopicPartition
from barnabas.connect.converters.avro_schemas import ToAvro, to_avro
from barnabas.connect.converters.guessing import guessed
from barnabas.connect.converters.simple import java_text
from barnabas.connect.errors import ConnectError, DataError, OptionError, RetriableError
from barnabas.connect.kinds.talking import plain_json
from barnabas.connect.options import Config, ConnectorOption, Importance, Type
from barnabas.connect.records import SinkRecord
from barnabas.connect.transforms.javatime import JavaFormat

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

FORMATS: Final = {
    "JsonFormat": "json",
    "AvroFormat": "avro",
    "ParquetFormat": "parquet",
    "StringFormat": "txt",
    "ByteArrayFormat": "bin",
}
PARTITIONERS: Final = (
    "DefaultPartitioner",
    "FieldPartitioner",
    "TimeBasedPartitioner",
    "DailyPartitioner",
    "HourlyPartitioner",
)
DAILY: Final = "'year'=yyyy/'month'=MM/'day'=dd"
HOURLY: Final = f"{DAILY}/'hour'=HH"

STORE: Final = (
    ConnectorOption("s3.bucket.name", importance=Importance.HIGH, doc="The S3 Bucket."),
    ConnectorOption("s3.region", default="us-west-2", doc="The region of the bucket."),
    ConnectorOption(
        "store.url",
        default="",
        doc="The server, if it is not Amazon's: http://HOST:PORT, or file:///DIR.",
    ),
    ConnectorOption(
        "aws.access.key.id", default="", doc="The AWS access key ID; from the environment if it is empty."
    ),
    ConnectorOption("aws.secret.access.key", Type.PASSWORD, "", doc="The secret AWS access key."),
)
"""How the bucket is reached: see `store_of`."""


@dataclass(slots=True)
class _Open:
    """An object that is growing. begun_ms: the time of its first record; opened_s: when that came, monotonic."""

    start: int
    begun_ms: int
    opened_s: float
    records: list[SinkRecord] = field(default_factory=list)


class S3Sink(SinkConnector):
    """Objects of JSON lines, Avro, Parquet, texts or bytes."""

    doc = "Stores records as objects of S3, or as files of a folder (store.url=file:///DIR)."
    aliases = ("io.confluent.connect.s3.S3SinkConnector",)
    not_in_pipelines = "stores records when one of its objects is full, not at the end of a micro-batch"
    options = (
        *STORE,
        ConnectorOption("topics.dir", default="topics", doc="What all names begin with."),
        ConnectorOption(
            "format.class",
            default="JsonFormat",
            importance=Importance.HIGH,
            doc=f"One of {', '.join(FORMATS)}, with or without package.",
        ),
        ConnectorOption(
            "flush.size",
            Type.INT,
            importance=Importance.HIGH,
            doc="How many records an object has at most.",
            lo=1,
        ),
        ConnectorOption(
            "rotate.interval.ms",
            Type.LONG,
            -1,
            doc="How much time, of the records, an object spans at most; -1: any.",
        ),
        ConnectorOption(
            "rotate.schedule.interval.ms",
            Type.LONG,
            -1,
            doc="After how much time an object is written although it is not full; -1: never. Records may be written "
            "twice then.",
        ),
        ConnectorOption(
            "partitioner.class", default="DefaultPartitioner", doc=f"One of {', '.join(PARTITIONERS)}."
        ),
        ConnectorOption("partition.field.name", Type.LIST, "", doc="The fields of FieldPartitioner."),
        ConnectorOption("path.format", default=HOURLY, doc="The pattern of TimeBasedPartitioner."),
        ConnectorOption("partition.duration.ms", Type.LONG, 3_600_000, doc="The length of its partitions."),
        ConnectorOption(
            "timestamp.extractor",
            default="Record",
            doc="Record, Wallclock or RecordField",
            choices=("Record", "Wallclock", "RecordField"),
        ),
        ConnectorOption(
            "timestamp.field", default="timestamp", doc="The field of RecordField: a time, or milliseconds."
        ),
        ConnectorOption(
            "s3.compression.type",
            default="none",
            doc="none or gzip, for JSON, texts and bytes",
            choices=("none", "gzip"),
        ),
        ConnectorOption(
            "directory.delim", default="/", importance=Importance.LOW, doc="Between the parts of names."
        ),
        ConnectorOption(
            "file.delim", default="+", importance=Importance.LOW, doc="Between topic, partition and offset."
        ),
    )

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        wrong = {}
        if _simple(config["format.class"]) not in FORMATS:
            wrong["format.class"] = f"format.class must be one of {', '.join(FORMATS)}"
        partitioner = _simple(config["partitioner.class"])
        if partitioner not in PARTITIONERS:
            wrong["partitioner.class"] = f"partitioner.class must be one of {', '.join(PARTITIONERS)}"
        if partitioner == "FieldPartitioner" and not config["partition.field.name"]:
            wrong["partition.field.name"] = "FieldPartitioner needs partition.field.name"
        try:
            JavaFormat(config["path.format"].replace("Y", "y"))
        except OptionError as error:
            wrong["path.format"] = str(error)
        return wrong

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        self._store, self._root = store_of(config)
        self._format = _simple(config["format.class"])
        self._partitioner = _simple(config["partitioner.class"])
        fixed = {"DailyPartitioner": DAILY, "HourlyPartitioner": HOURLY}.get(self._partitioner)
        self._path = JavaFormat((fixed or str(config["path.format"])).replace("Y", "y"))
        self._open: dict[tuple[str, int, str], _Open] = {}

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector."""
        for record in records:
            if record.value is None:
                continue  # an object has no place for tombstones
            try:
                where = self._where(record)
            except DataError as error:
                self.context.report(record, error)
                continue
            place = (record.original_topic, record.original_partition, where)
            growing = self._open.get(place)
            at_ms = record.timestamp_ms or 0
            span = self.config["rotate.interval.ms"]
            if growing is not None and 0 <= span <= at_ms - growing.begun_ms:
                self._write(place)
                growing = None
            if growing is None:
                growing = self._open[place] = _Open(record.offset, at_ms, time.monotonic())
            growing.records.append(record)
            if len(growing.records) >= self.config["flush.size"]:
                self._write(place)
        limit_ms = self.config["rotate.schedule.interval.ms"]
        if limit_ms >= 0:
            now = time.monotonic()
            for place in [p for p, row in self._open.items() if (now - row.opened_s) * 1000 >= limit_ms]:
                self._write(place)

    def flush(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Up to the first record that is not in an object."""
        safe_offsets = dict(offsets)
        for (topic, partition, _), row in self._open.items():
            if (topic, partition) in safe_offsets:
                safe_offsets[topic, partition] = min(safe_offsets[topic, partition], row.start)
        return safe_offsets

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """What is not in an object comes again."""
        self._open = {place: row for place, row in self._open.items() if place[:2] not in partitions}

    # --- names ----------------------------------------------------------------------------------------

    def _where(self, record: SinkRecord) -> str:
        if self._partitioner == "DefaultPartitioner":
            return f"partition={record.original_partition}"
        if self._partitioner == "FieldPartitioner":
            names = self.config["partition.field.name"]
            if not isinstance(record.value, dict) or any(name not in record.value for name in names):
                raise DataError(f"the record lacks one of the fields {', '.join(names)}")
            shown = (f"{name}={java_text(record.value[name]).replace('/', '_')}" for name in names)
            return str(self.config["directory.delim"]).join(shown)
        length = self.config["partition.duration.ms"]
        at_ms = self._time_ms(record)
        at_ms -= at_ms % length if length > 0 and self._partitioner == "TimeBasedPartitioner" else 0
        return self._path.format(schemas.EPOCH + dt.timedelta(milliseconds=at_ms))

    def _time_ms(self, record: SinkRecord) -> int:
        how = self.config["timestamp.extractor"].lower()
        if how == "wallclock":
            return int(time.time() * 1000)
        value: Any = record.timestamp_ms
        if how == "recordfield":
            value = (
                record.value.get(self.config["timestamp.field"]) if isinstance(record.value, dict) else None
            )
        if isinstance(value, dt.datetime):
            return schemas.timestamp_ms(value)
        if isinstance(value, str):
            try:
                return schemas.timestamp_ms(dt.datetime.fromisoformat(value))
            except ValueError:
                value = None
        if not isinstance(value, (int, float)):
            raise DataError("the record has no time for its partition")
        return int(value)

    def _name(self, place: tuple[str, int, str], start: int) -> str:
        topic, partition, where = place
        between, parts = (
            str(self.config["directory.delim"]),
            [self._root, self.config["topics.dir"], topic, where],
        )
        file = str(self.config["file.delim"]).join((topic, str(partition), f"{start:010d}"))
        end = FORMATS[self._format] + (".gz" if self._is_packed() else "")
        return between.join(part for part in (*parts, f"{file}.{end}") if part)

    def _is_packed(self) -> bool:
        return self.config["s3.compression.type"].lower() == "gzip" and self._format not in (
            "AvroFormat",
            "ParquetFormat",
        )

    # --- contents -------------------------------------------------------------------------------------

    def _write(self, place: tuple[str, int, str]) -> None:
        row = self._open[place]
        data = self._encoded(row.records)
        name = self._name(place, row.start)
        try:
            parent = name.rpartition("/")[0]
            if self._store.type_name == "local":
                self._store.create_dir(parent, recursive=True)
            with self._store.open_output_stream(name, compression=None) as out:
                out.write(gzip.compress(data, mtime=0) if self._is_packed() else data)
        except OSError as error:
            raise _failure(name, error) from error
        del self._open[place]

    def _encoded(self, records: Sequence[SinkRecord]) -> bytes:
        values = [record.value for record in records]
        if self._format == "JsonFormat":
            return "".join(f"{plain_json(value)}\n" for value in values).encode()
        if self._format == "StringFormat":
            return "".join(f"{java_text(value)}\n" for value in values).encode()
        if self._format == "ByteArrayFormat":
            return b"\n".join(
                value if isinstance(value, bytes) else java_text(value).encode() for value in values
            )
        if self._format == "AvroFormat":
            return _avro(records)
        return _parquet(values)


def _avro(records: Sequence[SinkRecord]) -> bytes:
    import fastavro

    schema = records[-1].value_schema or guessed(
        {n: v for r in records for n, v in r.value.items() if v is not None}
    )
    about = ToAvro().schema(schema)
    parsed = fastavro.parse_schema(about)
    out = io.BytesIO()
    rows = [r.value if schema.type == "struct" else to_avro(schema, r.value) for r in records]
    sync = b"barnabas-records"  # the same for the same records, so that an object that is written again is the same
    fastavro.writer(out, parsed, rows, codec="deflate", sync_marker=sync)
    return out.getvalue()


def _parquet(values: Sequence[Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    try:
        pq.write_table(
            pa.Table.from_pylist([v if isinstance(v, dict) else {"value": v} for v in values]), out
        )
    except pa.ArrowException as error:
        raise ConnectError(f"records cannot be in one Parquet file: {error}") from error
    return out.getvalue()


def _simple(name: str) -> str:
    return name.rpartition(".")[2].rpartition("$")[2]


def _failure(name: str, error: OSError) -> ConnectError:
    text = " ".join(str(error).split())
    if any(
        word in text
        for word in (
            "ACCESS_DENIED",
            "NoSuchBucket",
            "NO_SUCH_BUCKET",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "403",
        )
    ):
        return ConnectError(f"object {name} cannot be written: {text}")
    return RetriableError(f"object {name} cannot be written: {text}")


def store_of(config: Config) -> tuple[FileSystem, str]:
    """The file system, and what names begin with. Raises OptionError."""
    from pyarrow import fs

    url, bucket = config["store.url"], config["s3.bucket.name"]
    if url.startswith("file://"):
        return fs.LocalFileSystem(), f"{url.removeprefix('file://').rstrip('/')}/{bucket}"
    more: dict[str, Any] = {"region": config["s3.region"]}
    if url:
        scheme, _, place = url.partition("://")
        if scheme not in ("http", "https") or not place:
            raise OptionError(f"store.url {url!r} is not http://HOST:PORT", "store.url")
        more |= {"endpoint_override": place.rstrip("/"), "scheme": scheme}
    if config["aws.access.key.id"]:
        more |= {"access_key": config["aws.access.key.id"], "secret_key": config["aws.secret.access.key"]}
    return fs.S3FileSystem(**more), bucket
