"""Objects that an S3 sink has written, as records of the topics that they came from. The options are those of Confluent's S3
source (mode RESTORE_BACKUP).

The objects of a partition are read in the order of the offsets in their names, and a record goes to the same topic and
partition. Where reading has come to is the name of an object and the number of a row, so each row is written once, and
objects that come later are found.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from barnabas.connect import schemas
from barnabas.connect.connectors import SourceConnector, SourceContext
from barnabas.connect.converters.avro_schemas import FromAvro, from_avro
from barnabas.connect.errors import ConnectError, RetriableError
from barnabas.connect.kinds.s3 import FORMATS, STORE, store_of
from barnabas.connect.options import Config, ConnectorOption, Importance, Type
from barnabas.connect.records import Json, SourceRecord
from barnabas.connect.schemas import Schema

TOPIC, PARTITION, OBJECT, ROW = "topic", "partition", "object", "row"
Rows = Iterator[tuple[Schema | None, Any]]


class S3Source(SourceConnector):
    """See the module."""

    doc = "Reads the objects of an S3 sink back into topics."
    aliases = ("io.confluent.connect.s3.source.S3SourceConnector",)
    leaves_no_trace = True
    poll_interval_ms: ClassVar[int] = 10_000
    options = (
        *STORE,
        ConnectorOption("topics.dir", default="topics", doc="The folder below which the objects are."),
        ConnectorOption(
            "format.class",
            default="JsonFormat",
            importance=Importance.HIGH,
            doc=f"One of {', '.join(FORMATS)}.",
        ),
        ConnectorOption(
            "topic.regex.list", Type.LIST, "", doc="Patterns of topics that are read; default all."
        ),
        ConnectorOption(
            "mode",
            default="RESTORE_BACKUP",
            doc="RESTORE_BACKUP: objects of an S3 sink",
            choices=("RESTORE_BACKUP",),
        ),
        ConnectorOption("record.batch.max.size", Type.INT, 2_000, doc="The most records of a poll.", lo=1),
        ConnectorOption(
            "s3.poll.interval.ms", Type.LONG, 10_000, doc="How often new objects are looked for.", lo=1
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
        if _simple(config["format.class"]) not in FORMATS:
            return {"format.class": f"format.class must be one of {', '.join(FORMATS)}"}
        for pattern in config["topic.regex.list"]:
            try:
                re.compile(pattern)
            except re.error as error:
                return {"topic.regex.list": f"{pattern!r} is no regular expression: {error}"}
        return {}

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start({**config, "poll.interval.ms": config["s3.poll.interval.ms"]}, context)
        self._store, self._root = store_of(config)
        self._format = _simple(config["format.class"])
        self._patterns = [re.compile(pattern) for pattern in config["topic.regex.list"]]
        mark = re.escape(str(config["file.delim"]))
        ends = "|".join(FORMATS.values())
        self._named = re.compile(rf"(.+){mark}(\d+){mark}(\d+)\.(?:{ends})(?:\.gz)?")
        self._objects: dict[tuple[str, int], list[str]] = {}
        self._open: tuple[str, int, Rows] | None = None

    def _object_names(self) -> dict[tuple[str, int], list[str]]:
        """The names of all objects by topic and partition, in the order of offsets. Raises ConnectError."""
        from pyarrow import fs

        folder = "/".join(part for part in (self._root, str(self.config["topics.dir"])) if part)
        try:
            infos = self._store.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
        except OSError as error:
            raise RetriableError(f"{folder} cannot be listed: {' '.join(str(error).split())}") from error
        rows: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for info in infos:
            match = self._named.fullmatch(info.base_name)
            if info.type != fs.FileType.File or match is None:
                continue
            topic = match[1]
            if self._patterns and not any(pattern.fullmatch(topic) for pattern in self._patterns):
                continue
            rows.setdefault((topic, int(match[2])), []).append((int(match[3]), info.path))
        return {place: [path for _, path in sorted(paths)] for place, paths in sorted(rows.items())}

    def partitions(self) -> Sequence[Json]:
        """One for each partition of a topic that has objects."""
        return [{TOPIC: topic, PARTITION: partition} for topic, partition in self._object_names()]

    def poll(self, partition: Json, offset: Json | None) -> list[SourceRecord]:
        """See SourceConnector."""
        place = (str(partition[TOPIC]), int(partition[PARTITION]))
        name, row = (None, 0) if offset is None else (str(offset[OBJECT]), int(offset[ROW]))
        while True:
            if name is None:
                name, row = self._after(place, None), 0
            if name is None:
                return []
            records = self._read(place, name, row)
            if records:
                return records
            after = self._after(place, name)
            if after is None:
                return []
            name, row = after, 0

    def _after(self, place: tuple[str, int], name: str | None) -> str | None:
        """The object after `name`; None if there is none yet."""
        for is_new in (False, True):
            names = self._objects.get(place, [])
            if is_new:
                self._objects = self._object_names()
                names = self._objects.get(place, [])
            if name is None:
                if names:
                    return names[0]
            else:
                start = self._start(name)
                later = [other for other in names if (self._start(other), other) > (start, name)]
                if later:
                    return later[0]
        return None

    def _start(self, name: str) -> int:
        match = self._named.fullmatch(name.rpartition("/")[2])
        if match is None:
            raise ConnectError(f"the offset names {name}, which is no object of an S3 sink")
        return int(match[3])

    def _read(self, place: tuple[str, int], name: str, row: int) -> list[SourceRecord]:
        """Rows of an object from `row` on. Raises ConnectError."""
        if self._open is None or self._open[:2] != (name, row):
            rows = self._rows(name)
            for _ in range(row):
                next(rows, None)
        else:
            rows = self._open[2]
        topic, partition = place
        records: list[SourceRecord] = []
        try:
            for schema, value in rows:
                row += 1
                records.append(
                    SourceRecord(
                        topic,
                        value,
                        value_schema=schema,
                        partition=partition,
                        source_offset={OBJECT: name, ROW: row},
                    )
                )
                if len(records) >= self.config["record.batch.max.size"]:
                    break
        except Exception as error:
            raise ConnectError(f"object {name} cannot be read after row {row}: {error}") from error
        self._open = (name, row, rows)
        return records

    def _rows(self, name: str) -> Rows:
        try:
            with self._store.open_input_stream(name, compression=None) as stream:
                data = stream.read()
        except FileNotFoundError as error:
            raise ConnectError(
                f"object {name} is gone before it was read to its end; set the offset to another one"
            ) from error
        except OSError as error:
            raise RetriableError(f"object {name} cannot be read: {' '.join(str(error).split())}") from error
        if name.endswith(".gz"):
            data = gzip.decompress(data)
        return _rows_of(self._format, data)

    @classmethod
    def check_offsets(cls, config: Config, offsets: Sequence[tuple[Json, Json | None]]) -> None:
        """See SourceConnector."""
        for partition, offset in offsets:
            if set(partition) != {TOPIC, PARTITION}:
                raise ConnectError(
                    f"the partition must have {TOPIC} and {PARTITION}, but is {dict(partition)}"
                )
            if offset is not None and (set(offset) != {OBJECT, ROW} or not isinstance(offset[ROW], int)):
                raise ConnectError(
                    f"the offset must have {OBJECT}, a name, and {ROW}, a number, but is {dict(offset)}"
                )


def _rows_of(kind: str, data: bytes) -> Rows:
    if kind == "JsonFormat":
        for line in data.splitlines():
            if line.strip():
                yield None, json.loads(line)
    elif kind == "StringFormat":
        for text in data.decode("utf-8", "replace").splitlines():
            yield schemas.STRING, text
    elif kind == "ByteArrayFormat":
        for part in data.split(b"\n"):
            yield schemas.BYTES, part
    elif kind == "AvroFormat":
        import fastavro

        reader = fastavro.reader(io.BytesIO(data))
        schema = FromAvro().schema(reader.writer_schema)
        for value in reader:
            yield schema, value if schema.type == "struct" else from_avro(schema, value)
    else:
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(io.BytesIO(data)).iter_batches(1000):
            for value in batch.to_pylist():
                yield None, value


def _simple(name: str) -> str:
    return name.rpartition(".")[2].rpartition("$")[2]
