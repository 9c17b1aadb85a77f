"""Cases of tests, and what came of each.

A JSON file holds cases as ksqlDB's published tests do, and a few that are shorter:

    {"tests": [
      {"name": "...", "statements": ["CREATE ...;"], "inputs": [{"topic": "t", "key": "k", "value": {}, "timestamp": 0}],
       "outputs": [{"topic": "OUTPUT", "key": "k", "value": {}}]},
      {"name": "...", "statements": ["..."], "expectedException": {"message": "a part of the message"}},
      {"name": "...", "columns": "a INT, b STRING", "row": {"a": 1}, "expressions": [["a + 1", 2], ["UCASE(b)", null]]}
    ]}

A case of `expressions` counts once for each of them. An output without "key", "timestamp" or "window" does not say what
these are. A SQL file holds cases that begin with a line `--@test: name`, with INSERT INTO and ASSERT VALUES, ASSERT NULL
VALUES, ASSERT STREAM and ASSERT TABLE; `--@expected.message: ...` means that the case fails with this message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Relation, declared
from barnabas.pipelines.fronts.sql.constants import constant, encoded, fitted
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.plan.interpret.expressions import NotInterpreted
from barnabas.pipelines.plan.interpret.processes import Record
from barnabas.pipelines.sql.trial.bench import Bench, Out, decoded

MARK: Final = "--@"
NEAR: Final = 1e-9
"""How far apart numbers with a point may be, as a part of them."""


class BadCase(Exception):
    """A file that holds no cases, or one that cannot be understood."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case. given: as a JSON file has it. script: the statements of a SQL file."""

    name: str
    content: Mapping[str, Any]
    script: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a case. problem: None if all is as expected."""

    name: str
    problem: str | None = None


def cases_of(path: Path) -> list[Case]:
    """The cases of a file. Raises BadCase."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadCase(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if path.suffix.lower() == ".sql":
        return _scripts(text, path)
    document = _json(text, path)
    if not isinstance(document, dict) or not isinstance(document.get("tests"), list):
        raise BadCase(f'{path}: an object with "tests", a list of cases, is expected')
    return [case for one in document["tests"] for case in _divided(one, path)]


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise BadCase(f"{path}: this is not JSON: {error}") from None


def case_of_files(sql: Path, inputs: Path | None, outputs: Path | None) -> Case:
    """A case in three files, as ksqlDB's runner takes it. Raises BadCase."""
    parts: dict[str, Any] = {"inputs": [], "outputs": []}
    for name, path in (("inputs", inputs), ("outputs", outputs)):
        if path is None:
            continue
        try:
            document = _json(path.read_text(encoding="utf-8"), path)
        except (OSError, UnicodeDecodeError) as error:
            raise BadCase(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if not isinstance(document, dict) or not isinstance(document.get(name), list):
            raise BadCase(f'{path}: an object with "{name}", a list of records, is expected')
        parts[name] = document[name]
    try:
        parts["statements"] = [sql.read_text(encoding="utf-8")]
    except (OSError, UnicodeDecodeError) as error:
        raise BadCase(f"{sql} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return Case(sql.name, parts)


def _divided(case: Any, path: Path) -> Iterator[Case]:
    """The cases that an entry of "tests" is: one for each expression, and one for each format."""
    if not isinstance(case, dict) or "name" not in case:
        raise BadCase(f'{path}: a case is an object with "name", not {json.dumps(case, default=str)[:80]}')
    name = str(case["name"])
    if "expressions" in case:
        for text, wanted in case["expressions"]:
            yield Case(f"{name}: {text}", {**case, "expressions": [[text, wanted]]})
        return
    formats = case.get("format")
    if not formats:
        yield Case(name, case)
        return
    for form in formats:
        shown = json.dumps(case, default=_as_number).replace("{FORMAT}", str(form))
        yield Case(f"{name} - {form}", json.loads(shown, parse_float=Decimal))


def _as_number(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)


def _scripts(text: str, path: Path) -> list[Case]:
    scripts: list[tuple[str, list[str], dict[str, str]]] = []
    for line in text.splitlines():
        if line.startswith(MARK):
            word, _, rest = line.removeprefix(MARK).partition(":")
            if word.strip() == "test":
                scripts.append((rest.strip(), [], {}))
            elif scripts:
                scripts[-1][2][word.strip()] = rest.strip()
            continue
        if scripts:
            scripts[-1][1].append(line)
    if not scripts:
        return [Case(path.name, {}, text)]
    return [Case(name, marks, "\n".join(lines)) for name, lines, marks in scripts]


# --- running ------------------------------------------------------------------------------------------


def run_case(case: Case) -> Result:
    """What comes of a case."""
    try:
        if case.script:
            problem = _script(case)
        elif "expressions" in case.content:
            problem = _expressions(case.content)
        else:
            problem = _case(case.content)
    except NotInterpreted as error:
        problem = f"this cannot be run without Spark: {error}"
    return Result(case.name, problem)


def expected_error(case: Mapping[str, Any]) -> str | None:
    """The message that a case is to fail with; empty for any; None if it is to succeed."""
    if "expected.message" in case or "expected.error" in case:
        return str(case.get("expected.message", ""))
    wanted = case.get("expectedException")
    return (
        None
        if wanted is None
        else str(wanted.get("message", ""))
        if isinstance(wanted, dict)
        else str(wanted)
    )


def _judged(error: SqlError, wanted: str | None) -> str | None:
    if wanted is None:
        return f"it failed: {error.message}"
    return None if wanted in error.message else f"it failed with {error.message!r} instead of {wanted!r}"


def _case(case: Mapping[str, Any]) -> str | None:
    bench, wanted = Bench(), expected_error(case)
    try:
        for text in case.get("statements", []):
            for statement in read_statements(text, types=bench.catalog.types):
                bench.run(statement)
        before = len(bench.records)
        for record in case.get("inputs", []):
            bench.put_json(record)
    except SqlError as error:
        return _judged(error, wanted)
    except RecursionError:
        return "a query reads what it writes"
    if wanted is not None:
        return f"it did not fail, but was to fail with {wanted!r}"
    outputs = case.get("outputs", [])
    topics = frozenset(str(output["topic"]) for output in outputs)
    written = [one for one in bench.written(topics) if not _was_put(one, case)] if outputs else []
    return _compared(outputs, written) if outputs or before else _nothing(case, bench)


def _was_put(out: Out, case: Mapping[str, Any]) -> bool:
    return out.topic in {record["topic"] for record in case.get("inputs", [])}


def _nothing(case: Mapping[str, Any], bench: Bench) -> str | None:
    """A case with inputs and no outputs expects that no query writes a record."""
    if "outputs" not in case:
        return None
    extra = [
        r for r in bench.records if r.topic not in {record["topic"] for record in case.get("inputs", [])}
    ]
    return f"a record was written, and none is expected: {_shown(decoded(extra[0], None))}" if extra else None


def _compared(wanted: Sequence[Mapping[str, Any]], outs: Sequence[Out]) -> str | None:
    for number, (one, out) in enumerate(zip(wanted, outs, strict=False), 1):
        if (problem := is_different(one, out)) is not None:
            return f"output {number}: {problem}"
    if len(wanted) != len(outs):
        more = (
            _shown(outs[len(wanted)])
            if len(outs) > len(wanted)
            else json.dumps(wanted[len(outs)], default=str)
        )
        return (
            f"{len(wanted)} outputs are expected, but there are {len(outs)}; the first that differs: {more}"
        )
    return None


def is_different(wanted: Mapping[str, Any], out: Out) -> str | None:
    checks: list[tuple[str, Any]] = [("topic", out.topic), ("value", out.value)]
    checks += [
        (name, value) for name, value in (("key", out.key), ("timestamp", out.at_ms)) if name in wanted
    ]
    for name, value in checks:
        if not same(wanted.get(name), value):
            return f"{name} is {_text(value)}, not {_text(wanted.get(name))}"
    window = wanted.get("window")
    if window is None:
        return None
    start, end = out.window or (None, None)
    if start != window["start"] or (end is not None and end != window["end"]):
        return f"the window is from {start} to {end}, not from {window['start']} to {window['end']}"
    return None


def same(wanted: Any, actual: Any) -> bool:
    """Whether two values of JSON are the same: numbers by their value, and decimals may be texts."""
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return wanted.keys() == actual.keys() and all(same(wanted[name], actual[name]) for name in wanted)
    if isinstance(wanted, list) and isinstance(actual, list):
        return len(wanted) == len(actual) and all(map(same, wanted, actual))
    if isinstance(wanted, bool) or isinstance(actual, bool) or wanted is None or actual is None:
        return wanted is actual
    if isinstance(wanted, str) and isinstance(actual, Decimal | int | float):
        try:
            return Decimal(wanted) == Decimal(str(actual))
        except InvalidOperation:
            return False
    if isinstance(wanted, int | float | Decimal) and isinstance(actual, int | float | Decimal):
        return wanted == actual or abs(float(wanted) - float(actual)) <= NEAR * abs(float(wanted))
    return bool(wanted == actual)


def _text(value: Any) -> str:
    return json.dumps(value, default=_as_number, ensure_ascii=False)


def _shown(out: Out) -> str:
    return f"{out.topic}: key {_text(out.key)}, value {_text(out.value)}, at {out.at_ms}"


# --- expressions --------------------------------------------------------------------------------------


def _expressions(case: Mapping[str, Any]) -> str | None:
    ((text, wanted),) = case["expressions"]
    columns = case.get("columns", "nothing STRING")
    make = f"CREATE STREAM input ({columns}) WITH (kafka_topic='input', value_format='JSON');"
    query = f"CREATE STREAM output AS SELECT {text} AS found, 1 AS rest FROM input EMIT CHANGES;"
    message = wanted.get("error") if isinstance(wanted, dict) and set(wanted) == {"error"} else None
    bench = Bench()
    try:
        for statement in read_statements(f"{make}\n{query}"):
            bench.run(statement)
    except SqlError as error:
        return _judged(error, message)
    if message is not None:
        return f"it did not fail, but was to fail with {message!r}"
    bench.put_json({"topic": "input", "value": case.get("row", {}), "timestamp": case.get("timestamp", 0)})
    outs = list(bench.written(frozenset({"OUTPUT"})))
    if not outs:
        return f"no row was written: {bench.letters[0].reason if bench.letters else 'it was filtered'}"
    outcome = outs[0].value["FOUND"]
    return None if same(wanted, outcome) else f"it is {_text(outcome)}, not {_text(wanted)}"


# --- scripts ------------------------------------------------------------------------------------------


def _script(case: Case) -> str | None:
    bench, wanted = Bench(), expected_error(case.content)
    read: dict[str, int] = {}
    try:
        for statement in read_statements(case.script, types=bench.catalog.types):
            if isinstance(statement, s.AssertValues):
                problem = _asserted_row(bench, statement, read)
            elif isinstance(statement, s.AssertSource):
                problem = _asserted_source(bench, statement)
            else:
                bench.run(statement)
                continue
            if problem is not None and wanted is None:
                return f"{' '.join(statement.text.split())}: {problem}"
            if problem is not None:
                assert wanted is not None
                return None if wanted in problem else f"it failed with {problem!r} instead of {wanted!r}"
    except SqlError as error:
        return _judged(error, wanted)
    return None if wanted is None else f"it did not fail, but was to fail with {wanted!r}"


def _asserted_row(bench: Bench, statement: s.AssertValues, read: dict[str, int]) -> str | None:
    """What is wrong with the next row of a stream or table; None if it is as asserted. Raises SqlError."""
    relation = bench.catalog.find(statement.name)
    records = [record for record in bench.records if record.topic == relation.topic]
    at = read[relation.topic] = read.get(relation.topic, 0) + 1
    if at > len(records):
        return f"there are {at - 1} rows only"
    columns = statement.columns or tuple(
        column.name for column in (relation.keys if statement.null else relation.columns)
    )
    if len(columns) != len(statement.values):
        raise SqlError(f"{len(columns)} columns, but {len(statement.values)} values: {', '.join(columns)}")
    row: dict[str, Any] = {column.name: None for column in relation.columns}
    time: int | None = None
    bounds: dict[str, int] = {}
    for name, node in zip(columns, statement.values, strict=True):
        if name == "ROWTIME":
            time = int(constant(node))
        elif name in ("WINDOWSTART", "WINDOWEND"):
            bounds[name] = int(constant(node))
        elif (column := relation.column(name)) is None:
            raise SqlError(
                f"{relation.name} has no column {name}; it has {', '.join(c.name for c in relation.columns)}"
            )
        else:
            row[name] = fitted(constant(node), column.type, name)
    plain = relation if relation.window is None else _without_window(relation)
    key, value = encoded(plain, row)
    wanted = decoded(Record(relation.topic, key, None if statement.null else value), plain)
    actual = decoded(records[at - 1], relation)
    if bounds and (actual.window is None or actual.window[0] != bounds.get("WINDOWSTART", actual.window[0])):
        return f"row {at}: its window begins at {actual.window and actual.window[0]}"
    if relation.keys and not same(wanted.key, actual.key):
        return f"row {at}: its key is {_text(actual.key)}, not {_text(wanted.key)}"
    if not same(wanted.value, actual.value):
        return f"row {at} is {_text(actual.value)}, not {_text(wanted.value)}"
    return None if time in (None, actual.at_ms) else f"row {at}: its time is {actual.at_ms}, not {time}"


def _without_window(relation: Relation) -> Relation:
    return replace(relation, window=None, bounds=())


def _asserted_source(bench: Bench, statement: s.AssertSource) -> str | None:
    relation = bench.catalog.find(statement.name)
    if relation.kind != statement.kind:
        return f"it is a {relation.kind.lower()}"
    properties = {"KAFKA_TOPIC": relation.topic, **statement.properties}
    wanted = declared(s.Create(statement.kind, statement.name, statement.columns, properties))
    if statement.columns:
        shown = [
            ", ".join(f"{c.name} {c.type}{' KEY' if c.is_key else ''}" for c in r.columns)
            for r in (relation, wanted)
        ]
        if shown[0] != shown[1]:
            return f"its columns are {shown[0]}, not {shown[1]}"
    if relation.topic != wanted.topic:
        return f"its topic is {relation.topic}, not {wanted.topic}"
    options = {"FORMAT", "KEY_FORMAT"} & set(statement.properties)
    if options and relation.formats.key != wanted.formats.key:
        return f"its key's format is {relation.formats.key}, not {wanted.formats.key}"
    options = {"FORMAT", "VALUE_FORMAT"} & set(statement.properties)
    if options and relation.formats.value != wanted.formats.value:
        return f"its value's format is {relation.formats.value}, not {wanted.formats.value}"
    return None
