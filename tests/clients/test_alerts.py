"""Alerts reach a real web hook, a real mail server and a topic; a hook that hangs delays nobody; files are checked."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.cli_support import Cli
from tests.support.admin import KEPT, create_topic

WAIT_S = 120


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.tokens: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.tokens.append(self.headers["Authorization"])
                outer.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


@pytest.fixture
def hook() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def mails() -> Iterator[tuple[int, list[Message]]]:
    """The port of a mail server, and what it got."""
    pytest.importorskip("aiosmtpd")
    from aiosmtpd.controller import Controller
    from aiosmtpd.handlers import Message as Handler

    got: list[Message] = []

    class Kept(Handler):
        def handle_message(self, message: Message) -> None:
            got.append(message)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(Kept(), hostname="127.0.0.1", port=port)
    controller.start()
    yield port, got
    controller.stop()


def until(condition: Callable[[], Any]) -> Any:
    give_up = time.monotonic() + WAIT_S
    while not (outcome := condition()):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    return outcome


def test_a_lag_is_told_to_all_and_then_resolved(
    bootstrap: str, hook: Receiver, mails: tuple[int, list[Message]], tmp_path: Path
) -> None:
    topic = f"alerts-{uuid4().hex[:8]}"
    for name in (topic, f"{topic}-told"):
        create_topic(bootstrap, name, 1, KEPT)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(50):
        producer.produce(topic, b"x")
    assert producer.flush(WAIT_S) == 0

    def commit(offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()

    commit(10)
    hanging = socket.create_server(("127.0.0.1", 0))  # it never answers
    port, got = mails
    rules = tmp_path / "alerts.yaml"
    rules.write_text(f"""
notify:
  hangs: {{kind: webhook, url: "http://127.0.0.1:{hanging.getsockname()[1]}/"}}
  hook: {{kind: webhook, url: "{hook.url}", token: secret}}
  mail: {{kind: smtp, server: "127.0.0.1:{port}", from: a@example.org, to: [b@example.org], tls: none}}
  log: {{kind: topic, topic: {topic}-told}}
rules:
  - {{name: behind, kind: lag, group: "{topic}", above: 30, for: 0s, severity: critical}}
  - {{name: alone, kind: no_consumer, group: "{topic}", for: 1h}}
""")
    cli = Cli(bootstrap)
    monitor = cli.start(
        "monitor", "--listen", "127.0.0.1:0", "--interval-s", "0.5", "--size-mb", "0", "--rules", str(rules),
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert monitor.stdout is not None
        url = monitor.stdout.readline().decode().split()[2]
        first = until(lambda: hook.got)[0]
        assert (first["status"], first["groupLabels"]["cause"]) == ("firing", "behind")
        assert len(first["alerts"]) == 1
        assert first["alerts"][0]["labels"]["subject"] == f"group {topic}"
        assert "has not read 40 records" in first["commonAnnotations"]["summary"]
        assert hook.tokens[0] == "Bearer secret"
        mail = until(lambda: got)[0]
        assert mail["Subject"] == f"[critical] local: group {topic} has not read 40 records"
        assert mail["To"] == "b@example.org"
        listed = cli.json("alerts", "list", "--monitor", url)
        assert {(row["rule"], row["state"]) for row in listed["alerts"]} == {
            ("behind", "firing"),
            ("alone", "pending"),
        }
        commit(50)
        last = until(lambda: hook.got[1:])[0]
        assert (last["status"], last["alerts"][0]["status"]) == ("resolved", "resolved")
        until(lambda: len(got) == 2)
        assert got[1]["Subject"].startswith("[resolved]")
        records = (
            cli.out("consume", f"{topic}-told", "--offset", "beginning", "-c", "2").decode().splitlines()
        )
        assert [json.loads(record)["status"] for record in records] == ["firing", "resolved"]
        receivers = {row["name"]: row for row in cli.json("alerts", "list", "--monitor", url)["receivers"]}
        assert (receivers["hook"]["sent"], receivers["hangs"]["sent"]) == (2, 0)
    finally:
        monitor.kill()
        monitor.wait(WAIT_S)
        assert monitor.stdout is not None
        monitor.stdout.close()
        hanging.close()


def test_a_file_is_checked_and_receivers_are_tried(bootstrap: str, hook: Receiver, tmp_path: Path) -> None:
    cli = Cli(bootstrap)
    rules = tmp_path / "alerts.yaml"
    rules.write_text(f"""notify:
  hook: {{kind: webhook, url: "{hook.url}"}}
  gone: {{kind: webhook, url: "http://127.0.0.1:1/"}}
rules:
  - {{name: behind, kind: lag, above: 30}}
""")
    (row,) = cli.json("alerts", "check", str(rules))
    assert (row["rule"], row["kind"], row["notify"]) == ("behind", "lag", ["hook", "gone"])
    done = cli("alerts", "test", str(rules), "--json", code=1)
    results = {row["receiver"]: row["result"] for row in json.loads(done.stdout)}
    assert results["hook"] == "delivered"
    assert "refused" in results["gone"]
    assert "this is a test" in hook.got[0]["commonAnnotations"]["summary"]
    cli("alerts", "test", str(rules), "--notify", "hook")
    rules.write_text("notify: {}\nrules:\n  - {name: a, kind: lagg}\n  - {name: b, kind: lag, abov: 1}\n")
    complaint = cli("alerts", "check", str(rules), code=1).stderr.decode()
    assert "line 3: rule a: kind is 'lagg'; allowed: lag," in complaint
    assert "line 4: rule b has no 'abov'; did you mean 'above'?" in complaint
    assert "line 3" in cli("monitor", "--rules", str(rules), code=2).stderr.decode()
