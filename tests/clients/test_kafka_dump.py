"""Kafka's own dump tool over files that our log has written, compacted and closed: it says what ours says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.records.batch import Record
from barnabas.records.compression import Codec
from barnabas.storage.dump import Dump, DumpOptions
from barnabas.storage.recovery import create_log
from tests.clients import foreign
from tests.unit.storage.building import T0_MS, append
from tests.unit.storage.test_cleaner import COMPACT, clean, end_txn, put

pytestmark = pytest.mark.java

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas.tests</groupId><artifactId>dump</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.1.1</version></dependency>
  </dependencies>
</project>
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    java, mvn = foreign.need("java"), foreign.need("mvn")
    libs = foreign.CACHE / "kafka-4.1.1-libs"
    if not (libs / ".complete").exists():
        folder = tmp_path_factory.mktemp("pom")
        (folder / "pom.xml").write_text(POM)
        command = [mvn, "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
        foreign.fetch_or_skip(command, folder, "Maven cannot fetch Kafka's tools")
        (libs / ".complete").touch()
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
        [*tool, "--files", ",".join(files), *options], capture_output=True, text=True, timeout=90, check=True
    )
    dump = Dump(DumpOptions(deep=deep, print_data=deep))
    ours = [line for file in files for line in dump.lines(file)]
    assert done.stdout.splitlines() == ours
    theirs = [line for line in done.stderr.splitlines() if not line.startswith("SLF4J")]
    # Kafka lists what it found backwards; the gaps that compaction left are all there is to find.
    assert sorted(theirs) == sorted(dump.problems())
    assert all("Mismatches" not in line and "timestamp" not in line for line in theirs)
