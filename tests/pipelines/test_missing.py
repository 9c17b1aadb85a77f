"""What Spark lacks is named in a line; a format that nobody registered is found anyhow."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PLAIN = """
import threading
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}

def show():
    print(spark.readStream.format("barnabas").options(**options).load().columns[:3])

# Spark looks up a format that was registered in a session in the active session, which another thread has not.
thread = threading.Thread(target=show)
thread.start()
thread.join()
"""


@pytest.mark.soak
def test_a_plain_session_knows_the_format_in_every_thread(tmp_path):
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines()[-1:] == ["['key', 'value', 'topic']"], done.stderr[-3000:]


@pytest.mark.parametrize(
    ("url", "properties", "reason"),
    [
        (
            "jdbc:nobody://h/x",
            "{driver: org.nobody.Driver}",
            "there is no JDBC driver org.nobody.Driver: add its jar",
        ),
        ("jdbc:nobody://h/x", "{user: me}", "no JDBC driver takes jdbc:nobody:: add its jar"),
    ],
)
def test_a_jdbc_driver_that_is_missing_is_named(
    spark, bootstrap, client, new_topic, tmp_path, url, properties, reason
):
    source = new_topic(1)
    send(client, source, [b'{"a": 1}'])
    target = f'database: {{jdbc: "{url}", table: t, properties: {properties}}}'
    spec = parse_spec(
        f"pipeline: {source}\nsource: {{topic: {source}}}\nsteps: [parse: {{json: {{a: int}}}}]\noutputs: [{target}]\n"
    )
    with pytest.raises(PipelineError, match="query database failed: ") as failure:
        run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    assert reason in str(failure.value)
    assert "\n" not in str(failure.value)
