"""Where replicas go, and which names are legal."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cores import topic_names
from barnabas.cores.placement import NotEnoughBrokers, alternate_racks, assign

broker_ids = st.lists(st.integers(0, 500), min_size=1, max_size=12, unique=True)


@given(broker_ids, st.integers(0, 40), st.integers(0, 30), st.integers(1, 4), st.integers(0, 2**128 - 1))
def test_without_racks_replicas_differ_and_load_is_even(ids, start, count, factor, seed) -> None:
    brokers = dict.fromkeys(ids)
    if factor > len(ids):
        with pytest.raises(NotEnoughBrokers):
            assign(brokers, range(start, start + count), factor, seed)
        return
    placed = assign(brokers, range(start, start + count), factor, seed)
    assert list(placed) == list(range(start, start + count))
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(ids)
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values(), default=0) - min((leaders[row] for row in ids), default=0) <= 1
    assert placed == assign(brokers, range(start, start + count), factor, seed)


@given(
    st.dictionaries(st.integers(0, 500), st.sampled_from("abcd"), min_size=1, max_size=12),
    st.integers(1, 30),
    st.integers(1, 5),
    st.integers(0, 2**128 - 1),
)
def test_with_racks_no_rack_has_two_while_another_has_none(racks, count, factor, seed) -> None:
    factor = min(factor, len(racks))
    placed = assign(racks, range(count), factor, seed)
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))


def test_racks_alternate() -> None:
    assert alternate_racks({0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}) == [0, 2, 4, 1, 3]


def test_a_broker_without_rack_switches_racks_off() -> None:
    assert assign({1: "a", 2: None}, range(2), 2, 0) == {0: (1, 2), 1: (2, 1)}


def test_the_shift_grows_with_each_round() -> None:
    placed = assign(dict.fromkeys(range(5)), range(10), 3, 0)
    assert [placed[index] for index in (0, 1, 4, 5, 9)] == [
        (0, 1, 2),
        (1, 2, 3),
        (4, 0, 1),
        (0, 2, 3),
        (4, 1, 2),
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "is longer than the max allowed length 249"),
        ("a b", "one or more characters other than"),
        ("a/b", "one or more characters other than"),
        ("a\n", "one or more characters other than"),
        ("é", "one or more characters other than"),
    ],
)
def test_illegal_names(name: str, says: str) -> None:
    why = topic_names.refusal(name)
    assert why is not None
    assert why.startswith("Topic name is invalid: ")
    assert says in why


@pytest.mark.parametrize("name", ["a", "x" * 249, "A.b_c-9", "...", "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    assert topic_names.refusal(name) is None


def test_collisions() -> None:
    assert topic_names.collision("a.b", ["x", "a_b"]) == "a_b"
    assert topic_names.collision("a_b", ["a.b"]) == "a.b"
    assert topic_names.collision("a.b", ["a.b", "ab"]) is None
    assert topic_names.collision("ab", ["a.b"]) is None
