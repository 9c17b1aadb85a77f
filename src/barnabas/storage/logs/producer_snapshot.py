"""`.snapshot` files: a partition's producers as they were at the offset in the file's name.

version int16 (1) | CRC-32C uint32 of the rest | count int32 | entries of producer id int64, producer
epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch
int32, current transaction's first offset int64. Source: Kafka's ProducerSnapshot.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import Final

from barnabas.cores.producers import ProducerSnapshot
from barnabas.records.checksum import crc32c
from barnabas.storage.errors import CorruptCheckpoint
from barnabas.storage.files import write_atomically

VERSION: Final = 1
SUFFIX: Final = ".snapshot"
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def encode(rows: Iterable[ProducerSnapshot]) -> bytes:
    packed = [_ENTRY.pack(*row) for row in rows]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[ProducerSnapshot]:
    """The rows of a snapshot. Raises CorruptCheckpoint."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptCheckpoint(f"a producer snapshot of {len(data)} bytes is cut off")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptCheckpoint(f"version {version} of a producer snapshot; this release knows {VERSION}")
    body = memoryview(data)[_HEAD.size :]
    (count,) = _COUNT.unpack_from(body)
    if crc32c(body) != crc or count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptCheckpoint("the checksum of a producer snapshot does not hold")
    return [ProducerSnapshot(*row) for row in _ENTRY.iter_unpack(body[_COUNT.size :])]


def path_of(folder: str, offset: int) -> str:
    """The path of the snapshot of the producers at `offset`."""
    return os.path.join(folder, f"{offset:020d}{SUFFIX}")


def offsets_in(folder: str) -> list[int]:
    """The offsets of the snapshots in `folder`, ascending."""
    return offsets_among(os.listdir(folder))


def offsets_among(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among file names, ascending."""
    stems = [name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def read(path: str) -> list[ProducerSnapshot]:
    """The rows of a snapshot file. Raises CorruptCheckpoint, OSError."""
    with open(path, "rb") as file:
        return decode(file.read())


def write(path: str, rows: Iterable[ProducerSnapshot], *, sync: bool) -> None:
    """Write a snapshot file. Raises OSError."""
    write_atomically(path, encode(rows), sync=sync)
