"""Regular expressions over topic names: the same answers as `re`, never in exponential time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cores.group.topic_regex import InvalidRegex, _Program, compile_topic_regex

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
    matches, automaton = compile_topic_regex(pattern), _Program(re._parser.parse(pattern)).matches
    for name in NAMES:
        want = re.fullmatch(pattern, name) is not None
        assert matches(name) == want, name
        assert automaton(name) == want, name


@pytest.mark.filterwarnings("ignore::FutureWarning")
@given(st.text("ab(|)*+?.[]^-", max_size=12), st.text("ab-", max_size=8))
@settings(max_examples=300, deadline=None)
def test_agrees_with_re_on_any_pattern(pattern: str, name: str) -> None:
    try:
        want = re.fullmatch(pattern, name) is not None
        matches = compile_topic_regex(pattern)
    except (re.error, InvalidRegex):
        return
    assert matches(name) == want


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*(a*)*b", "a*a*a*a*a*a*a*b", "(.*a){12}b"])
def test_hostile_patterns_take_no_time(pattern: str) -> None:
    assert not compile_topic_regex(pattern)("a" * 249)


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "[z-a]", "a{1,9999}{1,99}", "(?i:a)", "*"])
def test_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegex):
        compile_topic_regex(pattern)
