"""Folders on any file system that Spark supports (a path, file:///, hdfs://, s3a://, ...), through Hadoop's own
classes.

This way Spark's settings for its checkpoints and files (`spark.hadoop.*`) apply here, too.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from barnabas.pipelines.spark.private import file_system, hadoop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COPY_BYTES: Final = 1 << 20


def join(location: Path | str, *names: str) -> str:
    """A path or URL with names appended."""
    return "/".join([str(location).rstrip("/"), *names])


def local_path(location: Path | str) -> Path | None:
    """The local path of a location; None for other file systems. As in Hadoop, %20 and the like are not decoded."""
    text = str(location)
    if "://" not in text and not text.startswith("file:/"):
        return Path(text)
    parts = urlsplit(text)
    return Path(parts.path) if parts.scheme == "file" else None


class Folder:
    """A folder; names are relative to it. Errors are Java's IOException, raised as Py4JJavaError."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._hadoop = hadoop(spark)
        self.path = path
        self._fs = file_system(spark, path)

    def _at(self, name: str) -> Any:
        return self._hadoop.fs.Path(f"{self.path}/{name}" if name else self.path)

    def files(self, below: str = "") -> Iterator[tuple[str, int]]:
        """Names and sizes (bytes) of all visible files below a subfolder; nothing if that does not exist."""
        start = self._at(below)
        if not self._fs.exists(start):
            return
        prefix = str(self._fs.makeQualified(self._at("")).toString())
        statuses = self._fs.listFiles(start, True)
        while statuses.hasNext():
            status = statuses.next()
            name = str(status.getPath().toString())[len(prefix) :].lstrip("/")
            parts = name[len(below) :].strip("/").split("/")
            if not any(part.startswith(("_", ".")) for part in parts):
                yield name, int(status.getLen())

    def move(self, source: str, target: str) -> None:
        """Moves a file or folder; replaces the target if it exists. Raises OSError."""
        self._fs.mkdirs(self._at(posixpath.dirname(target)))
        self.delete(target)
        if not self._fs.rename(self._at(source), self._at(target)):
            raise OSError(f"{self.path}/{source} cannot be moved to {target}")

    def delete(self, name: str) -> None:
        """Deletes a file, or a folder with its contents; does nothing if it does not exist."""
        self._fs.delete(self._at(name), True)

    def exists(self, name: str = "") -> bool:
        """Whether a file or folder exists."""
        return bool(self._fs.exists(self._at(name)))

    def concatenate(self, names: Iterable[str], target: str, skip: bytes = b"") -> None:
        """Writes the contents of files one after the other into a new file; compressed files are decompressed, and the
        new one is compressed if its name says so. skip: the line that they all begin with, which is written once."""
        self._fs.mkdirs(self._at(posixpath.dirname(target)))
        codec = self._codec(target)
        out = self._fs.create(self._at(target), True)
        out = out if codec is None else codec.createOutputStream(out)
        copy = self._hadoop.io.IOUtils.copyBytes
        try:
            if skip:
                out.write(bytearray(skip))
            for name in names:
                stream = self._opened(name)
                try:
                    stream.skipNBytes(len(skip))
                    copy(stream, out, COPY_BYTES, False)
                finally:
                    stream.close()
        finally:
            out.close()

    def first_row(self, name: str, bytes_max: int) -> bytes | None:
        """The first row of a CSV file with its line break; quoted line breaks do not end it. None if over
        `bytes_max`."""
        stream = self._opened(name)
        try:
            start = bytes(stream.readNBytes(bytes_max))
        finally:
            stream.close()
        end = start.find(b"\n") + 1
        while end and start.count(b'"', 0, end) % 2:
            end = start.find(b"\n", end) + 1
        return start[:end] if end else None

    def _codec(self, name: str) -> Any:
        """Hadoop's codec for a file name's extension; None for a file that is not compressed."""
        factory = self._hadoop.io.compress.CompressionCodecFactory(self._fs.getConf())
        return factory.getCodec(self._at(name))

    def _opened(self, name: str) -> Any:
        codec = self._codec(name)
        stream = self._fs.open(self._at(name))
        return stream if codec is None else codec.createInputStream(stream)

    def write_note(self, name: str, value: Any) -> None:
        """Writes a small JSON file under another name, then moves it: it is never seen half-written."""
        fresh = posixpath.join(posixpath.dirname(name), f".{posixpath.basename(name)}.new")
        stream = self._fs.create(self._at(fresh), True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()
        self.move(fresh, name)

    def read_note(self, name: str) -> Any:
        """The contents of a JSON file."""
        return json.loads(self.read(name))

    def read(self, name: str) -> bytes:
        """The contents of a small file."""
        stream = self._fs.open(self._at(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def names(self, folder: str = "") -> list[str]:
        """Sorted names in a subfolder, except those that begin with a dot; nothing if it does not exist."""
        if not self.exists(folder):
            return []
        names = sorted(str(status.getPath().getName()) for status in self._fs.listStatus(self._at(folder)))
        return [name for name in names if not name.startswith(".")]
