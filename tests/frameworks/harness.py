"""What every framework has to do: read a topic, write its values in capitals to another one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer

from tests.clients.foreign import build, fetch_or_skip, fingerprint, made, need
from tests.support.admin import create_topic

MESSAGES: Final = [f"message {number}" for number in range(20)]
ANSWER_TIMEOUT_S: Final = 180
END_TIMEOUT_S: Final = 30
GO_TOOLS: Final = Path(__file__).parent / "go_tools"


def prepare(bootstrap: str, name: str) -> None:
    """The topics NAME-in, with twenty messages, and NAME-out."""
    create_topic(bootstrap, f"{name}-in", 1)
    create_topic(bootstrap, f"{name}-out", 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for message in MESSAGES:
        producer.produce(f"{name}-in", message)
    assert producer.flush(60) == 0


def values(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[str]:
    """The first values of a topic, once there are so many; fewer when time is up."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-witness",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )
    consumer.subscribe([topic])
    values_read: list[str] = []
    deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
    while len(values_read) < count and time.monotonic() < deadline_s:
        values_read += [m.value().decode() for m in consumer.consume(count, 0.2) if m.error() is None]
    consumer.close()
    return values_read


@contextlib.contextmanager
def running(command: list[str], folder: Path, log: Path, env: Mapping[str, str]) -> Iterator[None]:
    """A program that is ended afterwards; its output goes to `log`."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **env}, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def capitals(bootstrap: str, name: str, command: list[str], folder: Path, env: Mapping[str, str]) -> None:
    """Run a framework over the topics of `prepare`, and see that every message is there in capitals."""
    log = folder / f"{name}.log"
    with running(command, folder, log, env):
        values_read = values(bootstrap, f"{name}-out", len(MESSAGES))
    assert sorted(values_read) == sorted(message.upper() for message in MESSAGES), log.read_text()[-3000:]


def send_lines(port: int) -> None:
    """The messages as syslog lines by TCP, as soon as somebody listens."""
    deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)) as sock:
                for message in MESSAGES:
                    sock.sendall(f"<13>Nov 27 12:00:00 host app: {message}\n".encode())
                return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline_s, f"nobody listens on {port}"
            time.sleep(0.1)


def go_program(name: str, package: str) -> Path:
    """A program built of a Go module that go_tools/NAME names. Skips where it cannot be fetched."""
    go, sources = need("go"), GO_TOOLS / name
    flags = {"GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0"}

    def compile_it(folder: Path) -> None:
        fetch_or_skip([go, "mod", "download"], sources, f"{name} cannot be fetched", flags)
        build([go, "build", "-o", str(folder / name), package], sources, flags)

    return made(f"framework-{name}-{fingerprint(sources, '*')}", compile_it) / name
