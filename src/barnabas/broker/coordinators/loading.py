"""Replays a partition of a coordinator's topic into a core, with points to pause between the records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.cores.decision import CorruptRecord
from barnabas.records.batch import BatchHeader, CorruptBatch, Record, batches, records_of
from barnabas.records.control import EndTransactionMarker, read_marker
from barnabas.records.units import Offset

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition

log = logging.getLogger("barnabas.coordinators")

READ_BYTES_MAX: Final = 1 << 18
"""Limit on bytes read at once, regardless of the option: reading blocks the loop."""


class Replayed(Protocol):
    """The state to be filled from the log."""

    def replay(self, key: bytes, value: bytes | None, *, producer_id: int = -1) -> None:
        """Apply one record of the log. producer_id: the producer, if the record belongs to a transaction; -1 otherwise."""

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Apply the end of a producer's transaction."""


OnRecord = Callable[[int, bytes, bytes | None], None]
"""(offset, key, value): called for each replayed record."""


def replay_log(partition: Partition, core: Replayed, read_bytes: int, on_record: OnRecord) -> Iterator[None]:
    """Replay from the log's start to its current end. Unreadable records are logged and skipped."""
    offset, end = partition.log_start_offset, partition.log_end_offset
    while offset < end:
        data = partition.read_bytes(offset, min(read_bytes, READ_BYTES_MAX))
        if not data:
            return
        for position, header in batches(data):
            offset = Offset(max(offset, header.next_offset))
            yield from _replay_batch(partition, core, data, position, header, on_record)
        yield


def _replay_batch(
    partition: Partition, core: Replayed, data: Any, position: int, header: BatchHeader, on_record: OnRecord
) -> Iterator[None]:
    producer_id = header.producer_id if header.is_transactional else -1
    try:
        for record in records_of(data, position, header):
            if header.is_control:
                marker = read_marker(record)
                if isinstance(marker, EndTransactionMarker):
                    core.replay_marker(header.producer_id, marker.commit)
                return
            if _replay_record(partition, core, record, producer_id):
                on_record(record.offset, record.key or b"", record.value)
            yield
    except CorruptBatch as error:
        log.error(
            "a batch of a coordinator's topic cannot be read; its records are left out",
            extra={**_place(partition), "offset": header.base_offset, "reason": str(error)},
        )


def _replay_record(partition: Partition, core: Replayed, record: Record, producer_id: int) -> bool:
    try:
        core.replay(record.key or b"", record.value, producer_id=producer_id)
    except CorruptRecord as error:
        log.warning(
            "a coordinator's record cannot be read; it is left out",
            extra={**_place(partition), "offset": record.offset, "reason": str(error)},
        )
        return False
    except Exception:
        log.exception(
            "a coordinator's record met a bug; it is left out",
            extra={**_place(partition), "offset": record.offset},
        )
        return False
    return True


def _place(partition: Partition) -> dict[str, object]:
    return {"topic": partition.topic, "partition": partition.index}
