"""All logs of one broker, in one or several log dirs.

`lock` takes the dirs, `load` opens every partition, in threads where a scan is needed. One thread (the shard's
loop) owns the logs; `checkpoint`, `flush_due` and `remove_doomed` may run in another beside it. A dir that
fails goes offline with its partitions; the others go on.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Final, NamedTuple

from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import (
    CorruptCheckpoint,
    LogDirOffline,
    StorageError,
    WrongLogDir,
)
from barnabas.storage.files import fsync_dir, remove_quietly, write_atomically
from barnabas.storage.log import Log
from barnabas.storage.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDir,
    folder_name,
    marked,
    parse_folder_name,
)
from barnabas.storage.moving import Move, Moves, longer_of, partition_of_future
from barnabas.storage.recovery import Mended, create_log, open_log
from barnabas.storage.throttle import Throttle

log = logging.getLogger("barnabas.storage")

CLOSING_THREADS: Final = 8
LOGS_PER_TASK: Final = 4
LOGS_PER_TASK_CLEAN: Final = 64


class DirUsage(NamedTuple):
    """What DescribeLogDirs tells of one dir; bytes are -1 when it is offline."""

    path: str
    offline: bool
    total_bytes: int
    usable_bytes: int
    logs: dict[TopicPartition, Log]
    futures: dict[TopicPartition, Move]


class LogManager:
    """See the module."""

    def __init__(
        self,
        log_dirs: Sequence[str | os.PathLike[str]],
        config_of: Callable[[str], LogConfig],
        *,
        recovery_threads_per_dir: int = 2,
    ) -> None:
        """config_of: the topic configs of a topic by its name."""
        self._dirs = [LogDir(os.path.abspath(os.fspath(path))) for path in log_dirs]
        self._config_of = config_of
        self._recovery_threads = recovery_threads_per_dir
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, uuid.UUID] = {}
        self._doomed_folders: list[tuple[int, str]] = []
        self._futures: list[tuple[TopicPartition, Log]] = []
        self._checkpointing = threading.Lock()
        self._removing = threading.Lock()
        self.moving = Moves(self)
        """Partitions on their way to another dir."""
        self.cleaner = LogCleaner(lambda: self._logs, on_offline=self._cleaner_failed)
        """Compaction; `new_cleaner` puts one with other options here."""
        self.on_offline: Callable[[str, list[TopicPartition]], None] = lambda _dir, _logs: None

    # ----------------------------------------------------------------------------------------------- open

    def open(self, now_ms: int) -> None:
        """`lock` and `load` in one, where the topics' configs are known beforehand."""
        self.lock()
        self.load(now_ms)

    def lock(self) -> None:
        """Takes the dirs for this process and reads whose they are.

        Raises LogDirLocked, WrongLogDir when the dirs contradict each other, and LogDirOffline when no dir is
        usable; a part of several that is not goes offline with a log line.
        """
        for one in self._dirs:
            try:
                one.lock()
            except (OSError, CorruptCheckpoint) as error:
                self._give_up(one, error)
        self._require_online()
        self._check_metas()

    def load(self, now_ms: int) -> None:
        """Opens every partition in the dirs; their configs are asked for by topic. Any thread.

        Raises LogDirOffline when no dir is left.
        """
        for one in self._dirs:
            if one.offline is None:
                try:
                    self._load_dir(one, now_ms)
                except (OSError, LogDirOffline) as error:
                    self._give_up(one, error)
        self._require_online()
        for name, future in self._futures:
            self.moving.resume(name, future)
        self._futures.clear()

    def _require_online(self) -> None:
        if all(one.offline is not None for one in self._dirs):
            first = self._dirs[0]
            raise LogDirOffline(first.path, first.offline or "unusable")

    def _check_metas(self) -> None:
        metas = [(one.path, one.meta) for one in self._dirs if one.offline is None and one.meta is not None]
        for path, meta in metas[1:]:
            first_path, first = metas[0]
            for what, here, there in (
                ("cluster.id", meta.cluster_id, first.cluster_id),
                ("node.id", meta.node_id, first.node_id),
            ):
                if here is not None and there is not None and here != there:
                    raise WrongLogDir(f"{path} has {what} {here} where {first_path} has {there}")

    @property
    def cluster_id(self) -> str | None:
        """The cluster id that the dirs belong to; None when they are new."""
        return next((one.meta.cluster_id for one in self._dirs if one.meta and one.meta.cluster_id), None)

    @property
    def node_id(self) -> int | None:
        """The node id that the dirs belong to; None when they are new."""
        return next(
            (one.meta.node_id for one in self._dirs if one.meta and one.meta.node_id is not None), None
        )

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Marks new dirs as this broker's. Raises WrongLogDir for one of another cluster or broker."""
        for one in self._dirs:
            if one.offline is None:
                one.claim(cluster_id, node_id)

    def _load_dir(self, one: LogDir, now_ms: int) -> None:
        one.clean = os.path.exists(one.file(CLEAN_SHUTDOWN_FILE))
        folders = _log_folders(one.path)
        one.had_logs = bool(folders)
        recovery = one.read_offsets(checkpoints.RECOVERY_POINTS)
        starts = one.read_offsets(checkpoints.LOG_STARTS)
        high = one.read_offsets(checkpoints.HIGH_WATERMARKS)
        cleaned = one.read_offsets(checkpoints.CLEANER_OFFSETS)
        # From here on a crash must be seen as one.
        remove_quietly(one.file(CLEAN_SHUTDOWN_FILE))

        mended = Mended()

        def load(folder: str, name: TopicPartition) -> tuple[Log, uuid.UUID | None]:
            opened = open_log(
                folder,
                self._config_of(name.topic),
                now_ms,
                clean=one.clean,
                recovery_point=recovery.get(name, 0),
                log_start_offset=starts.get(name, 0),
                high_watermark=high.get(name, 0),
                mended=mended,
            )
            opened.first_dirty_offset = min(cleaned.get(name, 0), opened.log_end_offset)
            try:
                topic_id = checkpoints.read_topic_id(folder)
            except CorruptCheckpoint as error:
                log.warning("topic id is lost", extra={"log": folder, "reason": str(error)})
                topic_id = None
            return opened, topic_id

        paths = [os.path.join(one.path, folder) for folder in folders]
        names = list(folders.values())
        # Handing over logs one by one costs as much as opening an empty one. After a crash a few that take long
        # to scan must not wait for each other.
        step = LOGS_PER_TASK_CLEAN if one.clean else LOGS_PER_TASK
        starts_at = range(0, len(names), step)
        with ThreadPoolExecutor(self._recovery_threads, "recovery") as pool:
            parts = pool.map(
                lambda at: list(map(load, paths[at : at + step], names[at : at + step])), starts_at
            )
            loaded = list(chain.from_iterable(parts))
        for name, (opened, topic_id) in zip(names, loaded, strict=True):
            if opened.name.endswith(FUTURE_SUFFIX):
                self._futures.append((name, opened))
                continue
            if name in self._logs:
                opened = longer_of(name, self._logs[name], opened)
            self._logs[name] = opened
            if topic_id is not None:
                self._topic_ids[name] = topic_id
        _tell_mended(one, len(names), mended)

    # ----------------------------------------------------------------------------------------------- logs

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        """All online logs. Not to be changed."""
        return self._logs

    @property
    def recovered_unclean(self) -> bool:
        """Whether a dir in use was not closed in order the last time, so that records may be missing."""
        return any(one.offline is None and not one.clean and one.had_logs for one in self._dirs)

    def set_aside(self, topic: str, partition: int) -> None:
        """Takes a log that no topic claims out of service; its folder stays, renamed to `-stray`."""
        name = TopicPartition(topic, partition)
        stray = self._logs.pop(name, None)
        self._topic_ids.pop(name, None)
        if stray is None:
            return
        stray.abandon()
        target = os.path.join(stray.log_dir, marked(name, STRAY_SUFFIX))
        os.rename(stray.folder, target)
        log.warning(
            "a log that no topic claims was set aside", extra={"partition": str(name), "folder": target}
        )

    def get(self, topic: str, partition: int) -> Log | None:
        return self._logs.get(TopicPartition(topic, partition))

    def topic_id(self, topic: str, partition: int) -> uuid.UUID | None:
        """The topic id kept beside the log."""
        return self._topic_ids.get(TopicPartition(topic, partition))

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: uuid.UUID | None,
        now_ms: int,
        *,
        log_dir: str | None = None,
        new: bool = True,
    ) -> Log:
        """The partition's log, made when it is not there yet: in `log_dir`, or where the fewest logs are.

        new: False for a partition whose log may be in a dir that is offline. Raises LogDirOffline.
        """
        name = TopicPartition(topic, partition)
        existing = self._logs.get(name)
        if existing is not None:
            return existing
        for path, reason in self.offline_dirs.items():
            if not new:
                raise LogDirOffline(path, reason)
        chosen = self._place(log_dir, self.moving.wish(name))
        folder = os.path.join(chosen.path, folder_name(name))
        try:
            if os.path.isdir(folder) and any(entry.endswith(".log") for entry in os.listdir(folder)):
                # Never over what is there: a folder that was put here by hand is taken up as it is.
                created = open_log(folder, self._config_of(topic), now_ms, clean=False)
            else:
                created = create_log(folder, self._config_of(topic), now_ms)
            if topic_id is not None:
                checkpoints.write_topic_id(folder, topic_id, sync=False)
        except (OSError, LogDirOffline) as error:
            self.take_offline(chosen.path, error)
            raise LogDirOffline(chosen.path, error if isinstance(error, OSError) else str(error)) from error
        self._logs[name] = created
        if topic_id is not None:
            self._topic_ids[name] = topic_id
        return created

    def _place(self, log_dir: str | None, wished: str | None) -> LogDir:
        """wished: a dir to prefer, unless it is offline."""
        online = [one for one in self._dirs if one.offline is None]
        if any(one.path == wished for one in online):
            log_dir = wished
        if log_dir is not None:
            online = [one for one in online if one.path == os.path.abspath(log_dir)]
        if not online:
            raise LogDirOffline(log_dir or self._dirs[0].path, "no usable log dir is left")
        if len(online) == 1:
            return online[0]
        counts = {one.path: 0 for one in online}
        for each in self._logs.values():
            if each.log_dir in counts:
                counts[each.log_dir] += 1
        return min(online, key=lambda one: counts[one.path])

    def delete(self, topic: str, partition: int, now_ms: int) -> bool:
        """Takes the partition away: its folder is renamed at once and removed after `file.delete.delay.ms`.

        False when there is none. Raises LogDirOffline.
        """
        name = TopicPartition(topic, partition)
        gone = self._logs.pop(name, None)
        self._topic_ids.pop(name, None)
        if gone is None:
            return False
        self.moving.cancel(name, now_ms)
        self.moving.retire(name, now_ms)
        target = os.path.join(gone.log_dir, marked(name, DELETE_SUFFIX))
        try:
            os.rename(gone.folder, target)
        except OSError as error:
            self.take_offline(gone.log_dir, error)
            raise LogDirOffline(gone.log_dir, error) from error
        gone.abandon()
        self._doomed_folders.append((now_ms + gone.config.file_delete_delay_ms, target))
        return True

    def replace(self, name: TopicPartition, log: Log) -> None:
        """The partition goes on with another log, see Moves.take_over."""
        self._logs[name] = log

    def doom(self, folder: str, due_ms: int) -> None:
        """`folder` may be removed from `due_ms` on."""
        self._doomed_folders.append((due_ms, folder))

    def set_config(self, topic: str, config: LogConfig) -> None:
        """A topic's configs have changed."""
        for name, each in self._logs.items():
            if name.topic == topic:
                each.set_config(config)

    # --------------------------------------------------------------------------------------- housekeeping

    def delete_old_segments(self, now_ms: int, names: Iterable[TopicPartition] | None = None) -> int:
        """Retention over all logs or some, on the owner's thread; how many segments went."""
        count = 0
        for name in list(self._logs if names is None else names):
            each = self._logs.get(name)
            if each is None:
                continue
            try:
                gone = each.delete_old_segments(now_ms)
            except LogDirOffline as error:
                self.take_offline(each.log_dir, error)
                continue
            if gone:
                log.info(
                    "segments deleted",
                    extra={"partition": str(name), "segments": gone, "log_start": each.log_start_offset},
                )
            count += gone
        return count

    def remove_doomed(self, now_ms: int) -> None:
        """Removes files and folders whose delay is over. Any thread."""
        with self._removing:
            for each in list(self._logs.values()):
                if each.doomed:
                    each.remove_doomed(now_ms)
            for one in [one for one in self._doomed_folders if one[0] <= now_ms]:
                shutil.rmtree(one[1], ignore_errors=True)
                self._doomed_folders.remove(one)

    def flush_due(self, now_ms: int) -> int:
        """Flushes the logs that ask for it; how many. Any one thread."""
        count = 0
        for each in list(self._logs.values()):
            if each.needs_flush(now_ms):
                # After a roll only what is finished has to be made durable.
                config = each.config
                due = (
                    each.unflushed_messages >= config.flush_messages
                    or now_ms - each.last_flush_ms >= config.flush_ms
                )
                try:
                    each.flush(now_ms if due else None, upto_active=not due)
                    count += 1
                except LogDirOffline as error:
                    self.take_offline(each.log_dir, error)
        return count

    def checkpoint(self) -> None:
        """Writes recovery points, high watermarks and log starts of each dir, where they have changed.

        Any thread.
        """
        for one in self._dirs:
            if one.offline is None:
                try:
                    with self._checkpointing:
                        self._checkpoint_dir(one)
                except OSError as error:
                    self.take_offline(one.path, error)

    def _checkpoint_dir(self, one: LogDir) -> None:
        logs = {name: each for name, each in list(self._logs.items()) if each.log_dir == one.path}
        futures = {
            name: move.future.recovery_point
            for name, move in list(self.moving.running.items())
            if move.target_dir == one.path
        }
        files = {
            checkpoints.RECOVERY_POINTS: futures | {name: each.recovery_point for name, each in logs.items()},
            checkpoints.HIGH_WATERMARKS: {name: each.core.high_watermark for name, each in logs.items()},
            checkpoints.LOG_STARTS: {
                name: each.log_start_offset
                for name, each in logs.items()
                if each.log_start_offset > each.segments[0].base_offset
            },
            checkpoints.CLEANER_OFFSETS: {
                name: each.first_dirty_offset for name, each in logs.items() if each.first_dirty_offset > 0
            },
        }
        for file, offsets in files.items():
            one.write_offsets(file, offsets)

    def new_cleaner(
        self, *, dedupe_buffer_bytes: int, load_factor: float, io_bytes_per_second: float
    ) -> LogCleaner:
        """A cleaner over these logs with options of its own: `log.cleaner.dedupe.buffer.size` (divided by the
        threads), `log.cleaner.io.buffer.load.factor`, `log.cleaner.io.max.bytes.per.second`."""
        unbounded = io_bytes_per_second >= 1 << 60
        self.cleaner = LogCleaner(
            lambda: self._logs,
            dedupe_buffer_bytes=dedupe_buffer_bytes,
            load_factor=load_factor,
            spend=(lambda _bytes: None) if unbounded else Throttle(io_bytes_per_second).spend,
            on_offline=self._cleaner_failed,
        )
        return self.cleaner

    def _cleaner_failed(self, error: LogDirOffline) -> None:
        self.take_offline(error.log_dir, error)

    # -------------------------------------------------------------------------------------------- offline

    def take_offline(self, log_dir: str, error: BaseException | str) -> list[TopicPartition]:
        """A dir has failed: its partitions are gone until a restart; returns them."""
        for one in self._dirs:
            if one.path == log_dir and one.offline is None:
                return self._give_up(one, error)
        return []

    def _give_up(self, one: LogDir, error: BaseException | str) -> list[TopicPartition]:
        one.offline = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        self.moving.dir_failed(one.path)
        lost = [name for name, each in list(self._logs.items()) if each.log_dir == one.path]
        for name in lost:
            self._logs.pop(name).abandon()
            self._topic_ids.pop(name, None)
        log.error(
            "log dir is offline", extra={"log_dir": one.path, "reason": one.offline, "partitions": len(lost)}
        )
        self.on_offline(one.path, lost)
        return lost

    @property
    def offline_dirs(self) -> dict[str, str]:
        """Path -> reason of the dirs that have failed."""
        return {one.path: one.offline for one in self._dirs if one.offline is not None}

    @property
    def dirs(self) -> list[str]:
        return [one.path for one in self._dirs]

    def usage(self) -> list[DirUsage]:
        """What DescribeLogDirs tells."""
        shown = []
        for one in self._dirs:
            logs = {name: each for name, each in self._logs.items() if each.log_dir == one.path}
            total = usable = -1
            if one.offline is None:
                try:
                    disk = shutil.disk_usage(one.path)
                    total, usable = disk.total, disk.free
                except OSError as error:
                    self.take_offline(one.path, error)
                    logs = {}
            running = self.moving.running.items()
            futures = {name: move for name, move in running if move.target_dir == one.path}
            shown.append(DirUsage(one.path, one.offline is not None, total, usable, logs, futures))
        return shown

    # ---------------------------------------------------------------------------------------------- close

    def close(self) -> None:
        """Closes every log, writes the checkpoints and the marks of a clean stop, lets the dirs go."""
        for one in self._dirs:
            if one.offline is None:
                try:
                    self._close_dir(one)
                except (OSError, StorageError) as error:
                    self._give_up(one, error)
        self.moving.retire_all(0)
        self.moving.running.clear()
        for one in self._dirs:
            one.unlock()
        for _, path in self._doomed_folders:
            shutil.rmtree(path, ignore_errors=True)
        self._doomed_folders.clear()
        self._logs.clear()

    def _close_dir(self, one: LogDir) -> None:
        if one.lock_fd < 0:
            return
        logs = [each for each in self._logs.values() if each.log_dir == one.path]
        logs += [move.future for move in self.moving.running.values() if move.target_dir == one.path]
        # Closing is waiting for the disk: several at once keep it busy.
        with ThreadPoolExecutor(CLOSING_THREADS, "closing") as pool:
            for _ in pool.map(Log.close, logs):
                pass
        one.checkpointed.clear()
        self._checkpoint_dir(one)
        fsync_dir(one.path)
        write_atomically(one.file(CLEAN_SHUTDOWN_FILE), b'{"version":0,"brokerEpoch":-1}')


def _log_folders(log_dir: str) -> dict[str, TopicPartition]:
    """The folders of logs in a log dir; what is left of deleted ones is removed. Raises OSError."""
    folders: dict[str, TopicPartition] = {}
    for entry in os.scandir(log_dir):
        if not entry.is_dir(follow_symlinks=True):
            continue
        if entry.name.endswith(DELETE_SUFFIX):
            shutil.rmtree(entry.path, ignore_errors=True)
            continue
        future = entry.name.endswith(FUTURE_SUFFIX)
        name = partition_of_future(entry.name) if future else parse_folder_name(entry.name)
        if name is not None:
            folders[entry.name] = name
    return folders


def _tell_mended(one: LogDir, logs: int, mended: Mended) -> None:
    told = {"log_dir": one.path, "logs": logs, **mended.told()}
    if logs and not one.clean:
        level = logging.INFO if mended.nothing else logging.WARNING
        log.log(level, "logs recovered after an unclean stop", extra=told)
    elif not mended.nothing:
        log.warning("logs mended after a clean stop", extra=told)
