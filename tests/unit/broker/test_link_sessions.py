"""Sessions of fetches from a link's source: requests name only what has changed."""

from __future__ import annotations

from barnabas.broker.links.session import EPOCH_MAX, Asked, FetchSession

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def test_after_the_first_request_only_what_has_changed_is_named() -> None:
    session = FetchSession()
    wanted = {A: Asked(5, 0), B: Asked(7, 0)}
    assert (session.id, session.epoch, session.step(wanted)) == (0, 0, ([A, B], []))
    session.answered(42)
    assert (session.id, session.epoch, session.step(wanted)) == (42, 1, ([], []))
    session.answered(42)
    assert session.step({A: Asked(6, 0), C: Asked(0, -1)}) == ([A, C], [B])
    session.answered(42)
    assert session.step(wanted) == ([A, B], [C])


def test_a_session_that_the_broker_does_not_keep_begins_again_each_time() -> None:
    session = FetchSession()
    for _ in range(3):
        assert (session.id, session.epoch) == (0, 0)
        assert session.step({A: Asked(5, 0)}) == ([A], [])
        session.answered(0)


def test_a_lost_session_names_everything_again() -> None:
    session = FetchSession()
    session.step({A: Asked(5, 0), B: Asked(7, 0)})
    session.answered(42)
    session.reset()
    assert session.step({B: Asked(7, 0)}) == ([B], [])
    assert (session.id, session.epoch) == (0, 0)


def test_epochs_begin_again_at_one() -> None:
    session = FetchSession()
    session.step({A: Asked(5, 0)})
    session.answered(42)
    session.epoch = EPOCH_MAX
    session.answered(42)
    assert session.epoch == 1
