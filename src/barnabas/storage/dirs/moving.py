"""Moves a partition's log to another log dir of the same broker (AlterReplicaLogDirs).

A second log, in a folder that ends in `-future`, is filled from the current log, which remains in use. Once it has caught
up, it replaces the current log between two appends. The old folder keeps its name until the new one is on disk: after a
crash before that there are two logs of one name, and the longer one is used; with `flush.messages` that is the one
with all acknowledged records. Afterwards the old log is deleted like that of a deleted topic. When a broker stops during a
move, the next start finds the future log and continues.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.records.units import Offset
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.dirs.log_dir import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    fits_future_name,
    folder_name,
    marked,
)
from barnabas.storage.errors import (
    LogDirOffline,
    LogDirUnknown,
    NameTooLong,
    PartitionUnknown,
    StorageError,
)
from barnabas.storage.files import FileSlice
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log
from barnabas.storage.steps import Step

if TYPE_CHECKING:
    import uuid

log = logging.getLogger("barnabas.storage")

COPY_BYTES: Final = 1 << 20
CAUGHT_UP_BYTES: Final = 64 << 10
FLUSHES_MAX: Final = 5
WISHES_MAX: Final = 10_000


class LogTable(Protocol):
    """The part of the log manager that moves use."""

    @property
    def logs(self) -> Mapping[TopicPartition, Log]: ...
    @property
    def dirs(self) -> Collection[str]: ...
    @property
    def offline_dirs(self) -> Mapping[str, str]: ...
    def topic_id(self, topic: str, partition: int) -> uuid.UUID | None: ...
    def replace(self, name: TopicPartition, log: Log) -> None: ...
    def doom(self, folder: str, delay_ms: int = 0) -> None: ...
    def take_offline(self, log_dir: str, error: BaseException | str) -> object: ...
    def checkpoint(self) -> None: ...


class Move:
    """One partition being moved. Until the future log takes over, it belongs to the thread of the steps."""

    def __init__(self, moves: Moves, name: TopicPartition, current: Log, future: Log) -> None:
        self.name = name
        self.current = current
        self.future = future
        self.cancelled = False
        self.done = False
        self.copied_bytes = 0
        self.error: BaseException | None = None
        self._moves = moves

    @property
    def target_dir(self) -> str:
        return self.future.log_dir

    @property
    def lag(self) -> int:
        """The number of records that the future log lacks."""
        return max(self.current.log_end_offset - self.future.log_end_offset, 0)

    def steps(self, now_ms: int) -> Iterator[Step]:
        """Copy until the future log has caught up, let it take over, make that durable. Ends early when cancelled or failed.

        `copied_bytes` grows with each step, for callers that limit the rate.
        """
        while not self.cancelled and not self.done:
            step = self._next_step(now_ms)
            yield step
            if step.error is not None:
                self.error = step.error
                self._moves.failed(self, step.error)
                return
        if self.done:
            retire = Step(self._make_durable, lambda: self._moves.retire(self.name))
            yield retire
            if retire.error is not None:
                self._moves.failed(self, retire.error)

    def _next_step(self, now_ms: int) -> Step:
        try:
            self._follow_cuts(now_ms)
            piece = self._next_slice()
        except StorageError as error:
            return _failing(error)
        if piece is None or piece.size <= CAUGHT_UP_BYTES:
            # So little is left that it is copied at the moment of the switch.
            return Step(lambda: None, lambda: self._finish(now_ms))
        return Step(lambda: self._copy(piece, now_ms))

    def _follow_cuts(self, now_ms: int) -> None:
        """The current log was truncated at either end since the last step: do the same with the future log."""
        current, future = self.current, self.future
        if (
            current.log_start_offset > future.log_end_offset
            or current.log_end_offset < future.log_start_offset
        ):
            future.truncate_fully_and_start_at(current.log_start_offset, now_ms)
            return
        end_offset = current.log_end_offset
        if future.core.epochs.latest >= 0:
            # As a follower does: find where the newest epoch of the future log ends in the current log.
            end_offset = current.core.epochs.end_of(future.core.epochs.latest, end_offset).end_offset
        if future.log_end_offset > end_offset:
            future.truncate_to(max(end_offset, Offset(0)), now_ms)

    def _next_slice(self) -> FileSlice | None:
        return self.current.read(self.future.log_end_offset, COPY_BYTES)

    def _copy(self, piece: FileSlice, now_ms: int) -> None:
        """Copy one slice, in the thread; rolled segments are synced here, so that little is left to sync at the end."""
        try:
            data = piece.read()
        except OSError as error:
            raise LogDirOffline(self.current.log_dir, error) from error
        future = self.future
        future.append_replicated(data, now_ms)
        self.copied_bytes += len(data)
        if future.recovery_point < future.active.base_offset:
            future.flush(upto_active=True)

    def _finish(self, now_ms: int) -> None:
        if self.cancelled:
            return
        self._follow_cuts(now_ms)
        future, copied = self.future, 0
        while (piece := self._next_slice()) is not None:
            copied += piece.size
            if copied > 8 * CAUGHT_UP_BYTES:
                return  # it has grown much meanwhile: another round
            future.append_replicated(piece.read(), now_ms)
            self.copied_bytes += piece.size
        if not self._moves.take_over(self, now_ms):
            return  # the previous move is not complete: another round
        self.done = True

    def _make_durable(self) -> None:
        end_offset = self.future.log_end_offset
        for _ in range(FLUSHES_MAX):
            # Less if retention removes a segment at the same moment.
            if self.future.flush() >= end_offset:
                self._moves.checkpoint()
                return
        raise StorageError(
            f"{self.name} cannot be flushed; what it was moved from stays until the broker stops"
        )


def _failing(error: Exception) -> Step:
    def fail() -> None:
        raise error

    return Step(fail)


class Moves:
    """The moves of one broker's log manager. All calls come from the owner's thread."""

    def __init__(self, manager: LogTable) -> None:
        self._manager = manager
        self.running: dict[TopicPartition, Move] = {}
        """The running moves; after a restart, those interrupted by the stop."""
        self.on_moved: Callable[[TopicPartition, Log], None] = lambda _name, _log: None
        """Called on the owner's thread, during the switch, with the log that is used from now on."""
        self._retiring: dict[TopicPartition, Log] = {}
        self._wishes: dict[TopicPartition, str] = {}

    # --- beginning and calling off ------------------------------------------------------------------

    def begin(self, name: TopicPartition, log_dir: str, now_ms: int) -> Move | None:
        """Start moving a partition to another dir; None if it is already there (a move to elsewhere is cancelled).

        The caller runs `Move.steps`. Raises LogDirUnknown, LogDirOffline, NameTooLong; PartitionUnknown for a partition that
        is not on this broker: if it is created later, it will be created in that dir.
        """
        manager, target = self._manager, os.path.abspath(log_dir)
        if not fits_future_name(name):
            raise NameTooLong(f"the name of {name} is too long to be moved between log dirs")
        if target not in manager.dirs:
            raise LogDirUnknown(f"{log_dir} is not one of log.dirs: {', '.join(manager.dirs)}")
        if target in manager.offline_dirs:
            raise LogDirOffline(target, manager.offline_dirs[target])
        current = manager.logs.get(name)
        if current is None:
            if len(self._wishes) < WISHES_MAX:
                self._wishes[name] = target
            raise PartitionUnknown(f"{name} is not on this broker")
        running = self.running.get(name)
        if running is not None and running.target_dir == target:
            return running
        self.cancel(name)
        if current.log_dir == target:
            return None
        return self._start(name, current, target, now_ms)

    def _start(self, name: TopicPartition, current: Log, target: str, now_ms: int) -> Move:
        folder = os.path.join(target, marked(name, FUTURE_SUFFIX))
        try:
            free = shutil.disk_usage(target).free
            if current.size_bytes > free:
                # Filling the disk would affect all other partitions of that dir.
                raise LogDirOffline(target, f"{free} bytes are free where {name} needs {current.size_bytes}")
            future = create_log(folder, current.config, now_ms)
            topic_id = self._manager.topic_id(*name)
            if topic_id is not None:
                checkpoints.write_topic_id(folder, topic_id, sync=False)
        except OSError as error:
            raise LogDirOffline(target, error) from error
        log.info(
            "partition begins to move to another log dir",
            extra={"partition": str(name), "from": current.log_dir, "to": target},
        )
        return self._add(name, current, future)

    def _add(self, name: TopicPartition, current: Log, future: Log) -> Move:
        move = Move(self, name, current, future)
        self.running[name] = move
        return move

    def wish(self, name: TopicPartition) -> str | None:
        """The dir requested earlier for a partition that is about to be created."""
        return self._wishes.pop(name, None)

    def cancel(self, name: TopicPartition) -> bool:
        """Cancel a move; False if there is none. The copied files are deleted."""
        move = self.running.pop(name, None)
        if move is None:
            return False
        move.cancelled = True
        move.future.abandon()
        # Renamed first: the thread that is still copying then cannot create new files in the folder.
        gone = os.path.join(move.target_dir, marked(name, DELETE_SUFFIX))
        try:
            os.rename(move.future.folder, gone)
        except OSError as error:
            log.warning(
                "the files copied by a cancelled move stay on disk",
                extra={"folder": move.future.folder, "reason": str(error)},
            )
        else:
            self._manager.doom(gone)
        log.info(
            "partition's move to another log dir is called off",
            extra={"partition": str(name), "to": move.target_dir},
        )
        return True

    def failed(self, move: Move, error: BaseException) -> None:
        """A step has failed: end the move, and take a dir offline that cannot be read or written."""
        if self.running.get(move.name) is not move and not move.done:
            return  # cancelled, or its dir is offline already
        log.error(
            "partition's move to another log dir has failed",
            extra={"partition": str(move.name), "to": move.target_dir, "reason": str(error)},
        )
        full = isinstance(error, LogDirOffline) and getattr(error.error, "errno", 0) in (
            errno.ENOSPC,
            errno.EDQUOT,
        )
        if isinstance(error, LogDirOffline) and not (full and not move.done):
            self._manager.take_offline(error.log_dir, error.error)
        self.cancel(move.name)

    def dir_failed(self, log_dir: str) -> None:
        """Suspend the moves into and out of a dir that is offline until the next start. Any thread."""
        for name, move in list(self.running.items()):
            if log_dir in (move.target_dir, move.current.log_dir):
                self.running.pop(name, None)
                move.cancelled = True
                move.future.abandon()
        for name, old in self._retiring.copy().items():
            if old.log_dir == log_dir:
                del self._retiring[name]

    # --- the change ---------------------------------------------------------------------------------

    def take_over(self, move: Move, now_ms: int) -> bool:
        """Make the future log the partition's log; False while an earlier switch is not durable yet."""
        name, current, future = move.name, move.current, move.future
        if name in self._retiring:
            return False
        if self.running.get(name) is not move or self._manager.logs.get(name) is not current:
            raise StorageError(f"{name} was deleted or moved meanwhile")
        future.take_over_from(current, now_ms)
        future.relocate(os.path.join(future.log_dir, folder_name(name)))
        del self.running[name]
        self._retiring[name] = current
        self._manager.replace(name, future)
        self.on_moved(name, future)
        log.info(
            "partition moved to another log dir",
            extra={"partition": str(name), "from": current.log_dir, "to": future.log_dir},
        )
        return True

    def retire(self, name: TopicPartition) -> None:
        """Delete the log that a move has left behind, unless this has happened already. Raises LogDirOffline."""
        old = self._retiring.pop(name, None)
        if old is not None:
            old.relocate(os.path.join(old.log_dir, marked(name, DELETE_SUFFIX)))
            old.abandon()
            self._manager.doom(old.folder)

    def retire_all(self) -> None:
        """Delete all logs left behind; all online logs are closed and on disk. Raises LogDirOffline."""
        for name in list(self._retiring):
            if name in self._manager.logs:
                self.retire(name)

    def checkpoint(self) -> None:
        """Write the checkpoints of the new and of the old dir. Any thread."""
        self._manager.checkpoint()

    # --- after a restart ----------------------------------------------------------------------------

    def resume(self, name: TopicPartition, future: Log) -> None:
        """Continue a move interrupted by a stop, or remove the future log if it is no longer needed."""
        current = self._manager.logs.get(name)
        if current is None or name in self.running or current.log_dir == future.log_dir:
            future.abandon()
            shutil.rmtree(future.folder, ignore_errors=True)
            return
        self._add(name, current, future)
        log.info(
            "partition goes on moving to another log dir",
            extra={"partition": str(name), "from": current.log_dir, "to": future.log_dir},
        )


def longer_of(name: TopicPartition, one: Log, other: Log) -> Log:
    """Choose between two logs of one partition, left by a crash before a move was durable; returns the one to use.

    The other folder is set aside.
    """
    kept, left = (other, one) if other.log_end_offset >= one.log_end_offset else (one, other)
    target = os.path.join(left.log_dir, marked(name, STRAY_SUFFIX))
    left.abandon()
    os.rename(left.folder, target)
    kept.core.advance_log_start(min(left.log_start_offset, kept.log_end_offset))
    log.warning(
        "partition was in two log dirs; the longer log is used, the other one set aside",
        extra={"partition": str(name), "used": kept.folder, "set_aside": target},
    )
    return kept
