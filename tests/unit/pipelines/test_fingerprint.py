"""Fingerprints of plans: which changes a checkpoint can be continued with, and which it cannot."""

from __future__ import annotations

import json

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.fingerprint import Fingerprint, fingerprint

TEXT = """
pipeline: p
sources:
  a: {topic: a, steps: [parse: {json: {id: int, n: int, at: timestamp}}, filter: id > 1], time: {of: at, late: 1 minute}}
  b: {topic: b, start: latest, steps: [parse: {json: {id: int, at: timestamp}}], time: {of: at, late: 1 minute}}
relations:
  both: {join: {left: a, right: b, by: [id], within: 1 hour, prefix: b_}}
  once: {from: a, steps: [deduplicate: {by: [id], within: 1 hour}, hash: {fields: [n], salt: secret}]}
outputs:
  - name: sums
    from: once
    aggregate: {by: [id], compute: {total: sum(n)}, window: {of: at, every: 1 hour}, emit: final, late: 1 hour}
    topic: sums
  - {name: pairs, from: both, topic: pairs, key: id}
"""


def of(text: str, query: str) -> Fingerprint:
    spec = parse_spec(text)
    return fingerprint(spec.plan, next(asked for asked in spec.queries() if asked.name == query))


BEFORE = {name: of(TEXT, name) for name in ("sums", "pairs")}


def test_state_is_known_by_the_ids_of_operators():
    assert list(BEFORE["sums"].state) == ["once/deduplicate", "to sums/aggregate"]
    assert list(BEFORE["pairs"].state) == ["both/join"]
    assert Fingerprint.from_json(json.loads(json.dumps(BEFORE["sums"].to_json()))) == BEFORE["sums"]
    assert "secret" not in json.dumps(BEFORE["sums"].to_json())


@pytest.mark.parametrize(
    ("query", "old", "new"),
    [
        ("sums", "topic: a,", "topic: a, options: {maxOffsetsPerTrigger: 5},"),
        ("sums", "\n  b:", "\n\n  b:"),
        ("sums", "salt: secret", "salt: other"),
        ("pairs", "start: latest", "start: earliest"),
        ("pairs", "topic: pairs,", "trigger: 5 seconds, topic: pairs,"),
    ],
)
def test_what_makes_no_other_rows_makes_no_other_fingerprint(query, old, new):
    assert old in TEXT
    assert of(TEXT.replace(old, new, 1), query) == BEFORE[query]


@pytest.mark.parametrize(
    ("query", "old", "new", "part"),
    [
        ("sums", "filter: id > 1", "filter: id > 2", "a/filter"),
        ("sums", ", filter: id > 1", "", "a/filter"),
        ("sums", "by: [id], within: 1 hour}", "by: [id], within: 2 hours}", "once/deduplicate"),
        ("sums", "total: sum(n)", "all: sum(n)", "to sums/aggregate"),
        ("pairs", "filter: id > 1", "filter: id > 2", "a/filter"),
    ],
)
def test_what_keeps_the_state(query, old, new, part):
    assert old in TEXT
    after = of(TEXT.replace(old, new, 1), query)
    assert after.whole != BEFORE[query].whole
    assert BEFORE[query].other_parts(after) == [part]
    assert BEFORE[query].other_state(after) is None


@pytest.mark.parametrize(
    ("query", "old", "new", "reason"),
    [
        ("sums", "deduplicate: {by: [id]", "deduplicate: {by: [n]", "once/deduplicate keeps other state now"),
        ("sums", "sum(n)", "sum(id)", "to sums/aggregate keeps other state now"),
        ("sums", "every: 1 hour", "every: 2 hours", "to sums/aggregate keeps other state now"),
        ("sums", "deduplicate: {by: [id], within: 1 hour}, ", "", "once/deduplicate kept state, and is not"),
        ("pairs", "filter: id > 1", "deduplicate: {by: id, within: 1 hour}", "a/deduplicate keeps state, and was not"),
        ("pairs", "by: [id], within: 1 hour, p", "by: {id: n}, within: 1 hour, p", "both/join keeps other state"),
    ],
)  # fmt: skip
def test_what_does_not_keep_the_state(query, old, new, reason):
    assert old in TEXT
    assert reason in str(BEFORE[query].other_state(of(TEXT.replace(old, new, 1), query)))
