"""Recreates the metadata tree of a single broker whose file was lost or damaged.

The base is the newest complete copy; every log dir has one that is at most a minute old. Without a copy, topics are
recovered from the partitions' folders, which contain topic ids and leader epochs; the options of topics, brokers and groups,
and quotas, are lost then. In both cases the log dirs take precedence: topics that the base lacks are added, topics without
any folder are left out, leader epochs are never lower than in the logs, and producer ids continue far above every id that
was seen.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.broker.cluster.producer_ids import BLOCK_IDS
from barnabas.broker.cluster.trees import COPY_FILE, TREE_FILE
from barnabas.coordination.local import LocalTree, require_whole, sync_file
from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import INTERNAL_TOPICS, ClusterImage, TopicImage
from barnabas.cores.controller import decide_bootstrap
from barnabas.cores.znode_layout import Assignment, PartitionState, ProducerIdBlock
from barnabas.cores.znode_ops import Create, Delete, Op, Set
from barnabas.records.units import LeaderEpoch, Offset
from barnabas.runtime.entropy import SystemEntropy
from barnabas.storage import checkpoints
from barnabas.storage.dirs.log_dir import LogDir, parse_folder_name
from barnabas.storage.errors import StorageError
from barnabas.storage.logs import producer_snapshot

BLOCKS_SKIPPED: Final = 100
OPS_AT_ONCE: Final = 500


class CannotRestore(Exception):
    """Nothing can be restored; the message is one line for the user."""


@dataclass
class FoundTopic:
    """A topic as found in the log dirs: its id, and the newest leader epoch of each partition."""

    topic_id: uuid.UUID | None = None
    epochs: dict[int, int] = field(default_factory=dict)


@dataclass
class LogDirContents:
    """The contents of one broker's log dirs."""

    cluster_id: str
    node_id: int
    topics: dict[str, FoundTopic]
    producer_id_max: int


@dataclass
class Restored:
    """What was (or would be) done. base: the copy used, None if the tree was built from the log dirs alone."""

    base: Path | None
    topics: int
    added: list[str]
    left_out: list[str]
    damaged: list[Path]
    tree: Path


def is_whole(path: Path) -> bool:
    """Whether a tree's file exists and is undamaged."""
    return _zxid(path) is not None


def _zxid(path: Path) -> int | None:
    """The number of changes that a tree's file contains; None when it is missing or damaged."""
    if not path.exists():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            require_whole(db)
            (zxid,) = db.execute("SELECT value FROM counter WHERE name = 'zxid'").fetchone()
            return int(zxid)
    except (sqlite3.Error, TypeError):
        return None


@contextlib.contextmanager
def locked(log_dirs: Sequence[Path]) -> Iterator[None]:
    """Lock the log dirs, so that no broker uses them meanwhile. Raises CannotRestore."""
    dirs = [LogDir(str(path.absolute())) for path in log_dirs]
    try:
        for log_dir in dirs:
            log_dir.lock()
        yield
    except (StorageError, OSError) as error:
        raise CannotRestore(str(error)) from error
    finally:
        for log_dir in dirs:
            log_dir.unlock()


def find(log_dirs: Sequence[Path]) -> LogDirContents:
    """Collect what the log dirs contain. Raises CannotRestore."""
    owners: set[tuple[str, int]] = set()
    topics: dict[str, FoundTopic] = {}
    producer_id_max = -1
    for log_dir in log_dirs:
        try:
            meta = checkpoints.read_meta(str(log_dir))
            folders = sorted(entry.name for entry in os.scandir(log_dir) if entry.is_dir())
        except (StorageError, OSError) as error:
            raise CannotRestore(f"{log_dir} cannot be read: {error}") from error
        if meta is not None and meta.cluster_id is not None and meta.node_id is not None:
            owners.add((meta.cluster_id, meta.node_id))
        for folder in folders:
            name = parse_folder_name(folder)
            if name is not None:
                path = str(log_dir / folder)
                _note(topics.setdefault(name.topic, FoundTopic()), name.partition, path)
                producer_id_max = max(producer_id_max, _producer_id_max(path))
    if len(owners) != 1:
        raise CannotRestore(_why_not(log_dirs, owners))
    ((cluster_id, node_id),) = owners
    return LogDirContents(cluster_id, node_id, topics, producer_id_max)


def _why_not(log_dirs: Sequence[Path], owners: set[tuple[str, int]]) -> str:
    named = " ".join(map(str, log_dirs))
    if not owners:
        return f"there is no meta.properties in {named}; no broker has used these log dirs"
    brokers = ", ".join(f"broker {node} of cluster {cluster}" for cluster, node in sorted(owners))
    return f"the log dirs {named} belong to different brokers ({brokers}); name those of one"


def _note(topic: FoundTopic, index: int, folder: str) -> None:
    with contextlib.suppress(StorageError, OSError):
        topic.topic_id = topic.topic_id or checkpoints.read_topic_id(folder)
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    with contextlib.suppress(StorageError, OSError):
        epochs = checkpoints.read_epochs(os.path.join(folder, checkpoints.LEADER_EPOCHS))
    topic.epochs[index] = max((epoch for epoch, _ in epochs), default=0)


def _producer_id_max(folder: str) -> int:
    newest = -1
    for offset in producer_snapshot.offsets_in(folder):
        with contextlib.suppress(StorageError, OSError):
            rows = producer_snapshot.read(producer_snapshot.path_of(folder, offset))
            newest = max(newest, max((row.producer_id for row in rows), default=-1))
    return newest


async def restore(log_dirs: Sequence[Path], now_ms: int, *, apply: bool) -> Restored:
    """Plan the tree for the broker of these log dirs, the first of which holds it; with `apply`, also create it.

    Raises CannotRestore, TreeError, OSError. The dirs must be locked.
    """
    disk_contents = find(log_dirs)
    tree_path = log_dirs[0] / TREE_FILE
    copies = [(zxid, path) for path in (d / COPY_FILE for d in log_dirs) if (zxid := _zxid(path)) is not None]
    base = max(copies)[1] if copies else None
    fresh = tree_path.with_suffix(".restored")
    for path in _files_of(fresh):
        path.unlink(missing_ok=True)
    if base is not None:
        shutil.copyfile(base, fresh)
    try:
        restored = await complete(fresh, disk_contents, now_ms)
        restored.base, restored.tree = base, tree_path
        if apply:
            restored.damaged = _put_in_place(fresh, tree_path, now_ms)
        return restored
    finally:
        for path in _files_of(fresh):
            path.unlink(missing_ok=True)


async def complete(path: Path, on_disk: LogDirContents, now_ms: int) -> Restored:
    """Make the tree at `path`, which may be new, agree with the contents of the log dirs."""
    tree = LocalTree.open(path, lambda: now_ms)
    try:
        nodes = await tree.subtree("/")
        missing = decide_bootstrap(nodes.keys(), on_disk.cluster_id, SystemEntropy().secret())
        if missing:
            await tree.multi(missing)
        image = ClusterImage()
        for node, (data, stat) in (await tree.subtree("/")).items():
            image.put(node, data, stat.version, stat.czxid)
        if image.cluster_id != on_disk.cluster_id:
            raise CannotRestore(
                f"the copy is of cluster {image.cluster_id}, the log dirs are of {on_disk.cluster_id}"
            )
        added = [name for name in sorted(on_disk.topics) if name not in image.topics]
        left_out = [name for name in sorted(image.topics) if name not in on_disk.topics]
        ops = [op for name in added for op in _new_topic(name, on_disk.topics[name], on_disk.node_id)]
        ops += [op for name in left_out for op in _gone(image.topics[name], image)]
        ops += _raised_epochs(image, on_disk)
        ops.append(await _producer_ids(tree, on_disk))
        for begin in range(0, len(ops), OPS_AT_ONCE):
            await tree.multi(ops[begin : begin + OPS_AT_ONCE])
        return Restored(None, len(on_disk.topics), added, left_out, [], path)
    finally:
        await tree.close()


def _new_topic(name: str, topic: FoundTopic, node_id: int) -> list[Op]:
    indexes = range(max(topic.epochs) + 1)
    assignment = Assignment(topic.topic_id or uuid.uuid4(), dict.fromkeys(indexes, (node_id,)), {}, {})
    ops: list[Op] = [
        Create(layout.topic_path(name), layout.encode_assignment(assignment)),
        Create(layout.partitions_path(name)),
    ]
    if name in INTERNAL_TOPICS and name != "__share_group_state":
        # Keep records forever: with the default retention, the topic's records could be deleted at once.
        ops.append(
            Create(layout.config_path("topics", name), layout.encode_config({"cleanup.policy": "compact"}))
        )
    elif name in INTERNAL_TOPICS:
        ops.append(Create(layout.config_path("topics", name), layout.encode_config({"retention.ms": "-1"})))
    for index in indexes:
        state = PartitionState(node_id, topic.epochs.get(index, 0), (node_id,), 0)
        ops += (
            Create(layout.partition_path(name, index)),
            Create(layout.state_path(name, index), layout.encode_state(state)),
        )
    return ops


def _gone(topic: TopicImage, image: ClusterImage) -> list[Op]:
    ops: list[Op] = []
    if ("topics", topic.name) in image.configs:
        ops.append(Delete(layout.config_path("topics", topic.name)))
    for index, partition in topic.partitions.items():
        if partition.partition_epoch >= 0:
            ops += (
                Delete(layout.state_path(topic.name, index)),
                Delete(layout.partition_path(topic.name, index)),
            )
    return [*ops, Delete(layout.partitions_path(topic.name)), Delete(layout.topic_path(topic.name))]


def _raised_epochs(image: ClusterImage, on_disk: LogDirContents) -> list[Op]:
    """Leader epochs must not be lower than the epochs under which records were written."""
    ops: list[Op] = []
    for name, topic in on_disk.topics.items():
        known = image.topics.get(name)
        for index, epoch in topic.epochs.items():
            partition = known.partitions.get(index) if known is not None else None
            if partition is not None and partition.partition_epoch >= 0 and partition.leader_epoch < epoch:
                state = PartitionState(
                    partition.leader, epoch, partition.isr, partition.controller_epoch, partition.recovering
                )
                ops.append(Set(layout.state_path(name, index), layout.encode_state(state)))
    return ops


async def _producer_ids(tree: LocalTree, on_disk: LogDirContents) -> Op:
    """Ids handed out since the copy was made must not be used again: new batches would be taken for duplicates."""
    data, _ = await tree.get(layout.PRODUCER_ID_BLOCK)
    block = layout.decode_producer_id_block(data)
    newest = max(on_disk.producer_id_max, -1 if block is None else block.last)
    first = newest + 1 + BLOCKS_SKIPPED * BLOCK_IDS
    skipped = ProducerIdBlock(on_disk.node_id, first, first + BLOCK_IDS - 1)
    return Set(layout.PRODUCER_ID_BLOCK, layout.encode_producer_id_block(skipped))


def _files_of(path: Path) -> list[Path]:
    return [path, Path(f"{path}-wal"), Path(f"{path}-shm"), Path(f"{path}-journal")]


def _put_in_place(fresh: Path, tree_path: Path, now_ms: int) -> list[Path]:
    """Rename the damaged file and its companions, then the new one; returns the renamed files."""
    aside = []
    for path in _files_of(tree_path):
        if path.exists():
            kept = Path(f"{path}.{now_ms}.damaged")
            path.rename(kept)
            aside.append(kept)
    sync_file(fresh)
    fresh.rename(tree_path)
    sync_file(tree_path.parent)
    return aside
