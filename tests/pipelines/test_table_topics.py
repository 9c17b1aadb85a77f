"""Topics of tables that lose old records are reported before anything is read."""

from __future__ import annotations

import pytest

from barnabas.client.blocking import NewTopic
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.serving.preparing import prepare

SPEC = """
pipeline: {t}
sources: {{rows: {{table: {t}, steps: [parse: {{json: {{id: int}}}}]}}}}
outputs: [{{topic: {t}-out}}]
"""


@pytest.mark.parametrize(
    ("configs", "count"),
    [
        ({"cleanup.policy": "compact"}, False),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, False),
        ({"cleanup.policy": "delete", "retention.ms": "86400000"}, True),
        ({"cleanup.policy": "compact,delete", "retention.ms": "86400000"}, True),
    ],
)
def test_a_topic_that_deletes_is_reported(bootstrap, client, new_topic, caplog, configs, count):
    topic = f"{new_topic()}-rows"
    client.create_topics([NewTopic(topic, 1, configs=configs)])
    prepare(parse_spec(SPEC.format(t=topic)), bootstrap)
    warnings = [record for record in caplog.records if record.message == "table topic deletes old records"]
    assert [(warning.table, warning.topic) for warning in warnings] == [("rows", topic)] * count
