"""Fetch sessions: what an incremental fetch means, and what a lying client is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cores.fetch import EVICTION_MS, FetchPartition, SessionCache, served_last
from barnabas.wire.errors import ApiError, ErrorCode


def part(topic: str, index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(topic, index, offset, 1 << 20)


def opened(cache: SessionCache, *named: FetchPartition, fresh_id: int = 7, now_ms: int = 0):  # type: ignore[no-untyped-def]
    return cache.plan(0, 0, named, (), by_topic_id=False, fresh_id=fresh_id, now_ms=now_ms)


def test_a_fetch_without_a_session_keeps_nothing() -> None:
    cache = SessionCache(10)
    plan = cache.plan(0, -1, [part("a", 0)], (), by_topic_id=False, fresh_id=7, now_ms=0)
    assert plan.session is None
    assert plan.full
    assert len(cache) == 0


def test_an_incremental_fetch_names_only_what_changed() -> None:
    cache = SessionCache(10)
    opened(cache, part("a", 0), part("a", 1), part("b", 0))
    plan = cache.plan(7, 1, [part("a", 1, 5)], [("b", 0)], by_topic_id=False, fresh_id=0, now_ms=1)
    assert not plan.full
    assert [(p.topic, p.partition, p.fetch_offset) for p in plan.partitions] == [("a", 0, 0), ("a", 1, 5)]


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_topic_id", "code"),
    [
        (8, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (7, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (7, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_lies_are_refused(session_id: int, epoch: int, by_topic_id: bool, code: ErrorCode) -> None:
    cache = SessionCache(10)
    opened(cache, part("a", 0))
    with pytest.raises(ApiError) as refusal:
        cache.plan(session_id, epoch, (), (), by_topic_id=by_topic_id, fresh_id=0, now_ms=1)
    assert refusal.value.code == code


def test_the_final_epoch_ends_the_session() -> None:
    cache = SessionCache(10)
    opened(cache, part("a", 0))
    cache.plan(7, -1, (), (), by_topic_id=False, fresh_id=0, now_ms=1)
    assert len(cache) == 0


def test_a_full_cache_serves_without_a_session_until_one_is_old() -> None:
    cache = SessionCache(1)
    assert opened(cache, part("a", 0), fresh_id=1).session is not None
    assert opened(cache, part("a", 0), fresh_id=2, now_ms=EVICTION_MS - 1).session is None
    assert opened(cache, part("a", 0), fresh_id=3, now_ms=EVICTION_MS).session is not None
    assert len(cache) == 1


def test_partitions_that_were_served_go_last() -> None:
    cache = SessionCache(1)
    plan = opened(cache, part("a", 0), part("a", 1), part("a", 2))
    assert plan.session is not None
    served_last(plan.session, [("a", 0), ("a", 1)])
    assert [key[1] for key in plan.session.partitions] == [2, 0, 1]


@given(st.lists(st.tuples(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5))), max_size=20))
def test_a_session_equals_a_dictionary(steps: list[tuple[set[int], set[int]]]) -> None:
    """The model: forgotten partitions go, named ones come or move."""
    cache = SessionCache(1)
    opened(cache, part("t", 0))
    model = {0: 0}
    for epoch, (named, forgotten) in enumerate(steps, 1):
        plan = cache.plan(
            7, epoch, [part("t", index, epoch) for index in named], [("t", index) for index in forgotten],
            by_topic_id=False, fresh_id=0, now_ms=epoch,
        )  # fmt: skip
        for index in forgotten:
            model.pop(index, None)
        model.update(dict.fromkeys(named, epoch))
        assert {p.partition: p.fetch_offset for p in plan.partitions} == model


def many(count: int, topic: str = "t") -> list[FetchPartition]:
    return [part(topic, index) for index in range(count)]


def test_partitions_of_all_sessions_are_bounded() -> None:
    cache = SessionCache(10, partitions_max=10, partitions_per_owner_max=8)
    assert open_for(cache, "a", 1, 6).session is not None
    assert open_for(cache, "b", 2, 5).session is None  # no room, and nobody is old
    assert open_for(cache, "b", 3, 4).session is not None
    assert cache.partition_count == 10
    assert open_for(cache, "c", 4, 5, now_ms=EVICTION_MS).session is not None
    assert cache.partition_count <= 10


def open_for(cache: SessionCache, owner: str, fresh_id: int, count: int, now_ms: int = 0):  # type: ignore[no-untyped-def]
    return cache.plan(0, 0, many(count), (), by_topic_id=False, fresh_id=fresh_id, now_ms=now_ms, owner=owner)


def test_one_connection_pushes_out_its_own_sessions_only() -> None:
    cache = SessionCache(10, partitions_max=100, partitions_per_owner_max=8)
    open_for(cache, "other", 1, 8)
    open_for(cache, "a", 2, 5)
    assert open_for(cache, "a", 3, 5).session is not None
    assert open_for(cache, "a", 4, 9).session is None
    assert cache.partition_count == 8
    with pytest.raises(ApiError):
        cache.plan(3, 1, (), (), by_topic_id=False, fresh_id=0, now_ms=1, owner="a")
    assert cache.plan(1, 1, (), (), by_topic_id=False, fresh_id=0, now_ms=1, owner="other").session


def test_sessions_of_closed_connections_make_room_and_can_be_continued() -> None:
    cache = SessionCache(2)
    open_for(cache, "a", 1, 1)
    open_for(cache, "a", 2, 1)
    cache.owner_gone("a")
    assert cache.plan(2, 1, (), (), by_topic_id=False, fresh_id=0, now_ms=1, owner="b").session
    assert open_for(cache, "c", 3, 1).session is not None
    assert open_for(cache, "c", 4, 1).session is None
    assert cache.partition_count == 2


def test_a_session_that_grows_past_the_bound_ends() -> None:
    cache = SessionCache(10, partitions_max=20, partitions_per_owner_max=8)
    open_for(cache, "a", 1, 6)
    with pytest.raises(ApiError) as refusal:
        cache.plan(1, 1, many(3, "u"), (), by_topic_id=False, fresh_id=0, now_ms=1, owner="a")
    assert refusal.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count) == (0, 0)
