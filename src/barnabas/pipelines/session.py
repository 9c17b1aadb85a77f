"""The Spark session of a pipeline process: quick to start, quiet, its Python workers finding this package.

A plain session takes Java 4 to 9 seconds to start, most of it loading and checking 20,000 classes: `class_archive`
halves that.
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
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from barnabas.pipelines.class_archive import cache_folder, java_command
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.launcher import python_of_workers
from barnabas.pipelines.shipping import build_zip, cluster_settings, unpacked
from barnabas.pipelines.spark_private import (
    declare_no_packaged_sources,
    file_system,
    hush_accumulators,
    launch_java,
    set_active_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

JVM_LONG: Final = "-XX:+UseParallelGC -XX:MetaspaceSize=128m -XX:-DontCompileHugeMethods"
"""Spark loads so many classes while it starts that Java, unless told otherwise, collects all garbage twice to make room for
them: half a second of CPU time. And Spark makes one method of all steps of a pipeline: Java leaves a method of more than
8,000 bytes to its interpreter unless told otherwise, and the pipeline runs at a third of its speed."""
JVM_QUICK: Final = f"-XX:TieredStopAtLevel=1 {JVM_LONG}"
"""For a run that ends by itself: the optimizing compiler would cost more than it gives."""

FILE_MANAGER_OPTION: Final = "spark.sql.streaming.checkpointFileManagerClass"
FILE_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # What does not divide or convert is an error, not null: steps send the record to the dead letters.
    "spark.sql.ansi.enabled": "true",
    # `status` and `Status` are two fields of a record, and both of them stay.
    "spark.sql.caseSensitive": "true",
    # source.encoding may be any that Java knows.
    "spark.sql.legacy.javaCharsets": "true",
    # As every reader of Parquet understands it; Spark's INT96 is older than the format's own type.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.shuffle.partitions": "2",
    # What Spark concludes from one condition about other columns helps no pipeline, and its time doubles with each column
    # that stands for another: where outputs share a query it would plan for ever.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    # See `queries.size_batches`: rows are bounded instead.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.python.filterPushdown.enabled": "true",
    # PySpark would tell Java before each column expression which line of ours makes it: half of the time that building a
    # plan takes, for a hint in errors that mean the lines of a pipeline's file.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Over TCP, Nagle's algorithm and delayed acknowledgements cost each Python worker of a micro-batch 40 ms.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.driver.memory": "1g",
}
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start_session(
    app: str,
    *,
    master: str | None = None,
    quick: bool = False,
    log_file: Path | None = None,
    conf: Mapping[str, str] | None = None,
    archive: Path | None = None,
) -> SparkSession:
    """The process's Spark session, with the format `barnabas` registered; one that runs is taken as it is.

    master: default local[*] with retries of failed tasks; to another this package is shipped. quick: compile for
    a short run. log_file: what Spark and its Python workers say. archive: from `find_archive`. Raises PipelineError
    without Java.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        _register(running)
        return running
    java_command()
    # PySpark imports its pandas helpers whether they are used or not; nothing here uses pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    conf = dict(conf or {})
    # A failed task runs again, up to four times, as on a cluster: local mode alone would give up at once.
    master = master or conf.get("spark.master", "local[*,4]")
    given, is_local = os.environ.get("PYSPARK_PYTHON"), master.startswith("local")
    os.environ["PYSPARK_PYTHON"] = python_of_workers(given, cache_folder(), local=is_local)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        **DEFAULTS,
        **_placed(master),
        "spark.driver.extraJavaOptions": _jvm_options(quick, log_file, archive),
        **conf,
        "spark.master": master,
        "spark.app.name": app,
    }
    try:
        with _output(log_file) as output:
            # What the format needs is imported while Java starts.
            threading.Thread(target=importlib.import_module, args=("barnabas.pipelines.source",)).start()
            _launch(settings, output)
            spark = SparkSession.builder.getOrCreate()
    except PySparkException as error:
        said = str(error).splitlines()[0]
        if "JAVA_GATEWAY_EXITED" in said:
            where = (
                f"what it said is in {log_file}"
                if log_file is not None
                else "run it with a log file to see why"
            )
            said = f"{java_command()} ended at once; Spark needs Java 17 or newer and enough memory; {where}"
        raise PipelineError(f"Spark did not start: {said}") from error
    _hush(spark)
    _spare_lookup(spark)
    _register(spark)
    return spark


def _register(spark: SparkSession) -> None:
    from barnabas.pipelines.source import register

    register(spark)


def _spare_lookup(spark: SparkSession) -> None:
    """Tells Spark that no package here brings data sources of its own, when none does (their names begin with
    `pyspark_`). It would start Python, a second's work, to find that out."""
    if any(module.name.startswith("pyspark_") for module in pkgutil.iter_modules()):
        return
    declare_no_packaged_sources(spark)


def _hush(spark: SparkSession) -> None:
    """What goes wrong is told by us, in one line; PySpark would print it as well."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    hush_accumulators(spark)


def adopt_session(spark: SparkSession) -> None:
    """Makes the session this thread's: Spark looks names of data sources up in the session of the thread."""
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
    """The settings with which Spark's Python workers find this very package, here (PYTHONPATH) and elsewhere."""
    if master.startswith("local"):
        _add_to_path(Path(__file__).resolve().parents[2])
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
    """Starts Java with its output in our file: what a Python worker prints must not meet the terminal."""
    from pyspark import SparkConf, SparkContext

    launch_java(settings, output)
    # Made by another thread: on the main one it would take Ctrl-C for itself, and raise in the middle of whatever
    # Java is being asked.
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
