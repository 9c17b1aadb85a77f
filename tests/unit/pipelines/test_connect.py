"""What is said where Spark Connect cannot be used; tests/pipelines/test_connect.py uses it."""

from __future__ import annotations

import pytest

from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.spark.connect import refusal, refuse_remote
from barnabas.pipelines.spark.session.start import start_session

MISSING = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):
  File "/x/pyspark/serializers.py", line 483, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'barnabas'
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.sql.AnalysisException
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.pythonDataSourceError(QueryCompilationErrors.scala:2576)
"""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            MISSING,
            "its Python has no module 'barnabas'; start the server with PYSPARK_PYTHON set to a Python 3.",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version",
            "its Python has another version",
        ),
        ("[X] Boom\n\tat org.apache", "[X] Boom"),
    ],
)
def test_what_a_server_lacks_is_one_line(text, complaint):
    assert refusal(text).startswith(complaint)
    assert "\n" not in refusal(text)


@pytest.mark.parametrize(
    ("conf", "master"),
    [({}, "sc://host:15002"), ({"spark.remote": "sc://host"}, None), ({"spark.api.mode": "connect"}, None)],
)
def test_a_pipeline_does_not_begin_a_remote_session(conf, master):
    with pytest.raises(PipelineError, match="does not run through Spark Connect"):
        refuse_remote(conf, master, None)
    refuse_remote({"spark.api.mode": "classic"}, "spark://host:7077", None)


def test_nor_where_the_environment_asks_for_one(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    with pytest.raises(PipelineError, match="SPARK_REMOTE is set: use --master"):
        refuse_remote({}, None, None)


def test_a_file_for_spark_that_does_not_exist_is_named(tmp_path, monkeypatch):
    # Another test of this process may have started a session, which would be used as it is.
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    missing = tmp_path / "driver.jar"
    with pytest.raises(PipelineError, match=f"^spark.jars: {missing}: no such file$"):
        start_session("x", conf={"spark.jars": f"file://{missing}"})
