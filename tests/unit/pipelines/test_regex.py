"""Named groups, taken out of patterns for Java."""

from __future__ import annotations

import pytest

from barnabas.pipelines.plan.patterns import NAMED_PATTERNS, PatternError, compile_pattern


def test_names_are_kept_and_numbers_counted():
    pattern = compile_pattern(r"(a)(?<first_one>x[(](?:\()(?P<two>y))(?=z)\Q(\E(?i:q)")
    assert pattern.regex == r"(a)(x[(](?:\()(y))(?=z)\Q(\E(?i:q)"
    assert pattern.groups == ((2, "first_one"), (3, "two"))


@pytest.mark.parametrize(
    ("text", "message"), [("a(b)", "has no named group"), ("(?<a>x)(?<a>y)", "two groups called 'a'")]
)
def test_useless_patterns(text, message):
    with pytest.raises(PatternError, match=message):
        compile_pattern(text)


@pytest.mark.parametrize("name", NAMED_PATTERNS)
def test_named_patterns_compile(name):
    assert compile_pattern(NAMED_PATTERNS[name]).groups
