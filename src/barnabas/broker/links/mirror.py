"""One partition that this broker leads and a link copies: where it stands, and what has happened to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cores.links import Ends, LinkedTopic
from barnabas.records.units import Offset

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition

STARTING: Final = "starting"
COPYING: Final = "copying"
IN_SYNC: Final = "in sync"
WAITING: Final = "waiting"
PAUSED: Final = "paused"
STOPPED: Final = "stopped"
"""Copying has ended, because the topic of the source is another one or gone."""


class Mirror:
    """See the module. leader: the source's broker to fetch from, -1 while unknown. retry_ms: when it is fetched again, by
    the monotonic clock. source_*: as the source last said, -1 before. reached_ms: the timestamp of the newest copied record.
    missed, dropped: offsets, see cores/links.py. is_placed: the log begins where it is meant to.
    """

    __slots__ = (
        "dropped", "epochs", "is_placed", "leader", "linked", "missed", "partition", "reached_ms", "reason", "retry_ms",
        "source_end", "source_epoch", "source_start", "stopped",
    )  # fmt: skip

    def __init__(self, partition: Partition, linked: LinkedTopic, *, is_placed: bool) -> None:
        self.partition = partition
        self.linked = linked
        self.leader = -1
        self.retry_ms = 0.0
        self.source_start = self.source_end = -1
        self.source_epoch = -1
        self.reached_ms = -1
        self.missed = self.dropped = 0
        self.reason = ""
        self.stopped = ""
        """Why copying has ended for good; empty while it goes on."""
        self.is_placed = is_placed or self.ends != (0, 0)
        self.epochs = -1
        """The epoch of the source whose end was compared with this log; -1 while that is to be done."""

    @property
    def ends(self) -> Ends:
        """Where the copy starts and ends."""
        core = self.partition.log.core
        return Ends(core.log_start_offset, core.log_end_offset)

    @property
    def is_copied(self) -> bool:
        """Whether this broker still leads the partition, and the link still mirrors it."""
        partition = self.partition
        return (
            partition.is_leader
            and partition.offline is None
            and partition.config.barnabas_link == str(self.linked)
        )

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind; -1 while that is unknown."""
        return -1 if self.source_end < 0 else max(self.source_end - self.ends.end, 0)

    def lag_ms(self, now_ms: int) -> int:
        """How old the newest copied record is, if there are newer ones; -1 while that is unknown."""
        if self.lag <= 0:
            return self.lag
        return -1 if self.reached_ms < 0 else max(now_ms - self.reached_ms, 0)

    @property
    def state(self) -> str:
        """One of the names above."""
        if self.stopped:
            return STOPPED
        if self.reason:
            return WAITING
        if self.source_end < 0:
            return STARTING
        return COPYING if self.lag else IN_SYNC

    @property
    def open_transactions(self) -> int:
        """How many transactions have begun in the copy and not ended."""
        return len(self.partition.log.core.producers.ongoing)

    @property
    def end(self) -> Offset:
        """Where the copy ends."""
        return self.partition.log_end_offset
