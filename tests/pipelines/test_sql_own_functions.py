"""Functions of SQL in Python on Spark: of rows, of groups, with several rows; what fails becomes a dead letter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipelines.sql.own_functions import load_functions, register
from tests.pipelines.readers import consumed
from tests.pipelines.test_sql import Lab

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(600)]
FUNCTIONS = Path(__file__).parents[1] / "unit" / "pipelines" / "sql" / "python" / "my_functions.py"


class WithLetters(Lab):
    """A lab whose queries may have dead letters."""

    def has(self, topic: str) -> bool:
        return not topic.endswith("-errors") and super().has(topic)


def test_functions_in_python_on_spark(
    spark: Any, bootstrap: str, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    load_functions([str(FUNCTIONS)])
    register(spark)
    lab = WithLetters(bootstrap, tmp_path, new_topic())
    lab.create("cars")
    rows = [(100, "a b", 4, 0), (20, None, 2, 86_400_000), (None, "c", 9, 5)]
    lab.send(
        "cars", [("x", {"s": s, "w": w, "n": n, "t": t, "m": {"k": 3, "a": 1}}, 0) for s, w, n, t in rows]
    )
    lab.run(
        "CREATE STREAM cars (id VARCHAR KEY, s DOUBLE, w STRING, n INT, t TIMESTAMP, m MAP<STRING, INT>) "
        "WITH (kafka_topic='$cars', value_format='json');"
        "CREATE STREAM risks AS SELECT id, RISK(s, 80) AS r, RISK(s) AS d, TOMORROW(t) AS t, FIRST_OF(m)->b AS b FROM cars;"
        "CREATE STREAM words AS SELECT id, WORDS(w) AS w FROM cars;"
        "CREATE STREAM wrongs AS SELECT id, WRONG(n) AS w FROM cars;"
        "CREATE TABLE middles AS SELECT id, MIDDLE(s) AS m, DOT(n, n) AS d FROM cars GROUP BY id;"
    )
    day = 86_400_000
    assert [value for _, value in lab.read("RISKS")] == [
        {"R": 0.25, "D": 0.25, "T": day, "B": "a"},
        {"R": 0.0, "D": 0.0, "T": 2 * day, "B": "a"},
        {"R": 0.0, "D": 0.0, "T": day + 5, "B": "a"},
    ]
    assert [value for _, value in lab.read("WORDS")] == [{"W": "a"}, {"W": "b"}, {"W": "c"}]
    assert [value for _, value in lab.read("WRONGS")] == [{"W": 2}]
    letters = consumed(bootstrap, f"{lab.topic('CSAS_WRONGS_3')}-errors")
    assert [json.loads(letter.value or b"")["n"] for letter in letters] == [2, 9]
    assert "cannot compute" in letters[0].header("reason")
    assert lab.read("MIDDLES")[-1] == (b"x", {"M": 60.0, "D": 101})
