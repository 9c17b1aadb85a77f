"""A query that dies before its first micro-batch is committed skips nothing of what comes until it starts again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import records_of, send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = """
import sys, time
from pathlib import Path
from barnabas.pipelines.spark.session.class_archive import find_archive
from barnabas.pipelines.spark.session.start import start_session

bootstrap, topic, checkpoint, seen = sys.argv[1:5]
spark = start_session("first", master="local[1,1]", quick=True, archive=find_archive())
rows = (spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic).option("startingOffsets", "latest")
        .option("checkpointLocation", checkpoint).load())

def deliver(batch, number):
    values = [bytes(row.value).decode() for row in batch.orderBy("offset").collect()]
    with open(seen, "a") as out:
        out.write(f"{number}:{','.join(values)}\\n")
    while "hang" in sys.argv:
        time.sleep(1)

query = rows.writeStream.foreachBatch(deliver).option("checkpointLocation", checkpoint)
if "hang" in sys.argv:
    query.start().awaitTermination()
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.soak
def test_killed_in_its_first_batch(bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1)
    send(client, topic, [b"before"])
    seen, checkpoint = tmp_path / "seen", f"file://{tmp_path}/checkpoint"
    command = [sys.executable, "-c", PROGRAM, bootstrap, topic, checkpoint, str(seen)]
    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen([*command, "hang"], stdout=log, stderr=log, start_new_session=True)
    try:
        give_up = time.monotonic() + 240
        while not seen.exists() and time.monotonic() < give_up:
            assert first.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        send(client, topic, [b"between"])
    finally:
        os.killpg(first.pid, signal.SIGKILL)  # Java and the Python workers with it
        first.wait()
    assert seen.read_text() == "0:\n"
    send(client, topic, [b"while it was dead"])
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    read = [line.partition(":")[2] for line in seen.read_text().splitlines()]
    assert ",".join(values for values in read if values) == "between,while it was dead"


@pytest.mark.parametrize(
    ("start", "scheme"), [pytest.param("latest", "file", marks=pytest.mark.soak), ("group", "viewfs")]
)
def test_a_pipeline_that_fails_before_spark_writes_a_checkpoint(
    spark, bootstrap, client, new_topic, tmp_path, start, scheme
):
    """On a local folder, and on another of Hadoop's file systems (which keeps its files in one)."""
    topic = new_topic(1)
    send(client, topic, [b"0", b"1", b"2"])
    option = ""
    if start == "group":
        client.commit(f"{topic}-group", {(topic, 0): 3})
        option = f", options: {{startingGroup: {topic}-group}}"
    spec = parse_spec(
        f"pipeline: {topic}\nsource: {{topic: {topic}, start: latest{option}}}\n"
        f"outputs: [{{topic: {topic}-out}}]\n"
    )
    place = tmp_path / "checkpoints"
    url = place.as_uri()
    if scheme == "viewfs":
        name = "fs.viewfs.mounttable.tests.link./checkpoints"
        spark._jsc.hadoopConfiguration().set(name, place.as_uri())
        url = "viewfs://tests/checkpoints"

    def run():
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=url)

    folder = place / topic / f"{topic}-out"
    folder.mkdir(parents=True)
    (folder / "offsets").write_text("in the way")
    with pytest.raises(PipelineError):
        run()
    assert (folder / "sources" / "0" / "barnabas-first.json").exists()
    (folder / "offsets").unlink()
    send(client, topic, [b"3", b"4"])
    client.commit(f"{topic}-group", {(topic, 0): 5})  # somebody else goes on with the group
    run()
    send(client, topic, [b"5"])
    run()
    with BlockingClient(bootstrap) as other:
        assert [row["value"] for row in records_of(other, f"{topic}-out")] == [b"3", b"4", b"5"]
