"""The cases in cases/: what statements make of records, as ksqlDB documents it, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.pipelines.sql.trial.cases import BadCase, Case, case_of_files, cases_of, run_case

FOLDER = Path(__file__).parent / "cases"
FILES = sorted(FOLDER.iterdir())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_case_has_its_documented_result(path: Path) -> None:
    results = [run_case(case) for case in cases_of(path)]
    assert [(result.name, result.problem) for result in results if result.problem is not None] == []


def test_there_are_cases_in_quantity() -> None:
    assert sum(len(cases_of(path)) for path in FILES) >= 700


STREAM = "CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', format='JSON');"


@pytest.mark.parametrize(
    ("expectation", "problem"),
    [
        ({"outputs": [{"topic": "O", "value": {"V": 2}}]}, 'output 1: value is {"V": 1}, not {"V": 2}'),
        ({"outputs": [{"topic": "O", "key": 2, "value": {"V": 1}}]}, "output 1: key is 1, not 2"),
        ({"outputs": []}, "a record was written, and none is expected"),
        ({"outputs": [{"topic": "O", "value": {"V": 1}}] * 2}, "2 outputs are expected, but there are 1"),
        ({"expectedException": {"message": "x"}}, "it did not fail, but was to fail with 'x'"),
    ],
)
def test_what_is_not_as_expected_is_told(expectation: dict, problem: str) -> None:
    query = "CREATE STREAM o AS SELECT id, v FROM s EMIT CHANGES;"
    inputs = [{"topic": "s", "key": 1, "value": {"v": 1}}]
    result = run_case(Case("c", {"statements": [STREAM, query], "inputs": inputs, **expectation}))
    assert result.problem is not None
    assert problem in result.problem


def test_three_files_are_a_case(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(STREAM + "CREATE STREAM o AS SELECT id, v + 1 AS v FROM s;")
    (tmp_path / "in.json").write_text(
        json.dumps({"inputs": [{"topic": "s", "key": 1, "value": {"v": 1}, "timestamp": 5}]})
    )
    (tmp_path / "out.json").write_text(
        json.dumps({"outputs": [{"topic": "O", "key": 1, "value": {"V": 2}, "timestamp": 5}]})
    )
    case = case_of_files(tmp_path / "a.sql", tmp_path / "in.json", tmp_path / "out.json")
    assert run_case(case).problem is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.json", "{", "this is not JSON"),
        ("x.json", "[]", 'an object with "tests"'),
        ("x.json", '{"tests": [1]}', '"name"'),
    ],
)
def test_files_that_hold_no_cases_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadCase) as raised:
        cases_of(tmp_path / name)
    assert message in str(raised.value)
    assert name in str(raised.value)
