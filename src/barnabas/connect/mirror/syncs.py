"""Which offsets of the target belong to which of the source. No I/O.

Source: Kafka's OffsetSyncWriter, OffsetSyncStore, MirrorCheckpointTask.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from barnabas.connect.mirror.formats import Checkpoint, OffsetSync

SYNCS_MAX: Final = 4_096
"""Syncs that are kept of a partition; of more, every second one is forgotten, the newest excepted."""
TOO_OLD: Final = -1
Place = tuple[str, int]


@dataclass(slots=True)
class SyncRule:
    """Decides, record by record of one partition, when an offset sync is due. lag_max: how many records apart they are at
    most, as long as offsets grow alike on both sides."""

    lag_max: int
    _synced: int = -1
    _upstream: int = -1
    _downstream: int = -1

    def note(self, upstream: int, downstream: int) -> bool:
        """Whether the sync of this copied record is due."""
        due = (
            self._synced < 0
            or downstream - (self._synced + 1) >= self.lag_max
            or upstream - self._upstream != 1
            or downstream < self._downstream
        )
        self._upstream, self._downstream = upstream, downstream
        if due:
            self._synced = downstream
        return due

    def due_at_rest(self) -> tuple[int, int] | None:
        """The last record, if there was no sync of it: due when nothing follows, so that groups that have read everything
        stand at the end of the copy, too."""
        return None if self._synced in (-1, self._downstream) else (self._upstream, self._downstream)


@dataclass(slots=True)
class SyncStore:
    """The syncs of all partitions, in the order of their upstream offsets."""

    _rows: dict[Place, tuple[list[int], list[int]]] = field(default_factory=dict)

    def add(self, sync: OffsetSync) -> None:
        """Takes the next sync of the topic. One that goes back in the source, or in the target, means that the other topic
        was made again: what is known of the partition is forgotten from there on."""
        upstreams, downstreams = self._rows.setdefault((sync.topic, sync.partition), ([], []))
        keep = bisect_right(upstreams, sync.upstream - 1)
        while keep and downstreams[keep - 1] >= sync.downstream:
            keep -= 1
        del upstreams[keep:], downstreams[keep:]
        upstreams.append(sync.upstream)
        downstreams.append(sync.downstream)
        if len(upstreams) > SYNCS_MAX:
            del upstreams[1:-1:2], downstreams[1:-1:2]

    def translate(self, topic: str, partition: int, offset: int) -> int | None:
        """Where a group goes on in the target that goes on at `offset` in the source: never after a record that it has not
        read. None: nothing was copied yet; TOO_OLD: `offset` is before everything that is known."""
        row = self._rows.get((topic, partition))
        if row is None:
            return None
        upstreams, downstreams = row
        at = bisect_right(upstreams, offset) - 1
        if at < 0:
            return TOO_OLD
        # Between two syncs the target may have gaps or markers of its own: only the record after the sync is certain.
        return downstreams[at] + (1 if offset > upstreams[at] else 0)


def is_newer(before: Checkpoint | None, now: Checkpoint) -> bool:
    """Whether a checkpoint is to be written: a group moves forward in the target unless it was set back in the source."""
    return before is None or now.upstream < before.upstream or now.downstream > before.downstream
