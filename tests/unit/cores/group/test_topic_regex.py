"""Regular expressions over topic names: RE2's answers, never in exponential time, and nothing that is too large."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cores.group.consumer.topic_regex import (
    NAMES_PER_PIECE,
    InvalidRegex,
    TopicPattern,
    compile_topic_regex,
)
from tests.support.examples import examples

PATTERNS = [
    "orders",
    "orders.*",
    "orders|payments",
    "(eu|us)-[a-z]+-[0-9]{2,3}",
    "a?b?c?",
    "[^.]+",
    r"\d+",
    r"\w+-x",
    "^log-.*$",
    "(ab)+",
    "(a|b)*c",
    "x{0}y",
    "a{2,}",
    "(?:ab|a)(?:bc|c)?",
    "",
    ".*",
    "a*?b",
]
NAMES = [
    "",
    "orders",
    "orders-1",
    "payments",
    "eu-west-12",
    "us-x-1",
    "abc",
    "ac",
    "ababc",
    "log-a",
    "12",
    "y",
    "aaa",
    "ab",
    "b",
    "a.b",
    "foo_1-x",
    "aab",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_agrees_with_re(pattern: str) -> None:
    matches = compile_topic_regex(pattern).matches
    for name in NAMES:
        assert matches(name) == (re.fullmatch(pattern, name) is not None), name


@pytest.mark.filterwarnings("ignore::FutureWarning")
@given(st.text("ab(|)*+?.[]^-", max_size=12), st.text("ab-", max_size=8))
@settings(max_examples=examples(300), deadline=None)
def test_agrees_with_re_on_any_pattern(pattern: str, name: str) -> None:
    try:
        want = re.fullmatch(pattern, name) is not None
        matches = compile_topic_regex(pattern).matches
    except (re.error, InvalidRegex):
        return
    possessive = re.search(
        r"[*+?]\+|\(\?", pattern
    )  # Python knows these, RE2 reads them as repeats of repeats
    assert matches(name) == want or possessive


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*(a*)*b", "a*a*a*a*a*a*a*b", "(.*a){12}b"])
def test_hostile_patterns_take_no_time(pattern: str) -> None:
    assert not compile_topic_regex(pattern).matches("a" * 249)


@pytest.mark.parametrize(
    "pattern",
    ["(", "a(?=b)", r"(a)\1", "[z-a]", "a{1,9999}{1,99}", "*", "a?" * 2_400, "(?:[ab]?){1000}", "a" * 20_000],
)
def test_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegex):
        compile_topic_regex(pattern)


def test_hundreds_of_names_are_not_too_many() -> None:
    names = [f"{index * 7919 % 1000:03}.some-team.events" for index in range(100)]
    matches = compile_topic_regex("|".join(names)).matches
    assert all(matches(name) for name in names)
    assert not matches("some-team")


def test_only_new_names_are_matched() -> None:
    compiled = compile_topic_regex("orders-.*")
    asked: list[str] = []

    def noting(name: str) -> object:
        asked.append(name)
        return compiled.fullmatch(name)

    pattern = TopicPattern(noting)
    topics: dict[str, object] = dict.fromkeys(["orders-1", "orders-2", "payments", "__orders-"])
    assert pattern.among(topics) == {"orders-1", "orders-2"}
    assert sorted(asked) == ["orders-1", "orders-2", "payments"]
    asked.clear()
    assert pattern.among({"orders-2": None, "orders-3": None, "payments": None}) == {"orders-2", "orders-3"}
    assert asked == ["orders-3"]
    assert pattern.among({}) == frozenset()


def test_many_topics_are_matched_in_pieces() -> None:
    compiled = compile_topic_regex("t-.*")
    asked = 0

    def counting(name: str) -> object:
        nonlocal asked
        asked += 1
        return compiled.fullmatch(name)

    pattern = TopicPattern(counting)
    topics: dict[str, object] = {f"t-{number}": None for number in range(1_000)}
    before = 0
    for _ in pattern.prepare(topics):
        assert asked - before <= NAMES_PER_PIECE
        before = asked
    assert asked == 1_000
    assert len(pattern.among(topics)) == 1_000
    assert asked == 1_000
