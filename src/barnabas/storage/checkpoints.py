"""The small text files of a log dir and of a partition, in Kafka's formats.

Per log dir, version line `0`, a count line, then `topic partition offset` lines:
recovery-point-offset-checkpoint, replication-offset-checkpoint (high watermarks),
log-start-offset-checkpoint, cleaner-offset-checkpoint. Per partition: leader-epoch-checkpoint with
`epoch start-offset` lines, and partition.metadata. meta.properties identifies the owner of the log dir.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.records.units import LeaderEpoch, Offset
from barnabas.storage.errors import CorruptCheckpoint
from barnabas.storage.files import write_atomically
from barnabas.wire.uuids import parse_uuid_text, uuid_text

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
META_VERSION_MAX: Final = 1


class TopicPartition(NamedTuple):
    """A partition's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty if the file does not exist or is empty, as a Kafka broker that was killed early
    leaves it. Raises CorruptCheckpoint, OSError."""
    offsets: dict[TopicPartition, int] = {}
    if os.path.exists(path) and os.path.getsize(path) == 0:
        return offsets
    for line in _read_lines(path):
        fields = line.split()
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise CorruptCheckpoint(f"{path}: {line!r} is not `topic partition offset`") from None
    return offsets


def write_offsets(path: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    """Write an offset checkpoint. Raises OSError."""
    lines = [f"{name.topic} {name.partition} {offset}" for name, offset in sorted(offsets.items())]
    _write_lines(path, lines, sync=sync)


def read_epochs(path: str) -> list[tuple[LeaderEpoch, Offset]]:
    """(leader epoch, start offset) pairs; empty if the file does not exist. Raises CorruptCheckpoint."""
    entries = []
    for line in _read_lines(path):
        try:
            epoch, start = line.split()
            entries.append((LeaderEpoch(int(epoch)), Offset(int(start))))
        except ValueError:
            raise CorruptCheckpoint(f"{path}: {line!r} is not `epoch offset`") from None
    return entries


def write_epochs(path: str, entries: list[tuple[LeaderEpoch, Offset]], *, sync: bool = True) -> None:
    """Write the leader epochs. Raises OSError."""
    _write_lines(path, [f"{epoch} {start}" for epoch, start in entries], sync=sync)


def read_numbers(path: str) -> list[int]:
    """A list of numbers, one per line. Raises CorruptCheckpoint, FileNotFoundError."""
    if not os.path.exists(path):
        raise FileNotFoundError(path)
    try:
        return [int(line) for line in _read_lines(path)]
    except ValueError:
        raise CorruptCheckpoint(f"{path} contains something other than numbers") from None


def write_numbers(path: str, numbers: list[int]) -> None:
    """Write a list of numbers, one per line. Raises OSError."""
    _write_lines(path, [str(number) for number in numbers], sync=True)


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise CorruptCheckpoint(f"{path} is not text") from None
    lines = [line for line in lines if line.strip()]
    if len(lines) < 2 or lines[0].strip() != "0":
        raise CorruptCheckpoint(f"{path} does not begin with version 0 and a count")
    if not lines[1].strip().isdecimal() or int(lines[1]) != len(lines) - 2:
        raise CorruptCheckpoint(f"{path} says {lines[1]!r} entries and has {len(lines) - 2}")
    return lines[2:]


def _write_lines(path: str, lines: list[str], *, sync: bool) -> None:
    text = "\n".join(["0", str(len(lines)), *lines]) + "\n"
    write_atomically(path, text.encode(), sync=sync)


# ------------------------------------------------------------------------------------- partition.metadata


def read_topic_id(folder: str) -> uuid.UUID | None:
    """The topic's id from partition.metadata, None without the file. Raises CorruptCheckpoint."""
    path = os.path.join(folder, PARTITION_METADATA)
    try:
        values = _read_pairs(path, ":")
    except FileNotFoundError:
        return None
    try:
        return parse_uuid_text(values["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"{path} has no topic_id: {error}") from None


def write_topic_id(folder: str, topic_id: uuid.UUID, *, sync: bool = True) -> None:
    """Write partition.metadata. Raises OSError."""
    text = f"version: 0\ntopic_id: {uuid_text(topic_id)}\n"
    write_atomically(os.path.join(folder, PARTITION_METADATA), text.encode(), sync=sync)


def _read_pairs(path: str, separator: str) -> dict[str, str]:
    with open(path, "rb", buffering=0) as file:
        text = file.read().decode(errors="replace")
    pairs = {}
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("#"):
            name, _, value = line.partition(separator)
            pairs[name.strip()] = value.strip()
    return pairs


# ---------------------------------------------------------------------------------------- meta.properties


@dataclass(slots=True)
class MetaProperties:
    """The owner of a log dir. Version 1 is KRaft's (node.id), version 0 ZooKeeper's (broker.id)."""

    cluster_id: str | None
    node_id: int | None
    directory_id: uuid.UUID | None = None
    version: int = 1


def read_meta(log_dir: str) -> MetaProperties | None:
    """The contents of meta.properties; None if the dir is new. Raises CorruptCheckpoint."""
    path = os.path.join(log_dir, META_PROPERTIES)
    try:
        values = _read_pairs(path, "=")
    except FileNotFoundError:
        return None
    for name in ("version", "node.id", "broker.id"):
        value = values.get(name, "0")
        if not value.removeprefix("-").isdecimal():
            raise CorruptCheckpoint(
                f"{path}: {name} is {value!r}, which is not a number; write the right number there, or name another folder "
                "in log.dirs"
            )
    try:
        version = int(values.get("version", "0"))
        if version > META_VERSION_MAX:
            raise CorruptCheckpoint(
                f"{path}: version {version} was written by a newer release; this one knows up to {META_VERSION_MAX}. "
                "Start the newer release on this folder, or name another in log.dirs"
            )
        node = values.get("node.id", values.get("broker.id"))
        directory = values.get("directory.id")
        return MetaProperties(
            cluster_id=values.get("cluster.id"),
            node_id=None if node is None else int(node),
            directory_id=None if directory is None else parse_uuid_text(directory),
            version=version,
        )
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}; repair or remove it") from None


def write_meta(log_dir: str, meta: MetaProperties) -> None:
    """Write meta.properties. Raises OSError."""
    lines = ["#", f"version={meta.version}"]
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    if meta.node_id is not None:
        lines.append(f"{'node.id' if meta.version else 'broker.id'}={meta.node_id}")
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_text(meta.directory_id)}")
    write_atomically(os.path.join(log_dir, META_PROPERTIES), ("\n".join(lines) + "\n").encode())
