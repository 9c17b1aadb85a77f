"""What Spark runs in place of Python imports PySpark from where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.pipelines.spark.session import launcher as launching
from barnabas.pipelines.spark.session.launcher import installed_in, launcher, python_of_workers

SPARK = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-src.zip:/spark/jars/spark-core_2.13-4.3.0.jar"


@pytest.mark.parametrize("rest", ["/mine", "/mine:/and more", ""])
def test_spark_s_part_of_the_path_is_gone(tmp_path: Path, rest: str) -> None:
    script = launcher(tmp_path / "cache")
    assert script is not None
    assert launcher(tmp_path / "cache") == script
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sys.prefix != sys.base_prefix)"
    done = subprocess.run(
        [script, "-c", code, "two words"],
        env={**os.environ, "PYTHONPATH": f"{SPARK}:{rest}" if rest else f"{SPARK}:"},
        capture_output=True,
        text=True,
        check=True,
    )
    path = os.pathsep.join(part for part in (rest, installed_in()) if part)
    assert done.stdout == f"{path} ['two words'] True\n"


def test_another_path_stays_as_it_is(tmp_path: Path) -> None:
    script = launcher(tmp_path)
    assert script is not None
    done = subprocess.run(
        [script, "-c", "import os; print(os.environ['PYTHONPATH'])"],
        env={**os.environ, "PYTHONPATH": "/a:/b"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"/a:/b:{installed_in()}\n"


def test_where_it_cannot_be_made_or_pyspark_is_a_zip_python_itself_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert launcher(tmp_path / "file") is None
    monkeypatch.setattr(launching, "installed_in", lambda: None)
    assert launcher(tmp_path) is None


def test_a_launcher_is_not_what_a_session_on_a_cluster_is_given(tmp_path: Path) -> None:
    ours = str(launcher(tmp_path))
    assert python_of_workers(None, tmp_path, local=True) == ours
    assert python_of_workers(ours, tmp_path, local=True) == ours
    gone = str(tmp_path / "python-0123456789ab")  # of a cache that was emptied since
    for python in (None, "", ours, gone):
        assert python_of_workers(python, tmp_path, local=False) == sys.executable
    for python in ("python3", "/usr/bin/python-3.12"):
        assert {python_of_workers(python, tmp_path, local=local) for local in (True, False)} == {python}


def test_workers_of_all_kinds_are_forked_from_our_daemon(tmp_path: Path) -> None:
    script = launcher(tmp_path)
    assert script is not None
    command = [script, "-m", "pyspark.daemon", "no.such.module"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "barnabas/pipelines/spark/daemon.py" in done.stderr
    assert "No module named 'no'" in done.stderr
