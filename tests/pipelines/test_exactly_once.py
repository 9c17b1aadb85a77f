"""The exactly-once sink: whatever is killed, a reader of committed records sees each row once.

A query copies a topic. At each place of the sink's protocol (stalls.PLACES) it stands still, and its driver, a Python worker
or the broker is killed with SIGKILL; afterwards the query goes on or is started again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.transactions import Transactions
from barnabas.pipelines.compiler.queries import write_each_batch
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.pipelines.spark.session.log import failure_reason
from barnabas.pipelines.spark.session.start import adopt_session
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed
from tests.pipelines.stalls import IN_TASKS, PLACES, StallingSource
from tests.support.admin import KEPT
from tests.support.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROWS_PER_PIECE = "40"
PARTITIONS = 2
WAIT_S = 240

PROGRAM = """
import sys
from barnabas.pipelines.spark.session.class_archive import find_archive
from barnabas.pipelines.spark.session.start import start_session
from tests.pipelines.test_exactly_once import copy

spark = start_session("killed", master="local[2,1]", quick=True, archive=find_archive())
copy(spark, *sys.argv[1:])
"""

soak = pytest.mark.soak


def copy(
    spark: Any,
    bootstrap: str,
    topic: str,
    checkpoint: str,
    place: str = "",
    folder: str = "",
    tasks: str = "2",
) -> None:
    """Copies what is new in a topic to `<topic>-copy`. Raises StreamingQueryException."""
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    adopt_session(spark)  # this may be a thread of its own
    spark.dataSource.register(StallingSource)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_PER_PIECE)
    try:
        query = (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("minPartitions", tasks)
            .load()
            .select("key", "value")
            .writeStream.format("stalling")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("kafka.batch.size", "500")
            .option("topic", f"{topic}-copy")
            .option("checkpointLocation", checkpoint)
            .option("stallAt", place)
            .option("stallIn", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)


class Case:
    """A topic, its copy, and what has to be in it."""

    def __init__(self, bootstrap: str, folder: Path, spark: Any) -> None:
        self.bootstrap, self.folder, self.spark = bootstrap, folder, spark
        folder.mkdir()
        self.topic = f"eos-{os.getpid()}-{folder.name}-{time.monotonic_ns()}"
        self.checkpoint = str(folder / "checkpoint")
        self.written: list[bytes] = []
        with BlockingClient(bootstrap) as client:
            client.create_topics(
                [NewTopic(self.topic, PARTITIONS, configs=KEPT), NewTopic(f"{self.topic}-copy", 3)]
            )

    def add(self, count: int = 400) -> None:
        first = len(self.written)
        values = [b"%06d" % number for number in range(first, first + count)]
        with BlockingClient(self.bootstrap) as client:
            for partition in range(PARTITIONS):
                send(client, self.topic, values[partition::PARTITIONS], partition)
        self.written += values

    def begin(self) -> None:
        """Something is copied, and something is left to be. Spark may fail here: a test before has killed its workers."""
        self.add()
        InBackground(self, "").join()
        self.add()

    def copy(self, place: str = "", tasks: str = "2") -> None:
        copy(self.spark, self.bootstrap, self.topic, self.checkpoint, place, str(self.folder), tasks)

    def started_apart(self, place: str) -> subprocess.Popen[bytes]:
        """The same in a process of its own, with its Java and its Python workers in its process group."""
        command = [sys.executable, "-c", PROGRAM, self.bootstrap, self.topic, self.checkpoint, place]
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                [*command, str(self.folder)], stdout=log, stderr=log, start_new_session=True
            )

    def stalled(self, ended: Callable[[], bool]) -> int:
        """Waits until the query stands still; the id of the process that does."""
        give_up = time.monotonic() + WAIT_S
        while not (self.folder / "reached").exists():
            assert not ended(), self.said()
            assert time.monotonic() < give_up, self.said()
            time.sleep(0.02)
        return int((self.folder / "reached").read_text())

    def said(self) -> str:
        log = self.folder / "log"
        return log.read_text(errors="replace") if log.exists() else "the query has ended"

    def go_on(self) -> None:
        (self.folder / "go").touch()

    def copied(self) -> list[bytes]:
        return sorted(seen.value for seen in consumed(self.bootstrap, f"{self.topic}-copy"))


@pytest.fixture
def case(spark, bootstrap, tmp_path) -> Case:
    prepared = Case(bootstrap, tmp_path / "case", spark)
    prepared.begin()
    return prepared


@pytest.fixture
def own_case(spark, own_broker, tmp_path) -> Iterator[tuple[Case, BrokerProcess]]:
    """With a broker that may be killed."""
    broker = own_broker(transaction__state__log__num__partitions="4", offsets__topic__num__partitions="4")
    prepared = Case(broker.bootstrap, tmp_path / "case", spark)
    prepared.begin()
    return prepared, broker


class InBackground:
    """The query in a thread of its own, started again as often as it fails."""

    def __init__(self, case: Case, place: str) -> None:
        self.case, self.place = case, place
        self.failures: list[str] = []
        self.gave_up: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while len(self.failures) < 5:
                try:
                    self.case.copy(self.place)
                except StreamingQueryException as error:
                    self.failures.append(failure_reason(str(error)))
                else:
                    return
        except BaseException as error:
            self.gave_up = error

    def ended(self) -> bool:
        return not self.thread.is_alive()

    def join(self) -> None:
        self.thread.join(WAIT_S)
        assert self.ended()
        assert self.gave_up is None
        assert len(self.failures) < 5, self.failures


@pytest.mark.parametrize(
    "place", [pytest.param(p, marks=() if p == "between writes" else soak) for p in PLACES]
)
def test_a_worker_is_killed(case, place):
    run = InBackground(case, place)
    os.kill(case.stalled(run.ended), signal.SIGKILL)
    case.go_on()
    run.join()
    assert case.copied() == case.written


@pytest.mark.parametrize(
    "place", [pytest.param(p, marks=() if p == "some committed" else soak) for p in PLACES]
)
def test_the_broker_is_killed(own_case, place):
    case, broker = own_case
    run = InBackground(case, place)
    case.stalled(run.ended)
    broker.kill()
    broker.start()
    case.go_on()
    run.join()
    assert case.copied() == case.written


@pytest.mark.parametrize("tasks", ["2", "5"])
@pytest.mark.parametrize("place", PLACES)
@soak
def test_the_driver_is_killed(case, place, tasks):
    kill_driver(case, place)
    case.add()
    case.copy(tasks=tasks)
    assert case.copied() == case.written


def kill_driver(case: Case, place: str) -> None:
    process = case.started_apart(place)
    try:
        case.stalled(lambda: process.poll() is not None)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@soak
def test_the_driver_is_killed_and_there_are_other_tasks(case):
    """The cheapest of the above: what was decided is committed, whatever the next run looks like."""
    kill_driver(case, "some committed")
    case.copy(tasks="5")
    assert case.copied() == case.written
    case.add()
    case.copy(tasks="5")
    assert case.copied() == case.written


@soak
@pytest.mark.parametrize("tasks", ["2", "5"])
def test_the_rest_of_a_decided_batch_has_timed_out(case, tasks):
    """Then the tasks that had no luck write their rows again, which only works with the same tasks."""
    kill_driver(case, "some committed")
    with BlockingClient(case.bootstrap) as client:
        transactions = Transactions(client)
        prefix = prefix_in(case)
        (left,) = transactions.open_ids(f"{prefix}-")
        transactions.begin(left, 60_000)  # as the coordinator does it when the time is up
    if tasks == "5":
        with pytest.raises(StreamingQueryException) as failure:
            case.copy(tasks=tasks)
        reason = failure_reason(str(failure.value))
        assert "has committed" in reason or "was committed in part by 2 tasks" in reason
        assert len(case.copied()) < len(case.written)
    case.copy()
    assert case.copied() == case.written
    case.add()
    case.copy(tasks=tasks)
    assert case.copied() == case.written


def prefix_in(case: Case) -> str:
    return "barnabas-" + json.loads((Path(case.checkpoint) / "metadata").read_text())["id"]


@soak
def test_a_driver_that_was_believed_dead_writes_nothing(case):
    """It stands still before it decides, another one takes over, and then it goes on."""
    process = case.started_apart("all prepared")
    try:
        case.stalled(lambda: process.poll() is not None)
        case.copy()
        assert case.copied() == case.written
        case.go_on()
        assert process.wait(WAIT_S) != 0
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    assert "TransactionLost" in case.said()
    assert case.copied() == case.written
    case.add()
    case.copy()
    assert case.copied() == case.written


def test_a_pipeline_writes_exactly_once_unless_told_otherwise(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(2)
    send(client, topic, [b'{"n": 1}', b'{"n": 2}', b"{bad"])
    text = (
        f"pipeline: {topic}\nsource: {{topic: {topic}}}\nsteps: [parse: {{json: {{n: int}}}}]\noutputs:\n"
        f"  - {{topic: {topic}-out}}\n"
        f"  - {{topic: {topic}-plain, options: {{exactlyOnce: false}}}}\n"
        f"  - {{topic: {topic}-sums, aggregate: {{by: [n], compute: {{c: count(*)}}}}, key: string(n)}}\n"
    )
    checkpoints = tmp_path / "checkpoints"
    for _ in range(2):
        run_pipeline(parse_spec(text), once=True, bootstrap=bootstrap, checkpoint_dir=checkpoints)
        send(client, topic, [b'{"n": 1}'])
    assert len(consumed(bootstrap, f"{topic}-out")) == 3
    assert len(consumed(bootstrap, f"{topic}-plain")) == 3
    assert len(consumed(bootstrap, f"{topic}-sums")) == 3
    dead = consumed(bootstrap, f"{topic}-dead-letters")
    assert {letter.value for letter in dead} == {b"{bad"}
    notes = sorted(checkpoints.glob("*/*/barnabas-sink.json"))
    assert len(notes) == 2  # not the output that does without
    with BlockingClient(bootstrap) as own:
        for note in notes:
            prefix = json.loads(note.read_text())["transactional.id"]
            assert any(json.loads(text)["batch"] == 1 for text in Transactions(own).notes(prefix))
            assert Transactions(own).open_ids(prefix) == []


def test_each_batch_of_foreach_is_written_once(spark, bootstrap, client, new_topic, tmp_path):
    """A batch that Spark repeats, because its checkpoint does not have it, leaves nothing."""
    topic, out = new_topic(2), new_topic(2)
    send(client, topic, [b"a", b"b"])
    write = write_each_batch(
        {"kafka.bootstrap.servers": bootstrap, "topic": out, "kafka.transactional.id": f"foreach-{out}"}
    )

    def write_and_fail(rows: Any, batch: int) -> None:
        write(rows, batch)
        if failing:
            raise RuntimeError("after the batch, before the checkpoint")

    def run() -> None:
        source = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
        rows = source.option("subscribe", topic).option("startingOffsets", "earliest").load().select("value")
        query = (
            rows.writeStream.foreachBatch(write_and_fail)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    failing = True
    with pytest.raises(StreamingQueryException):
        run()
    failing = False
    send(client, topic, [b"c"])
    run()
    assert sorted(seen.value for seen in consumed(bootstrap, out)) == [b"a", b"b", b"c"]


def test_where_nothing_names_the_query_it_has_to_be_named(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1)
    rows = spark.range(3).selectExpr("string(id) AS value")
    with pytest.raises(Exception, match="exactlyOnce=true is for streaming queries"):
        rows.write.format("barnabas").options(
            **{"kafka.bootstrap.servers": bootstrap, "topic": topic, "exactlyOnce": "true"}
        ).mode("append").save()


def test_places_are_known():
    assert set(IN_TASKS) < set(PLACES)
