"""Tables with a changelog: a lost checkpoint is rebuilt from the topic, not from records that may be gone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.client.blocking import NewTopic
from barnabas.pipelines.compiler.changelogs import changelog_of
from barnabas.pipelines.compiler.queries import sink_settings
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.preparing import prepare
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

SPEC = """
pipeline: {t}
sources:
  orders: {{topic: {t}, steps: [parse: {{json: {{customer: string, amount: "decimal(9,2)", at: timestamp}}}}]}}
relations:
  totals:
    from: orders
    aggregate:
      by: [customer]
      compute: {{n: count(*), mean: avg(amount), latest: max(at), all: collect_list(amount)}}
    changelog: {t}-totals
  regulars: {{from: totals, steps: [filter: n >= 2]}}
outputs:
  - {{topic: {t}-regulars, from: regulars, config: {{cleanup.policy: compact}}}}
"""


def order(customer: str, amount: str, second: int = 0) -> bytes:
    at = f"2026-01-31T10:00:{second:02}.123456Z"
    return json.dumps({"customer": customer, "amount": amount, "at": at}).encode()


def newest(bootstrap: str, topic: str) -> dict[str, dict]:
    rows: dict[str, dict] = {}
    for record in consumed(bootstrap, topic):
        key = json.loads(record.key)
        if "customer" not in key:
            continue
        rows.pop(key["customer"], None)
        if record.value is not None:
            rows[key["customer"]] = json.loads(record.value)
    return rows


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_lost_checkpoint_is_rebuilt_from_the_changelog(spark, bootstrap, client, new_topic, tmp_path):
    topic, totals = (name := new_topic()), f"{name}-totals"
    spec = parse_spec(SPEC.format(t=topic))

    def run(checkpoints: str) -> None:
        run_pipeline(spec, bootstrap=bootstrap, checkpoint_dir=tmp_path / checkpoints, once=True)

    send(client, topic, [order("a", "1.00"), order("a", "2.50", 1), order("b", "0.05")])
    run("one")
    first = newest(bootstrap, totals)
    assert {customer: row["n"] for customer, row in first.items()} == {"a": 2, "b": 1}
    # What was counted is gone: only the changelog knows it.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        done.result(60)
    shutil.rmtree(tmp_path / "one")
    send(client, topic, [order("a", "0.10"), order("b", "0.15", 2)])
    run("one")
    run("one")  # nothing new: the restored checkpoint goes on without the changelog
    rows = newest(bootstrap, totals)
    assert (rows["a"]["n"], rows["a"]["mean"], rows["a"]["all"]) == (3, 1.2, [0.1, 1.0, 2.5])
    assert (rows["b"]["n"], rows["b"]["latest"]) == (2, "2026-01-31T10:00:02.123456Z")
    assert newest(bootstrap, f"{topic}-regulars") == rows

    send(client, topic, [order("b", "1.00")])
    run("one")
    assert newest(bootstrap, totals)["b"]["n"] == 3

    # A start elsewhere computes the table again; once it has, a lost checkpoint is rebuilt from the changelog.
    query = next(query for query in spec.queries() if query.keeps)
    settings = sink_settings(spec, query, bootstrap, None)
    again = changelog_of(spark, spec, query, str(tmp_path / "again"), settings)
    assert again is not None
    assert None not in again.begin(anew=True)
    elsewhere = replace(again, place=str(tmp_path / "elsewhere"), beginning="elsewhere")
    assert elsewhere.begin(anew=True) == (None, None)
    assert newest(bootstrap, totals) == {}

    other = parse_spec(SPEC.format(t=topic).replace("n: count(*)", "n: count(amount)"))
    with pytest.raises(PipelineError, match="has the state of another aggregate"):
        run_pipeline(other, bootstrap=bootstrap, checkpoint_dir=tmp_path / "other", once=True)
    stranger = parse_spec(SPEC.format(t=topic).replace(f"pipeline: {topic}", "pipeline: stranger"))
    with pytest.raises(PipelineError, match=f"has the rows of table {topic}/totals"):
        run_pipeline(stranger, bootstrap=bootstrap, checkpoint_dir=tmp_path / "stranger", once=True)


def test_a_changelog_that_is_not_compacted_is_refused(bootstrap, client, new_topic):
    topic = new_topic()
    client.create_topics([NewTopic(f"{topic}-totals", 1, configs={"cleanup.policy": "delete"})])
    with pytest.raises(PipelineError, match=r"pipeline:11: the changelog topic .* has cleanup.policy=delete"):
        prepare(parse_spec(SPEC.format(t=topic)), bootstrap)
