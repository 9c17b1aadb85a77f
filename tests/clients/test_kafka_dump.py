"""Kafka's own dump tool over files that our log has written, compacted and closed: it says what ours says."""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.cores.decision import Decision
from barnabas.cores.group.share.partition import Delivery, StateBatch
from barnabas.cores.group.share.state import ShareKey, ShareStateCore
from barnabas.records.batch import Record
from barnabas.records.compression import Codec
from barnabas.storage.config import LogConfig
from barnabas.storage.dumping.dump import Dump, DumpOptions
from barnabas.storage.dumping.dump_decoders import share_state
from barnabas.storage.logs.recovery import create_log
from tests.clients import foreign
from tests.unit.storage.building import T0_MS, append
from tests.unit.storage.test_cleaner import COMPACT, clean, end_txn, put

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def tool() -> list[str]:
    java, libs = foreign.need("java"), foreign.kafka_jars()
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java, *flags, "-cp", f"{libs}/*", "kafka.tools.DumpLogSegments"]


def written(folder: Path) -> Path:
    """A compacted log of several segments with every kind of batch."""
    log = create_log(str(folder), COMPACT, T0_MS)
    for i in range(100):
        numbered = bool(i % 2)
        put(
            log,
            (b"k%d" % (i % 9), b"v" * 30),
            (b"once-%d" % i, None if i % 3 == 0 else b"x"),
            codec=list(Codec)[i % 5],
            producer_id=1 if numbered else -1,
            sequence=i // 2 * 2 if numbered else -1,
        )
    put(log, (b"t1", b"tx"), producer_id=5, sequence=0, transactional=True)
    end_txn(log, 5, commit=False)
    put(log, (b"t2", b"tx"), producer_id=5, sequence=1, transactional=True)
    end_txn(log, 5, commit=True)
    append(log, [Record(0, T0_MS, b"hk", b"hv", (("h1", b"a"), ("h2", None)))], epoch=4)
    log.roll(T0_MS)
    put(log, (b"a", b"b"), epoch=4)
    clean(log, roll=False)
    log.close()
    return folder


@pytest.mark.parametrize("deep", [False, True])
def test_kafkas_tool_and_ours_say_the_same(tool: list[str], tmp_path: Path, deep: bool) -> None:
    folder = written(tmp_path / "t-0")
    kinds = ("log", "index", "timeindex", "txnindex", "snapshot")
    files = [str(path) for kind in kinds for path in sorted(folder.glob(f"*.{kind}"))]
    assert len(files) > 12
    options = ["--print-data-log"] if deep else []
    done = subprocess.run(
        [*tool, "--files", ",".join(files), *options], capture_output=True, text=True, timeout=240, check=True
    )
    dump = Dump(DumpOptions(deep=deep, print_data=deep))
    ours = [line for file in files for line in dump.lines(file)]
    assert done.stdout.splitlines() == ours
    theirs = [line for line in done.stderr.splitlines() if not line.startswith("SLF4J")]
    # Kafka lists what it found backwards; the gaps that compaction left are all there is to find.
    assert sorted(theirs) == sorted(dump.problems())
    assert all("Mismatches" not in line and "timestamp" not in line for line in theirs)


def test_share_groups_states_are_kafkas_records(tool: list[str], tmp_path: Path) -> None:
    """Snapshots, deltas and a tombstone of __share_group_state, decoded by Kafka's tool and by ours."""
    folder = tmp_path / "__share_group_state-0"
    log = create_log(str(folder), LogConfig(), T0_MS)
    core = ShareStateCore(updates_per_snapshot=3)
    first, second = (ShareKey(group, UUID(int=7), 1) for group in ("g", "h"))

    def write(change: Decision) -> None:
        append(log, [Record(0, T0_MS, key, value) for key, value in change.encoded()])
        core.apply(change)

    write(core.initialize(T0_MS, first, 1, -1))
    write(core.initialize(T0_MS, second, 4, 10))
    for offset in range(4):
        settled = StateBatch(offset + 3, offset + 3, Delivery.ACKNOWLEDGED, 1)
        waiting = StateBatch(offset + 9, offset + 11, Delivery.AVAILABLE, 2)
        write(core.write(T0_MS + offset, first, 1, 0, offset, (settled, waiting)))
    write(core.delete(second))
    log.close()
    (file,) = [str(path) for path in folder.glob("*.log")]
    command = [*tool, "--files", file, "--share-group-state-decoder"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    ours = list(Dump(DumpOptions(deep=True, print_data=True, decoder=share_state)).lines(file))
    assert done.stdout.splitlines() == ours
    assert len(ours) == 2 + 2 * 7 + 1
