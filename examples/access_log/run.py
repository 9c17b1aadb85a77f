"""The whole path once: start a broker, ship a log file, clean it on Spark, show the result.

    python examples/access_log/run.py [--data DIR] [--port PORT] [--log FILE]

Everything is kept below DIR (data/access_log), so a second run ships and processes only what is new.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient, NewTopic
from barnabas.pipelines.compiler.queries import QueryReport
from barnabas.pipelines.formats.columns import arrow_schema, record_batches
from barnabas.pipelines.fronts.yaml.spec import load_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import RunReport, run_pipeline
from barnabas.records.columnar import decode

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
READY_SECONDS = 20.0
STOP_SECONDS = 15.0
Row = dict[str, object]


class Failed(Exception):
    """The example cannot continue; one line says why."""


def say(text: str = "") -> None:
    print(text, flush=True)


def program() -> list[str]:
    """The `barnabas` command of this Python."""
    beside = Path(sys.executable).with_name("barnabas")
    found = str(beside) if beside.exists() else shutil.which("barnabas")
    if found is None:
        raise Failed("the command `barnabas` is not installed: pip install -e '.[pipelines]'")
    return [found]


def free_port(wanted: int) -> int:
    """`wanted`, or the next free port above it."""
    for port in range(wanted, min(wanted + 50, 65536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port != wanted:
                say(f"port {wanted} is taken by another program; using {port}")
            return port
    raise Failed(f"ports {wanted} to {wanted + 49} are all taken: choose another with --port")


@contextlib.contextmanager
def broker(folder: Path, port: int) -> Iterator[str]:
    """Run a broker until the block ends; gives its address."""
    address = f"127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    log_path = folder.parent / "broker.log"
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [*program(), "start", "--data", str(folder), "--listen", address],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # Ctrl-C reaches this program alone: the broker stops last, after the pipeline
        )
    try:
        wait_until_ready(process, log_path)
        yield address
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


def wait_until_ready(process: subprocess.Popen[str], log_path: Path) -> None:
    assert process.stdout is not None
    give_up = time.monotonic() + READY_SECONDS
    while time.monotonic() < give_up:
        readable, _, _ = select.select([process.stdout], [], [], 0.1)
        if readable:
            line = process.stdout.readline()
            if line.startswith("ready"):
                say(f"broker: {line.strip()}")
                return
            if not line:
                break
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)
    last = log_path.read_text().strip().splitlines()[-1:] or ["it said nothing"]
    raise Failed(f"the broker did not start: {last[0]}")


def ship(address: str, log_file: Path, topic: str, state: Path) -> dict[str, int]:
    """Ships the lines of the file that were not shipped before; the agent's summary."""
    command = [*program(), "agent", "tail", str(log_file), "--topic", topic, "--once", "--json"]
    done = subprocess.run(
        [*command, "--state", str(state), "-b", address], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise Failed("the agent could not ship every line; its own message stands above")
    report: dict[str, int] = json.loads(done.stdout)
    new, before = report["lines_sent"], report["already_shipped"]
    say(f"agent: {new:,} new lines shipped to topic {topic}" + (f", {before:,} before" if before else ""))
    return report


def rows_of(client: BlockingClient, topic: str) -> Iterator[Row]:
    """Every record of a topic."""
    schema = arrow_schema(("key", "value", "topic", "partition", "offset", "headers"))
    pairs = [(topic, partition) for partition in client.partitions(topic)]
    starts = client.list_offsets(dict.fromkeys(pairs, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(pairs, LATEST))
    for name, partition in pairs:
        end = ends[name, partition].offset
        for piece in client.read(name, partition, starts[name, partition].offset, end):
            decoded = decode(piece.records, piece.start, end, headers=True)
            for batch in record_batches(decoded, name, partition, schema, 10_000):
                yield from batch.to_pylist()


def statuses(client: BlockingClient, topic: str) -> tuple[Counter[int], int]:
    """Requests per status, and the number of hours, in the newest value of each key."""
    newest = {row["key"]: row["value"] for row in rows_of(client, topic)}
    counts: Counter[int] = Counter()
    hours = set()
    for value in newest.values():
        entry = json.loads(value)  # type: ignore[arg-type]
        counts[entry["status"]] += entry["requests"]
        hours.add(entry["hour"])
    return counts, len(hours)


def reasons(client: BlockingClient, topic: str) -> Counter[str]:
    """Why records are in the dead-letter topic."""
    counts: Counter[str] = Counter()
    for row in rows_of(client, topic):
        headers = {h["key"]: (h["value"] or b"").decode() for h in row["headers"] or ()}  # type: ignore[attr-defined]
        step = headers.get("barnabas.step", "?")
        counts[f"step {step}: {headers.get('barnabas.reason', '?')}"] += 1
    return counts


def table(report: RunReport, shipped: dict[str, int], seconds: float) -> str:
    json_query = report.queries[0]
    rate = json_query.rows / json_query.busy_seconds if json_query.rows else 0.0
    rows = [
        ("lines read from the file", f"{shipped['lines_sent']:,}"),
        ("lines processed", f"{json_query.rows:,}"),
        ("parsed, now in access-json", f"{json_query.rows - json_query.failed:,}"),
        (f"to {report.dead_letters}", f"{json_query.failed:,}"),
        ("records/s, Spark's warm-up included", f"{rate:,.0f}" if rate else "-"),
        ("seconds in all", f"{seconds:.1f}"),
    ]
    return "\n".join(f"  {name:<38} {value:>10}" for name, value in rows)


def show(address: str, report: RunReport, shipped: dict[str, int], seconds: float, folder: Path) -> None:
    with BlockingClient(address) as client:
        counts, hours = statuses(client, "status-per-hour")
        dead = reasons(client, report.dead_letters)
    say()
    if not report.rows and not shipped["lines_sent"]:
        say("Nothing new: every line was shipped and processed by an earlier run.")
    say("This run:")
    say(table(report, shipped, seconds))
    total = sum(counts.values())
    say(f"\nIn status-per-hour ({total:,} requests in {hours} hours), most frequent statuses:")
    for status, count in counts.most_common(5):
        say(f"  {status}  {count:>8,}  {count / total:6.1%}")
    if dead:
        say(f"\nIn {report.dead_letters}:")
        for reason, count in dead.most_common(5):
            say(f"  {count:>5,}  {reason}")
    port = address.rpartition(":")[2]
    shown = os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)
    say(
        f"""
Where to look next:
  barnabas start --data {shown} --listen 127.0.0.1:{port} &
  barnabas consume access-json -b {address} -c 3
  barnabas consume status-per-hour -b {address} -o beginning -e -f '%k %s\\n'
  barnabas group describe access-log.access-json -b {address}
  barnabas consume {report.dead_letters} -b {address} -o beginning -e -J
and in examples/access_log/README.md."""
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=PROJECT / "data" / "access_log")
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--log", type=Path, default=HERE / "access.log")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupted)
    began = time.monotonic()
    try:
        spec = load_spec(HERE / "pipeline.yaml")
        data: Path = options.data.absolute()
        with broker(data / "broker", free_port(options.port)) as address:
            with BlockingClient(address) as client:
                client.create_topics([NewTopic("access-log", 1)], exist_ok=True)
            shipped = ship(address, options.log, "access-log", data / "agent")
            report = run_pipeline(
                spec,
                once=True,
                bootstrap=address,
                checkpoint_dir=data / "checkpoints",
                progress=tell,
                say=lambda text: say(f"pipeline: {text}"),
            )
            if report.interrupted:
                raise KeyboardInterrupt
            show(address, report, shipped, time.monotonic() - began, data / "broker")
    except (Failed, PipelineError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the next run goes on from here", file=sys.stderr)
        return 130
    return 0


def tell(query: QueryReport) -> None:
    failed = f", {query.failed:,} of them bad" if query.failed else ""
    say(f"pipeline: {query.name}: {query.rows:,} records{failed}")


def interrupted(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
