"""1, 10 and 100 pipelines in one server: how soon all of them run, and what they cost, idle and with a little to do.

    python -m bench.many_pipelines [--pipelines 1,10,100] [--seconds 30] [--rate 0.1]

A server (`barnabas pipelines serve`) and a broker of its own are started for each number. Every pipeline copies one topic
to another through `parse: json`, and is added through the HTTP API. Linux only: /proc says what memory is shared.
See README.md.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck  # type: ignore[import-untyped]
import psutil  # type: ignore[import-untyped]

from barnabas.client.blocking import LATEST, BlockingClient, NewTopic
from bench.brokers import Barnabas, free_port
from bench.report import aligned, machine, markdown
from bench.requests import BenchError

RESULTS = Path(__file__).parent / "results"
READY_S, RUN_S, DRAIN_S = 120, 900, 120
SETTLE_S = 10
"""Between the start of all and the first measurement: Java compiles."""
CALLS = 5
ROLES = ("driver", "java", "workers", "broker")
NOTE = (
    "One server and one broker per row. *All deliver*: from the first request that adds a pipeline until each of them has "
    "written a record; *add*: one such request (median, ms). Memory in MB, by kind of process, with shared pages divided "
    "among those that share them (PSS). CPU in seconds per second, of all processes; in brackets the broker's share. "
    "Latency in ms, p50 / p99: from the timestamp of a source record to the arrival of its result at a reader of committed "
    "records; in brackets, to the timestamp that the output's log gave it. *List*: `GET /pipelines` (median, ms)."
)


class Server:
    """`barnabas pipelines serve` in a process of its own, and the costs of its processes."""

    words = ("pipelines", "serve", "--dir")

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.port = free_port()
        self.log = folder / "server.log"
        command = [
            str(Path(sys.executable).with_name("barnabas")),
            *self.words,
            str(folder / self.words[0]),
        ]
        environment = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        begun = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--listen", f"127.0.0.1:{self.port}", "-b", bootstrap],
                stdout=subprocess.PIPE, stderr=log, env=environment,
            )  # fmt: skip
        assert self.process.stdout is not None
        heard = select.select([self.process.stdout], [], [], READY_S)[0]
        if not heard or not self.process.stdout.readline().startswith(b"ready"):
            self.stop()
            raise BenchError(f"the server did not start: {self.log.read_text()[-1500:]}")
        self.start_seconds = time.monotonic() - begun

    def call(self, method: str, path: str, body: str | None = None) -> Any:
        """The answer. Raises BenchError."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise BenchError(f"{method} {path}: {raw[:500]!r}")
        return json.loads(raw) if raw else None

    def stop(self) -> float:
        """Seconds until it has ended."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(180)
        except subprocess.TimeoutExpired:
            for process in family(self.process.pid):
                process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return time.monotonic() - begun


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    main = psutil.Process(pid)
    return [main, *main.children(recursive=True)]


def memory_mb(process: psutil.Process) -> float:
    """Its share of resident memory, in units of 10^6 bytes; 0 once it has ended."""
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return (
        next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0) * 1024 / 1e6
    )


def costs(server: Server, broker: Barnabas) -> dict[str, dict[str, float]]:
    """CPU seconds so far, memory and number of processes, by role. What has ended counts for its parent."""
    assert broker.process is not None
    cost_by_role = {role: {"cpu": 0.0, "mb": 0.0, "processes": 0.0} for role in ROLES}
    members = [("broker", process) for process in family(broker.process.pid)]
    for process in family(server.process.pid):
        if process.pid == server.process.pid:
            role = "driver"
        else:
            role = "java" if _name(process) == "java" else "workers"
        members.append((role, process))
    for role, process in members:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        own, ended = times.user + times.system, times.children_user + times.children_system
        cost_by_role[role]["cpu"] += own + (ended if role not in ("driver", "java") else 0)
        # What Java and the driver have waited for were Python processes.
        cost_by_role["workers"]["cpu"] += ended if role == "java" else 0
        cost_by_role[role]["mb"] += memory_mb(process)
        cost_by_role[role]["processes"] += 1
    return cost_by_role


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def cpu_over(seconds: float, server: Server, broker: Barnabas) -> dict[str, float]:
    """CPU seconds per second by role, over the next seconds."""
    before, begun = costs(server, broker), time.monotonic()
    time.sleep(seconds)
    after, took = costs(server, broker), time.monotonic() - begun
    return {role: (after[role]["cpu"] - before[role]["cpu"]) / took for role in ROLES}


class Load:
    """A writer that writes to every source in turn at a steady rate, and a reader of all outputs."""

    def __init__(self, bootstrap: str, names: list[str], rate: float) -> None:
        self.bootstrap, self.names, self.rate = bootstrap, names, rate
        self.sent = 0
        self.written_ms: list[float] = []
        self.read_ms: list[float] = []
        self._stop = threading.Event()

    def run(self, seconds: float) -> None:
        reader = threading.Thread(target=self._read, name="reader")
        reader.start()
        try:
            self._write(seconds)
            give_up = time.monotonic() + DRAIN_S
            while len(self.read_ms) < self.sent and time.monotonic() < give_up:
                time.sleep(0.1)
        finally:
            self._stop.set()
            reader.join()
        if not self.read_ms:
            raise BenchError(f"{self.sent} records were written and none arrived")

    def _write(self, seconds: float) -> None:
        producer = ck.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        begun, pause = time.monotonic(), 1 / (self.rate * len(self.names))
        count = round(seconds / pause)
        for number in range(count):
            time.sleep(max(begun + number * pause - time.monotonic(), 0))
            self._send(producer, self.names[number % len(self.names)], number)
        producer.flush(30)

    def _send(self, producer: Any, name: str, number: int) -> None:
        now = time.time()
        value = json.dumps({"n": number, "sent": now, "text": "x" * 100})
        producer.produce(f"{name}-in", value, timestamp=int(now * 1000))
        producer.poll(0)
        self.sent += 1

    def _read(self) -> None:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": "bench", "isolation.level": "read_committed",
                "enable.auto.commit": False, "fetch.queue.backoff.ms": 5,
            }
        )  # fmt: skip
        with BlockingClient(self.bootstrap) as client:
            ends = client.list_offsets({(f"{name}-out", 0): LATEST for name in self.names})
        consumer.assign([ck.TopicPartition(topic, p, at.offset) for (topic, p), at in ends.items()])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(1000, 0.05):
                    now = time.time()
                    if message.error() is None:
                        sent = json.loads(message.value())["sent"]
                        self.read_ms.append((now - sent) * 1000)
                        self.written_ms.append(message.timestamp()[1] - sent * 1000)
        finally:
            consumer.close()


def pipeline_text(name: str) -> str:
    config, fields = "{message.timestamp.type: LogAppendTime}", "{n: long, sent: double, text: string}"
    return (
        f"pipeline: {name}\nsource: {{topic: {name}-in}}\nsteps: [parse: {{json: {fields}}}]\n"
        f"outputs: [{{topic: {name}-out, partitions: 1, config: {config}}}]\n"
    )


def prepared(bootstrap: str, names: list[str]) -> None:
    """The sources, with a record in each."""
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(f"{name}-in", 1) for name in names])
    producer = ck.Producer({"bootstrap.servers": bootstrap})
    for name in names:
        producer.produce(f"{name}-in", json.dumps({"n": -1, "sent": time.time(), "text": "first"}))
    producer.flush(30)


def add_all(server: Server, bootstrap: str, names: list[str]) -> dict[str, Any]:
    """Adds the pipelines and waits until each has written. Raises BenchError."""
    begun, adding = time.monotonic(), []
    for name in names:
        before = time.monotonic()
        server.call("POST", "/pipelines", pipeline_text(name))
        adding.append(time.monotonic() - before)
    running_s = None
    waiting = {f"{name}-out" for name in names}
    with BlockingClient(bootstrap) as client:
        while waiting or running_s is None:
            took = time.monotonic() - begun
            if took > RUN_S:
                raise BenchError(f"{len(waiting)} of {len(names)} pipelines wrote nothing in {RUN_S} s")
            if running_s is None and all(
                row["state"] == "running" for row in server.call("GET", "/pipelines")
            ):
                running_s = took
            ends = client.list_offsets({(topic, 0): LATEST for topic in waiting})
            waiting -= {topic for (topic, _), at in ends.items() if at.offset > 0}
            time.sleep(0.25)
    return {
        "deliver_s": time.monotonic() - begun,
        "running_s": running_s,
        "add_median_ms": statistics.median(adding) * 1000,
        "add_max_ms": max(adding) * 1000,
    }


@contextmanager
def servers(folder: Path) -> Iterator[tuple[Server, Barnabas, dict[str, Any]]]:
    """A broker and a server over it; the last says how they ended."""
    broker = Barnabas(folder / "broker")
    broker.start()
    try:
        server, end = Server(folder, f"127.0.0.1:{broker.port}"), {}
        try:
            yield server, broker, end
        finally:
            end["stop_s"] = server.stop()
    finally:
        broker.stop()


def measure(count: int, seconds: float, rate: float) -> dict[str, Any]:
    """One row. Raises BenchError."""
    with tempfile.TemporaryDirectory() as place, servers(Path(place)) as (server, broker, end):
        bootstrap = f"127.0.0.1:{broker.port}"
        names = [f"many-{number:03d}" for number in range(count)]
        row: dict[str, Any] = {"pipelines": count, "rate": rate, "seconds": seconds}
        row["load average"] = round(os.getloadavg()[0], 1)
        row["empty_mb"] = {role: cost["mb"] for role, cost in costs(server, broker).items()}
        prepared(bootstrap, names)
        row |= add_all(server, bootstrap, names)
        print(f"{count}: all deliver after {row['deliver_s']:.1f} s", flush=True)
        time.sleep(SETTLE_S)
        row["idle_cpu"] = cpu_over(seconds, server, broker)
        print(f"{count}: idle {row['idle_cpu']}", flush=True)
        Load(bootstrap, names, rate).run(SETTLE_S)  # Java compiles what it has not seen yet
        load = Load(bootstrap, names, rate)
        before, begun = costs(server, broker), time.monotonic()
        load.run(seconds)
        after, took = costs(server, broker), time.monotonic() - begun
        row["load_cpu"] = {role: (after[role]["cpu"] - before[role]["cpu"]) / took for role in ROLES}
        row["mb"] = {role: cost["mb"] for role, cost in after.items()}
        row["processes"] = {role: cost["processes"] for role, cost in after.items()}
        row["sent"], row["arrived"] = load.sent, len(load.read_ms)
        row["read_ms"], row["written_ms"] = _quantiles(load.read_ms), _quantiles(load.written_ms)
        row["list_ms"] = _list_ms(server)
        states = server.call("GET", "/pipelines")
        row["restarts"] = sum(state["restarts"] for state in states)
    return row | end


def _list_ms(server: Server) -> float:
    latencies_ms = []
    for _ in range(CALLS):
        begun = time.monotonic()
        server.call("GET", "/pipelines")
        latencies_ms.append((time.monotonic() - begun) * 1000)
    return statistics.median(latencies_ms)


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        name: ordered[min(int(len(ordered) * q), len(ordered) - 1)]
        for name, q in (("p50", 0.5), ("p99", 0.99))
    }


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [
        [
            "pipelines",
            "all deliver",
            "add, ms",
            "driver",
            "Java",
            "workers",
            "CPU idle",
            "CPU with load",
            "latency",
            "list, ms",
            "stop",
        ]
    ]
    for row in rows:
        idle, load = row["idle_cpu"], row["load_cpu"]
        lines.append(
            [
                f"{row['pipelines']}",
                f"{row['deliver_s']:.1f} s",
                f"{row['add_median_ms']:.0f}",
                *(f"{row['mb'][role]:,.0f}" for role in ("driver", "java", "workers")),
                f"{sum(idle.values()):.2f} ({idle['broker']:.2f})",
                f"{sum(load.values()):.2f} ({load['broker']:.2f})",
                f"{row['read_ms']['p50']:.0f} / {row['read_ms']['p99']:.0f} "
                f"({row['written_ms']['p50']:.0f} / {row['written_ms']['p99']:.0f})",
                f"{row['list_ms']:.0f}",
                f"{row['stop_s']:.1f} s",
            ]
        )
    return lines


def page(rows: list[dict[str, Any]]) -> str:
    busy = ", ".join(f"{row['load average']:g}" for row in rows)
    rates = ", ".join(f"{row['rate']:g}" for row in rows)
    late = sum(row["sent"] - row["arrived"] for row in rows)
    lines = [
        "# Many pipelines in one server",
        "",
        NOTE,
        "",
        markdown(table(rows)),
        "",
        f"Records per second into each pipeline: {rates}. Load average of the machine, which had other work, before each: "
        f"{busy}. Records that had not arrived {DRAIN_S} s after the last one was written: {late}.",
        "",
        ", ".join(f"{name}: {value}" for name, value in machine().items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pipelines", default="1,10,100", help="how many, one row each")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--rate", type=float, default=0.1, help="records per second into each pipeline")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "many_pipelines.json"
    kept = json.loads(file.read_text())["rows"] if file.exists() else []
    rows = {row["pipelines"]: row for row in kept}
    for count in map(int, options.pipelines.split(",")):
        rows[count] = measure(count, options.seconds, options.rate)
        done = [rows[count] for count in sorted(rows)]
        print(aligned(table(done)), flush=True)
        file.write_text(json.dumps({"machine": machine(), "rows": done}, indent=1) + "\n")
    (options.out / "many_pipelines.md").write_text(page(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
