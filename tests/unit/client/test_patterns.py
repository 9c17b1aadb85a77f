"""Expressions in Java's syntax: what Spark's option subscribePattern and Kafka's tools accept."""

from __future__ import annotations

import pytest

from barnabas.client.patterns import PatternError, java_pattern

NAMES = ("orders", "orders.eu", "orders-2", "ORDERS", "a.b", "axb", "x_y")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"\p{Lower}+", ["orders", "axb"]),
        (r"\p{Alpha}+", ["orders", "ORDERS", "axb"]),
        (r"[a-z&&[^b]]+", ["orders"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qa.b", ["a.b"]),
        (r"(?<name>orders)(\..*)?", ["orders", "orders.eu"]),
        (r"orders(?!-).*", ["orders", "orders.eu"]),
        (r"(?i)orders", ["orders", "ORDERS"]),
        (r"[a-c[v-z]_]+", ["axb", "x_y"]),
        (r"orders.*+", ["orders", "orders.eu", "orders-2"]),
        (r"a\.b|\Qx_y\E", ["a.b", "x_y"]),
        (r"a\\Qb", []),
    ],
)
def test_expressions_match_what_javas_pattern_matches(expression, expected):
    assert [name for name in NAMES if java_pattern(expression).fullmatch(name)] == expected


def test_a_mistake_is_named_with_its_expression():
    with pytest.raises(PatternError, match=r"'orders\(' is not a regular expression: missing \)"):
        java_pattern("orders(")
