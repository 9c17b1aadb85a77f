"""Makes the metadata tree of a single broker anew, after its file was lost or damaged.

The newest whole copy (every log dir has one, a minute old at most) is the base. Where there is none, topics are
found again by the partitions' folders, which know topic ids and leader epochs; options of topics, brokers and groups,
and quotas, are lost then. In both cases what the log dirs know better wins: topics that the base lacks are added,
those whose folders are gone everywhere are left out, leader epochs are never lower than in the logs, and producer ids go on
far above every id that was seen.
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
from barnabas.storage import checkpoints, producer_snapshot
from barnabas.storage.errors import StorageError
from barnabas.storage.log_dir import LogDir, parse_folder_name

BLOCKS_SKIPPED: Final = 100
OPS_AT_ONCE: Final = 500


class CannotRestore(Exception):
    """Why nothing can be restored; one line for the user."""


@dataclass
class FoundTopic:
    """A topic as the log dirs know it: its id, and the newest leader epoch of each partition."""

    topic_id: uuid.UUID | None = None
    epochs: dict[int, int] = field(default_factory=dict)


@dataclass
class Found:
    """What the log dirs of one broker hold."""

    cluster_id: str
    node_id: int
    topics: dict[str, FoundTopic]
    producer_id_max: int


@dataclass
class Restored:
    """What was (or would be) done. base: the copy that was taken, None where the tree was made of the log dirs alone."""

    base: Path | None
    topics: int
    added: list[str]
    left_out: list[str]
    damaged: list[Path]
    tree: Path


def is_whole(path: Path) -> bool:
    """Whether a tree's file is there and undamaged."""
    return _zxid(path) is not None


def _zxid(path: Path) -> int | None:
    """How many changes a file has seen; None when it is missing or damaged."""
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
    """Hold the log dirs, so that no broker runs on them meanwhile. Raises CannotRestore."""
    held = [LogDir(str(path.absolute())) for path in log_dirs]
    try:
        for log_dir in held:
            log_dir.lock()
        yield
    except (StorageError, OSError) as error:
        raise CannotRestore(str(error)) from error
    finally:
        for log_dir in held:
            log_dir.unlock()


def find(log_dirs: Sequence[Path]) -> Found:
    """What the log dirs say. Raises CannotRestore."""
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
    return Found(cluster_id, node_id, topics, producer_id_max)


def _why_not(log_dirs: Sequence[Path], owners: set[tuple[str, int]]) -> str:
    named = " ".join(map(str, log_dirs))
    if not owners:
        return f"no meta.properties in {named} says whose log dirs these are; nothing was ever kept there"
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
    """Plan the tree of the broker that owns these log dirs, the first of which keeps it, and make it when `apply` is set.

    Raises CannotRestore, TreeError, OSError. The dirs must be locked.
    """
    found = find(log_dirs)
    tree_path = log_dirs[0] / TREE_FILE
    copies = [(zxid, path) for path in (d / COPY_FILE for d in log_dirs) if (zxid := _zxid(path)) is not None]
    base = max(copies)[1] if copies else None
    fresh = tree_path.with_suffix(".restored")
    for path in _files_of(fresh):
        path.unlink(missing_ok=True)
    if base is not None:
        shutil.copyfile(base, fresh)
    try:
        restored = await _complete(fresh, found, now_ms)
        restored.base, restored.tree = base, tree_path
        if apply:
            restored.damaged = _put_in_place(fresh, tree_path, now_ms)
        return restored
    finally:
        for path in _files_of(fresh):
            path.unlink(missing_ok=True)


async def _complete(path: Path, found: Found, now_ms: int) -> Restored:
    """Bring the tree at `path`, which may be new, in line with what the log dirs hold."""
    tree = LocalTree.open(path, lambda: now_ms)
    try:
        nodes = await tree.subtree("/")
        missing = decide_bootstrap(nodes.keys(), found.cluster_id)
        if missing:
            await tree.multi(missing)
        image = ClusterImage()
        for node, (data, stat) in (await tree.subtree("/")).items():
            image.put(node, data, stat.version, stat.czxid)
        if image.cluster_id != found.cluster_id:
            raise CannotRestore(
                f"the copy is of cluster {image.cluster_id}, the log dirs are of {found.cluster_id}"
            )
        added = [name for name in sorted(found.topics) if name not in image.topics]
        left_out = [name for name in sorted(image.topics) if name not in found.topics]
        ops = [op for name in added for op in _new_topic(name, found.topics[name], found.node_id)]
        ops += [op for name in left_out for op in _gone(image.topics[name], image)]
        ops += _raised_epochs(image, found)
        ops.append(await _producer_ids(tree, found))
        for begin in range(0, len(ops), OPS_AT_ONCE):
            await tree.multi(ops[begin : begin + OPS_AT_ONCE])
        return Restored(None, len(found.topics), added, left_out, [], path)
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
        # Never deleted by age: what it keeps would be gone at once.
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


def _raised_epochs(image: ClusterImage, found: Found) -> list[Op]:
    """A leader's epoch never lies below one under which records were written."""
    ops: list[Op] = []
    for name, topic in found.topics.items():
        known = image.topics.get(name)
        for index, epoch in topic.epochs.items():
            partition = known.partitions.get(index) if known is not None else None
            if partition is not None and partition.partition_epoch >= 0 and partition.leader_epoch < epoch:
                state = PartitionState(
                    partition.leader, epoch, partition.isr, partition.controller_epoch, partition.recovering
                )
                ops.append(Set(layout.state_path(name, index), layout.encode_state(state)))
    return ops


async def _producer_ids(tree: LocalTree, found: Found) -> Op:
    """Ids given out since the copy must not be given out again: their sequences would be taken for repetitions."""
    data, _ = await tree.get(layout.PRODUCER_ID_BLOCK)
    block = layout.decode_producer_id_block(data)
    newest = max(found.producer_id_max, -1 if block is None else block.last)
    first = newest + 1 + BLOCKS_SKIPPED * BLOCK_IDS
    skipped = ProducerIdBlock(found.node_id, first, first + BLOCK_IDS - 1)
    return Set(layout.PRODUCER_ID_BLOCK, layout.encode_producer_id_block(skipped))


def _files_of(path: Path) -> list[Path]:
    return [path, Path(f"{path}-wal"), Path(f"{path}-shm"), Path(f"{path}-journal")]


def _put_in_place(fresh: Path, tree_path: Path, now_ms: int) -> list[Path]:
    """Rename the damaged file and its like, then the fresh one; returns what was set aside."""
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
