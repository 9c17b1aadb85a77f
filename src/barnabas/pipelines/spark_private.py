"""Everything that reaches behind PySpark's public interface: Java objects, private classes and attributes.

Nothing else in the package does (`tests/unit/pipelines/test_spark_private.py` looks). Another version of Spark may change
any of it without notice; the tests in `tests/pipelines/test_spark_private.py` say what each place relies on, and fail then.

It also relies on the shape of Spark's plans in two places that need no private class: see `steps.base.kept` and
`steps.base.always`.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_depth: ContextVar[int] = ContextVar("depth", default=0)
"""How many lambdas the one that is made stands in."""


# --- expressions and plans ----------------------------------------------------------------------------


def try_eval(column: Column) -> Column:
    """The expression, null where it raises an error: Catalyst's TryEval, which `try_divide` and its like are made of."""
    from pyspark import SparkContext
    from pyspark.sql import Column as SparkColumn

    context = SparkContext._active_spark_context
    assert context is not None, "columns are made in a session"
    jvm: Any = context._jvm
    tools = jvm.org.apache.spark.sql.classic.ExpressionUtils
    inner = tools.expression(column._jc)
    return SparkColumn(tools.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(inner)))


def each(function: str, column: Column | str, body: Callable[..., Column]) -> Column:
    """One of Spark's functions that take a lambda, like `filter` and `transform`, of a column.

    As `pyspark.sql.functions` has them, but for the names of the lambda's variables. There they are numbered through, and
    Spark writes them into the code that it generates: it would not know a query's code again when the same query starts
    anew, and Java would compile it once more.
    """
    from pyspark import SparkContext
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import functions as F

    context = SparkContext._active_spark_context
    assert context is not None, "columns are made in a session"
    jvm: Any = context._jvm
    sql = jvm.org.apache.spark.sql
    origin = sql.catalyst.trees.CurrentOrigin.get()
    depth = _depth.get()
    variables = [
        SparkColumn(sql.Column(sql.internal.UnresolvedNamedLambdaVariable.apply(f"_{depth}_{i}", origin)))
        for i in range(len(inspect.signature(body).parameters))
    ]
    token = _depth.set(depth + 1)
    try:
        made = body(*variables)
    finally:
        _depth.reset(token)
    tools = sql.api.python.PythonSQLUtils
    sequence = jvm.PythonUtils.toSeq
    whole = F.col(column) if isinstance(column, str) else column
    function_of = tools.lambdaFunction(made._jc, sequence([variable._jc for variable in variables]))
    return SparkColumn(tools.fn(function, sequence([whole._jc, function_of])))


def referenced_columns(data: DataFrame, column: Column) -> set[str]:
    """The columns of the data frame that an expression names."""
    plan = data.select(column.alias("x"))._jdf.queryExecution().analyzed()
    found = plan.references().toSeq()
    return {str(found.apply(i).name()) for i in range(found.size())}


def physical_plan(data: DataFrame) -> str:
    """The plan that Spark would run, as text."""
    return str(data._jdf.queryExecution().executedPlan().toString())


# --- types ----------------------------------------------------------------------------------------------


def spark_type(type: Any) -> Any:
    """Spark's type of one of Arrow's."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(type)


def arrow_type(type: Any) -> Any:
    """Arrow's type of one of Spark's, as a function of columns gets it."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(type, timezone="UTC")


# --- Java's own opinion of texts in pipeline files ----------------------------------------------------


def compile_regex(spark: SparkSession, regex: str) -> Any:
    """Java's pattern. Raises Py4JJavaError with Java's reason."""
    return spark._jvm.java.util.regex.Pattern.compile(regex)


def check_zone(spark: SparkSession, zone: str) -> None:
    """Raises Py4JJavaError for a time zone that Java does not know."""
    spark._jvm.java.time.ZoneId.of(zone)


def knows_charset(spark: SparkSession, encoding: str) -> bool:
    """Raises Py4JJavaError for a name that no encoding could have."""
    return bool(spark._jvm.java.nio.charset.Charset.isSupported(encoding))


# --- sessions and queries -----------------------------------------------------------------------------


def set_active_session(spark: SparkSession) -> None:
    """Makes the session this thread's: Spark looks names of data sources up in the session of the thread."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def declare_no_packaged_sources(spark: SparkSession) -> None:
    """Tells Spark that no Python package brings data sources of its own, which it would start Python to find out. A
    Spark that keeps this elsewhere looks itself."""
    with contextlib.suppress(Py4JError):
        jvm: Any = spark._jvm
        manager = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
        nothing = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        getattr(getattr(manager, "MODULE$"), "dataSourceBuilders_$eq")(jvm.scala.Option.apply(nothing))


def packaged_sources_declared(spark: SparkSession) -> bool:
    """Whether Spark has, or needs no longer look for, the data sources of Python packages."""
    manager = getattr(spark._jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
    return bool(getattr(manager, "MODULE$").dataSourceBuilders().isDefined())


def hush_accumulators(spark: SparkSession) -> None:
    """Java may end before PySpark's server of accumulators does; socketserver would print a traceback of that."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def launch_java(settings: Mapping[str, str], output: IO[bytes]) -> None:
    """Starts Java, when it does not run yet, with its output in a file of ours."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        gateway = launch_gateway(conf, popen_kwargs={"stdout": output, "stderr": output})
        SparkContext._ensure_initialized(gateway=gateway)


def stop_java(spark: SparkSession) -> Callable[[float], None]:
    """Stops the session and asks Java to end by itself; call what it returns to wait for that."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()

    def wait(seconds: float) -> None:
        gateway.proc.wait(timeout=seconds)

    return wait


def progress_since(stream: StreamingQuery, latest: str) -> Iterator[Mapping[str, Any]]:
    """What Spark says of the query's micro-batches that began after `latest`, oldest first.

    `stream.recentProgress` would turn all that Spark keeps into JSON and objects at every look: after some minutes
    more work than the pipeline's own.
    """
    kept = stream._jsq.recentProgress()
    first = len(kept)
    while first and str(kept[first - 1].timestamp()) > latest:
        first -= 1
    for index in range(first, len(kept)):
        yield json.loads(kept[index].json())


# --- Hadoop's file systems ----------------------------------------------------------------------------


def hadoop(spark: SparkSession) -> Any:
    """The package org.apache.hadoop, as Java objects."""
    return spark._jvm.org.apache.hadoop


def file_system(spark: SparkSession, location: str) -> Any:
    """Hadoop's file system of a path or URL, configured as Spark's (`spark.hadoop.*`)."""
    return hadoop(spark).fs.Path(location).getFileSystem(spark._jsc.hadoopConfiguration())


# --- workers ------------------------------------------------------------------------------------------


class InputCut(RuntimeError):
    """Java ended before it had sent a task all its rows."""


def require_whole_input() -> None:
    """Raises InputCut in a task whose input has ended without Java saying so. To be called behind the last row.

    Arrow takes a stream that breaks off between two batches for one that ends there. So when Java is killed, a task in
    Python would take the rows that it has for all rows, and commit them. Behind the last batch Java writes a number, which
    the worker reads after the task; here it is only looked at.
    """
    from pyspark import TaskContext
    from pyspark.serializers import SpecialLengths

    if TaskContext.get() is None:
        return
    frame = sys._getframe()
    while frame is not None and not hasattr(frame.f_locals.get("infile"), "peek"):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        raise InputCut("this version of Spark does not let a task see the end of its rows")
    end = struct.pack("!i", SpecialLengths.END_OF_STREAM)
    found = frame.f_locals["infile"].peek(len(end))
    if not found or not end.startswith(found[: len(end)]):
        raise InputCut(
            "Spark's Java process ended while a task was getting its rows; they will be delivered again"
        )
