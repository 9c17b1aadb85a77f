"""`python -m bench.logs_rivals`: log search beside OpenSearch, in one run, with the same lines.

The lines of `bench.logs` are in a topic. Ours: the pipeline of `barnabas logs template` takes them to a Delta table, and
`barnabas logs index` writes the index. OpenSearch (one node, from Maven Central, 2 GB of heap) gets the same rows by
`_bulk`, two requests at a time, without refreshes meanwhile. Then both are asked the same. Other programs may use the
machine, too, so that processor time says more than time: for ours that of all processes of the command, its start
included; for OpenSearch that of the server, which runs already.

    python -m bench.logs_rivals --log access.log --gb 0.5 --dir DIR
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer
from tests.pipelines.jars import program
from tests.support.admin import create_topic
from tests.support.process import free_port

from barnabas.logs.tables import LogTable
from bench.logs import RESULTS, hours, questions, rare_word
from bench.report import machine

TICKS: Final = os.sysconf("SC_CLK_TCK")
BULK_ROWS: Final = 5_000
RUNS: Final = 3
TOPIC: Final = "web"
BARNABAS: Final = [sys.executable, "-m", "barnabas"]
MAPPING: Final = {
    "settings": {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"},
    "mappings": {
        "properties": {
            "time": {"type": "date"},
            "level": {"type": "keyword"},
            "message": {"type": "text"},
            "host": {"type": "keyword"},
            "path": {"type": "keyword"},
        }
    },
}


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(command: list[str]) -> tuple[float, float, str]:
    """Seconds and processor seconds of a command and all processes of its session, and what it printed."""
    began, used = time.monotonic(), {}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    with ThreadPoolExecutor(1) as pool:
        printed = pool.submit(process.communicate)
        while not printed.done():
            for path in Path("/proc").glob("[0-9]*/stat"):
                with contextlib.suppress(OSError, IndexError, ValueError):
                    fields = path.read_text().rpartition(")")[2].split()
                    if int(fields[3]) == process.pid:
                        used[path.parent.name] = (int(fields[11]) + int(fields[12])) / TICKS
            time.sleep(0.3)
    text = printed.result()[0]
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: {text[-3000:]}")
    return time.monotonic() - began, sum(used.values()), text


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[str]:
    """The address of a broker of its own."""
    bootstrap = f"127.0.0.1:{free_port()}"
    command = [*BARNABAS, "start", "--listen", bootstrap, "--data", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        yield bootstrap
    finally:
        process.terminate()
        process.wait()


def fill(bootstrap: str, log: Path, size_bytes: int) -> int:
    """Produce the lines with their times; how many."""
    create_topic(bootstrap, TOPIC, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 50})
    count = 0
    for table in hours(log, size_bytes):
        times = table["time"].cast("int64").to_pylist()
        for message, time_us in zip(table["message"].to_pylist(), times, strict=True):
            while True:
                try:
                    producer.produce(TOPIC, message, timestamp=time_us // 1000)
                    break
                except BufferError:
                    producer.poll(0.5)
            count += 1
        producer.poll(0)
    assert producer.flush(600) == 0
    return count


def ours(folder: Path, log: Path, size_bytes: int) -> dict[str, Any]:
    table = folder / "table"
    with broker(folder / "data") as bootstrap:
        lines = fill(bootstrap, log, size_bytes)
        print(f"{lines:,} lines are in the topic", flush=True)
        file = folder / "logs.yaml"
        _, _, text = run([*BARNABAS, "logs", "template", str(table), "-t", TOPIC, "--text", "-q"])
        file.write_text(text)
        shipped_s, shipped_cpu_s, _ = run(
            [
                *BARNABAS,
                "pipeline",
                "run",
                str(file),
                "--once",
                "-b",
                bootstrap,
                "--checkpoints",
                str(folder / "checkpoints"),
            ]
        )
        print(f"pipeline: {shipped_s:.1f} s, {shipped_cpu_s:.1f} s of processor time", flush=True)
    indexed_s, indexed_cpu_s, _ = run([*BARNABAS, "logs", "index", str(table)])
    files = LogTable(table).files()
    index_bytes = sum(path.stat().st_size for path in table.rglob("*.tokens"))
    assert sum(file.rows for file in files) == lines
    return {
        "lines": lines,
        "ingest_s": shipped_s + indexed_s,
        "ingest_cpu_s": shipped_cpu_s + indexed_cpu_s,
        "pipeline_cpu_s": shipped_cpu_s,
        "index_cpu_s": indexed_cpu_s,
        "bytes": sum(file.size_bytes for file in files) + index_bytes,
        "index_bytes": index_bytes,
        "files": len(files),
    }


class OpenSearch:
    """One node in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "config").mkdir(parents=True)
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        command = [
            word
            for word in program("Search")
            if not word.startswith(("-Xmx", "-XX:Tiered", "-XX:+UseSerial"))
        ]
        command[1:1] = ["-Xms2g", "-Xmx2g"]
        log = (folder / "out.log").open("wb")
        self.process = subprocess.Popen([*command, str(folder), str(port)], stdout=log, stderr=log)
        while True:
            try:
                self.call("GET", "/")
                return
            except OSError:
                assert self.process.poll() is None, (folder / "out.log").read_text()[-2000:]
                time.sleep(0.5)

    def call(self, method: str, path: str, body: bytes | dict[str, Any] | None = None) -> dict[str, Any]:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            return dict(json.load(answer))

    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)


def bulk(rows: list[dict[str, Any]]) -> bytes:
    lines = []
    for row in rows:
        lines += ['{"index":{}}', json.dumps(row)]
    return ("\n".join(lines) + "\n").encode()


def feed(server: OpenSearch, log: Path, size_bytes: int) -> dict[str, Any]:
    """The same rows by _bulk; what it cost the server."""
    server.call("PUT", "/logs", MAPPING)
    began, before, lines = time.monotonic(), server.cpu_s(), 0
    with ThreadPoolExecutor(2) as pool:
        waiting: list[Future[dict[str, Any]]] = []
        for table in hours(log, size_bytes):
            table = table.select(["time", "level", "message", "host", "path"])
            millis = pc.divide(table["time"].cast(pa.int64()), 1000)
            table = table.set_column(0, "time", millis)
            for at in range(0, len(table), BULK_ROWS):
                body = bulk(table.slice(at, BULK_ROWS).to_pylist())
                lines += min(BULK_ROWS, len(table) - at)
                if len(waiting) >= 2:
                    assert not waiting.pop(0).result()["errors"]
                waiting.append(pool.submit(server.call, "POST", "/logs/_bulk", body))
        for answer in waiting:
            assert not answer.result()["errors"]
    server.call("POST", "/logs/_refresh")
    server.call("POST", "/logs/_flush")
    result = {"lines": lines, "ingest_s": time.monotonic() - began, "ingest_cpu_s": server.cpu_s() - before}
    merge_before = server.cpu_s()
    server.call("POST", "/logs/_forcemerge?max_num_segments=1")
    result["merge_cpu_s"] = server.cpu_s() - merge_before
    for action in ("_refresh", "_flush"):  # or the segments that were merged count, too
        server.call("POST", f"/logs/{action}")
    result["bytes"] = server.call("GET", "/logs/_stats/store")["_all"]["primaries"]["store"]["size_in_bytes"]
    return result


def their_questions(word: str) -> dict[str, dict[str, Any]]:
    """As bench.logs.questions, by the same names."""
    newest = {"size": 100, "sort": [{"time": "desc"}]}
    hour = {"size": 0, "aggs": {"over": {"date_histogram": {"field": "time", "fixed_interval": "1h"}}}}
    error = {"term": {"level": "ERROR"}}

    def matching(text: str) -> dict[str, Any]:
        return {"match": {"message": {"query": text, "operator": "and"}}}

    return {
        "a word that occurs once": {**newest, "query": matching(word)},
        "the newest 100 lines with a frequent word": {**newest, "query": matching("presentations")},
        "the newest 100 errors with a word": {
            **newest,
            "query": {"bool": {"must": [matching("jquery")], "filter": [error]}},
        },
        "histogram of the week, all lines": hour,
        "histogram of the week, errors": {**hour, "query": error},
        "histogram of the week, a frequent word": {**hour, "query": matching("presentations")},
    }


def asked(server: OpenSearch, body: dict[str, Any]) -> tuple[float, float]:
    """Seconds and processor seconds of the server for one question, without its caches."""
    took, used = [], []
    for _ in range(RUNS):
        server.call("POST", "/logs/_cache/clear")
        before, began = server.cpu_s(), time.monotonic()
        server.call("POST", "/logs/_search?request_cache=false", body)
        took.append(time.monotonic() - began)
        used.append(server.cpu_s() - before)
    return statistics.median(took), statistics.median(used)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.logs_rivals", description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="a web server's log")
    parser.add_argument("--gb", type=float, default=0.5)
    parser.add_argument("--dir", type=Path, required=True)
    options = parser.parse_args()
    size_bytes, folder = int(options.gb * 1e9), options.dir
    folder.mkdir(parents=True, exist_ok=True)
    here = ours(folder, options.log, size_bytes)
    print(here, flush=True)
    server = OpenSearch(folder / "opensearch")
    try:
        there = feed(server, options.log, size_bytes)
        print(there, flush=True)
        word = rare_word(options.log, size_bytes)
        rows, theirs = [], their_questions(word)
        for name, words in questions(word).items():
            our_runs = [
                run([*BARNABAS, "logs", "search", *words, "--table", str(folder / "table")])[:2]
                for _ in range(RUNS)
            ]
            our_s, our_cpu_s = (statistics.median(column) for column in zip(*our_runs, strict=True))
            rows.append((name, our_s, our_cpu_s, *asked(server, theirs[name])))
            print(rows[-1], flush=True)
    finally:
        server.process.kill()
        server.process.wait()
    text = text_of(options.gb, here, there, rows)
    print(text)
    (RESULTS / "logs_rivals.md").write_text(text)
    return 0


def text_of(gb: float, here: dict[str, Any], there: dict[str, Any], rows: list[tuple[Any, ...]]) -> str:
    """The report."""
    lines = here["lines"]
    ours = {"cpu": lines / here["ingest_cpu_s"], "wall": lines / here["ingest_s"]}
    theirs = {"cpu": lines / there["ingest_cpu_s"], "wall": lines / there["ingest_s"]}
    out = [
        "# Log search beside OpenSearch",
        "",
        f"`python -m bench.logs_rivals --gb {gb:g}`: {lines:,} lines of a web server's log, a week, from one topic;",
        "OpenSearch 2.19.1 with 2 GB of heap, one shard, merged to one segment;",
        f"{machine()['cores']} cores of {machine()['cpu']}, which other programs used, too, so that",
        "processor time says more than time.",
        "",
        "| | Barnabas: Delta table and index | OpenSearch |",
        "|---|---:|---:|",
        f"| ingest, lines per second of one core's time | {ours['cpu']:,.0f} | {theirs['cpu']:,.0f} |",
        f"| ingest, lines per second | {ours['wall']:,.0f} | {theirs['wall']:,.0f} |",
        f"| size on disk, MB | {here['bytes'] / 1e6:,.0f} | {there['bytes'] / 1e6:,.0f} |",
        "",
        f"Barnabas' ingest is a pipeline ({here['pipeline_cpu_s']:.0f} s of processor time, Spark's start included) and an",
        f"index ({here['index_cpu_s']:.0f} s, {here['index_bytes'] / 1e6:,.0f} MB); OpenSearch's is the server alone,",
        f"without whoever sends ({there['ingest_cpu_s']:.0f} s, and {there['merge_cpu_s']:.0f} s for merging).",
        "",
        "| question | Barnabas, s | of the processor, s | OpenSearch, s | of the processor, s |",
        "|---|---:|---:|---:|---:|",
    ]
    out += [f"| {name} | {a:.2f} | {b:.2f} | {c:.2f} | {d:.2f} |" for name, a, b, c, d in rows]
    out += [
        "",
        "Barnabas' is the whole command `barnabas logs search` with its start; OpenSearch runs already and holds its 2 GB.",
        "",
    ]
    return "\n".join(out)


if __name__ == "__main__":
    sys.exit(main())
