"""Transaction markers, beside aiokafka's reading of them."""

from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from barnabas.records.batch import CorruptBatch, Record, check_batch, read_records
from barnabas.records.control import ControlType, build_marker, control_type, read_marker


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_read_back(commit: bool) -> None:
    batch = build_marker(
        commit=commit, coordinator_epoch=6, producer_id=9, producer_epoch=2, timestamp=123, base_offset=50
    )
    header = check_batch(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    (record,) = read_records(batch)
    marker = read_marker(record)
    assert marker is not None
    assert (marker.commit, marker.coordinator_epoch, record.offset) == (commit, 6, 50)
    assert record.key is not None
    assert ControlRecord.parse(record.key) == (COMMIT_MARKER if commit else ABORT_MARKER)


def test_other_control_records_end_no_transaction() -> None:
    assert read_marker(Record(0, 0, b"\x00\x00\x00\x02", b"")) is None
    assert control_type(Record(0, 0, b"\x00\x00\x00\x63", b"")) is ControlType.UNKNOWN
    with pytest.raises(CorruptBatch):
        read_marker(Record(0, 0, b"\x00", b""))
    with pytest.raises(CorruptBatch):
        read_marker(Record(0, 0, b"\x00\x00\x00\x01", None))
