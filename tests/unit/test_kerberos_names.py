"""User names of Kerberos principals: the cases of Kafka's KerberosNameTest and KerberosRuleTest, and mistakes in rules."""

from __future__ import annotations

import pytest

from barnabas.config.option import ConfigError
from barnabas.security.kerberos_names import NoUserName, parse_name, parse_rules, require_service, user_of

REALM = "REALM.COM"
RULES = (
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (RULES, "App.service-name/example.com@REALM.COM", "service-name"),
        (RULES, "App.service-name@REALM.COM", "service-name"),
        (RULES, "user/host@REALM.COM", "user"),
        (["DEFAULT"], "alice@REALM.COM", "alice"),
        (["RULE:[1:$1]/L"], "Alice@REALM.COM", "alice"),
        (["RULE:[1:$1]/U"], "Alice@OTHER", "ALICE"),
        (["RULE:[2:$1]/L"], "ALICE/host@REALM.COM", "alice"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"], "bob@OTHER", "bob"),
        (["RULE:[2:$1-$2](.*)s/-.*/!/U"], "svc/host@X", "SVC!"),
        (["RULE:[1:$1](.*)s/a/b/"], "aa@X", "ba"),
        (["RULE:[1:$1](.*)s/a/b/g"], "aa@X", "bb"),
        (["DEFAULT"], "plain", "plain"),
    ],
)
def test_names(rules: list[str], principal: str, user: str) -> None:
    assert user_of(parse_rules(rules), parse_name(principal), REALM) == user


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        (["DEFAULT"], "alice@OTHER"),
        (["RULE:[2:$1]"], "alice@REALM.COM"),
        (["RULE:[1:$1@$0]"], "alice@REALM.COM"),  # not a simple name
        (["RULE:[1:$1](x.*)"], "alice@REALM.COM"),
        (["RULE:[1:$1](.*)s/.*//"], "alice@REALM.COM"),
    ],
)
def test_principals_that_are_nobody(rules: list[str], principal: str) -> None:
    with pytest.raises(NoUserName):
        user_of(parse_rules(rules), parse_name(principal), REALM)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "RULE",
        "RULE:[1:$1",
        "RULE:[1:$2]",
        "RULE:[1:$]",
        "RULE:[1:$1](*)",
        "DEFAULT x",
        "RULE:[1:$1](.*)s/a/$1/",
        "RULE:[1:$1](.*)s/a/b$/",
        "RULE:[1:$1](.*)s/a/\\/",
    ],
)
def test_rules_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        parse_rules([text])


@pytest.mark.parametrize("text", ["", "a@b@c", "a/b/c@d", "a@b/c"])
def test_texts_that_are_no_principals(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kerberos principal"):
        parse_name(text)


def test_the_brokers_own_principal() -> None:
    assert require_service("o", "kafka/host@R", "kafka").host == "host"
    assert require_service("o", "kafka/host@R", None).realm == "R"
    for principal, service, reason in (
        ("kafka@R", None, "is not like kafka/HOST@REALM"),
        ("kafka/host@R", "other", "both must name the same service"),
        ("a@b@c", None, "is not a Kerberos principal"),
    ):
        with pytest.raises(ConfigError, match=reason):
            require_service("o", principal, service)
