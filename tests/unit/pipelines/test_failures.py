"""What users read when a query fails: the error at the bottom, in one line."""

from __future__ import annotations

import pytest

from barnabas.pipelines.entries.document import from_python
from barnabas.pipelines.kinds.steps import STEPS
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.spark.session.log import failure_reason

OURS = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. SQLSTATE: XXKST
=== Streaming Query ===
Identifier: access-log.access-json [id = 1, runId = 2]
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
Traceback (most recent call last):
  File "/x/source.py", line 90, in read_range
barnabas.pipelines.spark.topics.offsets.DataLost: records 5 to 9 of t-0 are gone: set onDataLoss
\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
"""
SPARKS = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted
Identifier: access-log.access-json [id = 1, runId = 2]
org.apache.spark.SparkException: Job aborted due to stage failure
Caused by: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero.
\tat x.y(z)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OURS, "records 5 to 9 of t-0 are gone: set onDataLoss"),
        (SPARKS, "SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero."),
        ("[STREAM_FAILED] Query [id = 1] terminated with exception: Boom", "Boom"),
        ("", "no reason was given"),
    ],
)
def test_failure_reason(text, reason):
    assert failure_reason(text) == reason


@pytest.mark.parametrize(
    ("layout", "message"),
    [("YYYY-MM-dd", "has a letter 'Y'"), ("yyyy-jj", "has a letter 'j'"), ("'T'", "has no letters")],
)
def test_time_formats(layout, message):
    for step, more in (("time", {}), ("format_time", {})):
        with pytest.raises(PipelineError, match=message):
            STEPS[step].check(from_python({"field": "a", "format": layout, **more}, "f:1", step))
    STEPS["time"].check(
        from_python({"field": "a", "format": ["yyyy-MM-dd'T'HH:mm:ssXXX", "unix"]}, "f:1", "time")
    )


def test_a_refused_connection_is_named_with_its_address() -> None:
    """As Hadoop's client for HDFS reports it: the innermost cause lacks the address."""
    call = "Call From host/127.0.1.1 to namenode:9000 failed on connection exception: java.net.ConnectException: "
    text = (
        "An error occurred while calling o83.exists.\n"
        f": java.net.ConnectException: {call}Connection refused; For more details see:  http://wiki\n"
        "\tat java.base/Something.run(Unknown Source)\n"
        "Caused by: java.net.ConnectException: Connection refused\n"
    )
    assert failure_reason(text) == f"ConnectException: {call}Connection refused"
    assert failure_reason("java.net.ConnectException: Connection refused") == (
        "ConnectException: Connection refused"
    )
