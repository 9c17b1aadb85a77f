"""The Spark session of a pipeline process: it starts quickly, logs little, and its Python workers find this package.

A plain session takes 4 to 9 seconds to start, most of which Java spends on loading and verifying 20,000 classes:
`class_archive` halves that.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.spark.connect import refuse_remote
from barnabas.pipelines.spark.folders import local_path
from barnabas.pipelines.spark.private import (
    declare_no_packaged_sources,
    file_system,
    hush_accumulators,
    launch_java,
    remember_names,
    set_active_session,
)
from barnabas.pipelines.spark.session.class_archive import cache_folder, java_command
from barnabas.pipelines.spark.session.launcher import python_of_workers
from barnabas.pipelines.spark.session.log import start_reason
from barnabas.pipelines.spark.session.shipping import build_zip, cluster_settings, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

JVM_LONG: Final = "-XX:+UseParallelGC -XX:MetaspaceSize=128m -XX:-DontCompileHugeMethods"
"""Spark loads so many classes at its start that Java by default collects all garbage twice to make room for them, which
takes half a second of CPU time. And Spark makes one method of all steps of a pipeline: by default Java does not compile
methods of more than 8,000 bytes, and the pipeline runs at a third of its speed."""
JVM_QUICK: Final = f"-XX:TieredStopAtLevel=1 {JVM_LONG}"
"""For a short run, in which the optimizing compiler would take more time than it saves."""

FILE_MANAGER_OPTION: Final = "spark.sql.streaming.checkpointFileManagerClass"
FILE_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # A failed division or conversion is an error, not null: steps send the record to the dead letters.
    "spark.sql.ansi.enabled": "true",
    # `status` and `Status` are different fields, and a record may have both.
    "spark.sql.caseSensitive": "true",
    # source.encoding may be any that Java supports.
    "spark.sql.legacy.javaCharsets": "true",
    # A type that every Parquet reader supports, instead of Spark's default INT96, which is deprecated.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.shuffle.partitions": "2",
    # Deriving further conditions from a filter helps no pipeline, and its time doubles with each alias of a column:
    # Spark would never finish planning a query that outputs share.
    "spark.sql.constraintPropagation.enabled": "false",
    # So does the time in which Spark looks for what a join by a computed field need not read. No source of a pipeline can
    # leave it out.
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    # The number of rows is limited instead, see `queries.batch_rows`.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    "spark.sql.streaming.metricsEnabled": "false",
    # Of a state on disk, what has changed is written after each micro-batch instead of all of it.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.python.filterPushdown.enabled": "true",
    # PySpark would report to Java the line of Python code of each column expression, which takes half of the time for
    # building a plan; but errors have to name lines of the pipeline file.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Over TCP, Nagle's algorithm and delayed acknowledgements cost each Python worker of a micro-batch 40 ms.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.driver.memory": "1g",
}
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "barnabas.pipelines.spark.daemon",
}
OWN_PACKAGE: Final = "pyspark_barnabas"
FILE_OPTIONS: Final = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles")
LOG_BYTES_MAX: Final = 1 << 20
"""How much of Java's output is searched for the reason why it ended."""
LOCAL_ADDRESS: Final = "SPARK_LOCAL_IP"
"""The environment variable with this host's address. Without it Spark looks up the host's own name before it reads any
setting, and does not start if that name cannot be resolved, as in many containers."""


def start_session(
    app: str,
    *,
    master: str | None = None,
    quick: bool = False,
    log_file: Path | None = None,
    conf: Mapping[str, str] | None = None,
    archive: Path | None = None,
) -> SparkSession:
    """The process's Spark session, with the format `barnabas` registered; an active session is used as it is.

    master: default local[*] with retries of failed tasks; to the workers of a cluster this package is shipped. quick:
    use the Java options for a short run. log_file: for the output of Spark and its Python workers. conf: more settings
    of Spark. archive: from `find_archive`. Raises PipelineError without Java, and for Spark Connect.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    refuse_remote(conf or {}, master, running)
    if running is not None:
        _register(running)
        return running
    _check_files(conf or {})
    java_command()
    # PySpark imports its pandas helpers whether they are used or not; nothing here uses pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    conf = dict(conf or {})
    # Up to four attempts for a task, as on a cluster: by default, local mode fails at the first error.
    master = master or conf.get("spark.master", "local[*,4]")
    python, is_local = os.environ.get("PYSPARK_PYTHON"), master.startswith("local")
    os.environ["PYSPARK_PYTHON"] = python_of_workers(python, cache_folder(), local=is_local)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        **DEFAULTS,
        **_placed(master),
        "spark.driver.extraJavaOptions": _jvm_options(quick, log_file, archive),
        **conf,
        "spark.master": master,
        "spark.app.name": app,
    }
    said_before = log_file.stat().st_size if log_file is not None and log_file.exists() else 0
    try:
        with _output(log_file) as output, _own_address(is_local):
            # Modules that the format needs are imported while Java starts.
            threading.Thread(
                target=importlib.import_module, args=("barnabas.pipelines.spark.topics.source",)
            ).start()
            _launch(settings, output)
            spark = SparkSession.builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"Spark did not start: {_why(error, log_file, said_before)}") from error
    _hush(spark)
    remember_names(spark)
    _spare_lookup(spark)
    _register(spark)
    return spark


def _check_files(conf: Mapping[str, str]) -> None:
    """Raises PipelineError for a file that settings name and that does not exist: Spark only logs that."""
    for option in FILE_OPTIONS:
        for location in filter(None, map(str.strip, conf.get(option, "").split(","))):
            path = local_path(location.partition("#")[0])
            if path is not None and not path.exists() and "*" not in location:
                raise PipelineError(f"{option}: {path}: no such file")


def _why(error: Exception, log_file: Path | None, begin: int) -> str:
    """Why Spark did not start, from what Java printed. begin: where this start's part of the log file begins."""
    if "JAVA_GATEWAY_EXITED" not in str(error):
        return start_reason(str(error))
    if log_file is None:
        return f"{java_command()} ended at once; start it with a log file to see why"
    with log_file.open("rb") as log_bytes:
        log_bytes.seek(begin)
        text = log_bytes.read(LOG_BYTES_MAX).decode(errors="replace")
    return f"{start_reason(text)} ({java_command()} ended at once; its output is in {log_file})"


@contextmanager
def _own_address(local: bool) -> Iterator[None]:
    """While Java starts for a local master, tells Spark this host's address, unless the user has. Not longer: a session
    on a cluster, in this process or one that it starts, needs an address that other hosts reach."""
    if not local or LOCAL_ADDRESS in os.environ:
        yield
        return
    os.environ[LOCAL_ADDRESS] = LOCAL["spark.driver.host"]
    try:
        yield
    finally:
        del os.environ[LOCAL_ADDRESS]


def _register(spark: SparkSession) -> None:
    from barnabas.pipelines.spark.topics.source import register

    register(spark)


def _spare_lookup(spark: SparkSession) -> None:
    """If no other installed package may have data sources (the package's name begins with `pyspark_`), tells Spark so; it
    would start Python to find out, which takes a second."""
    modules = {module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")}
    if modules - {OWN_PACKAGE}:
        return
    declare_no_packaged_sources(spark)


def _hush(spark: SparkSession) -> None:
    """Keeps PySpark from printing errors, because this package reports them in one line."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    hush_accumulators(spark)


def adopt_session(spark: SparkSession) -> None:
    """Makes this the active session of the thread, in which Spark looks up the names of data sources."""
    set_active_session(spark)


def is_local(spark: SparkSession, location: str) -> bool:
    """Whether a path or URL is on a local disk. If it is not, finding out may need the network."""
    return bool(file_system(spark, location).getScheme() == "file")


def choose_file_manager(spark: SparkSession, *, local: bool) -> None:
    """Choose how the queries that start next write their checkpoints: a query keeps the setting with which it starts.

    Without Hadoop's native library, Spark's default way runs the programs readlink and chmod 20 times per micro-batch on a
    local disk, which takes some 100 ms; the other interface runs them 4 times. Elsewhere (HDFS, object stores) Spark's own
    choice remains.
    """
    if spark.conf.get(FILE_MANAGER_OPTION, None) not in (None, FILE_MANAGER):
        return
    if local:
        spark.conf.set(FILE_MANAGER_OPTION, FILE_MANAGER)
    else:
        spark.conf.unset(FILE_MANAGER_OPTION)


def _jvm_options(quick: bool, log_file: Path | None, archive: Path | None) -> str:
    options = [JVM_QUICK if quick else JVM_LONG, "-Xlog:disable", "-Xlog:all=off"]
    options.append(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}")
    if log_file is not None:
        options.append(f"-Dbarnabas.spark.log={log_file}")
    if archive is not None:
        options += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    return " ".join(options)


def _placed(master: str) -> Mapping[str, str]:
    """Settings with which Spark's Python workers find this package, on a cluster too; also sets PYTHONPATH."""
    if master.startswith("local"):
        _add_to_path(Path(__file__).resolve().parents[4])
        return LOCAL
    archive = build_zip(cache_folder())
    _add_to_path(unpacked(archive))
    return cluster_settings(archive)


def _add_to_path(folder: Path) -> None:
    package = str(folder)
    rest = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != package]
    os.environ["PYTHONPATH"] = os.pathsep.join([package, *rest])


def _output(log_file: Path | None) -> IO[bytes]:
    if log_file is None:
        return open(os.devnull, "ab")
    log_file.parent.mkdir(parents=True, exist_ok=True)
    return open(log_file, "ab")


def _launch(settings: Mapping[str, str], output: IO[bytes]) -> None:
    """Starts Java and the Spark context. All that they print goes to `output`, so nothing appears on the terminal."""
    from pyspark import SparkConf, SparkContext

    launch_java(settings, output)
    # Made in another thread: in the main thread PySpark would install its own handler for Ctrl-C, which raises an error
    # in the middle of whatever call to Java is running.
    failures: list[BaseException] = []

    def make() -> None:
        try:
            SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
        except BaseException as error:
            failures.append(error)

    maker = threading.Thread(target=make, name="spark-context")
    maker.start()
    maker.join()
    if failures:
        raise failures[0]
