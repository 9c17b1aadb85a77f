"""The `python` that Spark starts on this machine: a script that makes it import PySpark from where it is installed.

Spark puts a zip with PySpark and one of its jars in front of PYTHONPATH. Python caches no compiled modules for a zip,
so each process, one per streaming query and several per session, would compile PySpark again: 0.6 s of the 1.1 s of CPU
time that its start takes. A script of a few lines, stored beside the class archive, removes both from PYTHONPATH and
runs Python. It also replaces PySpark's daemon by ours (daemon.py).
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

SCRIPT: Final = """#!/bin/sh
rest="${{PYTHONPATH#*/jars/spark-core*.jar:}}"
[ "$1 $2" = "-m pyspark.daemon" ] && shift 2 && set -- -m {daemon} "$@"
PYTHONPATH="${{rest:+$rest:}}"{packages} exec {python} "$@"
"""
"""The part that Spark puts in front ends with the jar. The folder of PySpark comes last, as installed packages do. Spark has
a setting for the daemon from which it forks the workers of tasks, but none for those that plan data sources."""
DAEMON: Final = "barnabas.pipelines.spark.daemon"


def launcher(folder: Path) -> Path | None:
    """The script to run in place of Python, made in `folder` if it is missing; None if there can be none."""
    packages = installed_in()
    if packages is None or os.name != "posix":
        return None
    text = SCRIPT.format(packages=shlex.quote(packages), python=shlex.quote(sys.executable), daemon=DAEMON)
    path = folder / f"python-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not os.access(path, os.X_OK):
        try:
            _write(path, text)
        except OSError as error:
            log.warning("no launcher for Python", extra={"reason": str(error)})
            return None
    return path if os.access(path, os.X_OK) else None  # a mount may forbid programs


def python_of_workers(python: str | None, folder: Path, *, local: bool) -> str:
    """The value of PYSPARK_PYTHON for a session. given: its present value, which is kept unless it is the launcher of
    an earlier session: the hosts of a cluster do not have that. local: whether workers run on this machine."""
    if python and not _is_launcher(Path(python)):
        return python
    return str((launcher(folder) if local else None) or sys.executable)


def _is_launcher(path: Path) -> bool:
    """Whether this file is a launcher, written by a session of this process or of its parent."""
    if not re.fullmatch(r"python-[0-9a-f]{12}", path.name):
        return False
    try:
        return path.read_text(errors="replace").startswith("#!/bin/sh\nrest=")
    except OSError:
        return True


def installed_in() -> str | None:
    """The folder with both PySpark and Py4J, as pip installs them; None if they are not in the same folder."""
    folders = set()
    for name in ("pyspark", "py4j"):
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin) if spec is not None and spec.origin is not None else None
        if origin is None or not origin.is_file():
            return None
        folders.add(str(origin.parents[1]))
    return folders.pop() if len(folders) == 1 else None


def _write(path: Path, text: str) -> None:
    """Writes the script under another name, then moves it: another process never finds it half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as fresh:
        fresh.write(text)
    try:
        os.chmod(fresh.name, 0o755)
        os.replace(fresh.name, path)
    except OSError:
        os.unlink(fresh.name)
        raise
