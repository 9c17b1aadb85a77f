"""The second half of a compaction: neighbouring segments are copied into a new one, without records that newer ones
have replaced. The offset map filled by the first half (cleaner.py) tells which records these are.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    CorruptBatch,
    assemble,
    build_batch_at,
    empty_batch,
    rebuild_batch,
    records_block,
    records_of,
)
from barnabas.records.compression import Codec
from barnabas.records.units import LeaderEpoch, Position
from barnabas.storage.cleaning.cleaned_txns import CleanedTxns
from barnabas.storage.errors import LogDirOffline, StorageError
from barnabas.storage.files import LogFile, pwrite_all
from barnabas.storage.formats import Damaged, FoundBatch, records_in, verify
from barnabas.storage.logs.swap import Swap
from barnabas.storage.scan import found_at, tables
from barnabas.storage.segments.segment import CLEANED_SUFFIX, LOG_SUFFIX, OFFSETS_IN_SEGMENT_MAX, Segment

if TYPE_CHECKING:
    from barnabas.storage.batch_table import BatchTable
    from barnabas.storage.compaction import OffsetMap
    from barnabas.storage.logs.log import Log

WRITE_BYTES: Final = 1 << 20
SOURCES_MAX: Final = 128
"""At most this many segments are merged into one: their files are renamed in one turn of the owner's thread."""
INDEX_ENTRIES_SPARE: Final = 2


class CleaningAborted(StorageError):
    """The log was changed during a compaction; it stays as it was, and the next pass tries again."""


class Source(NamedTuple):
    """A segment to compact, as it was when the pass began; `end_offset` is the base offset of the next one."""

    segment: Segment
    file: LogFile
    size_bytes: int
    end_offset: int

    def tables(self, spend: Callable[[int], None]) -> Iterator[BatchTable]:
        """The segment's batches. Raises CorruptBatch, because damaged segments are not rewritten, and LogDirOffline."""
        where = self.segment.path(LOG_SUFFIX)
        end, low = 0, int(self.segment.base_offset)
        try:
            for table in tables(self.file, 0, self.size_bytes, verified=True):
                spend(table.end - table.start)
                broken = table.intact_until(0)
                if broken < len(table):
                    raise CorruptBatch(f"{where}, byte {table.position(broken)}: {table.fault(broken)}")
                odd = table.consistent_until(0, low, self.end_offset)
                if odd < len(table):
                    raise CorruptBatch(
                        f"{where}, byte {table.position(odd)}: offset {table.base_offset(odd)} is out of place"
                    )
                low = table.end_before(len(table), low)
                yield table
                end = table.end
        except Damaged as damage:
            raise CorruptBatch(f"{where}: {damage}") from damage
        except OSError as error:
            raise LogDirOffline(os.path.dirname(self.segment.folder), error) from error
        if end != self.size_bytes:
            raise CorruptBatch(f"{where}: the batch at byte {end} is cut off")


@dataclass(slots=True)
class CleanerStats:
    """The numbers of one pass, for the log."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    map_keys: int = 0
    segments_before: int = 0
    segments_after: int = 0


@dataclass(slots=True)
class Pass:
    """Shared by all parts of one pass over a log. spend: see Throttle.spend."""

    log: Log
    now_ms: int
    spend: Callable[[int], None]
    stats: CleanerStats = field(default_factory=CleanerStats)


class Copy:
    """Copies neighbouring segments into a new one. Call `add` for each segment as long as `takes` allows, then `finish`;
    then the `swap` puts the new segment in their place.

    last_of_producers: producer id -> (last data offset or -1, epoch).
    """

    def __init__(
        self,
        work: Pass,
        txns: CleanedTxns,
        newest: OffsetMap,
        last_of_producers: dict[int, tuple[int, int]],
    ) -> None:
        self._pass = work
        self._group: list[Source] = []
        self._txns = txns
        self._newest = newest
        self._latest_offset = newest.latest_offset
        self._last_of_producers = last_of_producers
        self._last_offsets = array("q", sorted(last for last, _ in last_of_producers.values() if last >= 0))
        self._out = bytearray()
        self._out_position = 0
        self._changed = False
        self._target: Segment | None = None
        self._swap: Swap | None = None

    def takes(self, source: Source) -> bool:
        """Whether a segment certainly fits into the new one, after those already added.

        Only what was kept of the others counts: segments that turned out empty make room for many more.
        """
        if not self._group:
            return True
        target, config = self._target, self._pass.log.config
        assert target is not None
        entries = source.size_bytes // max(config.index_interval_bytes, 1) + INDEX_ENTRIES_SPARE
        return (
            len(self._group) < SOURCES_MAX
            and target.size_bytes + source.size_bytes <= config.segment_bytes
            and source.end_offset - 1 - target.base_offset <= OFFSETS_IN_SEGMENT_MAX
            and target.offset_index.room_entries >= entries
            and target.time_index.room_entries >= entries
        )

    # --- in the thread ------------------------------------------------------------------------------

    def add(self, source: Source) -> None:
        """Copy the records of one segment that are to be kept. Raises CorruptBatch, LogDirOffline."""
        work = self._pass
        log = work.log
        try:
            if self._target is None:
                self._target = Segment.create(
                    log.folder,
                    source.segment.base_offset,
                    log.config.segment_index_bytes,
                    work.now_ms,
                    interval=log.config.index_interval_bytes,
                    suffix=CLEANED_SUFFIX,
                )
            self._changed = self._changed or bool(self._group)
            self._group.append(source)
            for table in source.tables(work.spend):
                work.stats.bytes_read += table.end - table.start
                self._table(table)
        except OSError as error:
            raise LogDirOffline(log.log_dir, error) from error

    def finish(self) -> None:
        """Complete the new segment and flush it to disk. Raises LogDirOffline."""
        target = self._target
        assert target is not None
        try:
            self._write_out()
            for txn in self._txns.retained:
                target.txn_index.append(txn)
            self._txns.retained.clear()
            target.finish()
            target.trusted_from = 0
            target.may_be_sparse = True
            modified = os.fstat(self._group[-1].file.fd)
            os.utime(target.path(LOG_SUFFIX), ns=(modified.st_atime_ns, modified.st_mtime_ns))
            if self._changed:
                target.sync()
                olds = [source.segment for source in self._group]
                self._swap = Swap(self._pass.log, target, olds, self._group[-1].end_offset)
                self._swap.write_range()
        except OSError as error:
            raise LogDirOffline(self._pass.log.log_dir, error) from error

    def sync_swap(self) -> None:
        """See Swap.sync. Raises LogDirOffline."""
        if self._swap is not None:
            self._swap.sync()

    def _table(self, table: BatchTable) -> None:
        """Copy from a table's batches what is to be kept."""
        from barnabas.storage.compaction import keep_plain

        stats, target = self._pass.stats, self._target
        assert target is not None
        count = len(table)
        i = 0
        while i < count:
            stop, read, kept = keep_plain(
                table, i, count, self._newest, self._latest_offset, self._last_offsets
            )
            if stop > i:
                stats.records_read += read
                stats.records_kept += kept
                stay = table.kept_bytes(i, stop)
                self._changed = self._changed or len(stay) < table.end_of(stop - 1) - table.position(i)
                target.size_bytes = target.note_rows(table, i, stop, target.size_bytes, only_kept=True)
                self._write(stay)
            if stop < count:
                self._batch(found_at(table, stop), table.header(stop), table.view(stop))
            i = stop + 1

    def _batch(self, batch: FoundBatch, header: BatchHeader, view: memoryview) -> None:
        stats = self._pass.stats
        if header.magic < 2:
            self._old_format(batch, header, view)
            return
        stats.records_read += header.record_count
        now_ms = self._pass.now_ms
        horizon = header.delete_horizon_ms
        keep_header = self._ends_the_round(batch) or self._is_last_of_producer(header)
        if header.is_control:
            discardable = self._txns.on_control(header, view)
            if discardable and header.record_count and horizon is None:
                horizon = now_ms + self._pass.log.config.delete_retention_ms
                marked = rebuild_batch(header, records_of(view, 0, header), delete_horizon_ms=horizon)
                stats.records_kept += header.record_count
                self._emit(batch, header, marked, changed=True)
            elif discardable and (horizon is None or horizon <= now_ms):
                self._emptied(batch, header, keep_header)
            else:
                stats.records_kept += header.record_count
                self._emit(batch, header, view, changed=False)
            return
        if self._txns.on_batch(header):
            self._emptied(batch, header, keep_header)
        elif header.base_offset > self._latest_offset:
            stats.records_kept += header.record_count
            self._emit(batch, header, view, changed=False)
        elif header.record_count == 0:
            self._emptied(batch, header, keep_header)
        else:
            self._data(batch, header, view, keep_header)

    def _data(self, place: FoundBatch, header: BatchHeader, view: memoryview, keep_header: bool) -> None:
        from barnabas.storage.compaction import keep_block, shift_timestamps

        now_ms = self._pass.now_ms
        horizon = header.delete_horizon_ms
        block = records_block(view, 0, header)
        drop_tombstones = horizon is not None and horizon <= now_ms
        kept = keep_block(
            block, header.base_offset, header.record_count, self._newest, self._latest_offset, drop_tombstones
        )
        self._pass.stats.records_kept += kept.count
        if kept.count == 0:
            self._emptied(place, header, keep_header)
            return
        new_horizon = kept.has_tombstones and horizon is None and place.last_offset <= self._latest_offset
        if kept.block is None and not new_horizon:
            self._emit(place, header, view, changed=False)
            return
        stay = block if kept.block is None else kept.block
        base_timestamp, attributes = header.base_timestamp, header.attributes
        max_timestamp = base_timestamp + kept.max_timestamp_delta
        if attributes & LOG_APPEND_TIME_BIT:
            max_timestamp = header.max_timestamp
        if new_horizon:
            base_timestamp = now_ms + self._pass.log.config.delete_retention_ms
            stay = shift_timestamps(stay, kept.count, header.base_timestamp - base_timestamp)
            attributes |= DELETE_HORIZON_BIT
        copied = header._replace(
            record_count=kept.count,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
        )
        batch = assemble(copied, stay)
        self._emit(place, header._replace(max_timestamp=max_timestamp), batch, changed=True)

    def _old_format(self, place: FoundBatch, header: BatchHeader, view: memoryview) -> None:
        """A message of magic 0 or 1: the records to be kept are written as magic 2."""
        records = list(records_in(view, header))
        self._pass.stats.records_read += len(records)
        kept = [
            record
            for record in records
            if record.offset > self._latest_offset
            or (record.key is not None and record.offset >= self._newest.get(record.key))
        ]
        self._pass.stats.records_kept += len(kept)
        self._changed = True
        if kept:
            codec = Codec(header.attributes & CODEC_MASK)
            batch = build_batch_at(kept, last_offset=place.last_offset, codec=codec)
            rebuilt = verify(memoryview(batch))
            self._emit(place._replace(base_offset=rebuilt.base_offset), rebuilt, batch, changed=True)
        elif self._ends_the_round(place):
            bare = header._replace(attributes=0, partition_leader_epoch=LeaderEpoch(-1))
            self._emit(place, bare._replace(max_timestamp=-1), empty_batch(bare), changed=True)

    def _ends_the_round(self, place: FoundBatch) -> bool:
        """Whether the pass ends at this batch. It is kept, so that the end is not lost."""
        return place.last_offset == self._latest_offset

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch has the newest sequence number (or the newest epoch) of an active producer."""
        last = self._last_of_producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_offset, epoch = last
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

    def _emptied(self, place: FoundBatch, header: BatchHeader, keep_header: bool) -> None:
        self._changed = self._changed or header.record_count > 0 or not keep_header
        if keep_header:
            # Without records, the batch has no timestamp for the time index either.
            bare = header._replace(max_timestamp=-1)
            self._emit(place, bare, empty_batch(header), changed=header.record_count > 0)

    def _emit(
        self, place: FoundBatch, header: BatchHeader, data: bytes | memoryview, *, changed: bool
    ) -> None:
        target = self._target
        assert target is not None
        self._changed = self._changed or changed
        position = Position(target.size_bytes)
        target.note_append(place.base_offset, place.last_offset, position, len(data), header.max_timestamp)
        target.size_bytes = position + len(data)
        self._write(data)

    def _write(self, data: bytes | memoryview) -> None:
        self._out += data
        if len(self._out) >= WRITE_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        target = self._target
        assert target is not None
        if self._out:
            file = target.open()
            pwrite_all(file.fd, self._out, self._out_position)
            self._out_position += len(self._out)
            self._pass.stats.bytes_written += len(self._out)
            self._pass.spend(len(self._out))
            self._out.clear()

    # --- on the owner's thread ----------------------------------------------------------------------

    def begin_swap(self) -> None:
        """From here on a restart uses the new segment. Raises CleaningAborted, LogDirOffline."""
        if self._swap is not None and not self._swap.begin():
            raise CleaningAborted(f"{self._pass.log.name} was cut or shortened meanwhile")

    def commit(self) -> None:
        """Replace the old segments with the new one. Raises CleaningAborted, LogDirOffline."""
        stats = self._pass.stats
        if self._swap is None:
            self.tidy()
        elif not self._swap.finish():
            raise CleaningAborted(f"{self._pass.log.name} was cut or shortened meanwhile")
        self._target = None
        stats.segments_before += len(self._group)
        stats.segments_after += 1

    def tidy(self) -> None:
        """Remove a new segment that has not been put in place. Raises OSError."""
        target, self._target = self._target, None
        if self._swap is not None:
            self._swap.cancel()
        elif target is not None:
            target.delete_files()
