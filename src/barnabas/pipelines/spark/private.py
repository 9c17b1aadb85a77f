"""All code that uses internals of PySpark: Java objects, private classes and attributes.

No other module of the package does (`tests/unit/pipelines/test_spark_private.py` checks that). Another version of Spark
may change them without notice; the tests in `tests/pipelines/test_spark_private.py` show what each function relies on.

The package also relies on the form of Spark's plans, in two places that need no private class: see `kept`
and `always` of `frame.py`.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from barnabas.pipelines.spark.java_end import marked, watch

if TYPE_CHECKING:
    from subprocess import Popen

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

JAVA_TIMES = "spark.sql.datetime.java8API.enabled"
_depth: ContextVar[int] = ContextVar("depth", default=0)
"""How many lambdas enclose the one that is being made."""


# --- expressions and plans ----------------------------------------------------------------------------


def try_eval(column: Column) -> Column:
    """The expression, but null if it raises an error: Catalyst's TryEval, which `try_divide` and the like use."""
    from pyspark import SparkContext
    from pyspark.sql import Column as SparkColumn

    context = SparkContext._active_spark_context
    assert context is not None, "columns are made in a session"
    jvm: Any = context._jvm
    tools = jvm.org.apache.spark.sql.classic.ExpressionUtils
    inner = tools.expression(column._jc)
    return SparkColumn(tools.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(inner)))


def each(function: str, column: Column | str, body: Callable[..., Column]) -> Column:
    """Applies one of Spark's functions with a lambda, like `filter` and `transform`, to a column.

    The same as in `pyspark.sql.functions`, except for the names of the lambda's variables. PySpark numbers them
    consecutively in the whole process, and they occur in the code that Spark generates: if the same query starts again,
    Spark would not recognize its code, and Java would compile it again.
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
        result = body(*variables)
    finally:
        _depth.reset(token)
    tools = sql.api.python.PythonSQLUtils
    sequence = jvm.PythonUtils.toSeq
    whole = F.col(column) if isinstance(column, str) else column
    function_of = tools.lambdaFunction(result._jc, sequence([variable._jc for variable in variables]))
    return SparkColumn(tools.fn(function, sequence([whole._jc, function_of])))


def referenced_columns(data: DataFrame, column: Column) -> set[str]:
    """The columns of the data frame that an expression uses."""
    plan = data.select(column.alias("x"))._jdf.queryExecution().analyzed()
    referenced = plan.references().toSeq()
    return {str(referenced.apply(i).name()) for i in range(referenced.size())}


def physical_plan(data: DataFrame) -> str:
    """The plan that Spark would run, as text."""
    return str(data._jdf.queryExecution().executedPlan().toString())


# --- types ----------------------------------------------------------------------------------------------


def spark_type(type: Any) -> Any:
    """The Spark type for an Arrow type."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(type)


def arrow_type(type: Any) -> Any:
    """The Arrow type for a Spark type, as in the columns that Spark passes to Python functions."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(type, timezone="UTC")


# --- checks of texts in pipeline files by Java --------------------------------------------------------


def compile_regex(spark: SparkSession, regex: str) -> Any:
    """Compiles a Java pattern. Raises Py4JJavaError with Java's reason."""
    return spark._jvm.java.util.regex.Pattern.compile(regex)


def check_zone(spark: SparkSession, zone: str) -> None:
    """Raises Py4JJavaError for a time zone that Java does not support."""
    spark._jvm.java.time.ZoneId.of(zone)


def knows_charset(spark: SparkSession, encoding: str) -> bool:
    """Whether Java supports an encoding. Raises Py4JJavaError for an illegal name."""
    return bool(spark._jvm.java.nio.charset.Charset.isSupported(encoding))


# --- operators in Java -------------------------------------------------------------------------------


def compile_java(spark: SparkSession, package: str, sources: Mapping[str, str], jar: str) -> None:
    """Compiles Java sources, by file name, with the compiler that Spark has for its own code, into a new jar."""
    jvm: Any = spark._jvm
    tools = jvm.org.codehaus.commons.compiler.util.resource
    resources = spark.sparkContext._gateway.new_array(tools.Resource, len(sources))
    for place, (name, text) in enumerate(sources.items()):
        resources[place] = tools.StringResource(f"{package.replace('.', '/')}/{name}", text)
    classes = jvm.java.util.HashMap()
    compiler = jvm.org.codehaus.janino.CompilerFactory().newCompiler()
    compiler.setClassFileCreator(tools.MapResourceCreator(classes))
    compiler.compile(resources)
    out = jvm.java.util.jar.JarOutputStream(jvm.java.io.FileOutputStream(jar))
    for name in sorted(classes.keySet()):
        out.putNextEntry(jvm.java.util.jar.JarEntry(name))
        out.write(classes[name])
        out.closeEntry()
    out.close()


def java_class(spark: SparkSession, name: str) -> Any | None:
    """A class of the jars that were added to the session; None if there is none of this name."""
    try:
        return spark._jsparkSession.artifactManager().classloader().loadClass(name)
    except Py4JError:
        return None


def java_object(spark: SparkSession, name: str, *arguments: Any) -> Any:
    """A new object of such a class, by its only constructor. arguments: also Python objects that Java may call."""
    loaded = java_class(spark, name)
    assert loaded is not None, f"{name} was not added to the session"
    java_arguments = spark._jvm.java.util.ArrayList()
    for argument in arguments:
        java_arguments.add(argument)
    return loaded.getConstructors()[0].newInstance(java_arguments.toArray())


def java_array(spark: SparkSession, kind: str, values: Sequence[Any]) -> Any:
    """An array of Java objects."""
    jvm: Any = spark._jvm
    for part in kind.split("."):
        jvm = getattr(jvm, part)
    array = spark.sparkContext._gateway.new_array(jvm, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


def row_encoder(spark: SparkSession, schema: Any) -> Any:
    """Spark's encoder of rows with this schema. Times are those of java.time, which know every day and microsecond."""
    before = spark.conf.get(JAVA_TIMES)
    spark.conf.set(JAVA_TIMES, "true")
    try:
        tools: Any = spark._jvm.org.apache.spark.sql.Encoders
        return tools.row(spark._jsparkSession.parseDataType(schema.json()))
    finally:
        spark.conf.set(JAVA_TIMES, str(before))


def with_state(
    data: DataFrame, key: str, processor: Any, schema: Any, before: DataFrame | None = None
) -> DataFrame:
    """What a StatefulProcessor makes of the rows of each key. schema: of its results. before: rows with the key, of which it
    makes its state before the first micro-batch."""
    from pyspark.sql import DataFrame as SparkDataFrame

    spark = data.sparkSession
    streaming: Any = spark._jvm.org.apache.spark.sql.streaming
    timeless = getattr(streaming.TimeMode, "None")()
    out = row_encoder(spark, schema)
    how = [processor, timeless, streaming.OutputMode.Append()]
    how += [out] if before is None else [_by_key(before, key), out, row_encoder(spark, before.schema)]
    return SparkDataFrame(_by_key(data, key).transformWithState(*how), spark)


def by_key(data: DataFrame, key: str, function: Any) -> DataFrame:
    """What a FlatMapGroupsFunction makes of the rows of each key in a micro-batch: rows of the same schema."""
    from pyspark.sql import DataFrame as SparkDataFrame

    spark = data.sparkSession
    return SparkDataFrame(_by_key(data, key).flatMapGroups(function, row_encoder(spark, data.schema)), spark)


def _by_key(data: DataFrame, key: str) -> Any:
    spark = data.sparkSession
    grouped = data.groupBy(key)._jgd
    return getattr(grouped, "as")(
        row_encoder(spark, data.select(key).schema), row_encoder(spark, data.schema)
    )


def read_limit(spark: SparkSession, rows: int | None) -> Any:
    """The most rows of a micro-batch; None for all that there are."""
    limits: Any = spark._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
    return limits.allAvailable() if rows is None else limits.maxRows(rows)


def streamed_by(spark: SparkSession, feed: Any) -> DataFrame:
    """The rows of a source that is a Java object with a method `open`; Python is made ready to be called by Java."""
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.sql import DataFrame as SparkDataFrame

    ensure_callback_server_started(spark.sparkContext._gateway)
    return SparkDataFrame(feed.open(spark._jsparkSession), spark)


# --- user code -----------------------------------------------------------------------------------------


def pickled(code: Any, modules: Sequence[Any]) -> bytes:
    """An object as bytes, with all that it uses of these modules, which a worker may not have."""
    from pyspark import cloudpickle

    with by_value(modules):
        return bytes(cloudpickle.dumps(code))


@contextlib.contextmanager
def by_value(modules: Sequence[Any]) -> Iterator[None]:
    """While it is open, what is pickled takes all that it uses of these modules along."""
    from pyspark import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def unpickled(data: bytes) -> Any:
    """The object of `pickled`."""
    from pyspark import cloudpickle

    return cloudpickle.loads(data)


# --- sessions and queries -----------------------------------------------------------------------------


def java_session(spark: SparkSession) -> Any:
    """The session as a Java object."""
    return spark._jsparkSession


def set_active_session(spark: SparkSession) -> None:
    """Makes this the active session of the thread, in which Spark looks up the names of data sources."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def declare_no_packaged_sources(spark: SparkSession) -> None:
    """Tells Spark that no Python package has data sources, so that it need not start Python to find out. Has no effect
    on a version of Spark that stores this elsewhere."""
    with contextlib.suppress(Py4JError):
        jvm: Any = spark._jvm
        manager = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
        nothing = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        getattr(getattr(manager, "MODULE$"), "dataSourceBuilders_$eq")(jvm.scala.Option.apply(nothing))


def packaged_sources_declared(spark: SparkSession) -> bool:
    """Whether Spark already has the list of data sources of Python packages, so that it does not look for them."""
    manager = getattr(spark._jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
    return bool(getattr(manager, "MODULE$").dataSourceBuilders().isDefined())


def hush_py4j() -> None:
    """Keeps Py4J from writing tracebacks into the log of the process, which it does when Java ends: what fails because of
    that says so itself. It even uses the root logger, and gives it a handler."""
    from py4j import java_gateway  # type: ignore[import-untyped]

    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    java_gateway.logging = java_gateway.logger


def hush_accumulators(spark: SparkSession) -> None:
    """Keeps PySpark's accumulator server from printing a traceback when Java ends before it."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def remember_names(spark: SparkSession) -> None:
    """Keeps what the names of Java's packages, classes and static methods stand for. Py4J asks Java for each part of a name
    whenever it is used, which is most of the time in which a query is planned."""
    from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView  # type: ignore[import-untyped]

    kinds: dict[type, type] = {}

    def remembering(base: Any) -> type:
        class Remembering(base):
            def __getattr__(self, name: str) -> Any:
                value = super().__getattr__(name)
                if type(value) in kinds:
                    value.__class__ = kinds[type(value)]
                elif not isinstance(value, JavaMember):
                    return value  # a static field, which may change
                self.__dict__[name] = value
                return value

        return Remembering

    kinds.update({base: remembering(base) for base in (JVMView, JavaPackage, JavaClass)})
    view: Any = spark.sparkContext._jvm
    if type(view) is JVMView:
        view.__class__ = kinds[JVMView]


def launch_java(settings: Mapping[str, str], output: IO[bytes]) -> None:
    """Starts Java, unless it is running, with its standard output and error going to `output`. When it ends, all calls to
    it fail at once."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    hush_py4j()
    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with marked() as mark:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": output, "stderr": output})
    parameters = gateway.gateway_parameters
    port = parameters.port

    def refuse() -> list[int]:
        parameters.port = 0  # no process listens there: no more connections can be made
        # A call to Python may wait for an answer to one to Java, and its connection cannot be closed while it is read.
        server = gateway.__dict__.get("_callback_server")
        return [] if server is None else [server.get_listening_port()]

    if gateway.proc is not None:
        watch(gateway.proc, port, mark, refuse)
    SparkContext._ensure_initialized(gateway=gateway)


def stop_java(spark: SparkSession) -> Callable[[float], None]:
    """Stops the session and lets Java exit. Returns a function that waits for that, at most the given seconds."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()

    def wait(seconds: float) -> None:
        gateway.proc.wait(timeout=seconds)

    return wait


def kill_java() -> None:
    """Kills the Java process that `launch_java` started, if there is one; needs no answer from it."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def java_process() -> Popen[bytes] | None:
    """The Java process that `launch_java` started; None if there is none, or somebody else started it."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def forget_java(process: Popen[bytes]) -> None:
    """Lets PySpark forget a Java process that has ended, so that the next session starts another one. No effect if it has
    done so already."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    with SparkContext._lock:
        gateway, context = SparkContext._gateway, SparkContext._active_spark_context
        if gateway is None or gateway.proc is not process:
            return
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SQLContext._instantiatedContext = None
    with contextlib.suppress(Exception):  # it needs an answer from nobody, but its connections are broken
        gateway.shutdown_callback_server()
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.shutdown()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def progress_since(stream: StreamingQuery, latest: str) -> Iterator[Mapping[str, Any]]:
    """Spark's progress reports of the query's micro-batches that began after `latest` (ISO 8601), oldest first.

    `stream.recentProgress` would convert all stored reports to JSON and objects at each call, which after some minutes
    is more work than the pipeline itself.
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
    """Hadoop's file system for a path or URL, with Spark's settings (`spark.hadoop.*`)."""
    return hadoop(spark).fs.Path(location).getFileSystem(spark._jsc.hadoopConfiguration())


# --- workers ------------------------------------------------------------------------------------------


class InputCut(RuntimeError):
    """Java ended before it had sent all rows to a task."""


def require_whole_input() -> None:
    """Raises InputCut in a task whose input was cut off. To be called after the last row.

    Arrow treats a stream that breaks off between two batches as complete. So if Java is killed, a Python task would
    believe that it has all rows, and commit them. After the last batch Java writes a number, which the worker reads
    after the task; this function peeks at it.
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
    peeked = frame.f_locals["infile"].peek(len(end))
    if not peeked or not end.startswith(peeked[: len(end)]):
        raise InputCut(
            "Spark's Java process ended while a task was getting its rows; they will be delivered again"
        )
