"""Kerberos principals, and the user names to which `sasl.kerberos.principal.to.local.rules` maps them.

Source: Kafka's KerberosName, KerberosRule and KerberosShortNamer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.config.option import ConfigError, refused
from barnabas.security.replacing import python_replacement

OPTION: Final = "sasl.kerberos.principal.to.local.rules"
PRINCIPAL: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
RULE: Final = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
PARAMETER: Final = re.compile(r"\$(\d*)")
NOT_SIMPLE: Final = re.compile(r"[/@]")


class KerberosName(NamedTuple):
    """SERVICE/HOST@REALM; host and realm are empty if the text has none."""

    service: str
    host: str
    realm: str


class NoUserName(Exception):
    """The rules do not map a principal to a valid user name."""


class Rule(NamedTuple):
    """One rule. format: None for DEFAULT, which maps principals of the broker's own realm to their first part."""

    format: str | None
    parts: int = 0
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    is_global: bool = False
    case: str = ""


def parse_name(text: str) -> KerberosName:
    """Parse a principal. Raises ValueError for a text that is not one."""
    match = PRINCIPAL.fullmatch(text)
    if match is not None:
        return KerberosName(match[1], match[2] or "", match[3])
    if "@" in text or not text:
        raise ValueError(f"{text!r} is not a Kerberos principal")
    service, _, host = text.partition("/")
    return KerberosName(service, host, "")


def parse_rules(texts: Iterable[str]) -> tuple[Rule, ...]:
    """The rules of the option: `DEFAULT` and `RULE:[COUNT:FORMAT](MATCH)s/FROM/TO/gL`. Raises ConfigError."""
    return tuple(_parse_rule(text.strip()) for text in texts)


def _parse_rule(text: str) -> Rule:
    match = RULE.fullmatch(text)
    if match is None:
        raise refused(OPTION, text, "must be DEFAULT or like RULE:[1:$1@$0](.*@EXAMPLE)s/@.*//L")
    if match["default"]:
        return Rule(None)
    count = int(match["count"])
    for number in PARAMETER.findall(match["format"]):
        if not number or int(number) > count:
            raise refused(OPTION, text, f"${number} is not one of $0 to ${count}")
    pattern = None if match["from"] is None else _compiled(text, match["from"])
    try:
        replacement = "" if pattern is None else python_replacement(match["to"], pattern.groups)
    except ValueError as error:
        raise refused(OPTION, text, str(error)) from None
    return Rule(
        match["format"],
        count,
        None if match["match"] is None else _compiled(text, match["match"]),
        pattern,
        replacement,
        match["all"] is not None,
        match["case"] or "",
    )


def _compiled(rule: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise refused(OPTION, rule, f"{pattern!r} is not a regular expression: {error}") from None


def user_of(rules: Iterable[Rule], name: KerberosName, realm: str) -> str:
    """The user name to which the rules map a principal. realm: the broker's own. Raises NoUserName."""
    if not name.host and not name.realm:
        return name.service
    parts = [name.realm, name.service, *([name.host] if name.host else [])]
    for rule in rules:
        user = _applied(rule, parts, realm)
        if user is None:
            continue
        if not user or NOT_SIMPLE.search(user):
            raise NoUserName(f"a rule of {OPTION} maps it to {user!r}, which is not a simple name")
        return user.lower() if rule.case == "L" else user.upper() if rule.case == "U" else user
    raise NoUserName(f"no rule of {OPTION} applies to it")


def _applied(rule: Rule, parts: list[str], realm: str) -> str | None:
    if rule.format is None:
        return parts[1] if parts[0] == realm else None
    if len(parts) - 1 != rule.parts:
        return None
    base = PARAMETER.sub(lambda match: parts[int(match[1])], rule.format)
    if rule.match is not None and rule.match.fullmatch(base) is None:
        return None
    if rule.pattern is None:
        return base
    return rule.pattern.sub(rule.replacement, base, count=0 if rule.is_global else 1)


def require_service(option: str, principal: str, service: str | None) -> KerberosName:
    """Parse a broker's own principal, SERVICE/HOST@REALM. service: the one it must have, if any. Raises ConfigError."""
    try:
        name = parse_name(principal)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None
    if not name.service or not name.host:
        raise ConfigError(f"{option}: principal={principal} is not like kafka/HOST@REALM")
    if service is not None and service != name.service:
        raise ConfigError(
            f"sasl.kerberos.service.name={service}: the broker's principal is {principal}; both must name the same service"
        )
    return name
