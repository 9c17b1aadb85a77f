"""The leader epochs of one partition: at which offset each began.

A follower (or a consumer after a change of leader) asks where an epoch ended and truncates its log there; in this way
logs that have diverged agree again. Source: KIP-101, KIP-279 and Kafka's leader epoch cache.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from barnabas.records.units import LeaderEpoch, Offset

UNDEFINED_EPOCH: Final = LeaderEpoch(-1)
UNDEFINED_OFFSET: Final = Offset(-1)


class EpochEnd(NamedTuple):
    """The largest known epoch not above the requested one, and the offset after its last record."""

    epoch: LeaderEpoch
    end_offset: Offset


class LeaderEpochs:
    """Pairs of (epoch, start offset), both increasing. `dirty`: the checkpoint file is out of date."""

    __slots__ = ("_epochs", "_starts", "dirty", "latest")

    def __init__(self, entries: list[tuple[LeaderEpoch, Offset]] | None = None) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        self.latest = UNDEFINED_EPOCH
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.dirty = False

    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        """(epoch, its first offset) of every epoch, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Note that `epoch` starts at `start_offset`; True if that is new.

        A known epoch that does not start later is kept. Later entries that contradict the new one (a higher epoch or a later
        start) are removed: the log was truncated below them.
        """
        if epoch < 0 or start_offset < 0:
            return False
        if epoch == self.latest and self._starts[-1] <= start_offset:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        self.dirty = True
        return True

    def end_of(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEnd:
        """Where `epoch` ended. (-1, -1) for an undefined epoch, or one newer than all known epochs."""
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if above == 0:
            # All remaining records are of later epochs: this epoch ended where the oldest known one began.
            return EpochEnd(epoch, self._starts[0])
        return EpochEnd(self._epochs[above - 1], self._starts[above])

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch under which `offset` was written; -1 if it is older than all known epochs."""
        above = bisect_right(self._starts, offset)
        return self._epochs[above - 1] if above else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Remove the epochs that start at or after `end_offset`, the new end of the log."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self.dirty = True
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Remove epochs that end below `start_offset`; the epoch that contains it now starts there."""
        above = bisect_right(self._starts, start_offset)
        if above == 0 or (above == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: above - 1]
        del self._starts[: above - 1]
        self._starts[0] = start_offset
        self.dirty = True

    def clear(self) -> None:
        """Remove all epochs: the log starts afresh."""
        self.dirty = self.dirty or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        self.latest = UNDEFINED_EPOCH
