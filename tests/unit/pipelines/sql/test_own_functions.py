"""Functions of SQL in Python, in statements that the interpreter carries out, and mistakes in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.pipelines.fronts.sql import functions
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.sql import own_functions
from barnabas.pipelines.sql.own_functions import load_functions
from barnabas.pipelines.sql.trial.cases import cases_of, run_case
from barnabas.sql.functions import DECLARED

HERE = Path(__file__).parent / "python"


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = dict(functions.KNOWN_FUNCTIONS)
    yield
    for known in (DECLARED, own_functions.OWN):
        known.clear()
    functions.KNOWN_FUNCTIONS.clear()
    functions.KNOWN_FUNCTIONS.update(before)


def test_functions_are_called_by_statements() -> None:
    load_functions([str(HERE / "my_functions.py")])
    cases = cases_of(HERE / "cases.json")
    assert len(cases) == 12
    assert {case.name: problem for case in cases if (problem := run_case(case).problem) is not None} == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@scalar\ndef f(x): return x", "F: x has no annotation"),
        ("@scalar\ndef ucase(x: str) -> str: return x", "UCASE is a function already"),
        ("import nonsense", "cannot be imported: ModuleNotFoundError"),
        ("@table(takes=['STRING'], returns='INT')\ndef f(x): return x", "returns an array, not INTEGER"),
        (
            "@scalar(takes=['STRNG'], returns='INT')\ndef f(x): return x",
            "there is no type STRNG; did you mean STRING?",
        ),
        ("@aggregate\ndef f(x: list[int]) -> int: return 1", "an aggregate needs takes"),
        (
            "@scalar(takes=['INT'], returns='INT')\ndef f(x, y): return x",
            "F has 2 parameters, but takes 1 types",
        ),
        ("@scalar(name='a b')\ndef f(x: int) -> int: return x", "is not a name of a function"),
        ("@scalar(takes=['ARRAY<TIMESTAMP>'], returns='INT')\ndef f(x): return 1", "times inside of"),
        ("@scalar(takes=['INT INT'], returns='INT')\ndef f(x): return 1", "nothing may follow a type"),
    ],
)
def test_mistakes_are_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(f"from barnabas.sql.functions import aggregate, scalar, table\n{text}\n")
    with pytest.raises(PipelineError, match=r".") as caught:
        load_functions([str(file)])
    assert message in str(caught.value)


def test_a_file_or_module_that_is_missing() -> None:
    for name in ("no/such.py", "no.such"):
        with pytest.raises(PipelineError, match=r"no[ ./]"):
            load_functions([name])
