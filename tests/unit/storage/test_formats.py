"""The small files, byte for byte as Kafka writes them."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

import crc32c
import pytest

from barnabas.cores.producers import CompletedTxn, ProducerSnapshot
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import MetaProperties, TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptCheckpoint, CorruptIndex
from barnabas.storage.files import write_atomically
from barnabas.storage.logs import producer_snapshot
from barnabas.storage.segments import txn_index
from barnabas.storage.segments.index import OffsetIndex, TimeIndex


def test_offset_checkpoint(tmp_path: Path) -> None:
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    assert checkpoints.read_offsets(path) == {}
    offsets = {TopicPartition("b.topic", 1): 7, TopicPartition("a-b", 0): 1 << 40}
    checkpoints.write_offsets(path, offsets)
    assert Path(path).read_text() == "0\n2\na-b 0 1099511627776\nb.topic 1 7\n"
    assert checkpoints.read_offsets(path) == offsets


def test_epoch_checkpoint(tmp_path: Path) -> None:
    path = str(tmp_path / "leader-epoch-checkpoint")
    checkpoints.write_epochs(path, [(0, 0), (3, 17)])
    assert Path(path).read_text() == "0\n2\n0 0\n3 17\n"
    assert checkpoints.read_epochs(path) == [(0, 0), (3, 17)]


@pytest.mark.parametrize(
    "text", ["\n", "1\n0\n", "0\n2\nt 0 1\n", "0\nx\n", "0\n1\nt 0\n", "0\n1\nt 0 z\n", "\xff"]
)
def test_damaged_checkpoints_are_told_from_missing_ones(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_offsets(str(path))


def test_partition_metadata(tmp_path: Path) -> None:
    topic_id = uuid.UUID("c3a7e1b0-5f2d-4c6e-9a41-0d9b8f7e6a55")
    assert checkpoints.read_topic_id(str(tmp_path)) is None
    checkpoints.write_topic_id(str(tmp_path), topic_id)
    text = (tmp_path / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: w6fhsF8tTG6aQQ2bj35qVQ\n"
    assert checkpoints.read_topic_id(str(tmp_path)) == topic_id
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: !!\n")
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_topic_id(str(tmp_path))


def test_meta_properties_of_both_eras(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    assert checkpoints.read_meta(str(tmp_path)) is None
    path.write_text("#\n#Thu Jan 01 00:00:00 UTC 1970\ncluster.id=abc\nversion=0\nbroker.id=3\n")
    assert checkpoints.read_meta(str(tmp_path)) == MetaProperties("abc", 3, None, 0)
    meta = MetaProperties("abc", 3, uuid.UUID(int=5))
    checkpoints.write_meta(str(tmp_path), meta)
    assert checkpoints.read_meta(str(tmp_path)) == meta
    assert "node.id=3" in path.read_text().splitlines()
    path.write_text("version=1\nnode.id=three\n")
    with pytest.raises(CorruptCheckpoint, match=r"node\.id is 'three', which is not a number"):
        checkpoints.read_meta(str(tmp_path))


ROWS = [
    ProducerSnapshot(5, 2, 10, 99, 3, 1234, 7, -1),
    ProducerSnapshot(6, 0, -1, -1, 0, 55, -1, 90),
]


def test_producer_snapshot() -> None:
    data = producer_snapshot.encode(ROWS)
    body = struct.pack(">i", 2)
    body += struct.pack(">qhiqiqiq", 5, 2, 10, 99, 3, 1234, 7, -1)
    body += struct.pack(">qhiqiqiq", 6, 0, -1, -1, 0, 55, -1, 90)
    assert data == struct.pack(">hI", 1, crc32c.crc32c(body)) + body
    assert producer_snapshot.decode(data) == ROWS
    for bad in (data[:-1], data[:5], b"", b"\x00\x02" + data[2:], data[:8] + b"\xff" + data[9:]):
        with pytest.raises(CorruptCheckpoint):
            producer_snapshot.decode(bad)


def test_transaction_index(tmp_path: Path) -> None:
    entries = [
        CompletedTxn(1, 0, 10, 5, True),
        CompletedTxn(2, 5, 12, 13, True),
        CompletedTxn(3, 20, 30, 31, True),
    ]
    index = txn_index.TxnIndex(str(tmp_path / "0.txnindex"))
    assert index.entries == []
    assert not (tmp_path / "0.txnindex").exists()
    for entry in entries:
        index.append(entry)
    data = (tmp_path / "0.txnindex").read_bytes()
    assert data[:34] == struct.pack(">hqqqq", 0, 1, 0, 10, 5)
    assert txn_index.TxnIndex(index.path).entries == entries
    assert index.collect(0, 3) == ([entries[0]], True)
    assert index.collect(11, 13) == ([entries[1]], True)
    assert index.collect(11, 40) == (entries[1:], False)
    assert index.collect(13, 20) == ([], True)
    index.truncate_to(12)
    assert txn_index.TxnIndex(index.path).entries == entries[:1]
    with pytest.raises(CorruptIndex):
        txn_index.decode(data[:-1])
    with pytest.raises(CorruptIndex):
        txn_index.decode(b"\x00\x09" + data[2:])


def test_offset_index(tmp_path: Path) -> None:
    index = OffsetIndex(str(tmp_path / "x.index"), 100, 1000)
    index.start_empty()
    for offset, position in ((110, 500), (120, 900), (140, 2000)):
        index.append(offset, position)
    index.write()
    assert Path(index.path).read_bytes() == struct.pack(">6i", 10, 500, 20, 900, 40, 2000)
    for row in (index, OffsetIndex(index.path, 100, 1000)):
        assert [row.lookup(offset)[1] for offset in (100, 109, 110, 119, 139, 140, 999)] == [
            0,
            0,
            500,
            500,
            900,
            2000,
            2000,
        ]
        assert [row.lookup_position(at) for at in (0, 499, 500, 5000)] == [0, 0, 500, 2000]
        assert [row.next_position(at) for at in (0, 500, 1999, 2000)] == [500, 900, 2000, None]
        assert (len(row), row.last()) == (3, (140, 2000))
    index.truncate_to(120)
    index.write()
    assert Path(index.path).read_bytes() == struct.pack(">2i", 10, 500)


def test_time_index(tmp_path: Path) -> None:
    index = TimeIndex(str(tmp_path / "x.timeindex"), 100, 1000)
    index.start_empty()
    for timestamp, offset in ((1000, 110), (1000, 115), (900, 118), (2000, 120)):
        index.maybe_append(timestamp, offset)
    index.write()
    assert Path(index.path).read_bytes() == struct.pack(">qiqi", 1000, 10, 2000, 20)
    assert [index.lookup(at) for at in (999, 1000, 1999, 2000)] == [
        (-1, 100),
        (1000, 110),
        (1000, 110),
        (2000, 120),
    ]
    assert index.last() == (2000, 120)


def test_kafkas_preallocated_index_ends_at_its_zeros(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(struct.pack(">4i", 10, 500, 20, 900) + bytes(800))
    index = OffsetIndex(str(path), 0, 1000)
    assert (len(index), index.last()) == (2, (20, 900))
    index.append(30, 1200)
    index.write()
    assert path.read_bytes() == struct.pack(">6i", 10, 500, 20, 900, 30, 1200)


def test_a_crash_while_a_file_is_replaced_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomically(path, b"old")
    (tmp_path / "x.tmp").write_bytes(b"half")
    assert path.read_bytes() == b"old"
    write_atomically(path, b"new")
    assert [row.name for row in tmp_path.iterdir()] == ["x"]


def test_log_config_takes_kafkas_names() -> None:
    config = LogConfig.of(
        {
            "segment.bytes": 5,
            "cleanup.policy": ["compact", "delete"],
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.after.max.ms": 9,
            "unclean.leader.election.enable": True,
        }
    )
    assert (config.segment_bytes, config.timestamp_after_max_ms) == (5, 9)
    assert config.compact
    assert config.delete
    assert config.log_append_time
    assert not config.is_plain
    assert LogConfig.of({}).is_plain
    assert not LogConfig.of({"compression.type": "gzip"}).is_plain
