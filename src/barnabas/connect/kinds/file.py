"""Kafka's example connectors: the lines of a file into a topic, and records of topics as lines of a file.

Source: Kafka's org.apache.kafka.connect.file.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, ClassVar, Final

from barnabas.connect.connectors import (
    SinkConnector,
    SinkContext,
    SourceConnector,
    SourceContext,
    TopicPartition,
)
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.options import Config, ConnectorOption, Importance, Type, not_empty
from barnabas.connect.records import Json, SinkRecord, SourceRecord
from barnabas.connect.schemas import STRING

FILENAME: Final = "filename"
POSITION: Final = "position"
READ_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 64 << 20


class FileStreamSource(SourceConnector):
    """Each line that ends is a record; the file may grow, and may come later."""

    leaves_no_trace = True
    doc = "Lines of a file, which may grow, as records of a topic."
    aliases = ("org.apache.kafka.connect.file.FileStreamSourceConnector",)
    options = (
        ConnectorOption(
            "topic", importance=Importance.HIGH, doc="The topic to publish data to", check=not_empty
        ),
        ConnectorOption(
            "file",
            default=None,
            importance=Importance.HIGH,
            doc="Source filename. If not specified, the standard input will be used",
        ),
        ConnectorOption(
            "batch.size",
            Type.INT,
            2000,
            Importance.LOW,
            "The maximum number of records the source task can read from the file each time it is polled",
            lo=1,
        ),
    )
    poll_interval_ms: ClassVar[int] = 200

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._file: IO[bytes] | None = None
        self._lines: deque[bytes] = deque()
        self._kept = b""
        self._at = 0

    def partitions(self) -> Sequence[Json]:
        """One: the file."""
        return [{FILENAME: self.config["file"] or ""}]

    def poll(self, partition: Json, offset: Json | None) -> list[SourceRecord]:
        """See SourceConnector."""
        begin = int((offset or {}).get(POSITION, 0))
        file = self._opened(begin)
        if file is None:
            return []
        if not self._lines:
            self._read(file)
        topic, records = self.config["topic"], []
        for _ in range(min(self.config["batch.size"], len(self._lines))):
            line = self._lines.popleft()
            begin += len(line) + 1
            text = line.removesuffix(b"\r").decode("utf-8", "replace")
            records.append(SourceRecord(topic, text, value_schema=STRING, source_offset={POSITION: begin}))
        self._at = begin
        return records

    def _read(self, file: IO[bytes]) -> None:
        """Reads until a line is complete, or to the end of the file."""
        while not self._lines:
            data = file.read(READ_BYTES) if file is not sys.stdin.buffer else file.readline()
            if not data:
                return
            *lines, self._kept = (self._kept + data).split(b"\n")
            self._lines.extend(lines)
            if len(self._kept) > LINE_BYTES_MAX:
                raise ConnectError(f"{self.config['file']}: a line has more than {LINE_BYTES_MAX >> 20} MB")

    def _opened(self, begin: int) -> IO[bytes] | None:
        """The file, positioned after what has been read and is kept; None if there is none yet."""
        path = self.config["file"]
        if not path:
            return sys.stdin.buffer
        if self._file is not None and begin == self._at:
            return self._file
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - it is read by later polls
            self._file.seek(begin)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConnectError(f"{path} cannot be read: {error.strerror}") from error
        self._lines.clear()
        self._kept, self._at = b"", begin
        return self._file

    def stop(self) -> None:
        """See SourceConnector."""
        if getattr(self, "_file", None) is not None:
            self._file.close()  # type: ignore[union-attr]

    @classmethod
    def check_offsets(cls, config: Config, offsets: Sequence[tuple[Json, Json | None]]) -> None:
        """See SourceConnector."""
        if not config.get("file"):
            raise ConnectError("Offsets cannot be modified if the 'file' configuration is unspecified. ")
        for partition, offset in offsets:
            if offset is None:
                continue
            if set(partition) != {FILENAME}:
                raise ConnectError(f"Partition objects should contain the key '{FILENAME}'")
            position = offset.get(POSITION)
            if (
                set(offset) != {POSITION}
                or isinstance(position, bool)
                or not isinstance(position, int)
                or position < 0
            ):
                raise ConnectError(
                    f"The value for the '{POSITION}' key in the offset should be a non-negative integer"
                )

    @classmethod
    def exactly_once(cls, config: Config) -> bool:
        """Not from the standard input."""
        return bool(config.get("file"))


class FileStreamSink(SinkConnector):
    """Appends each record's value as a line."""

    doc = "Values of records as lines of a file."
    aliases = ("org.apache.kafka.connect.file.FileStreamSinkConnector",)
    options = (
        ConnectorOption(
            "file",
            default=None,
            importance=Importance.HIGH,
            doc="Destination filename. If not specified, the standard output will be used",
        ),
    )

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        path = config["file"]
        try:
            self._file = open(path, "a", encoding="utf-8") if path else sys.stdout  # noqa: SIM115
        except OSError as error:
            raise OptionError(f"{path} cannot be written: {error.strerror}", "file") from error

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector."""
        try:
            self._file.write("".join(f"{_line(record.value)}\n" for record in records))
        except OSError as error:
            raise ConnectError(f"{self.config['file']} cannot be written: {error.strerror}") from error

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """To the disk."""
        self._file.flush()
        if self._file is not sys.stdout:
            os.fsync(self._file.fileno())

    def stop(self) -> None:
        """See SinkConnector."""
        if getattr(self, "_file", sys.stdout) is not sys.stdout:
            self._file.close()


def _line(value: object) -> str:
    """As Java writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_line, value)) + "]"
    return str(value)
