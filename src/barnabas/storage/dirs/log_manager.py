"""All logs of one broker, in one or several log dirs.

`lock` locks the dirs, `load` opens every partition, in threads if scans are needed. One thread (the shard's loop)
owns the logs; `checkpoint`, `flush_due` and `remove_doomed` may run in another one. When a dir fails, it goes offline
with its partitions; the others continue.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from barnabas.runtime.timing import Histogram, now_us
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.cleaning.cleaner import LogCleaner
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs.bin import Bin
from barnabas.storage.dirs.loading import load_dir
from barnabas.storage.dirs.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDir,
    folder_name,
    marked,
)
from barnabas.storage.dirs.moving import Move, Moves, longer_of
from barnabas.storage.dirs.owners import cluster_id_in, node_id_in, require_one_owner
from barnabas.storage.errors import (
    CorruptCheckpoint,
    LogDirOffline,
    LogUnreadable,
    StorageError,
    is_own_fault,
)
from barnabas.storage.files import fsync_dir, write_atomically
from barnabas.storage.logs.doomed import Doomed, remove_due
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log, open_log
from barnabas.storage.throttle import Throttle

log = logging.getLogger("barnabas.storage")

CLOSING_THREADS: Final = 8


class DirUsage(NamedTuple):
    """The answer of DescribeLogDirs for one dir; bytes are -1 if it is offline."""

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
        dir_mode: int = 0o700,
        new_pool: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        """config_of: topic name -> its configs. dir_mode: of log dirs that have to be made. new_pool: (threads, name) -> the
        executor in which logs are opened and closed."""
        self._dirs = [LogDir(os.path.abspath(os.fspath(path)), dir_mode) for path in log_dirs]
        self._config_of = config_of
        self._recovery_threads = recovery_threads_per_dir
        self._new_pool = new_pool
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, uuid.UUID] = {}
        self._doomed_folders: list[Doomed] = []
        self.keeps_unclean = False
        """Keep dirs that were not shut down cleanly marked as such, while the broker has not yet dealt with lost records."""
        self._futures: list[tuple[TopicPartition, Log]] = []
        self._unreadable: dict[TopicPartition, LogUnreadable] = {}
        self._checkpointing = threading.Lock()
        self._removing = threading.Lock()
        self.bin = Bin(self)
        """The logs of deleted topics that can still be restored."""
        self.moving = Moves(self)
        """The partitions that are being moved to another dir."""
        self.cleaner = LogCleaner(lambda: self._logs, on_offline=self._cleaner_failed)
        """Compaction; replaced by the result of `new_cleaner` for other options."""
        self.flushes = Histogram()
        """How long flushing a log takes, in µs."""
        self.on_offline: Callable[[str, list[TopicPartition]], None] = lambda _reason, _logs: None
        """Called with the reason and the partitions that have become unusable, in any thread."""

    # ----------------------------------------------------------------------------------------------- open

    def open(self, now_ms: int) -> None:
        """`lock` and `load` together, for callers that know the topics' configs in advance."""
        self.lock()
        self.load(now_ms)

    def lock(self) -> None:
        """Lock the dirs for this process, and read their owner.

        Raises LogDirLocked, WrongLogDir if the dirs contradict each other, and LogDirOffline if no dir is usable. If only
        some dirs are unusable, these go offline with a log line.
        """
        for log_dir in self._dirs:
            try:
                log_dir.lock()
            except (OSError, CorruptCheckpoint) as error:
                self._give_up(log_dir, error)
        self._require_online()
        require_one_owner(self._dirs)

    def load(self, now_ms: int) -> None:
        """Open every partition in the dirs, asking for configs by topic. Any thread.

        Raises LogDirOffline if no dir is left.
        """
        for log_dir in self._dirs:
            if log_dir.offline is None:
                try:
                    self._load_dir(log_dir, now_ms)
                except (OSError, LogDirOffline) as error:
                    self._give_up(log_dir, error)
        self._require_online()
        self.bin.scan(row.path for row in self._dirs if row.offline is None)
        for name, future in self._futures:
            self.moving.resume(name, future)
        self._futures.clear()

    def _require_online(self) -> None:
        if all(log_dir.offline is not None for log_dir in self._dirs):
            first = self._dirs[0]
            own = first.failure if isinstance(first.failure, CorruptCheckpoint) else None
            raise LogDirOffline(first.path, own or first.offline or "unusable")

    @property
    def cluster_id(self) -> str | None:
        """The cluster id stored in the dirs; None if they are new."""
        return cluster_id_in(self._dirs)

    @property
    def node_id(self) -> int | None:
        """The node id stored in the dirs; None if they are new."""
        return node_id_in(self._dirs)

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Mark new dirs as this broker's. Raises WrongLogDir if one belongs to another cluster or broker."""
        for log_dir in self._dirs:
            if log_dir.offline is None:
                log_dir.claim(cluster_id, node_id)

    def _load_dir(self, directory: LogDir, now_ms: int) -> None:
        for name, opened, topic_id in load_dir(
            directory, now_ms, self._config_of, lambda: self._new_pool(self._recovery_threads, "recovery")
        ):
            if isinstance(opened, LogUnreadable):
                self._unreadable[name] = opened
                continue
            if opened.name.endswith(FUTURE_SUFFIX):
                self._futures.append((name, opened))
                continue
            if name in self._logs:
                opened = longer_of(name, self._logs[name], opened)
            self._logs[name] = opened
            if topic_id is not None:
                self._topic_ids[name] = topic_id

    # ----------------------------------------------------------------------------------------------- logs

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        """All online logs. Must not be modified."""
        return self._logs

    def snapshot(self) -> dict[TopicPartition, Log]:
        """The online logs at this moment, for work in threads: the owner adds and removes logs meanwhile.

        Copying a dict is one step for the interpreter. `list(logs.items())` is not: it makes an object for each entry, and
        that may run the garbage collector, and with it other threads.
        """
        return self._logs.copy()

    @property
    def recovered_unclean(self) -> bool:
        """Whether a dir in use was not shut down cleanly, so that records may be missing."""
        return any(
            log_dir.offline is None and not log_dir.clean and log_dir.had_logs for log_dir in self._dirs
        )

    def set_aside(self, topic: str, partition: int) -> None:
        """Take a log that no topic claims out of service; its folder is kept, renamed to `-stray`."""
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

    def take_out(self, name: TopicPartition) -> Log | None:
        """Take a log out of service, and end its move to another dir; its folder stays as it is."""
        gone = self._logs.pop(name, None)
        self._topic_ids.pop(name, None)
        if gone is not None:
            self.moving.cancel(name)
            self.moving.retire(name)
        return gone

    def put_in(self, name: TopicPartition, opened: Log, topic_id: uuid.UUID) -> None:
        """Put a log into service that was opened elsewhere."""
        self._logs[name] = opened
        self._topic_ids[name] = topic_id

    def get(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, or None."""
        return self._logs.get(TopicPartition(topic, partition))

    def topic_id(self, topic: str, partition: int) -> uuid.UUID | None:
        """The topic id stored beside the log."""
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
        """The partition's log, created if it does not exist: in `log_dir`, or in the dir with the fewest logs.

        new: False for a partition whose log may exist in an offline dir. Raises LogDirOffline.
        """
        name = TopicPartition(topic, partition)
        existing = self._logs.get(name)
        if existing is not None:
            return existing
        if name in self._unreadable:
            raise self._unreadable[name]
        for path, reason in self.offline_dirs.items():
            if not new:
                raise LogDirOffline(path, reason)
        chosen = self._place(log_dir, self.moving.wish(name))
        folder = os.path.join(chosen.path, folder_name(name))
        try:
            if os.path.isdir(folder) and any(entry.endswith(".log") for entry in os.listdir(folder)):
                # Never overwrite: a folder that was put here by hand is opened as it is.
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
        """The dir for a new log. wished: preferred dir, unless it is offline."""
        online = [row for row in self._dirs if row.offline is None]
        if any(row.path == wished for row in online):
            log_dir = wished
        if log_dir is not None:
            online = [row for row in online if row.path == os.path.abspath(log_dir)]
        if not online:
            raise LogDirOffline(log_dir or self._dirs[0].path, "no usable log dir is left")
        if len(online) == 1:
            return online[0]
        counts = {row.path: 0 for row in online}
        for log in self._logs.values():
            if log.log_dir in counts:
                counts[log.log_dir] += 1
        return min(online, key=lambda directory: counts[directory.path])

    def delete(self, topic: str, partition: int) -> bool:
        """Delete the partition: its folder is renamed at once and removed after `file.delete.delay.ms`.

        False if it does not exist. Raises LogDirOffline.
        """
        name = TopicPartition(topic, partition)
        gone = self.take_out(name)
        if gone is None:
            return False
        target = os.path.join(gone.log_dir, marked(name, DELETE_SUFFIX))
        try:
            os.rename(gone.folder, target)
        except OSError as error:
            self.take_offline(gone.log_dir, error)
            raise LogDirOffline(gone.log_dir, error) from error
        gone.abandon()
        self.doom(target, gone.config.file_delete_delay_ms)
        return True

    def replace(self, name: TopicPartition, log: Log) -> None:
        """The partition continues with another log, see Moves.take_over."""
        self._logs[name] = log

    def doom(self, folder: str, delay_ms: int = 0) -> None:
        """Remove `folder`, which has been renamed already, after `delay_ms`."""
        self._doomed_folders.append(Doomed([folder], delay_ms))

    def set_config(self, topic: str, config: LogConfig) -> None:
        """A topic's configs have changed."""
        for name, opened in self._logs.items():
            if name.topic == topic:
                opened.set_config(config)

    # --------------------------------------------------------------------------------------- housekeeping

    def delete_old_segments(self, now_ms: int, names: Iterable[TopicPartition] | None = None) -> int:
        """Apply retention to all logs or some, on the owner's thread; returns how many segments were removed."""
        count = 0
        for name in list(self._logs if names is None else names):
            opened = self._logs.get(name)
            if opened is None:
                continue
            try:
                gone = opened.delete_old_segments(now_ms)
            except LogDirOffline as error:
                self.log_failed(name, opened, error)
                continue
            if gone:
                log.info(
                    "segments deleted",
                    extra={"partition": str(name), "segments": gone, "log_start": opened.log_start_offset},
                )
            count += gone
        return count

    def remove_doomed(self, elapsed_ms: float) -> None:
        """Remove files and folders whose delay has passed. elapsed_ms: the monotonic clock. Any thread."""
        with self._removing:
            for log in self.snapshot().values():
                if log.doomed:
                    log.remove_doomed(elapsed_ms)
            remove_due(self._doomed_folders, elapsed_ms, _remove_folder)

    def flush_timed(self, flush: Callable[[], object]) -> object:
        """The result of `flush`, which flushes one log, and whose time is counted. Any thread."""
        begun_us = now_us()
        done = flush()
        self.flushes.add(now_us() - begun_us)
        return done

    def flush_due(self, elapsed_ms: float) -> int:
        """Flush the logs that are due; returns how many. elapsed_ms: the monotonic clock. Any one thread."""
        count = 0
        for name, log in self.snapshot().items():
            if log.last_flush_ms is None:
                log.last_flush_ms = elapsed_ms
            is_due = log.needs_flush(elapsed_ms)
            if not is_due and not log.has_unflushed_segment:
                continue
            try:
                # After a roll, only the rolled segments have to be made durable.
                flush = partial(log.flush, elapsed_ms if is_due else None, upto_active=not is_due)
                self.flush_timed(flush)
                count += 1
            except LogDirOffline as error:
                self.log_failed(name, log, error)
        return count

    def checkpoint(self) -> None:
        """Write the recovery points, high watermarks and log starts of each dir, if they have changed.

        Any thread.
        """
        for log_dir in self._dirs:
            if log_dir.offline is None:
                try:
                    with self._checkpointing:
                        self._notice_lost_folders(log_dir)
                        self._checkpoint_dir(log_dir)
                except OSError as error:
                    self.take_offline(log_dir.path, error)

    def _notice_lost_folders(self, directory: LogDir) -> None:
        """Take logs offline whose folder has been removed by somebody: appended records could never be read again."""
        for name, opened in self.snapshot().items():
            folder = opened.folder
            if opened.log_dir == directory.path and not os.path.isdir(folder):
                with opened.flush_lock:  # unless it is being moved or deleted at this moment
                    lost = opened.folder == folder and self._logs.get(name) is opened
                if lost:
                    self.log_failed(name, opened, LogUnreadable(folder, "somebody has removed its folder"))

    def _checkpoint_dir(self, directory: LogDir) -> None:
        logs = {name: opened for name, opened in self.snapshot().items() if opened.log_dir == directory.path}
        futures = {
            name: move.future.recovery_point
            for name, move in self.moving.running.copy().items()
            if move.target_dir == directory.path
        }
        files: dict[str, dict[TopicPartition, int]] = {
            checkpoints.RECOVERY_POINTS: futures
            | {name: opened.recovery_point for name, opened in logs.items()},
            checkpoints.HIGH_WATERMARKS: {name: opened.core.high_watermark for name, opened in logs.items()},
            checkpoints.LOG_STARTS: {
                name: opened.log_start_offset
                for name, opened in logs.items()
                if opened.log_start_offset > opened.segments[0].base_offset
            },
            checkpoints.CLEANER_OFFSETS: {
                name: opened.first_dirty_offset
                for name, opened in logs.items()
                if opened.first_dirty_offset > 0
            },
        }
        for file, offsets in files.items():
            directory.write_offsets(file, offsets)

    def new_cleaner(
        self, *, dedupe_buffer_bytes: int, load_factor: float, io_bytes_per_second: float
    ) -> LogCleaner:
        """A cleaner for these logs with its own options: `log.cleaner.dedupe.buffer.size` (divided by the number of
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

    def log_failed(self, name: TopicPartition, failed: Log, error: LogDirOffline) -> None:
        """A log could not be written: take its dir offline, or only this log if just its own files are at fault."""
        if not is_own_fault(error, failed.folder):
            self.take_offline(failed.log_dir, error.error if isinstance(error.error, OSError) else error)
        elif self._logs.get(name) is failed:
            del self._logs[name]
            self._topic_ids.pop(name, None)
            failed.abandon()
            unusable = LogUnreadable(failed.folder, error.error)
            self._unreadable[name] = unusable
            log.error(
                "log cannot be written; its partition is offline",
                extra={"folder": failed.folder, "reason": unusable.error},
            )
            self.on_offline(f"log {failed.folder} cannot be written: {unusable.error}", [name])

    def take_offline(self, log_dir: str, error: BaseException | str) -> list[TopicPartition]:
        """A dir has failed: its partitions are offline until a restart; returns them."""
        for row in self._dirs:
            if row.path == log_dir and row.offline is None:
                return self._give_up(row, error)
        return []

    def _give_up(self, directory: LogDir, error: BaseException | str) -> list[TopicPartition]:
        directory.failure = error
        directory.offline = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        self.moving.dir_failed(directory.path)
        lost = [name for name, opened in self.snapshot().items() if opened.log_dir == directory.path]
        for name in lost:
            self._logs.pop(name).abandon()
            self._topic_ids.pop(name, None)
        log.error(
            "log dir is offline",
            extra={"log_dir": directory.path, "reason": directory.offline, "partitions": len(lost)},
        )
        self.on_offline(f"log dir {directory.path} is offline", lost)
        return lost

    @property
    def offline_dirs(self) -> dict[str, str]:
        """Path -> reason, for the dirs that have failed."""
        return {log_dir.path: log_dir.offline for log_dir in self._dirs if log_dir.offline is not None}

    @property
    def dirs(self) -> list[str]:
        """The paths of all log dirs, including offline ones."""
        return [log_dir.path for log_dir in self._dirs]

    def usage(self) -> list[DirUsage]:
        """The answer of DescribeLogDirs, by dir."""
        shown = []
        for log_dir in self._dirs:
            logs = {
                name: opened for name, opened in self.snapshot().items() if opened.log_dir == log_dir.path
            }
            total = usable = -1
            if log_dir.offline is None:
                try:
                    disk = shutil.disk_usage(log_dir.path)
                    total, usable = disk.total, disk.free
                except OSError as error:
                    self.take_offline(log_dir.path, error)
                    logs = {}
            running = self.moving.running.items()
            futures = {name: move for name, move in running if move.target_dir == log_dir.path}
            shown.append(DirUsage(log_dir.path, log_dir.offline is not None, total, usable, logs, futures))
        return shown

    # ---------------------------------------------------------------------------------------------- close

    def close(self) -> None:
        """Close every log, write the checkpoints and the clean-shutdown markers, unlock the dirs.

        If a log cannot be closed, its dir gets no marker, and the next start recovers the dir.
        """
        for log_dir in self._dirs:
            if log_dir.offline is None:
                try:
                    self._close_dir(log_dir)
                except (OSError, StorageError) as error:
                    self._give_up(log_dir, error)
        try:
            self.moving.retire_all()
        except (OSError, StorageError) as error:
            log.error("a log that was moved stays in its old dir as well", extra={"reason": str(error)})
        self.moving.running.clear()
        for row in self._dirs:
            row.unlock()
        for doomed in self._doomed_folders:
            for path in doomed.paths:
                _remove_folder(path)
        self._doomed_folders.clear()
        self._logs.clear()

    def _close_log(self, name: TopicPartition, closing: Log) -> StorageError | None:
        """Close a log; returns the error if it concerns the whole dir."""
        try:
            closing.close()
        except LogDirOffline as error:
            if not is_own_fault(error, closing.folder):
                return error
            self.log_failed(name, closing, error)
        except Exception as error:
            log.exception("a log was not closed because of a bug", extra={"log": closing.folder})
            return LogUnreadable(closing.folder, error)
        return None

    def _close_dir(self, directory: LogDir) -> None:
        if directory.lock_fd < 0:
            return
        logs = [(name, log) for name, log in self.snapshot().items() if log.log_dir == directory.path]
        logs += [
            (name, move.future)
            for name, move in self.moving.running.items()
            if move.target_dir == directory.path
        ]
        # Closing mostly waits for the disk: close several logs at once to keep it busy.
        with self._new_pool(CLOSING_THREADS, "closing") as pool:
            errors = [error for error in pool.map(lambda row: self._close_log(*row), logs) if error]
        if errors:
            raise errors[0]
        if self.keeps_unclean and not directory.clean:
            return
        fsync_dir(directory.path)
        directory.checkpointed.clear()
        self._checkpoint_dir(directory)
        write_atomically(directory.file(CLEAN_SHUTDOWN_FILE), b'{"version":0,"brokerEpoch":-1}')


def _remove_folder(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
