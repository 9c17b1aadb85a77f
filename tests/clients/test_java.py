"""Apache Kafka's own Java client (kafka-clients 4.x), producer, consumer and admin, against our broker."""

from __future__ import annotations

import pytest

from tests.clients import foreign

pytestmark = pytest.mark.java

SOURCES = foreign.HERE / "java"
RECORDS = 100_000


@pytest.fixture(scope="session")
def probe() -> list[str]:
    """The command that runs the program, built once per version of its sources."""
    java, javac, mvn = (foreign.need(tool) for tool in ("java", "javac", "mvn"))
    libs = foreign.CACHE / f"java-libs-{foreign.fingerprint(SOURCES, 'pom.xml')}"
    if not (libs / ".complete").exists():
        fetch = [
            "-q",
            "-B",
            "-f",
            str(SOURCES / "pom.xml"),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={libs}",
        ]
        foreign.fetch_or_skip(
            [mvn, *fetch, "-DincludeScope=runtime"], SOURCES, "Maven cannot fetch kafka-clients"
        )
        (libs / ".complete").touch()
    classes = foreign.CACHE / f"java-{foreign.fingerprint(SOURCES, 'pom.xml', '*.java')}"
    if not (classes / "Probe.class").exists():
        sources = sorted(str(path) for path in SOURCES.glob("*.java"))
        foreign.build([javac, "-Xlint:all,-try", "-cp", f"{libs}/*", "-d", str(classes), *sources], SOURCES)
    # Short runs: the quick compiler only and the small collector halve the time.
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return [java, *flags, "-cp", f"{classes}:{libs}/*", "Probe"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_comes_back(probe: list[str], bootstrap: str, codec: str) -> None:
    """Each codec with acks 0, 1 and all."""
    assert foreign.run(probe, bootstrap, "roundtrip", codec, str(RECORDS))["records"] == 3 * RECORDS


def test_idempotent_producer(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "idempotent", str(RECORDS))


def test_commit_seek_and_times(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "offsets")


def test_admin(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "admin")


def test_group_of_three_where_one_leaves_and_one_is_killed(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "group", "cooperative-sticky")


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_assignors(probe: list[str], bootstrap: str, assignor: str) -> None:
    foreign.run(probe, bootstrap, "assignor", assignor)


def test_static_member_keeps_its_partitions(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "static-member")
