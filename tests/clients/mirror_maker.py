"""MirrorMaker 2 in tests: ours as a process, Java's, and Java's client of its internal topics."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.clients import foreign
from tests.support.cluster import until

QUICK = {
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "offset.storage.partitions": "2",
    "status.storage.partitions": "1",
    "refresh.topics.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "offset.flush.interval.ms": "1000",
    "dedicated.mode.enable.internal.rest": "false",
}
KEPT = "315360000000"
"""retention.ms of ten years: records that tests write have a time of 2023, and a broker of Kafka removes old ones 30 s after
its start."""
OURS = (
    "import sys; from barnabas.kafka_tools.servers.connect_worker import script; "
    "sys.argv[0] = 'connect-mirror-maker'; script()"
)
JAVA = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def properties(folder: Path, east: str, west: str, **more: str) -> Path:
    """A file with the flow east->west. more: further properties, `__` for a dot."""
    texts = {
        "clusters": "east, west",
        "east.bootstrap.servers": east,
        "west.bootstrap.servers": west,
        "east->west.enabled": "true",
        **QUICK,
        **{name.replace("__", "."): text for name, text in more.items()},
    }
    file = folder / "mm2.properties"
    file.write_text("".join(f"{name} = {text}\n" for name, text in texts.items()))
    return file


@contextlib.contextmanager
def ours(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Ours while the block runs; it is ended by SIGTERM."""
    with running([sys.executable, "-c", OURS, str(file)], file.with_suffix(".ours.log")) as process:
        log = file.with_suffix(".ours.log")
        until(lambda: process.poll() is not None or b"ready: " in log.read_bytes(), "MirrorMaker is ready")
        assert process.poll() is None, log.read_text()
        yield process


@contextlib.contextmanager
def javas(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Java's while the block runs."""
    command = [foreign.need("java"), *JAVA, "-cp", f"{foreign.mirror_jars()}/*"]
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    with running([*command, main, str(file)], file.with_suffix(".java.log")) as process:
        yield process


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process while the block runs."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def translated(bootstrap: str, source: str, group: str, release: str = "") -> dict[str, int]:
    """What RemoteClusterUtils.translateOffsets of a release of Kafka says, by topic and partition."""
    command = [*foreign.java_mirror_client(release), bootstrap, source, group]
    lines = subprocess.run(command, check=True, capture_output=True, text=True)
    return {
        " ".join(words[:2]): int(words[2]) for line in lines.stdout.splitlines() if (words := line.split())
    }
