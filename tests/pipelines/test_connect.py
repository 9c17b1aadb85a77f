"""The format through Spark Connect, with the server that PySpark contains, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed
from tests.pipelines.test_relations import type_of_topic
from tests.support.process import free_port

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from barnabas.pipelines import Pipeline, register, write_each_batch
from barnabas.pipelines.plan.errors import PipelineError

remote, bootstrap, topic, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
found = {}

def said(work):
    try:
        work()
    except Exception as error:
        return str(error)

try:
    register(spark)
except PipelineError as error:
    print(json.dumps({"register": str(error)}))
    sys.exit()
broker = {"kafka.bootstrap.servers": bootstrap}
read = spark.read.format("barnabas").options(**broker).option("subscribe", topic).load()
found["read"] = sorted(bytes(row.value).decode() for row in read.collect())
read.selectExpr("value").write.format("barnabas").options(**broker).option("topic", topic + "-copy").mode("append").save()
rows = spark.readStream.format("barnabas").options(**broker, subscribe=topic, startingOffsets="earliest").load()
stream = rows.selectExpr("value").writeStream.format("barnabas").options(**broker).option("topic", topic + "-stream")
stream = stream.option("checkpointLocation", checkpoint + "/a").trigger(availableNow=True)
for _ in range(2):
    stream.start().awaitTermination(300)
once = write_each_batch({**broker, "topic": topic, "kafka.transactional.id": topic})
each = rows.writeStream.foreachBatch(once).option("checkpointLocation", checkpoint + "/b").trigger(availableNow=True)
found["each"] = said(lambda: each.start().awaitTermination(300))
found["pipeline"] = said(lambda: Pipeline("p").source(topic).to_topic("x").run(once=True, bootstrap=bootstrap))
print(json.dumps(found))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Starts a server with a Python of its own; returns its URL."""
    running = []

    def start(python: str) -> str:
        home, port = Path(pyspark.__file__).parent, free_port()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
        settings = {
            "spark.connect.grpc.binding.port": port,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
        conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", *conf]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        log = tmp_path / f"server-{port}.log"
        with log.open("wb") as out:
            running.append(subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=out, stderr=out))
        give_up = time.monotonic() + 240
        while "Spark Connect server started" not in log.read_text():
            assert time.monotonic() < give_up, log.read_text()[-3000:]
            time.sleep(0.2)
        return f"sc://127.0.0.1:{port}"

    yield start
    for process in running:
        process.terminate()
        process.wait(60)


def run(*arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_reading_and_writing_through_a_server(server, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(2)
    for copy in ("copy", "stream"):
        client.create_topics([type_of_topic(f"{topic}-{copy}")])
    send(client, topic, [b"a", b"b"], 0)
    send(client, topic, [b"c"], 1)
    report = run(server(sys.executable), bootstrap, topic, str(tmp_path / "checkpoints"))
    assert report["read"] == ["a", "b", "c"]
    for copy in ("copy", "stream"):
        assert sorted(record.value for record in consumed(bootstrap, f"{topic}-{copy}")) == [b"a", b"b", b"c"]
    assert "through Spark Connect foreachBatch does not know its query" in report["each"]
    assert str(report["pipeline"]).startswith("a pipeline does not run through Spark Connect")


def test_a_server_whose_python_lacks_the_package_is_told_in_one_line(server, bootstrap, tmp_path):
    folder = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    report = run(server(str(folder / "bin" / "python")), bootstrap, "none", str(tmp_path))
    assert str(report["register"]).startswith(
        "the Spark Connect server cannot use the format: its Python has no module 'barnabas'; start the server with "
        "PYSPARK_PYTHON set to a Python 3."
    )
