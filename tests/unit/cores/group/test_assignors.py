"""What holds for every assignment: complete, without doubles, balanced, and as little moved as possible."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cores.group.assignors import (
    ASSIGNORS,
    NOTHING,
    Assignment,
    AssignSpec,
    assign_range,
    assign_uniform,
)
from tests.support.examples import examples

TOPICS = [UUID(int=number + 1) for number in range(4)]
partitions = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})
subscriptions = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(7)]), st.frozensets(st.sampled_from(TOPICS)), max_size=7
)


def spec(
    counts: dict[UUID, int], topics: dict[str, frozenset[UUID]], current: dict[str, Assignment] | None = None
) -> AssignSpec:
    return AssignSpec(counts, topics, current or {}, {member: member for member in topics})


def wanted(counts: dict[UUID, int], topics: dict[str, frozenset[UUID]]) -> set[tuple[UUID, int]]:
    return {(topic, number) for mine in topics.values() for topic in mine for number in range(counts[topic])}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(counts=partitions, topics=subscriptions, later=subscriptions)
@settings(max_examples=examples(150), deadline=None)
def test_complete_and_without_doubles(
    name: str, counts: dict[UUID, int], topics: dict[str, frozenset[UUID]], later: dict[str, frozenset[UUID]]
) -> None:
    first = ASSIGNORS[name](spec(counts, topics))
    second = ASSIGNORS[name](spec(counts, later, first))
    for shares, asked in ((first, topics), (second, later)):
        given_out = [tp for share in shares.values() for tp in share]
        assert len(given_out) == len(set(given_out))
        assert set(given_out) == wanted(counts, asked)
        assert all(tp[0] in asked[member] for member, share in shares.items() for tp in share)
        assert set(shares) == set(asked)


@given(count=st.integers(0, 50), before=st.integers(1, 8), after=st.integers(1, 8))
@settings(max_examples=examples(150), deadline=None)
def test_uniform_moves_no_more_than_balance_needs(count: int, before: int, after: int) -> None:
    counts = {TOPICS[0]: count}
    first = assign_uniform(spec(counts, {f"m{i}": frozenset(TOPICS[:1]) for i in range(before)}))
    members = {f"m{i}": frozenset(TOPICS[:1]) for i in range(after)}
    second = assign_uniform(spec(counts, members, first))
    sizes = [len(share) for share in second.values()]
    assert max(sizes) - min(sizes) <= 1
    for member, share in second.items():
        had = first.get(member, NOTHING)
        assert len(share & had) == min(len(had), len(share)), "a member lost one partition and got another"


@given(counts=partitions, topics=subscriptions)
@settings(max_examples=examples(150), deadline=None)
def test_uniform_leaves_no_move_that_would_help(
    counts: dict[UUID, int], topics: dict[str, frozenset[UUID]]
) -> None:
    shares = assign_uniform(spec(counts, topics))
    for member, share in shares.items():
        for topic, _ in share:
            for other, mine in topics.items():
                if topic in mine:
                    assert len(share) - len(shares[other]) <= 1, (member, other)


def test_range_splits_equal_topics_alike() -> None:
    topics = {name: frozenset(TOPICS[:2]) for name in ("b", "a", "c")}
    shares = assign_range(spec({TOPICS[0]: 5, TOPICS[1]: 5}, topics))
    numbers = {name: sorted(n for topic, n in share if topic == TOPICS[0]) for name, share in shares.items()}
    assert numbers == {"a": [0, 1], "b": [2, 3], "c": [4]}
    for share in shares.values():
        assert {n for t, n in share if t == TOPICS[0]} == {n for t, n in share if t == TOPICS[1]}
