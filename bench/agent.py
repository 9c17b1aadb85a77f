"""`python -m bench.agent`: how fast `barnabas agent` ships lines of a file, and rsyslog (imfile, omkafka) beside it.

Both read the same file of 118-byte lines and send it to the same broker, compressed with lz4, in interleaved rounds. What
counts is the processor time of the shipper, for the machine may be busy: MB of lines per second of one core. The agent is
measured with the headers that prevent repeats and without (rsyslog has nothing like them), and as JSON in Filebeat's shape.
Memory is the peak of the resident set. The last row follows 500 files to which nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from barnabas.client.blocking import LATEST, BlockingClient, NewTopic
from barnabas.client.errors import ClientError
from bench.brokers import free_port
from bench.report import machine
from bench.requests import BenchError

RESULTS: Final = Path(__file__).parent / "results"
LINE_BYTES: Final = 118
IDLE_FILES: Final = 500
IDLE_SECONDS: Final = 20.0
START_SECONDS: Final = 120.0
PATIENCE_SECONDS: Final = 300.0
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """One run. mb_per_s: of lines, per second of processor time."""

    shipper: str
    mb_per_s: float
    lines_per_s: float
    memory_mb: float
    cpu_s: float
    wall_s: float


def make_lines(path: Path, size_mb: int) -> int:
    """Write a log of about so many megabytes; how many lines it has."""
    count = size_mb * 1_000_000 // LINE_BYTES
    with path.open("wb") as out:
        for number in range(count):
            text = (
                f"2026-11-27 10:00:{number % 60:02},{number % 1000:03} INFO worker-{number % 7} served "
                f"/api/v1/items/{number * 7919 % 999983:06} status=200 ms={number * 31 % 911} user=u{number % 5003}"
            )
            out.write(text.encode().ljust(LINE_BYTES - 1, b".")[: LINE_BYTES - 1] + b"\n")
    return count


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A broker of this project; its address."""
    port = free_port()
    command = [sys.executable, "-m", "barnabas", "start", "--data", str(folder / "data")]
    command += ["--listen", f"127.0.0.1:{port}", "--metrics", "off"]
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with BlockingClient(f"127.0.0.1:{port}") as client:
            give_up = time.monotonic() + START_SECONDS
            while True:
                try:
                    client.topics()
                    break
                except ClientError:
                    if time.monotonic() > give_up:
                        raise
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def end_of(bootstrap: str, topic: str) -> int:
    with BlockingClient(bootstrap) as client:
        return client.list_offsets({(topic, 0): LATEST})[topic, 0].offset


def peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    """Processor time that a running process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(name: str, command: list[str], bootstrap: str, topic: str, lines: int) -> Sample:
    """Run a shipper until every line is in the topic. Raises BenchError."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while (end := end_of(bootstrap, topic)) < lines:
            if process.poll() not in (None, 0) or time.monotonic() - began > PATIENCE_SECONDS:
                complaint = os.read(process.stderr.fileno(), 2000).decode() if process.stderr else ""
                raise BenchError(f"{name}: {end} of {lines} lines arrived; {complaint}")
            time.sleep(0.1)
        wall = time.monotonic() - began
        used, memory = cpu_s(process.pid), peak_mb(process.pid)
    finally:
        process.terminate()
        process.wait(60)
    if end_of(bootstrap, topic) != lines:
        raise BenchError(f"{name}: lines arrived twice")
    return Sample(name, lines * LINE_BYTES / 1e6 / used, lines / used, memory, used, wall)


def agent(folder: Path, bootstrap: str, topic: str, log: Path, *, headers: bool, as_json: bool) -> list[str]:
    config = folder / f"{topic}.yaml"
    config.write_text(
        f"bootstrap: {bootstrap}\nstate: {folder / topic}\ninputs:\n- files: [{log}]\n  topic: {topic}\n"
        f"  headers: {str(headers).lower()}\n  output: {'json' if as_json else 'text'}\n"
    )
    return [sys.executable, "-m", "barnabas", "agent", "--config", str(config)]


def rsyslog(folder: Path, bootstrap: str, topic: str, log: Path) -> list[str]:
    program = shutil.which("rsyslogd") or "/usr/sbin/rsyslogd"
    if not Path(program).exists():
        raise BenchError("rsyslogd is not installed (Debian: rsyslog and rsyslog-kafka)")
    work = folder / f"{topic}-work"
    work.mkdir()
    config = folder / f"{topic}.conf"
    config.write_text(
        f'global(workDirectory="{work}")\nmodule(load="imfile" mode="inotify")\nmodule(load="omkafka")\n'
        'main_queue(queue.type="LinkedList" queue.size="200000" queue.dequeueBatchSize="10000")\n'
        'template(name="raw" type="string" string="%msg%")\n'
        f'input(type="imfile" file="{log}" tag="bench" readMode="0")\n'
        f'action(type="omkafka" topic="{topic}" broker=["{bootstrap}"] template="raw" partitions.auto="on"\n'
        '  confParam=["compression.codec=lz4","queue.buffering.max.messages=200000","linger.ms=20",'
        '"enable.idempotence=true"])\n'
    )
    return [program, "-n", "-f", str(config), "-i", str(folder / f"{topic}.pid")]


def idle(folder: Path, bootstrap: str) -> float:
    """The share of a core that following files takes to which nothing is written, in percent."""
    logs = folder / "idle"
    logs.mkdir()
    for number in range(IDLE_FILES):
        (logs / f"{number}.log").write_bytes(b"a line that was there before\n")
    command = [
        *(sys.executable, "-m", "barnabas", "agent", "tail", str(logs / "*.log"), "-t", "idle"),
        *("-b", bootstrap, "--state", str(folder / "idle-state"), "-q"),
    ]
    process = subprocess.Popen(command)
    try:
        while end_of(bootstrap, "idle") < IDLE_FILES:
            time.sleep(0.2)
        time.sleep(3)
        before, began = cpu_s(process.pid), time.monotonic()
        time.sleep(IDLE_SECONDS)
        return (cpu_s(process.pid) - before) / (time.monotonic() - began) * 100
    finally:
        process.terminate()
        process.wait(60)


def text_of(samples: list[Sample], idle_percent: float, size_mb: int, missing: str) -> str:
    rows = [
        "# The agent beside rsyslog",
        "",
        f"`python -m bench.agent`: {size_mb} MB of lines of {LINE_BYTES} bytes, lz4, one partition;",
        f"{machine()['cores']} cores of {machine()['cpu']}, which other programs used, too.",
        "Medians of interleaved rounds; per second of processor time of the shipper, start included.",
        "",
        "| shipper | MB/s of one core | lines/s of one core | peak memory, MB | runs |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in dict.fromkeys(sample.shipper for sample in samples):
        of_shipper = [sample for sample in samples if sample.shipper == name]

        def median(of: Callable[[Sample], float], of_samples: list[Sample] = of_shipper) -> float:
            return statistics.median(map(of, of_samples))

        rows.append(
            f"| {name} | {median(lambda s: s.mb_per_s):.0f} | {median(lambda s: s.lines_per_s):,.0f} | "
            f"{median(lambda s: s.memory_mb):.0f} | {len(of_shipper)} |"
        )
    rows += ["", f"{IDLE_FILES} files to which nothing is written take {idle_percent:.2f} % of a core."]
    return "\n".join([*rows, *([f"Left out: {missing}"] if missing else []), ""])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=int, default=500, help="size of the file")
    parser.add_argument("--dir", type=Path, help="where the files are made; default: a temporary folder")
    options = parser.parse_args()
    samples: list[Sample] = []
    missing = ""
    with tempfile.TemporaryDirectory(prefix="bench-agent-", dir=options.dir) as name:
        folder = Path(name)
        log = folder / "app.log"
        lines = make_lines(log, options.mb)
        with broker(folder) as bootstrap:
            for number in range(options.rounds):
                for shipper, how in {
                    "agent": {"headers": True, "as_json": False},
                    "agent, no headers": {"headers": False, "as_json": False},
                    "agent, JSON": {"headers": True, "as_json": True},
                    "rsyslog (omkafka)": None,
                }.items():
                    topic = f"t{number}-{len(samples)}"
                    with BlockingClient(bootstrap) as client:
                        client.create_topics([NewTopic(topic, 1)])
                    try:
                        if how is None:
                            command = rsyslog(folder, bootstrap, topic, log)
                        else:
                            command = agent(folder, bootstrap, topic, log, **how)
                        samples.append(measure(shipper, command, bootstrap, topic, lines))
                        print(samples[-1], flush=True)
                    except BenchError as error:
                        missing = str(error)
                        print(error, file=sys.stderr, flush=True)
                    with BlockingClient(bootstrap) as client:
                        client.delete_topics([topic])
            with BlockingClient(bootstrap) as client:
                client.create_topics([NewTopic("idle", 1)])
            idle_percent = idle(folder, bootstrap)
    text = text_of(samples, idle_percent, options.mb, missing)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "agent.md").write_text(text)
    report = {
        "samples": [asdict(sample) for sample in samples],
        "idle_percent": idle_percent,
        "missing": missing,
    }
    (RESULTS / "agent.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
