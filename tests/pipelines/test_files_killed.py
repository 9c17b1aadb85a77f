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

from barnabas.pipelines.run import run_pipeline
from barnabas.pipelines.spec import parse_spec
from tests.pipelines.conftest import send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

PROGRAM = """
import sys, time
from pathlib import Path
from barnabas.pipelines.delivery import base
from barnabas.pipelines.folders import Folder
from barnabas.pipelines.run import run_pipeline
from barnabas.pipelines.session import build_archive, start_session
from barnabas.pipelines.spec import parse_spec

text, bootstrap, checkpoints, place, reached = sys.argv[1:]
move = Folder.move

def stand_still(*_):
    Path(reached).touch()
    while True:
        time.sleep(1)

def move_one(self, source, target):
    move(self, source, target)
    if not target.startswith("_"):
        stand_still()

if place == "one file moved":
    Folder.move = move_one
else:
    base._bury = stand_still  # comes after the files, before Spark's checkpoint
start_session("killed", master="local[1,1]", quick=True, archive=build_archive())
run_pipeline(parse_spec(text), once=True, bootstrap=bootstrap, checkpoint_dir=checkpoints)
"""


def killed(folder: Path, place: str, *arguments: str) -> None:
    """Runs the pipeline in a process that stands still at a place, and kills it there."""
    reached, log_path = folder / place, folder / "log"
    command = [sys.executable, "-c", PROGRAM, *arguments, place, str(reached)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        give_up = time.monotonic() + 90
        while not reached.exists():
            assert process.poll() is None, log_path.read_text()
            assert time.monotonic() < give_up, log_path.read_text()
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # Java and the Python workers with it
        process.wait()


def test_killed_before_the_checkpoint(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1)
    text = (
        f"pipeline: {topic}\nsource: {{topic: {topic}}}\nsteps: [parse: {{json: {{id: int, day: string}}}}]\n"
        f"outputs: [{{name: out, files: {{path: {tmp_path}/out, format: json, partition_by: [day], "
        "merge: {files: 2}}}]\n"
    )
    checkpoints = tmp_path / "checkpoints"

    def add(number: int) -> None:
        rows = [{"id": number * 10 + i, "day": ("mo", "tu")[i % 2]} for i in range(4)]
        send(client, topic, [json.dumps(row).encode() for row in rows])

    def run() -> None:
        run_pipeline(parse_spec(text), once=True, bootstrap=bootstrap, checkpoint_dir=checkpoints)

    def there() -> list[int]:
        files = (tmp_path / "out").glob("day=*/[!_.]*.json")
        return sorted(json.loads(line)["id"] for file in files for line in file.read_text().splitlines())

    def committed() -> set[str]:
        return {path.name for path in checkpoints.glob("*/*/commits/[0-9]*")}

    everything = [batch * 10 + i for batch in range(4) for i in range(4)]
    for number in (0, 1):
        add(number)
        run()
    add(2)
    killed(tmp_path, "one file moved", text, bootstrap, str(checkpoints))
    assert len(there()) == 10
    assert committed() == {"0", "1"}
    add(3)
    killed(tmp_path, "all files moved", text, bootstrap, str(checkpoints))
    assert there() == everything[:12]
    assert committed() == {"0", "1"}
    run()
    assert there() == everything
    assert committed() == {"0", "1", "2", "3"}
