"""The Spark session of a pipeline process: quick to start, quiet, its Python workers finding this package.

A plain session takes Java 4 to 9 seconds to start, most of it loading and checking 20,000 classes. An archive of
them, made once per Spark and Java version, halves that (`-XX:SharedArchiveFile`). It is made by a short training
session in a process of its own:

    python -m barnabas.pipelines.session
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import pkgutil
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.shipping import build_zip, cluster_settings, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

JVM_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
"""For a run that ends by itself: the optimizing compiler would cost more than it gives."""
JVM_LONG: Final = "-XX:+UseParallelGC"
TRAINING_SECONDS_MAX: Final = 180
ARCHIVE_DISABLED: Final = "BARNABAS_NO_CLASS_ARCHIVE"

FILE_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # What does not divide or convert is an error, not null: steps send the record to the dead letters.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Over TCP, Nagle's algorithm and delayed acknowledgements cost each Python worker of a micro-batch 40 ms.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.driver.memory": "1g",
}
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def java_command() -> str:
    """The `java` that Spark will run. Raises PipelineError when there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java is on the PATH"
        raise PipelineError(f"Spark needs Java 17 or newer, and {where}: install openjdk-17-jre-headless")
    return os.path.realpath(java)


def cache_folder() -> Path:
    """Where things that can be made again are kept."""
    own = os.environ.get("BARNABAS_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "barnabas"


def archive_path() -> Path:
    """The class archive for this Java and this Spark: another of either gets another file."""
    java = Path(java_command())
    spark = Path(pyspark.__file__).parent
    stamp = f"{java}|{java.stat().st_mtime_ns}|{pyspark.__version__}|{spark}|{spark.stat().st_mtime_ns}"
    digest = hashlib.sha256(stamp.encode()).hexdigest()[:12]
    return cache_folder() / f"spark-{pyspark.__version__}-{digest}.jsa"


def build_archive(say: Callable[[str], None] = lambda _: None) -> Path | None:
    """Makes the class archive when it is not there; None when that is not possible. Takes some 20 s, once."""
    if os.environ.get(ARCHIVE_DISABLED):
        return None
    path = archive_path()
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            say("preparing Spark's class archive, once for this Java and Spark")
            fresh = Path(folder) / "classes.jsa"
            training = [sys.executable, "-m", "barnabas.pipelines.session", "--train", str(fresh)]
            subprocess.run(
                training,
                check=True,
                timeout=TRAINING_SECONDS_MAX,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            os.replace(fresh, path)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("no class archive", extra={"reason": str(error)})
        return None
    return path


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
    a short run. log_file: what Spark and its Python workers say. archive: from `build_archive`. Raises PipelineError
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
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = dict(conf or {})
    # A failed task runs again, up to four times, as on a cluster: local mode alone would give up at once.
    master = master or conf.get("spark.master", "local[*,4]")
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
        raise PipelineError(f"Spark did not start: {str(error).splitlines()[0]}") from error
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
    with contextlib.suppress(Py4JError):  # another Spark may keep this elsewhere: then it looks itself
        jvm: Any = spark._jvm
        manager = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
        nothing = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        getattr(getattr(manager, "MODULE$"), "dataSourceBuilders_$eq")(jvm.scala.Option.apply(nothing))


def _hush(spark: SparkSession) -> None:
    """What goes wrong is told by us, in one line; PySpark would print it as well."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        # Java may end before this side-line does; socketserver would print a traceback of that.
        server.handle_error = lambda *_: None


def adopt_session(spark: SparkSession) -> None:
    """Makes the session this thread's: Spark looks names of data sources up in the session of the thread."""
    jvm = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def quick_checkpoints(spark: SparkSession, location: str) -> None:
    """How the queries that start next write their checkpoints, for a checkpoint at this location.

    Without Hadoop's native library Spark's usual way runs the programs readlink and chmod 20 times per micro-batch
    on a local disk, some 100 ms; by the other interface it is 4 times. Elsewhere (HDFS, object stores) Spark's choice stays.
    """
    name = "spark.sql.streaming.checkpointFileManagerClass"
    if spark.conf.get(name, None) not in (None, FILE_MANAGER):
        return
    place = spark._jvm.org.apache.hadoop.fs.Path(location)
    if place.getFileSystem(spark._jsc.hadoopConfiguration()).getScheme() == "file":
        spark.conf.set(name, FILE_MANAGER)
    else:
        spark.conf.unset(name)


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
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    if SparkContext._gateway is None:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": output, "stderr": output})
        SparkContext._ensure_initialized(gateway=gateway)
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


def _train(path: str) -> None:
    """Runs what pipelines run, small, so that the archive holds the classes they need."""
    from barnabas.pipelines.training import exercise

    folder = Path(path).parent
    options = f"{JVM_QUICK} -Xlog:disable -Xlog:all=off -XX:ArchiveClassesAtExit={path}"
    spark = start_session("barnabas-training", conf={"spark.driver.extraJavaOptions": options})
    exercise(spark, folder)
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()  # Java ends by itself then, and writes the archive on its way out
    gateway.proc.wait(timeout=TRAINING_SECONDS_MAX)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        _train(sys.argv[2])
    else:
        made = build_archive(print)
        print(made or "no class archive could be made")
