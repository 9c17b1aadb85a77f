"""The memory that large requests may take together: `queued.max.request.bytes`.

A frame that is larger than the shared buffer takes room for all its bytes before it is read on, as in Kafka: with room for
half of it, two half-read frames could wait for each other for ever. If there is no room, its connection is not read until
others have given theirs back; connections get room in the order in which they asked. No frame is larger than the whole
room, so every frame's turn comes, as long as those that have room go on. That is enforced: while somebody waits, a peer that
sends less than `PROGRESS_BYTES` in `LOOK_S` seconds loses its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, Protocol

log = logging.getLogger("barnabas.connection")

LOOK_S: Final = 10.0
PROGRESS_BYTES: Final = 100_000
SAID_EVERY_S: Final = 60.0


class Holder(Protocol):
    """A connection, as far as this module knows it."""

    @property
    def received_bytes(self) -> int | None:
        """How much of its unfinished large frame has arrived; None if it has none."""

    def on_room(self) -> None:
        """There is room for the frame now."""

    def close(self, reason: str | None) -> None: ...


class RequestRoom:
    """The room of one loop. bytes_max: 0 for no limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken_bytes = 0
        self._loop = loop
        self._reading: dict[Holder, int] = {}
        """Who reads a frame: how much of it had arrived at the last look."""
        self._waiting: deque[tuple[Holder, int]] = deque()
        self._next_look: asyncio.TimerHandle | None = None
        self._said_s = -SAID_EVERY_S

    @property
    def waiting(self) -> int:
        """How many connections wait for room."""
        return len(self._waiting)

    def take(self, holder: Holder, size_bytes: int) -> bool:
        """Take room for a frame. False: there is none; `on_room` will be called when there is."""
        if not self._waiting and self._fits(size_bytes):
            self._give(holder, size_bytes)
            return True
        self._waiting.append((holder, size_bytes))
        if self._next_look is None:
            self._look_soon()
            self._say()
        return False

    def has_arrived(self, holder: Holder) -> None:
        """The holder's frame is complete: it keeps its room, and its peer owes nothing more."""
        self._reading.pop(holder, None)

    def give_back(self, holder: Holder, size_bytes: int) -> None:
        """The memory of a frame is free again."""
        self._reading.pop(holder, None)
        self.taken_bytes -= size_bytes
        while self._waiting and self._fits(self._waiting[0][1]):
            following, wanted_bytes = self._waiting.popleft()
            self._give(following, wanted_bytes)
            following.on_room()

    def forget(self, holder: Holder) -> None:
        """The holder waits no longer."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not holder)

    def _fits(self, size_bytes: int) -> bool:
        # Where nothing is taken, anything fits: a frame that is larger than the room would wait for ever.
        return not self.bytes_max or not self.taken_bytes or self.taken_bytes + size_bytes <= self.bytes_max

    def _give(self, holder: Holder, size_bytes: int) -> None:
        self.taken_bytes += size_bytes
        self._reading[holder] = holder.received_bytes or 0

    # --- those that do not go on --------------------------------------------------------------------------

    def _look_soon(self) -> None:
        for holder in self._reading:
            self._reading[holder] = holder.received_bytes or 0
        self._next_look = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Close the connections that have sent nearly nothing while others waited."""
        self._next_look = None
        if not self._waiting:
            return
        slow = [
            holder
            for holder, before in self._reading.items()
            if (holder.received_bytes or 0) - before < PROGRESS_BYTES
        ]
        self._look_soon()
        for holder in slow:
            holder.close(
                f"it sent less than {PROGRESS_BYTES} bytes of a large request in {LOOK_S:.0f} s, while others waited for "
                "room (queued.max.request.bytes)"
            )

    def _say(self) -> None:
        now_s = self._loop.time()
        if now_s - self._said_s >= SAID_EVERY_S:
            self._said_s = now_s
            log.warning(
                "large requests wait for room; queued.max.request.bytes limits it",
                extra={"taken_bytes": self.taken_bytes, "allowed_bytes": self.bytes_max},
            )
