"""One partition that this broker leads: its log, its core, and the fetches that wait on it.

The core decides by the batch's header, the log writes the bytes, the core is told what was written. On a
single node the high watermark follows the log end at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.fetching import PartitionRead, Waiter
from barnabas.cores.fetch import FetchPartition
from barnabas.cores.partition import Origin
from barnabas.records.batch import (
    CODEC_MASK,
    BatchHeader,
    CorruptBatch,
    TimestampType,
    check_batch,
    patch,
    patch_max_timestamp,
    recompress,
)
from barnabas.records.compression import Codec
from barnabas.storage.errors import LogDirOffline
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.shard import Shard
    from barnabas.storage.config import LogConfig
    from barnabas.storage.log import Log

CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class RecordsRefused(ApiError):
    """A batch is refused for some of its records."""

    def __init__(self, code: ErrorCode, message: str, numbers: list[int]) -> None:
        """numbers: which records of the batch they are, from 0 on."""
        super().__init__(code, message)
        self.numbers = numbers


class Appended(NamedTuple):
    """Where a batch lies; `log_append_time_ms` is -1 where the producer's own time was kept."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class Partition:
    """See the module. All calls come from the shard's loop."""

    __slots__ = ("_shard", "index", "leader_epoch", "log", "offline", "topic", "topic_id", "waiters")

    def __init__(
        self, shard: Shard, topic: str, index: int, topic_id: UUID, log: Log, leader_epoch: int
    ) -> None:
        self._shard = shard
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.offline: str | None = None
        self.waiters: dict[Waiter, None] = {}
        log.core.advance_high_watermark(log.core.log_end_offset)

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def log_start_offset(self) -> int:
        return self.log.core.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.core.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.core.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.core.last_stable_offset

    def epoch_error(self, current_leader_epoch: int) -> ErrorCode:
        """Whether a client that believes in `current_leader_epoch` (-1: it did not say) is up to date."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def epoch_at(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was (or will be) written."""
        if offset >= self.log_end_offset:
            return self.leader_epoch
        return self.log.core.epochs.epoch_at(offset)

    # --- appending -------------------------------------------------------------------------------------

    def append(self, records: memoryview | None, *, acks_all: bool, zstd_allowed: bool) -> Appended:
        """Append a producer's batch; `records` is patched in place. Raises ApiError."""
        self._require_online()
        header = self._checked(records)
        assert records is not None
        if acks_all and self.config.min_insync_replicas > 1:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has 1 in-sync replica; min.insync.replicas is {self.config.min_insync_replicas}",
            )
        if header.attributes & CODEC_MASK == Codec.ZSTD and not zstd_allowed:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer")
        seen = self.log.core.decide_append(header)
        if seen is not None:
            return Appended(seen.first_offset, -1, self.log_start_offset)
        now_ms = self._shard.clock.now_ms()
        append_time_ms = -1
        if not self.config.is_plain:
            records, header, append_time_ms = self._converted(records, header, now_ms)
        elif header.max_timestamp - now_ms > self.config.timestamp_after_max_ms:
            raise self._too_far_ahead(header, now_ms)
        return Appended(self._write(records, header, now_ms), append_time_ms, self.log_start_offset)

    def append_built(self, batch: bytes) -> int:
        """Append a batch that this broker made itself (a coordinator's); returns its base offset."""
        self._require_online()
        records = memoryview(bytearray(batch))
        header = check_batch(records)
        self.log.core.decide_append(header, Origin.COORDINATOR)
        return self._write(records, header, self._shard.clock.now_ms())

    def _require_online(self) -> None:
        if self.offline is not None:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.index}: log dir {self.offline} is offline"
            )

    def _write(self, records: memoryview, header: BatchHeader, now_ms: int) -> int:
        base_offset = self.log.core.log_end_offset
        patch(records, 0, base_offset, self.leader_epoch)
        try:
            self.log.append(records, header, self.leader_epoch, now_ms)
        except LogDirOffline as error:
            self._shard.on_write_failed(self, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.log.core.advance_high_watermark(self.log.core.log_end_offset)
        if self.waiters:
            self._shard.to_wake(self)
        return base_offset

    def _checked(self, records: memoryview | None) -> BatchHeader:
        """The header of the one whole batch that a produce request must hold."""
        if not records:
            raise ApiError(ErrorCode.INVALID_RECORD, "the request holds no record batch for this partition")
        try:
            header = check_batch(records)
        except CorruptBatch as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        size_bytes = header.size_bytes
        if size_bytes != len(records):
            raise ApiError(
                ErrorCode.INVALID_RECORD, "a produce request holds exactly one record batch for a partition"
            )
        if size_bytes > self.config.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {size_bytes} bytes; max.message.bytes of {self.topic} is {self.config.max_message_bytes}",
            )
        if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"the batch says {header.record_count} records and a last offset delta of {header.last_offset_delta}",
            )
        return header

    def _converted(
        self, records: memoryview, header: BatchHeader, now_ms: int
    ) -> tuple[memoryview, BatchHeader, int]:
        """The batch as this topic's options want it: keyed, in its codec, with the broker's time."""
        config = self.config
        self._check_records(records, header, now_ms)
        codec = CODECS.get(config.compression_type)
        if codec is not None and header.attributes & CODEC_MASK != codec:
            records = memoryview(bytearray(recompress(records, 0, codec, config.level_of(codec))))
        append_time_ms = -1
        if config.log_append_time:
            append_time_ms = now_ms
            patch_max_timestamp(records, 0, TimestampType.LOG_APPEND_TIME, now_ms)
        elif header.max_timestamp - now_ms > config.timestamp_after_max_ms:
            raise self._too_far_ahead(header, now_ms)
        return records, check_batch(records), append_time_ms

    def _check_records(self, records: memoryview, header: BatchHeader, now_ms: int) -> None:
        """What the options ask of each single record. Raises RecordsRefused; decodes the batch where one asks."""
        from barnabas.records.batch import records_of

        config = self.config
        keyed = config.compact and not config.is_internal
        # Below zero without a limit: nothing is older.
        oldest_ms = -1 if config.log_append_time else now_ms - config.timestamp_before_max_ms
        if not keyed and oldest_ms < 0:
            return
        keyless, old = [], []
        for number, record in enumerate(records_of(records, 0, header)):
            if keyed and record.key is None:
                keyless.append(number)
            if 0 <= record.timestamp < oldest_ms:
                old.append(number)
        if keyless:
            raise RecordsRefused(
                ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key", keyless
            )
        if old:
            raise RecordsRefused(
                ErrorCode.INVALID_TIMESTAMP,
                "a timestamp is older than message.timestamp.before.max.ms allows, which is "
                f"{config.timestamp_before_max_ms}",
                old,
            )

    def _too_far_ahead(self, header: BatchHeader, now_ms: int) -> ApiError:
        return ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"a timestamp lies {header.max_timestamp - now_ms} ms ahead of the broker's clock; "
            f"message.timestamp.after.max.ms allows {self.config.timestamp_after_max_ms}",
        )

    def go_offline(self, log_dir: str) -> None:
        """Its log dir has failed: every request is refused from now on, waiting fetches too."""
        self.offline = log_dir
        self._shard.to_wake(self)

    def close(self) -> None:
        """The topic was deleted: answer who waits; the next request finds no partition."""
        self.go_offline(self.log.log_dir)

    # --- reading ---------------------------------------------------------------------------------------

    def read(
        self, asked: FetchPartition, max_bytes: int, read_committed: bool, *, at_least_one: bool
    ) -> PartitionRead:
        """What a consumer gets from `asked.fetch_offset` on; never past what it may see."""
        core = self.log.core
        read = PartitionRead(asked, self)
        read.high_watermark = core.high_watermark
        read.last_stable_offset = core.last_stable_offset
        read.log_start_offset = core.log_start_offset
        if asked.last_fetched_epoch >= 0:
            end = core.epochs.end_of(asked.last_fetched_epoch, core.log_end_offset)
            if end.end_offset < asked.fetch_offset or end.epoch < asked.last_fetched_epoch:
                read.diverging = (end.epoch, end.end_offset)
                return read
        if self.offline is not None:
            read.error = ErrorCode.KAFKA_STORAGE_ERROR
            return read
        if not core.log_start_offset <= asked.fetch_offset <= core.log_end_offset:
            read.error = ErrorCode.OFFSET_OUT_OF_RANGE
            return read
        upper = core.last_stable_offset if read_committed else core.high_watermark
        try:
            read.records = self.log.read(
                asked.fetch_offset, max_bytes, at_least_one=at_least_one, upper_offset=upper
            )
        except LogDirOffline:
            read.error = ErrorCode.KAFKA_STORAGE_ERROR
            return read
        if read_committed:
            read.aborted = self.log.aborted(asked.fetch_offset, upper) if read.records is not None else []
        return read

    def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset`, up to the log's end; at least one."""
        found = self.log.read(offset, max_bytes, at_least_one=True, upper_offset=self.log_end_offset)
        return b"" if found is None else found.read()

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after a time."""
        return self.log.offset_for_timestamp(timestamp_ms)

    def max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the record with the greatest timestamp."""
        return self.log.max_timestamp()

    def wake_waiters(self) -> None:
        for waiter in list(self.waiters):
            waiter.wake()
