"""The replicas of one partition from its leader's view, and the consequences: high watermark, in-sync set, truncation.

The leader counts as a replica. A follower's end is the offset that it last fetched from: it has everything below. While a
change of the in-sync set is being written to the metadata, the high watermark requires the members of both sets, since
the next leader may be elected from either. No I/O and no clock: times, of the monotonic clock, are passed as arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.cores.epochs import LeaderEpochs
from barnabas.records.units import LeaderEpoch, Offset

NOTHING: Final = Offset(0)
UNKNOWN: Final = Offset(-1)
NEVER_MS: Final = float("-inf")


class Follower:
    """What a leader knows of one follower in its leader epoch.

    end: the offset that it last fetched from. asked_ms, leader_end: the time of that fetch, and the leader's end then.
    caught_up_ms: the latest time at which it had everything that the leader had then. epoch: the registration of the broker
    that this is about, -1 as long as that is unknown. start: its log start offset.
    """

    __slots__ = ("asked_ms", "caught_up_ms", "end", "epoch", "leader_end", "start")

    def __init__(self, caught_up_ms: float, epoch: int = -1) -> None:
        self.epoch = epoch
        self.start = UNKNOWN
        self.end = NOTHING
        self.asked_ms = NEVER_MS
        self.leader_end = NOTHING
        self.caught_up_ms = caught_up_ms

    def note_fetch(self, offset: Offset, leader_end: Offset, now_ms: float) -> None:
        """It fetches from `offset`. If that reaches the leader's end at its previous fetch, it was caught up then."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.asked_ms)
        self.end, self.asked_ms, self.leader_end = offset, now_ms, leader_end


class InSyncReplicas:
    """See the module. Node ids are broker ids; ends are offsets."""

    __slots__ = ("_known", "_leader", "_wanted", "count", "followers", "is_alone")

    def __init__(self, leader: int, in_sync: Iterable[int] = ()) -> None:
        self._leader = leader
        self._known: dict[int, Follower] = {}
        self._wanted: tuple[int, ...] = ()
        self.followers: tuple[int, ...] = ()
        self.count = 1
        """The number of replicas in sync, including the leader."""
        self.is_alone = True
        """Whether only the leader counts: nobody else is in sync, or about to be."""
        self.set(in_sync)

    def begin(self, in_sync: Iterable[int], now_ms: float) -> None:
        """A term as leader begins: nothing is known of the followers; those in sync get time to show that they are."""
        self._known.clear()
        self._wanted = ()
        self.set(in_sync)
        for node in self.followers:
            self._known[node] = Follower(now_ms)

    def set(self, in_sync: Iterable[int]) -> None:
        """The in-sync set in the metadata is now `in_sync`; the leader always belongs to it."""
        self.followers = tuple(node for node in in_sync if node != self._leader)
        self.count = 1 + len(self.followers)
        self._count_others()

    def want(self, in_sync: Iterable[int]) -> None:
        """Another in-sync set has been requested from the metadata: until `settled`, both sets count."""
        self._wanted = tuple(node for node in in_sync if node != self._leader)
        self._count_others()

    def settled(self) -> None:
        """The requested set is in the metadata, or never will be."""
        self._wanted = ()
        self._count_others()

    def _count_others(self) -> None:
        self.is_alone = not self.followers and not self._wanted

    @property
    def is_settled(self) -> bool:
        """False while a change of the in-sync set is under way."""
        return not self._wanted

    def note_fetch(
        self, node: int, offset: Offset, leader_end: Offset, now_ms: float, epoch: int = -1
    ) -> None:
        """A follower has everything below `offset`. epoch: the broker epoch with which it asks, -1 if it does not say.

        A request of an earlier registration than the newest that has asked says nothing about the follower's present log.
        """
        known = self._known.get(node)
        if known is not None and known.epoch >= 0 and known.epoch != epoch:
            if 0 <= epoch < known.epoch:
                return
            self.forget(node, epoch, now_ms)
            known = self._known.get(node)
        if known is None:
            known = self._known[node] = Follower(NEVER_MS)
        known.epoch = epoch
        known.note_fetch(offset, leader_end, now_ms)

    def note_idle_fetch(self, node: int, end: int, start: int, now_ms: float, epoch: int) -> bool:
        """A follower in sync has everything up to the leader's `end`, as it had when it asked before. False if anything else
        is known of it: nothing is noted then, and `note_fetch` must decide."""
        known = self._known.get(node)
        if known is None or known.end != end or known.start != start or known.epoch != epoch:
            return False
        if node not in self.followers:
            return False
        known.caught_up_ms = max(known.caught_up_ms, now_ms)
        known.asked_ms, known.leader_end = now_ms, known.end
        return True

    def note_start(self, node: int, start: Offset) -> None:
        """A follower's log begins at `start`."""
        known = self._known.get(node)
        if known is not None:
            known.start = start

    def low_watermark(self, leader_start: Offset, live: Iterable[int]) -> Offset:
        """The offset below which no replica that may lead soon has records: the in-sync ones, and those that are `live`.

        leader_start: where the leader's own log begins. -1 while the start of some follower's log is not known.
        """
        for node in {*self.followers, *self._wanted, *live} - {self._leader}:
            known = self._known.get(node)
            leader_start = min(leader_start, UNKNOWN if known is None else known.start)
        return leader_start

    def forget(self, node: int, epoch: int, now_ms: float) -> None:
        """A follower's broker has registered anew, and may have come back with another disk: nothing is known of its log.

        If it counts as in sync, it gets time to show that it is, as when a term begins.
        """
        self._known.pop(node, None)
        if node in self.followers:
            self._known[node] = Follower(now_ms, epoch)

    def epoch_of(self, node: int) -> int:
        """The broker epoch of the follower that is known; -1 if it has not said."""
        known = self._known.get(node)
        return -1 if known is None else known.epoch

    def retain(self, replicas: Iterable[int]) -> None:
        """The partition now has these replicas: forget all others."""
        kept = set(replicas)
        for node in [node for node in self._known if node not in kept]:
            del self._known[node]

    def high_watermark(self, leader_end: Offset) -> Offset:
        """The offset that all in-sync replicas have reached. leader_end: the leader's own. Unknown ones have nothing."""
        for node in (*self.followers, *self._wanted):
            known = self._known.get(node)
            end = NOTHING if known is None else known.end
            if end < leader_end:
                leader_end = end
        return leader_end

    def may_join(self, node: int, high_watermark: Offset, epoch_start: Offset) -> bool:
        """Whether a follower that is not in sync has caught up: it has everything that is committed, and everything that the
        leader had when its term began.
        """
        known = self._known.get(node)
        if known is None or node in self.followers:
            return False
        return known.end >= high_watermark and known.end >= epoch_start

    def lagging(self, leader_end: Offset, now_ms: float, lag_ms_max: float) -> tuple[int, ...]:
        """The in-sync followers that have been behind for longer than `lag_ms_max`."""
        return tuple(
            node
            for node in self.followers
            if (known := self._known.get(node)) is None
            or (known.end < leader_end and now_ms - known.caught_up_ms > lag_ms_max)
        )

    def end_of(self, node: int) -> Offset:
        """The end of a follower's log, as far as known."""
        known = self._known.get(node)
        return NOTHING if known is None else known.end

    def in_sync_with(self, offset: int) -> list[int]:
        """The in-sync followers that have everything below `offset`, those with the most records first."""
        ends = {node: self.end_of(node) for node in self.followers}
        return [node for node in sorted(ends, key=lambda node: -ends[node]) if ends[node] >= offset]


def truncation_offset(
    epochs: LeaderEpochs, log_end: Offset, leaders_epoch: LeaderEpoch, leaders_end: Offset
) -> Offset:
    """Where a follower truncates its log after the leader has answered that the follower's last epoch ended elsewhere.

    leaders_epoch: the largest epoch in the leader's log that is not above the follower's; leaders_end: where it ended.
    The logs agree below the smaller of the two ends of that epoch. Source: KIP-101, KIP-279, KIP-595.
    """
    own = epochs.end_of(leaders_epoch, log_end)
    if own.epoch < 0:
        return leaders_end if leaders_epoch >= 0 else NOTHING
    if own.epoch < leaders_epoch:
        # This log has no records of that epoch: it can agree only up to the end of an older one.
        return min(own.end_offset, leaders_end)
    return min(own.end_offset, leaders_end, log_end)
