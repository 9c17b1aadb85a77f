"""The expressions of the cases, computed by Spark: the same results as without it, which are those that ksqlDB documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Relation, declared
from barnabas.pipelines.fronts.sql.expressions import Translator, quoted, text_literal
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.fronts.sql.rows import reading, storable
from barnabas.pipelines.fronts.sql.scopes import Side, SourceScope
from barnabas.pipelines.sql.trial.cases import same

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]
CASES = Path(__file__).parents[1] / "unit" / "pipelines" / "sql" / "cases"


def groups() -> Iterator[Any]:
    for path in sorted(CASES.glob("*.json")):
        for case in json.loads(path.read_text(), parse_float=Decimal)["tests"]:
            if "expressions" in case and case["name"] != "row times":
                yield pytest.param(case, id=case["name"].replace(" ", "-"))


@pytest.mark.parametrize("case", list(groups()))
def test_spark_computes_what_is_documented(spark: Any, case: dict[str, Any]) -> None:
    (statement,) = read_statements(
        f"CREATE STREAM i ({case['columns']}) WITH (kafka_topic='i', value_format='JSON')"
    )
    assert isinstance(statement, s.Create)
    relation = declared(statement)
    rows = columns(spark, relation, case["row"])
    wrong = {}
    for text, wanted in case["expressions"]:
        if isinstance(wanted, dict) and set(wanted) == {"error"}:
            continue
        (query,) = read_statements(f"SELECT {text} AS f FROM i EMIT CHANGES")
        assert isinstance(query, s.Query)
        typed = Translator(SourceScope([Side("I", relation)])).translate(query.select.items[0].expression)
        value = f"named_struct('F', {storable(f'({typed.text})', typed.type)})"
        shown = rows.selectExpr(f"to_json({value}, map('ignoreNullFields', 'false'))").collect()[0][0]
        result = json.loads(shown, parse_float=Decimal)["F"]
        if not same(wanted, result):
            wrong[text] = (wanted, result)
    assert wrong == {}


def columns(spark: Any, relation: Relation, row: dict[str, Any]) -> Any:
    """The columns of a row, as a query makes them of a record."""
    parse, *rest = reading(relation, set())
    kinds = ", ".join(f"{quoted(name)} {kind}" for name, kind in parse["parse"]["json"].items())
    data = spark.createDataFrame([(json.dumps(row, default=float),)], "_value string")
    data = data.selectExpr(f"from_json(_value, {text_literal(kinds)}) AS r").selectExpr("r.*")
    for step in rest:
        for name, text in step.get("set", {}).items():
            others = [quoted(column) for column in data.columns if column != name]
            data = data.selectExpr(*others, f"{text} AS {quoted(name)}")
        data = data.drop(*step.get("drop", ()))
    return data
