"""Moving a partition's log to another log dir of the same broker (AlterReplicaLogDirs).

A second log, in a folder that ends in `-future`, is filled from the first while that one goes on serving. When
it has caught up, the two change places between two appends: the new folder takes the name, the old one is
deleted like a deleted topic's. A broker that stops in between finds the future log at the next start and goes
on; one that stops in the middle of the change finds two logs of one name, of which the longer is the new one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Final

from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.errors import LogDirOffline
from barnabas.storage.files import FileSlice
from barnabas.storage.log import Log
from barnabas.storage.steps import Step

log = logging.getLogger("barnabas.storage")

COPY_BYTES: Final = 4 << 20
CAUGHT_UP_BYTES: Final = 256 << 10


class Move:
    """One partition on its way. The future log belongs to the steps' thread until the change."""

    def __init__(
        self,
        name: TopicPartition,
        current: Log,
        future: Log,
        *,
        take_over: Callable[[Move], None],
        spend: Callable[[int], None],
    ) -> None:
        """take_over: renames the folders and puts the future log in the current one's place."""
        self.name = name
        self.current = current
        self.future = future
        self.cancelled = False
        self.done = False
        self.error: BaseException | None = None
        self._take_over = take_over
        self._spend = spend

    @property
    def target_dir(self) -> str:
        return self.future.log_dir

    @property
    def lag(self) -> int:
        """Records that the future log lacks."""
        return self.current.log_end_offset - self.future.log_end_offset

    def steps(self, now_ms: int) -> Iterator[Step]:
        """Copies until it has caught up, then changes places. Ends early when cancelled or failed."""
        while not self.cancelled and not self.done:
            self._follow_cuts(now_ms)
            slice_ = self._next_slice()
            if slice_ is None or slice_.size <= CAUGHT_UP_BYTES:
                # So little is left that it is copied in the same breath as the change.
                step = Step(self._flush, lambda: self._finish(now_ms))
            else:
                step = Step(lambda piece=slice_: self._copy(piece, now_ms))  # type: ignore[misc]
            yield step
            if step.error is not None:
                self.error = step.error
                log.error(
                    "a partition's move to another log dir has failed",
                    extra={"partition": str(self.name), "to": self.target_dir, "reason": str(step.error)},
                )
                return

    def _follow_cuts(self, now_ms: int) -> None:
        """The current log was truncated, or lost its beginning, since the last step."""
        current, future = self.current, self.future
        if (
            current.log_start_offset > future.log_end_offset
            or current.log_end_offset < future.log_start_offset
        ):
            future.truncate_fully_and_start_at(current.log_start_offset, now_ms)
        elif future.log_end_offset > current.log_end_offset:
            future.truncate_to(current.log_end_offset, now_ms)

    def _next_slice(self) -> FileSlice | None:
        return self.current.read(self.future.log_end_offset, COPY_BYTES)

    def _flush(self) -> None:
        self.future.flush()

    def _copy(self, piece: FileSlice, now_ms: int) -> None:
        try:
            data = piece.read()
        except OSError as error:
            raise LogDirOffline(self.current.log_dir, error) from error
        self.future.append_replicated(data, now_ms)
        self._spend(2 * len(data))

    def _finish(self, now_ms: int) -> None:
        if self.cancelled:
            return
        self._follow_cuts(now_ms)
        copied = 0
        while (piece := self._next_slice()) is not None:
            copied += piece.size
            if copied > 8 * CAUGHT_UP_BYTES:
                return  # it grew much meanwhile: another round
            self.future.append_replicated(piece.read(), now_ms)
        current, future = self.current, self.future
        core = future.core
        core.advance_log_start(current.log_start_offset)
        core.advance_high_watermark(current.core.high_watermark)
        for epoch, start in current.core.epochs.entries():
            core.assign_epoch(epoch, start)
        if core.epochs.dirty:
            future.save_epochs()
        future.first_dirty_offset = min(current.first_dirty_offset, future.log_end_offset)
        future.set_config(current.config)
        self._take_over(self)
        self.done = True
        log.info(
            "partition moved to another log dir",
            extra={
                "partition": str(self.name),
                "from": os.path.dirname(current.folder),
                "to": future.log_dir,
            },
        )
