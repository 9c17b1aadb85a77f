"""Replacement texts of rules mean what they mean in Java."""

from __future__ import annotations

import re

import pytest

from barnabas.config.option import ConfigError
from barnabas.security import kerberos_names, names
from barnabas.security.replacing import python_replacement


@pytest.mark.parametrize(
    ("pattern", "replacement", "wanted"),
    [
        (r"CN=(\w+),OU=(\w+)", "$1@$2", "alice@dev"),
        (r"CN=(\w+),OU=(\w+)", "$0", "CN=alice,OU=dev"),
        (r"CN=(\w+),OU=(\w+)", r"\$1-\n\\", "$1-n\\"),
        (r"CN=(\w+),OU=(\w+)", "$12", "alice2"),
        (r"CN=(\w+),OU=(\w+)", "$1$3x", "alice$3x"),
        (r"CN=.*", "", ""),
    ],
)
def test_as_in_java(pattern: str, replacement: str, wanted: str) -> None:
    compiled = re.compile(pattern)
    match = compiled.fullmatch("CN=alice,OU=dev")
    assert match is not None
    assert match.expand(python_replacement(replacement, compiled.groups, keep_missing=True)) == wanted


@pytest.mark.parametrize("replacement", ["user$", "$x", "${name}", "user\\"])
def test_what_java_rejects(replacement: str) -> None:
    with pytest.raises(ValueError, match="must be followed by"):
        python_replacement(replacement, 1)


def test_in_rules() -> None:
    rules = names.parse_rules(r"RULE:^CN=(\w+),.*$/$1\/$2/L")
    assert names.map_subject(rules, "CN=Alice,OU=dev") == "alice/$2"
    with pytest.raises(ConfigError, match="group that the pattern does not have"):
        names.parse_rules("RULE:^CN=.*$/$1/")
    # Kafka replaces wherever the pattern matches, also at the empty end.
    assert names.map_subject(names.parse_rules("RULE:.*/user/"), "CN=a") == "useruser"
    assert names.map_subject(names.parse_rules(r"RULE:CN=(\w+).*?/$1/"), "CN=alice,OU=dev") == "alice,OU=dev"
    rules = kerberos_names.parse_rules([r"RULE:[2:$1](.*)s/(a.*)/\$$1\n/"])
    assert kerberos_names.user_of(rules, kerberos_names.parse_name("alice/host@REALM"), "REALM") == "$alicen"
