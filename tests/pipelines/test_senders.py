"""Dead letters belong to a relation: they arrive also if the output whose query sends them is taken out of the file."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TEXT = """
pipeline: {t}
source:
  topic: {t}
steps: [parse: {{json: {{id: int}}}}]
outputs:
  - {{name: rows, database: {{url: "sqlite:///{path}?timeout=5", table: ids}}}}
  - {{topic: {t}-ids, key: id}}
"""


@pytest.mark.soak
def test_letters_of_an_output_that_was_stuck_and_then_removed(spark, bootstrap, client, new_topic, tmp_path):
    topic, path = new_topic(2), tmp_path / "out.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE ids (id INTEGER)")
    text = TEXT.format(t=topic, path=path)

    def run(text):
        return run_pipeline(
            parse_spec(text), once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints"
        )

    def letters():
        return sorted(record.value for record in consumed(bootstrap, f"{topic}-dead-letters"))

    send(client, topic, [b'{"id": 1}', b"bad 1"])
    run(text)
    send(client, topic, [b'{"id": 2}', b"bad 2"], partition=1)
    blocker = sqlite3.connect(path)
    blocker.execute("BEGIN IMMEDIATE")
    for _ in range(10):  # until the other output is past the bad record
        with suppress(PipelineError):
            run(text)
        if len(consumed(bootstrap, f"{topic}-ids")) == 2:
            break
    blocker.close()
    assert sorted(record.value for record in consumed(bootstrap, f"{topic}-ids")) == [
        b'{"id":1}',
        b'{"id":2}',
    ]
    assert letters() == [b"bad 1"], "the output that sends them is stuck"

    line = next(line for line in text.splitlines() if "name: rows" in line)
    shorter = text.replace(f"{line}\n", "")
    for _ in range(2):
        report = run(shorter)
        assert [query.name for query in report.queries] == [f"{topic}-ids", "dead-letters"]
        assert letters() == [b"bad 1", b"bad 2"]
