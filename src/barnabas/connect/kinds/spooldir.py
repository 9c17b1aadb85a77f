"""Files that are put into a folder, as records: CSV, JSON lines, lines, Avro, Parquet.

A file is read once it has not changed for `file.minimum.age.ms`; when all its records are committed, it is moved to
`finished.path` (or deleted, or left). Files are read by name. Class names and options are those of the connectors of
jcustenborder/kafka-connect-spooldir.
"""

from __future__ import annotations

import csv
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from barnabas.connect import schemas
from barnabas.connect.connectors import Batch, SourceConnector, SourceContext
from barnabas.connect.converters.avro_schemas import FromAvro, from_avro
from barnabas.connect.errors import ConnectError, DataError, OptionError
from barnabas.connect.options import Config, ConnectorOption, Importance, Type, is_regex
from barnabas.connect.records import Header, Json, SourceRecord
from barnabas.connect.schemas import Field, Schema

log = logging.getLogger("barnabas.connect")

FILE, ROW = "file", "row"
DONE: Final = -1
FORMATS: Final = ("csv", "json", "lines", "avro", "parquet")
POLICIES: Final = ("MOVE", "DELETE", "NONE")

Rows = Iterator[tuple[Schema | None, Any]]


class SpoolDir(SourceConnector):
    """All formats; `format` says which, or the class."""

    leaves_no_trace = True
    waits_for_commits = True
    doc = "Files that are put into a folder: CSV, JSON lines, lines, Avro, Parquet."
    format: ClassVar[str] = ""
    options = (
        ConnectorOption("topic", importance=Importance.HIGH, doc="The Kafka topic to write the data to."),
        ConnectorOption("input.path", importance=Importance.HIGH, doc="The directory to read files from."),
        ConnectorOption(
            "input.file.pattern",
            default=".*",
            importance=Importance.HIGH,
            doc="Regular expression of the names of files.",
            check=is_regex,
        ),
        ConnectorOption(
            "finished.path",
            default="",
            importance=Importance.HIGH,
            doc="The directory for files that have been read.",
        ),
        ConnectorOption(
            "error.path",
            default="",
            importance=Importance.HIGH,
            doc="The directory for files that cannot be read.",
        ),
        ConnectorOption(
            "halt.on.error",
            Type.BOOLEAN,
            True,
            Importance.HIGH,
            "Whether the task fails at a file that cannot be read; otherwise it goes to error.path.",
        ),
        ConnectorOption(
            "cleanup.policy",
            default="MOVE",
            doc="What happens to a file that has been read.",
            choices=POLICIES,
        ),
        ConnectorOption(
            "file.minimum.age.ms",
            Type.LONG,
            0,
            Importance.LOW,
            "How long a file must not have changed.",
            lo=0,
        ),
        ConnectorOption("batch.size", Type.INT, 1000, Importance.LOW, "How many records a batch has.", lo=1),
        ConnectorOption(
            "format", default="", doc="csv, json, lines, avro or parquet; by the name's end if it is empty."
        ),
        ConnectorOption(
            "csv.first.row.as.header", Type.BOOLEAN, True, doc="Whether the first row names the columns."
        ),
        ConnectorOption("csv.separator.char", Type.INT, ord(","), doc="The character code between values."),
        ConnectorOption("csv.quote.char", Type.INT, ord('"'), doc="The character code around values."),
        ConnectorOption("key.fields", Type.LIST, "", doc="The fields of the key."),
        ConnectorOption(
            "schema.generation.enabled",
            Type.BOOLEAN,
            True,
            doc="Whether columns of CSV have a schema (of texts).",
        ),
    )

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._folder = Path(config["input.path"])
        if not self._folder.is_dir():
            raise OptionError(f"input.path {self._folder} is not a folder", "input.path")
        for option in ("finished.path", "error.path"):
            if config[option] and not Path(config[option]).is_dir():
                raise OptionError(f"{option} {config[option]} is not a folder", option)
        if config["cleanup.policy"].upper() == "MOVE" and not config["finished.path"]:
            raise OptionError(
                "finished.path is needed unless cleanup.policy is DELETE or NONE", "finished.path"
            )
        self._pattern = re.compile(config["input.file.pattern"])
        self._rows: Rows | None = None
        self._file, self._at = "", 0

    def partitions(self) -> Sequence[Json]:
        """The folder."""
        return [{"path": str(self._folder)}]

    def poll(self, partition: Json, offset: Json | None) -> Batch:
        """See SourceConnector."""
        name, row = str((offset or {}).get(FILE, "")), int((offset or {}).get(ROW, DONE))
        if row == DONE:
            self._tidy(name)
            place = self._next(name)
            if place is None:
                return Batch()
            name, row = place, 0
        try:
            if self._rows is None or (self._file, self._at) != (name, row):
                self._rows, self._file = self._opened(name), name
                for _ in islice(self._rows, row):
                    pass
            chosen = list(islice(self._rows, self.config["batch.size"]))
        except (OSError, ValueError, KeyError, DataError) as error:
            return self._unreadable(name, error)
        records = [self._record(name, row + n, *cells) for n, cells in enumerate(chosen)]
        self._at = row + len(records)
        if len(records) < self.config["batch.size"]:
            self._rows = None
            return Batch(records, {FILE: name, ROW: DONE})
        return Batch(records, {FILE: name, ROW: self._at})

    def committed(self, partition: Json, offset: Json) -> None:
        """A file that has been read is put away."""
        if offset.get(ROW) == DONE:
            self._tidy(str(offset[FILE]))

    def _next(self, after: str) -> str | None:
        keeps = self.config["cleanup.policy"].upper() == "NONE"
        oldest = time.time() - self.config["file.minimum.age.ms"] / 1000
        names = sorted(
            path.name
            for path in self._folder.iterdir()
            if path.is_file() and self._pattern.fullmatch(path.name) and path.stat().st_mtime <= oldest
        )
        return next((name for name in names if not keeps or name > after), None)

    def _tidy(self, name: str) -> None:
        policy, path = self.config["cleanup.policy"].upper(), self._folder / name
        if not name or policy == "NONE" or not path.exists():
            return
        if policy == "DELETE":
            path.unlink()
        else:
            path.rename(Path(self.config["finished.path"]) / name)

    def _unreadable(self, name: str, error: Exception) -> Batch:
        self._rows = None
        if self.config["halt.on.error"] or not self.config["error.path"]:
            raise ConnectError(f"{self._folder / name} cannot be read: {error}") from error
        log.error("file put aside", extra={"path": str(self._folder / name), "reason": str(error)})
        (self._folder / name).rename(Path(self.config["error.path"]) / name)
        return Batch(offset={FILE: name, ROW: DONE})

    def _record(self, name: str, row: int, schema: Schema | None, value: Any) -> SourceRecord:
        headers = (Header("file.name", name, schemas.STRING), Header("file.row", row, schemas.INT64))
        key, key_schema = None, None
        if self.config["key.fields"] and isinstance(value, dict):
            names = self.config["key.fields"]
            key = {field: value.get(field) for field in names}
            if schema is not None:
                key_schema = schemas.struct(
                    [Field(n, schema.by_name[n].schema) for n in names if n in schema.by_name]
                )
        return SourceRecord(self.config["topic"], value, key, schema, key_schema, headers)

    # --- formats --------------------------------------------------------------------------------------

    def _opened(self, name: str) -> Rows:
        """The rows of a file. Raises ConnectError."""
        kind = self.config["format"] or self.format or _by_end(name)
        path = self._folder / name
        rows: Mapping[str, Any] = {
            "csv": self._csv, "json": _json, "lines": _lines, "avro": _avro, "parquet": _parquet,
        }  # fmt: skip
        if kind not in rows:
            raise ConnectError(
                f"the format of {path} is not known; format says which of {', '.join(FORMATS)} it is"
            )
        opened: Rows = rows[kind](path)
        return opened

    def _csv(self, path: Path) -> Rows:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(
                file,
                delimiter=chr(self.config["csv.separator.char"]),
                quotechar=chr(self.config["csv.quote.char"]),
            )
            names: list[str] | None = next(reader, []) if self.config["csv.first.row.as.header"] else None
            schema: Schema | None = None
            for number, row in enumerate(reader, 2):
                if not row:
                    continue
                if names is None:
                    names = [f"column{at:02d}" for at in range(1, len(row) + 1)]
                if len(row) != len(names):
                    raise DataError(
                        f"line {number} has {len(row)} values, but there are {len(names)} columns"
                    )
                if schema is None and self.config["schema.generation.enabled"]:
                    schema = schemas.struct(dict.fromkeys(names, schemas.OPTIONAL_STRING))
                yield schema, dict(zip(names, row, strict=True))


def _by_end(name: str) -> str:
    end = name.rpartition(".")[2].lower()
    return {"jsonl": "json", "ndjson": "json", "txt": "lines", "log": "lines"}.get(end, end)


def _json(path: Path) -> Rows:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield None, json.loads(line)
                except ValueError as error:
                    raise DataError(f"line {number} is not JSON: {error}") from None


def _lines(path: Path) -> Rows:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            yield schemas.STRING, line.rstrip("\r\n")


def _avro(path: Path) -> Rows:
    import fastavro

    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema = FromAvro().schema(reader.writer_schema)
        for value in reader:
            yield schema, value if schema.type == "struct" else from_avro(schema, value)


def _parquet(path: Path) -> Rows:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    for batch in file.iter_batches(1000):
        for value in batch.to_pylist():
            yield None, value


class SpoolDirCsv(SpoolDir):
    """CSV."""

    format = "csv"
    aliases = ("com.github.jcustenborder.kafka.connect.spooldir.SpoolDirCsvSourceConnector",)


class SpoolDirJson(SpoolDir):
    """JSON, an object in each line."""

    format = "json"
    aliases = ("com.github.jcustenborder.kafka.connect.spooldir.SpoolDirJsonSourceConnector",)


class SpoolDirLines(SpoolDir):
    """Lines."""

    format = "lines"
    aliases = ("com.github.jcustenborder.kafka.connect.spooldir.SpoolDirLineDelimitedSourceConnector",)
