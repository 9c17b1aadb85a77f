"""A data dir that Apache Kafka 4.3.1 wrote, once stopped and once killed: read, compacted and dumped by ours.

kafka-4.3.1.tar.xz holds two partitions of each. `comp-0`: 25,000 records of librdkafka in five codecs, 300 keys,
compacted by Kafka up to 20,000 in between. `tx-0`: six transactions of ten records, every second one aborted.
The killed one still has Kafka's preallocated indexes and empty checkpoints.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from barnabas.records.batch import batches
from barnabas.records.compression import Codec
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs.log_manager import LogManager
from barnabas.storage.dumping.dump import Dump, DumpOptions
from tests.unit.storage.building import T0_MS, append, read_all, rows

COMP, TX = TopicPartition("comp", 0), TopicPartition("tx", 0)


@pytest.fixture(params=["clean", "kill"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parent / "kafka-4.3.1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / str(request.param)


@pytest.fixture
def manager(data_dir: Path) -> LogManager:
    def config(topic: str) -> LogConfig:
        policy = "compact" if topic == "comp" else "delete"
        return LogConfig(segment_bytes=1 << 20, cleanup_policy=(policy,), min_cleanable_dirty_ratio=0.0)

    manager = LogManager([data_dir], config)
    manager.open(T0_MS)
    for log in manager.logs.values():
        log.core.advance_high_watermark(log.log_end_offset)
    return manager


def test_whose_it_is(manager: LogManager) -> None:
    assert manager.node_id == 1
    assert manager.cluster_id is not None
    assert manager.topic_id("comp", 0) is not None
    manager.close()


def test_the_records_and_the_producers(manager: LogManager) -> None:
    comp, tx = manager.logs[COMP], manager.logs[TX]
    assert (comp.log_end_offset, comp.first_dirty_offset) == (25_000, 20_000)
    records = read_all(comp)
    assert len(records) == 5300
    assert len({record.key for record in records}) == 300
    assert {p.producer_id: (p.last_sequence, p.last_offset) for p in comp.core.producers} == {
        i: (4999, 5000 * i + 4999) for i in range(5)
    }
    assert [seen.first_offset for seen in tx.core.producers.get(5).batches][-1] == 55  # type: ignore[union-attr]
    assert len([record for record in read_all(tx) if record.key == b"k"]) == 60
    assert tx.core.last_stable_offset == 66
    assert tx.aborted(0, 66) == [(5, 11), (5, 33), (5, 55)]
    assert comp.core.epochs.entries() == [(0, 0)]
    latest = comp.max_timestamp()
    assert latest is not None
    assert latest[0] == max(record.timestamp for record in records)
    manager.close()


def test_our_compaction_of_it(manager: LogManager) -> None:
    comp = manager.logs[COMP]
    before = read_all(comp)
    part = comp.read(0, 1 << 20)
    assert part is not None
    assert {header.codec for _, header in batches(part.read())} >= {Codec.NONE, Codec.LZ4}
    comp.roll(T0_MS)
    assert manager.cleaner.run(T0_MS + 10**9)
    newest = {record.key: record for record in before}
    assert sorted(read_all(comp)) == sorted(newest.values())
    assert append(comp, rows(1)) == 25_000
    manager.close()


def test_its_indexes_fit_its_logs_by_our_dump(data_dir: Path) -> None:
    dump = Dump(DumpOptions(deep=True))
    count = 0
    for kind in ("log", "index", "timeindex", "txnindex", "snapshot"):
        for path in sorted(data_dir.glob(f"*-0/*.{kind}")):
            lines = list(dump.lines(path))
            assert not [line for line in lines if "damaged" in line or "invalid bytes" in line]
            count += len(lines)
    assert count > 5300
    assert not [line for line in dump.problems() if "ismatch" in line or "Indexed offset" in line]
