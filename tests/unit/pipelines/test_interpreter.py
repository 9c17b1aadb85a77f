"""The interpreter of plans, on histories whose results are plain to see."""

from __future__ import annotations

import json

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.interpret.expressions import Failed, NotInterpreted, evaluated
from barnabas.pipelines.plan.interpret.interpreter import Interpreter, Record

SPEC = """
pipeline: p
sources:
  visits: {topic: visits, steps: [parse: {json: {id: int, who: string}}]}
  people: {table: people, steps: [parse: {json: {who: string, city: string}}, filter: city <> 'away']}
  cities: {table: cities, steps: [parse: {json: {city: string, size: int}}]}
relations:
  met: {join: {left: visits, right: people, by: who, kind: left}}
  full: {join: {left: people, right: cities, by: city, kind: full}}
  counts: {from: people, aggregate: {by: [city], compute: {people: count(*), names: collect_list(who)}}}
  crowds: {from: counts, steps: [filter: people > 1]}
outputs:
  - {from: met, topic: o1}
  - {from: full, topic: o2}
  - {from: crowds, topic: o3}
"""


def interpreter() -> Interpreter:
    return Interpreter(parse_spec(SPEC, "p.yaml").plan)


def person(who: str, city: str | None, at: int, offset: int) -> Record:
    value = None if city is None else json.dumps({"who": who, "city": city}).encode()
    return Record("people", who.encode(), value, at, offset=offset)


def rows(model: Interpreter, name: str) -> list:
    return sorted(model.table(name).values(), key=str)


def test_tables_follow_updates_and_deletes():
    model = interpreter()
    model.read([person("ann", "rome", 1, 0), person("bob", "rome", 2, 1), person("eve", "oslo", 3, 2)])
    assert rows(model, "crowds") == [{"city": "rome", "people": 2, "names": ["ann", "bob"]}]
    model.read([Record("cities", b"rome", b'{"city": "rome", "size": 3}')])
    assert rows(model, "full") == [
        {"who": "ann", "city": "rome", "size": 3},
        {"who": "bob", "city": "rome", "size": 3},
        {"who": "eve", "city": "oslo", "size": None},
    ]
    model.read([person("ann", "away", 4, 3), person("bob", None, 5, 4)])
    assert rows(model, "crowds") == []
    assert rows(model, "full") == [
        {"who": "eve", "city": "oslo", "size": None},
        {"who": None, "city": "rome", "size": 3},
    ]


def test_a_stream_meets_the_table_of_its_time():
    model = interpreter()
    visit = [Record("visits", None, b'{"id": %d, "who": "ann"}' % at, at, offset=at) for at in (1, 3, 5)]
    model.read([*visit, person("ann", "oslo", 5, 1), person("ann", "rome", 2, 0)])
    assert [(row["id"], row["city"]) for row in model.stream("met")] == [(1, None), (3, "rome"), (5, "oslo")]


def test_of_one_key_the_newest_offset_counts():
    model = interpreter()
    model.read([person("ann", "oslo", 9, 0), person("ann", "rome", 1, 1)])
    assert rows(model, "people") == [{"who": "ann", "city": "rome"}]


def test_records_that_fail_are_letters():
    model = interpreter()
    model.read([Record("people", None, b"{}"), Record("visits", b"k", b"no", offset=1)])
    assert [(letter.relation, letter.reason) for letter in model.letters] == [
        ("people", "a record of a table needs a key"),
        ("visits", "no JSON"),
    ]


def test_expressions_have_three_truth_values():
    fields = {"a": None, "b": 2, "t": "x"}
    cases = {
        "a > 1 and b = 3": False,
        "a > 1 and b = 2": None,
        "a > 1 or b = 2": True,
        "not a": None,
        "a is null": True,
        "a in (1, 2)": None,
        "b in (1, 2)": True,
        "coalesce(a, b)": 2,
        "case when a > 1 then 1 else 0 end": 0,
        "concat_ws('-', a, b, t)": "2-x",
        "b / 4": 0.5,
        "-7 % 4": -3,
        "t like '_'": True,
    }
    assert {text: evaluated(text, fields) for text in cases} == cases
    with pytest.raises(Failed):
        evaluated("b / 0", fields)
    with pytest.raises(NotInterpreted):
        evaluated("soundex(t)", fields)
