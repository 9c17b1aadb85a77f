"""Folders on any file system that Spark reaches (a path, file:///, hdfs://, s3a://, ...), through Hadoop's own classes.

So what is configured for Spark's checkpoints and files (`spark.hadoop.*`) holds for ours as well.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from barnabas.pipelines.spark_private import file_system, hadoop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COPY_BYTES: Final = 1 << 20


def join(location: Path | str, *names: str) -> str:
    """A place below a path or URL."""
    return "/".join([str(location).rstrip("/"), *names])


def local_path(location: Path | str) -> Path | None:
    """Where a location lies on this machine; None when it is on another file system. As Hadoop reads URLs: without
    any %20."""
    text = str(location)
    if "://" not in text and not text.startswith("file:/"):
        return Path(text)
    parts = urlsplit(text)
    return Path(parts.path) if parts.scheme == "file" else None


class Folder:
    """A folder, with names relative to it. What goes wrong is Java's IOException, as Py4JJavaError."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._hadoop = hadoop(spark)
        self.path = path
        self._fs = file_system(spark, path)

    def _at(self, name: str) -> Any:
        return self._hadoop.fs.Path(f"{self.path}/{name}" if name else self.path)

    def files(self, below: str = "") -> Iterator[tuple[str, int]]:
        """Names and sizes of all visible files below a folder of it; nothing when it is not there."""
        start = self._at(below)
        if not self._fs.exists(start):
            return
        prefix = str(self._fs.makeQualified(self._at("")).toString())
        found = self._fs.listFiles(start, True)
        while found.hasNext():
            status = found.next()
            name = str(status.getPath().toString())[len(prefix) :].lstrip("/")
            parts = name[len(below) :].strip("/").split("/")
            if not any(part.startswith(("_", ".")) for part in parts):
                yield name, int(status.getLen())

    def move(self, source: str, target: str) -> None:
        """Puts a file or folder in the place of another."""
        self._fs.mkdirs(self._at(posixpath.dirname(target)))
        self.delete(target)
        if not self._fs.rename(self._at(source), self._at(target)):
            raise OSError(f"{self.path}/{source} cannot be moved to {target}")

    def delete(self, name: str) -> None:
        self._fs.delete(self._at(name), True)

    def exists(self, name: str = "") -> bool:
        return bool(self._fs.exists(self._at(name)))

    def concatenate(self, names: Iterable[str], target: str, skip: bytes = b"") -> None:
        """Writes files one behind the other into a new one, byte by byte; packed ones are packed again. skip: the line
        that they all begin with, written once."""
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
        """The first row of a CSV file, with its end; lines within quotes belong to it. None when it is longer."""
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
        """Hadoop's codec for a name's ending; None for one that is not packed."""
        factory = self._hadoop.io.compress.CompressionCodecFactory(self._fs.getConf())
        return factory.getCodec(self._at(name))

    def _opened(self, name: str) -> Any:
        codec = self._codec(name)
        stream = self._fs.open(self._at(name))
        return stream if codec is None else codec.createInputStream(stream)

    def write_note(self, name: str, value: Any) -> None:
        """A small JSON file, whole or not at all."""
        fresh = posixpath.join(posixpath.dirname(name), f".{posixpath.basename(name)}.new")
        stream = self._fs.create(self._at(fresh), True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()
        self.move(fresh, name)

    def read_note(self, name: str) -> Any:
        stream = self._fs.open(self._at(name))
        try:
            return json.loads(bytes(stream.readAllBytes()))
        finally:
            stream.close()

    def names(self, folder: str = "") -> list[str]:
        """What lies in a folder of it, in order, without what is hidden; nothing when it is not there."""
        if not self.exists(folder):
            return []
        found = sorted(str(status.getPath().getName()) for status in self._fs.listStatus(self._at(folder)))
        return [name for name in found if not name.startswith(".")]
