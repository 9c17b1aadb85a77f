"""One partition of this broker: appends to it and reads from it. Its role and its followers are in replica.py.

The core decides from the batch's header, the log writes the bytes, then the core is updated. Every append returns an
Acknowledgement.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.broker.partitions.acknowledgement import Acknowledgement
from barnabas.broker.partitions.batch_checks import (
    NotPrepared,
    checked,
    converted,
    require_fits_segment,
    stamped,
)
from barnabas.broker.partitions.replica import Replica
from barnabas.cores.fetch import FetchPartition
from barnabas.cores.links import refuse_write
from barnabas.cores.partition import Origin
from barnabas.records.batch import (
    CODEC_MASK,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    check_batch,
    patch,
)
from barnabas.records.compression import Codec
from barnabas.records.control import EndTransactionMarker, build_marker
from barnabas.records.units import CoordinatorEpoch, LeaderEpoch, Offset, ProducerEpoch
from barnabas.storage.errors import LogDirOffline
from barnabas.storage.searching import Hit, Search, finish
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.cores.decision import Producer
    from barnabas.storage.config import LogConfig
    from barnabas.storage.files import FileSlice

log = logging.getLogger("barnabas.partitions")

ZSTD: Final = int(Codec.ZSTD)


class PartitionRead:
    """A partition's part of the answer to a fetch. `records` None without an error: nothing new."""

    __slots__ = (
        "aborted", "asked", "diverging", "error", "high_watermark", "image", "last_stable_offset", "leader_epoch",
        "log_start_offset", "partition", "preferred", "records",
    )  # fmt: skip

    def __init__(
        self, asked: FetchPartition, partition: Partition | None, error: ErrorCode = ErrorCode.NONE
    ) -> None:
        self.asked = asked
        self.partition = partition
        self.error = error
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.leader_epoch = -1 if partition is None else partition.leader_epoch
        self.image = None if partition is None else partition.image
        self.aborted: list[tuple[int, int]] | None = None
        self.diverging: tuple[int, int] | None = None
        self.preferred = -1
        """The replica that the consumer should read from instead (KIP-392)."""
        self.records: FileSlice | bytes | None = None


class Partition(Replica):
    """See the module. All calls come from the broker's loop."""

    __slots__ = ()

    # --- appending -------------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview | None,
        *,
        acks_all: bool,
        zstd_allowed: bool,
        schemas_checked: bool = False,
        converted_for: LogConfig | None = None,
        may_take_long: bool = True,
    ) -> Acknowledgement:
        """Append a producer's batch; `records` is patched in place. Raises ApiError with nothing appended.

        schemas_checked: the schemas that the records name have been checked or need no check; otherwise NotPrepared is
        raised if the topic demands a check. converted_for: the options for which `batch_checks.converted` has made the
        batch. may_take_long: convert it now if need be, however long it takes; otherwise NotPrepared is raised.
        """
        self._require_leader()
        core, config = self.log.core, self.log.config
        if config.barnabas_link:
            raise refuse_write(self.topic, config.barnabas_link)
        header, records = checked(records, self.topic, config)
        attributes = header.attributes
        if acks_all and self._replicas.count < config.min_insync_replicas:
            raise self._too_few_replicas(ErrorCode.NOT_ENOUGH_REPLICAS)
        if attributes & CODEC_MASK == ZSTD and not zstd_allowed and converted_for is None:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer")
        if not schemas_checked and config.checks_schemas and converted_for is not config:
            raise NotPrepared(self.topic)
        self.produce_requests += 1
        seen = core.decide_append(header)
        if seen is not None:
            return self._promise(seen.first_offset, seen.first_offset + header.record_count, -1, acks_all)
        now_ms = self._surroundings.clock.now_ms()
        append_time_ms = -1
        if converted_for is not config:
            records = converted(records, header, self.topic, config, now_ms, may_take_long=may_take_long)
        if attributes & TRANSACTIONAL_BIT and self._surroundings.check_transaction(self, header):
            core.decide_append(header, must_start_at_zero=True)
        if not config.is_plain:
            header, append_time_ms = stamped(records, config, now_ms)
        base_offset = self._write(records, header, now_ms)
        self.bytes_in += header.size_bytes
        return self._promise(base_offset, core.log_end_offset, append_time_ms, acks_all)

    def append_built(self, batch: bytes) -> Acknowledgement:
        """Append a batch that this broker has built itself (a coordinator's). Raises ApiError with nothing appended."""
        self._require_leader()
        if self.config.barnabas_link:
            raise refuse_write(self.topic, self.config.barnabas_link)
        if self._replicas.count < self.config.min_insync_replicas:
            raise self._too_few_replicas(ErrorCode.NOT_ENOUGH_REPLICAS)
        records = memoryview(bytearray(batch))
        header = check_batch(records)
        require_fits_segment(header.size_bytes, self.topic, self.config)
        self.log.core.decide_append(header, Origin.COORDINATOR)
        base_offset = self._write(records, header, self._surroundings.clock.now_ms())
        return self._promise(base_offset, self.log.core.log_end_offset, -1, True)

    def append_marker(
        self,
        producer: Producer,
        commit: bool,
        coordinator_epoch: CoordinatorEpoch,
        transaction_version: int,
        *,
        in_copy: bool = False,
    ) -> Acknowledgement:
        """Append the end of a producer's transaction. in_copy: also to a mirrored topic, which is about to be promoted.

        Raises ApiError with nothing appended.
        """
        self._require_leader()
        if self.config.barnabas_link and not in_copy:
            raise refuse_write(self.topic, self.config.barnabas_link)
        now_ms = self._surroundings.clock.now_ms()
        batch = build_marker(
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer.producer_id,
            producer_epoch=ProducerEpoch(producer.producer_epoch),
            timestamp=now_ms,
        )
        records = memoryview(bytearray(batch))
        header = check_batch(records)
        self.log.core.decide_marker(
            header, EndTransactionMarker(commit, coordinator_epoch), transaction_version=transaction_version
        )
        base_offset = self._write(records, header, now_ms)
        return self._promise(base_offset, self.log.core.log_end_offset, -1, True)

    def append_mirrored(self, records: memoryview) -> None:
        """Append checked batches of another cluster, with their offsets and epochs, as the leader of a copy.

        Raises ApiError, OffsetOutOfRange for a batch below the log's end, and LogDirOffline.
        """
        self._require_leader()
        self.log.append_replicated(records, self._surroundings.clock.now_ms())
        self.replicated_in += len(records)
        if self.log.must_flush_now:
            self._flush_soon()
        self._advance()
        if self._replicas.followers and self.waiters:
            self._surroundings.wake(self)

    def cut_mirrored(self, offset: Offset, *, fully: bool) -> None:
        """End the log of a copy at `offset`, or (fully) begin it there without records. Raises ApiError, LogDirOffline."""
        self._require_leader()
        now_ms = self._surroundings.clock.now_ms()
        if fully:
            self.log.truncate_fully_and_start_at(offset, now_ms)
        else:
            self.log.truncate_to(offset, now_ms)
        self._advance()
        self._surroundings.wake(self)

    def promise_end(self) -> Acknowledgement:
        """An acknowledgement that is ready when everything now in the log is committed."""
        return self._promise(self.log_end_offset, self.log_end_offset, -1, True)

    def _write(self, records: memoryview, header: BatchHeader, now_ms: int) -> int:
        log = self.log
        base_offset = log.core.log_end_offset
        patch(records, 0, base_offset, self.leader_epoch)
        try:
            log.append(records, header, self.leader_epoch, now_ms)
        except Exception as error:
            patch(records, 0, Offset(0), self.leader_epoch)  # as it came: the general path may try again
            if not isinstance(error, LogDirOffline):
                raise
            self._surroundings.write_failed(self, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if log.must_flush_now:
            self._flush_soon()
        self._advance()
        if self._replicas.followers and self.waiters:
            self._surroundings.wake(self)  # followers read beyond the high watermark
        return base_offset

    # --- reading ---------------------------------------------------------------------------------------

    def read(
        self,
        asked: FetchPartition,
        max_bytes: int,
        read_committed: bool,
        *,
        at_least_one: bool,
        by_replica: bool = False,
        from_follower: bool = False,
    ) -> PartitionRead:
        """What a reader gets from `asked.fetch_offset` on: a consumer only what it may see, a replica everything.

        from_follower: a follower may answer, too (KIP-392), up to the high watermark that it knows.
        """
        core = self.log.core
        read = PartitionRead(asked, self)
        read.high_watermark = core.high_watermark
        read.last_stable_offset = core.last_stable_offset
        read.log_start_offset = core.log_start_offset
        if self.offline is not None:
            read.error = self.unavailable().code
            return read
        is_follower = from_follower and self._surroundings.node_id in self.image.replicas
        if not self.is_leader and not is_follower:
            read.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return read
        in_range = core.log_start_offset <= asked.fetch_offset <= core.log_end_offset
        if asked.last_fetched_epoch >= 0:
            end = self.end_of_epoch(LeaderEpoch(asked.last_fetched_epoch))
            is_beyond = end.end_offset < asked.fetch_offset or end.epoch < asked.last_fetched_epoch
            if end.epoch >= 0 and is_beyond and asked.fetch_offset >= core.log_start_offset:
                read.diverging = (end.epoch, end.end_offset)
                return read
            in_range = in_range and end.epoch >= 0
        if not in_range:
            read.error = ErrorCode.OFFSET_OUT_OF_RANGE
            if not by_replica:  # a replica starts again at the log's start
                read.high_watermark = read.last_stable_offset = read.log_start_offset = -1
            return read
        upper = core.last_stable_offset if read_committed else core.high_watermark
        if by_replica:
            upper = core.log_end_offset
        try:
            read.records = self.log.read(
                Offset(asked.fetch_offset),
                max_bytes,
                at_least_one=at_least_one,
                upper_offset=upper,
                skip_empty=not by_replica,
            )
            if read_committed:
                records = read.records
                read.aborted = [] if records is None else self.log.aborted(asked.fetch_offset, upper, records)
        except LogDirOffline:
            read.error = ErrorCode.KAFKA_STORAGE_ERROR
            read.records = None
        return read

    def note_fetched(self, size_bytes: int) -> None:
        """A consumer gets records of this size."""
        self.bytes_out += size_bytes
        self.fetch_requests += 1

    def note_idle_fetch(self, follower: int, last: PartitionRead, epoch: int, now_ms: float) -> bool:
        """A follower in sync fetches again from this log's end, as in its previous request, which was answered with `last`:
        note that it has caught up. False if there is more to it: `note_replica_fetch` and `read` decide then.
        """
        core, asked = self.log.core, last.asked
        end = core.log_end_offset
        return (
            last.image is self.image
            and self.is_leader
            and asked.fetch_offset == end
            and last.high_watermark == core.high_watermark
            and last.log_start_offset == core.log_start_offset
            and self.offline is None
            and not self._deletions
            and self._replicas.note_idle_fetch(follower, end, asked.log_start_offset, now_ms, epoch)
        )

    def read_bytes(self, offset: Offset, max_bytes: int) -> bytes:
        """Whole batches, at least one, starting with the one that contains `offset`."""
        batches = self.log.read(offset, max_bytes, at_least_one=True, upper_offset=self.log_end_offset)
        return b"" if batches is None else batches.read()

    def search_time(self, timestamp_ms: int) -> Search:
        """The first record at or after a time, in steps (storage/searching.py). Raises CorruptBatch."""
        return self.log.search_time(timestamp_ms)

    def search_greatest_time(self) -> Search:
        """The first record with the greatest timestamp, in steps. Raises CorruptBatch."""
        return self.log.search_greatest_time()

    def offset_for_time(self, timestamp_ms: int) -> Hit | None:
        """(timestamp, offset) of the first record at or after a time. Raises ApiError when records cannot be read."""
        try:
            return finish(self.search_time(timestamp_ms))
        except CorruptBatch as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: CorruptBatch) -> ApiError:
        """The answer to a request that needs records that cannot be read."""
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.topic}-{self.index}: {error}")
