"""State that grows without a bound is named, and counted."""

from __future__ import annotations

from barnabas.pipelines.compiler.queries import state_of
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.growth import growing_state

SPEC = """
pipeline: p
sources:
  a: {topic: a, steps: [parse: {json: {id: int, at: timestamp}}]}
  t: {table: t, steps: [parse: {json: {id: int}}]}
relations:
  all: {from: a, aggregate: {by: [id], compute: {n: count(*), ats: collect_set(at)}}}
  ended: {from: a, aggregate: {window: {of: at, every: 1 hour}, late: 1 hour, by: [id], compute: {n: count(*)}}}
  of_table: {from: t, aggregate: {by: [id], compute: {n: count(*)}}}
outputs:
  - {from: all, topic: o1}
  - {from: ended, topic: o2}
  - {from: of_table, topic: o3}
  - {from: a, topic: o4, aggregate: {window: {of: at, every: 1 hour, as: hour}, compute: {n: count(*)}}}
  - {from: a, topic: o5, aggregate: {window: {of: at, every: 1 hour}, late: 1 hour, compute: {n: count(*)}}}
"""


def test_what_grows_is_named():
    assert growing_state(parse_spec(SPEC, "p.yaml").plan) == {
        "all/aggregate": "keeps a result for each id and every value of ats for ever",
        "to o4/aggregate": "keeps a result for each hour for ever",
    }


def test_states_of_user_code_that_nothing_bounds_are_named(tmp_path):
    (tmp_path / "counting.py").write_text("def count(row, kept):\n    return []\n")
    entry = "with: 'counting:count', key: id, returns: {id: int}, state: {seen: {value: long}, names: {list: string}}"
    spec = """
pipeline: p
source: {topic: a}
steps: [parse: {json: {id: int}}, process: {%s}]
outputs: [{topic: b}]
"""

    def named(text: str) -> dict[str, str]:
        return growing_state(parse_spec(spec % text, "p.yaml", tmp_path).plan)

    assert named(entry) == {"source/process": "keeps seen and names for each key until the code removes it"}
    bounded = entry.replace("seen: {value: long}, names: {list: string}", "seen: {value: long, ttl: 1 hour}")
    assert named(bounded) == named(entry + ", time: clock") == {}


def test_rows_and_bytes_of_all_operators():
    in_files = {"numRowsTotal": 3, "memoryUsedBytes": 10, "customMetrics": {"rocksdbSstFileSize": 500}}
    progress = {"stateOperators": [in_files, {"numRowsTotal": 2, "memoryUsedBytes": 7}]}
    assert state_of(progress) == (5, 517)
    assert state_of({}) == (0, 0)
