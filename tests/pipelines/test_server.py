"""A server of pipelines: through its HTTP API and its commands, with failures, restarts and a kill in between."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.console.conftest import running
from tests.pipelines.conftest import records_of, send
from tests.support.admin import KEPT
from tests.support.process import free_port

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Server:
    """`barnabas pipelines serve` in a process of its own."""

    program = ("-m", "barnabas")
    words: tuple[str, ...] = ("pipelines", "serve", "--dir")

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.bootstrap, self.port = folder, bootstrap, free_port()
        self.log = folder.parent / "server.log"

    def start(self) -> None:
        command = [sys.executable, *self.program, *self.words, str(self.folder)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *command,
                    "--listen",
                    f"127.0.0.1:{self.port}",
                    "-b",
                    self.bootstrap,
                    "--master",
                    "local[2,2]",
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert select.select([self.process.stdout], [], [], 240)[0], self.log.read_text()
        assert self.process.stdout.readline().startswith(b"ready"), self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)  # Java and the Python workers with it
            else:
                self.process.send_signal(number)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code

    def call(self, method: str, path: str, body: str | bytes | None = None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body)
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        try:
            return answer.status, json.loads(raw) if raw else None
        except ValueError:
            return answer.status, raw.decode()

    def command(self, *arguments: str) -> subprocess.CompletedProcess:
        environment = {**os.environ, "BARNABAS_PIPELINES": f"http://127.0.0.1:{self.port}"}
        return subprocess.run(
            [sys.executable, "-m", "barnabas", "pipelines", *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )


def until(what, seconds: float = 120):
    """Waits until `what()` is true; its last value."""
    give_up = time.monotonic() + seconds
    while True:
        value = what()
        if value or time.monotonic() > give_up:
            assert value, what
            return value
        time.sleep(0.1)


@pytest.fixture
def server(tmp_path, bootstrap):
    started = Server(tmp_path / "pipelines", bootstrap)
    started.start()
    yield started
    started.stop(signal.SIGKILL)


def test_a_day_in_the_life_of_a_server(server, client, new_topic, tmp_path):
    source = new_topic(1)
    text = (
        f"pipeline: {source}\nsource: {{topic: {source}}}\nsteps: [parse: {{json: all}}]\n"
        f"outputs: [{{topic: {source}-out}}]\n"
    )
    out = f"{source}-out"

    def values():
        return [json.loads(row["value"])["n"] for row in records_of(client, out)]

    def done(records):
        queries = server.call("GET", f"/pipelines/{source}")[1]["queries"]
        return bool(queries) and queries[0]["records"] == records

    def put(*numbers):
        send(client, source, [b'{"n": %d}' % n for n in numbers])

    _check_refusals(server, source, text)
    file = tmp_path / "p.yaml"
    file.write_text(text)
    added = server.command("add", str(file))
    assert (added.returncode, added.stdout.split(":")[0]) == (0, source), added.stderr
    put(1, 2)
    until(lambda: values() == [1, 2])
    until(lambda: done(2))
    shown = server.call("GET", f"/pipelines/{source}")[1]
    assert (shown["state"], shown["last_error"], shown["waiting"]) == ("running", None, None)
    until(lambda: server.call("GET", f"/pipelines/{source}")[1]["queries"][0]["lag"] == 0)
    assert f'barnabas_pipeline_up{{pipeline="{source}"}} 1' in server.call("GET", "/metrics")[1]
    assert server.command("list").stdout.splitlines()[1].split()[:3] == [source, "running", out]

    # Paused, it takes nothing; resumed, it goes on from its place.
    assert server.command("pause", source).stdout == f"{source}: paused\n"
    put(3)
    time.sleep(1)
    assert values() == [1, 2]
    assert server.call("POST", f"/pipelines/{source}/resume")[1]["wanted"] == "running"
    until(lambda: values() == [1, 2, 3])
    until(lambda: done(1))  # its checkpoint too: what a kill cuts off before that is written again

    # A server that is killed goes on where it was, with what it ran.
    server.stop(signal.SIGKILL)
    put(4)
    server.start()
    until(lambda: values() == [1, 2, 3, 4])

    # From another place, by offset.
    assert server.command("restart", source, "--from", json.dumps({source: {"0": 3}})).returncode == 0
    until(lambda: values() == [1, 2, 3, 4, 4])

    _fail_and_recover(server, client, source)
    put(5)
    until(lambda: values()[-1:] == [5])

    _check_the_log(server, source)
    _check_in_the_console(server, source, tmp_path)
    _change_what_is_counted(server, client, new_topic, tmp_path)
    preview = {"pipeline": text, "count": 1}
    status, records = server.call("POST", "/preview", json.dumps(preview))
    assert (status, records[0]["steps"][0]["rows"]) == (200, [{"n": 5}])
    assert server.command("remove", source).returncode == 0
    assert server.call("GET", "/pipelines") == (200, [])
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def _fail_and_recover(server, client, source):
    """A failure is reported, retried, and over once its cause is gone."""
    client.delete_topics([source])
    until(lambda: server.call("GET", f"/pipelines/{source}")[1]["state"] == "failed")
    failed = server.command("status", source)
    assert failed.returncode == 1
    assert source in failed.stdout
    _make_again(client, source)
    assert server.command("restart", source, "--from", "earliest").returncode == 0


def _change_what_is_counted(server, client, new_topic, tmp_path):
    """A change that the state cannot follow is refused before anything stops; with --rebuild all is computed again."""
    source = new_topic(1)
    out = f"{source}-out"
    text = (
        f"pipeline: {source}\nsource: {{topic: {source}}}\nsteps: [parse: {{json: {{a: string, b: string}}}}]\n"
        f"outputs: [{{topic: {out}, key: a, aggregate: {{by: [a], compute: {{n: count(*)}}}}}}]\n"
    )

    def newest():
        return {row["key"]: json.loads(row["value"])["n"] for row in records_of(client, out)}

    send(client, source, [b'{"a": "x", "b": "p"}', b'{"a": "x", "b": "q"}'])
    assert server.call("POST", "/pipelines", text)[0] == 201
    until(lambda: newest() == {b"x": 2})
    until(lambda: server.call("GET", f"/pipelines/{source}")[1]["queries"][0]["records"] == 2)
    assert server.call("POST", "/check", text)[1]["mistakes"] == []
    changed = text.replace("key: a, aggregate: {by: [a]", "key: b, aggregate: {by: [b]")
    remarks = server.call("POST", "/check", changed)[1]["remarks"]
    cost = re.compile(
        r"must be rebuilt from the earliest record: 2 records, about .+ at the [\d,.]+ records/s of this"
    )
    assert any(cost.search(remark) for remark in remarks), remarks
    status, answer = server.call("POST", "/pipelines", changed)
    assert (status, "cannot go on with the state that it has" in answer["error"]) == (400, True)
    assert server.call("GET", f"/pipelines/{source}")[1]["state"] == "running"
    file = tmp_path / "changed.yaml"
    file.write_text(changed)
    assert server.command("add", "--rebuild", str(file)).returncode == 0
    until(lambda: newest() == {b"x": 2, b"p": 1, b"q": 1})
    assert server.command("remove", source).returncode == 0


HASTY = """
import functools, sys
from barnabas.cli.main import main
from barnabas.pipelines.serving import supervisor
supervisor.Pace = functools.partial(supervisor.Pace, patience_s=5.0)
sys.exit(main())
"""


@pytest.mark.soak
def test_a_query_whose_processes_hang_is_named_and_the_server_ends(client, new_topic, tmp_path, bootstrap):
    source = new_topic(1)
    server = Server(tmp_path / "pipelines", bootstrap)
    server.program = ("-c", HASTY)
    server.start()
    stopped: list[psutil.Process] = []
    try:
        text = f"pipeline: {source}\nsource: {{topic: {source}}}\noutputs: [{{topic: {source}-out}}]\n"
        assert server.call("POST", "/pipelines", text)[0] == 201
        send(client, source, [b"1"])
        until(lambda: len(records_of(client, f"{source}-out")) == 1)
        for process in psutil.Process(server.process.pid).children(recursive=True):
            if "python" in process.name() and process.status() != psutil.STATUS_ZOMBIE:
                process.suspend()
                stopped.append(process)
        assert stopped
        send(client, source, [b"2"])
        until(lambda: server.call("GET", f"/pipelines/{source}")[1]["stuck"])
        shown = server.command("status", source)
        assert f"{source} stands still: {source}-out: no micro-batch has ended since" in shown.stderr
        assert shown.returncode == 0
        assert "stands still" in server.command("logs", source).stdout
        assert server.stop(signal.SIGINT) == 130
        assert "a service does not stop: what it runs is killed" in server.log.read_text()
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.Error):
                process.kill()
        server.stop(signal.SIGKILL)


def _check_in_the_console(server, source, tmp_path):
    """The pages of the console show and do the same."""
    url = f"http://127.0.0.1:{server.port}"
    with running(server.bootstrap, tmp_path / "console.log", "--pipelines", url) as console:
        assert source in console.page("/pipelines")
        one = console.data(f"/pipelines/{source}")
        assert one["status"]["failures"]
        assert f"topic: {source}" in one["file"]
        assert one["dead"]["reasons"] == []
        assert source in console.page(f"/pipelines/{source}")
        console.send(f"/pipelines/{source}/act", {"action": "pause"})
        until(lambda: server.call("GET", f"/pipelines/{source}")[1]["state"] == "paused")
        assert console.post(f"/pipelines/{source}/act", {"action": "resume"})["action"] == "resume"
        wrong = console.send("/pipelines", {"file": f"pipeline: {source}\nsource: {{}}\n"}, 400)
        assert "topic" in wrong.text
        console.page("/pipelines/nobody", 404)


def _check_refusals(server, source, text):
    """What cannot run is refused at once."""
    assert server.call("POST", "/pipelines", text.replace("parse", "prase"))[0] == 400
    status, answer = server.call("POST", "/pipelines", text.replace(f"topic: {source}}}", "topic: nowhere}"))
    assert (status, "topic nowhere does not exist" in answer["error"]) == (400, True)
    assert server.call("GET", f"/pipelines/{source}")[0] == 404


def _check_the_log(server, source):
    """All that has happened is in the pipeline's log."""
    lines = server.command("logs", source).stdout.splitlines()
    assert [line.split()[2].rstrip(",:") for line in lines if " Spark: " not in line][:4] == [
        "started", "stopped", "started", "started"
    ]  # fmt: skip
    assert any(" ERROR failed: " in line and source in line for line in lines), lines
    assert not [line for line in lines if line.startswith((" ", "\t"))]  # no stacks
    shorter = server.command("logs", source, "-n", "2", "--json").stdout.splitlines()
    assert [set(json.loads(line)) for line in shorter] == [{"at", "level", "query", "text"}] * 2
    assert server.call("GET", f"/pipelines/{source}/logs?lines=0")[0] == 400
    assert server.call("GET", f"/pipelines/{source}/logs?after=x")[0] == 400
    assert server.call("GET", "/pipelines/nobody/logs")[0] == 404


def _make_again(client, topic):
    from barnabas.client.blocking import NewTopic
    from barnabas.client.errors import BrokerError

    def exists_again():
        try:
            client.create_topics([NewTopic(topic, 1, configs=KEPT)])
        except BrokerError:
            return False  # the deletion is still going on
        return True

    until(exists_again)


def test_no_server_and_bad_places(tmp_path):
    environment = {**os.environ, "BARNABAS_PIPELINES": "http://127.0.0.1:1"}

    def command(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "barnabas", "pipelines", *arguments],
            capture_output=True, text=True, env=environment, timeout=120, check=False,
        )  # fmt: skip

    nobody = command("list")
    assert nobody.returncode == 1
    assert "start one with `barnabas pipelines serve`" in nobody.stderr
    assert command("restart", "x", "--from", "yesterday").returncode == 2
