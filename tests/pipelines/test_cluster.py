"""A pipeline on a standalone Spark cluster whose executors' Python does not have this package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pyspark
import pytest

from tests.pipelines.conftest import records_of, send
from tests.support.process import free_port

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("java") is None, reason="no Java for Spark's master and worker"),
]
THERE = ("pyarrow", "pandas", "numpy", "dateutil", "six.py", "pytz", "numpy.libs", "pandas.libs")
"""What an executor's Python has, besides the standard library."""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with pyarrow and pandas, and without this package and all else."""
    folder = tmp_path_factory.mktemp("executor") / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    import pyarrow

    ours = Path(pyarrow.__file__).parents[1]
    (theirs,) = (folder / "lib").glob("python*/site-packages")
    for name in THERE:
        if (ours / name).exists():
            (theirs / name).symlink_to(ours / name)
    python = str(folder / "bin" / "python")
    for module, code in (("pyarrow", 0), ("barnabas", 1), ("cramjam", 1), ("yaml", 1)):
        done = subprocess.run(
            [python, "-c", f"import {module}"], capture_output=True, env=clean(), cwd="/", check=False
        )
        assert done.returncode == code, (module, done.stderr)
    return python


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and a worker, started from PySpark's own files."""
    folder = tmp_path_factory.mktemp("spark-cluster")
    home = Path(pyspark.__file__).parent
    port, web = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    environment = {**clean(), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    program = str(home / "bin" / "spark-class")
    local = ["--host", "127.0.0.1"]
    commands = [
        ["org.apache.spark.deploy.master.Master", *local, "--port", str(port), "--webui-port", str(web)],
        ["org.apache.spark.deploy.worker.Worker", *local, "--webui-port", "0", "-c", "2", "-m", "1g",
         "-d", str(folder / "work"), url],
    ]  # fmt: skip
    running = []
    with (folder / "log").open("wb") as log:
        for command in commands:
            running.append(
                subprocess.Popen([program, *command], env=environment, cwd=folder, stdout=log, stderr=log)
            )
    try:
        give_up = time.monotonic() + 240
        while not workers(web):
            assert time.monotonic() < give_up, (folder / "log").read_text()
            time.sleep(0.2)
        yield url
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(30)


def workers(web: int) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{web}/json/", timeout=120) as answer:
            return json.load(answer)["aliveworkers"]
    except OSError:
        return 0


@pytest.mark.soak
def test_a_pipeline_on_a_cluster(bootstrap, client, new_topic, tmp_path, master, bare_python):
    source = new_topic(2, compression_type="zstd")
    send(client, source, [b'{"id": %d, "name": "n"}' % i for i in range(50)], 0)
    send(client, source, [b'{"id": %d}' % i for i in range(50, 60)] + [b"bad"], 1)
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"pipeline: {source}\nsource: {{topic: {source}}}\nsteps: [parse: {{json: {{id: int}}}}]\n"
        f"spark: {{spark.executor.memory: 512m, spark.ui.enabled: 'false'}}\n"
        "outputs:\n"
        f"  - {{topic: {source}-out, key: id, options: {{kafka.compression.type: zstd}}}}\n"
        f"  - {{name: files, files: {{path: {tmp_path}/archive, format: json}}}}\n"
    )
    environment = {**clean(), "PYSPARK_PYTHON": bare_python, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "pipeline", "run", str(file), "--once", "-b", bootstrap,
         "--master", master, "--checkpoints", str(tmp_path / "checkpoints"), "--json"],
        capture_output=True, text=True, env=environment, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows"], report["failed"]) == (61, 1)
    assert sorted(json.loads(row["value"])["id"] for row in records_of(client, f"{source}-out")) == [
        *range(60)
    ]
    assert [row["value"] for row in records_of(client, f"{source}-dead-letters")] == [b"bad"]
    lines = [line for f in (tmp_path / "archive").glob("*.json") for line in f.read_text().splitlines()]
    assert len(lines) == 60
