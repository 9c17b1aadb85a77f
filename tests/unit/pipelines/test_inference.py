"""What a plan knows of its relations without Spark: schema, key and kind."""

from __future__ import annotations

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.expressions import Expression, FieldName, FixedText, JoinedFields
from barnabas.pipelines.plan.relations import SOURCE
from barnabas.pipelines.plan.schema import Key, RowKind, Schema

START = "parse: {json: {id: long, name: string, at: timestamp, tags: 'array<int>'}}"
ROW = {"id": "bigint", "name": "string", "at": "timestamp", "tags": "array<int>"}


def schema_after(*steps: str) -> Schema:
    listed = ", ".join([START, *steps])
    text = f"pipeline: p\nsource: {{topic: a}}\nsteps: [{listed}]\noutputs: [{{topic: b}}]"
    return parse_spec(text).plan[SOURCE].schema


@pytest.mark.parametrize(
    ("step", "changed", "gone"),
    [
        ("convert: {id: int, name: boolean}", {"id": "int", "name": "boolean"}, ()),
        ("convert: {id: 'decimal(10,2)'}", {"id": "decimal(10,2)"}, ()),
        ("time: {field: name, to: read}", {"read": "timestamp"}, ()),
        ("format_time: {field: at, format: yyyy}", {"at": "string"}, ()),
        ("set: {copy: id, fixed: \"'x'\", sum: id + 1}", {"copy": "bigint", "fixed": "string", "sum": None}, ()),
        ("constant: {a: 1, b: x, c: true, d: 1.5}", {"a": "int", "b": "string", "c": "boolean", "d": "double"}, ()),
        ("metadata: {from: topic, n: offset}", {"from": "string", "n": "bigint"}, ()),
        ("drop: [id, name]", {}, ("id", "name")),
        ("rename: {id: number}", {"number": "bigint"}, ("id",)),
        ("explode: {field: tags, to: tag, index: n}", {"tag": "int", "n": "int"}, ("tags",)),
        ("split: {from: name, by: ',', into: [first, _, last]}", {"first": "string", "last": "string"}, ()),
        ("extract: {from: name, fields: {x: $.x}}", {"x": "string"}, ()),
        ("hash: {fields: [id]}", {"id": "string"}, ()),
        ("substring: {field: name, start: 1, to: head}", {"head": "string"}, ()),
        ("parse: {regex: '(?<a>.)(?<b>.)', from: name}", {"a": "string", "b": "string"}, ()),
        ("parse: {csv: {a: int}, from: name}", {"a": "int"}, ()),
        ("filter: id > 1", {}, ()),
        ("deduplicate: {by: [id], within: 1 hour}", {}, ()),
    ],
)  # fmt: skip
def test_an_operator_changes_the_schema(step, changed, gone):
    after = schema_after(step)
    assert dict(after.fields) == {name: kind for name, kind in (ROW | changed).items() if name not in gone}
    assert after.closed


def test_keep_closes_an_open_schema():
    opened = schema_after("parse: {json: all, from: name}")
    assert (opened.open, "name" in opened.fields, opened.type_of("any")) == (True, False, "variant")
    kept = schema_after("parse: {json: all, from: name}", "keep: [id, any]")
    assert (kept.closed, dict(kept.fields)) == (True, {"id": "bigint", "any": "variant"})


def test_what_only_spark_knows_is_said_to_be_unknown():
    registry = schema_after("parse: {registry: {url: 'http://h', subject: s}}")
    assert (registry.partial, registry.closed) == (True, False)
    assert schema_after("set: {o: \"named_struct('a', 1)\"}", "flatten: {fields: [o]}").partial
    assert not schema_after("flatten: {fields: [name]}").partial
    schema = schema_after("rename: {id: x.a, name: x.b}", "unflatten: {fields: [x]}")
    assert dict(schema.fields) == {"x": None, "at": "timestamp", "tags": "array<int>"}


SEVERAL = """
pipeline: p
sources:
  orders: {topic: orders, steps: [parse: {json: {id: int, who: string, at: timestamp}}], time: {of: at, late: 1 minute}}
  paid: {topic: paid, steps: [parse: {json: {id: int, sum: double, at: timestamp}}], time: {of: at, late: 1 minute}}
  users: {table: users, steps: [parse: {json: {who: string, town: string}}]}
  changes: {topic: changes, tombstones: deletes, steps: [parse: {json: {id: long}}]}
relations:
  known: {join: {left: orders, right: users, by: [who]}}
  both: {join: {left: orders, right: paid, by: [id], within: 1 hour, prefix: p_}}
  all: {union: [orders, changes]}
  hours:
    from: known
    aggregate: {window: {every: 1 hour, as: hour}, by: [town], compute: {n: count(*), m: max(id)}, emit: final}
  named: {from: hours, steps: [rename: {town: place}]}
outputs:
  - {topic: o1, from: both}
  - {topic: o2, from: all}
  - {topic: o3, from: named}
"""


def test_relations_have_schema_key_and_kind():
    plan = parse_spec(SEVERAL).plan
    kinds = {name: (relation.rows, relation.key) for name, relation in plan.relations.items()}
    assert kinds == {
        "orders": (RowKind.STREAM, None),
        "paid": (RowKind.STREAM, None),
        "users": (RowKind.TABLE, Key()),
        "changes": (RowKind.CHANGELOG, Key()),
        "known": (RowKind.STREAM, None),
        "both": (RowKind.STREAM, None),
        "all": (RowKind.CHANGELOG, None),
        "hours": (RowKind.STREAM, Key(("hour", "town"))),
        "named": (RowKind.STREAM, Key(("hour", "place"))),
    }
    assert Key().of_record
    assert dict(plan["known"].schema.fields) == {
        "id": "int", "who": "string", "at": "timestamp", "town": "string"
    }  # fmt: skip
    assert list(plan["both"].schema.fields) == ["id", "who", "at", "p_id", "p_sum", "p_at"]
    assert plan["all"].schema.fields["id"] is None, "int in one, bigint in the other"
    assert dict(plan["hours"].schema.fields) == {
        "hour": "timestamp", "town": "string", "n": "bigint", "m": None
    }  # fmt: skip


def test_operators_keep_their_ids_when_others_come_and_go():
    def ids(*steps: str) -> list[str]:
        text = f"pipeline: p\nsource: {{topic: a}}\nsteps: [{', '.join(steps)}]\noutputs: [{{topic: b}}]"
        return [operator.id for operator in parse_spec(text).plan[SOURCE].operators]

    assert ids(START, "drop: id", "drop: name") == ["source/parse", "source/drop", "source/drop.2"]
    assert ids(START, "filter: id > 1", "drop: id") == ["source/parse", "source/filter", "source/drop"]
    plan = parse_spec(SEVERAL).plan
    assert plan["hours"].aggregate.id == "hours/aggregate"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a", FieldName("a")),
        ("`a`", FieldName("a")),
        ("'it is'", FixedText("it is")),
        ("concat_ws('-', a, `b`)", JoinedFields("-", ("a", "b"))),
        ("null", None),
        ("a.b", None),
        ("'a${b}'", None),
        ("`a", None),
        ("a + 1", None),
        ("concat_ws('-', a, null)", None),
    ],
)
def test_forms_of_expressions(text, form):
    assert Expression.of(text, "f:1").form == form
    assert Expression.of(text, "f:1") == Expression.of(text, "g:2")
