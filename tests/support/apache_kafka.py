"""Apache Kafka itself, as a process beside a test."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.clients import foreign
from tests.support.process import free_port

COMMON = """\
listeners={listeners}
log.dirs={folder}/kafka
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
log.cleaner.backoff.ms=500
"""
PRESENT = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.initial.task.delay.ms=500
"""
JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")


@contextlib.contextmanager
def running(command: list[str], config: Path, port: int) -> Iterator[str]:
    """Apache Kafka; where it listens."""
    with (config.parent / "kafka.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "kafka.Kafka", str(config)], stdout=log, stderr=log, cwd=config.parent
        )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert process.poll() is None, (config.parent / "kafka.log").read_text()[-2000:]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def present_kafka(folder: Path, more: str = "") -> Iterator[str]:
    """One node of the present version, with KRaft; where it listens. more: further lines of its properties."""
    port, controller = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    config = folder / "kafka.properties"
    config.write_text(
        COMMON.format(listeners=listeners, folder=folder) + PRESENT.format(controller=controller) + more
    )
    command = [foreign.need("java"), *JAVA, "-cp", f"{foreign.kafka_jars()}/*"]
    form = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(config)]
    subprocess.run([*command, *form], check=True, capture_output=True, timeout=120)
    with running(command, config, port) as where:
        yield where
