"""Puts a data directory together from Kafka's log dirs and what is known of their cluster.

Each partition is copied from the broker that led it, or from one that was in sync; without metadata, from the folder with
the newest leader epoch, and of those the longest. The new directory has one broker, which has all replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.broker.cluster import restoring
from barnabas.broker.cluster.trees import TREE_FILE
from barnabas.broker.importing import kraft, zookeeper
from barnabas.broker.importing.metadata import CannotImport, KnownTopic, Metadata
from barnabas.coordination.local import LocalTree, sync_file
from barnabas.coordination.tree import TreeError
from barnabas.cores import acl, tokens
from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import INTERNAL_TOPICS
from barnabas.cores.znode_ops import Create, Op, Set
from barnabas.records.units import LeaderEpoch, Offset
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import MetaProperties, TopicPartition
from barnabas.storage.dirs.log_dir import CLEAN_SHUTDOWN_FILE, LogDir, parse_folder_name
from barnabas.storage.errors import CorruptCheckpoint, LogDirLocked, StorageError
from barnabas.wire.uuids import uuid_text

OFFSET_FILES: Final = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.CLEANER_OFFSETS,
)
OPS_AT_ONCE: Final = 500
NOT_BROKER_OPTIONS: Final = frozenset(
    {"listeners", "advertised.listeners", "listener.security.protocol.map", "log.dirs", "log.dir"}
)
"""Options of brokers that name addresses or folders of the old machines."""


@dataclass
class Source:
    """One log dir of Kafka. broker: -1 if it does not say."""

    path: Path
    broker: int
    cluster_id: str | None
    clean: bool
    partitions: dict[TopicPartition, Path] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)


@dataclass
class Imported:
    """What was done, for the user. missing: partitions that the metadata have and no folder holds."""

    target: Path
    cluster_id: str
    source: str
    topics: int
    partitions: int
    size_bytes: int
    configs: int
    tokens: int
    rules: int
    missing: list[TopicPartition]
    clean: bool


def import_from(
    dirs: Sequence[Path], target: Path, node_id: int, zookeeper_address: str | None = None
) -> Imported:
    """Copy Kafka's log dirs into the new data directory `target`. Raises CannotImport, TreeError, OSError."""
    if target.exists() and any(target.iterdir()):
        raise CannotImport(f"{target} is not empty; name a new folder with --data")
    locked: list[LogDir] = []
    try:
        for path in dirs:
            locked.append(_lock(path))
        sources = [_source(path) for path in dirs]
        metadata = _metadata(sources, zookeeper_address)
        cluster_id = _cluster_of(sources, metadata)
        chosen = _choose(sources, metadata)
        return _make(sources, metadata, chosen, target, cluster_id, node_id)
    except StorageError as error:
        raise CannotImport(str(error)) from error
    finally:
        for log_dir in locked:
            log_dir.unlock()


def _lock(path: Path) -> LogDir:
    if not (path / checkpoints.META_PROPERTIES).is_file():
        raise CannotImport(
            f"{path} has no {checkpoints.META_PROPERTIES}, and so is no log dir of a broker; name what log.dirs names"
        )
    if (path / TREE_FILE).exists():
        raise CannotImport(
            f"{path} is a data directory of Barnabas: `barnabas start --data {path}` opens it as it is"
        )
    log_dir = LogDir(str(path.absolute()))
    try:
        log_dir.lock()  # Java takes the same kind of lock
    except LogDirLocked:
        raise CannotImport(f"{path} is in use by a broker that runs; stop Kafka first") from None
    return log_dir


def _source(path: Path) -> Source:
    meta = checkpoints.read_meta(str(path))
    broker = -1 if meta is None or meta.node_id is None else meta.node_id
    cluster_id = None if meta is None else meta.cluster_id
    source = Source(path, broker, cluster_id, (path / CLEAN_SHUTDOWN_FILE).exists())
    for entry in os.scandir(path):
        name = parse_folder_name(entry.name)
        if name is not None and entry.is_dir() and entry.name != kraft.FOLDER:
            source.partitions[name] = Path(entry.path)
    for file in OFFSET_FILES:
        source.offsets[file] = checkpoints.read_offsets(str(path / file))
    return source


def _metadata(sources: Sequence[Source], zookeeper_address: str | None) -> Metadata:
    if zookeeper_address is not None:
        return asyncio.run(_ask_zookeeper(zookeeper_address, sources))
    logs = [source.path / kraft.FOLDER for source in sources if (source.path / kraft.FOLDER).is_dir()]
    if not logs:
        return Metadata("")
    # Every controller and broker has a copy; one that was stopped earlier lacks the newest changes.
    newest = max(logs, key=lambda folder: (_end_of(folder), str(folder)))
    return kraft.read(newest)


def _end_of(folder: Path) -> tuple[int, int]:
    """(first offset, size) of the last segment: which of two copies of one log goes further."""
    last = max(folder.glob("*.log"), default=None)
    return (-1, 0) if last is None else (int(last.stem), last.stat().st_size)


async def _ask_zookeeper(address: str, sources: Sequence[Source]) -> Metadata:
    from barnabas.coordination.zookeeper import ZooKeeperTree

    hosts, slash, chroot = address.partition("/")
    root = f"/{chroot.strip('/')}" if slash and chroot.strip("/") else ""
    tree = await ZooKeeperTree.open(hosts)  # without the chroot, which would be made if it were missing
    try:
        subtree = await tree.subtree(root or "/")
    finally:
        await tree.close()
    nodes = {path.removeprefix(root) or "/": data for path, (data, _) in subtree.items()}
    metadata = zookeeper.read(address, nodes)
    known = {source.cluster_id for source in sources if source.cluster_id}
    there = zookeeper.cluster_id(nodes)
    if known - {there}:
        raise CannotImport(
            f"{metadata.source} has cluster {there}, and the log dirs are of {', '.join(sorted(known))}"
        )
    return metadata


def _cluster_of(sources: Sequence[Source], metadata: Metadata) -> str:
    known = {source.cluster_id for source in sources if source.cluster_id}
    if len(known) > 1:
        raise CannotImport(f"the log dirs are of several clusters: {', '.join(sorted(known))}")
    return known.pop() if known else uuid_text(uuid.uuid4())


def _choose(sources: Sequence[Source], metadata: Metadata) -> dict[TopicPartition, Source]:
    """Which copy of each partition is taken. Topics that the metadata do not have were deleted: they are left out."""
    copies: dict[TopicPartition, list[Source]] = {}
    for source in sources:
        for name in source.partitions:
            if not metadata.source or _is_known(metadata, name, source.partitions[name]):
                copies.setdefault(name, []).append(source)
    return {
        name: max(candidates, key=lambda source: _rank(source, name, metadata))
        for name, candidates in copies.items()
    }


def _is_known(metadata: Metadata, name: TopicPartition, folder: Path) -> bool:
    topic = metadata.topics.get(name.topic)
    if topic is None:
        return False
    own = checkpoints.read_topic_id(str(folder))
    return own is None or not topic.topic_id or not topic.topic_id.int or own == topic.topic_id


def _rank(source: Source, name: TopicPartition, metadata: Metadata) -> tuple[bool, bool, int, int]:
    topic = metadata.topics.get(name.topic)
    in_sync = topic is not None and source.broker in topic.in_sync.get(name.partition, ())
    leads = (
        topic is not None and source.broker >= 0 and topic.leaders.get(name.partition, -1) == source.broker
    )
    folder = source.partitions[name]
    size = sum(file.stat().st_size for file in folder.glob("*.log"))
    return leads, in_sync, _epoch_in(folder), size


def _epoch_in(folder: Path) -> int:
    """The newest leader epoch; 0 without a readable file. Kafka 0.11 leaves an empty one for a log without records."""
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    with contextlib.suppress(CorruptCheckpoint):
        epochs = checkpoints.read_epochs(str(folder / checkpoints.LEADER_EPOCHS))
    return max((epoch for epoch, _ in epochs), default=0)


def _make(
    sources: Sequence[Source],
    metadata: Metadata,
    chosen: dict[TopicPartition, Source],
    target: Path,
    cluster_id: str,
    node_id: int,
) -> Imported:
    """Copy into a folder beside the target, which gets its name when it is complete."""
    fresh = target.with_name(f"{target.name}.importing")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    clean = all(source.clean for source in sources)
    try:
        size_bytes = sum(_copy(source, name, fresh) for name, source in chosen.items())
        _write_offsets(chosen, fresh)
        checkpoints.write_meta(str(fresh), MetaProperties(cluster_id, node_id))
        if clean:
            (fresh / CLEAN_SHUTDOWN_FILE).write_bytes(b'{"version":0,"brokerEpoch":-1}')
        asyncio.run(_make_tree(fresh, metadata, node_id))
        if target.exists():
            target.rmdir()
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    sync_file(target.parent)
    missing = [
        TopicPartition(name, index)
        for name, topic in sorted(metadata.topics.items())
        for index in sorted(topic.leaders)
        if TopicPartition(name, index) not in chosen
    ]
    return Imported(
        target,
        cluster_id,
        metadata.source,
        len({name.topic for name in chosen}),
        len(chosen),
        size_bytes,
        len(metadata.configs),
        len(metadata.tokens),
        sum(map(len, metadata.rules.values())),
        missing,
        clean,
    )


def _copy(source: Source, name: TopicPartition, fresh: Path) -> int:
    """Copy a partition's folder; returns its bytes."""
    folder = fresh / str(name)
    shutil.copytree(source.partitions[name], folder)
    return sum(file.stat().st_size for file in folder.iterdir())


def _write_offsets(chosen: dict[TopicPartition, Source], fresh: Path) -> None:
    for file in OFFSET_FILES:
        rows = {
            name: source.offsets[file][name]
            for name, source in chosen.items()
            if name in source.offsets[file]
        }
        if rows:
            checkpoints.write_offsets(str(fresh / file), rows)


async def _make_tree(fresh: Path, metadata: Metadata, node_id: int) -> None:
    """The metadata tree: what the folders say, as after a loss of the file, and then what the cluster knew."""
    contents = restoring.find([fresh])
    for name, topic in metadata.topics.items():
        _add(contents.topics, name, topic)
    contents.producer_id_max = max(contents.producer_id_max, metadata.next_producer_id - 1)
    now_ms = time.time_ns() // 1_000_000
    path = fresh / TREE_FILE
    await restoring.complete(path, contents, now_ms)
    tree = LocalTree.open(path, lambda: now_ms)
    try:
        known = (await tree.subtree("/")).keys()
        ops = [*_config_ops(metadata, node_id, known), *_rule_ops(metadata), *_token_ops(metadata)]
        for begin in range(0, len(ops), OPS_AT_ONCE):
            await tree.multi(ops[begin : begin + OPS_AT_ONCE])
    finally:
        await tree.close()
    sync_file(path)


def _add(topics: dict[str, restoring.FoundTopic], name: str, known: KnownTopic) -> None:
    topic = topics.setdefault(name, restoring.FoundTopic())
    if known.topic_id is not None and known.topic_id.int:
        topic.topic_id = known.topic_id
    for index, epoch in known.epochs.items():
        topic.epochs[index] = max(topic.epochs.get(index, 0), epoch)
    if not topic.epochs:
        topic.epochs[0] = 0


def _is_of_a_machine(option: str) -> bool:
    """Whether a broker's option names addresses, files or keys of the machine that Kafka ran on."""
    return option in NOT_BROKER_OPTIONS or "listener" in option or option.startswith(("ssl.", "sasl."))


def _config_ops(metadata: Metadata, node_id: int, known: Iterable[str]) -> list[Op]:
    there, ops = set(known), list[Op]()
    for (kind, name), options in sorted(metadata.configs.items()):
        if kind == "brokers":
            if name not in (layout.DEFAULT_ENTITY, str(node_id)):
                continue  # of a broker that is not there any more
            options = {key: value for key, value in options.items() if not _is_of_a_machine(key)}
            if not options:
                continue
        if kind == "topics" and name not in metadata.topics:
            continue
        if kind == "topics" and name in INTERNAL_TOPICS:
            options = {"cleanup.policy": "compact", **options}
        path, data = layout.config_path(kind, name), layout.encode_config(options)
        parent, slash, _ = path.partition("/clients/") if kind == "users" else ("", "", "")
        if slash:
            if parent not in there:
                ops.append(Create(parent, layout.encode_config({})))
            if f"{parent}/clients" not in there:
                ops.append(Create(f"{parent}/clients"))
            there |= {parent, f"{parent}/clients"}
        ops.append(Set(path, data) if path in there else Create(path, data))
        there.add(path)
    return ops


def _rule_ops(metadata: Metadata) -> list[Op]:
    return [
        Create(acl.resource_path(resource), acl.encode_rules(rules))
        for resource, rules in sorted(metadata.rules.items())
        if rules
    ]


def _token_ops(metadata: Metadata) -> list[Op]:
    return [
        Create(tokens.token_path(name), tokens.encode_token(token))
        for name, token in sorted(metadata.tokens.items())
    ]


__all__ = ["CannotImport", "Imported", "TreeError", "import_from"]
