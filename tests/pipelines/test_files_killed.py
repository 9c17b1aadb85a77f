"""Deliveries to files by a process that is killed: with some files of a batch in place, and with all of them but
before its checkpoint. The next run replaces them: no row is there twice, none is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = """
import sys, time
from pathlib import Path
from barnabas.pipelines.kinds.targets import base
from barnabas.pipelines.spark.folders import Folder
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.pipelines.spark.session.class_archive import find_archive
from barnabas.pipelines.spark.session.start import start_session
from barnabas.pipelines.fronts.yaml.spec import parse_spec

text, bootstrap, checkpoints, place, reached = sys.argv[1:]
move = Folder.move

def stand_still(*_):
    Path(reached).touch()
    while True:
        time.sleep(1)

def move_one(self, source, target):
    move(self, source, target)
    if target.startswith("day="):
        stand_still()

if place == "one file moved":
    Folder.move = move_one
else:
    base._bury = stand_still  # comes after the files, before Spark's checkpoint
start_session("killed", master="local[1,1]", quick=True, archive=find_archive())
run_pipeline(parse_spec(text), once=True, bootstrap=bootstrap, checkpoint_dir=checkpoints)
"""


class Killed:
    """A run of the pipeline in a process of its own, which stands still at a place and is killed there."""

    def __init__(self, folder: Path, place: str, *arguments: str) -> None:
        self.reached, self.log = folder / "reached", folder / "log"
        command = [sys.executable, "-c", PROGRAM, *arguments, place, str(self.reached)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait(self) -> None:
        give_up = time.monotonic() + 240
        while not self.reached.exists():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)  # Java and the Python workers with it
        self.process.wait()


class Case:
    """A topic of rows for two days, and where the rows of a pipeline over it are."""

    def __init__(self, client: BlockingClient, topic: str, folder: Path) -> None:
        self.client, self.topic, self.folder = client, topic, folder
        folder.mkdir()
        self.text = (
            f"pipeline: {topic}\nsource: {{topic: {topic}}}\n"
            "steps: [parse: {json: {id: int, day: string}}]\n"
            f"outputs: [{{name: out, files: {{path: {folder}/out, format: json, partition_by: [day]}}}}]\n"
        )

    def add(self, *ids: int) -> None:
        rows = [{"id": i, "day": ("mo", "tu")[i % 2]} for i in ids]
        send(self.client, self.topic, [json.dumps(row).encode() for row in rows])

    def there(self) -> list[int]:
        files = (self.folder / "out").glob("day=*/[!_.]*.json")
        return sorted(json.loads(line)["id"] for file in files for line in file.read_text().splitlines())

    def committed(self) -> set[str]:
        return {path.name for path in self.folder.glob("checkpoints/*/*/commits/[0-9]*")}


@pytest.mark.soak
@pytest.mark.parametrize("place", ["all files moved", "one file moved"])
def test_killed_before_the_checkpoint(spark, bootstrap, client, new_topic, tmp_path, place):
    case = Case(client, new_topic(1), tmp_path / "case")
    checkpoints = case.folder / "checkpoints"
    case.add(0, 1, 2, 3)
    run = Killed(case.folder, place, case.text, bootstrap, str(checkpoints))
    try:
        run.wait()
    finally:
        run.kill()
    assert case.there() in ([[0, 1, 2, 3]] if place == "all files moved" else [[0, 2], [1, 3]])
    assert case.committed() == set()
    case.add(4, 5)
    run_pipeline(parse_spec(case.text), once=True, bootstrap=bootstrap, checkpoint_dir=checkpoints)
    assert case.there() == [0, 1, 2, 3, 4, 5]
    assert case.committed() == {"0", "1"}
