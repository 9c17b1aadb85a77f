"""Looks at one cluster again and again, by Kafka's protocol, and keeps the last look and Burrow's board."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from barnabas.admin import LATEST, AsyncAdmin, Topic, TopicPartition
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.monitor.burrow.board import Board
from barnabas.monitor.commits import CommitFollower, GroupCommit
from barnabas.monitor.lag.reading import LagReader, Look
from barnabas.monitor.snapshot import ConnectionSeen, Disk, PartitionSeen, Snapshot

log = logging.getLogger("barnabas.monitor")

COMMITS_EVERY_S: Final = 1.0
DISKS_EVERY_MS: Final = 60_000
REQUEST_S: Final = 10.0


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class ClusterWatch:
    """One cluster. refresh_s: time between looks. on_look: called with the cluster's name and each look.

    last: the last look; None before the first. trouble: why the last look failed; None if it did not.
    """

    def __init__(
        self,
        name: str,
        options: ClientOptions,
        refresh_s: float,
        on_look: Callable[[str, Snapshot], None] = lambda name, seen: None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.name = name
        self.board = Board()
        self.refresh_s = refresh_s
        self.last: Snapshot | None = None
        self.trouble: str | None = "the first look is under way"
        self._options = replace(options, deadline_s=REQUEST_S, request_timeout_s=REQUEST_S)
        self._on_look = on_look
        self._now_ms = now_ms
        self._disks_ms = 0
        self._disks: tuple[Disk, ...] = ()
        self._sizes: Mapping[str, int] = {}
        self._first: dict[tuple[str, tuple[str, int]], int] = {}
        """What groups had committed at the first look. Commits of the last hour are read after it, so what has not been seen
        then is older."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def servers(self) -> Sequence[str]:
        """The brokers' addresses."""
        if self.last is None:
            return [f"{host}:{port}" for host, port in self._options.bootstrap]
        return list(self.last.brokers.values())

    def start(self) -> None:
        """Begin to look. The cluster need not be there yet."""
        self._tasks = [asyncio.create_task(self._run(), name=f"watch of cluster {self.name}")]

    async def stop(self) -> None:
        """End looking and close the connections."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        async with AsyncAdmin(self._options) as admin, AsyncAdmin(self._options) as second:
            reader = LagReader(admin)
            follower = CommitFollower(second, self._note_commit)
            following: asyncio.Task[None] | None = None
            try:
                while True:
                    began = time.monotonic()
                    await self._guarded(admin, reader, follower)
                    if following is None and self.last is not None:
                        # Not before the first look: commits in partitions that are not known are left out.
                        following = asyncio.create_task(self._follow(follower))
                    await asyncio.sleep(max(self.refresh_s - (time.monotonic() - began), 0.05))
            finally:
                if following is not None:
                    following.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await following

    async def _guarded(self, admin: AsyncAdmin, reader: LagReader, follower: CommitFollower) -> None:
        """One look; a failure costs this look and nothing else."""
        try:
            seen = await self._look(admin, reader, follower)
        except ClientError as error:
            if self.trouble != str(error):
                log.warning("a cluster cannot be read", extra={"cluster": self.name, "reason": str(error)})
            self.trouble = str(error)
            self._on_look(self.name, Snapshot(self._now_ms(), {}, {}, failures=(str(error),)))
            return
        except Exception as error:
            log.exception("a look at a cluster failed", extra={"cluster": self.name})
            self.trouble = f"internal error: {error}"
            return
        self.trouble = None
        self.last = seen
        self._on_look(self.name, seen)

    async def _follow(self, follower: CommitFollower) -> None:
        while True:
            try:
                await follower.poll(self._now_ms())
                if follower.since_ms is not None and self._first:
                    for (group, key), offset in self._first.items():
                        self.board.note_older(group, key, offset, follower.since_ms)
                    self._first.clear()
            except ClientError as error:
                log.debug("commits cannot be read", extra={"cluster": self.name, "reason": str(error)})
            except Exception:
                log.exception("following commits failed", extra={"cluster": self.name})
            await asyncio.sleep(min(COMMITS_EVERY_S, self.refresh_s))

    def _note_commit(self, commit: GroupCommit) -> None:
        if commit.offset is None:
            self.board.forget_commit(commit.group, commit.key)
        else:
            self.board.note_commit(commit.group, commit.key, commit.offset, commit.at_ms)

    async def _look(self, admin: AsyncAdmin, reader: LagReader, follower: CommitFollower) -> Snapshot:
        """Raises ClientError if the cluster does not answer."""
        topics, brokers, end_offsets = await _read_logs(admin)
        self.board.note_ends(
            {key: end for key, end in end_offsets.items() if not topics[key[0]].is_internal},
            {(topic.name, row.number) for topic in topics.values() for row in topic.partitions},
        )
        now_ms = self._now_ms()
        look = await reader.look(None, now_ms)
        self._note_groups(look, follower)
        failures = await self._read_disks(admin, now_ms)
        failures += [f"group {name}: {error}" for name, error in look.failed.items()]
        return Snapshot(
            now_ms,
            brokers,
            _partitions(topics, end_offsets),
            look.groups,
            self._disks,
            self._sizes,
            tuple(failures),
        )

    def _note_groups(self, look: Look, follower: CommitFollower) -> None:
        """Who reads what; and what is committed, of groups whose commits cannot be seen."""
        for group in look.groups:
            readers = {}
            for row in group.partitions:
                key = (row.partition.topic, row.partition.partition)
                if row.client is not None:
                    readers[key] = (row.host or "", row.client)
                if row.committed is None or group.is_share:
                    continue
                if follower.is_refused is not None:
                    self.board.note_offset(group.name, key, row.committed, look.now_ms)
                elif self.last is None:
                    self._first[group.name, key] = row.committed
            self.board.note_readers(group.name, readers)
        self.board.keep_groups((group.name for group in look.groups), look.now_ms)

    async def _read_disks(self, admin: AsyncAdmin, now_ms: int) -> list[str]:
        """Log dirs and the sizes of topics, once a minute; nothing where this user may not ask. Says what failed."""
        if now_ms - self._disks_ms < DISKS_EVERY_MS:
            return []
        self._disks_ms = now_ms
        results = await admin.log_dirs.describe()
        disks, sizes = [], dict[str, int]()
        for node, dirs in results.done.items():
            for row in dirs:
                offline = row.error is not None
                disks.append(Disk(node, row.path, row.size_bytes, row.total_bytes, row.usable_bytes, offline))
                for replica in row.replicas:
                    topic = replica.partition.topic
                    sizes[topic] = sizes.get(topic, 0) + replica.size_bytes
        self._disks, self._sizes = tuple(disks), sizes
        return [f"log dirs of broker {node}: {error}" for node, error in results.failed.items()]


async def take_look(
    admin: AsyncAdmin, reader: LagReader, now_ms: int, *, with_connections: bool = False
) -> Snapshot:
    """One look, without disks. Raises ClientError."""
    topics, brokers, end_offsets = await _read_logs(admin)
    look = await reader.look(None, now_ms)
    connections, failures = await _read_connections(admin) if with_connections else (None, ())
    return Snapshot(
        now_ms,
        brokers,
        _partitions(topics, end_offsets),
        look.groups,
        connections=connections,
        failures=failures,
    )


async def _read_connections(admin: AsyncAdmin) -> tuple[tuple[ConnectionSeen, ...], tuple[str, ...]]:
    """Who is connected, and what the brokers say that do not tell."""
    answers = await admin.inspection.clients()
    seen = [
        ConnectionSeen(
            broker, one.address, one.client_id or "", one.principal, one.received_bytes, one.sent_bytes
        )
        for broker, answer in answers.done.items()
        for one in answer.clients
    ]
    return tuple(seen), tuple(str(error) for error in answers.failed.values())


async def _read_logs(
    admin: AsyncAdmin,
) -> tuple[Mapping[str, Topic], dict[int, str], dict[tuple[str, int], int]]:
    """All topics, the addresses of brokers, and the ends of logs. Raises ClientError."""
    topics = await admin.topics.list()
    brokers = {node.id: f"{node.host}:{node.port}" for node in sorted(admin.connections.nodes.values())}
    keys = [
        TopicPartition(topic.name, row.number)
        for topic in topics.values()
        for row in topic.partitions
        if row.leader >= 0
    ]
    ends = (await admin.records.offsets(dict.fromkeys(keys, LATEST))).done
    return topics, brokers, {(key.topic, key.partition): int(row.offset or 0) for key, row in ends.items()}


def _partitions(
    topics: Mapping[str, Topic], ends: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], PartitionSeen]:
    return {
        (topic.name, row.number): PartitionSeen(
            row.leader, len(row.replicas), len(row.in_sync), ends.get((topic.name, row.number))
        )
        for topic in topics.values()
        for row in topic.partitions
    }
