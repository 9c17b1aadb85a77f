"""Dumped files as text. That the lines are Kafka's own is shown in tests/clients/test_kafka_dump.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.records.batch import Record, read_header
from barnabas.records.compression import Codec
from barnabas.storage.dumping import dump_decoders
from barnabas.storage.dumping.dump import Dump, DumpOptions
from barnabas.storage.errors import StorageError
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log
from barnabas.wire.records_schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from barnabas.wire.records_schemas.group_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.wire.records_schemas.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from tests.unit.storage.building import SMALL, T0_MS, append, rows
from tests.unit.storage.test_cleaner import end_txn


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = create_log(str(tmp_path / "t-0"), SMALL, T0_MS)
    append(log, [Record(0, T0_MS, b"k", b"v", (("h", b"x"), ("n", None))), Record(1, T0_MS + 5, None, None)])
    append(log, rows(2), codec=Codec.ZSTD, producer_id=9, sequence=4, transactional=True, epoch=3)
    end_txn(log, 9, commit=False)
    log.close()
    return log


def text(path: str | Path, **options: object) -> tuple[list[str], list[str]]:
    dump = Dump(DumpOptions(**options))  # type: ignore[arg-type]
    return list(dump.lines(path)), list(dump.problems())


def test_a_log_with_its_records(log: Log) -> None:
    path = Path(log.segments[0].path(".log"))
    data = path.read_bytes()
    first = read_header(data)
    second = read_header(data, first.size_bytes)
    third = read_header(data, first.size_bytes + second.size_bytes)
    lines, problems = text(path, print_data=True)
    no_horizon = "deleteHorizonMs: OptionalLong.empty"
    assert lines == [
        f"Dumping {path}",
        "Log starting offset: 0",
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        f"partitionLeaderEpoch: 0 isTransactional: false isControl: false {no_horizon} position: 0 "
        f"CreateTime: {T0_MS + 5} size: {first.size_bytes} magic: 2 compresscodec: none crc: {first.crc} "
        "isvalid: true",
        f"| offset: 0 CreateTime: {T0_MS} keySize: 1 valueSize: 1 sequence: -1 headerKeys: [h,n] key: k payload: v",
        f"| offset: 1 CreateTime: {T0_MS + 5} keySize: -1 valueSize: -1 sequence: -1 headerKeys: []",
        "baseOffset: 2 lastOffset: 3 count: 2 baseSequence: 4 lastSequence: 5 producerId: 9 producerEpoch: 0 "
        f"partitionLeaderEpoch: 3 isTransactional: true isControl: false {no_horizon} "
        f"position: {first.size_bytes} CreateTime: {T0_MS + 1} size: {second.size_bytes} magic: 2 "
        f"compresscodec: zstd crc: {second.crc} isvalid: true",
        f"| offset: 2 CreateTime: {T0_MS} keySize: 5 valueSize: 20 sequence: 4 headerKeys: [] "
        "key: key-0 payload: 00000000............",
        f"| offset: 3 CreateTime: {T0_MS + 1} keySize: 5 valueSize: 20 sequence: 5 headerKeys: [] "
        "key: key-1 payload: 00000001............",
        "baseOffset: 4 lastOffset: 4 count: 1 baseSequence: -1 lastSequence: -1 producerId: 9 producerEpoch: 0 "
        f"partitionLeaderEpoch: 0 isTransactional: true isControl: true {no_horizon} "
        f"position: {first.size_bytes + second.size_bytes} CreateTime: {T0_MS} size: {third.size_bytes} magic: 2 "
        f"compresscodec: none crc: {third.crc} isvalid: true",
        f"| offset: 4 CreateTime: {T0_MS} keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        "endTxnMarker: ABORT coordinatorEpoch: 0",
    ]
    assert problems == []
    assert len(text(path)[0]) == 5
    assert text(path, print_data=True, skip_record_metadata=True)[0][3] == "| key: k payload: v"


def test_damage_in_a_log_is_told(log: Log) -> None:
    path = Path(log.segments[0].path(".log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data[:-7])
    lines, _ = text(path, deep=True)
    assert lines[2].endswith("isvalid: false")
    assert "checksum" in lines[3]
    assert lines[-1].startswith("Found ")
    assert lines[-1].endswith(f" invalid bytes at the end of {path.name}")
    path.write_bytes(b"\xff" * 100)
    assert "Found 100 invalid bytes at the end of" in text(path)[0][-1]


def test_indexes_are_compared_with_their_log(tmp_path: Path) -> None:
    log = create_log(str(tmp_path / "t-0"), SMALL, T0_MS)
    for i in range(12):
        append(log, rows(3, at_ms=T0_MS + 1000 * i))
    log.close()
    index = Path(log.segments[0].path(".index"))
    times = Path(log.segments[0].path(".timeindex"))
    lines, problems = text(index)
    entries = [log.segments[0].offset_index.entry(i) for i in range(len(log.segments[0].offset_index))]
    assert lines[1:] == [f"offset: {offset} position: {position}" for offset, position in entries]
    assert problems == []
    lines, problems = text(times)
    assert lines[-1] == f"timestamp: {T0_MS + 11_002} offset: 35"
    assert problems == []
    assert text(index, verify_only=True) == ([f"Dumping {index}"], [])
    assert text(index, sanity_only=True)[0][1] == f"{index} passed sanity check."

    data = bytearray(index.read_bytes())
    data[3] += 1
    index.write_bytes(data)
    first = entries[0][0]
    assert text(index)[1] == [f"Mismatches in :{index}", f"  Index offset: {first + 1}, log offset: {first}"]
    stamps = bytearray(times.read_bytes())
    stamps[7] ^= 1
    times.write_bytes(stamps)
    assert text(times)[1][0] == f"Found timestamp mismatch in :{times}"
    times.write_bytes(b"\xff" * 24)
    assert "is damaged" in text(times)[0][1]
    empty = tmp_path / "t-0" / "00000000000000000036.index"
    empty.write_bytes(b"")
    (tmp_path / "t-0" / "00000000000000000036.log").write_bytes(b"")
    assert text(empty)[0][1] == f"{empty} is empty."


def test_gaps_are_told(tmp_path: Path) -> None:
    log = create_log(str(tmp_path / "t-0"), SMALL, T0_MS)
    append(log, rows(2))
    log.core.log_end_offset = 5
    append(log, rows(2))
    log.close()
    path = log.segments[0].path(".log")
    assert text(path, deep=True)[1] == [f"Non-consecutive offsets in {path}", "  1 is followed by 5"]


def test_snapshots_and_transaction_indexes(log: Log) -> None:
    folder = Path(log.folder)
    assert text(folder / "00000000000000000005.snapshot")[0][1:] == [
        f"producerId: 9 producerEpoch: 0 coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong.empty "
        f"lastTimestamp: {T0_MS} firstSequence: 4 lastSequence: 5 lastOffset: 3 offsetDelta: 1 "
        f"timestamp: {T0_MS}"
    ]
    assert text(folder / "00000000000000000000.txnindex")[0][1:] == [
        "version: 0 producerId: 9 firstOffset: 2 lastOffset: 4 lastStableOffset: 5"
    ]
    (folder / "00000000000000000005.snapshot").write_bytes(b"xx")
    assert "is damaged" in text(folder / "00000000000000000005.snapshot")[0][1]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="none of"):
        text(tmp_path / "x.txt")
    (tmp_path / "abc.log").write_bytes(b"")
    with pytest.raises(StorageError, match="not named as a segment"):
        text(tmp_path / "abc.log")


def record(key: bytes, value: bytes | None) -> Record:
    return Record(7, T0_MS, key, value)


def test_committed_offsets_are_decoded() -> None:
    key = b"\x00\x01" + OffsetCommitKey(group="g", topic="t", partition=2).encode(1)
    value = OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=99).encode_versioned(3)
    assert dump_decoders.group_log(record(key, value)) == (
        '{"type":"1","data":{"group":"g","topic":"t","partition":2}}',
        '{"version":"3","data":{"offset":5,"leaderEpoch":1,"metadata":"m","commitTimestamp":99}}',
    )
    assert dump_decoders.group_log(record(key, None))[1] == "<DELETE>"
    unknown = dump_decoders.group_log(record(b"\x7f\xff", b""))
    assert unknown == ("Unknown record type 32767 at offset 7, skipping.", None)
    assert "Error at offset 7" in str(dump_decoders.group_log(record(b"\x00\x01", b""))[0])


def test_groups_are_decoded_down_to_what_members_said() -> None:
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=ConsumerProtocolSubscription(topics=["t"], user_data=None).encode_versioned(0),
        assignment=ConsumerProtocolAssignment(
            assigned_partitions=[TopicPartition(topic="t", partitions=[0, 1])], user_data=b"x"
        ).encode_versioned(0),
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=4, protocol="range", leader="m", current_state_timestamp=6,
        members=[member],
    ).encode_versioned(3)  # fmt: skip
    key = b"\x00\x02" + GroupMetadataKey(group="g").encode(2)
    shown_key, shown = dump_decoders.group_log(record(key, value))
    assert shown_key == '{"type":"2","data":{"group":"g"}}'
    assert shown is not None
    assert '"subscription":{"topics":["t"],"userData":null}' in shown
    assert '"assignment":{"assignedPartitions":[{"topic":"t","partitions":[0,1]}],"userData":"eA=="}' in shown


def test_transactions_are_decoded() -> None:
    key = TransactionLogKey(transactional_id="tx").encode_versioned(0)
    value = TransactionLogValue(
        producer_id=3, producer_epoch=1, transaction_timeout_ms=60_000, transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=55, transaction_start_timestamp_ms=44,
    ).encode_versioned(0)  # fmt: skip
    assert dump_decoders.transaction_log(record(key, value)) == (
        '{"type":"0","data":{"transactionalId":"tx"}}',
        '{"version":"0","data":{"producerId":3,"producerEpoch":1,"transactionTimeoutMs":60000,'
        '"transactionStatus":1,"transactionPartitions":[{"topic":"t","partitionIds":[0,2]}],'
        '"transactionLastUpdateTimestampMs":55,"transactionStartTimestampMs":44}}',
    )
    assert dump_decoders.decoder_for("/x/__transaction_state-3".rpartition("/")[2]) is not None
    assert dump_decoders.decoder_for("orders-0") is None
