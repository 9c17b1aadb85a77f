"""The cases of `barnabas sql test` that are whole statements, on Spark: the same records as without it.

Some cases run at the same time, each in an engine of its own over one server's pipelines, with topics of its own. Records go
in one by one, each when all queries have read the one before, so that also what is written in between is compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.blocking import LATEST, BlockingClient, NewTopic
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.plan.interpret.processes import Record
from barnabas.pipelines.serving.manager import Manager
from barnabas.pipelines.sql.engine import Engine, Session
from barnabas.pipelines.sql.store import StatementFile
from barnabas.pipelines.sql.trial.bench import Bench, Out, as_json, decoded
from barnabas.pipelines.sql.trial.cases import Case, cases_of, expected_error, is_different
from barnabas.records.batch import Record as Put
from barnabas.records.batch import build_batch
from tests.pipelines.conftest import records_of
from tests.support.admin import KEPT

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1800)]

CASES: Final = Path(__file__).parents[1] / "unit" / "pipelines" / "sql" / "cases"
AT_ONCE: Final = 6
NEXT_BATCH_SECONDS: Final = 2.0
SESSION: Final = Session({"auto.offset.reset": "earliest"}, {})


class Trial(Bench):
    """One case: its statements go to an engine, and its records to topics."""

    def __init__(
        self, case: Case, number: int, manager: Manager, client: BlockingClient, folder: Path
    ) -> None:
        super().__init__()
        self.case, self.client, self.prefix = case, client, f"case{number}-"
        bootstrap = {"bootstrap.servers": manager.bootstrap or ""}
        self.engine = Engine(manager, bootstrap)
        self.engine._file = StatementFile(folder / str(number))
        self.engine.catalog.numbers = 1000 * number
        self.catalog = self.engine.catalog
        self.inputs = list(case.content.get("inputs", []))
        self.problem: str | None = None

    def begin(self) -> None:
        """Carries out the statements."""
        wanted = expected_error(self.case.content)
        try:
            for text in self.case.content["statements"]:
                for statement in read_statements(text, types=self.catalog.types):
                    self.carry_out(statement)
        except SqlError as error:
            if wanted is None or wanted not in error.message:
                self.problem = f"it failed: {error.message}"
            self.inputs = []
            return
        if wanted is not None:
            self.problem = f"it did not fail, but was to fail with {wanted!r}"

    def carry_out(self, statement: s.Statement) -> None:
        """Carries out a statement, with topics of this case."""
        if isinstance(statement, s.Create | s.CreateAs):
            properties = as_json(statement.properties)
            topic = self.prefix + str(properties.get("KAFKA_TOPIC", statement.name))
            if isinstance(statement, s.CreateAs) or "KAFKA_TOPIC" in properties:
                properties["KAFKA_TOPIC"] = topic
                if topic not in self.client.topics():
                    self.client.create_topics([NewTopic(topic, 1, configs=KEPT)])
            statement = replace(statement, properties=properties)
        elif isinstance(statement, s.SetProperty | s.Define):
            return
        self.engine.one(statement, SESSION)

    def put(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        at_ms: int = 0,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        """Writes a record to a topic."""
        # librdkafka would take a time of 0 for the present one.
        self.client.produce_raw(topic, 0, build_batch([Put(0, at_ms, key, value, headers)]))

    def feed(self) -> None:
        """Writes the next record."""
        if self.inputs:
            record = self.inputs.pop(0)
            topic = self.prefix + record["topic"]
            if topic not in self.client.topics():
                self.client.create_topics([NewTopic(topic, 1, configs=KEPT)])
            self.put_json({**record, "topic": topic})

    def is_idle(self) -> bool:
        """Whether all queries have read what is there."""
        for query in self.catalog.queries:
            managed = self.engine.manager.get(query)
            if managed.last_error is not None:
                self.problem = self.problem or f"{query} failed: {managed.last_error}"
                return True
            topics = {topic for source in managed.spec.plan.sources for topic in named(source)}
            ends = self.client.list_offsets(
                {(t, p): LATEST for t in topics for p in self.client.partitions(t)}
            )
            for topic in topics:
                reading = [r for _, r in managed.running if any(pair[0] == topic for pair in r.positions)]
                end = {pair: bound.offset for pair, bound in ends.items() if pair[0] == topic}
                if not reading and any(end.values()):
                    return False
                if any(r.positions.get(pair, 0) < offset for r in reading for pair, offset in end.items()):
                    return False
            if len(managed.running) < len(managed.spec.queries()):
                return False
        return True

    def written_to(self, topics: Sequence[str]) -> Iterator[Out]:
        """What is in these topics."""
        relations = {relation.topic: relation for relation in self.catalog.relations.values()}
        for topic in topics:
            for row in records_of(self.client, topic):
                record = Record(
                    topic, row["key"], row["value"], int(row["timestamp"].timestamp() * 1e6), 0, 0, ()
                )
                yield replace(decoded(record, relations.get(topic)), topic=topic.removeprefix(self.prefix))

    def judge(self) -> str | None:
        """What is different from what the case expects."""
        outputs = self.case.content.get("outputs", [])
        put = {one["topic"] for one in self.case.content.get("inputs", [])}
        topics = dict.fromkeys(str(one["topic"]) for one in outputs)
        out_rows = list(self.written_to([self.prefix + topic for topic in topics if topic not in put]))
        return differences(outputs, out_rows)


def named(source: Any) -> tuple[str, ...]:
    """The topics of a source."""
    return tuple(source.topics)


def differences(outputs: Sequence[Mapping[str, Any]], records: Sequence[Out]) -> str | None:
    """Compares records, those of each key in their order: Spark writes several keys of a micro-batch in any order."""
    wanted_by: dict[str, list[Mapping[str, Any]]] = {}
    found_by: dict[str, list[Out]] = {}
    by_key = all("key" in one for one in outputs)
    for one in outputs:
        wanted_by.setdefault(
            _name(one["topic"], one.get("key"), one.get("window")) if by_key else "", []
        ).append(one)
    for out in records:
        window = None if out.window is None else {"start": out.window[0]}
        found_by.setdefault(_name(out.topic, out.key, window) if by_key else "", []).append(out)
    for name in dict.fromkeys([*wanted_by, *found_by]):
        wanted, outs = wanted_by.get(name, []), found_by.get(name, [])
        for one, out in zip(wanted, outs, strict=False):
            if (problem := is_different(one, out)) is not None:
                return f"{name}: {problem}; all: {[(o.key, o.value, o.at_ms) for o in outs]}"
        if len(wanted) != len(outs):
            return f"{name}: {len(wanted)} are expected, not {len(outs)}: {[(o.key, o.value, o.at_ms) for o in outs]}"
    return None


def _name(topic: str, key: Any, window: Mapping[str, Any] | None) -> str:
    return f"{topic} {json.dumps(key, default=float)} {'' if window is None else window['start']}"


def whole_cases() -> list[Any]:
    cases = [
        case
        for path in sorted(CASES.glob("*.json"))
        for case in cases_of(path)
        if "expressions" not in case.content
    ]
    groups = [cases[at : at + AT_ONCE] for at in range(0, len(cases), AT_ONCE)]
    return [pytest.param(group, id=f"{group[0].name}...".replace(" ", "-")) for group in groups]


@pytest.fixture(scope="module")
def manager(spark: Any, bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    started = Manager(tmp_path_factory.mktemp("sql"), {"bootstrap.servers": bootstrap})
    started.open(spark)
    yield started
    started.close()


_numbers = iter(range(1, 1_000_000))


@pytest.mark.parametrize("group", whole_cases())
def test_spark_writes_what_is_documented(
    group: list[Case], manager: Manager, client: BlockingClient, tmp_path: Path
) -> None:
    trials = [Trial(case, next(_numbers), manager, client, tmp_path) for case in group]
    for trial in trials:
        trial.begin()
    wait(trials, 400)
    while any(trial.inputs for trial in trials):
        for trial in trials:
            trial.feed()
        wait(trials)
    problems = {}
    give_up = time.monotonic() + 20
    for trial in trials:
        while (problem := trial.problem or trial.judge()) is not None and time.monotonic() < give_up:
            time.sleep(0.5)
        if problem is not None:
            problems[trial.case.name] = problem
        for query in list(trial.catalog.queries):
            manager.remove(query)
    for name, problem in problems.items():
        print(f"PROBLEM {name}: {problem}", flush=True)
    assert not problems, "\n".join(f"{name}: {problem}" for name, problem in problems.items())


def wait(trials: list[Trial], seconds: float = 90) -> None:
    """Until all queries have read what is there, and have run the micro-batch without records that follows when the event
    time has moved: what is late, and which windows are over, counts from then on."""
    give_up = time.monotonic() + seconds
    _await_idle(trials, give_up)
    if any(
        word in str(trial.case.content["statements"]) for trial in trials for word in ("WINDOW", "WITHIN")
    ):
        time.sleep(NEXT_BATCH_SECONDS)
        _await_idle(trials, give_up)


def _await_idle(trials: list[Trial], give_up: float) -> None:
    while not all(trial.problem is not None or trial.is_idle() for trial in trials):
        if time.monotonic() > give_up:
            for trial in trials:
                if trial.problem is None and not trial.is_idle():
                    trial.problem = "it does not go on"
            return
        time.sleep(0.1)
