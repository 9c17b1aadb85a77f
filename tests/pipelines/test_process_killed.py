"""A run with user code is killed with Java and all workers in a micro-batch; states and output are as if it had not been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from barnabas.pipelines.fronts.yaml.spec import load_spec
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

CODE = """
import time
from pathlib import Path
from barnabas.pipelines.processing import ListState, Processor, ValueState

REACHED = Path({reached!r})

class Count(Processor):
    returns = {{"k": "string", "n": "bigint", "seen": "array<int>"}}
    count = ValueState("bigint")
    seen = ListState("int")

    def process(self, row):
        if row["x"] == {stop} and not REACHED.exists():
            REACHED.touch()
            time.sleep(3600)
        self.count.set(self.count.get(0) + 1)
        self.seen.append(row["x"])
        yield {{"k": self.key, "n": self.count.get(), "seen": list(self.seen)}}
"""
PIPELINE = """
pipeline: {t}
source: {{topic: {t}, options: {{maxOffsetsPerTrigger: 20}}}}
steps:
  - parse: {{json: {{k: string, x: int}}}}
  - process: {{with: code:Count, key: k}}
outputs: [{{topic: {t}-out}}]
"""
COMMAND = ("-m", "barnabas", "pipeline", "run")


@pytest.mark.parametrize("stop", [45, 99])
def test_killed_in_a_micro_batch(spark, bootstrap, client, new_topic, tmp_path, stop):
    t = new_topic()
    reached, checkpoints = tmp_path / "reached", tmp_path / "checkpoints"
    (tmp_path / "code.py").write_text(CODE.format(reached=str(reached), stop=stop))
    (tmp_path / "p.yaml").write_text(PIPELINE.format(t=t))
    send(client, t, [json.dumps({"k": "abc"[x % 3], "x": x}).encode() for x in range(100)])
    arguments = (str(tmp_path / "p.yaml"), "--once", "-b", bootstrap, "--checkpoints", str(checkpoints))
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, *COMMAND, *arguments], stdout=log, stderr=log, start_new_session=True
        )
    try:
        give_up = time.monotonic() + 400
        while not reached.exists():
            assert run.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < give_up, (tmp_path / "log").read_text()
            time.sleep(0.05)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    before = len(consumed(bootstrap, f"{t}-out"))
    assert before == stop // 20 * 20
    run_pipeline(load_spec(tmp_path / "p.yaml"), once=True, bootstrap=bootstrap, checkpoint_dir=checkpoints)
    rows = [json.loads(record.value) for record in consumed(bootstrap, f"{t}-out")]
    for place, key in enumerate("abc"):
        mine = list(range(place, 100, 3))
        wanted = [{"k": key, "n": n, "seen": mine[:n]} for n in range(1, len(mine) + 1)]
        assert [row for row in rows if row["k"] == key] == wanted
