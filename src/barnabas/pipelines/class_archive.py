"""An archive of the classes that Spark loads (`-XX:SharedArchiveFile`): a session starts in half the time with it.

It is made once for each version of Java and Spark, by a short training session in a process of its own. Nobody waits
for it: the first run starts without it and leaves a process of the lowest priority behind, which makes it. To make it
at once, as `make test` does:

    python -m barnabas.pipelines.class_archive
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyspark

from barnabas.pipelines.errors import PipelineError

log = logging.getLogger(__name__)

TRAINING_SECONDS_MAX: Final = 300
NICE: Final = 19
MODULE: Final = "barnabas.pipelines.class_archive"
ARCHIVE_DISABLED: Final = "BARNABAS_NO_CLASS_ARCHIVE"


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


def failure_path(archive: Path) -> Path:
    """Holds the reason why an archive could not be made; while it exists, nobody tries again behind a run."""
    return archive.with_suffix(".failed")


def find_archive() -> Path | None:
    """The class archive when there is one; otherwise None, and a process begins to make it for the next run."""
    if os.environ.get(ARCHIVE_DISABLED):
        return None
    path = archive_path()
    if path.exists():
        return path
    if not failure_path(path).exists():
        _build_behind()
    return None


def build_archive() -> Path | None:
    """Makes the class archive when it is not there; None when that is not possible. Takes some 20 s, once.

    Two processes that build at the same time: the second waits, and finds what the first has made.
    """
    if os.environ.get(ARCHIVE_DISABLED):
        return None
    path = archive_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _build(path)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("no class archive", extra={"reason": str(error)})
        _note_failure(path, error)
        return None
    return path


def _build(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        fresh = Path(folder) / "classes.jsa"
        subprocess.run(
            [sys.executable, "-m", MODULE, "--train", str(fresh)],
            check=True,
            timeout=TRAINING_SECONDS_MAX,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.replace(fresh, path)
    failure_path(path).unlink(missing_ok=True)


def _note_failure(path: Path, error: Exception) -> None:
    try:
        failure_path(path).write_text(f"{error}\nDelete this file to try again.\n")
    except OSError:
        pass  # the folder cannot be written either: the warning has said so


def _build_behind() -> None:
    """Starts a process that makes the archive and outlives this one; it yields the processor to everybody else."""
    # An exec'd `nice` needs no code between fork and exec, which a process with threads must not run.
    nice = [shutil.which("nice") or "nice", "-n", str(NICE)]
    try:
        subprocess.Popen(
            [*nice, sys.executable, "-m", MODULE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        log.warning("no class archive", extra={"reason": str(error)})


def _train(path: str) -> None:
    """Runs what pipelines run, small, so that the archive holds the classes they need."""
    from barnabas.pipelines.session import JVM_QUICK, start_session
    from barnabas.pipelines.spark_private import stop_java
    from barnabas.pipelines.training import exercise

    folder = Path(path).parent
    options = f"{JVM_QUICK} -Xlog:disable -Xlog:all=off -XX:ArchiveClassesAtExit={path}"
    spark = start_session("barnabas-training", conf={"spark.driver.extraJavaOptions": options})
    exercise(spark, folder)
    wait = stop_java(spark)  # it writes the archive on its way out
    wait(TRAINING_SECONDS_MAX)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        _train(sys.argv[2])
    else:
        made = build_archive()
        print(made or "no class archive could be made")
        sys.exit(made is None and not os.environ.get(ARCHIVE_DISABLED))
