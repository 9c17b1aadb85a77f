"""Many pipelines in one server: they share processes, sleep while nothing arrives, and are not in each other's way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from barnabas.client.blocking import LATEST, BlockingClient
from barnabas.pipelines.spark.topics.offsets import Range
from barnabas.pipelines.spark.topics.options import source_options
from barnabas.pipelines.spark.topics.source import read_range
from tests.pipelines.conftest import send
from tests.pipelines.test_server import Server, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
PIPELINES = 8


@pytest.fixture
def server(tmp_path, bootstrap):
    started = Server(tmp_path / "pipelines", bootstrap)
    started.start()
    yield started
    started.stop()


def text(source: str, name: str) -> str:
    return (
        f"pipeline: {name}\nsource: {{topic: {source}}}\nsteps: [parse: {{json: {{n: int}}}}]\n"
        f"outputs: [{{topic: {name}-out, partitions: 1}}]\n"
    )


def numbers(client: BlockingClient, name: str) -> list[int]:
    """What is committed in an output."""
    topic = f"{name}-out"
    if topic not in client.describe([topic]):
        return []
    end = client.list_offsets({(topic, 0): LATEST}, read_committed=True)[topic, 0].offset
    address = ",".join(f"{host}:{port}" for host, port in client.options.bootstrap)
    settings = {"subscribe": topic, "kafka.bootstrap.servers": address}
    options = source_options({**settings, "kafka.isolation.level": "read_committed"})
    columns = [batch.column("value").to_pylist() for batch in read_range(options, Range(topic, 0, 0, end))]
    return [json.loads(value)["n"] for values in columns for value in values]


def pythons(server: Server) -> list[psutil.Process]:
    """The Python processes of the server's Spark."""
    below = psutil.Process(server.process.pid).children(recursive=True)
    return [process for process in below if "python" in process.name()]


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["", "killed"])
def test_pipelines_share_processes_and_one_fault_has_one_victim(server, client, new_topic, killed):
    sources = [new_topic(1) for _ in range(PIPELINES)]
    names = [f"{source}-p" for source in sources]

    def add(some: range) -> None:
        for i in some:
            assert server.call("POST", "/pipelines", text(sources[i], names[i]))[0] in (200, 201)
            send(client, sources[i], [b'{"n": 1}'])
        for i in some:
            until(lambda i=i: numbers(client, names[i]) == [1])

    add(range(2))
    few = len(pythons(server))
    add(range(2, PIPELINES))
    assert len(pythons(server)) <= few + 4, "a pipeline has no process of its own"

    # A pipeline whose topic is deleted fails; a worker that is killed costs an attempt of its task, nothing else.
    client.delete_topics([sources[0]])
    workers = [process for process in pythons(server) if "pyspark.worker" in process.cmdline()]
    daemons = {process.ppid() for process in workers}
    os.kill(next(process.pid for process in workers if process.pid not in daemons), signal.SIGKILL)
    for source in sources[1:]:
        send(client, source, [b'{"n": 2}', b'{"n": 3}'])
    for name in names[1:]:
        until(lambda name=name: numbers(client, name) == [1, 2, 3])
    until(lambda: server.call("GET", f"/pipelines/{names[0]}")[1]["last_error"])
    states = {row["name"]: row["restarts"] for row in server.call("GET", "/pipelines")[1]}
    assert [states[name] for name in names[1:]] == [0] * (PIPELINES - 1)

    # Killed and started again, all go on where they were, as a server with one pipeline does in test_server.py.
    if not killed:
        return
    server.stop(signal.SIGKILL)
    for source in sources[1:]:
        send(client, source, [b'{"n": 4}'])
    server.start()
    for name in names[1:]:
        until(lambda name=name: numbers(client, name) == [1, 2, 3, 4])


@pytest.mark.soak
def test_a_limit_of_records_holds_and_a_sleeping_query_stops_at_once(server, client, new_topic):
    source = new_topic(1)
    send(client, source, [b'{"n": %d}' % n for n in range(10)])
    limited = text(source, source + "-p").replace(
        f"{{topic: {source}}}", f"{{topic: {source}, options: {{maxOffsetsPerTrigger: 4}}}}"
    )
    assert server.call("POST", "/pipelines", limited)[0] in (200, 201)
    until(lambda: numbers(client, source + "-p") == list(range(10)))
    checkpoint = server.folder / f"{source}-p" / "checkpoints" / f"{source}-p-out" / "offsets"
    assert len([path for path in checkpoint.iterdir() if path.name.isdigit()]) == 3
    assert server.call("POST", f"/pipelines/{source}-p/pause")[1]["state"] == "paused"
    ends = client.list_offsets({(source, 0): LATEST})
    assert client.committed(f"{source}-p") == {(source, 0): ends[source, 0].offset}
    assert server.call("POST", f"/pipelines/{source}-p/resume")[0] == 200
    send(client, source, [b'{"n": 10}'])
    until(lambda: numbers(client, source + "-p") == list(range(11)))


def test_what_workers_are_forked_from_has_no_threads():
    code = (
        "import os; from barnabas.pipelines.spark.daemon import preload\n"
        "preload('pyspark.worker'); print(len(os.listdir('/proc/self/task')))"
    )
    if not Path("/proc/self/task").exists():
        pytest.skip("needs /proc")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
