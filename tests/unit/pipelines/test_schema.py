"""The JSON Schema for editors, applied by a validator that others wrote: it takes what we take."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from barnabas.pipelines.fronts.yaml.schema import pipeline_schema
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.kinds.steps import STEPS
from barnabas.pipelines.plan.errors import PipelineError

ROOT = Path(__file__).parents[3]
VALIDATOR = Draft202012Validator(pipeline_schema())
FILES = sorted(file for file in ROOT.glob("examples/**/*.yaml") if "pipeline:" in file.read_text())

EVERYTHING = """
pipeline: all
bootstrap: ${env:BROKERS}
group: team.all
trigger: 5 seconds
spark: {spark.sql.shuffle.partitions: 4}
source:
  pattern: "logs-.*"
  start: {group: old, otherwise: latest}
  encoding: latin1
  options: {maxOffsetsPerTrigger: 5000, kafka.security.protocol: SSL}
dead_letters: {topic: d, partitions: 2, config: {retention.ms: 1000}}
steps:
  - parse: {key_values: all, pairs: ";"}
  - parse: {csv: {a: int}, from: line, separator: "|"}
  - split: {by: [",", ";"], into: [a, _, b], trim: false}
  - convert: {a: INT, b: "decimal(10, 2)"}
  - time: {field: at, format: [unix, yyyy-MM-dd], zone: Europe/Berlin}
  - substring: {field: b, start: -3, to: end}
  - mask: {fields: card, right: 4}
  - replace: {field: b, regex: x+, with: y}
  - deduplicate: {by: a, within: 10 minutes}
  - headers: {set: {shop: "'north'"}, keep: [trace]}
  - flatten: {}
  - unflatten
outputs:
  - topic: out
    partitions: ${env:COUNT}
    route: {by: a, topics: {x: out-x}}
    options: {kafka.compression.type: zstd}
  - name: counts
    database: {url: "sqlite://", table: t, key: hour}
    aggregate: {window: {of: at, every: 1 hour, as: hour}, by: [a], compute: {n: count(*)}, late: 1 day}
  - files: {path: /tmp/x, format: json, merge: {files: 5}}
"""


def loaded(text: str):
    """As editors read YAML: times stay text."""

    class Plain(yaml.SafeLoader):
        pass

    Plain.yaml_implicit_resolvers = {
        key: [row for row in rows if row[0] != "tag:yaml.org,2002:timestamp"]
        for key, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return yaml.load(text, Plain)


def complaints(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(loaded(text))]


def test_it_is_a_schema_and_knows_every_step():
    schema = pipeline_schema()
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    (group, _) = schema["$defs"]["steps"]["anyOf"][1]["anyOf"]
    assert set(group["properties"]) == set(STEPS)
    assert all(step["description"] for step in group["properties"].values())
    options = schema["properties"]["source"]["properties"]["options"]["properties"]
    assert "maxOffsetsPerTrigger" in options
    assert not {"stopFile", "firstOffsets", "subscribe"} & set(options)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_examples_are_valid(path):
    assert complaints(path.read_text()) == []


def test_files_of_every_kind_are_valid(monkeypatch):
    monkeypatch.setenv("BROKERS", "h:1")
    monkeypatch.setenv("COUNT", "3")
    assert complaints(EVERYTHING) == []
    assert parse_spec(EVERYTHING).outputs[0].partitions == 3
    shown = re.findall(r"```yaml\n(pipeline:.*?)```", (ROOT / "docs/pipelines.md").read_text(), re.DOTALL)
    assert shown
    assert [complaints(text) for text in shown] == [[]] * len(shown)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("steps:", "stepps:"),
        ("pipeline: all\n", ""),
        ('pattern: "logs-.*"', 'pattern: "logs-.*"\n  topic: a'),
        ('pattern: "logs-.*"', 'patern: "logs-.*"'),
        ("otherwise: latest", "otherwise: last"),
        ("{group: old, otherwise", "{at: 5, otherwise"),
        ("partitions: 2", "partitions: none"),
        ("- split:", "- spilt:"),
        ("into: [a, _, b], ", ""),
        ("trim: false", "trim: perhaps"),
        ("a: INT", "a: [int]"),
        ('b: "decimal(10, 2)"', "b: intt"),
        ("start: -3", "start: first"),
        ("right: 4", "right: -1"),
        ("regex: x+", "regex: x+, find: x"),
        ("within: 10 minutes", "within: soon"),
        ("- unflatten", "- unflattn"),
        ("key: hour}", "keys: hour}"),
        ('url: "sqlite://"', 'url: "sqlite://", driver: sqlite3'),
        ("window: {of: at, every: 1 hour, as: hour}, ", ""),
        ("compute: {n: count(*)}", "compute: {}"),
        ("format: json", "format: jsonl"),
        ("  - topic: out\n", "  - topic: out\n    console: {}\n"),
        ("  - topic: out\n", "  - name: out\n"),
        ("trigger: 5 seconds", "trigger: 5"),
    ],
)
def test_what_we_refuse_the_schema_refuses(monkeypatch, old, new):
    monkeypatch.setenv("BROKERS", "h:1")
    monkeypatch.setenv("COUNT", "3")
    assert old in EVERYTHING
    broken = EVERYTHING.replace(old, new, 1)
    with pytest.raises(PipelineError, match=r"^f(:\d+)?: "):
        parse_spec(broken, "f")
    assert complaints(broken)
