"""Compaction: keeps only the newest record of each key.

A pass over one log first fills an offset map from the part that is new since the last pass (the dirty part). Then all
segments up to the end of the map are copied, several small ones into one, without the records that a newer record with
the same key has replaced. If the map fills up, it ends early, and the next pass continues from there. Offsets and order
never change; the active segment, records protected by `min.compaction.lag.ms` and everything above the last stable offset
are not touched.

A tombstone is kept for `delete.retention.ms` after the first pass that saw it: that pass writes the time at which
it may be removed (the delete horizon) into its batch. Transaction markers follow the same rule once their transaction
has no records left. The last batch of each producer, and the batch at which the pass ends, are kept without records instead
of being removed, so that sequence numbers and the end are not lost. No other batch is left empty, because there are
clients that get stuck on a fetch without a record.

The owner's thread decides and swaps; copying runs in another thread (`Step.work`). Source: Kafka's Cleaner.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.records.batch import BatchHeader, CorruptBatch, records_block
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.cleaning.cleaned_txns import CleanedTxns
from barnabas.storage.cleaning.copying import CleanerStats, CleaningAborted, Copy, Pass, Source
from barnabas.storage.config import LONG_MAX
from barnabas.storage.errors import LogDirOffline, LogUnreadable, StorageError
from barnabas.storage.formats import records_in
from barnabas.storage.logs.log import Log
from barnabas.storage.segments.segment import Segment
from barnabas.storage.steps import Step

if TYPE_CHECKING:
    from barnabas.storage.batch_table import BatchTable
    from barnabas.storage.compaction import OffsetMap

log = logging.getLogger("barnabas.cleaner")

DEDUPE_BUFFER_BYTES: Final = 134_217_728
LOAD_FACTOR: Final = 0.9
RETRY_MS: Final = 60_000
"""After a bug or an unreadable file, a log is not compacted for this long, to give the others their turn."""


class Uncleanable(StorageError):
    """The log cannot be compacted at all with the current configuration."""


class Cleanable(NamedTuple):
    """The part of a log that a pass would work on: dirty from `first_dirty` on, up to `first_uncleanable`.

    must: `max.compaction.lag.ms` has passed for some record.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    must: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable(cleaned: Log, now_ms: int) -> Cleanable:
    """The part of a compacted log that can be compacted now, in whole segments. Only reads."""
    config, segments = cleaned.config, cleaned.segments
    first_dirty = cleaned.first_dirty_offset
    if not segments[0].base_offset <= first_dirty <= cleaned.log_end_offset:
        first_dirty = segments[0].base_offset
    first_dirty = max(first_dirty, cleaned.log_start_offset)
    # Below the last stable offset: records of open transactions must not replace anything yet.
    stable_to = cleaned.core.last_stable_offset
    clean: list[Segment] = []
    dirty: list[Segment] = []
    first_uncleanable = segments[0].base_offset
    for segment, following in pairwise(segments):
        if following.base_offset > stable_to:
            break
        if following.base_offset <= first_dirty:
            clean.append(segment)
        elif (
            config.min_compaction_lag_ms > 0 and segment.max_timestamp > now_ms - config.min_compaction_lag_ms
        ):
            break
        else:
            dirty.append(segment)
        first_uncleanable = following.base_offset
    must = False
    if config.max_compaction_lag_ms < LONG_MAX:
        oldest = min((segment.earliest_timestamp() for segment in dirty), default=-1)
        must = oldest >= 0 and now_ms - oldest > config.max_compaction_lag_ms
    return Cleanable(
        first_dirty,
        first_uncleanable,
        sum(segment.size_bytes for segment in clean),
        sum(segment.size_bytes for segment in dirty),
        must,
    )


class LogCleaner:
    """Repeatedly chooses the log that needs compaction most, and compacts it.

        for step in cleaner.steps(now_ms):                 # on the owner's thread
            await loop.run_in_executor(pool, step.work)
            step.commit()

    Several such loops may run at once (`log.cleaner.threads`); each takes another log.
    """

    def __init__(
        self,
        logs: Callable[[], Mapping[TopicPartition, Log]],
        *,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
        load_factor: float = LOAD_FACTOR,
        spend: Callable[[int], None] = lambda _bytes: None,
        secret: Callable[[], bytes] = lambda: os.urandom(16),
        on_offline: Callable[[LogDirOffline], None] = lambda _error: None,
    ) -> None:
        """spend: Throttle.spend, called with the number of bytes read and written."""
        self._logs = logs
        self._map_bytes = dedupe_buffer_bytes
        self._load_factor = load_factor
        self._spend = spend
        self._secret = secret
        self._on_offline = on_offline
        self._busy: set[TopicPartition] = set()
        self._retry_at_ms: dict[TopicPartition, int] = {}
        self._reasons: dict[TopicPartition, str] = {}
        self.uncleanable: dict[TopicPartition, str] = {}
        """Logs that failed, with the reason; they are not compacted until the broker is restarted."""
        self.last_stats: CleanerStats | None = None
        self.passes = 0
        """How many logs have been compacted."""

    def filthiest(self, now_ms: int) -> tuple[TopicPartition, Log, Cleanable] | None:
        """The log to compact next: of those that are due, the one with the largest dirty share."""
        best: tuple[TopicPartition, Log, Cleanable] | None = None
        for name, cleaned in dict(self._logs()).items():
            if not cleaned.config.compact or name in self._busy or name in self.uncleanable:
                continue
            if len(cleaned.segments) < 2 or self._retry_at_ms.get(name, now_ms) > now_ms:
                continue
            try:
                state = cleanable(cleaned, now_ms)
            except Exception as error:
                self._failed(name, cleaned, error, now_ms)
                continue
            if state.dirty_bytes == 0 or state.first_uncleanable <= state.first_dirty:
                continue
            if not state.must and state.dirty_ratio <= cleaned.config.min_cleanable_dirty_ratio:
                continue
            if best is None or state.dirty_ratio > best[2].dirty_ratio:
                best = (name, cleaned, state)
        return best

    def steps(self, now_ms: int) -> Generator[Step, None, None]:
        """One pass over the log that is due most; no steps when none is due."""
        chosen = self.filthiest(now_ms)
        if chosen is None:
            return
        name, cleaned, state = chosen
        self._busy.add(name)
        cleaning: Cleaning | None = None
        try:
            cleaning = Cleaning(cleaned, state, now_ms, self._new_map, self._spend)
            for step in cleaning.steps():
                yield step
                if step.error is not None:
                    self._failed(name, cleaned, step.error, now_ms)
                    return
            self._succeeded(name, state, cleaning)
        except Exception as error:
            self._failed(name, cleaned, error, now_ms)
        finally:
            if cleaning is not None:
                cleaning.tidy()
            self._busy.discard(name)

    def _succeeded(self, name: TopicPartition, state: Cleanable, cleaning: Cleaning) -> None:
        self.last_stats = cleaning.stats
        self.passes += 1
        self._retry_at_ms.pop(name, None)
        self._reasons.pop(name, None)
        log.info(
            "log compacted",
            extra={
                "partition": str(name),
                "from": state.first_dirty,
                "to": cleaning.end_offset,
                "bytes_before": cleaning.stats.bytes_read,
                "bytes_after": cleaning.stats.bytes_written,
                "records_before": cleaning.stats.records_read,
                "records_after": cleaning.stats.records_kept,
            },
        )

    def run(self, now_ms: int) -> bool:
        """Run one pass in this thread, for tools and tests; False when no log was due."""
        ran = False
        with closing(self.steps(now_ms)) as steps:
            for step in steps:
                ran = True
                step.work()
                step.commit()
        return ran

    def _new_map(self) -> OffsetMap:
        from barnabas.storage.compaction import OffsetMap

        return OffsetMap(self._map_bytes, self._secret(), self._load_factor)

    def _failed(self, name: TopicPartition, cleaned: Log, error: BaseException, now_ms: int) -> None:
        if self._logs().get(name) is not cleaned:
            # Its files are gone or renamed, which is not a failure of the disk.
            log.info(
                "compaction given up", extra={"partition": str(name), "reason": "deleted or moved meanwhile"}
            )
        elif isinstance(error, LogDirOffline) and not isinstance(error, LogUnreadable):
            self._on_offline(error)
        elif isinstance(error, CleaningAborted):
            log.info("compaction given up", extra={"partition": str(name), "reason": str(error)})
        elif isinstance(error, (Uncleanable, CorruptBatch)):
            self.uncleanable[name] = str(error)
            log.error(
                "log cannot be compacted and grows until it is repaired",
                extra={"partition": str(name), "reason": str(error)},
            )
        else:
            self._retry_at_ms[name] = now_ms + RETRY_MS
            reason = f"{type(error).__name__}: {error}"
            if self._reasons.get(name) != reason:
                # Log the stack once, not again for the same failure every minute.
                self._reasons[name] = reason
                log.error(
                    "compaction failed; it is tried again",
                    extra={"partition": str(name), "reason": reason},
                    exc_info=error,
                )


class Cleaning:
    """One pass over one log. Raises OSError if a file cannot be opened, CorruptIndex, LogDirOffline."""

    def __init__(
        self,
        cleaned: Log,
        state: Cleanable,
        now_ms: int,
        new_map: Callable[[], OffsetMap],
        spend: Callable[[int], None],
    ) -> None:
        self.cleaned = cleaned
        self._state = state
        self._new_map = new_map
        self._pass = Pass(cleaned, now_ms, spend)
        self.end_offset = state.first_dirty
        self._map: OffsetMap | None = None
        self._copy: Copy | None = None
        segments = cleaned.segments
        # Keep the files open from here on: retention may rename them meanwhile.
        self._sources = [
            Source(segment, segment.open(), segment.size_bytes, following.base_offset)
            for segment, following in pairwise(segments)
            if following.base_offset <= state.first_uncleanable
        ]
        first_offset = segments[0].base_offset
        self._aborted = [
            txn
            for txn in cleaned.aborted_transactions(first_offset, state.first_uncleanable)
            if txn.last_offset >= first_offset
        ]

    @property
    def stats(self) -> CleanerStats:
        return self._pass.stats

    def steps(self) -> Iterator[Step]:
        """First the map; then, for each new segment, one step per old segment and two for the swap."""
        yield Step(self._build_map)
        assert self._map is not None
        self.end_offset = self._map.latest_offset + 1
        txns = CleanedTxns(self._aborted)
        left = deque(source for source in self._sources if source.segment.base_offset < self.end_offset)
        while left:
            copy = self._copy = Copy(self._pass, txns, self._map, self._last_of_producers())
            while left and copy.takes(left[0]):
                yield Step(partial(copy.add, left.popleft()))
            yield Step(copy.finish, copy.begin_swap)
            yield Step(copy.sync_swap, copy.commit)
            self._copy = None
        self.cleaned.first_dirty_offset = self.end_offset

    def tidy(self) -> None:
        """Remove an unfinished new segment and free the map's memory."""
        self._map = None
        copy, self._copy = self._copy, None
        if copy is not None:
            try:
                copy.tidy()
            except OSError as error:
                log.warning(
                    "an unfinished compaction is left to the next start",
                    extra={"log": self.cleaned.name, "reason": str(error)},
                )

    def _last_of_producers(self) -> dict[int, tuple[int, int]]:
        """Producer id -> (last data offset or -1, epoch), at this moment."""
        return {
            producer.producer_id: (producer.last_offset, producer.epoch)
            for producer in self.cleaned.core.producers
        }

    def _build_map(self) -> None:
        state = self._state
        newest = self._new_map()
        # Earlier ones end below the dirty part, so they would never be ended here and would affect later transactions.
        txns = CleanedTxns(txn for txn in self._aborted if txn.last_offset >= state.first_dirty)
        full = False
        for source in self._sources:
            if full or source.end_offset <= state.first_dirty:
                continue
            for table in source.tables(self._pass.spend):
                full = not self._index_table(newest, table, txns)
                if full:
                    break
            else:
                newest.latest_offset = source.end_offset - 1
        self.stats.map_keys = newest.size
        if newest.latest_offset < state.first_dirty:
            raise Uncleanable(
                "not one batch fits the offset map; raise log.cleaner.dedupe.buffer.size or lower "
                "log.cleaner.threads"
            )
        self._map = newest

    def _index_table(self, newest: OffsetMap, table: BatchTable, txns: CleanedTxns) -> bool:
        """Add the keys of the dirty batches to the map; False when it is full."""
        i = table.reaching(self._state.first_dirty)
        while i < len(table):
            left = newest.put_plain(table, i, self._state.first_dirty)
            if left == i:
                if not self._index(newest, table.header(i), table.view(i), txns):
                    return False
                left += 1
            newest.latest_offset = table.last_offset(left - 1)
            i = left
        return True

    def _index(self, newest: OffsetMap, header: BatchHeader, view: memoryview, txns: CleanedTxns) -> bool:
        """Add one batch's keys to the map; False when it is full."""
        if header.is_control and header.magic == 2:
            txns.on_control(header, view)
            return True
        if header.magic < 2:
            return all(
                newest.put(record.key, record.offset)
                for record in records_in(view, header)
                if record.key is not None and record.offset >= self._state.first_dirty
            )
        if txns.on_batch(header) or header.record_count == 0:
            return True
        block = records_block(view, 0, header)
        return newest.put_block(block, header.base_offset, header.record_count, self._state.first_dirty)
