"""The in-sync set of one partition as its leader knows it, and the high watermark that follows from it.

The leader counts itself; a follower's end is what it has asked for last: who fetches from offset n has all below n.
No I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.records.units import Offset

NOTHING: Final = Offset(0)


class InSyncReplicas:
    """See the module. Node ids are broker ids, ends count records."""

    __slots__ = ("_ends", "_leader", "count", "followers")

    def __init__(self, leader: int, in_sync: Iterable[int] = ()) -> None:
        self._leader = leader
        self._ends: dict[int, Offset] = {}
        self.followers: tuple[int, ...] = ()
        self.count = 1
        """How many replicas are in sync, the leader among them."""
        self.set(in_sync)

    def set(self, in_sync: Iterable[int]) -> None:
        """The in-sync set is now `in_sync`; the leader is always part of it."""
        self.followers = tuple(node for node in in_sync if node != self._leader)
        self.count = 1 + len(self.followers)

    def note_fetch(self, follower: int, offset: Offset) -> None:
        """A follower has everything below `offset`."""
        self._ends[follower] = offset

    def forget(self, follower: int) -> None:
        """What was known of a follower's end no longer holds."""
        self._ends.pop(follower, None)

    def high_watermark(self, leader_end: Offset) -> Offset:
        """What every in-sync replica has, `leader_end` being the leader's own end. Followers not heard of have nothing."""
        if not self.followers:
            return leader_end
        return min(leader_end, *(self._ends.get(node, NOTHING) for node in self.followers))
