"""The supervisor of many pipelines, without Spark: one that hangs or fails is not in the way of the others."""

from __future__ import annotations

import re
import threading
import time
from types import MappingProxyType, SimpleNamespace

import pytest
from starlette.testclient import TestClient

from barnabas.client.errors import BrokerUnavailable
from barnabas.http.server import HttpOptions, make_app
from barnabas.observe import service_metrics
from barnabas.observe.metric import Sample
from barnabas.pipelines.compiler.queries import reached_in
from barnabas.pipelines.plan.errors import BrokerAway, PipelineError, TargetAway
from barnabas.pipelines.serving.api import make_service
from barnabas.pipelines.serving.engine import Engine
from barnabas.pipelines.serving.managed import FAILURES_MAX, Wanted
from barnabas.pipelines.serving.manager import Manager
from barnabas.pipelines.serving.measuring import samples
from barnabas.pipelines.serving.pauses import Pace

DEADLINE_S = 20.0
CLIENT = {"bootstrap.servers": "127.0.0.1:1"}


def until(what):
    give_up = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < give_up, what
        time.sleep(0.01)


class Stream:
    """A query that runs until it is stopped."""

    isActive, lastProgress, id, runId = True, None, "2ba2faee-1686", "fd0b8d1c-24c7"
    status = MappingProxyType({"isTriggerActive": False, "isDataAvailable": False, "message": "Waiting"})

    def exception(self):
        return None

    def stop(self):
        self.isActive = False


class Stuck(Stream):
    """A query that failed, and whose target hangs: stopping it takes long."""

    def __init__(self, ends):
        self.ends = ends

    def exception(self):
        return "java.io.IOException: the disk is full"

    def stop(self):
        self.ends.wait(DEADLINE_S)


class Refused:
    """A client whose broker does not answer, until it is back."""

    def __init__(self, engine):
        self.engine = engine

    def __enter__(self):
        if not self.engine.broker_answers:
            raise BrokerUnavailable("nobody answers")
        return self

    def list_offsets(self, wanted):
        return {}

    def describe(self, topics):
        return {}

    def committed(self, group):
        return {}

    def __exit__(self, *_):
        pass


class Scripted(Engine):
    """What Spark and the broker answer depends on the pipeline's name and on these switches."""

    def __init__(self):
        super().__init__()
        self.broker_answers = False
        self.target_answers = False
        self.moves = False
        self.ends = threading.Event()
        self.dead = False
        self.java_starts = True

    can_restart = True

    def death(self, patience_s=0.0):
        return "Spark's Java process was killed by signal 9" if self.dead else None

    def restart(self):
        if not self.java_starts:
            raise PipelineError("no memory")
        self.dead = False
        self.open(SimpleNamespace())

    def prepare(self, spec, bootstrap):
        if not threading.current_thread().name.startswith("pipeline"):
            return  # a check before the pipeline is added
        if spec.name == "hung":
            self.ends.wait(DEADLINE_S)
        if spec.name == "bad":
            raise PipelineError("the target does not answer")
        if spec.name == "away" and not self.broker_answers:
            raise BrokerAway("127.0.0.1:1 does not answer")
        if spec.name == "target" and not self.target_answers:
            raise TargetAway("database: connection refused")

    def plan(self, spec, checkpoints):
        return spec.queries()

    def way_of(self, spec, query):
        return "direct"

    def start(self, managed, query, bootstrap):
        return Stuck(self.ends) if managed.spec.name == "stuck" else Stream()

    def take_progress(self, stream, report):
        if self.moves:
            report.positions, report.reached = {("a", 0): 5}, reached_in({"batchId": 0})
        return self.moves

    def pulses(self):
        return {}

    def client(self, options):
        # Together with the pause between questions, five seconds at the most.
        assert max(options.deadline_s, options.connect_timeout_s, options.request_timeout_s) <= 2
        return Refused(self)


@pytest.fixture
def run(tmp_path):
    """Makes a server of the same folder, at another pace if wanted."""
    servers = []

    def running(**pace):
        server = Manager(tmp_path, CLIENT, engine=Scripted(), pace=Pace(tick_s=0.01, lag_s=0.05, **pace))
        servers.append(server)
        server.open(SimpleNamespace())
        return server

    yield running
    for server in servers:
        server.engine.ends.set()
        server.close()


def text(name):
    return f"pipeline: {name}\nsource: {{topic: a}}\noutputs: [{{topic: b}}]\n"


def test_one_that_hangs_is_in_nobody_s_way(run):
    server = run()
    server.put(text("hung"))
    server.put(text("well"))
    until(lambda: server.status("well")["state"] == "running")
    assert server.status("hung")["state"] == "starting"
    done = threading.Event()
    threading.Thread(target=lambda: (server.want("well", Wanted.PAUSED), done.set()), daemon=True).start()
    assert done.wait(DEADLINE_S / 2)
    assert server.status("well")["state"] == "paused"


def test_pauses_grow_while_preparing_fails(run):
    server = run(first_pause_s=0.01)
    server.put(text("bad"))
    until(lambda: server.status("bad")["restarts"] >= 4)
    status = server.status("bad")
    assert (status["state"], status["last_error"]) == ("failed", "the target does not answer")
    managed = server.get("bad")
    managed.retry_at = 0.0
    seen = managed.restarts
    until(lambda: managed.restarts > seen)
    assert managed.retry_at - time.monotonic() > 0.01 * 2**3 / 2


def test_failures_are_kept_over_a_restart_and_bounded(run):
    server = run(first_pause_s=0.0)
    server.put(text("bad"))
    until(lambda: server.status("bad")["restarts"] > FAILURES_MAX + 2)
    server.want("bad", Wanted.STOPPED)
    until(lambda: server.get("bad").work is None)
    kept = server.status("bad")["failures"]
    assert len(kept) == FAILURES_MAX
    assert {failure["reason"] for failure in kept} == {"the target does not answer"}
    again = run()
    assert again.status("bad")["failures"] == kept
    (server.folder / "bad" / "failures.json").write_text("[{")
    again.put(text("bad"), start=False)
    assert again.status("bad")["failures"] == kept
    assert run().status("bad")["failures"] == []


def test_a_broker_that_does_not_answer_is_told(run):
    server = run()
    server.put(text("well"))
    until(lambda: server.status("well")["waiting"] is not None)
    assert server.status("well")["waiting"].startswith("waiting for the broker since ")
    assert server.status("well")["state"] == "running"


def test_what_failed_without_a_broker_goes_on_when_it_is_back(run):
    server = run(first_pause_s=1000.0)
    server.put(text("away"))
    until(lambda: server.status("away")["state"] == "failed")
    status = server.status("away")
    assert status["waiting"].startswith("waiting for the broker since ")
    assert status["last_error"] == "127.0.0.1:1 does not answer"
    server.engine.broker_answers = True
    until(lambda: server.status("away")["state"] == "running")
    assert server.status("away")["waiting"] is None


def test_a_target_that_does_not_answer_is_tried_often_and_told_once(run):
    server = run(first_pause_s=1000.0, target_s=0.01)
    server.engine.broker_answers = True
    server.put(text("target"))
    until(lambda: server.status("target")["restarts"] >= 5)
    status = server.status("target")
    assert re.fullmatch(
        r"waiting for a target since [0-9:]{8}Z: database: connection refused", status["waiting"]
    )
    assert len(status["failures"]) == 1
    assert len([line for line in server.logs("target", 100).lines if line.text.startswith("failed")]) == 1
    server.engine.target_answers = True
    until(
        lambda: server.status("target")["state"] == "running" and server.status("target")["waiting"] is None
    )


def test_a_query_that_cannot_be_stopped_is_in_nobody_s_way(run):
    server = run()
    server.put(text("stuck"))
    until(lambda: server.get("stuck").work is not None and server.get("stuck").running)
    server.put(text("well"))
    until(lambda: server.status("well")["state"] == "running")
    server.get("stuck").wanted = Wanted.STOPPED
    server.engine.ends.set()
    until(lambda: not server.get("stuck").running)
    assert "the disk is full" in server.get("stuck").last_error


def test_a_query_that_stands_still_is_named_with_what_spark_logged(run):
    server = run(patience_s=0.0, look_s=0.0)
    server.engine.broker_answers = True
    server.put(text("well"))
    until(lambda: "no micro-batch" in (server.status("well")["stuck"] or ""))
    status = server.status("well")
    assert status["state"] == "running"
    assert re.fullmatch(r"b: no micro-batch has ended since [0-9:]{8}Z; Spark: Waiting", status["stuck"])
    assert [query["stuck"] for query in status["queries"]] == [status["stuck"].removeprefix("b: ")]
    assert Sample(service_metrics.STUCK, 1, ("well",)) in [*samples([status])]
    (server.folder / "spark.log").write_text(
        "2099-01-31T12:00:00.000Z WARN TaskSetManager [well/b/] Lost task 0.0: "
        "org.apache.spark.SparkException: Python worker failed to connect back.\n"
    )
    until(lambda: "failed to connect back" in (server.status("well")["stuck"] or ""))
    lines = [
        line.text for line in server.logs("well", 100).lines if line.query == "b" and "stands" in line.text
    ]
    assert len(lines) == 1
    server.engine.moves = True
    until(lambda: any(line.text == "goes on" for line in server.logs("well", 100).lines))
    until(lambda: server.status("well")["stuck"] is None)


def test_a_start_that_takes_long_is_named(run):
    server = run(patience_s=0.0)
    server.put(text("hung"))
    until(lambda: server.status("hung")["stuck"])
    assert re.fullmatch(r"has been starting for \d+ s", server.status("hung")["stuck"])


def test_the_log_of_a_pipeline_is_kept_over_a_restart(run):
    server = run()
    server.put(text("bad"))
    until(lambda: server.status("bad")["restarts"] >= 1)
    server.want("bad", Wanted.STOPPED)
    until(lambda: server.get("bad").work is None)
    line = server.logs("bad", 100).lines[0]
    assert (line.level, line.text.partition(", ")[0]) == ("ERROR", "failed: the target does not answer")
    assert run().logs("bad", 100).lines[0] == line


def test_masked_files_are_not_taken(run):
    server = run()
    with pytest.raises(PipelineError, match="in place of a secret"):
        server.put(text("x") + "bootstrap: '********'\n")


def test_when_java_dies_health_says_so_until_all_pipelines_go_on(run):
    server = run(first_pause_s=0.01)
    server.put(text("well"))
    until(lambda: server.status("well")["state"] == "running")
    client = TestClient(make_app(make_service(server), HttpOptions("127.0.0.1:0")), "http://127.0.0.1")
    assert client.get("/health").json() == {"status": "ok", "pipelines": 1, "failed": 0}
    before = server.get("well").running[0][0]
    before.stop = before.exception = lambda: 1 / 0  # no answer comes from a dead process
    server.engine.java_starts = False
    server.engine.dead = True
    until(lambda: "has failed: no memory" in (server.trouble or ""))
    health, ready = client.get("/health"), client.get("/ready")
    assert (health.status_code, health.json()["status"]) == (500, "unhealthy")
    reason = "Spark's Java process was killed by signal 9; starting it again has failed: no memory"
    assert health.json()["reason"] == ready.json()["reason"] == server.status("well")["stuck"] == reason
    assert ready.status_code == 503
    server.engine.java_starts = True
    until(lambda: server.get("well").running and server.get("well").running[0][0] is not before)
    assert (client.get("/health").status_code, client.get("/ready").status_code) == (200, 200)
    assert server.status("well")["last_error"] is None
    lines = [line.text for line in server.logs("well", 100).lines]
    assert lines[-2:] == ["starts again: Spark's Java process had ended", "started, restarts=0"]


def test_what_runs_in_a_dead_java_can_be_paused(run):
    server = run()
    server.put(text("well"))
    until(lambda: server.status("well")["state"] == "running")
    server.get("well").running[0][0].stop = lambda: 1 / 0
    server.engine.java_starts = False
    server.engine.dead = True
    server.want("well", Wanted.PAUSED)
    assert server.status("well")["state"] == "paused"


def test_without_a_way_to_start_java_again_what_ran_has_failed(run):
    server = run()
    server.put(text("well"))
    until(lambda: server.status("well")["state"] == "running")
    server.engine.can_restart = False
    server.engine.dead = True
    until(lambda: server.status("well")["last_error"] == "Spark's Java process had ended")
    assert server.trouble == "Spark's Java process was killed by signal 9"
