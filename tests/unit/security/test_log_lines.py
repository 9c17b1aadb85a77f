"""What a peer puts into a line of the log stays a value of that line."""

from __future__ import annotations

import logging

import pytest

from barnabas.observe.logs import FieldFormatter


@pytest.mark.parametrize(
    "text", ["a\nb", "a\rb", "\x1b[2J", "a\x00", "a b", "", "a\u2028b", "a\x85b", "a\u202eb"]
)
def test_a_value_cannot_end_its_line_or_command_a_terminal(text: str) -> None:
    record = logging.makeLogRecord({"msg": "login refused", "name": "barnabas.login", "user": text})
    line = FieldFormatter().format(record)
    assert line.isprintable()
    assert line.endswith(f" user={text!r}")


@pytest.mark.parametrize("text", ["alice", "User:carol/ö", "a=b", "127.0.0.1:9092"])
def test_a_plain_value_is_shown_as_it_is(text: str) -> None:
    record = logging.makeLogRecord({"msg": "login refused", "name": "barnabas.login", "user": text})
    assert FieldFormatter().format(record).endswith(f" user={text}")
