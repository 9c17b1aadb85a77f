"""A session that Java does not start, as a user sees it: the cause is named. Another program takes the place of Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

JAVA = """#!/bin/sh
echo "address: $SPARK_LOCAL_IP" >&2
echo 'Exception in thread "main" java.lang.ExceptionInInitializerError' >&2
echo 'Caused by: java.net.UnknownHostException: pod-7: Name or service not known' >&2
exit 1
"""
SESSION = """
import os, sys
from pathlib import Path
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.spark.session.start import start_session
try:
    start_session("x", master=sys.argv[1], log_file=Path(sys.argv[2]))
except PipelineError as error:
    print(error)
print(os.environ.get("SPARK_LOCAL_IP"))
"""


@pytest.mark.parametrize(
    ("master", "own_address", "address"),
    [("local[1]", None, "127.0.0.1"), ("local[1]", "10.1.2.3", "10.1.2.3"), ("spark://h:7077", None, "")],
)
def test_the_host_s_own_name(tmp_path: Path, master: str, own_address: str | None, address: str) -> None:
    """For a local master the host's name does not matter; where it does, the message names it."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    log = tmp_path / "spark.log"
    log.write_text(
        "Caused by: java.net.UnknownHostException: of-an-earlier-start: Name or service not known\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    environment |= {
        "JAVA_HOME": str(java.parents[1]),
        **({} if own_address is None else {"SPARK_LOCAL_IP": own_address}),
    }
    done = subprocess.run(
        [sys.executable, "-c", SESSION, master, str(log)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    complaint, afterwards = done.stdout.splitlines()
    assert f"address: {address}\n" in log.read_text()
    assert complaint.startswith("Spark did not start: the host name 'pod-7' cannot be resolved")
    assert str(log) in complaint
    assert afterwards == str(own_address)
