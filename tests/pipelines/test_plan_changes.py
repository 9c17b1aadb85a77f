"""A checkpoint knows the plan that it was made with: other state is refused before anything starts."""

from __future__ import annotations

import json
import re

import pytest

from barnabas.pipelines.compiler.changes import NOTE
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import records_of, send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TEXT = """
pipeline: {t}
source: {{topic: {t}}}
steps: [parse: {{json: {{id: int, n: int}}}}]
outputs:
  - name: sums
    topic: {t}-sums
    aggregate: {{by: [id], compute: {{total: sum(n)}}}}
"""


def test_a_changed_plan(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic()
    text = TEXT.format(t=topic)
    note = tmp_path / topic / "sums" / NOTE

    def run(text):
        run_pipeline(parse_spec(text), once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        return [json.loads(record["value"]) for record in records_of(client, f"{topic}-sums")]

    send(client, topic, [b'{"id": 1, "n": 2}'])
    assert run(text) == [{"id": 1, "total": 2}]
    assert list(dict(json.loads(note.read_text())["state"])) == ["to sums/aggregate"]

    send(client, topic, [b'{"id": 1, "n": 3}'])
    message = re.escape("to sums/aggregate keeps other state now")
    with pytest.raises(PipelineError, match=f"query sums cannot be continued from its checkpoint: {message}"):
        run(text.replace("sum(n)", "max(n)"))

    # As a checkpoint of an earlier version: it has no fingerprint, is continued, and gets one.
    before = note.read_text()
    note.unlink()
    (note.parent / f".{NOTE}.crc").unlink(missing_ok=True)
    assert run(text)[-1] == {"id": 1, "total": 5}
    assert note.read_text() == before

    # Rows before the state may change.
    send(client, topic, [b'{"id": 1, "n": 4}', b'{"id": 1, "n": 100}'])
    filtered = text.replace("n: int}}]", "n: int}}, filter: n < 50]")
    assert filtered != text
    assert run(filtered)[-1] == {"id": 1, "total": 9}
    assert note.read_text() != before
