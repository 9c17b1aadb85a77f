"""Why Spark did not start, as its output says."""

from __future__ import annotations

import pytest

from barnabas.pipelines.spark.session.log import start_reason

HOST = """WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" java.lang.ExceptionInInitializerError
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
Caused by: java.net.UnknownHostException: pod-7: pod-7: Name or service not known
\tat java.base/java.net.InetAddress.getLocalHost(InetAddress.java:1671)
Caused by: java.net.UnknownHostException: pod-7: Name or service not known
\t... 17 more
"""
OLD = """Error: LinkageError occurred while loading main class org.apache.spark.launcher.Main
\tjava.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been compiled by a more recent version
"""
FULL = (
    "OpenJDK 64-Bit Server VM warning: x\nError: Could not reserve enough space for 1048576KB object heap\n"
)
BIND = """py4j.protocol.Py4JJavaError: An error occurred while calling None.JavaSparkContext.
: java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed after 16 retries
\tat java.base/sun.nio.ch.Net.bind0(Native Method)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HOST, "the host name 'pod-7' cannot be resolved: add it to /etc/hosts"),
        (OLD, "this Java is too old"),
        (FULL, "not enough memory for Java (Error: Could not reserve"),
        ("Unrecognized option: -XX:Bad\nError: A fatal exception has occurred\n", "Error: A fatal exception"),
        (BIND, "Service 'sparkDriver' failed after 16 retries"),
        ("", "it printed no reason"),
    ],
)
def test_the_cause_is_named(text: str, reason: str) -> None:
    reason_found = start_reason(text)
    assert reason in reason_found
    assert "\n" not in reason_found
