"""Sessions of Spark Connect, whose Spark runs in a server: `SparkSession.builder.remote("sc://host")`.

The format `barnabas` works there if this package is installed in the server's Python (and in that of its executors). It is
not sent there: Spark hands files that a session adds to its batch jobs, but not to the processes of its streams. What needs
the Java process of the driver itself cannot work, and is refused with a message: pipelines, and writes exactly once from
`foreachBatch`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.plan.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_PIPELINES: Final = (
    "a pipeline does not run through Spark Connect, because it needs the Java process of its own driver, and {what}: use "
    "--master spark://HOST:7077 for a cluster, or the format barnabas in a program with a remote session"
)


def is_remote(spark: Any) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def refuse_remote(conf: Mapping[str, str], master: str | None, running: SparkSession | None) -> None:
    """Raises PipelineError if a new session for pipelines would be remote, or the present one is."""
    reasons = {
        "the active session is remote": running is not None and is_remote(running),
        "SPARK_REMOTE is set": bool(os.environ.get("SPARK_REMOTE")),
        f"the master is {master}": (master or "").startswith("sc://"),
        "spark.remote is set": "spark.remote" in conf,
        "spark.api.mode is connect": conf.get("spark.api.mode") == "connect",
    }
    for what, applies in reasons.items():
        if applies:
            raise PipelineError(NO_PIPELINES.format(what=what))


def try_server(spark: SparkSession) -> None:
    """Lets the server's Python load the format, which needs no broker. Raises PipelineError, with what to do, if it cannot:
    Spark would otherwise report that with a hundred lines when the format is first used."""
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "none"}
    try:
        _ = spark.read.format("barnabas").options(**options).load().schema
    except Exception as error:
        raise PipelineError(
            f"the Spark Connect server cannot use the format: {refusal(str(error))}"
        ) from None


def refusal(text: str) -> str:
    """Why the server's Python cannot load the format, and what to do. text: Spark's error."""
    here = "{}.{}".format(*sys.version_info)
    advice = f"start the server with PYSPARK_PYTHON set to a Python {here} in which barnabas[pipelines] is installed"
    if "PYTHON_VERSION_MISMATCH" in text:
        return f"its Python has another version than the one here; {advice}"
    _, missing, after = text.rpartition("No module named ")
    if missing:
        return f"its Python has no module {after.splitlines()[0].strip()}; {advice}"
    return text.strip().partition("\n")[0]
