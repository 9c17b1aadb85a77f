"""What a broker of the source knows of what is fetched from it, so that a request only names what has changed (KIP-227)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

FULL_EPOCH: Final = 0
EPOCH_MAX: Final = (1 << 31) - 1

Key = tuple[str, int]


class Asked(NamedTuple):
    """How a partition is asked for."""

    offset: int
    last_epoch: int


class FetchSession:
    """The state of one session, on the client's side. id, epoch: of the next request; 0 and 0 begin a session."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = FULL_EPOCH
        self._asked: dict[Key, Asked] = {}

    def reset(self) -> None:
        """The next request begins a new session: the connection was lost, or the broker has forgotten the session."""
        self.id, self.epoch = 0, FULL_EPOCH
        self._asked = {}

    def step(self, wanted: Mapping[Key, Asked]) -> tuple[list[Key], list[Key]]:
        """The partitions that the next request names to have all of `wanted` fetched, and those that it takes out."""
        changed = [key for key, asked in wanted.items() if self._asked.get(key) != asked]
        forgotten = [key for key in self._asked if key not in wanted] if self.id else []
        self._asked = dict(wanted)
        return changed, forgotten

    def answered(self, session_id: int) -> None:
        """The broker has answered, with the number of the session; 0 if it keeps none."""
        if session_id == 0 or (self.id and session_id != self.id):
            self.reset()
            return
        self.id = session_id
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
