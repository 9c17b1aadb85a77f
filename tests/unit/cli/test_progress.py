"""The progress line, and who is told when brokers go away."""

from __future__ import annotations

import io
import json
import time

import pytest

from barnabas.cli.records.absence import Absence, has_records
from barnabas.terminal import output, progress
from barnabas.terminal.progress import CLEAR, Progress, time_left_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "BETWEEN_SECONDS", 0.0)


def shown(stream: io.StringIO, **options: bool) -> str:
    with Progress("orders", "record", 1000, stream=stream, **options) as line:
        line.update(250, size_bytes=5000, more="3 under way")
    return stream.getvalue()


def test_a_line_says_how_much_how_fast_and_what_is_left() -> None:
    text = shown(Terminal())
    assert text.startswith(f"{CLEAR}orders: 250 of 1,000 records (25%), 5.0 kB, ")
    assert " records/s, " in text
    assert " left" in text
    assert text.endswith(CLEAR), "and it is gone at the end"


def test_nothing_without_a_terminal_with_q_and_where_it_would_get_into_the_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(io.StringIO()) == ""
    assert shown(Terminal(), shown=False) == ""
    monkeypatch.setattr(output.MANNER, "quiet", True)
    assert shown(Terminal()) == ""


def test_nothing_in_the_first_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 3600.0)
    assert shown(Terminal()) == ""


def test_a_note_takes_the_line_away_first(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Terminal()
    with Progress("orders", "record", stream=stream) as line:
        line.update(1)
        output.note("the broker is away")
        assert stream.getvalue().endswith(CLEAR)


def test_a_total_that_is_not_known() -> None:
    line = Progress("orders", "record", stream=Terminal())
    assert line.text(time.monotonic() + 1, 1, None, None, "").startswith("orders: 1 record, ")


@pytest.mark.parametrize(("seconds", "text"), [(8.2, "8 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_time_left(seconds: float, text: str) -> None:
    assert time_left_text(seconds) == text


def statistics(leader: int, unacknowledged: int = 0, **states: str) -> str:
    brokers = {
        f"host{name[1:]}:9092/{name[1:]}": {"nodename": f"host{name[1:]}:9092", "state": state}
        for name, state in states.items()
    }
    bootstrap = {"host1:9092/bootstrap": {"nodename": "host1:9092", "state": "UP"}}
    part = {"partition": 0, "leader": leader, "fetch_state": "active"}
    part |= {"msgq_cnt": unacknowledged, "xmit_msgq_cnt": 0, "msgs_inflight": 0}
    return json.dumps({"brokers": brokers | bootstrap, "topics": {"orders": {"partitions": {"0": part}}}})


def test_a_broker_that_goes_away_and_comes_back_is_said_once_each() -> None:
    messages: list[str] = []
    now = [0.0]
    absence = Absence(messages.append, lambda: now[0])
    for second, text in enumerate(
        [
            statistics(1, b1="CONNECT"),  # nothing was there yet
            statistics(1, b1="UP"),
            statistics(1, b1="DOWN"),
            statistics(1, b1="UP"),  # only a new connection
            statistics(1, b1="DOWN"),
            statistics(-1, b1="CONNECT"),
            statistics(-1, b1="INIT"),
            statistics(1, b1="UP"),
        ]
    ):
        now[0] = float(second)
        absence.on_statistics(text)
    assert messages == [
        "broker host1:9092 is away; waiting for it",
        "broker host1:9092 is back after 3 s",
    ]


def test_another_leader_ends_the_wait() -> None:
    messages: list[str] = []
    absence = Absence(messages.append, lambda: 0.0)
    for text in (
        statistics(1, b1="UP", b2="UP"),
        statistics(1, b1="DOWN", b2="UP"),
        statistics(1, b1="DOWN", b2="UP"),
        statistics(2, b1="DOWN", b2="UP"),
    ):
        absence.on_statistics(text)
    assert messages[1:] == ["another broker has taken over from host1:9092 after 0 s"]


def test_a_broker_of_which_nothing_is_read_may_stay_away() -> None:
    messages: list[str] = []
    absence = Absence(messages.append, lambda: 0.0)
    for text in (statistics(1, b1="UP", b2="UP"), *[statistics(1, b1="UP", b2="DOWN")] * 3):
        absence.on_statistics(text)
    assert messages == []


def test_a_producer_waits_for_a_broker_only_with_records() -> None:
    messages: list[str] = []
    absence = Absence(messages.append, lambda: 0.0, has_records)
    for text in (statistics(1, b1="UP"), *[statistics(1, b1="DOWN")] * 3):
        absence.on_statistics(text)
    assert messages == []  # the broker may have closed a connection that nobody used
    for text in (*[statistics(1, 5, b1="DOWN")] * 3, statistics(1, 0, b1="DOWN"), statistics(1, 0, b1="UP")):
        absence.on_statistics(text)
    assert messages == ["broker host1:9092 is away; waiting for it", "broker host1:9092 is back after 0 s"]
