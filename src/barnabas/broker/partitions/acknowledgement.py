"""What an append promises, and when the promise is fulfilled. Everything that appends waits for an Acknowledgement.

Produce (on the fast path as well as in its handlers) and the coordinators get one from `Partition.append`. On a single node
it is ready at once. With `flush.messages` it is ready when the records are on disk; when all in-sync replicas count
(acks=all, coordinators), when the high watermark has passed the records. An error also makes it ready: the log dir has
failed, another broker leads now, or the time is up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from barnabas.wire.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.partitions")


class Acknowledgement:
    """See the module. `log_append_time_ms` is -1 when the producer's timestamps were kept."""

    __slots__ = (
        "_listeners", "base_offset", "error", "is_ready", "log_append_time_ms", "log_start_offset", "next_offset",
        "wants_replicas",
    )  # fmt: skip

    def __init__(
        self,
        base_offset: int,
        next_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        wants_replicas: bool,
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.wants_replicas = wants_replicas
        """True: the high watermark must pass the records. False: the leader's own log is enough."""
        self.is_ready = True
        self.error: ApiError | None = None
        self._listeners: list[Callable[[Acknowledgement], None]] | None = None

    def when_ready(self, listener: Callable[[Acknowledgement], None]) -> None:
        """Call `listener` once when this is ready, successfully or with `error`; now if it is ready already."""
        if self.is_ready:
            listener(self)
        elif self._listeners is None:
            self._listeners = [listener]
        else:
            self._listeners.append(listener)

    def require(self) -> None:
        """Raises the ApiError with which the append failed, if any."""
        if self.error is not None:
            raise self.error

    def finish(self, error: ApiError | None = None) -> None:
        """The append is confirmed, or has failed with `error`. Later calls change nothing."""
        if self.is_ready:
            return
        self.is_ready = True
        self.error = error
        listeners, self._listeners = self._listeners or (), None
        for listener in listeners:
            try:
                listener(self)
            except Exception:  # affects only this listener: others wait for the same append
                log.exception("an acknowledgement met a bug")

    def time_is_up(self) -> None:
        """The producer's timeout has passed. The records stay in the log and may still be replicated."""
        self.finish(
            ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the records were appended but not acknowledged by all in-sync replicas in the time that the request allows",
            )
        )


class Deletion(Acknowledgement):
    """Of the records below `next_offset`: ready when all replicas that may lead soon have deleted them, too."""

    __slots__ = ()

    def __init__(self, offset: int) -> None:
        super().__init__(offset, offset, -1, offset, True)
        self.is_ready = False

    def time_is_up(self) -> None:
        """The client's timeout has passed. The leader has deleted the records, and the followers still may."""
        self.finish(
            ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the leader has deleted the records, but not all replicas did so in the time that the request allows",
            )
        )


async def all_ready(acknowledgements: Sequence[Acknowledgement], timeout_ms: int) -> None:
    """Wait until all are ready; after `timeout_ms` the rest fail with REQUEST_TIMED_OUT. Check `error` afterwards."""
    waiting = {acknowledgement for acknowledgement in acknowledgements if not acknowledgement.is_ready}
    if not waiting:
        return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def ready(acknowledgement: Acknowledgement) -> None:
        waiting.discard(acknowledgement)
        if not waiting and not done.done():
            done.set_result(None)

    def time_is_up() -> None:
        for acknowledgement in list(waiting):
            acknowledgement.time_is_up()

    timer = loop.call_later(max(timeout_ms, 0) / 1000, time_is_up)
    for acknowledgement in list(waiting):
        acknowledgement.when_ready(ready)
    try:
        await done
    finally:
        timer.cancel()
