"""Share sessions: epochs, owners, the limit, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from barnabas.cores.group.share.session import SessionKey, ShareSessions
from barnabas.wire.errors import ApiError, ErrorCode

TOPIC = UUID(int=1)
A, B = SessionKey("g", "a"), SessionKey("g", "b")


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(ApiError) as refusal:
        yield
    assert refusal.value.code is code


def test_a_session_goes_from_epoch_to_epoch() -> None:
    sessions = ShareSessions(10)
    session = sessions.fetch(A, 0, [(TOPIC, 0), (TOPIC, 1)], [], "conn")
    assert sessions.fetch(A, 1, [(TOPIC, 2)], [(TOPIC, 0)], "conn") is session
    assert list(session.partitions) == [(TOPIC, 1), (TOPIC, 2)]
    assert sessions.acknowledge(A, 2) is session
    with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        sessions.fetch(A, 2, [], [], "conn")
    with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        sessions.acknowledge(A, 0)
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        sessions.fetch(B, 1, [], [], "conn")
    again = sessions.fetch(A, 0, [], [], "other")
    assert again is not session
    assert (again.epoch, len(sessions)) == (1, 1)


def test_a_session_ends_with_its_connection() -> None:
    sessions = ShareSessions(10)
    sessions.fetch(A, 0, [], [], "one")
    sessions.fetch(B, 0, [], [], "one")
    sessions.fetch(B, 0, [], [], "two")  # b has come back on another connection
    assert [session.key for session in sessions.close_owned("one")] == [A]
    assert sessions.close_owned("one") == []
    assert sessions.require(B).owner == "two"
    assert sessions.close(B) is not None
    assert sessions.close(B) is None


def test_the_limit_holds_for_new_sessions_only() -> None:
    sessions = ShareSessions(1)
    sessions.fetch(A, 0, [], [], "conn")
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        sessions.fetch(B, 0, [], [], "conn")
    sessions.fetch(A, 0, [], [], "conn")
    sessions.close(A)
    sessions.fetch(B, 0, [], [], "conn")


def test_who_was_served_comes_last() -> None:
    sessions = ShareSessions(1)
    session = sessions.fetch(A, 0, [(TOPIC, n) for n in range(3)], [], "conn")
    sessions.served_last(session, [(TOPIC, 0), (TOPIC, 9)])
    assert [index for _, index in session.partitions] == [1, 2, 0]
