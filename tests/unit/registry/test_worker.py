"""What is left to the worker: the same answers as in one process, limits of CPU time and memory, and a loop that goes on."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.options import ClientOptions
from barnabas.registry import decisions
from barnabas.registry.decisions import Decision
from barnabas.registry.errors import RegistryError, status_of
from barnabas.registry.library import Allowance, Library, Needed
from barnabas.registry.model import Config, Content, Level
from barnabas.registry.requests import Wanted
from barnabas.registry.service import Handed, Registry, RegistryOptions
from barnabas.registry.state import State
from barnabas.registry.subjects import Subject
from barnabas.registry.tasks import TOO_LONG, Asks, Desk, Source, Task
from barnabas.registry.worker import Limits, Worker
from barnabas.schemas.errors import SchemaError
from tests.support import heavy_schemas
from tests.support.examples import examples
from tests.support.turns import Turns

SUBJECT = Subject(".", "s")
PROTO = 'syntax = "proto3"; message M { %s a = 1; string b = 2; }'
TEXTS = [
    *(("AVRO", json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, "x": 1}]}))
      for kind in ("string", "int", "long", ["null", "int"])),
    ("AVRO", "{"), ("AVRO", heavy_schemas.union_avro(3, "int")), ("AVRO", heavy_schemas.union_avro(3, "string")),
    ("AVRO", heavy_schemas.doubling_avro(5, "int")), ("AVRO", heavy_schemas.doubling_avro(5, "string")),
    ("AVRO", heavy_schemas.defaults_avro(5, "int")), ("AVRO", heavy_schemas.defaults_avro(5, "string")),
    *(("JSON", json.dumps({"type": "object", "properties": {"a": {"type": kind}}})) for kind in ("string", "number")),
    *(("JSON", heavy_schemas.doubling_json(5, {"type": kind})) for kind in ("string", "number")),
    ("JSON", heavy_schemas.doubling_not(5, {"type": "string"})), ("JSON", "5"), ("JSON", '{"type": "nothing"}'),
    ("PROTOBUF", PROTO % "string"), ("PROTOBUF", PROTO % "int32"), ("PROTOBUF", "message"),
]  # fmt: skip


class Both:
    """Registers the same schemas with a library that does everything itself, and with one that leaves tasks to others."""

    def __init__(self, allowance: Allowance, level: Level) -> None:
        self.states = (State(), State())
        self.libraries = (Library(self.states[0]), Library(self.states[1], allowance))
        self.desk = Desk()
        self.tasks = 0
        for state in self.states:
            state.configs[SUBJECT] = Config(compatibility=level, validate_fields=True)

    def run(self, work: Any) -> Any:
        """What both answer, which must be the same."""
        answers = []
        for state, library in zip(self.states, self.libraries, strict=True):
            while True:
                library.begin()
                try:
                    outcome = work(state, library)
                except SchemaError as error:
                    outcome = (error.code, error.message)
                except Needed as needed:
                    library.remember(needed.task, self.desk.carry_out(needed.task))
                    self.tasks += 1
                    continue
                break
            if isinstance(outcome, Decision):
                for entry in outcome.entries:
                    state.replay(entry)
            answers.append(outcome)
        assert answers[0] == answers[1]
        return answers[0]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(TEXTS), st.booleans(), st.sampled_from("rcftd")), min_size=1, max_size=8
    ),
    st.sampled_from([Allowance(0, 0), Allowance(300, 5), Allowance(100_000, 3), Allowance(100_000, 100_000)]),
    st.sampled_from([Level.NONE, Level.FULL_TRANSITIVE, Level.BACKWARD]),
)
def test_decisions_are_the_same_wherever_the_work_is_done(
    rows: Any, allowance: Allowance, level: Level
) -> None:
    both = Both(allowance, level)
    for (kind, text), normalize, what in rows:
        content = Content(kind, text)
        wanted = Wanted(content)
        tags = ({"schemaEntity": {"entityPath": "R.f"}, "tags": ["PII"]},)
        tagged = Wanted(content, tags_to_add=tags)

        def work(state: State, library: Library, what: str = what, wanted: Wanted = wanted,
                 tagged: Wanted = tagged, normalize: bool = normalize) -> Any:  # fmt: skip
            if what == "r":
                return decisions.decide_register(state, library, SUBJECT, wanted, normalize=normalize)
            if what == "t":
                return decisions.decide_register(state, library, SUBJECT, tagged, normalize=normalize)
            if what == "c":
                return decisions.decide_check(state, library, SUBJECT, wanted, None, verbose=True)
            if what == "d":
                return decisions.existing(state, library, SUBJECT, wanted, normalize=normalize)
            return library.read(wanted.content, ".").formatted("resolved")

        both.run(work)
    if allowance.characters == 0 and any(what in "cf" for _, _, what in rows):
        assert both.tasks > 0


def test_a_small_decision_needs_no_worker() -> None:
    both = Both(Allowance(16 << 10, 1_000), Level.FULL_TRANSITIVE)
    for kind, text in TEXTS[:1] + TEXTS[2:4]:
        wanted = Wanted(Content(kind, text))
        both.run(functools.partial(decisions.decide_register, subject=SUBJECT, wanted=wanted))
    assert both.tasks == 0


# --- the process --------------------------------------------------------------------------------------


@pytest.fixture
def worker() -> Iterator[Worker]:
    process = Worker(Limits(cpu_s=0.5, memory_bytes=1 << 30, waiting=3))
    yield process
    process.close()


def source(kind: str, text: str) -> Source:
    return Source(kind, text, (), True)


SMALL = Task(Asks.CANONICAL, (source("AVRO", ' "int"'),))
ENDLESS = Task(Asks.CANONICAL, (source("JSON", '{"x":[' + "[]," * 4_000_000 + "1]}"),))


def test_the_process_answers_as_a_desk_does(worker: Worker) -> None:
    async def work() -> None:
        schemas = [source(kind, text) for kind, text in TEXTS]
        tasks = [
            Task(asks, (s,), "resolved")
            for s in schemas
            for asks in (Asks.CANONICAL, Asks.NORMALIZED, Asks.FIELDS)
        ]
        tasks += [Task(Asks.PROBLEMS, (a, b)) for a in schemas for b in schemas if a.kind == b.kind]
        tasks.append(Task(Asks.REQUEST, (), "1000000", json.dumps({"schema": '"int"'}).encode()))
        tasks.append(Task(Asks.REQUEST, (), "1000000", b'{"a": 1, "a": 2}'))
        tasks.append(Task(Asks.BODY, (), "10", json.dumps({"alias": "a" * 100}).encode()))
        desk = Desk()
        for task in tasks:
            assert (await worker.carry_out(task)).outcome == desk.carry_out(task)
        assert worker.replaced == 0

    asyncio.run(work())


def test_a_task_over_its_cpu_time_is_refused_and_the_next_one_is_answered(worker: Worker) -> None:
    async def work() -> None:
        assert (await worker.carry_out(ENDLESS)).outcome == TOO_LONG
        assert (await worker.carry_out(SMALL)).outcome == (0, '"int"')
        assert worker.replaced == 1

    asyncio.run(work())


def test_a_task_over_its_memory_is_refused() -> None:
    process = Worker(Limits(cpu_s=60, memory_bytes=700 << 20))
    try:
        deep = Task(Asks.CANONICAL, (source("JSON", '{"x":[' + "{}," * 6_000_000 + "1]}"),))
        assert asyncio.run(process.carry_out(deep)).outcome == TOO_LONG
        assert asyncio.run(process.carry_out(SMALL)).outcome == (0, '"int"')
    finally:
        process.close()


def test_a_process_that_somebody_kills_is_replaced(worker: Worker) -> None:
    asyncio.run(worker.carry_out(SMALL))
    process = worker.process
    assert process is not None
    process.send_signal(signal.SIGINT)  # ctrl-c reaches it too
    assert asyncio.run(worker.carry_out(SMALL)).outcome == (0, '"int"')
    assert worker.process is process
    process.kill()
    process.wait()
    assert asyncio.run(worker.carry_out(SMALL)).outcome == (0, '"int"')


def test_too_many_tasks_are_refused(worker: Worker) -> None:
    async def work() -> None:
        answers = await asyncio.gather(*(worker.carry_out(ENDLESS) for _ in range(5)), return_exceptions=True)
        refused = [error for error in answers if isinstance(error, RegistryError)]
        assert [status_of(error) for error in refused] == [503, 503]

    asyncio.run(work())


# --- the service --------------------------------------------------------------------------------------


class Alone(Registry):
    """A registry whose log is its own state."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(RegistryOptions(ClientOptions("127.0.0.1:1"), limits=limits))
        self.writing = True

    async def _write(self, decision: Decision) -> Any:
        for entry in decision.entries:
            self.state.replay(entry)
        return decision.reply

    async def register(self, subject: str, kind: str, text: str) -> Any:
        request = Handed("POST", "/", b"", {}, False)
        wanted = Wanted(Content(kind, text))
        try:
            return await self.change(
                lambda: decisions.decide_register(self.state, self.library, Subject(".", subject), wanted),
                request,
            )
        except SchemaError as error:
            return error.code


HEAVY = [
    ("JSON", heavy_schemas.doubling_json(60, {"type": "string"}), heavy_schemas.doubling_json(60, {"type": "integer"})),
    ("JSON", heavy_schemas.doubling_not(60, {"type": "string"}), heavy_schemas.doubling_not(60, {"type": "integer"})),
    ("JSON", *(heavy_schemas.alternatives_json(150, {"type": kind}) for kind in ("string", "integer"))),
    ("AVRO", heavy_schemas.union_avro(1500, "string"), heavy_schemas.union_avro(1500, "int")),
    ("AVRO", heavy_schemas.defaults_avro(200, "string"), "[" * 15_000_000),
    ("JSON", '{"x":[' + "[]," * 5_000_000 + "1]}", heavy_schemas.circle_avro(1000, "int")),
]  # fmt: skip


def test_heavy_schemas_do_not_hold_up_the_loop_nor_small_changes() -> None:
    async def work() -> None:
        registry = Alone(Limits(cpu_s=0.5))
        turns = Turns(asyncio.get_running_loop())
        turns.start()
        heavy = [
            asyncio.create_task(registry.register(f"heavy-{i}", kind, text))
            for i, (kind, *texts) in enumerate(HEAVY)
            for text in texts
        ]
        for i in range(50):
            assert (await registry.register(f"small-{i}", "AVRO", '"int"'))["id"]
        under_way = sum(not task.done() for task in heavy)
        answers = await asyncio.gather(*heavy)
        turns.stop()
        registry.worker.close()
        assert under_way, "the small ones were to be registered while the heavy ones were not decided"
        assert all(isinstance(answer, dict) or answer in (409, 42201) for answer in answers), answers
        assert turns.longest_cpu_ms < 500  # 15 ms is usual; 2 to 60 s when the loop does the work

    asyncio.run(asyncio.wait_for(work(), 300))
