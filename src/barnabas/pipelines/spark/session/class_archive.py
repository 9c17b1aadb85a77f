"""An archive of the classes that Spark loads (`-XX:SharedArchiveFile`), which halves the time that a session takes to
start.

It is made once for each version of Java and Spark, by a short training session in a separate process. No run waits for
it: the first one starts without it, and starts a background process of the lowest priority that makes it. To make it at
once, as `make test` does:

    python -m barnabas.pipelines.spark.session.class_archive
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

from barnabas.pipelines.plan.errors import PipelineError

log = logging.getLogger(__name__)

TRAINING_SECONDS_MAX: Final = 300
NICE: Final = 19
MODULE: Final = "barnabas.pipelines.spark.session.class_archive"
TRAINING: Final = "barnabas.pipelines.serving.training"
"""The module that is run while Java writes the archive; a name, because that module stands on all others."""
ARCHIVE_DISABLED: Final = "BARNABAS_NO_CLASS_ARCHIVE"


def java_command() -> str:
    """The path of the `java` that Spark will run. Raises PipelineError when there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java is on the PATH"
        raise PipelineError(f"Spark needs Java 17 or newer, and {where}: install openjdk-17-jre-headless")
    return os.path.realpath(java)


def cache_folder() -> Path:
    """The folder for files that can be made again: $BARNABAS_CACHE, or `barnabas` in the user's cache folder."""
    own = os.environ.get("BARNABAS_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "barnabas"


def archive_path() -> Path:
    """The path of the class archive for the installed Java and Spark; other versions have other files."""
    java = Path(java_command())
    spark = Path(pyspark.__file__).parent
    stamp = f"{java}|{java.stat().st_mtime_ns}|{pyspark.__version__}|{spark}|{spark.stat().st_mtime_ns}"
    digest = hashlib.sha256(stamp.encode()).hexdigest()[:12]
    return cache_folder() / f"spark-{pyspark.__version__}-{digest}.jsa"


def failure_path(archive: Path) -> Path:
    """The file with the reason why an archive could not be made. While it exists, runs do not try again."""
    return archive.with_suffix(".failed")


def find_archive() -> Path | None:
    """The class archive; if it is missing, starts a process that makes it for the next run, and returns None."""
    if os.environ.get(ARCHIVE_DISABLED):
        return None
    path = archive_path()
    if path.exists():
        return path
    if not failure_path(path).exists():
        _build_behind()
    return None


def build_archive() -> Path | None:
    """Makes the class archive if it is missing, which takes some 20 s; returns None when that is not possible.

    If two processes do this at the same time, the second waits for the first and uses its archive.
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
            [sys.executable, "-m", TRAINING, str(fresh)],
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
        pass  # the folder is not writable either; the caller has logged the reason


def _build_behind() -> None:
    """Starts a process of the lowest priority that makes the archive and may outlive this one."""
    # The program `nice` is used, because a process with threads must run no code between fork and exec.
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


if __name__ == "__main__":
    archive = build_archive()
    print(archive or "no class archive could be made")
    sys.exit(archive is None and not os.environ.get(ARCHIVE_DISABLED))
